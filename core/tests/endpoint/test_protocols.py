"""The four protocols as their official clients speak them, in front of both kinds of engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import openai
import pytest
from agentlightning.testing import ModelServer
from agentlightning.testing.model_bodies import chat_body
from agentlightning.testing.model_script import token_ids
from endpoint_bench import Bench, EchoEngine

SCRIPT = '[[tool:add:{"a":1, "b": 2};;tool:stop;;say:done]]'
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CHAT_TOOLS = [
    {"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in ("add", "stop")
]
RESPONSES_TOOLS = [{"type": "function", "name": n, "parameters": SCHEMA} for n in ("add", "stop")]
MESSAGES_TOOLS = [{"name": n, "input_schema": SCHEMA} for n in ("add", "stop")]


def chat_agent(bench: Bench, claim, *, stream: bool) -> str:
    client, messages = bench.openai(claim), [{"role": "user", "content": SCRIPT}]
    while True:
        asked = {"model": "policy", "messages": messages, "tools": CHAT_TOOLS}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        if not message.tool_calls:
            return message.content
        call = message.tool_calls[0]
        function = {"name": call.function.name, "arguments": call.function.arguments}
        said = [{"id": call.id, "type": "function", "function": function}]
        messages.append({"role": "assistant", "tool_calls": said})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "3"})


def responses_agent(bench: Bench, claim, *, stream: bool, chained: bool = False) -> str:
    client, items = bench.openai(claim), [{"role": "user", "content": SCRIPT}]
    previous: dict[str, str] = {}
    while True:
        asked = {"model": "policy", "input": items, "tools": RESPONSES_TOOLS, **previous}
        if stream:
            with client.responses.stream(**asked) as events:
                reply = events.get_final_response()
        else:
            reply = client.responses.create(**asked)
        call = next((item for item in reply.output if item.type == "function_call"), None)
        if call is None:
            return reply.output_text
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
        if chained:
            previous, items = {"previous_response_id": reply.id}, [result]
        else:
            told = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
            items += [{"type": "function_call", **told}, result]


def messages_agent(bench: Bench, claim, *, stream: bool) -> str:
    client, messages = bench.anthropic(claim), [{"role": "user", "content": SCRIPT}]
    while True:
        asked = {"model": "policy", "messages": messages, "tools": MESSAGES_TOOLS, "max_tokens": 100}
        if stream:
            with client.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**asked)
        if message.stop_reason != "tool_use":
            return message.content[0].text
        use = message.content[0]
        said = {"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "3"}
        messages += [{"role": "assistant", "content": [said]}, {"role": "user", "content": [result]}]


def chained_agent(bench: Bench, claim, *, stream: bool) -> str:
    return responses_agent(bench, claim, stream=stream, chained=True)


@contextmanager
def serving(bench: Bench, engine: str) -> Iterator[list[dict[str, Any]]]:
    """Serves the scripted model over HTTP or in this process; gives the requests it got."""
    if engine == "in process":
        yield bench.serve(EchoEngine(chat_body)).asked
        return
    with ModelServer() as server:
        bench.serve_at(server.url)
        asked: list[dict[str, Any]] = []
        yield asked
        asked += [request.body for request in server.requests]


AGENTS = {
    "chat": chat_agent,
    "responses": responses_agent,
    "responses chained": chained_agent,
    "messages": messages_agent,
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("engine", ["over http", "in process"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agents_turns_continue_each_other_token_for_token(
    bench: Bench, name: str, engine: str, stream: bool
):
    agent: Callable[..., str] = AGENTS[name]
    claim = bench.claim()
    with serving(bench, engine) as asked:
        assert agent(bench, claim, stream=stream) == "done"
    calls = bench.calls(claim)
    assert [(call.seq, call.api, call.complete, call.streamed) for call in calls] == [
        (number, name.partition(" ")[0], True, stream) for number in (1, 2, 3)
    ]
    for call, following in pairwise(calls):
        told = [*call.prompt_ids, *call.choices[0].response_ids]
        assert list(following.prompt_ids)[: len(told)] == told
    for call in calls:
        (choice,) = call.choices
        assert len(choice.response_ids) == len(choice.logprobs)
        assert call.usage
    assert list(calls[2].choices[0].response_ids) == token_ids("done<end>")
    # Whatever the agent spoke, the engine was asked in chat completions, for ids and logprobs.
    assert [set(body) & {"input", "system", "previous_response_id"} for body in asked] == [set()] * 3
    assert all(body["return_token_ids"] is True and body["logprobs"] is True for body in asked)


@pytest.mark.parametrize("name", ["responses", "messages"])
def test_a_request_is_recorded_in_the_agents_own_words(bench: Bench, name: str):
    claim = bench.claim()
    with serving(bench, "over http"):
        AGENTS[name](bench, claim, stream=False)
    first = bench.calls(claim)[0]
    held = first.request["input" if name == "responses" else "messages"]
    assert held == [{"role": "user", "content": SCRIPT}]
    assert "token_ids" not in str(first.response)
    assert first.response_id == first.response["id"]
    spoken = {"responses": ("openai", "chat"), "messages": ("anthropic", "chat")}[name]
    span = bench.spans(claim)[0]
    named = ("gen_ai.provider.name", "gen_ai.operation.name")
    assert tuple(span.attributes[key] for key in named) == spoken


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("prompt", ["hello", [104, 105]], ids=["text", "ids"])
def test_completions_are_recorded_with_the_tokens_of_every_choice(bench: Bench, stream: bool, prompt):
    claim = bench.claim()
    with ModelServer(reply=lambda _: "said") as server:
        bench.serve_at(server.url)
        asked = {"model": "policy", "prompt": prompt, "n": 2}
        reply = bench.openai(claim).completions.create(stream=stream, **asked)
        text = "".join(piece.choices[0].text for piece in reply) if stream else reply.choices[1].text
    assert text == ("saidsaid" if stream else "said")
    (call,) = bench.calls(claim)
    assert (call.api, call.complete) == ("completions", True)
    assert list(call.prompt_ids) == (token_ids("hello") if prompt == "hello" else prompt)
    assert [list(choice.response_ids) for choice in call.choices] == [token_ids("said")] * 2
    assert [len(choice.logprobs) for choice in call.choices] == [4, 4]


def test_several_prompts_at_once_are_answered_but_hold_no_prompt_to_train_on(bench: Bench):
    claim = bench.claim()
    with ModelServer() as server:
        bench.serve_at(server.url)
        asked = bench.openai(claim).completions.create(model="policy", prompt=["a", "b"])
    assert [choice.text for choice in asked.choices] == ["ok", "ok"]
    (call,) = bench.calls(claim)
    assert call.complete
    assert call.prompt_ids is None


def test_an_engine_of_this_process_says_that_it_answers_chat_only(bench: Bench):
    bench.serve(EchoEngine())
    with pytest.raises(openai.BadRequestError, match="answers chat completions only"):
        bench.openai(bench.claim()).completions.create(model="policy", prompt="hello")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_every_choice_of_several_is_recorded_with_its_own_tokens(bench: Bench, stream: bool):
    claim = bench.claim()
    with ModelServer(reply=lambda _: "said") as server:
        bench.serve_at(server.url)
        asked = {"model": "policy", "messages": [{"role": "user", "content": "x"}], "n": 3}
        reply = bench.openai(claim).chat.completions.create(stream=stream, **asked)
        list(reply)
    (call,) = bench.calls(claim)
    assert call.complete
    assert [choice.index for choice in call.choices] == [0, 1, 2]
    assert [list(choice.response_ids) for choice in call.choices] == [token_ids("said<end>")] * 3


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_pictures_reach_the_model_and_only_their_size_the_record(bench: Bench, api: str):
    claim, payload = bench.claim(), "aGVsbG8h" * 2000
    url = f"data:image/png;base64,{payload}"
    with ModelServer() as server:
        bench.serve_at(server.url)
        if api == "chat":
            parts = [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": url}}]
            bench.openai(claim).chat.completions.create(
                model="policy", messages=[{"role": "user", "content": parts}]
            )
        elif api == "responses":
            parts = [{"type": "input_text", "text": "what"}, {"type": "input_image", "image_url": url}]
            bench.openai(claim).responses.create(
                model="policy", input=[{"role": "user", "content": parts}]
            )
        else:
            source = {"type": "base64", "media_type": "image/png", "data": payload}
            parts = [{"type": "text", "text": "what"}, {"type": "image", "source": source}]
            bench.anthropic(claim).messages.create(
                model="policy", max_tokens=9, messages=[{"role": "user", "content": parts}]
            )
        (request,) = server.requests
    assert request.body["messages"][0]["content"] == [
        {"type": "text", "text": "what"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    (call,) = bench.calls(claim)
    assert payload not in str(call.request)
    assert "what" in str(call.request)
    assert "sha256" in str(call.request)


def test_azures_clients_find_their_path_and_show_their_key_in_their_own_header(bench: Bench):
    claim = bench.claim()
    with ModelServer() as server:
        bench.serve_at(server.url)
        asked = {"model": "policy", "messages": [{"role": "user", "content": "x"}]}
        with openai.AzureOpenAI(
            azure_endpoint=bench.base(claim), api_key=claim.token, api_version="2024-10-21"
        ) as client:
            assert client.chat.completions.create(**asked).choices[0].message.content == "ok"
    assert [call.complete for call in bench.calls(claim)] == [True]


@pytest.mark.parametrize("how", ["api_key", "auth_token"])
def test_anthropics_clients_may_show_the_token_in_either_header(bench: Bench, how: str, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    claim = bench.claim()
    bench.serve(EchoEngine(chat_body))
    client = bench.anthropic(claim, **{"api_key": None, how: claim.token})
    asked = {"model": "policy", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    assert client.messages.create(**asked).content[0].text == "ok"


def test_models_are_listed_in_each_protocols_words(bench: Bench):
    bench.serve(EchoEngine())
    claim = bench.claim()
    assert [model.id for model in bench.openai(claim).models.list()] == ["policy"]
    assert bench.openai(claim).models.retrieve("policy").owned_by == "agentlightning"
    assert [model.id for model in bench.anthropic(claim).models.list()] == ["policy"]
    assert bench.anthropic(claim).models.retrieve("policy").display_name == "policy"
