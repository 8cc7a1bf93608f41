"""Two runs in one file, each with runners of its own, that never see anything of each other."""

from __future__ import annotations

import pytest
from agentlightning.records import Data
from agentlightning.store import RolloutQuery, waiting
from agentlightning.store.opening import open_store
from agentlightning.testing.store import request
from nursery import Nursery

TASKS, PUBLISHED, RUNNERS, THREADS = 60, 3, 2, 3


@pytest.fixture
def nursery():
    with Nursery("runner_process", "agents", "agentlightning_sqlite.store") as nursery:
        yield nursery


@pytest.fixture
def store(url):
    with open_store(url) as store:
        yield store


def publish_and_enqueue(store, run_id, name):
    """Several versions of a resource, and tasks under each."""
    for version in range(PUBLISHED):
        store.publish(run_id, {"told": Data(value=f"{name} {version}")})
        store.enqueue(run_id, [request(f"{name} {n}") for n in range(TASKS // PUBLISHED)])


def rollouts_of(store, run_id):
    return store.rollouts(RolloutQuery(run_id=run_id)).items


def test_runners_of_two_runs_see_only_their_own(nursery, store, url, tmp_path):
    run_ids = {name: store.create_run("same name", {}).run_id for name in ("red", "blue")}
    working = {
        name: [
            nursery.start(
                "runner_process", url, run_id, "agents:telling", str(tmp_path / name), str(THREADS)
            )
            for _ in range(RUNNERS)
        ]
        for name, run_id in run_ids.items()
    }
    for name, run_id in run_ids.items():
        publish_and_enqueue(store, run_id, name)
    for run_id in run_ids.values():
        waiting.wait(store, [r.rollout_id for r in rollouts_of(store, run_id)], timeout_s=60)
        store.set_run_status(run_id, "succeeded")
    assert [member.end() for members in working.values() for member in members] == [0] * 2 * RUNNERS

    workers = {}
    for name, run_id in run_ids.items():
        rollouts = rollouts_of(store, run_id)
        assert len(rollouts) == TASKS
        for rollout in rollouts:
            assert rollout.output["run"] == run_id
            assert rollout.output["told"].split()[0] == name == rollout.output["task"].split()[0]
        told = [
            span.attributes for span in store.spans([r.rollout_id for r in rollouts], kinds=["message"])
        ]
        assert len(told) == TASKS
        assert all(run_id in str(attributes) for attributes in told)
        workers[name] = {a.worker_id for r in rollouts for a in store.attempts(r.rollout_id)}
        assert store.statistics(run_id).rollouts["succeeded"] == TASKS
        assert store.resources(run_id, "latest").version == PUBLISHED
    assert not workers["red"] & workers["blue"]


def test_state_metrics_and_keys_of_two_runs_are_apart(store, url):
    red, blue = (store.create_run("same name", {}).run_id for _ in range(2))
    with open_store(url) as other:
        for run_id, opened, value in ((red, store, 1.0), (blue, other, 2.0)):
            opened.save_state(run_id, {"value": value})
            opened.log_metrics(run_id, 1, {"loss": value})
            opened.enqueue(run_id, [request(value)], key="the same")
            opened.publish(run_id, {"data": Data(value=value)}, key="the same")
        for run_id, opened, value in ((red, other, 1.0), (blue, store, 2.0)):
            assert opened.load_state(run_id) == {"value": value}
            assert [metrics.values for metrics in opened.metrics(run_id)] == [{"loss": value}]
            assert [rollout.input for rollout in rollouts_of(opened, run_id)] == [value]
            assert opened.resources(run_id, "latest").resources["data"].value == value


def test_work_of_one_run_wakes_nobody_who_waits_for_the_other(nursery, store, url, tmp_path):
    red, blue = (store.create_run("same name", {}).run_id for _ in range(2))
    publish_and_enqueue(store, blue, "blue")
    woken = {"red": 0, "blue": 0}

    def count(name):
        woken[name] += 1

    store.watch(red, lambda: count("red"))
    store.watch(blue, lambda: count("blue"))
    runner = nursery.start("runner_process", url, blue, "agents:telling", str(tmp_path / "noted"), "2")
    waiting.wait(store, [r.rollout_id for r in rollouts_of(store, blue)], timeout_s=60)
    store.set_run_status(blue, "succeeded")
    assert runner.end() == 0
    assert woken["blue"] > 0
    assert woken["red"] == 0
    store.enqueue(red, [request()])
    assert woken["red"] == 1
