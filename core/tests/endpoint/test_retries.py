"""Tries and calls: a client's retry is not a new turn, a repeated body is."""

from __future__ import annotations

import asyncio
import threading

import httpx
import openai
import pytest
from endpoint_bench import Bench, EchoEngine, in_thread, reply_to

SPAN = "00000000000000aa"


def named(retry: int) -> dict[str, str]:
    return {"x-agentlightning-span-id": SPAN, "x-stainless-retry-count": str(retry)}


def counting() -> EchoEngine:
    """An engine whose every reply differs."""
    engine = EchoEngine()
    engine.rule = lambda body: reply_to(body, f"reply {len(engine.asked)}")
    return engine


def test_a_lost_reply_is_given_again_and_the_same_body_later_is_a_new_turn(bench: Bench):
    engine = bench.serve(counting())
    claim = bench.claim()
    said = [
        bench.chat(claim, headers={"x-stainless-retry-count": str(retry)}).json()["choices"][0][
            "message"
        ]["content"]
        for retry in (0, 1, 0, 1)
    ]
    assert said == ["reply 1", "reply 1", "reply 2", "reply 2"]
    assert [call.seq for call in bench.calls(claim)] == [1, 2]
    assert len(engine.asked) == 2
    assert bench.endpoint.report()["replayed"] == 2


def test_a_named_call_that_succeeds_late_keeps_its_span_and_failed_tries_lie_below(bench: Bench):
    engine = EchoEngine()

    def fail_first(body):
        if len(engine.asked) < 3:
            raise RuntimeError("not yet")
        return reply_to(body)

    engine.rule = fail_first
    bench.serve(engine)
    claim = bench.claim()
    statuses = [bench.chat(claim, headers=named(retry)).status_code for retry in range(3)]
    assert statuses == [500, 500, 200]
    first, second, call = bench.spans(claim)
    assert call.span_id == SPAN
    assert (call.call.complete, call.call.retries, call.call.seq) == (True, 2, 1)
    assert {first.parent_id, second.parent_id} == {SPAN}
    assert len({first.span_id, second.span_id, SPAN}) == 3
    assert not first.call.complete


def test_a_named_call_that_fails_for_good_leaves_its_span_id_to_the_sender(bench: Bench):
    def fail(_body):
        raise RuntimeError("never")

    bench.serve(EchoEngine(fail))
    claim = bench.claim()
    for retry in range(3):
        bench.chat(claim, headers=named(retry))
    assert len(bench.spans(claim)) == 3
    assert SPAN not in {span.span_id for span in bench.spans(claim)}


def test_the_openai_clients_retries_are_one_turn(bench: Bench):
    engine = EchoEngine()

    def fail_first(body):
        if len(engine.asked) == 1:
            raise RuntimeError("not yet")
        return reply_to(body)

    engine.rule = fail_first
    bench.serve(engine)
    claim = bench.claim()
    with openai.OpenAI(base_url=bench.base(claim), api_key=claim.token, max_retries=2) as client:
        client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "x"}])
    assert [(call.complete, call.seq) for call in bench.calls(claim)] == [(False, 1), (True, 1)]


def test_a_retry_waits_for_the_try_under_way(bench: Bench):
    release = threading.Event()
    engine = EchoEngine()

    async def slow(body):
        await asyncio.to_thread(release.wait, 20)
        return reply_to(body, f"reply {len(engine.asked)}")

    engine.rule = slow
    bench.serve(engine)
    claim = bench.claim()
    body = {"model": "policy", "messages": [{"role": "user", "content": "x"}]}
    with bench.client(claim, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/chat/completions", json=body, headers=named(0))
    with (
        bench.client(claim) as client,
        in_thread(lambda: client.post("/chat/completions", json=body, headers=named(1))) as outcome,
    ):
        while bench.endpoint.report().get("joined") != 1:
            threading.Event().wait(0.01)
        release.set()
    assert outcome[0].json()["choices"][0]["message"]["content"] == "reply 1"
    assert len(engine.asked) == 1
    (span,) = bench.spans(claim)
    assert span.span_id == SPAN
