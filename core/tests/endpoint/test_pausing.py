"""Weight updates: requests wait, those under way finish, versions are true."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from agentlightning.endpoint import Endpoint
from agentlightning.errors import Deadline
from agentlightning.server import Server, build_app
from endpoint_bench import Bench, EchoEngine, in_thread, reply_to


def held(release: threading.Event, started: threading.Event | None = None) -> EchoEngine:
    async def slow(body):
        if started is not None:
            started.set()
        await asyncio.to_thread(release.wait, 20)
        return reply_to(body)

    return EchoEngine(slow)


def test_requests_wait_during_an_update_and_leave_with_the_new_version(bench: Bench):
    engine = bench.serve(EchoEngine())
    claim = bench.claim()
    bench.chat(claim)
    with bench.endpoint.paused(drain_s=5):
        waiting = in_thread(lambda: bench.chat(claim).status_code)
        outcome = waiting.__enter__()
        time.sleep(0.2)
        assert (len(engine.asked), outcome) == (1, [])
        bench.endpoint.stamp("policy", 1)
    waiting.__exit__(None, None, None)
    assert outcome == [200]
    assert [call.model_version for call in bench.calls(claim)] == [0, 1]


def test_an_update_waits_for_what_is_under_way(bench: Bench):
    release, started = threading.Event(), threading.Event()
    bench.serve(held(release, started))
    claim = bench.claim()
    with in_thread(lambda: bench.chat(claim).status_code) as outcome:
        assert started.wait(10)
        threading.Timer(0.2, release.set).start()
        with bench.endpoint.paused(drain_s=10):
            assert release.is_set()
            bench.endpoint.stamp("policy", 1)
    assert outcome == [200]
    assert [call.model_version for call in bench.calls(claim)] == [0]


def test_a_drain_that_takes_too_long_says_so_and_lets_requests_go_on(bench: Bench):
    release, started = threading.Event(), threading.Event()
    bench.serve(held(release, started))
    claim = bench.claim()
    with in_thread(lambda: bench.chat(claim).status_code) as outcome:
        assert started.wait(10)
        with (
            pytest.raises(Deadline, match=r"1 LLM calls were still under way 0.2 s"),
            bench.endpoint.paused(drain_s=0.2),
        ):
            pytest.fail("the body ran although a call was under way")
        release.set()
    assert outcome == [200]
    assert bench.chat(claim).status_code == 200


def test_updates_may_nest(bench: Bench):
    bench.serve(EchoEngine())
    claim = bench.claim()
    with bench.endpoint.paused(drain_s=1):
        with bench.endpoint.paused(drain_s=1):
            pass
        waiting = in_thread(lambda: bench.chat(claim).status_code)
        outcome = waiting.__enter__()
        time.sleep(0.1)
        assert outcome == []
    waiting.__exit__(None, None, None)
    assert outcome == [200]


def test_a_request_the_update_aborted_is_sent_again(bench: Bench):
    engine = EchoEngine()
    engine.rule = lambda body: reply_to(
        body, finish_reason="abort" if len(engine.asked) == 1 else "stop"
    )
    bench.serve(engine)
    claim = bench.claim()
    assert bench.chat(claim).json()["choices"][0]["finish_reason"] == "stop"
    (call,) = bench.calls(claim)
    assert (call.complete, call.retries, call.choices[0].finish_reason) == (True, 1, "stop")
    assert bench.endpoint.report()["resent"] == 1


def test_a_pause_that_never_ends_is_answered_in_time(bench: Bench):
    impatient = Endpoint(bench.store, bench.sink, pause_s=0.2)
    bench.endpoint = impatient
    bench.serve(EchoEngine())
    claim = bench.claim()
    with Server(build_app(impatient)) as server:
        bench.url = server.url
        with impatient.paused(drain_s=1):
            refused = bench.chat(claim)
    assert refused.status_code == 503
    assert "held back for a weight update" in refused.json()["error"]["message"]


def test_an_engine_that_never_answers_is_a_504_that_says_who_may_hold_the_weights(bench: Bench):
    given_up = []

    async def slow(body):
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            given_up.append(body)
            raise

    bench.endpoint = impatient = Endpoint(bench.store, bench.sink, timeout_s=0.2)
    bench.serve(EchoEngine(slow))
    claim = bench.claim()
    with Server(build_app(impatient)) as server:
        bench.url = server.url
        refused = bench.chat(claim)
        with impatient.paused(drain_s=1):  # it no longer counts as under way
            pass
    assert refused.status_code == 504
    assert "the trainer may hold the weights" in refused.json()["error"]["message"]
    assert len(given_up) == 1
    (call,) = bench.calls(claim)
    assert not call.complete
    assert "0.2 s" in call.error


def test_a_timeout_of_the_engines_own_is_its_failure_and_not_the_deadline(bench: Bench):
    def fail(_body):
        raise TimeoutError("no GPU came free")

    bench.serve(EchoEngine(fail))
    refused = bench.chat(bench.claim())
    assert refused.status_code == 500
    assert "no GPU came free" in refused.json()["error"]["message"]
