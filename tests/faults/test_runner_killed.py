"""kill -9 of runners in mid-rollout, again and again, under load."""

from __future__ import annotations

import time

import pytest
from agentlightning.records import ROLLOUT_OVER
from agentlightning.store import waiting
from agentlightning.store.opening import open_store
from conftest import KILLS
from fleet import Fleet
from journal import entries
from nursery import Nursery
from rollouts import (
    check_answers_were_kept,
    check_each_ended_once,
    check_successes_are_complete,
    enqueue_ahead,
    ids_of,
    rollouts_of,
)

RUNNERS, THREADS = 3, 4
LEASE_S = 1.0


@pytest.fixture
def nursery():
    with Nursery("runner_process", "agents", "agentlightning_sqlite.store") as nursery:
        yield nursery


def test_every_rollout_ends_once_though_its_runners_are_killed(nursery, url, tmp_path, chance):
    with open_store(url) as store:
        run_id = store.create_run("killed", {}).run_id
        ended = Ended(store, run_id)

        def start(number):
            arguments = (
                url,
                run_id,
                "agents:stepping",
                str(tmp_path / f"{number}.jsonl"),
                str(THREADS),
            )
            return nursery.start("runner_process", *arguments)

        runners = Fleet(start, RUNNERS, chance)
        for _ in range(KILLS):
            enqueue_ahead(store, run_id, lease_s=LEASE_S)
            time.sleep(chance.uniform(0.05, 0.3))
            runners.kill_one()
            runners.refill()
            ended.look()
        waiting.wait(store, ids_of(rollouts_of(store, run_id)), timeout_s=60)
        store.set_run_status(run_id, "succeeded")
        assert runners.end() == [0] * RUNNERS

        noted = [entry for n in range(runners.started) for entry in entries(tmp_path / f"{n}.jsonl")]
        rollouts = rollouts_of(store, run_id)
        attempts = {name: store.attempts(name) for name in ids_of(rollouts)}
        spans = list(store.spans(ids_of(rollouts), attempt="all"))
    ended.check(rollouts)
    check_each_ended_once(rollouts, attempts)
    check_successes_are_complete(rollouts, spans)
    check_answers_were_kept(noted, attempts, spans)
    assert sum(len(tried) > 1 for tried in attempts.values()) > KILLS / 2  # they were in mid-rollout


class Ended:
    """Rollouts as they were seen when they were first over: over is over."""

    def __init__(self, store, run_id):
        self._store = store
        self._run_id = run_id
        self._seen = {}

    def look(self):
        for rollout in rollouts_of(self._store, self._run_id, status=tuple(ROLLOUT_OVER)):
            self._seen.setdefault(rollout.rollout_id, rollout)

    def check(self, rollouts):
        assert self._seen
        last = {rollout.rollout_id: rollout for rollout in rollouts}
        assert {name: last[name] for name in self._seen} == self._seen
