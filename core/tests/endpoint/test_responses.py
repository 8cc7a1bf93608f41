"""The Responses API: what it keeps, how its requests are told to a chat model, how its events come."""

from __future__ import annotations

import json
import re

import openai
import pytest
from agentlightning.testing import ModelServer, Turn
from endpoint_bench import Bench

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}
TWO_CALLS = Turn(tool="add", arguments='{"a": 12345}', more=(("stop", '{"why": "done"}'),))


@pytest.fixture
def model(bench: Bench):
    with ModelServer() as server:
        bench.serve_at(server.url)
        yield server


def asked(server: ModelServer) -> dict:
    """The last request the engine got."""
    return server.requests[-1].body


def events_of(bench: Bench, claim, **body) -> list[dict]:
    with bench.client(claim) as client:
        reply = client.post("/responses", json={"model": "policy", "stream": True, **body})
    lines = reply.text.splitlines()
    names = [line[7:] for line in lines if line.startswith("event: ")]
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert names == [event["type"] for event in events]
    return events


def test_a_response_is_continued_by_its_id_and_only_in_its_own_attempt(bench: Bench, model):
    claim, other = bench.claim(), bench.claim()
    client = bench.openai(claim)
    first = client.responses.create(model="policy", input="one", instructions="be brief")
    second = client.responses.create(model="policy", input="two", previous_response_id=first.id)
    assert [(message["role"], message["content"]) for message in asked(model)["messages"]] == [
        ("user", "one"),
        ("assistant", "ok"),
        ("user", "two"),
    ]  # instructions belong to one response only
    third = client.responses.create(model="policy", input="three", previous_response_id=second.id)
    assert len(asked(model)["messages"]) == 5
    assert third.previous_response_id == second.id
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        bench.openai(other).responses.create(model="policy", input="x", previous_response_id=first.id)
    # Whoever reads the record sees the whole conversation.
    recorded = bench.calls(claim)[2].request["input"]
    assert [item.get("role") for item in recorded] == ["user", "assistant"] * 2 + ["user"]


def test_a_response_that_is_not_stored_cannot_be_continued_or_read(bench: Bench, model):
    client = bench.openai(bench.claim())
    reply = client.responses.create(model="policy", input="one", store=False)
    with pytest.raises(openai.NotFoundError, match="store=false"):
        client.responses.create(model="policy", input="x", previous_response_id=reply.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(reply.id)


def test_a_stored_response_can_be_read_referred_to_and_deleted(bench: Bench, model):
    client = bench.openai(bench.claim())
    reply = client.responses.create(model="policy", input="one")
    assert client.responses.retrieve(reply.id).output_text == "ok"
    assert [item.content for item in client.responses.input_items.list(reply.id)] == ["one"]
    referred = [
        {"type": "item_reference", "id": reply.output[0].id},
        {"role": "user", "content": "two"},
    ]
    client.responses.create(model="policy", input=referred)
    assert [message["role"] for message in asked(model)["messages"]] == ["assistant", "user"]
    client.responses.delete(reply.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="policy", input="x", previous_response_id=reply.id)
    with pytest.raises(openai.BadRequestError, match="no item"):
        client.responses.create(model="policy", input=[{"type": "item_reference", "id": "msg_none"}])


def test_what_a_model_said_thought_and_called_comes_back_as_one_turn(bench: Bench, model):
    turn = Turn(
        text="let me see", tool="add", arguments='{"a":1}', more=(("stop", "{}"),), reasoning="hm"
    )
    model.reply = lambda _: turn
    client = bench.openai(bench.claim())
    reply = client.responses.create(model="policy", input="one", tools=[TOOL])
    assert [item.type for item in reply.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "3"}
        for item in reply.output[2:]
    ]
    items = [{"role": "user", "content": "one"}, *(item.to_dict() for item in reply.output), *results]
    client.responses.create(model="policy", input=items, tools=[TOOL])
    _, said, *tools = asked(model)["messages"]
    assert (said["content"], said["reasoning_content"]) == ("let me see", "hm")
    functions = [call["function"] for call in said["tool_calls"]]
    assert [function["arguments"] for function in functions] == ['{"a":1}', "{}"]
    assert [tool["tool_call_id"] for tool in tools] == [call["id"] for call in said["tool_calls"]]


def test_options_are_told_in_the_words_of_chat_completions(bench: Bench, model):
    bench.openai(bench.claim()).responses.create(
        model="policy",
        input="x",
        tools=[TOOL],
        tool_choice={"type": "function", "name": "add"},
        parallel_tool_calls=False,
        max_output_tokens=20,
        reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        temperature=0.5,
        extra_body={"top_k": 5},
    )
    sent = asked(model)
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert sent["tools"][0]["function"]["name"] == "add"
    assert (sent["max_completion_tokens"], sent["temperature"], sent["top_k"]) == (20, 0.5, 5)
    assert (sent["parallel_tool_calls"], sent["reasoning_effort"]) == (False, "low")
    schema = {"name": "n", "schema": {"type": "object"}}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert not {"input", "text", "reasoning", "max_output_tokens", "store"} & sent.keys()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": "x", "tools": [{"type": "web_search"}]}, "web_search"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "computer_call_output"}]}, "computer_call_output"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input_image",
        ),
        ({"input": [{"role": "robot", "content": "x"}]}, r"input\[0\].role"),
        ({"input": []}, "at least one item"),
        ({"input": [{"type": "function_call", "arguments": 5}]}, r"input\[0\].arguments"),
        ({"input": 5}, "input"),
    ],
)
def test_what_a_chat_model_cannot_do_is_refused_by_name(bench: Bench, model, body, message: str):
    claim = bench.claim()
    with pytest.raises(openai.BadRequestError, match=message):
        bench.openai(claim).responses.create(model="policy", extra_body=body)
    assert model.requests == []
    (call,) = bench.calls(claim)  # whoever asks why the rollout failed is told
    assert (call.api, call.complete, call.prompt_ids) == ("responses", False, None)
    assert re.search(message, call.error)


def test_what_has_no_effect_is_said_once_and_counted(bench: Bench, model, caplog):
    client = bench.openai(bench.claim())
    for _ in range(2):
        client.responses.create(model="policy", input="x", truncation="auto")
    assert bench.endpoint.report()["no_effect_truncation"] == 2
    assert len([r for r in caplog.records if "has no effect" in r.getMessage()]) == 1


def test_a_reply_that_was_cut_at_its_limit_is_incomplete(bench: Bench, model):
    claim = bench.claim()
    cut = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "length"}
    model.reply = lambda _: {"id": "c", "model": "m", "choices": [cut]}
    reply = bench.openai(claim).responses.create(model="policy", input="x")
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    (call,) = bench.calls(claim)
    assert (call.complete, call.choices[0].finish_reason) == (True, "max_output_tokens")


def test_the_events_of_a_text_come_in_the_order_of_the_api(bench: Bench, model):
    model.reply = lambda _: Turn(text="said it", reasoning="hm")
    events = events_of(bench, bench.claim(), input="x")
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    final = events[-1]["response"]
    done = [event["item"] for event in events if event["type"].endswith("output_item.done")]
    assert final["output"] == done
    assert final["output"][1]["content"][0]["text"] == "said it"
    added = {event["item"]["id"] for event in events if event["type"].endswith("output_item.added")}
    assert added == {item["id"] for item in done}


def test_pieces_of_tool_calls_that_alternate_go_to_their_own_items(bench: Bench, model):
    model.reply = lambda _: TWO_CALLS
    events = events_of(bench, bench.claim(), input="x", tools=[TOOL])
    pieces: dict[str, str] = {}
    for event in events:
        if event["type"] == "response.function_call_arguments.delta":
            pieces[event["item_id"]] = pieces.get(event["item_id"], "") + event["delta"]
    items = events[-1]["response"]["output"]
    assert {item["id"]: item["arguments"] for item in items} == pieces
    assert [item["name"] for item in items] == ["add", "stop"]


def test_logprobs_and_ids_come_with_the_reply_only_when_asked_for(bench: Bench, model):
    client = bench.openai(bench.claim())
    plain = client.responses.create(model="policy", input="x")
    assert not {"token_ids", "prompt_token_ids", "logprobs"} & plain.to_dict().keys()
    assert plain.output[0].content[0].logprobs == []
    full = client.responses.create(
        model="policy",
        input="x",
        include=["message.output_text.logprobs"],
        extra_body={"return_token_ids": True},
    )
    assert full.output[0].content[0].logprobs[0].logprob == -0.25
    assert full.to_dict()["token_ids"]
    assert full.to_dict()["prompt_token_ids"]
