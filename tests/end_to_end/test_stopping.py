"""Runs that are interrupted, killed, or hit by their own parts; and what is left to go on with.

The ones that are stopped are processes of their own, as a user's script is; they go on in this one,
which has imported everything already.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import agentlightning as agl
import psutil
import pytest
from agentlightning.store import RolloutQuery
from agentlightning.store.opening import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
STEPS, GROUPS, COPIES, WORKERS = 6, 2, 4, 4
THREADS = "threads"
PROCESSES = {"name": "processes", "processes": 2}
GONE_S = 5.0
"""Seconds after an interruption in which every child process has to be gone."""


@pytest.fixture
def settings(tmp_path, monkeypatch, tiny_model, sums):
    """Settings of a run in an empty folder; its leases end long after the test."""
    monkeypatch.syspath_prepend(str(HERE))
    for variable in ("OPENAI_API_KEY", "WORK_S"):  # set by workers in this process, and restored then
        monkeypatch.setenv(variable, "")
    return {
        "model": tiny_model,
        "store": f"sqlite:///{tmp_path}/run.db",
        "run_dir": str(tmp_path / "run"),
        "train_dataset": sums,
        "rollout": {"lease_s": 600},
    }


@pytest.fixture
def rl(settings):
    return {
        **settings,
        "algorithm": "rl",
        "reward_function": "stoppable:score",
        "eval_dataset": settings["train_dataset"][:3],
        "steps": STEPS,
        "batch_size": GROUPS * COPIES,
        "group_size": COPIES,
        "save_every": 2,
    }


def slow(config, executor):
    """With agents that take a while, so that a run can be stopped in the midst of them."""
    return {
        **config,
        "runners": {"count": WORKERS, "executor": executor, "environment": {"WORK_S": "0.4"}},
    }


def go_on(config, run_id, executor=THREADS):
    runners = {"count": WORKERS, "executor": executor, "environment": {"WORK_S": "0"}}
    trainer = agl.Trainer(config, resume=run_id, runners=runners)
    return trainer.fit("stoppable:agent") if config["algorithm"] == "rl" else trainer.train()


# --- a run in a process of its own --------------------------------------------------------------


class Started:
    """A run of the script, seen through its store."""

    def __init__(self, config, output):
        self.output = output
        self.config = config
        self.database = Path(config["store"].removeprefix("sqlite:///"))
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "stoppable.py"), json.dumps(config)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stderr=file,
                stdout=file,
            )
        self.children = []

    def wait_until(self, condition, *, timeout_s=90.0):
        """Wait until ``condition(store, run_id)`` holds; returns the run's id."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.output.read_text()
            time.sleep(0.2)
            if not self.database.exists():
                continue
            with open_store(self.config["store"]) as store:
                for run in store.runs():
                    if condition(store, run.run_id):
                        return run.run_id
        raise AssertionError(f"nothing of the kind in {timeout_s} s: {self.output.read_text()}")

    def end(self, number, *, timeout_s):
        """Send a signal; returns the exit code and the children that outlive the process for long."""
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        _, left = psutil.wait_procs(self.children, timeout=timeout_s)
        return self.process.wait(60), left


@contextmanager
def started(config, tmp_path):
    run = Started(config, tmp_path / "output.txt")
    try:
        yield run
    finally:
        for child in run.children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        run.process.kill()
        run.process.wait()


def in_the_midst_of(step):
    """A part of the step's rollouts is finished, and others are under way."""

    def condition(store, run_id):
        statuses = Counter(
            rollout.status
            for group in range(GROUPS)
            for rollout in store.rollouts(
                RolloutQuery(run_id=run_id, group_id=f"step-{step}-{group}")
            ).items
        )
        return statuses["succeeded"] and statuses["running"]

    return condition


def refuses_connections(url):
    address = urlsplit(url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=5).close()


# --- what is in the record -----------------------------------------------------------------------


def rollouts_of(store, run_id):
    return store.rollouts(RolloutQuery(run_id=run_id)).items


def finished(config, run_id):
    """The finished rollouts and how many attempts each took."""
    with open_store(config["store"]) as store:
        return {
            rollout.rollout_id: rollout.attempt
            for rollout in rollouts_of(store, run_id)
            if rollout.status == "succeeded"
        }


def numbers_by_step(config, run_id, name):
    with open_store(config["store"]) as store:
        return {m.step: m.values[name] for m in store.metrics(run_id) if name in m.values}


def last_step(config, run_id):
    return max(numbers_by_step(config, run_id, "train/reward"))


def check_that_nothing_was_paid_twice(config, run_id, before):
    """Every rollout of an unbroken run is there once, those from before the stop among them."""
    after = finished(config, run_id)
    assert before.items() <= after.items()
    with open_store(config["store"]) as store:
        everything = rollouts_of(store, run_id)
    groups = Counter(rollout.group_id for rollout in everything if rollout.status == "succeeded")
    trained = {f"step-{step + 1}-{g}": COPIES for step in range(STEPS) for g in range(GROUPS)}
    validated = {name: count for name, count in groups.items() if name.startswith("val-")}
    assert groups == {**trained, **validated}
    assert sorted(validated.values()) == [1] * 2 * len(config["eval_dataset"])
    others = [rollout for rollout in everything if rollout.status != "succeeded"]
    assert {rollout.status for rollout in others} <= {"cancelled"}
    assert sum(rollout.attempt > 0 for rollout in others) <= WORKERS


def summary(config):
    return json.loads((Path(config["run_dir"]) / "summary.json").read_text())


# --- interrupted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_an_interrupted_run_ends_cleanly_and_goes_on(rl, tmp_path, executor):
    with started(slow(rl, executor), tmp_path) as run:
        run_id = run.wait_until(in_the_midst_of(3))
        with open_store(rl["store"]) as store:
            endpoint = store.run(run_id).endpoint_url
        code, left = run.end(signal.SIGINT, timeout_s=GONE_S)
        output = run.output.read_text()
    assert bool(run.children) == (executor is PROCESSES)
    assert left == []
    assert code == 130
    assert "Traceback" not in output
    assert f"resume: {run_id}" in output
    refuses_connections(endpoint)
    check_what_an_interruption_leaves(rl, run_id)

    before, reward_before = finished(rl, run_id), summary(rl)["reward_before"]
    result = go_on(rl, run_id, executor)

    check_that_nothing_was_paid_twice(rl, run_id, before)
    assert sorted(numbers_by_step(rl, run_id, "train/reward")) == [1, 2, 3, 4, 5, 6]
    assert result.reward_before == reward_before is not None
    assert summary(rl)["status"] == "succeeded"
    assert summary(rl)["rollouts"] == STEPS * GROUPS * COPIES + 2 * len(rl["eval_dataset"])


def check_what_an_interruption_leaves(config, run_id):
    assert summary(config)["status"] == "cancelled"
    with open_store(config["store"]) as store:
        assert store.run(run_id).status == "cancelled"
        assert store.load_state(run_id)["step"] == last_step(config, run_id)
        counts = store.statistics(run_id).rollouts
    assert {status for status, count in counts.items() if count} <= {"succeeded", "cancelled"}


def test_an_interrupted_fine_tuning_goes_on(settings, tmp_path, chats):
    config = settings | {"algorithm": "sft", "train_dataset": chats, "steps": 200, "batch_size": 5}

    def is_under_way(store, run_id):
        return any("train/loss" in metrics.values for metrics in store.metrics(run_id))

    with started(config, tmp_path) as run:
        run_id = run.wait_until(is_under_way)
        code, _ = run.end(signal.SIGINT, timeout_s=GONE_S)
        output = run.output.read_text()
    assert code == 130
    assert "Traceback" not in output
    assert summary(config)["status"] == "cancelled"
    before = numbers_by_step(config, run_id, "train/loss")
    assert 0 < len(before) < 20

    result = go_on(config, run_id)

    after = numbers_by_step(config, run_id, "train/loss")
    assert list(after) == list(range(10, 201, 10))
    assert before.items() <= after.items()
    assert Path(result.resources.llm().model, "config.json").is_file()


# --- killed --------------------------------------------------------------------------------------


def test_a_killed_run_goes_on_from_its_last_checkpoint(rl, tmp_path):
    with started(slow(rl, PROCESSES), tmp_path) as run:
        run_id = run.wait_until(in_the_midst_of(4))
        code, left = run.end(signal.SIGKILL, timeout_s=GONE_S)
    assert code == -signal.SIGKILL
    assert run.children
    assert left == []
    before = finished(rl, run_id)
    reward_before = numbers_by_step(rl, run_id, "val/reward")[0]
    with open_store(rl["store"]) as store:
        assert store.run(run_id).status == "open"
        assert store.load_state(run_id)["step"] == 2 < last_step(rl, run_id)

    result = go_on(rl, run_id, PROCESSES)

    check_that_nothing_was_paid_twice(rl, run_id, before)
    dropped = numbers_by_step(rl, run_id, "fidelity/dropped")
    assert dropped == dict.fromkeys(range(1, STEPS + 1), 0)
    assert result.reward_before == reward_before


# --- hit by its own parts ------------------------------------------------------------------------


@agl.algorithm("asks")
def asks(ctx):
    """Run the agent on every task, and learn nothing."""
    results = ctx.rollouts(ctx.train, key="all").wait()
    ctx.log({"train/finished": len(results)}, 1)
    return ctx.resources.resources


@agl.algorithm("fails")
def fails(ctx):
    """Run the agent, then fail."""
    ctx.rollouts(ctx.train).wait()
    raise ERROR


ERROR = ValueError("the algorithm cannot go on")


def test_an_algorithm_that_raises_leaves_a_failed_run_and_its_own_error(settings):
    trainer = agl.Trainer(settings, algorithm="fails")
    with pytest.raises(ValueError, match="cannot go on") as caught:
        trainer.fit(lambda _task: "done", train=["a", "b"])
    assert caught.value is ERROR
    assert summary(settings)["status"] == "failed"
    assert summary(settings)["rollouts"] == 2


def attempts_of(config):
    """The attempts of every rollout, by task."""
    with open_store(config["store"]) as store:
        (run,) = store.runs()
        return [(r, store.attempts(r.rollout_id)) for r in rollouts_of(store, run.run_id)]


def test_agents_that_hang_are_given_up_and_their_processes_replaced(settings):
    config = settings | {"algorithm": "asks", "rollout": {"timeout_s": 2}}
    config["runners"] = {"count": 2, "executor": PROCESSES}
    agl.Trainer(config).fit("stoppable:hanging", [{"hangs": place < 2} for place in range(6)])
    workers = {"failed": set(), "succeeded": set()}
    for rollout, attempts in attempts_of(config):
        assert rollout.status == ("failed" if rollout.input["hangs"] else "succeeded")
        workers[rollout.status] |= {attempt.worker_id for attempt in attempts}
    assert len(workers["failed"]) == 2
    assert not workers["failed"] & workers["succeeded"]


def test_a_worker_process_that_dies_costs_no_rollout(settings, tmp_path):
    config = settings | {"algorithm": "asks", "rollout": {"lease_s": 2}}
    config["runners"] = {"count": 4, "executor": PROCESSES}
    tasks = [{"marker": str(tmp_path / "died") if place == 3 else None} for place in range(8)]
    agl.Trainer(config).fit("stoppable:killed", tasks)
    endings = []
    for rollout, attempts in attempts_of(config):
        assert rollout.status == "succeeded"
        *earlier, last = [attempt.status for attempt in attempts]
        assert last == "succeeded"
        endings += earlier
    assert len(endings) >= 1
    assert set(endings) == {"lost"}
