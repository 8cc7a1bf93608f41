"""What a stopped run did not finish, and asking for it again."""

import pytest
from agentlightning.errors import AlgorithmError
from agentlightning.records import Outcome, RolloutRequest
from agentlightning.store import Result, RolloutQuery
from agentlightning.trainer.unfinished import cancel_unfinished, queue

KEY = "step-1"
REQUESTS = [RolloutRequest(input=letter) for letter in "abcd"]


@pytest.fixture
def run_id(memory_store):
    run = memory_store.create_run("stopped", {})
    memory_store.publish(run.run_id, {})
    return run.run_id


@pytest.fixture
def ask(memory_store, run_id):
    return lambda requests=REQUESTS: queue(memory_store, run_id, requests, KEY)


def finish(store, run_id, count):
    claims = store.claim(run_id, "worker", limit=count)
    store.finish([Result(key=claim.key, outcome=Outcome(status="succeeded")) for claim in claims])


def test_what_is_queued_or_running_is_cancelled_and_the_rest_stays(memory_store, run_id, ask):
    ask()
    finish(memory_store, run_id, 1)
    memory_store.claim(run_id, "worker")
    assert cancel_unfinished(memory_store, run_id) == 3
    statuses = [rollout.status for rollout in memory_store.rollouts(RolloutQuery()).items]
    assert statuses == ["succeeded", "cancelled", "cancelled", "cancelled"]


def test_other_runs_are_left_alone(memory_store, run_id):
    other = memory_store.create_run("other", {}).run_id
    queue(memory_store, other, REQUESTS, None)
    assert cancel_unfinished(memory_store, run_id) == 0


def test_the_same_key_gives_what_is_finished_and_makes_the_rest_anew(memory_store, run_id, ask):
    first = ask()
    finish(memory_store, run_id, 2)
    cancel_unfinished(memory_store, run_id)
    again = ask()
    assert [rollout.rollout_id for rollout in again[:2]] == [r.rollout_id for r in first[:2]]
    assert [rollout.status for rollout in again] == ["succeeded", "succeeded", "queued", "queued"]
    assert [rollout.input for rollout in again] == list("abcd")


def test_each_stop_leaves_one_successor_at_most(memory_store, run_id, ask):
    ask()
    for _ in range(3):
        cancel_unfinished(memory_store, run_id)
        made = [rollout.rollout_id for rollout in ask()]
        assert [rollout.rollout_id for rollout in ask()] == made
    assert memory_store.statistics(run_id).rollouts["queued"] == len(REQUESTS)


def test_other_tasks_under_the_same_key_are_refused_with_what_to_give(ask):
    ask()
    with pytest.raises(
        AlgorithmError, match="expected the datasets and the configuration that the run"
    ):
        ask([RolloutRequest(input="z")])
