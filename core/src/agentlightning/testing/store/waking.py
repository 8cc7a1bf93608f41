"""Waking whoever waits, and the waiting helpers over this store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from agentlightning.errors import Deadline, UnknownRollout
from agentlightning.store import Change, Store, waiting
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import Clock, claimed, ended, request, result

WAKE_S = 5.0
"""Far more than waking takes; a test that fails waits this long."""


def _retry(store: Store, run_id: str) -> None:
    store.finish([ended(claimed(store, run_id, request(max_attempts=2)), "failed")])


class WakingTests(StoreTests):
    """``watch`` and the helpers built on it."""

    @pytest.mark.parametrize(
        ("on", "call"),
        [
            ("queued", lambda store, run_id: store.enqueue(run_id, [request()])),
            ("queued", _retry),
            ("queued", lambda store, run_id: store.set_run_status(run_id, "failed")),
            ("over", lambda store, run_id: store.finish([result(claimed(store, run_id))])),
            ("over", lambda store, run_id: store.set_run_status(run_id, "failed")),
            (
                "over",
                lambda store, run_id: store.cancel([store.enqueue(run_id, [request()])[0].rollout_id]),
            ),
        ],
    )
    def test_a_change_wakes_those_who_wait_for_it(
        self, store: Store, run_id: str, on: Change, call: Callable[[Store, str], object]
    ) -> None:
        """Each change must wake its waiters, after it is stored: a waiter looks only when woken."""
        woken = [threading.Event() for _ in range(3)]
        store.watch(run_id, woken[0].set, on=on)
        store.watch(None, woken[1].set, on=on)
        store.watch(run_id, woken[2].set)
        call(store, run_id)
        assert all(event.wait(WAKE_S) for event in woken)

    def test_the_end_of_a_rollout_wakes_no_claimers(self, store: Store, run_id: str) -> None:
        """A thousand idle runners must not all look whenever one rollout ends."""
        claim, _ = claimed(store, run_id), claimed(store, run_id)
        woken, ended_ = threading.Event(), threading.Event()
        store.watch(run_id, woken.set, on="queued")
        store.watch(run_id, ended_.set, on="over")
        store.finish([result(claim)])
        assert ended_.wait(WAKE_S)
        assert not woken.is_set()

    def test_another_runs_changes_wake_nobody(self, store: Store, run_id: str) -> None:
        """``run_id`` narrows what is watched."""
        other = store.create_run("other", {}).run_id
        woken, everything = threading.Event(), threading.Event()
        store.watch(run_id, woken.set)
        store.watch(None, everything.set)
        store.enqueue(other, [request()])
        assert everything.wait(WAKE_S)
        assert not woken.is_set()

    def test_nobody_is_woken_after_leaving(self, store: Store, run_id: str) -> None:
        """The unsubscriber works at once and may be called twice."""
        left, stayed = threading.Event(), threading.Event()
        leave = store.watch(run_id, left.set)
        store.watch(run_id, stayed.set)
        leave()
        leave()
        store.enqueue(run_id, [request()])
        assert stayed.wait(WAKE_S)
        assert not left.is_set()

    def test_a_nearer_lease_wakes_everybody(self, store: Store, run_id: str) -> None:
        """Waiters sleep until the first lease ends; one that ends sooner must make them look again."""
        store.enqueue(run_id, [request(lease_s=60), request(lease_s=5)])
        woken = threading.Event()
        store.watch(run_id, woken.set, on="over")
        store.claim(run_id, "worker")
        assert woken.wait(WAKE_S)
        woken.clear()
        store.claim(run_id, "worker")
        assert woken.wait(WAKE_S)

    def test_another_openings_changes_wake_too(
        self, store: Store, run_id: str, reopen: Callable[[], Store] | None
    ) -> None:
        """Trainer and runners are different processes: a commit of another opening must wake."""
        if reopen is None:
            pytest.skip("this backend has one opening only")
        with reopen() as other:
            woken = threading.Event()
            store.watch(run_id, woken.set, on="queued")
            other.enqueue(run_id, [request()])
            assert woken.wait(WAKE_S)

    def test_claiming_waits_for_work(self, store: Store, run_id: str) -> None:
        """``claim_when_ready`` sleeps until something is queued, and gives nothing at its deadline."""
        assert waiting.claim_when_ready(store, run_id, "worker", timeout_s=0.01) == []
        timer = threading.Timer(0.05, store.enqueue, (run_id, [request("late")]))
        timer.start()
        (claim,) = waiting.claim_when_ready(store, run_id, "worker", timeout_s=WAKE_S)
        timer.join()
        assert claim.rollout.input == "late"

    def test_claiming_ends_when_the_run_is_closed(self, store: Store, run_id: str) -> None:
        """A runner must not sit out its deadline when the trainer has closed the run."""
        timer = threading.Timer(0.05, store.set_run_status, (run_id, "succeeded"))
        timer.start()
        began = time.monotonic()
        assert waiting.claim_when_ready(store, run_id, "worker", timeout_s=60) == []
        timer.join()
        assert time.monotonic() - began < WAKE_S

    def test_waiting_ends_when_enough_rollouts_are_over(self, store: Store, run_id: str) -> None:
        """``wait`` gives those that are over in the order asked, or ``Deadline`` saying how many."""
        claims = [claimed(store, run_id) for _ in range(3)]
        names = [claim.key.rollout_id for claim in claims]
        store.finish([ended(claims[2], "failed")])
        assert [item.rollout_id for item in waiting.wait(store, names, timeout_s=0, count=1)] == names[
            2:
        ]
        with pytest.raises(Deadline, match="1 of 3"):
            waiting.wait(store, names, timeout_s=0.01)
        timer = threading.Timer(0.05, store.finish, ([result(claim) for claim in claims[:2]],))
        timer.start()
        over = waiting.wait(store, names, timeout_s=WAKE_S)
        timer.join()
        assert [item.rollout_id for item in over] == names
        with pytest.raises(UnknownRollout):
            waiting.wait(store, ["no"], timeout_s=WAKE_S)

    def test_waiting_sees_a_lease_run_out(self, store: Store, run_id: str, clock: Clock) -> None:
        """Nobody does anything when a worker dies: the waiter must sleep no longer than the lease."""
        claim = claimed(store, run_id, request(lease_s=0.05, max_lost=0))
        timer = threading.Timer(0.01, clock.advance, (0.05,))
        timer.start()
        (rollout,) = waiting.wait(store, [claim.key.rollout_id], timeout_s=WAKE_S)
        timer.join()
        assert rollout.status == "failed"

    def test_a_thousand_coroutines_wait_without_a_thread_each(self, store: Store, run_id: str) -> None:
        """Async waits hold no thread: a thousand cost no more than the loop's own few."""
        (claim,) = [claimed(store, run_id)]
        names, before = [claim.key.rollout_id], threading.active_count()

        async def wait_all() -> tuple[int, int]:
            waits = [
                asyncio.create_task(waiting.wait_async(store, names, timeout_s=60)) for _ in range(1000)
            ]
            await asyncio.sleep(0.1)
            threads = threading.active_count() - before
            await asyncio.to_thread(store.finish, [result(claim)])
            over = await asyncio.gather(*waits)
            return threads, sum(found[0].status == "succeeded" for found in over)

        threads, woken = asyncio.run(wait_all())
        assert woken == 1000  # noqa: PLR2004
        assert threads < 100  # noqa: PLR2004

    def test_a_coroutine_claims_when_there_is_work(self, store: Store, run_id: str) -> None:
        """The async twin of ``claim_when_ready`` wakes from another thread's enqueue."""

        async def claim() -> list[object]:
            task = asyncio.create_task(
                waiting.claim_when_ready_async(store, run_id, "worker", timeout_s=WAKE_S)
            )
            await asyncio.sleep(0.05)
            await asyncio.to_thread(store.enqueue, run_id, [request("late")])
            return [found.rollout.input for found in await task]

        assert asyncio.run(claim()) == ["late"]
