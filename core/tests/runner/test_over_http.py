"""Runners whose store is behind a server: what waits there, and what a stop leaves."""

import threading
import time

import pytest
from agentlightning.agent import bind_agent
from agentlightning.runner import Runner
from agentlightning.server import Server, build_app
from agentlightning.store.http.client import HttpStore
from agentlightning.store.memory import MemoryStore
from agentlightning.store.patient import PatientStore


class Behind(MemoryStore):
    """A store that counts the looks for work."""

    looks = 0

    def claim(self, *args, **kwargs):
        self.looks += 1
        return super().claim(*args, **kwargs)


@pytest.fixture
def behind():
    with Behind() as store:
        yield store


@pytest.fixture
def far(bench_on, behind):
    """A bench whose runners reach its store through a server, with a runner's token."""
    bench = bench_on(behind)
    with Server(build_app(store=behind)) as server:
        token = behind.access_token("runner", bench.run.run_id)
        bench.far = HttpStore(server.url, token=token)
        with bench.far:
            yield bench


class Working:
    """A runner at work in threads."""

    def __init__(self, bench, agent, count):
        self.runner = Runner(bench.far, bench.run.run_id, bind_agent(agent))
        self.threads = [threading.Thread(target=self.runner.work, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def end(self, timeout_s=20.0):
        for thread in self.threads:
            thread.join(timeout_s)
        assert not any(thread.is_alive() for thread in self.threads)
        self.runner.close()


def test_a_runner_with_its_own_token_works_on_a_run_until_it_is_closed(far):
    working = Working(far, lambda task: task.upper(), 3)
    rollouts = far.finished(far.enqueue(*"abcdef"))
    far.store.set_run_status(far.run.run_id, "succeeded")
    working.end()

    assert [rollout.output for rollout in rollouts] == list("ABCDEF")
    assert working.runner.report()["returned"] == 6
    (worker,) = far.store.workers()
    assert worker.report["returned"] == 6


def test_idle_workers_are_one_request_that_waits(far, behind, eventually):
    working = Working(far, lambda task: task, 8)
    eventually(lambda: behind.looks)
    time.sleep(0.5)
    assert behind.looks <= 3
    far.store.set_run_status(far.run.run_id, "succeeded")
    working.end()


class Leaving(MemoryStore, PatientStore):
    """A store whose far end is about to stop, and holds nothing back any more."""

    asked = 0

    def claim_waiting(self, *args, **kwargs):
        self.asked += 1
        return [], True

    def stop_waiting(self, worker_id):
        pass

    def wait_over(self, *args, **kwargs):
        return []


def test_a_server_that_holds_nothing_back_is_not_asked_without_a_pause(bench_on):
    bench = bench_on(Leaving())
    with bench.runner(lambda task: task):
        time.sleep(0.5)
    assert 1 <= bench.store.asked <= 15


def test_stopping_calls_waiting_claims_back_and_loses_none(far):
    for _ in range(5):
        working = Working(far, lambda task: task, 2)
        stopping = threading.Timer(0.05, working.runner.stop, [1.0])
        stopping.start()
        rollout_ids = far.enqueue(*range(3))  # some are claimed in the moment of the stop
        stopping.join()
        working.end()
        assert far.store.statistics().rollouts["running"] == 0
        far.store.cancel(rollout_ids)


def test_nothing_is_claimed_for_a_runner_that_was_stopped(far):
    working = Working(far, lambda task: task, 2)
    time.sleep(0.3)
    started = time.monotonic()
    working.runner.stop(60.0)
    working.end()
    assert time.monotonic() - started < 15.0

    far.enqueue("later")
    time.sleep(0.3)
    assert far.store.statistics().rollouts["queued"] == 1


def test_a_server_that_is_started_again_is_waited_for(bench_on, behind, eventually):
    bench = bench_on(behind)
    token = behind.access_token("runner")
    with Server(build_app(store=behind)) as server:
        port = int(server.url.rpartition(":")[2])
        bench.far = HttpStore(server.url, token=token)
        working = Working(bench, lambda task: task, 2)
        bench.finished(bench.enqueue("before"))
    rollout_ids = bench.enqueue("meanwhile")
    time.sleep(0.5)
    with Server(build_app(store=behind), port=port):
        (rollout,) = bench.finished(rollout_ids)
        bench.store.set_run_status(bench.run.run_id, "succeeded")
        working.end()
    bench.far.close()

    assert rollout.output == "meanwhile"
