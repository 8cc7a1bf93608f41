import contextvars
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool, ThreadPool

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


WAYS = {
    "apply": lambda pool, f: [pool.apply(f, (1,))],
    "apply_async": lambda pool, f: [pool.apply_async(f, (1,)).get()],
    "map": lambda pool, f: pool.map(f, [1, 2, 3]),
    "map_async": lambda pool, f: pool.map_async(f, [1, 2, 3]).get(),
    "starmap": lambda pool, f: pool.starmap(f, [(1,), (2,)]),
    "starmap_async": lambda pool, f: pool.starmap_async(f, [(1,), (2,)]).get(),
    "imap": lambda pool, f: list(pool.imap(f, [1, 2], 2)),
    "imap_unordered": lambda pool, f: list(pool.imap_unordered(f, [1, 2])),
}


@pytest.mark.parametrize("way", WAYS)
def test_tasks_of_the_older_thread_pool_do_too(recording, installed, way):
    def rollout_of_a_task(_):
        return current_rollout()

    with recording.rollout() as first, ThreadPool(2) as pool:
        assert set(WAYS[way](pool, rollout_of_a_task)) == {first}
        with recording.rollout() as second:
            assert set(WAYS[way](pool, rollout_of_a_task)) == {second}
        outside = contextvars.Context().run(WAYS[way], pool, rollout_of_a_task)
        assert set(outside) == {None}


def test_a_pool_of_processes_is_left_alone(installed):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]


def test_a_task_that_fails_fails_as_ever(recording, installed):
    with recording.rollout(), ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()


def test_installs_are_counted_and_the_originals_restored(recording):
    originals = threading.Thread.start, ThreadPoolExecutor.submit, Pool.map, Pool.imap
    threads.install()
    threads.install()
    threads.uninstall()
    with recording.rollout() as context:
        assert rollout_of_a_thread() is context
        threads.uninstall()
        assert rollout_of_a_thread() is None
    threads.uninstall()
    assert (threading.Thread.start, ThreadPoolExecutor.submit, Pool.map, Pool.imap) == originals
