from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from agentlightning.agent import bind_agent
from agentlightning.records import RolloutConfig, RolloutRequest
from agentlightning.runner import Runner
from agentlightning.store.waiting import wait


class Bench:
    """A run in a store, and runners at work on it in threads of this process."""

    def __init__(self, store):
        self.store = store
        self.run = store.create_run("bench", {})
        self.publish()

    def publish(self, **resources):
        self.store.publish(self.run.run_id, resources)

    def enqueue(self, *tasks, **config):
        requests = [RolloutRequest(input=task, config=RolloutConfig(**config)) for task in tasks]
        return [rollout.rollout_id for rollout in self.store.enqueue(self.run.run_id, requests)]

    @contextmanager
    def runner(self, agent, *, count=1, **options):
        runner = Runner(self.store, self.run.run_id, bind_agent(agent), **options)
        with ThreadPoolExecutor(count) as pool:
            working = [pool.submit(runner.work) for _ in range(count)]
            try:
                yield runner
            finally:
                runner.stop(1.0)
                for future in working:
                    future.result(timeout=5)
                runner.close()

    def finished(self, rollout_ids, timeout_s=10.0):
        return wait(self.store, rollout_ids, timeout_s=timeout_s)

    def done(self, agent, *tasks, count=1, **config):
        """Run the agent on the tasks; the rollouts when all are over."""
        rollout_ids = self.enqueue(*tasks, **config)
        with self.runner(agent, count=count):
            return self.finished(rollout_ids)

    def attempts(self, rollout):
        return self.store.attempts(rollout.rollout_id)

    def spans(self, rollout, **which):
        return list(self.store.spans([rollout.rollout_id], **which))


@pytest.fixture
def bench(memory_store):
    return Bench(memory_store)


@pytest.fixture
def bench_on():
    """A bench on a store of the test's own."""
    with ExitStack() as stores:
        yield lambda store: Bench(stores.enter_context(store))


@pytest.fixture
def eventually():
    """Waits for what another thread is about to make true."""

    def check(condition, timeout_s=5.0):
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.01)

    return check
