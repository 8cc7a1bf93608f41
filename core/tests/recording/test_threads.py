import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentlightning.recording import threads
from agentlightning.recording.context import current_rollout


class Own(threading.Thread):
    """A thread that overrides ``run``, as many libraries do."""

    def run(self):
        self.seen = current_rollout()


def rollout_of_a_thread():
    thread = Own()
    thread.start()
    thread.join()
    return thread.seen


def test_threads_and_pool_tasks_belong_to_the_rollout_that_starts_them(recording, installed):
    with ThreadPoolExecutor(1) as pool:
        with recording.rollout() as context:
            assert rollout_of_a_thread() is context
            assert pool.submit(current_rollout).result() is context
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()
            assert "run" not in vars(thread)
        with recording.rollout() as other:
            assert pool.submit(current_rollout).result() is other
        assert pool.submit(current_rollout).result() is None
        assert rollout_of_a_thread() is None


def test_a_task_that_fails_fails_as_ever(recording, installed):
    with recording.rollout(), ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()


def test_installs_are_counted_and_the_originals_restored(recording):
    originals = threading.Thread.start, ThreadPoolExecutor.submit
    threads.install()
    threads.install()
    threads.uninstall()
    with recording.rollout() as context:
        assert rollout_of_a_thread() is context
        threads.uninstall()
        assert rollout_of_a_thread() is None
    threads.uninstall()
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == originals
