"""Leases: heartbeats that renew them, and what happens when they run out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentlightning.store import Order, RolloutQuery, Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import SUCCEEDED, Clock, claimed, ended, request, result


class LeaseTests(StoreTests):
    """Workers that are alive, late, or gone."""

    def test_a_lease_that_runs_out_makes_the_attempt_lost(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """``claim`` deals with expiry first: the silent worker's rollout goes to the next one."""
        claim = claimed(store, run_id, request(lease_s=10))
        clock.advance(9.9)
        assert store.claim(run_id, "other") == []
        clock.advance(0.1)
        (again,) = store.claim(run_id, "other")
        assert (again.key.rollout_id, again.key.number) == (claim.key.rollout_id, 2)
        lost, running = store.attempts(claim.key.rollout_id)
        assert (lost.status, lost.finished_at, running.status) == ("lost", clock.now, "running")
        assert "worker" in (lost.error or "")

    @pytest.mark.parametrize("look", ["rollouts", "attempts", "statistics", "workers"])
    def test_whoever_looks_sees_expired_leases_dealt_with(
        self, store: Store, run_id: str, clock: Clock, look: str
    ) -> None:
        """No watchdog: each way of looking must deal with expiry before it answers."""
        claim = claimed(store, run_id, request(lease_s=10))
        clock.advance(10)
        seen: dict[str, Callable[[], object]] = {
            "rollouts": lambda: store.rollouts(RolloutQuery(run_id=run_id)).items[0].status,
            "attempts": lambda: store.attempts(claim.key.rollout_id)[0].status,
            "statistics": lambda: store.statistics(run_id).attempts["lost"],
            "workers": lambda: store.workers()[0].running,
        }
        expected = {"rollouts": "queued", "attempts": "lost", "statistics": 1, "workers": 0}
        assert seen[look]() == expected[look]

    def test_a_heartbeat_renews_the_lease(self, store: Store, run_id: str, clock: Clock) -> None:
        """Each heartbeat gives the full lease from now; a worker that beats is never lost."""
        claim = claimed(store, run_id, request(lease_s=10))
        for _ in range(5):
            clock.advance(9)
            assert store.heartbeat("worker", [claim.key]) == {claim.key: Order.CONTINUE}
        assert store.claim(run_id, "other") == []
        assert store.attempts(claim.key.rollout_id)[0].lease_until == clock.now + 10

    def test_a_heartbeat_never_shortens_a_lease(self, store: Store, run_id: str, clock: Clock) -> None:
        """A clock that was set back, or beats that arrive out of order, must not cost an attempt."""
        claim = claimed(store, run_id, request(lease_s=10))
        until = claim.attempt.lease_until
        clock.advance(-8)
        assert store.heartbeat("worker", [claim.key]) == {claim.key: Order.CONTINUE}
        assert store.attempts(claim.key.rollout_id)[0].lease_until == until

    def test_a_late_worker_keeps_what_nobody_took(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Expiry happens when somebody looks; until then a late heartbeat or result still counts."""
        late, silent = claimed(store, run_id), claimed(store, run_id)
        clock.advance(1000)
        assert store.heartbeat("worker", [late.key]) == {late.key: Order.CONTINUE}
        (rollout,) = store.finish([result(silent, SUCCEEDED)])
        assert rollout.status == "succeeded"

    def test_a_lost_attempt_is_told_so(self, store: Store, run_id: str, clock: Clock) -> None:
        """Beating for an attempt that is over, or another worker's, is told LOST and renews nothing."""
        first = claimed(store, run_id, request(lease_s=10))
        clock.advance(10)
        (second,) = store.claim(run_id, "other")
        orders = store.heartbeat("worker", [first.key, second.key])
        assert orders == {first.key: Order.LOST, second.key: Order.LOST}
        assert store.attempts(first.key.rollout_id)[1] == second.attempt

    def test_lost_attempts_cost_no_try(self, store: Store, run_id: str, clock: Clock) -> None:
        """``max_attempts`` counts failures and timeouts only; a crash of the machine is neither."""
        claimed(store, run_id, request(max_attempts=1, max_lost=5, lease_s=10))
        for number in (2, 3):
            clock.advance(10)
            (again,) = store.claim(run_id, "worker")
            assert again.key.number == number
        (rollout,) = store.finish([result(again)])
        assert rollout.status == "succeeded"

    @pytest.mark.parametrize("max_lost", [0, 2])
    def test_max_lost_limits_lost_attempts(
        self, store: Store, run_id: str, clock: Clock, max_lost: int
    ) -> None:
        """A task that kills its worker ends: the loss after ``max_lost`` fails the rollout."""
        claim = claimed(store, run_id, request(max_lost=max_lost, lease_s=10))
        for _ in range(max_lost):
            clock.advance(10)
            assert len(store.claim(run_id, "worker")) == 1
        clock.advance(10)
        assert store.claim(run_id, "worker") == []
        (rollout,) = store.rollouts(RolloutQuery(run_id=run_id)).items
        assert (rollout.status, rollout.finished_at) == ("failed", clock.now)
        statuses = [attempt.status for attempt in store.attempts(claim.key.rollout_id)]
        assert statuses == ["lost"] * (max_lost + 1)

    def test_lost_and_failed_attempts_are_counted_apart(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Two tries and one loss: failed, lost, failed is the end, and not before."""
        claim = claimed(store, run_id, request(max_attempts=2, max_lost=1, lease_s=10))
        store.finish([ended(claim, "failed")])
        store.claim(run_id, "worker")
        clock.advance(10)
        (third,) = store.claim(run_id, "worker")
        (rollout,) = store.finish([ended(third, "failed")])
        assert rollout.status == "failed"
        statuses = [attempt.status for attempt in store.attempts(claim.key.rollout_id)]
        assert statuses == ["failed", "lost", "failed"]

    def test_the_time_to_the_next_expiry_is_told(self, store: Store, run_id: str, clock: Clock) -> None:
        """Waiters sleep by it: the shortest of all running leases, 0 when overdue, None without any."""
        assert store.seconds_to_expiry() is None
        long, short = (claimed(store, run_id, request(lease_s=s)) for s in (60, 10))
        assert store.seconds_to_expiry() == 10  # noqa: PLR2004
        clock.advance(4)
        assert store.seconds_to_expiry() == 6  # noqa: PLR2004
        clock.advance(7)
        assert store.seconds_to_expiry() == 0
        store.finish([result(short)])
        assert store.seconds_to_expiry() == 49  # noqa: PLR2004
        store.finish([result(long)])
        assert store.seconds_to_expiry() is None

    def test_workers_are_known_by_what_they_do(self, store: Store, run_id: str, clock: Clock) -> None:
        """Claims and heartbeats show when a worker was seen; a report is kept until the next one."""
        claim = claimed(store, run_id)
        began = clock.now
        clock.advance(5)
        store.heartbeat("worker", [claim.key], {"cpu": 0.5})
        store.heartbeat("idle", [], None)
        clock.advance(5)
        store.heartbeat("worker", [claim.key])
        first, second = store.workers()
        assert (first.worker_id, first.first_seen, first.last_seen) == ("worker", began, clock.now)
        assert (first.running, first.report) == (1, {"cpu": 0.5})
        assert (second.worker_id, second.running, second.report) == ("idle", 0, {})
