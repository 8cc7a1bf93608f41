"""The faults a scripted model server can be told to make, as clients meet them."""

from __future__ import annotations

import threading

import anthropic
import httpx
import openai
import pytest
from agentlightning.llm_api.streams import StreamedReply
from agentlightning.testing import Fault, ModelServer, RawReply, Turn

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = {"model": "m", "messages": MESSAGES}
STREAMED = {**CHAT, "stream": True}
PATHS = {
    "chat/completions": CHAT,
    "completions": {"model": "m", "prompt": "hi"},
    "responses": {"model": "m", "input": "hi"},
    "messages": {**CHAT, "max_tokens": 9},
}


def faulty(**fault) -> ModelServer:
    return ModelServer(reply=lambda _: Fault(**fault))


@pytest.mark.parametrize("path", PATHS)
def test_a_lost_reply_is_a_broken_connection(path: str):
    with faulty(lost=True) as server, pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"{server.url}/{path}", json=PATHS[path])


@pytest.mark.parametrize("path", PATHS)
def test_a_cut_stream_breaks_in_the_middle(path: str):
    with (
        faulty(cut_after=1, turn=Turn(text="a long text")) as server,
        httpx.stream("POST", f"{server.url}/{path}", json={**PATHS[path], "stream": True}) as reply,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        reply.read()


@pytest.mark.parametrize("path", PATHS)
def test_a_malformed_event_comes_where_it_was_asked_for(path: str):
    with faulty(malformed_after=1) as server:
        text = httpx.post(f"{server.url}/{path}", json={**PATHS[path], "stream": True}).text
    assert text.count("this is no JSON") == 1


def test_an_error_has_the_shape_of_its_protocol():
    with faulty(status=429) as server:
        asked = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        with pytest.raises(openai.RateLimitError, match="told to fail"):
            asked.chat.completions.create(**CHAT)
        asked = anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key="k", max_retries=0)
        with pytest.raises(anthropic.RateLimitError, match="told to fail"):
            asked.messages.create(**CHAT, max_tokens=9)
    with ModelServer() as server:
        body = {"model": "m", "messages": [{"role": "user", "content": "FAIL503"}]}
        assert httpx.post(f"{server.url}/chat/completions", json=body).status_code == 503


def test_a_stream_waits_until_it_is_told_to_go_on():
    go_on = threading.Event()
    with (
        faulty(wait_after=1, wait_for=go_on) as server,
        httpx.stream("POST", f"{server.url}/chat/completions", json=STREAMED) as reply,
    ):
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        go_on.set()
        assert "data: [DONE]" in list(lines)


def test_a_server_without_ids_gives_none_though_asked():
    asked = {**CHAT, "return_token_ids": True, "logprobs": True}
    with ModelServer(token_ids=False) as server:
        reply = httpx.post(f"{server.url}/chat/completions", json=asked).json()
    assert "prompt_token_ids" not in reply
    assert reply["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
def test_a_stream_put_together_is_the_reply_that_comes_in_one(api: str):
    path = {"chat": "chat/completions"}.get(api, api)
    turn = Turn(
        text="said", tool="a", arguments='{"x": "12345678"}', more=(("b", "{}"),), reasoning="so"
    )
    asked = {**PATHS[path], "return_token_ids": True}
    with ModelServer(reply=lambda _: turn) as server:
        whole = httpx.post(f"{server.url}/{path}", json=asked).json()
        reply = StreamedReply(api)
        reply.feed(httpx.post(f"{server.url}/{path}", json={**asked, "stream": True}).content)
    assert reply.complete
    if api == "chat":
        (one,), (other,) = reply.body()["choices"], whole["choices"]
        assert one["token_ids"] == other["token_ids"]
        made = [call["function"] for call in one["message"]["tool_calls"]]
        assert made == [call["function"] for call in other["message"]["tool_calls"]]
        assert one["message"]["reasoning_content"] == "so"
    elif api == "completions":
        assert reply.body()["choices"][0]["token_ids"] == whole["choices"][0]["token_ids"]
        assert reply.body()["choices"][0]["text"] == "said"
    elif api == "messages":
        blocks = [{**block, "id": None} for block in reply.body()["content"]]
        assert blocks == [{**block, "id": None} for block in whole["content"]]
        assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    else:
        kinds = [item["type"] for item in reply.body()["output"]]
        assert kinds == ["reasoning", "message", "function_call", "function_call"]


def test_a_raw_reply_is_sent_as_it_is():
    with ModelServer(reply=lambda _: RawReply(b"<html>", content_type="text/html")) as server:
        assert httpx.post(f"{server.url}/chat/completions", json=CHAT).text == "<html>"
