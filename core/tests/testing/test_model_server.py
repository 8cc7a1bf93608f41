import json
import threading
import urllib.error
import urllib.request

import httpx
import pytest
from agentlightning.testing.model_script import (
    Turn,
    prompt_text,
    scripted_turn,
    token_ids,
)
from agentlightning.testing.model_server import ModelServer, RawReply

SCRIPT = [{"role": "user", "content": '[[tool:add:{"a": 1};;tool:stop;;say:done]]'}]


def post(server, body, path="/any/prefix/v1/chat/completions"):
    address = server.url.removesuffix("/v1") + path
    request = urllib.request.Request(address, json.dumps(body).encode())
    with urllib.request.urlopen(request) as reply:
        return json.loads(reply.read())


def test_a_script_in_the_prompt_is_followed_turn_by_turn():
    said = [{"role": "assistant", "content": ""}]
    assert scripted_turn(SCRIPT) == Turn(tool="add", arguments='{"a": 1}')
    assert scripted_turn(SCRIPT + said) == Turn(tool="stop")
    assert scripted_turn(SCRIPT + 2 * said) == Turn(text="done")
    assert scripted_turn(SCRIPT + 9 * said) == Turn(text="done")
    assert scripted_turn([{"role": "user", "content": "hi"}]) == Turn(text="ok")


def test_the_next_prompt_continues_prompt_and_reply_token_for_token():
    with ModelServer() as server:
        messages = list(SCRIPT)
        for _ in range(3):
            reply = post(server, {"model": "m", "messages": messages, "return_token_ids": True})
            choice = reply["choices"][0]
            before = reply["prompt_token_ids"] + choice["token_ids"]
            messages.append(choice["message"])
            following = token_ids(prompt_text(messages))
            assert following[: len(before)] == before


def test_ids_and_logprobs_come_only_when_asked_for():
    with ModelServer() as server:
        plain = post(server, {"model": "m", "messages": SCRIPT})
        full = post(
            server,
            {"model": "m", "messages": SCRIPT, "return_token_ids": True, "logprobs": True, "n": 2},
        )
    assert "prompt_token_ids" not in plain
    assert "token_ids" not in plain["choices"][0]
    assert plain["choices"][0]["logprobs"] is None
    assert len(full["choices"]) == 2
    choice = full["choices"][1]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"])
    assert full["usage"]["completion_tokens"] == 2 * len(choice["token_ids"])


def test_requests_are_kept_and_failures_come_on_demand():
    with ModelServer() as server:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            post(server, {"messages": [{"role": "user", "content": "FAIL500"}]})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            post(server, {}, "/v1/embeddings")
        server.reply = lambda request: RawReply(b"{}", status=429)
        with pytest.raises(urllib.error.HTTPError, match="429"):
            post(server, {"messages": []})
    assert [request.path for request in server.requests][1] == "/v1/embeddings"
    assert server.requests[0].headers["host"].startswith("127.0.0.1:")


def test_stopping_leaves_no_thread_behind():
    before = threading.active_count()
    with ModelServer() as server:
        post(server, {"messages": []})
    assert threading.active_count() <= before


def test_messages_and_completions_are_spoken_too():
    with ModelServer() as server, httpx.Client(base_url=server.url) as client:
        say = '[[tool:add:{"a": 1};;say:three]]'
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": say}]}
        message = client.post("messages", json=asked).json()
        events = client.post("messages", json={**asked, "stream": True}).text
        completion = client.post("completions", json={"model": "m", "prompt": "hi", "n": 2}).json()
        chunks = client.post("completions", json={"model": "m", "prompt": "hi", "stream": True}).text
    assert message["content"][0]["input"] == {"a": 1}
    assert message["stop_reason"] == "tool_use"
    assert "event: content_block_delta" in events
    assert events.endswith('data: {"type": "message_stop"}\n\n')
    assert [choice["text"] for choice in completion["choices"]] == ["ok", "ok"]
    assert chunks.endswith("data: [DONE]\n\n")
