import itertools
import json

import pytest
from agentlightning.llm_api import read_call
from agentlightning.llm_api.sse import EventReader, write_event
from agentlightning.llm_api.streams import StreamedReply
from hypothesis import given
from hypothesis import strategies as st


def sse(*events, done=True):
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def chunk(delta, **fields):
    return {"choices": [{"index": 0, "delta": delta, **fields}]}


def read(data, api="chat"):
    reply = StreamedReply(api)
    reply.feed(data)
    reply.end()
    return reply


def record(reply, api="chat"):
    return read_call(
        seq=1,
        api=api,
        agent=None,
        base_url="",
        request={},
        response=reply.body(),
        complete=reply.complete,
        error=reply.problem,
        streamed=True,
    )


STREAM = (
    ': a comment\r\n\r\nevent: x\r\ndata: {"a":\r\ndata: "é€"}\r\n\r\nid: 1\ndata:{}\n\nretry: 5\rdata: last\r\r'
).encode()  # fmt: skip


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts):
    reader, found, places = EventReader(), [], sorted({0, *cuts, len(STREAM)})
    for start, end in itertools.pairwise(places):
        found += reader.feed(STREAM[start:end])
    found += reader.end()
    assert found == ['{"a":\n"é€"}', "{}", "last"]


def test_ids_spread_over_the_chunks_come_together():
    first = {
        **chunk(
            {"role": "assistant", "content": "He"},
            token_ids=[3],
            logprobs={"content": [{"logprob": -1}]},
        ),
        "id": "c",
        "prompt_token_ids": [1, 2],
    }
    rest = [chunk({"content": "llo"}, token_ids=[4, 5], logprobs={"content": [{"logprob": -2}, {"logprob": -3}]}),
            chunk({}, token_ids=[6], logprobs={"content": [{"logprob": -4}]}, finish_reason="stop")]  # fmt: skip
    call = record(read(sse(first, *rest)))
    assert call.complete
    assert call.prompt_ids == [1, 2]
    assert call.choices[0].response_ids == [3, 4, 5, 6]
    assert list(call.choices[0].logprobs) == [-1, -2, -3, -4]
    assert call.choices[0].message == {"role": "assistant", "content": "Hello"}
    assert call.response_id == "c"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}, 4),
        ({"total_tokens": 4, "prompt_tokens_details": None}, 4),
        (None, None),
    ],
)
@pytest.mark.parametrize("choices", [[], None])
def test_a_last_chunk_with_only_usage_is_read(usage, expected, choices):
    call = record(
        read(
            sse(
                chunk({"content": "a"}),
                chunk({"content": "b"}, finish_reason="stop"),
                {"choices": choices, "usage": usage},
            )
        )
    )
    assert call.complete
    assert call.choices[0].message["content"] == "ab"
    assert (call.usage or {}).get("total_tokens") == expected


def test_tool_calls_whose_pieces_alternate_are_put_together():
    def piece(index, **function):
        return chunk({"tool_calls": [{"index": index, "function": function}]})

    opening = chunk({"content": None, "tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
                                                    {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]})  # fmt: skip
    reply = read(
        sse(
            opening,
            piece(0, arguments='{"x"'),
            piece(1, arguments="{"),
            piece(0, arguments=": 1}"),
            piece(1, arguments="}"),
            chunk({}, finish_reason="tool_calls"),
        )
    )
    message = record(reply).choices[0].message
    assert message["content"] is None
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("a", {"name": "f", "arguments": '{"x": 1}'}),
        ("b", {"name": "g", "arguments": "{}"}),
    ]


def test_several_choices_in_one_stream_are_kept_apart():
    events = [
        {"choices": [{"index": n, "delta": {"content": text}, "token_ids": [n]}]}
        for n, text in ((1, "b"), (0, "a"), (1, "b"))
    ]
    reply = read(sse(*events, done=False))
    assert not reply.complete
    assert [choice["message"]["content"] for choice in reply.body()["choices"]] == ["a", "bb"]


def test_a_stream_without_its_last_word_is_complete_only_if_every_choice_is():
    assert read(sse(chunk({"content": "a"}, finish_reason="stop"), done=False)).complete
    assert not read(sse(chunk({"content": "a"}), done=False)).complete
    assert not read(b"").complete
    assert read(b"").body() is None


@pytest.mark.parametrize(
    "bad", [b"data: {cut\n\n", b'data: {"choices": [{"index": 0, "delta": {"content"']
)
def test_malformed_events_make_it_incomplete(bad):
    reply = read(sse(chunk({"content": "a"}, finish_reason="stop"), done=False) + bad)
    assert not reply.complete
    assert "not JSON" in reply.problem
    assert reply.body()["choices"][0]["message"]["content"] == "a"


def test_an_error_within_a_stream_makes_it_incomplete():
    call = record(read(sse(chunk({"content": "a"}), {"error": {"message": "overloaded"}})))
    assert not call.complete
    assert "overloaded" in call.error


@pytest.mark.parametrize(
    "odd",
    [
        [1],
        {"choices": {"index": 0}},
        {"choices": [3]},
    ],
)
def test_events_of_odd_shapes_make_it_incomplete(odd):
    reply = read(sse(chunk({"content": "a"}), odd, chunk({"content": "b"}, finish_reason="stop")))
    assert not reply.complete
    assert "of the stream" in record(reply).error
    assert reply.body()["choices"][0]["message"]["content"] == "ab"


def test_parts_of_odd_shapes_make_it_incomplete_and_lose_nothing_that_came_before():
    odd = {
        "choices": [
            {"delta": {"content": {"a": 1}}},
            {"delta": {"tool_calls": [None, {"function": None}]}},
        ]
    }
    reply = read(sse(chunk({"content": "a"}), odd, chunk({"content": "b", "tool_calls": []})))
    call = record(reply)
    assert call.choices[0].message["content"] == "ab"
    assert not call.complete
    assert "cannot be read" in call.error


def test_of_several_choices_asked_for_none_may_be_missing():
    reply = StreamedReply("chat", choices=2)
    reply.feed(sse(chunk({"content": "a"}, finish_reason="stop"), done=False))
    assert not reply.ended
    reply.feed(sse({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}, done=False))
    assert reply.ended


def test_a_tool_call_without_a_type_gets_the_only_one_there_is():
    piece = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    reply = read(sse(chunk({"tool_calls": [piece]}, finish_reason="tool_calls")))
    (call,) = reply.body()["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@given(st.text())
def test_what_is_written_as_an_event_is_read_as_it_was(text):
    text = text.replace("\r", "")  # a line end within a field, which no field can hold
    assert list(EventReader().feed(write_event(text.encode(errors="replace")))) == (
        [text.encode(errors="replace").decode()]
    )


def test_completions_and_responses_streams_are_read():
    completions = record(
        read(
            sse(
                {"choices": [{"index": 0, "text": "a"}]},
                {"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]},
            ),
            "completions",
        ),
        "completions",
    )
    assert completions.choices[0].message == {"text": "ab"}
    body = {"id": "r", "status": "completed", "output": [{"type": "message"}]}
    reply = read(
        sse(
            {"type": "response.created", "response": {"id": "r", "output": []}},
            {"type": "response.output_text.delta", "delta": "a"},
            {"type": "response.completed", "response": body},
            done=False,
        ),
        "responses",
    )
    assert reply.finished
    assert record(reply, "responses").choices[0].message == {"output": [{"type": "message"}]}
    cut = read(
        sse({"type": "response.created", "response": {"id": "r", "output": []}}, done=False),
        "responses",
    )
    assert not cut.complete
