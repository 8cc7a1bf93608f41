"""``agl run`` in a process of its own, over HTTP, stopped in every way: what it leaves is nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from agentlightning.records import RolloutConfig, RolloutRequest
from agentlightning.server import Server, build_app
from agentlightning.store.opening import open_store
from agentlightning.store.waiting import wait

AGL = str(Path(sys.executable).with_name("agl"))
GONE_S = 5.0
"""Seconds after an interruption in which the program and every child of it have to be gone."""

AGENTS = """
import asyncio, concurrent.futures, time

pool = concurrent.futures.ThreadPoolExecutor()  # its threads would hold up the end of the program

def agent(task):
    if task == "raises":
        raise ValueError(task)
    if task == "exits":
        raise SystemExit(1)
    if task == "hangs":
        return pool.submit(time.sleep, 60).result()
    time.sleep(task)
    return task

async def patient(task):
    await asyncio.sleep(task)
    return task
"""

EXECUTORS = {
    "threads": ["--executor", "threads", "--workers", "2"],
    "processes": ["--executor", "processes", "--workers", "2"],
}


class Started:
    """A runner in a process of its own."""

    def __init__(self, arguments, folder, environment):
        self.process = subprocess.Popen(
            [AGL, "run", *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children = []

    def interrupt(self, number=signal.SIGINT):
        """Send a signal; returns the exit code, the seconds it took, and what was written."""
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        started = time.monotonic()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, time.monotonic() - started, out + err

    def alive(self):
        """The children that outlive it; a machine may leave the dead ones of a killed parent listed."""
        _, left = psutil.wait_procs(self.children, timeout=1)
        return [child for child in left if child.status() != psutil.STATUS_ZOMBIE]

    def kill(self):
        for child in self.children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.kill()
        self.process.communicate()


class Shop:
    """A store behind a server, a run in it, and runners elsewhere."""

    def __init__(self, store, url, folder):
        self.store = store
        self._url = url
        self._folder = folder
        self._started = []
        self.run_id = store.create_run("shop", {}).run_id
        store.publish(self.run_id, {})

    def enqueue(self, *tasks, **config):
        requests = [RolloutRequest(input=it, config=RolloutConfig(**config)) for it in tasks]
        return [item.rollout_id for item in self.store.enqueue(self.run_id, requests)]

    def start(self, executor, agent="agent"):
        token = self.store.access_token("runner", self.run_id)
        arguments = ["--store", self._url, "--run", self.run_id, *EXECUTORS[executor]]
        runner = Started(
            [*arguments, "--agent", f"stopped_agents:{agent}"],
            self._folder,
            {"AGENTLIGHTNING_STORE_TOKEN": token},
        )
        self._started.append(runner)
        return runner

    def until(self, **counts):
        """Wait until so many rollouts have these statuses."""
        deadline = time.monotonic() + 30
        while any(self.count(status) < number for status, number in counts.items()):
            assert time.monotonic() < deadline, self.store.statistics().rollouts
            time.sleep(0.05)

    def count(self, status):
        return self.store.statistics(self.run_id).rollouts[status]

    def end(self):
        for runner in self._started:
            runner.kill()


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "stopped_agents.py").write_text(AGENTS)
    with (
        open_store(f"sqlite:///{tmp_path}/runs.db") as store,
        Server(build_app(store=store)) as server,
    ):
        shop = Shop(store, server.url, tmp_path)
        try:
            yield shop
        finally:
            shop.end()


@pytest.mark.parametrize("agent", ["agent", "patient"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_runs_is_finished_and_nothing_else_claimed(shop, executor, agent):
    shop.enqueue(*[1.0] * 6)
    runner = shop.start(executor, agent)
    shop.until(running=2)

    code, seconds, written = runner.interrupt()

    assert bool(runner.children) == (executor == "processes")
    assert (code, runner.alive()) == (130, [])
    assert seconds < GONE_S
    assert "Traceback" not in written
    assert (shop.count("succeeded"), shop.count("queued")) == (2, 4)
    assert "2 done, 0 failed, 0 running" in written


@pytest.mark.parametrize("executor", EXECUTORS)
def test_agents_that_hang_are_given_up_and_their_rollouts_given_back(shop, executor):
    rollout_ids = shop.enqueue("hangs", "hangs", lease_s=60.0)
    runner = shop.start(executor)
    shop.until(running=2)

    code, seconds, written = runner.interrupt()

    assert (code, runner.alive()) == (130, [])
    assert seconds < GONE_S
    assert "Traceback" not in written
    attempts = [shop.store.attempts(rollout_id)[0].status for rollout_id in rollout_ids]
    assert (attempts, shop.count("queued")) == (["lost", "lost"], 2)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_claims_that_wait_at_the_server_are_gone_with_the_runner(shop, executor, number):
    finished = shop.enqueue(0.0, 0.0)
    runner = shop.start(executor)
    wait(shop.store, finished, timeout_s=30)  # it waits for work from now on

    code, seconds, written = runner.interrupt(number)

    assert (code, runner.alive()) == (130, [])
    assert seconds < GONE_S
    assert "Traceback" not in written
    shop.enqueue(0.0, 0.0)
    time.sleep(0.5)
    assert shop.count("queued") == 2


def test_one_failing_agent_stops_nothing_and_the_end_is_clean(shop):
    rollout_ids = shop.enqueue("raises", "exits", 5.0, 0.0)
    runner = shop.start("processes")
    shop.until(running=1, succeeded=1, failed=2)
    shop.store.cancel(rollout_ids[2:3])
    wait(shop.store, rollout_ids, timeout_s=10)

    code, seconds, written = runner.interrupt()

    assert (code, runner.alive()) == (130, [])
    assert seconds < GONE_S
    assert "Traceback" not in written
    errors = Counter(shop.store.attempts(name)[0].error for name in rollout_ids[:2])
    assert errors == {"ValueError: raises": 1, "SystemExit: 1": 1}


def test_a_killed_runner_leaves_no_child_and_its_work_to_the_next(shop):
    rollout_ids = shop.enqueue(1.0, 1.0, lease_s=2.0)
    runner = shop.start("processes")
    shop.until(running=2)
    code, _, _ = runner.interrupt(signal.SIGKILL)
    assert (code, runner.alive()) == (-signal.SIGKILL, [])

    shop.start("threads")
    rollouts = wait(shop.store, rollout_ids, timeout_s=20)

    assert [(rollout.status, rollout.attempt) for rollout in rollouts] == [("succeeded", 2)] * 2
