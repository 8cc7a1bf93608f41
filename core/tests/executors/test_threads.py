import threading
import time

import pytest
from agentlightning.errors import StoreUnavailable
from agentlightning.executors.threads import ThreadExecutor


class Worker:
    """Works until it is stopped; the first to come raises, if it is told to."""

    def __init__(self, error=None):
        self.error = error
        self.stopped = threading.Event()
        self.count = 0

    def __call__(self):
        self.count += 1
        if self.error is not None and self.count == 1:
            raise self.error
        self.stopped.wait(10)

    def stop(self, deadline_s):
        self.stopped.set()


def test_a_worker_that_raises_stops_the_others_and_is_raised():
    worker = Worker(StoreUnavailable("gone"))

    with pytest.raises(StoreUnavailable, match="gone"):
        ThreadExecutor().run(worker, 3)


def test_stop_ends_all_workers():
    executor, worker = ThreadExecutor(), Worker()
    thread = threading.Thread(target=executor.run, args=(worker, 3))
    thread.start()
    while worker.count < 3:
        time.sleep(0.01)

    executor.stop(5)
    thread.join(5)

    assert not thread.is_alive()


def test_stop_returns_at_its_deadline_when_a_worker_does_not_end():
    release = threading.Event()
    executor = ThreadExecutor()
    thread = threading.Thread(target=executor.run, args=(lambda: release.wait(10), 2))
    thread.start()
    started = time.monotonic()

    executor.stop(0.2)

    assert time.monotonic() - started < 8
    release.set()
    thread.join(5)


def test_an_executor_that_was_stopped_runs_nothing_more():
    executor, worker = ThreadExecutor(), Worker()
    executor.stop(1)

    executor.run(worker, 3)

    assert worker.count == 0


def test_what_the_worker_tells_is_passed_on_also_after_the_end():
    class Telling(Worker):
        def report(self):
            return {"count": self.count}

    executor, worker = ThreadExecutor(), Telling()
    assert executor.reports() == []
    worker.stopped.set()
    executor.run(worker, 2)

    assert executor.reports() == [{"count": 2}]


def test_of_a_worker_that_tells_nothing_nothing_is_known():
    executor = ThreadExecutor()
    executor.run(lambda: None, 2)

    assert executor.reports() == []
