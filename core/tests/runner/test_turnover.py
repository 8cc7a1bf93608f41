"""A busy worker's result brings its next rollout in the same call, where it is free to take one."""

import threading

import pytest
from agentlightning.agent import bind_agent
from agentlightning.runner import Runner
from agentlightning.store.memory import MemoryStore


class Noted(MemoryStore):
    """Notes the calls that finish and claim, in order."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def claim(self, *args, **kwargs):
        claims = super().claim(*args, **kwargs)
        if claims:
            self.calls.append("claim")
        return claims

    def finish(self, results):
        self.calls.append("finish")
        return super().finish(results)

    def finish_and_claim(self, *args, **kwargs):
        turnover = super().finish_and_claim(*args, **kwargs)
        self.calls.append("turnover" if turnover.claims else "turnover without work")
        return turnover


@pytest.fixture
def noted(bench_on):
    return bench_on(Noted())


def test_a_busy_worker_finishes_and_claims_in_one_call(noted):
    rollouts = noted.done(lambda task: task, *"abcd")

    assert [rollout.output for rollout in rollouts] == list("abcd")
    assert noted.store.calls == ["claim", *["turnover"] * 3, "turnover without work"]


def test_a_failed_and_a_refused_rollout_bring_the_next_one_too(noted):
    def agent(task):
        if task == "raises":
            raise ValueError(task)
        return "\ud800" if task == "refused" else task

    rollouts = noted.done(agent, "raises", "refused", "fine")

    assert [rollout.status for rollout in rollouts] == ["failed", "failed", "succeeded"]
    assert noted.store.calls == ["claim", "turnover", "finish", "claim", "turnover without work"]


def test_after_a_stop_a_result_brings_no_work(noted):
    begun, release = threading.Event(), threading.Event()

    def agent(task):
        begun.set()
        release.wait(10)
        return task

    noted.enqueue("first", "second")
    with noted.runner(agent) as runner:
        assert begun.wait(5)
        threading.Timer(0.1, release.set).start()
        runner.stop(5.0)

    assert noted.store.calls == ["claim", "finish"]
    assert noted.store.statistics().rollouts["queued"] == 1


def test_a_worker_that_its_agent_still_holds_takes_no_work(noted):
    release = threading.Event()

    def agent(task):
        if task == "hangs":
            release.wait(10)
        return task

    hanging = noted.enqueue("hangs", timeout_s=0.1)
    later = noted.enqueue("later")
    with noted.runner(agent):
        noted.finished(hanging)
        assert noted.store.statistics().rollouts["queued"] == 1
        release.set()
        noted.finished(later)

    assert noted.store.calls[:3] == ["claim", "finish", "claim"]


def test_a_closed_runs_results_bring_no_work(noted):
    def agent(task):
        noted.store.set_run_status(noted.run.run_id, "succeeded")
        return task

    noted.enqueue("first", "second")
    Runner(noted.store, noted.run.run_id, bind_agent(agent)).work()

    assert noted.store.calls == ["claim", "turnover without work"]
    counts = noted.store.statistics().rollouts
    assert (counts["succeeded"], counts["queued"]) == (1, 1)


def test_a_late_result_is_counted_and_its_worker_goes_on(noted):
    begun, release = threading.Event(), threading.Event()

    def agent(task):
        begun.set()
        release.wait(10)
        return task

    noted.store.heartbeat = lambda *_: {}
    (late,) = noted.enqueue("late", lease_s=0.1, max_lost=0)
    with noted.runner(agent) as runner:
        assert begun.wait(5)
        noted.finished([late])
        following = noted.enqueue("following")
        release.set()
        (rollout,) = noted.finished(following)
        assert runner.report()["stale"] == 1

    assert rollout.output == "following"
    assert noted.store.calls[:2] == ["claim", "turnover"]
