"""Requests that are held back: what wakes them, and what they are answered."""

from __future__ import annotations

import gzip
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from agentlightning.records import to_json
from agentlightning.store.http import operations as ops
from agentlightning.store.memory import MemoryStore
from agentlightning.testing.store.making import request

WAIT_S = 10.0
AT_ONCE_S = 2.0


@pytest.fixture
def start():
    """Runs a request in a thread."""
    with ThreadPoolExecutor(32) as pool:
        yield pool.submit


def claiming(served, start, run_id: str | None, worker: str = "w", **fields) -> Future:
    """A claim that waits, on a connection of its own."""
    body = {"worker_id": worker, "run_id": run_id, "wait_s": WAIT_S, **fields}
    return start(served.client().ok, ops.CLAIM, body)


def test_a_claim_waits_for_work_and_is_given_it_at_once(served, start):
    run_id = served.store.create_run("a", {}).run_id
    waiting = claiming(served, start, run_id)
    time.sleep(0.3)
    assert not waiting.done()
    queued = time.monotonic()
    served.store.enqueue(run_id, [request("task")])
    assert waiting.result(5)["claims"][0]["rollout"]["input"] == "task"
    assert time.monotonic() - queued < 1


def test_a_claim_that_waits_in_vain_returns_nothing_in_time(fast, run_id):
    started = time.monotonic()
    reply = fast.client().ok(ops.CLAIM, {"worker_id": "w", "run_id": run_id, "wait_s": 0.3})
    assert reply == {"claims": [], "run_is_open": True}
    assert 0.3 <= time.monotonic() - started < 0.3 + AT_ONCE_S


def test_those_who_wait_get_one_rollout_each_oldest_first(fast, start, run_id):
    waiting = []
    for number in range(5):
        waiting.append(claiming(fast, start, run_id, f"w{number}"))
        time.sleep(0.05)
    fast.store.enqueue(run_id, [request(number) for number in range(5)])
    given = [future.result(5)["claims"] for future in waiting]
    assert [[claim["rollout"]["input"] for claim in claims] for claims in given] == [
        [n] for n in range(5)
    ]


def test_work_of_any_run_wakes_who_waits_for_every_run(fast, start):
    waiting = claiming(fast, start, None)
    time.sleep(0.1)
    run_id = fast.store.create_run("new", {}).run_id
    fast.store.enqueue(run_id, [request("x")])
    assert waiting.result(5)["claims"][0]["rollout"]["input"] == "x"


def test_a_lease_that_ends_gives_its_rollout_to_who_waits(fast, start, run_id):
    fast.store.enqueue(run_id, [request(lease_s=0.5)])
    fast.store.claim(run_id, "dead")
    waiting = claiming(fast, start, run_id)
    assert waiting.result(5)["claims"][0]["attempt"]["number"] == 2


def test_a_key_gives_the_claim_that_was_waited_for_again(fast, start, run_id):
    waiting = claiming(fast, start, run_id, key="k")
    time.sleep(0.1)
    fast.store.enqueue(run_id, [request(), request()])
    first = waiting.result(5)
    assert claiming(fast, start, run_id, key="k").result(5)["claims"] == first["claims"]


def test_closing_a_run_answers_who_waits_for_its_work(fast, start, run_id):
    other = fast.store.create_run("other", {}).run_id
    waiting, others = claiming(fast, start, run_id), claiming(fast, start, other)
    time.sleep(0.2)
    closed = time.monotonic()
    fast.store.set_run_status(run_id, "cancelled")
    assert waiting.result(5) == {"claims": [], "run_is_open": False}
    assert time.monotonic() - closed < AT_ONCE_S
    assert not others.done()
    fast.store.set_run_status(other, "cancelled")
    others.result(5)


def test_a_worker_stops_waiting_and_others_go_on(fast, start, run_id):
    mine, other = claiming(fast, start, run_id, "me"), claiming(fast, start, run_id, "other")
    time.sleep(0.2)
    fast.client().ok(ops.STOP_WAITING, {"worker_id": "me"})
    assert mine.result(AT_ONCE_S) == {"claims": [], "run_is_open": True}
    # A claim of that worker that was on its way is not held either.
    assert claiming(fast, start, run_id, "me").result(AT_ONCE_S)["claims"] == []
    assert not other.done()
    fast.store.enqueue(run_id, [request()])
    assert len(other.result(5)["claims"]) == 1


def test_a_runner_of_another_run_cannot_stop_who_waits(fast, start, run_id):
    other = fast.store.create_run("other", {}).run_id
    waiting = claiming(fast, start, run_id, "not yours")
    time.sleep(0.1)
    runner = fast.client(fast.store.access_token("runner", other))
    runner.ok(ops.STOP_WAITING, {"worker_id": "not yours"})
    time.sleep(0.1)
    assert not waiting.done()
    fast.store.set_run_status(run_id, "cancelled")
    waiting.result(5)


class SlowStore(MemoryStore):
    """Takes its time between a claim and its return, as a disk or a database may."""

    def __init__(self):
        super().__init__()
        self.has_claimed, self.may_return = threading.Event(), threading.Event()

    def claim(self, *args, **options):
        claims = super().claim(*args, **options)
        if claims:
            self.has_claimed.set()
            assert self.may_return.wait(10)
        return claims


@pytest.mark.parametrize("way", ["the worker stops waiting", "its time is over", "the server stops"])
def test_what_is_claimed_in_the_moment_of_leaving_is_still_given(serve, start, way):
    with SlowStore() as store:
        served = serve(store)
        run_id = store.create_run("a", {}).run_id
        wait_s = 0.5 if way == "its time is over" else WAIT_S
        waiting = claiming(served, start, run_id, "me", wait_s=wait_s)
        time.sleep(0.2)
        store.enqueue(run_id, [request("task")])
        assert store.has_claimed.wait(5)
        if way == "the worker stops waiting":
            served.client().ok(ops.STOP_WAITING, {"worker_id": "me"})
        elif way == "the server stops":
            start(served.server.stop)
        time.sleep(0.6)
        assert not waiting.done()
        store.may_return.set()
        assert waiting.result(5)["claims"][0]["rollout"]["input"] == "task"


def test_a_request_that_waits_may_be_large_and_packed(fast, start, run_id):
    names = [rollout.rollout_id for rollout in fast.store.enqueue(run_id, [request()] * 3000)]
    body = gzip.compress(to_json({"rollout_ids": names, "count": 1, "wait_s": WAIT_S}))
    waiting = start(fast.client().send, ops.WAIT_OVER.path, body, content_encoding="gzip")
    time.sleep(0.2)
    assert not waiting.done()
    fast.store.cancel(names[:1])
    assert waiting.result(5)[0] == 200


def test_stopping_the_server_answers_who_waits(served, start):
    run_id = served.store.create_run("a", {}).run_id
    held = [
        claiming(served, start, run_id),
        start(served.client().ok, ops.CHANGES, {"since": changes(served), "wait_s": WAIT_S}),
    ]
    time.sleep(0.3)
    started = time.monotonic()
    served.server.stop()
    assert held[0].result(5) == {"claims": [], "run_is_open": True}
    assert held[1].result(5)["changed"] is False
    assert time.monotonic() - started < AT_ONCE_S


def test_closing_the_store_refuses_who_waits_and_says_why(serve, start):
    store = MemoryStore()
    served = serve(store)
    run_id = store.create_run("a", {}).run_id
    waiting = start(
        served.client().send,
        ops.CLAIM.path,
        to_json({"worker_id": "w", "run_id": run_id, "wait_s": WAIT_S}),
    )
    time.sleep(0.2)
    store.close()
    status, reply, headers = waiting.result(5)
    assert (status, headers["retry-after"]) == (503, "1")
    assert b"closed" in reply


# --- wait_over and changes ----------------------------------------------------------------------


def test_waiting_until_enough_are_over(served, start):
    store = served.store
    run_id = store.create_run("a", {}).run_id
    names = [rollout.rollout_id for rollout in store.enqueue(run_id, [request()] * 3)]
    body = {"rollout_ids": names[::-1], "count": 2, "wait_s": WAIT_S}
    waiting = start(served.client().ok, ops.WAIT_OVER, body)
    time.sleep(0.1)
    store.cancel(names[:1])
    time.sleep(0.2)
    assert not waiting.done()
    store.cancel(names[1:2])
    assert [rollout["rollout_id"] for rollout in waiting.result(5)["rollouts"]] == [names[1], names[0]]
    late = served.client().ok(ops.WAIT_OVER, {"rollout_ids": names, "wait_s": 0.1})
    assert len(late["rollouts"]) == 2


def test_a_lease_that_ends_for_the_last_time_ends_the_wait(fast, start, run_id):
    (rollout,) = fast.store.enqueue(run_id, [request(lease_s=0.5, max_lost=0)])
    fast.store.claim(run_id, "dead")
    body = {"rollout_ids": [rollout.rollout_id], "wait_s": WAIT_S}
    assert fast.client().ok(ops.WAIT_OVER, body)["rollouts"][0]["status"] == "failed"


def changes(served, **which: str) -> str:
    return served.client().ok(ops.CHANGES, which)["now"]


def test_changes_are_told_by_run_and_kind(served, start):
    store = served.store
    mine, other = (store.create_run(name, {}).run_id for name in "ab")
    body = {"run_id": mine, "on": "queued"}
    body |= {"since": changes(served, **body), "wait_s": WAIT_S}
    waiting = start(served.client().ok, ops.CHANGES, body)
    (rollout,) = store.enqueue(other, [request()])
    store.cancel([rollout.rollout_id])
    time.sleep(0.2)
    assert not waiting.done()
    store.enqueue(mine, [request()])
    told = waiting.result(5)
    assert told["changed"] is True
    assert (
        served.client().ok(ops.CHANGES, {**body, "since": told["now"], "wait_s": 0})["changed"] is False
    )


def test_a_change_between_two_requests_is_told_at_once(fast, run_id):
    since = changes(fast, run_id=run_id)
    fast.store.enqueue(run_id, [request()])
    started = time.monotonic()
    body = {"run_id": run_id, "since": since, "wait_s": WAIT_S}
    assert fast.client().ok(ops.CHANGES, body)["changed"] is True
    assert time.monotonic() - started < AT_ONCE_S


@pytest.mark.parametrize("since", ["", "-", "0123456789abcdef-0", "nonsense", "-1"])
def test_what_another_server_said_counts_as_a_change(fast, run_id, since):
    told = fast.client().ok(ops.CHANGES, {"run_id": run_id, "since": since, "wait_s": WAIT_S})
    assert told["changed"] is True
