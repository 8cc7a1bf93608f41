"""kill -9 of runners in mid-rollout, again and again, under load."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from agentlightning import semconv
from agentlightning.records import ROLLOUT_OVER
from agentlightning.store import RolloutQuery, waiting
from agentlightning.store.opening import open_store
from agentlightning.testing.store import request
from conftest import KILLS
from fleet import Fleet
from journal import entries
from nursery import Nursery

RUNNERS, THREADS, AHEAD = 3, 4, 40
LEASE_S, STEPS, PAUSE_S = 1.0, 4, 0.03


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
            enqueue_ahead(store, run_id)
            time.sleep(chance.uniform(0.05, 0.3))
            runners.kill_one()
            runners.refill()
            ended.look()
        waiting.wait(store, [r.rollout_id for r in rollouts_of(store, run_id)], timeout_s=60)
        store.set_run_status(run_id, "succeeded")
        assert runners.end() == [0] * RUNNERS

        noted = [entry for n in range(runners.started) for entry in entries(tmp_path / f"{n}.jsonl")]
        rollouts = rollouts_of(store, run_id)
        attempts = {r.rollout_id: store.attempts(r.rollout_id) for r in rollouts}
        spans = list(store.spans([rollout.rollout_id for rollout in rollouts], attempt="all"))
    ended.check(rollouts)
    check_each_ended_once(rollouts, attempts)
    check_successes_are_complete(rollouts, spans)
    check_answers_were_kept(noted, attempts, spans)
    assert sum(len(tried) > 1 for tried in attempts.values()) > KILLS / 2  # they were in mid-rollout


def enqueue_ahead(store, run_id):
    """Keep the queue from running dry: the runners are to be busy whenever one is killed."""
    lacking = AHEAD - store.statistics(run_id).rollouts["queued"]
    task = {"steps": STEPS, "pause_s": PAUSE_S}
    store.enqueue(run_id, [request(task, lease_s=LEASE_S, max_lost=1000)] * max(0, lacking))


def rollouts_of(store, run_id, **which):
    return store.rollouts(RolloutQuery(run_id=run_id, limit=10**6, **which)).items


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


def check_each_ended_once(rollouts, attempts):
    for rollout in rollouts:
        *earlier, last = attempts[rollout.rollout_id]
        assert rollout.status == last.status == "succeeded"
        assert {attempt.status for attempt in earlier} <= {"lost"}
        assert [attempt.number for attempt in (*earlier, last)] == list(range(1, rollout.attempt + 1))


def check_successes_are_complete(rollouts, spans):
    """The final attempt has its root, each of its steps and its reward, once."""
    kinds, steps = Counter(), Counter()
    for span in spans:
        kinds[span.rollout_id, span.attempt, span.kind] += 1
        if span.kind == "message":
            steps[span.rollout_id, span.attempt, str(span.attributes[semconv.MESSAGE_BODY])] += 1
    assert set(steps.values()) == {1}
    for rollout in rollouts:
        assert rollout.output == {"steps": STEPS, "attempt": rollout.attempt}
        final = rollout.rollout_id, rollout.attempt
        assert {kind: kinds[*final, kind] for kind in ("agent", "message", "reward")} == {
            "agent": 1,
            "message": STEPS,
            "reward": 1,
        }


def check_answers_were_kept(noted, attempts, spans):
    """What a runner was told is stored is stored: each span once, each result as the attempt's end."""
    stored = Counter((span.rollout_id, span.attempt, span.span_id) for span in spans)
    assert set(stored.values()) == {1}
    answered = {tuple(name) for entry in noted for name in entry["spans"]}
    assert answered <= stored.keys()
    results = Counter(tuple(result) for entry in noted for result in entry["results"])
    assert set(results.values()) == {1}
    assert len({rollout_id for rollout_id, _, _ in results}) == len(results)
    for rollout_id, number, status in results:
        assert attempts[rollout_id][number - 1].status == status
