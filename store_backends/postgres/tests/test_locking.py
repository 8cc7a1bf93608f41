"""What calls at the same time do to each other; one is held in the middle of its work."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentlightning.errors import InvalidTransition, StoreUnavailable
from agentlightning.records import Outcome
from agentlightning.store import Order, Result, RolloutQuery, claims, waiting
from agentlightning.testing.store import request, span

SHORT_S = 0.3
DEADLINE_S = 30


@pytest.fixture
def run_id(store):
    return store.create_run("shared", {}).run_id


@pytest.fixture
def elsewhere():
    with ThreadPoolExecutor(4) as threads:
        yield threads.submit


class Held:
    """A writing transaction that has done its work and does not end before it is told to."""

    def __init__(self, store, elsewhere, work):
        self.store, self.work = store, work
        self.has_worked, self.may_end = threading.Event(), threading.Event()
        self.is_failing = False
        self.future = elsewhere(self.run)
        assert self.has_worked.wait(DEADLINE_S)

    def run(self):
        with self.store._writing() as tables:
            self.work(tables)
            self.has_worked.set()
            assert self.may_end.wait(DEADLINE_S)
            if self.is_failing:
                raise ZeroDivisionError

    def commit(self):
        self.may_end.set()
        self.future.result(DEADLINE_S)

    def fail(self):
        self.is_failing = True
        self.may_end.set()
        with pytest.raises(ZeroDivisionError):
            self.future.result(DEADLINE_S)


@pytest.fixture
def hold(store, elsewhere):
    held = []

    def begin(work):
        held.append(Held(store, elsewhere, work))
        return held[-1]

    yield begin
    for item in held:
        item.may_end.set()


def is_waiting(future):
    time.sleep(SHORT_S)
    return not future.done()


def test_a_page_never_begins_behind_a_rollout_that_is_yet_to_be_committed(
    store, run_id, hold, elsewhere
):
    other = store.create_run("other", {}).run_id

    def add(tables):
        claims.enqueue(tables, run_id, [request("slow")], 1.0)
        tables.write_new_rollouts()

    slow = hold(add)
    quick = elsewhere(store.enqueue, other, [request("quick")])
    assert is_waiting(quick)
    assert store.rollouts(RolloutQuery()).items == []
    slow.commit()
    quick.result(DEADLINE_S)
    assert [item.input for item in store.rollouts(RolloutQuery()).items] == ["slow", "quick"]


def test_a_claim_passes_over_what_another_is_claiming(store, run_id, hold):
    first, second = store.enqueue(run_id, [request("first"), request("second")])
    other = hold(lambda tables: tables.queued(run_id, 1))
    (claim,) = store.claim(run_id, "w")
    assert claim.key.rollout_id == second.rollout_id
    other.fail()
    (claim,) = store.claim(None, "w")
    assert claim.key.rollout_id == first.rollout_id


@pytest.mark.parametrize("of_any_run", [False, True])
def test_a_waiter_gets_what_another_claim_held_and_did_not_take(
    store, run_id, hold, elsewhere, of_any_run
):
    """Nobody is told of a transaction that failed, so who passed over its rollouts looks again."""
    store.enqueue(run_id, [request("task")])
    other = hold(lambda tables: tables.queued(run_id, 1))
    which = None if of_any_run else run_id
    waiter = elsewhere(waiting.claim_when_ready, store, which, "w", timeout_s=DEADLINE_S)
    assert is_waiting(waiter)
    other.fail()
    assert [claim.rollout.input for claim in waiter.result(5)] == ["task"]


def test_an_expired_lease_that_is_being_renewed_is_left_alone(store, run_id, hold):
    claim = store.begin("shared", request(lease_s=0.05), "worker")
    time.sleep(0.1)
    other = hold(lambda tables: tables.rollouts([claim.key.rollout_id]))
    assert store.claim(run_id, "other") == []
    other.commit()
    (again,) = store.claim(run_id, "other")
    assert again.key.number == 2
    assert store.heartbeat("worker", [claim.key]) == {claim.key: Order.LOST}


def test_a_run_is_closed_after_those_who_are_adding_to_it_and_before_those_who_come_later(
    store, run_id, hold, elsewhere
):
    adding = hold(lambda tables: tables.lock_run(run_id, shared=True))
    closing = elsewhere(store.set_run_status, run_id, "cancelled")
    assert is_waiting(closing)
    late = elsewhere(store.enqueue, run_id, [request()])
    assert is_waiting(late)
    adding.commit()
    closing.result(DEADLINE_S)
    with pytest.raises(InvalidTransition):
        late.result(DEADLINE_S)


def test_status_and_endpoint_of_a_run_do_not_undo_each_other(store, run_id, hold, elsewhere):
    closing = hold(lambda tables: tables.lock_run(run_id))
    moving = elsewhere(store.set_endpoint, run_id, "http://here")
    assert is_waiting(moving)
    closing.commit()
    moving.result(DEADLINE_S)
    for _ in range(10):
        futures = [
            elsewhere(store.set_run_status, run_id, "failed"),
            elsewhere(store.set_endpoint, run_id, None),
        ]
        for future in futures:
            future.result(DEADLINE_S)
        run = store.run(run_id)
        assert (run.status, run.endpoint_url) == ("failed", None)
        store.set_endpoint(run_id, "http://here")
        store.set_run_status(run_id, "open")


def test_calls_on_other_rollouts_do_not_wait(store, run_id, hold):
    """What a global lock would make wait: all of this goes on while another call is in its middle."""
    held = store.begin("shared", request("held"), "w")
    free = store.begin("shared", request("free"), "w")
    other = hold(lambda tables: tables.rollouts([held.key.rollout_id]))
    began = time.monotonic()
    assert store.heartbeat("w", [free.key]) == {free.key: Order.CONTINUE}
    store.add_spans([span(free.key)])
    store.finish([Result(key=free.key, outcome=Outcome(status="succeeded"))])
    store.enqueue(run_id, [request("more")])
    assert len(store.claim(run_id, "w")) == 1
    store.publish(run_id, {})
    assert store.statistics(run_id).rollouts["running"] == 2
    assert time.monotonic() - began < 5
    other.commit()


def test_of_two_transactions_that_wait_for_each_other_one_is_told_to_repeat(
    store, run_id, hold, elsewhere
):
    names = [store.begin("shared", request(n), "w").key.rollout_id for n in range(2)]
    locked = threading.Barrier(2)

    def cross(first, second):
        with store._writing() as tables:
            tables.rollouts([first])
            locked.wait(DEADLINE_S)
            tables.rollouts([second])

    crossing = [elsewhere(cross, *names), elsewhere(cross, *reversed(names))]
    errors = [future.exception(DEADLINE_S) for future in crossing]
    (error,) = [error for error in errors if error is not None]
    assert isinstance(error, StoreUnavailable)
    assert "repeat it" in str(error)
    assert len(store.cancel(names)) == 2


def test_calls_of_every_kind_at_once_never_wait_for_each_other(store, run_id, elsewhere):
    """The order of locks holds: no call is told that it and another waited for each other."""
    store.enqueue(run_id, [request(n, lease_s=0.02, max_lost=100) for n in range(40)])
    ended = time.monotonic() + 2.0

    def work(number):
        done, turns = [], 0
        while time.monotonic() < ended:
            turns += 1
            turnover = store.finish_and_claim(
                done, run_id if number % 2 else None, f"w{number}", limit=3, key=f"{number}-{turns}"
            )
            keys = [claim.key for claim in turnover.claims]
            store.add_spans([span(key, number) for key in reversed(keys)])
            store.heartbeat(f"w{number}", list(reversed(keys)), {"turns": turns})
            store.set_rewards({key.rollout_id: 1.0 for key in keys})
            done = [Result(key=key, outcome=Outcome(status="succeeded")) for key in keys[1:]]
            store.cancel([key.rollout_id for key in keys[:1]][: turns % 2])
            store.enqueue(run_id, [request(n, lease_s=0.02) for n in range(3)], key=f"{number}-{turns}")
            store.begin("shared", request("mine"), f"w{number % 2}", key=f"{number}-{turns}")
            store.publish(run_id, {}, key=f"{number}-{turns}")
            store.set_run_status(run_id, "open")
            store.log_metrics(run_id, turns, {f"m{n}": 1.0 for n in (number, 3, 2, 1)})
        return turns

    turns = [future.result(DEADLINE_S) for future in [elsewhere(work, n) for n in range(4)]]
    assert min(turns) >= 1
    statistics = store.statistics(run_id)
    assert sum(statistics.rollouts.values()) == 40 + 4 * sum(turns)
    listed = []
    cursor = None
    while cursor is not None or not listed:
        page = store.rollouts(RolloutQuery(run_id=run_id, limit=7, cursor=cursor))
        listed += [item.rollout_id for item in page.items]
        cursor = page.cursor
    assert len(set(listed)) == len(listed) == 40 + 4 * sum(turns)
