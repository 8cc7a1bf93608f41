"""LLM spans of each convention, new and old, become the same call."""

from __future__ import annotations

import json

import pytest
from agentlightning.errors import BadValue
from agentlightning.llm_api import conversation
from agentlightning.otlp import request_of, with_call
from agentlightning.otlp.kinds import kind_of
from agentlightning.otlp.names import in_our_words
from agentlightning.records import Rollout, Run, Span, SpanEvent
from hypothesis import given, settings
from hypothesis import strategies as st

RUN = Run(run_id="run-1", name="mine", config={}, created_at=0.0)
ROLLOUT = Rollout(
    rollout_id="ro-1", run_id="run-1", input=1, mode="train", status="failed", created_at=0.0, attempt=1
)
ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1+1?"}]
CALLED = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "2"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": SCHEMA}}
USAGE = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2}


def text(value):
    return json.dumps(value)


def parts(role, *items, **more):
    return {"role": role, "parts": list(items), **more}


def said(content):
    return {"type": "text", "content": content}


TODAY = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.system_instructions": text([said("be brief")]),
    "gen_ai.input.messages": text(
        [
            parts("user", said("1+1?")),
            parts("assistant", {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1}}),
            parts("tool", {"type": "tool_call_response", "id": "c1", "response": "2"}),
        ]
    ),
    "gen_ai.output.messages": text([parts("assistant", said("two"), finish_reason="stop")]),
    "gen_ai.tool.definitions": text([{"type": "function", **TOOL["function"]}]),
    **USAGE,
}
STRUCTURED = {
    name: json.loads(value) if str(value)[:1] == "[" else value for name, value in TODAY.items()
}
OPENLLMETRY = {
    "llm.request.type": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "be brief",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "1+1?",
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "c1",
    "gen_ai.prompt.2.tool_calls.0.name": "add",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"a": 1}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "c1",
    "gen_ai.prompt.3.content": "2",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "two",
    "gen_ai.completion.0.finish_reason": "stop",
    "llm.request.functions.0.name": "add",
    "llm.request.functions.0.description": "Adds",
    "llm.request.functions.0.parameters": text(SCHEMA),
    "gen_ai.usage.prompt_tokens": 7,
    "gen_ai.usage.completion_tokens": 2,
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "m",
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "be brief",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "1+1?",
    "llm.input_messages.2.message.role": "assistant",
    "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "add",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
    "llm.input_messages.3.message.role": "tool",
    "llm.input_messages.3.message.tool_call_id": "c1",
    "llm.input_messages.3.message.content": "2",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "two",
    "llm.finish_reason": "stop",
    "llm.tools.0.tool.json_schema": text(TOOL),
    "llm.token_count.prompt": 7,
    "llm.token_count.completion": 2,
}
MESSAGES = [
    ASKED[0],
    ASKED[1],
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    RESULT,
]
LOGFIRE = {
    "gen_ai.request.model": "m",
    "request_data": text({"model": "m", "messages": MESSAGES, "tools": [TOOL]}),
    "response_data": text({"message": {"role": "assistant", "content": "two"}}),
    "gen_ai.response.finish_reasons": ["stop"],
    **USAGE,
}
AS_EVENTS = [
    ("gen_ai.system.message", {"content": "be brief"}),
    ("gen_ai.user.message", {"content": "1+1?"}),
    ("gen_ai.assistant.message", {"content": None, "tool_calls": [CALLED]}),
    ("gen_ai.tool.message", {"id": "c1", "content": "2"}),
    ("gen_ai.choice", {"message": {"content": "two"}, "finish_reason": "stop", "index": 0}),
]
EVENTS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.tool.definitions": text([TOOL]),
    **USAGE,
}
LISTED = {**EVENTS, "events": text([{"event.name": name, **body} for name, body in AS_EVENTS])}


def span(attributes, events=(), status="ok"):
    return Span(
        rollout_id="ro-1",
        attempt=1,
        span_id="1" * 16,
        trace_id="2" * 32,
        kind="llm",
        name="theirs",
        start_ns=1,
        end_ns=2,
        status=status,
        attributes={"otel.scope.name": "theirs", **attributes},
        events=tuple(SpanEvent(name=name, time_ns=1, attributes=body) for name, body in events),
    )


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        pytest.param(TODAY, (), id="today"),
        pytest.param(STRUCTURED, (), id="structured"),
        pytest.param(OPENLLMETRY, (), id="openllmetry"),
        pytest.param(OPENINFERENCE, (), id="openinference"),
        pytest.param(LOGFIRE, (), id="logfire"),
        pytest.param(EVENTS, AS_EVENTS, id="events"),
        pytest.param(LISTED, (), id="listed events"),
    ],
)
def test_every_convention_tells_the_same_call(attributes, events):
    made = with_call(span(attributes, events), seq=3, agent="adder")
    call = made.call
    assert conversation(call) == [*MESSAGES, {"role": "assistant", "content": "two"}]
    assert (call.seq, call.agent, call.model, call.complete) == (3, "adder", "m", True)
    assert call.choices[0].finish_reason == "stop"
    assert call.request["tools"] == [TOOL]
    assert {"prompt_tokens": 7, "completion_tokens": 2}.items() <= call.usage.items()
    assert made.name == "theirs"
    assert made.attributes["otel.scope.name"] == "theirs"
    assert "1+1?" not in str(made.attributes)  # once is enough


def test_images_and_reasoning_are_kept():
    url = "https://example.org/cat.png"
    image = {"type": "uri", "modality": "image", "uri": url}
    told = {
        "gen_ai.input.messages": text([parts("user", said("what?"), image)]),
        "gen_ai.output.messages": text(
            [parts("assistant", {"type": "reasoning", "content": "hm"}, said("a cat"))]
        ),
    }
    asked, reply = conversation(with_call(span(told), seq=1, agent=None).call)
    assert asked["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    assert reply == {"role": "assistant", "content": "a cat", "reasoning_content": "hm"}


def test_content_that_was_written_as_text_is_parts_again():
    image = [{"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}]
    told = {"gen_ai.prompt.0.content": text(image), "gen_ai.prompt.1.content": "[1, 2]"}
    call = with_call(span(told), seq=1, agent=None).call
    assert [message["content"] for message in call.request["messages"]] == [image, "[1, 2]"]


def test_token_ids_of_another_tracer_are_not_taken():
    reply = {"id": "x", "prompt_token_ids": [1], "choices": [{"token_ids": [2]}]}
    told = {**OPENINFERENCE, "output.value": text(reply)}
    call = with_call(span(told), seq=1, agent=None).call
    assert (call.response_id, call.prompt_ids, call.choices[0].response_ids) == ("x", None, None)


@pytest.mark.parametrize(
    ("attributes", "status", "error"),
    [
        ({"gen_ai.input.messages": TODAY["gen_ai.input.messages"]}, "ok", "reply was not captured"),
        ({**TODAY, "error.type": "Timeout"}, "error", "Timeout"),
    ],
)
def test_a_call_without_a_good_reply_is_incomplete(attributes, status, error):
    call = with_call(span(attributes, status=status), seq=1, agent=None).call
    assert not call.complete
    assert error in call.error


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"gen_ai.input.messages": "not json"},
        {"gen_ai.input.messages": text([1, "x", None])},
        {"gen_ai.prompt.x.y": 1},
        {"llm.input_messages.0": "x", "openinference.span.kind": "LLM"},
        {"llm.input_messages." + "0." * 5000: "x", "openinference.span.kind": "LLM"},
    ],
)
def test_a_call_whose_prompt_is_not_told_is_none(attributes):
    with pytest.raises(BadValue, match="without its prompt"):
        with_call(span(attributes), seq=1, agent=None)


def test_parts_of_any_shape_raise_nothing():
    odd = [{"type": "tool_call"}, {"type": 3}, {}, {"type": "tool_call_response", "response": [1]}]
    told = {"gen_ai.input.messages": text([parts("user", *odd)])}
    assert with_call(span(told), seq=1, agent=None).call.request["messages"]


NAMES = sorted({*TODAY, *OPENLLMETRY, *OPENINFERENCE, *LOGFIRE, *LISTED, "output.value", "input.value"})
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5) | st.sampled_from(["tool", "text"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "parts", "type", "content", "message", "tool_calls", "function", "name",
                         "arguments", "id", "response", "messages", "tools", "event.name"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), JSON_VALUES | JSON_VALUES.map(text), max_size=8))
def test_whatever_attributes_say_it_is_a_call_or_counted(attributes):
    kind_of(attributes)
    in_our_words("tool", attributes)
    try:
        made = with_call(span(attributes), seq=1, agent=None)
    except BadValue:
        return
    request_of(RUN, ROLLOUT, [made])
