"""Scoring stored rollouts anew: which are scored, what is kept, and what it says of both versions."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest
from agentlightning.errors import ConfigError, UnknownRun
from agentlightning.recording.attempt import reward_span
from agentlightning.records import Outcome, RolloutRequest
from agentlightning.samples import CreditRules, Limits, outcome, remember_rules, rewards
from agentlightning.store import Result, RolloutQuery
from agentlightning.store.memory import MemoryStore
from agentlightning.trainer.rescoring import rescore
from agentlightning_sqlite.store import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    make = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(f"sqlite:///{tmp_path}/runs.db"),
    }[request.param]
    with make() as store:
        yield store


@pytest.fixture
def run_id(store):
    """A run of ten rollouts on the tasks 0 to 9, each with its task as output and reward."""
    run_id = store.create_run("ten", {}).run_id
    record(store, run_id, range(10))
    return run_id


def record(store, run_id, tasks, status="succeeded", **fields):
    store.enqueue(run_id, [RolloutRequest(input=task, **fields) for task in tasks])
    claims = store.claim(run_id, "worker", limit=len(tasks))
    ended = [
        Result(
            key=claim.key,
            outcome=Outcome(status=status, output={"said": claim.rollout.input}),
            spans=(reward_span(claim.key, claim.rollout.input, source="returned"),),
        )
        for claim in claims
    ]
    store.finish(ended)
    store.set_rewards({claim.key.rollout_id: claim.rollout.input for claim in claims})


def scores(store, run_id, version):
    """What each rollout's reward is in a version, by task."""
    found = {}
    for rollout in store.rollouts(RolloutQuery(run_id=run_id)).items:
        spans = list(store.spans([rollout.rollout_id]))
        found[rollout.input] = outcome(rollout, spans, CreditRules(version=version))
    return found


def tenth(task, output):
    return output["said"] / 10


class Counting:
    """A judge that is paid by the call."""

    def __init__(self, judge=tenth):
        self.judge = judge
        self.asked = []

    def __call__(self, task, output):
        self.asked.append(task)
        return self.judge(task, output)


def test_new_rewards_lie_beside_the_old(store, run_id):
    done = rescore(store, run_id, tenth, version="tenth")
    assert scores(store, run_id, "tenth") == {task: task / 10 for task in range(10)}
    assert scores(store, run_id, "agent") == {task: task for task in range(10)}
    (rollout,) = store.rollouts(RolloutQuery(run_id=run_id, limit=1)).items
    (reward,) = rewards(store.spans([rollout.rollout_id]), "tenth")
    assert (reward.source, reward.name, reward.value) == ("function", "reward", 0.0)
    assert [item.reward for item in store.rollouts(RolloutQuery(run_id=run_id)).items] == list(
        range(10)
    )
    assert (done.scored, done.scored_before, done.unscored) == (10, 0, {})


def test_it_tells_how_far_the_versions_agree(store, run_id):
    facts = rescore(
        store, run_id, lambda task, output: -task if task < 9 else None, version="v"
    ).facts()
    assert facts["old"] == {"version": "agent", "scored": 10, "mean": 4.5}
    assert facts["new"] == {"version": "v", "scored": 9, "mean": -4.0}
    assert (facts["both"], facts["correlation"]) == (9, pytest.approx(-1.0))
    assert [(item["old"], item["new"]) for item in facts["differences"]] == [
        (8.0, -8.0),
        (7.0, -7.0),
        (6.0, -6.0),
        (5.0, -5.0),
        (4.0, -4.0),
    ]
    assert facts["unscored"] == {"the reward function's value is None": 1}


def test_what_is_scored_is_not_scored_again_unless_asked(store, run_id):
    judge = Counting(lambda task, output: None if task == 3 else tenth(task, output))
    rescore(store, run_id, judge, version="judge", limit=4)
    assert sorted(judge.asked) == [0, 1, 2, 3]
    done = rescore(store, run_id, judge, version="judge")
    assert sorted(judge.asked) == list(range(10))
    assert (done.scored, done.scored_before) == (6, 4)
    assert done.comparison.new == (9, pytest.approx(4.2 / 9))
    rescore(store, run_id, lambda task, output: 7, version="judge", again=True)
    assert set(scores(store, run_id, "judge").values()) == {7.0}


def test_a_crash_leaves_a_rollout_unscored_with_its_reason_and_is_tried_again(store, run_id):
    def fails(task, output):
        if task > 7:
            raise TimeoutError("the judge is away")
        return 1.0

    done = rescore(store, run_id, fails, version="judge")
    assert done.unscored == {"the reward function failed: TimeoutError: the judge is away": 2}
    assert done.refusal is None
    assert scores(store, run_id, "judge")[9] is None
    judge = Counting()
    done = rescore(store, run_id, judge, version="judge")
    assert sorted(judge.asked) == [8, 9]
    assert scores(store, run_id, "judge")[9] == 0.9


def test_what_is_no_number_is_refused_by_the_rollouts_id(store, run_id):
    done = rescore(store, run_id, lambda task, output: math.nan if task == 5 else 1, version="v")
    (reason,) = done.unscored
    assert "expected a finite number" in reason
    assert done.scored == 9
    bad = store.rollouts(RolloutQuery(run_id=run_id)).items[5]
    assert bad.rollout_id in str(done.refusal)
    assert scores(store, run_id, "v")[5] is None


def test_many_are_scored_at_once_also_by_async_functions(store, run_id):
    together, most, lock = 0, 0, threading.Lock()

    def enter(change):
        nonlocal together, most
        with lock:
            together += change
            most = max(most, together)

    async def slowly(task, output, rollout):
        enter(1)
        await asyncio.sleep(0.1)
        enter(-1)
        return rollout.attempt

    rescore(store, run_id, slowly, version="async", workers=5)
    assert set(scores(store, run_id, "async").values()) == {1.0}
    assert 2 <= most <= 5


def test_an_interruption_keeps_what_was_paid_for(store, run_id):
    asked = []

    def judge(task, output):
        asked.append(task)
        return 1.0

    def interrupt(done, total):
        assert total == 10
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rescore(store, run_id, judge, version="judge", workers=2, told=interrupt)
    kept = [task for task, value in scores(store, run_id, "judge").items() if value is not None]
    assert sorted(kept) == sorted(asked)
    assert len(asked) < 10
    rescore(store, run_id, judge, version="judge")
    assert sorted(asked) == list(range(10))


def test_the_rollouts_own_reward_follows_only_when_asked(store, run_id):
    half = Counting(lambda task, output: task / 2 if task else None)
    rescore(store, run_id, half, version="half")
    rescore(store, run_id, half, version="half", make_current=True)
    own = [item.reward for item in store.rollouts(RolloutQuery(run_id=run_id)).items]
    assert own == [None, *(task / 2 for task in range(1, 10))]
    assert len(half.asked) == 10


def test_only_the_rollouts_that_were_named_are_scored(store, run_id):
    record(store, run_id, [20, 21], mode="val")
    record(store, run_id, [30], status="failed")
    unbegun = store.enqueue(run_id, [RolloutRequest(input=40)])
    store.cancel([item.rollout_id for item in unbegun])
    judge = Counting(lambda task, output: 1.0)
    rescore(store, run_id, judge, version="val", mode="val")
    assert sorted(judge.asked) == [20, 21]
    judge.asked.clear()
    done = rescore(store, run_id, judge, version="all", statuses=("succeeded", "failed", "cancelled"))
    assert sorted(judge.asked) == [*range(10), 20, 21, 30]
    assert done.unattempted == 1


def test_the_old_version_is_what_the_run_was_made_with(store):
    run_id = store.create_run("with a version", {}).run_id
    rules = remember_rules(CreditRules(version="first"), Limits(), "transition")
    record(store, run_id, [1], metadata=rules)
    rescore(store, run_id, lambda task, output: 3, version="first")
    facts = rescore(store, run_id, lambda task, output: 4, version="second").facts()
    assert facts["old"] == {"version": "first", "scored": 1, "mean": 3.0}


def test_names_that_mean_something_else_are_refused(store, run_id):
    for version in ("", "agent"):
        with pytest.raises(ConfigError, match="version"):
            rescore(store, run_id, tenth, version=version)
    with pytest.raises(ConfigError, match="cannot be scored yet"):
        rescore(store, run_id, tenth, version="v", statuses=("running",))
    with pytest.raises(UnknownRun):
        rescore(store, "run-nobody-made", tenth, version="v")
