"""Clients that leave, and come again: what the engine still does for them, and what is recorded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.server import Server, build_app
from agentlightning.testing import Fault, ModelServer, RawReply, Turn
from endpoint_bench import Bench, EchoEngine, in_thread, reply_to

HI = [{"role": "user", "content": "hi"}]
BODIES = {
    "chat/completions": {"messages": HI},
    "completions": {"prompt": "hi"},
    "responses": {"input": "hi"},
    "messages": {"messages": HI, "max_tokens": 9},
}
RETRY = {"x-stainless-retry-count": "1"}
SPAN = {"x-agentlightning-span-id": "00000000000000aa"}


def until(holds: Callable[[], Any]) -> Any:
    """What ``holds`` returns once it is true; fails after ten seconds."""
    deadline = time.monotonic() + 10
    while not (found := holds()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return found


@pytest.fixture
def impatient(bench: Bench):
    """The endpoint gives a client little time to come again."""
    bench.endpoint = Endpoint(bench.store, bench.sink, retry_s=0.1)
    with Server(build_app(bench.endpoint)) as server:
        bench.url = server.url
        yield bench


class Slow:
    """An engine that answers when told to, and says when it was given up."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.given_up = threading.Event()
        self.engine = EchoEngine(self.rule)

    async def rule(self, body):
        try:
            while not self.go_on.is_set():  # noqa: ASYNC110 - the test sets it from its own thread
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return reply_to(body, f"reply {len(self.engine.asked)}")


def leave(bench: Bench, claim, api: str = "chat/completions", **headers: str) -> None:
    with bench.client(claim, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post(api, json={"model": "policy", **BODIES[api]}, headers=headers)


@pytest.mark.parametrize("api", ["chat/completions", "responses", "messages"])
def test_a_call_whose_client_left_for_good_is_given_up_and_recorded(impatient: Bench, api: str):
    slow = Slow()
    impatient.serve(slow.engine)
    claim = impatient.claim()
    leave(impatient, claim, api)
    assert slow.given_up.wait(10)
    (call,) = until(lambda: impatient.calls(claim))
    assert not call.complete
    assert "the client left" in call.error
    assert impatient.endpoint.report()["client_left"] == 1
    with impatient.endpoint.paused(drain_s=5):  # it no longer counts as under way
        pass


def test_a_reply_that_nobody_heard_is_no_turn(impatient: Bench):
    """The engine was done before the wait for the client was over."""
    slow = Slow()
    impatient.endpoint = patient = Endpoint(impatient.store, impatient.sink, retry_s=0.5)
    impatient.serve(slow.engine)
    claim = impatient.claim()
    with Server(build_app(patient)) as server:
        impatient.url = server.url
        leave(impatient, claim)
        time.sleep(0.1)  # the endpoint has to notice
        slow.go_on.set()
        (call,) = until(lambda: impatient.calls(claim))
    assert not call.complete
    assert "the client left" in call.error
    assert call.choices[0].message["content"] == "reply 1"


def test_a_client_that_comes_again_in_time_gets_the_same_reply(bench: Bench):
    slow = Slow()
    bench.serve(slow.engine)
    claim = bench.claim()
    leave(bench, claim)
    time.sleep(0.1)  # the endpoint has to notice
    slow.go_on.set()
    time.sleep(0.1)  # the engine is done, and nobody listens
    assert bench.calls(claim) == []
    assert (
        bench.chat(claim, "hi", headers=RETRY).json()["choices"][0]["message"]["content"] == "reply 1"
    )
    (call,) = bench.calls(claim)
    assert (call.complete, call.retries, len(slow.engine.asked)) == (True, 1, 1)
    assert "client_left" not in bench.endpoint.report()


@pytest.mark.parametrize("api", BODIES)
def test_the_first_piece_is_there_before_the_last_is_made(bench: Bench, api: str):
    go_on, claim = threading.Event(), bench.claim()
    # Two events of chat completions come before the wait, and the text of the first must come through.
    fault = Fault(turn=Turn(text="firstlast"), wait_after=1, wait_for=go_on)
    with ModelServer(reply=lambda _: fault) as server:
        bench.serve_at(server.url)
        body = {"model": "policy", "stream": True, **BODIES[api]}
        with bench.client(claim) as client, client.stream("POST", api, json=body) as reply:
            heard = ""
            for piece in reply.iter_text():
                heard += piece
                if "firs" in heard and not go_on.is_set():
                    assert bench.calls(claim) == []
                    go_on.set()
            calls = bench.calls(claim)
    assert go_on.is_set()
    assert '"last' not in heard.partition("firs")[0]
    assert [call.complete for call in calls] == [True]


@pytest.mark.parametrize("api", BODIES)
def test_a_stream_that_is_left_is_one_incomplete_call_and_closed(bench: Bench, api: str):
    claim = bench.claim()
    fault = Fault(turn=Turn(text="many pieces " * 50), piece_s=0.02)
    with ModelServer(reply=lambda _: fault) as server:
        bench.serve_at(server.url)
        body = {"model": "policy", "stream": True, **BODIES[api]}
        with bench.client(claim) as client, client.stream("POST", api, json=body) as reply:
            next(reply.iter_text())
        until(lambda: server.left)
    (call,) = until(lambda: bench.calls(claim))
    assert not call.complete
    assert "the client left" in call.error
    assert "many" in str(call.choices[0].message)
    assert bench.endpoint.report()["client_left"] == 1


@pytest.mark.parametrize("api", BODIES)
def test_a_retry_while_the_stream_is_still_silent_hears_the_same_stream(bench: Bench, api: str):
    go_on, claim = threading.Event(), bench.claim()
    fault = Fault(turn=Turn(text="said"), wait_after=0, wait_for=go_on)
    body = {"model": "policy", "stream": True, **BODIES[api]}
    with ModelServer(reply=lambda _: fault) as server:
        bench.serve_at(server.url)
        with bench.client(claim, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
            client.post(api, json=body, headers=SPAN)
        with (
            bench.client(claim) as client,
            in_thread(lambda: client.post(api, json=body, headers=SPAN | RETRY).text) as outcome,
        ):
            until(lambda: bench.endpoint.report().get("joined"))
            go_on.set()
        assert len(server.requests) == 1
    assert "said" in outcome[0]
    (span,) = bench.spans(claim)
    assert (span.span_id, span.call.complete) == (SPAN["x-agentlightning-span-id"], True)


def test_a_try_after_a_stream_that_broke_off_is_recorded_beside_it(bench: Bench):
    claim = bench.claim()
    faults = iter([Fault(cut_after=2, turn=Turn(text="a text of pieces"))])
    body = {"model": "policy", "stream": True, **BODIES["chat/completions"]}
    with ModelServer(reply=lambda _: next(faults, "whole")) as server:
        bench.serve_at(server.url)
        with bench.client(claim) as client:
            texts = [
                client.post("chat/completions", json=body, headers=headers).text
                for headers in (SPAN, SPAN | RETRY)
            ]
    assert "cannot be reached" in texts[0]
    assert "whol" in texts[1]
    broken, whole = bench.spans(claim)
    assert (broken.span_id, broken.call.complete) == (SPAN["x-agentlightning-span-id"], False)
    assert (whole.parent_id, whole.call.complete, whole.call.seq) == (broken.span_id, True, 1)


def test_a_stream_that_an_update_aborted_before_it_said_anything_is_sent_again(bench: Bench):
    claim = bench.claim()
    aborted = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "abort"}
    replies = iter([{"id": "a", "created": 1, "model": "m", "choices": [aborted], "usage": {}}])
    body = {"model": "policy", "stream": True, **BODIES["chat/completions"]}
    with ModelServer(reply=lambda _: next(replies, "said")) as server:
        bench.serve_at(server.url)
        with bench.client(claim) as client:
            text = client.post("chat/completions", json=body).text
        assert len(server.requests) == 2
    assert "abort" not in text
    (call,) = bench.calls(claim)
    assert (call.complete, call.retries, call.choices[0].message["content"]) == (True, 1, "said")
    assert bench.endpoint.report()["resent"] == 1


def test_a_server_that_cannot_stream_is_told_as_a_stream(bench: Bench):
    claim = bench.claim()
    whole = httpx.Response(200, json=reply_to({"messages": HI, "model": "m"}, "said")).content
    with ModelServer(reply=lambda _: RawReply(whole)) as server:
        bench.serve_at(server.url)
        with bench.openai(claim).responses.stream(model="policy", input="hi") as stream:
            assert stream.get_final_response().output_text == "said"
    assert [call.complete for call in bench.calls(claim)] == [True]


def test_calls_under_way_are_recorded_when_the_endpoint_stops(bench: Bench):
    slow = Slow()
    bench.endpoint = stopped = Endpoint(bench.store, bench.sink)
    bench.serve(slow.engine)
    claim = bench.claim()
    server = Server(build_app(stopped))
    bench.url = server.start()
    with in_thread(lambda: bench.chat(claim)):
        until(lambda: slow.engine.asked)
        server.stop(drain_s=0.2)
    (call,) = until(lambda: bench.calls(claim))
    assert not call.complete
    assert slow.given_up.wait(5)
