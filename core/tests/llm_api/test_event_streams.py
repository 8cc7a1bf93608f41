"""Streams of named events: the same reply as in one piece, and what had come when one was left."""

import json

import pytest
from agentlightning.llm_api import read_call
from agentlightning.llm_api.streams import StreamedReply

MESSAGE = [
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "model": "c",
                                          "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "ping"},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "He"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "llo"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
    {"type": "content_block_start", "index": 2,
     "content_block": {"type": "tool_use", "id": "t", "name": "add", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
     "usage": {"output_tokens": 9, "input_tokens": None}},
    {"type": "message_stop"},
]  # fmt: skip

TEXT = {"type": "message", "id": "i", "role": "assistant", "content": []}
RESPONSE = [
    {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": TEXT},
    {"type": "response.content_part.added", "output_index": 0, "content_index": 0, "part": {}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "b"},
    {"type": "response.output_item.added", "output_index": 1,
     "item": {"type": "function_call", "name": "add", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a"'},
    {"type": "response.x", "output_index": 2, "delta": {"what": "a newer event"}},
    {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [{"type": "x"}]}},
]  # fmt: skip


def stream(api, events):
    reply = StreamedReply(api)
    for event in events:
        reply.feed(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode())
    return reply


def call_of(api, reply):
    return read_call(seq=1, api=api, agent=None, base_url="", request={}, response=reply.body(),
                     complete=reply.complete, error=reply.problem, streamed=True)  # fmt: skip


def test_the_blocks_of_a_message_come_together():
    reply = stream("messages", MESSAGE)
    assert reply.finished
    call = call_of("messages", reply)
    assert call.complete
    assert call.choices[0].finish_reason == "tool_use"
    assert call.choices[0].message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hello", "citations": [{"n": 1}]},
        {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}},
    ]
    assert call.usage == {"input_tokens": 5, "output_tokens": 9}
    assert call.response_id == "m"


def test_a_message_left_early_keeps_what_had_come():
    call = call_of("messages", stream("messages", MESSAGE[:8]))
    assert not call.complete
    assert call.choices[0].message["content"][1]["text"] == "He"
    cut = call_of("messages", stream("messages", MESSAGE[:12]))
    assert cut.choices[0].message["content"][2]["input"] == '{"a"'


def test_a_message_is_whole_once_its_end_has_a_reason():
    assert stream("messages", MESSAGE[:-1]).complete
    assert not stream("messages", MESSAGE[:-2]).complete


def test_a_response_is_what_its_last_event_says():
    reply = stream("responses", RESPONSE)
    assert reply.complete
    assert reply.body()["output"] == [{"type": "x"}]


def test_a_response_left_early_keeps_what_had_come():
    reply = stream("responses", RESPONSE[:-1])
    assert not reply.complete
    text, call = reply.body()["output"]
    assert text == {**TEXT, "content": [{"type": "output_text", "text": "ab"}]}
    assert call["arguments"] == '{"a"'


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_an_error_in_the_stream_is_the_calls(api):
    events = {"messages": MESSAGE, "responses": RESPONSE}[api][:4]
    error = {"type": "error", "message": "overloaded", "error": {"message": "overloaded"}}
    call = call_of(api, stream(api, [*events, error]))
    assert not call.complete
    assert "overloaded" in call.error


@pytest.mark.parametrize("api", ["messages", "responses"])
@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start", "message": 1},
        {"type": "message_delta", "delta": 1, "usage": []},
        {"type": "content_block_delta", "index": 3, "delta": {"partial_json": 1, "text": 2}},
        {"type": "content_block_start", "index": "x"},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": "x", "delta": "t"},
        {"type": "response.output_item.added", "output_index": 0, "item": None},
        {"type": ["odd"]},
        {},
    ],
)
def test_whatever_a_server_sends_nothing_is_raised(api, event):
    assert not call_of(api, stream(api, [event])).complete
