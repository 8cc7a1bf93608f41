"""Anthropic's Messages API: how its requests are told to a chat model, how its blocks and events come."""

from __future__ import annotations

import json

import anthropic
import pytest
from agentlightning.testing import ModelServer, Turn
from endpoint_bench import Bench

TOOL = {"name": "add", "description": "adds", "input_schema": {"type": "object"}}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def model(bench: Bench):
    with ModelServer() as server:
        bench.serve_at(server.url)
        yield server


def create(bench: Bench, **body):
    asked = {"model": "policy", "max_tokens": 50, "messages": HI, **body}
    return bench.anthropic(bench.claim()).messages.create(**asked)


def events_of(bench: Bench, claim=None, **body) -> list[dict]:
    asked = {"model": "policy", "max_tokens": 50, "messages": HI, "stream": True, **body}
    with bench.client(claim or bench.claim()) as client:
        lines = client.post("/messages", json=asked).text.splitlines()
    names = [line[7:] for line in lines if line.startswith("event: ")]
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert names == [event["type"] for event in events]
    return events


def test_options_are_told_in_the_words_of_chat_completions(bench: Bench, model):
    create(
        bench,
        system=[{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}],
        tools=[TOOL],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        extra_body={"top_k": 7},
        metadata={"user_id": "u"},
    )
    sent = model.requests[0].body
    assert sent["messages"][0] == {"role": "system", "content": "be brief"}
    function = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
    assert sent["tools"] == [{"type": "function", "function": function}]
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)
    assert (sent["stop"], sent["max_completion_tokens"], sent["top_k"]) == (["END"], 50, 7)
    assert not {"system", "max_tokens", "stop_sequences", "metadata"} & sent.keys()


def test_a_tools_arguments_come_back_as_the_model_wrote_them(bench: Bench, model):
    """Told as an object they lose their spaces, and the next prompt would not continue the last."""
    written = '{"b":  1,"a":"\\u00e9"}'
    model.reply = lambda _: Turn(tool="add", arguments=written)
    claim = bench.claim()
    client = bench.anthropic(claim)
    asked = {"model": "policy", "max_tokens": 50, "tools": [TOOL]}
    said = client.messages.create(messages=HI, **asked)
    result = {"type": "tool_result", "tool_use_id": said.content[0].id, "content": "3"}
    turns = [*HI, {"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
    client.messages.create(messages=turns, **asked)
    assert model.requests[1].body["messages"][1]["tool_calls"][0]["function"]["arguments"] == written
    first, second = bench.calls(claim)
    told = [*first.prompt_ids, *first.choices[0].response_ids]
    assert list(second.prompt_ids)[: len(told)] == told
    # What the agent changed is told as the agent has it.
    turns[1] = {"role": "assistant", "content": [{**said.content[0].to_dict(), "input": {"b": 2}}]}
    client.messages.create(messages=turns, **asked)
    assert model.requests[2].body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"b": 2}'


def test_blocks_of_a_user_become_tool_messages_and_what_else_was_said(bench: Bench, model):
    picture = {"type": "image", "source": {"type": "url", "url": "http://h/p.png"}}
    results = [
        {"type": "tool_result", "tool_use_id": "1", "content": "plain"},
        {
            "type": "tool_result",
            "tool_use_id": "2",
            "content": [{"type": "text", "text": "t"}, picture],
        },
        {"type": "text", "text": "go on"},
    ]
    uses = [{"type": "tool_use", "id": n, "name": "add", "input": {}} for n in ("1", "2")]
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turns = [
        *HI,
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "so"}, *uses]},
        {"role": "user", "content": results},
    ]
    create(bench, messages=turns, tools=[TOOL])
    _, said, first, second, user = model.requests[0].body["messages"]
    assert (said["content"], said["reasoning_content"], len(said["tool_calls"])) == ("so", "hm", 2)
    assert (first["role"], first["tool_call_id"], first["content"]) == ("tool", "1", "plain")
    assert (second["tool_call_id"], second["content"]) == ("2", "t")
    assert [part["type"] for part in user["content"]] == ["image_url", "text"]


@pytest.mark.parametrize(
    ("choice", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "stop", "stop_reason": 7}, "end_turn", None),
        ({"finish_reason": "content_filter"}, "refusal", None),
    ],
)
def test_the_reason_of_the_end_is_told_in_anthropics_words(
    bench: Bench, model, choice, reason: str, sequence: str | None
):
    said = {"index": 0, "message": {"role": "assistant", "content": "a"}, **choice}
    model.reply = lambda _: {"id": "c", "model": "m", "choices": [said]}
    reply = create(bench)
    assert (reply.stop_reason, reply.stop_sequence) == (reason, sequence)


def test_blocks_are_streamed_one_after_the_other_also_when_calls_alternate(bench: Bench, model):
    arguments = ('{"a": "123456789"}', '{"why": "none at all"}')
    turn = Turn(
        text="so", tool="add", arguments=arguments[0], more=(("stop", arguments[1]),), reasoning="hm"
    )
    model.reply = lambda _: turn
    claim = bench.claim()
    events = events_of(bench, claim, tools=[TOOL])
    assert [event["type"] for event in events[:2]] == ["message_start", "content_block_start"]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    kinds, texts, is_open = [], {}, None
    for event in events:
        if event["type"] == "content_block_start":
            assert is_open is None
            is_open = event["index"]
            kinds.append(event["content_block"]["type"])
        elif event["type"] == "content_block_delta":
            assert event["index"] == is_open
            piece = next(value for key, value in event["delta"].items() if key != "type")
            texts[is_open] = texts.get(is_open, "") + piece
        elif event["type"] == "content_block_stop":
            assert event["index"] == is_open
            is_open = None
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert list(texts.values()) == ["hm", "so", *arguments]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"]["output_tokens"] > 0
    (call,) = bench.calls(claim)
    assert [block["type"] for block in call.choices[0].message["content"]] == kinds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "search_result"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [TOOL], "tool_choice": {"type": "maybe"}}, "tool_choice"),
        ({"max_tokens": "many"}, "max_tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(bench: Bench, model, body, message: str):
    with pytest.raises(anthropic.BadRequestError, match=message):
        create(bench, extra_body=body)
    assert model.requests == []


def test_counting_tokens_is_refused_in_anthropics_words(bench: Bench, model):
    client = bench.anthropic(bench.claim())
    with pytest.raises(anthropic.NotFoundError, match="count_tokens"):
        client.messages.count_tokens(model="policy", messages=HI)


def test_thinking_that_cannot_be_asked_for_is_said_once_and_counted(bench: Bench, model, caplog):
    for _ in range(2):
        create(bench, thinking={"type": "enabled", "budget_tokens": 1024})
    assert bench.endpoint.report()["no_effect_thinking"] == 2
    assert len([r for r in caplog.records if "has no effect" in r.getMessage()]) == 1
    assert "thinking" not in model.requests[0].body
