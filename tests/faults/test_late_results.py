"""Spans and results of attempts that are over already: kept, dropped, and nobody's exception."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest
from agentlightning.store.opening import open_store
from agentlightning.testing.store import request
from journal import entries
from nursery import Nursery
from processes import doing, eventually
from rollouts import PAUSE_S, STEPS, ids_of, rollouts_of

LEASE_S = 0.6

FIRST = """
claim, = store.claim(None, "first")
timed_out = Result(key=claim.key, outcome=Outcome(status="timed_out", error="took too long"))
store.finish([timed_out])
say(claim.key.number)
listen()
succeeded = Result(key=claim.key, outcome=Outcome(status="succeeded", output="late"), spans=(span(claim.key, 2),))
for late in range(2):
    say(store.add_spans([span(claim.key, 1)]))
    try:
        store.finish([succeeded])
    except StaleAttempt as error:
        say("dropped" if "came too late" in str(error) else error)
    listen()
"""

SECOND = """
claim, = waiting.claim_when_ready(store, None, "second", timeout_s=30)
say(claim.key.number)
listen()
store.finish([Result(key=claim.key, outcome=Outcome(status="succeeded", output="in time"))])
say("finished")
"""


def test_what_comes_after_a_time_limit_is_kept_with_its_attempt_and_changes_nothing(url):
    with open_store(url) as store, ExitStack() as children:
        started = children.enter_context
        run_id = store.create_run("late", {}).run_id
        (rollout,) = store.enqueue(run_id, [request("task", max_attempts=2)])
        first = started(doing(url, FIRST))
        assert first.hear() == "1"
        second = started(doing(url, SECOND))
        assert second.hear() == "2"
        first.tell()  # while the second attempt is under way
        assert (first.hear(), first.hear()) == ("1", "dropped")
        assert rollouts_of(store, run_id)[0].status == "running"
        second.tell()
        assert second.hear() == "finished"
        first.tell()  # and once more when all is over
        assert (first.hear(), first.hear()) == ("0", "dropped")
        ended = rollouts_of(store, run_id)[0]
        assert (ended.status, ended.output, ended.attempt) == ("succeeded", "in time", 2)
        statuses = [attempt.status for attempt in store.attempts(rollout.rollout_id)]
        assert statuses == ["timed_out", "succeeded"]
        kept = [item.attempt for item in store.spans([rollout.rollout_id], attempt="all")]
        assert kept == [1, 1]
        assert store.statistics(run_id).late_results == 2


@pytest.fixture
def nursery():
    with Nursery("runner_process", "agents", "agentlightning_sqlite.store") as nursery:
        yield nursery


def test_a_runner_that_was_frozen_learns_that_it_was_given_up_and_goes_on(nursery, url, tmp_path):
    """Its machine was suspended, say: its attempts are another's by then, and it takes new ones."""
    task = {"steps": STEPS, "pause_s": PAUSE_S}
    with open_store(url) as store:
        run_id = store.create_run("frozen", {}).run_id

        def start(name):
            arguments = (url, run_id, "agents:stepping", str(tmp_path / name), "2")
            return nursery.start("runner_process", *arguments)

        frozen = start("frozen")
        store.enqueue(run_id, [request({**task, "pause_s": 0.3}, lease_s=LEASE_S, max_lost=9)] * 2)
        eventually(lambda: store.statistics(run_id).rollouts["running"] == 2)
        frozen.send(signal.SIGSTOP)
        heir = start("heir")
        eventually(lambda: store.statistics(run_id).rollouts["succeeded"] == 2)
        before = rollouts_of(store, run_id)
        frozen.send(signal.SIGCONT)
        eventually(lambda: store.statistics(run_id).spans >= 2 * 2 + 2 * (STEPS + 2))
        heir.kill()
        frozen_before = len(entries(tmp_path / "frozen"))
        (new,) = store.enqueue(run_id, [request(task)])
        eventually(lambda: store.statistics(run_id).rollouts["succeeded"] == 3)
        store.set_run_status(run_id, "succeeded")
        assert frozen.end() == 0

        after = {rollout.rollout_id: rollout for rollout in rollouts_of(store, run_id)}
        assert [after[name] for name in ids_of(before)] == before
        for rollout in before:
            statuses = [attempt.status for attempt in store.attempts(rollout.rollout_id)]
            assert statuses == ["lost", "succeeded"]
            assert rollout.output == {"steps": STEPS, "attempt": 2}
        assert [attempt.number for attempt in store.attempts(new.rollout_id)] == [1]
        assert len(entries(tmp_path / "frozen")) > frozen_before
