"""Streams: real ones from a model server, and finished replies as streams."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from agentlightning.engine import EngineInfo
from agentlightning.records import LLM
from agentlightning.store import Claim
from endpoint_bench import Bench, EchoEngine, model_server, reply_to
from starlette.responses import JSONResponse, StreamingResponse

MESSAGES = [{"role": "user", "content": "hi"}]
TOOL_CALLS = [
    {
        "id": "call-1",
        "type": "function",
        "function": {"name": "stock", "arguments": '{"item": "lamp"}'},
    },
    {"id": "call-2", "type": "function", "function": {"name": "order", "arguments": "{}"}},
]


def event(piece: dict[str, Any]) -> bytes:
    return (
        b"data: "
        + json.dumps({"id": "s-1", "model": "m", "created": 1, **piece}).encode()
        + b"\r\n\r\n"
    )


def delta(content: str | None = None, *, end: str | None = None, index: int = 0, **more: Any) -> bytes:
    said = {} if content is None else {"content": content}
    ids = [ord(letter) for letter in content or ""]
    scores = {"content": [{"token": letter, "logprob": -0.25} for letter in content or ""]}
    choice = {
        "index": index,
        "delta": said | more,
        "finish_reason": end,
        "token_ids": ids,
        "logprobs": scores,
    }
    return event({"choices": [choice]})


START = event({"prompt_token_ids": [7, 8], "choices": [{"index": 0, "delta": {"role": "assistant"}}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 2}})
DONE = b"data: [DONE]\n\n"


class StreamingModel:
    """A model server that streams ``parts``; an event among them is waited for."""

    def __init__(self, *parts: bytes | threading.Event) -> None:
        self.parts = parts
        self.asked: list[dict[str, Any]] = []
        self.closed = threading.Event()

    async def answer(self, request) -> StreamingResponse:
        self.asked.append(await request.json())
        return StreamingResponse(self.stream(), media_type="text/event-stream")

    async def stream(self):
        try:
            for part in self.parts:
                if isinstance(part, threading.Event):
                    await asyncio.to_thread(part.wait, 20)
                else:
                    yield part
        finally:
            self.closed.set()


@contextmanager
def served(bench: Bench, answer: Callable[..., Any]) -> Iterator[Claim]:
    """A claim of a run whose model is answered for over HTTP."""
    with model_server(answer) as url:
        bench.endpoint.serve(bench.run_id, LLM(model="policy"), EngineInfo(model="m", base_url=url))
        yield bench.claim()


def open_client(bench: Bench, claim) -> openai.OpenAI:
    return openai.OpenAI(base_url=bench.base(claim), api_key=claim.token, max_retries=0)


def lines(bench: Bench, claim, **body: Any) -> list[Any]:
    """The data of each event the agent gets."""
    with bench.client(claim) as client:
        request = {"model": "policy", "messages": MESSAGES, "stream": True, **body}
        reply = client.post("/chat/completions", json=request)
    assert reply.headers["content-type"].startswith("text/event-stream")
    data = [line[6:] for line in reply.text.split("\n") if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(item) for item in data[:-1]]


def test_pieces_reach_the_agent_as_they_come_and_the_whole_is_recorded(bench: Bench):
    rest = threading.Event()
    model = StreamingModel(START, delta("a"), rest, delta("b"), delta(end="stop"), USAGE, DONE)
    with served(bench, model.answer) as claim:
        with open_client(bench, claim) as client:
            said = []
            for piece in client.chat.completions.create(model="policy", messages=MESSAGES, stream=True):
                said.append(piece.choices[0].delta.content)
                if piece.choices[0].delta.content == "a":
                    rest.set()  # only now does the model go on
        (span,) = bench.sink.take(claim.key)
    assert [text for text in said if text] == ["a", "b"]
    call = span.call
    assert (call.complete, call.streamed, call.response_id) == (True, True, "s-1")
    assert call.choices[0].message == {"role": "assistant", "content": "ab"}
    assert list(call.prompt_ids) == [7, 8]
    assert list(call.choices[0].response_ids) == [97, 98]
    assert list(call.choices[0].logprobs) == [-0.25, -0.25]
    assert call.usage["completion_tokens"] == 2
    assert model.asked[0]["stream_options"]["include_usage"] is True
    assert model.asked[0]["return_token_ids"] is True


def test_the_agent_gets_no_tokens_and_no_usage_unless_it_asks(bench: Bench):
    model = StreamingModel(START, delta("a"), delta(end="stop"), USAGE, DONE)
    with served(bench, model.answer) as claim:
        plain = json.dumps(lines(bench, claim))
        full = json.dumps(
            lines(
                bench,
                claim,
                logprobs=True,
                return_token_ids=True,
                stream_options={"include_usage": True},
            )
        )
    for word in ("token_ids", "logprob", "usage"):
        assert word not in plain
        assert word in full


def test_the_turn_is_recorded_when_the_agent_leaves_on_the_last_piece(bench: Bench):
    never = threading.Event()
    model = StreamingModel(START, delta("a"), delta(end="stop"), USAGE, DONE)
    with served(bench, model.answer) as claim, open_client(bench, claim) as client:
        stream = client.chat.completions.create(model="policy", messages=MESSAGES, stream=True)
        for piece in stream:
            if piece.choices[0].finish_reason:
                break
        spans = bench.sink.take(claim.key)
        stream.close()
    never.set()
    assert [span.call.complete for span in spans] == [True]


def test_a_stream_the_agent_abandons_is_recorded_as_incomplete_and_closed(bench: Bench):
    never = threading.Event()
    model = StreamingModel(START, delta("a"), never, delta(end="stop"), DONE)
    with served(bench, model.answer) as claim:
        with open_client(bench, claim) as client:
            stream = client.chat.completions.create(model="policy", messages=MESSAGES, stream=True)
            for piece in stream:
                if piece.choices[0].delta.content:
                    break
            stream.close()
        with bench.endpoint.paused(drain_s=10):  # it no longer counts as under way
            pass
        never.set()
        assert model.closed.wait(10)
    (call,) = bench.calls(claim)
    assert not call.complete
    assert "client left" in call.error
    assert call.choices[0].message["content"] == "a"


def test_tool_calls_in_alternating_pieces_are_put_together(bench: Bench):
    def part(index: int, **function: Any) -> bytes:
        return delta(
            tool_calls=[
                {
                    "index": index,
                    "function": function,
                    **({"id": f"call-{index}"} if "name" in function else {}),
                }
            ]
        )

    model = StreamingModel(
        START, part(0, name="stock"), part(1, name="order"), part(0, arguments='{"a":'),
        part(1, arguments="{}"), part(0, arguments=" 1}"), delta(end="tool_calls"), DONE,
    )  # fmt: skip
    with served(bench, model.answer) as claim:
        lines(bench, claim)
    (call,) = bench.calls(claim)
    made = call.choices[0].message["tool_calls"]
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in made] == [
        ("call-0", "stock", '{"a": 1}'),
        ("call-1", "order", "{}"),
    ]
    assert call.choices[0].message["content"] is None


@pytest.mark.parametrize(
    ("parts", "error", "status"),
    [
        ((START, delta("a")), "ended before the reply did", 200),
        ((START, b"data: {broken\n\n", delta("a", end="stop"), DONE), "is not JSON", 200),
        # Nothing of these was said when they broke, so they can still be told as what they are.
        ((START, b'data: {"choices": 3}\n\n', delta("a", end="stop"), DONE), "cannot be read", 502),
        ((START, b'data: {"error": {"message": "out of memory"}}\n\n', DONE), "out of memory", 502),
        ((), "ended before the reply did", 502),
    ],
)
def test_a_bad_stream_is_one_incomplete_record(bench: Bench, parts, error: str, status: int):
    model = StreamingModel(*parts)
    with served(bench, model.answer) as claim, bench.client(claim) as client:
        request = {"model": "policy", "messages": MESSAGES, "stream": True}
        reply = client.post("/chat/completions", json=request)
    assert reply.status_code == status
    assert error in reply.text
    (call,) = bench.calls(claim)
    assert not call.complete
    assert error in call.error


def test_pieces_cut_anywhere_and_with_odd_separators_are_read(bench: Bench):
    whole = START + delta("a\u2028b\u0085c", end="stop") + DONE
    model = StreamingModel(*(whole[at : at + 3] for at in range(0, len(whole), 3)))
    with served(bench, model.answer) as claim:
        lines(bench, claim)
    (call,) = bench.calls(claim)
    assert call.choices[0].message["content"] == "a\u2028b\u0085c"


def test_events_are_read_as_the_standard_has_them(bench: Bench):
    """Carriage returns as line ends, data over several lines, fields that nobody here knows."""
    piece = {"index": 0, "delta": {"content": "a", "mood": "sun"}, "token_ids": [97]}
    spread = json.dumps({"choices": [piece]}, indent=1).replace("\n", "\rdata:")
    model = StreamingModel(
        b": hello\r\r", START.replace(b"\r\n", b"\r"), b"event: x\rdata:" + spread.encode() + b"\r\r",
        delta(mood="ny", end="stop"), DONE,
    )  # fmt: skip
    with served(bench, model.answer) as claim:
        pieces = lines(bench, claim)
    (call,) = bench.calls(claim)
    assert call.complete
    assert list(call.choices[0].response_ids) == [97]
    assert call.choices[0].message == {"role": "assistant", "content": "a", "mood": "sunny"}
    assert [piece["choices"][0]["delta"].get("mood") for piece in pieces] == [None, "sun", "ny"]


def test_several_choices_are_complete_only_together(bench: Bench):
    model = StreamingModel(START, delta("a", end="stop"), delta("b", index=1))
    with served(bench, model.answer) as claim, bench.client(claim) as client:
        client.post(
            "/chat/completions",
            json={"model": "policy", "messages": MESSAGES, "stream": True, "n": 2},
        )
    (call,) = bench.calls(claim)
    assert not call.complete
    assert [choice.message["content"] for choice in call.choices] == ["a", "b"]


def test_an_error_before_the_stream_keeps_its_status(bench: Bench):
    async def refuse(_request):
        return JSONResponse({"error": {"message": "no such model"}}, 400)

    with (
        served(bench, refuse) as claim,
        open_client(bench, claim) as client,
        pytest.raises(openai.BadRequestError, match="no such model"),
    ):
        client.chat.completions.create(model="policy", messages=MESSAGES, stream=True)
    assert [call.complete for call in bench.calls(claim)] == [False]


def test_a_finished_reply_comes_as_a_stream_when_asked_for(bench: Bench):
    message = {"role": "assistant", "content": None, "tool_calls": TOOL_CALLS}
    bench.serve(
        EchoEngine(lambda body: reply_to(body, "", message=message, finish_reason="tool_calls"))
    )
    claim = bench.claim()
    with (
        open_client(bench, claim) as client,
        client.chat.completions.stream(model="policy", messages=MESSAGES) as stream,
    ):
        final = stream.get_final_completion()
    made = final.choices[0].message.tool_calls
    assert [(c.id, c.function.name, c.function.arguments) for c in made] == [
        ("call-1", "stock", '{"item": "lamp"}'),
        ("call-2", "order", "{}"),
    ]
    assert final.choices[0].finish_reason == "tool_calls"
    (call,) = bench.calls(claim)
    assert (call.streamed, call.complete) == (True, True)


def test_an_in_process_engine_is_never_asked_to_stream(bench: Bench):
    engine = bench.serve(EchoEngine())
    pieces = lines(bench, bench.claim(), stream_options={"include_usage": True})
    assert not {"stream", "stream_options"} & engine.asked[0].keys()
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in pieces if p["choices"]) == "hi"
    assert pieces[-1]["usage"]["completion_tokens"] == 2
    assert "token_ids" not in json.dumps(pieces)


def test_a_lost_stream_is_given_again(bench: Bench):
    model = StreamingModel(START, delta("a"), delta(end="stop"), DONE)
    with served(bench, model.answer) as claim:
        body = {"model": "policy", "messages": MESSAGES, "stream": True}
        with bench.client(claim) as client:
            client.post("/chat/completions", json=body)
            again = client.post(
                "/chat/completions", json=body, headers={"x-stainless-retry-count": "1"}
            )
    assert '"content":"a"' in again.text
    assert len(model.asked) == 1
    assert len(bench.calls(claim)) == 1
