"""Workers in processes: what they share is a store, and they leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from agentlightning.errors import AgentError, ConfigError
from agentlightning.executors.processes import ProcessExecutor
from agentlightning.records import RolloutConfig, RolloutRequest
from agentlightning.runner import RunnerSpec
from agentlightning.store.opening import open_store
from agentlightning.store.waiting import wait

AGENTS = """
import os, sys, time

def reverse(task):
    return {"text": task[::-1], "pid": os.getpid(), "torch": "torch" in sys.modules}

def slow(task):
    time.sleep(task)
    return os.getpid()

def hang(task):
    while task == "hangs":
        time.sleep(0.05)
    return task

def leave(task):
    os._exit(7)
"""


@pytest.fixture
def agents(tmp_path, monkeypatch):
    """A module of agents beside the test, as a user's script would have it."""
    (tmp_path / "process_agents.py").write_text(AGENTS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def store(url):
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def run(store):
    made = store.create_run("processes", {})
    store.publish(made.run_id, {})
    return made


def enqueue(store, run, *tasks, **config):
    requests = [RolloutRequest(input=task, config=RolloutConfig(**config)) for task in tasks]
    return [rollout.rollout_id for rollout in store.enqueue(run.run_id, requests)]


class Background:
    """An executor at work in a thread, as a trainer has it."""

    def __init__(self, executor, worker, count):
        self.executor = executor
        self.error = None
        self.thread = threading.Thread(target=self._run, args=(worker, count), daemon=True)
        self.thread.start()

    def _run(self, worker, count):
        try:
            self.executor.run(worker, count)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def join(self, timeout_s=20.0):
        self.thread.join(timeout_s)
        assert not self.thread.is_alive(), "the executor did not end"
        if self.error is not None:
            raise self.error


def children():
    return [child for child in psutil.Process().children(recursive=True) if child.is_running()]


def test_processes_share_the_work_and_end_with_the_run(agents, url, store, run):
    rollout_ids = enqueue(store, run, *["abc"] * 12)
    work = Background(ProcessExecutor(2), RunnerSpec(url, run.run_id, "process_agents:reverse"), 3)

    rollouts = wait(store, rollout_ids, timeout_s=30)
    store.set_run_status(run.run_id, "succeeded")
    work.join()

    assert {rollout.output["text"] for rollout in rollouts} == {"cba"}
    assert os.getpid() not in {rollout.output["pid"] for rollout in rollouts}
    assert not any(rollout.output["torch"] for rollout in rollouts)
    # A thread that comes when those before it have left already works under a name of its own.
    assert len({worker.report["pid"] for worker in store.workers()}) == 2
    assert children() == []
    told = work.executor.reports()
    assert sorted(report["host"] for report in told) == [socket.gethostname()] * 2
    assert sum(report.get("returned", 0) for report in told) == 12


def test_processes_tell_how_they_are_getting_on(agents, url, store, run):
    enqueue(store, run, 0.0, 30.0)
    work = Background(ProcessExecutor(2), RunnerSpec(url, run.run_id, "process_agents:slow"), 2)
    end = time.monotonic() + 20

    while sum(report.get("returned", 0) for report in work.executor.reports()) < 1:
        assert time.monotonic() < end
        time.sleep(0.05)
    work.executor.stop(2.0)
    work.join()

    assert sum(report.get("claimed", 0) for report in work.executor.reports()) == 2


def test_a_killed_process_is_replaced_and_its_rollout_finished_once(agents, url, store, run, caplog):
    rollout_ids = enqueue(store, run, 0.6, lease_s=1.0)
    work = Background(ProcessExecutor(1), RunnerSpec(url, run.run_id, "process_agents:slow"), 1)
    while store.statistics(run.run_id).attempts.get("running", 0) == 0:
        time.sleep(0.02)
    (child,) = children()
    child.send_signal(signal.SIGKILL)

    (rollout,) = wait(store, rollout_ids, timeout_s=30)
    work.executor.stop(5.0)
    work.join()

    assert rollout.status == "succeeded"
    assert rollout.output != child.pid
    assert [it.status for it in store.attempts(rollout.rollout_id)] == ["lost", "succeeded"]
    roots = [span for span in store.spans(rollout_ids, attempt="all") if span.kind == "agent"]
    assert [span.attempt for span in roots] == [2]
    assert f"worker process {child.pid} was ended by SIGKILL (exit code -9)" in caplog.text


def test_processes_that_keep_crashing_are_an_error_with_the_exit_code(agents, url, store, run):
    enqueue(store, run, *["x"] * 20, max_lost=0)
    work = Background(ProcessExecutor(2), RunnerSpec(url, run.run_id, "process_agents:leave"), 2)

    with pytest.raises(AgentError, match=r"keep crashing.*exit code 7"):
        work.join(60)
    assert children() == []


def test_a_process_whose_agents_all_hang_is_replaced(agents, url, store, run):
    hanging = enqueue(store, run, "hangs", timeout_s=0.1)
    later = enqueue(store, run, "quick")
    spec = RunnerSpec(url, run.run_id, "process_agents:hang", overdue_grace_s=0.2)
    work = Background(ProcessExecutor(1), spec, 1)

    assert [it.status for it in wait(store, hanging, timeout_s=30)] == ["failed"]
    assert [it.output for it in wait(store, later, timeout_s=30)] == ["quick"]
    work.executor.stop(5.0)
    work.join()


def test_stopping_ends_processes_whose_agents_hang(agents, url, store, run):
    enqueue(store, run, "hangs", "hangs")
    work = Background(ProcessExecutor(2), RunnerSpec(url, run.run_id, "process_agents:hang"), 2)
    while store.statistics(run.run_id).attempts.get("running", 0) < 2:
        time.sleep(0.02)

    started = time.monotonic()
    work.executor.stop(2.0)
    work.join()

    assert time.monotonic() - started < 15.0
    assert children() == []


def test_an_agent_that_cannot_be_imported_is_the_error_of_the_run(url, run):
    spec = RunnerSpec(url, run.run_id, "no_such_module:agent")

    with pytest.raises(AgentError, match="no module 'no_such_module'"):
        ProcessExecutor(1).run(spec, 2)
    assert children() == []


@pytest.mark.parametrize("agent", [lambda task: task, partial(max, threading.Lock())])
def test_an_agent_that_cannot_be_sent_says_what_to_pass_instead(url, run, agent):
    spec = RunnerSpec(url, run.run_id, agent)
    for refuse in (ProcessExecutor(1).check, partial(ProcessExecutor(1).run, count=1)):
        with pytest.raises(AgentError, match="Pass it as 'module:name'"):
            refuse(spec)


def test_a_store_in_memory_is_refused(run):
    with pytest.raises(ConfigError, match="lives in one process"):
        ProcessExecutor(1).run(RunnerSpec("memory://", run.run_id, "process_agents:reverse"), 1)


SCRIPT = """
import sys, time
import agentlightning.records
from agentlightning.executors.processes import ProcessExecutor
from agentlightning.runner import RunnerSpec

def shout(task):
    time.sleep(0.01)
    return task.upper() + "!"

def dawdle(task):
    time.sleep(60)

if __name__ == "__main__":
    url, run_id, name = sys.argv[1:]
    ProcessExecutor(2).run(RunnerSpec(url, run_id, globals()[name]), 4)
"""


@pytest.fixture
def script(tmp_path, url, run):
    """Starts a program that runs an agent of its own in processes."""
    path = Path(tmp_path, "program.py")
    path.write_text(textwrap.dedent(SCRIPT))
    started = []

    def start(name):
        command = [sys.executable, str(path), url, run.run_id, name]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()


def test_an_agent_of_the_running_script_is_found_by_the_children(script, store, run):
    rollout_ids = enqueue(store, run, "a", "b")
    program = script("shout")

    outputs = [rollout.output for rollout in wait(store, rollout_ids, timeout_s=30)]
    store.set_run_status(run.run_id, "succeeded")

    assert outputs == ["A!", "B!"]
    assert program.wait(10) == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_program(script, store, run, how):
    enqueue(store, run, *["x"] * 4)
    program = script("dawdle")
    while store.statistics(run.run_id).attempts.get("running", 0) < 4:
        time.sleep(0.05)
    workers = psutil.Process(program.pid).children(recursive=True)
    assert len(workers) == 2

    program.send_signal(how)
    _, errors = program.communicate(timeout=30)
    _, alive = psutil.wait_procs(workers, timeout=15)

    assert alive == []
    assert program.returncode != 0
    if how is signal.SIGINT:
        assert errors.count("Traceback") <= 1  # the program's own, which nobody there catches
        assert "worker" not in errors
