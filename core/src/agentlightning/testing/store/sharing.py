"""Many threads on one store at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from agentlightning.records import AttemptKey
from agentlightning.store import RolloutQuery, Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import claimed, request, result, span

T = TypeVar("T")

THREADS = 8
ROLLOUTS = 120


class SharingTests(StoreTests):
    """Thread safety."""

    def test_threads_claim_each_rollout_once(self, store: Store, run_id: str) -> None:
        """Claim must lock what it reads: every rollout goes to one worker, each result is stored."""
        store.enqueue(run_id, [request(n) for n in range(ROLLOUTS)])

        def work(worker: int) -> list[AttemptKey]:
            done = []
            while claims := store.claim(run_id, f"worker {worker}", limit=3):
                store.finish([result(claim, spans=[span(claim.key)]) for claim in claims])
                done += [claim.key for claim in claims]
            return done

        keys = [key for done in _at_once(work) for key in done]
        assert len(keys) == len(set(keys)) == ROLLOUTS
        counts = store.statistics(run_id)
        assert (counts.rollouts["succeeded"], counts.spans) == (ROLLOUTS, ROLLOUTS)

    def test_threads_with_one_key_make_one_thing(self, store: Store, run_id: str) -> None:
        """Looking for a key and writing it must be one transaction."""
        made = _at_once(lambda _: store.enqueue(run_id, [request("once")], key="k"))
        assert len({rollouts[0].rollout_id for rollouts in made}) == 1
        assert len(store.rollouts(RolloutQuery(run_id=run_id)).items) == 1

    def test_threads_publish_one_version_each(self, store: Store, run_id: str) -> None:
        """The next version's number must be taken under a lock."""
        versions = _at_once(lambda _: store.publish(run_id, {}).version)
        assert sorted(versions) == list(range(1, THREADS + 1))

    def test_threads_add_the_same_spans_once(self, store: Store, run_id: str) -> None:
        """Retries of one bulk write may overlap: each span is stored once and counted once."""
        key = claimed(store, run_id).key
        spans = [span(key, number) for number in range(200)]
        added = _at_once(lambda _: store.add_spans(spans))
        assert sum(added) == len(spans)
        assert len(list(store.spans([key.rollout_id]))) == len(spans)


def _at_once(work: Callable[[int], T]) -> list[T]:
    """What ``work`` gives in each of several threads that start together."""
    start = threading.Barrier(THREADS)

    def wait_and_work(number: int) -> T:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(wait_and_work, range(THREADS)))
