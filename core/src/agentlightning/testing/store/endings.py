"""How rollouts end: results, retries, cancelling, and results that come too late."""

from __future__ import annotations

import pytest

from agentlightning.errors import StaleAttempt
from agentlightning.records import Outcome
from agentlightning.store import Order, RolloutQuery, Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import (
    FAILED,
    SUCCEEDED,
    TIMED_OUT,
    Clock,
    claimed,
    ended,
    request,
    result,
    span,
)


class EndingTests(StoreTests):
    """Terminal is terminal."""

    def test_a_result_ends_attempt_and_rollout(self, store: Store, run_id: str, clock: Clock) -> None:
        """The rollout gets status, output and time; the attempt status, error and time."""
        good, bad = claimed(store, run_id), claimed(store, run_id)
        clock.advance(3)
        won, lost = store.finish([result(good, SUCCEEDED), result(bad, FAILED)])
        assert (won.status, won.output, won.finished_at) == ("succeeded", {"answer": 42}, clock.now)
        assert (lost.status, lost.output, lost.finished_at) == ("failed", None, clock.now)
        (attempt,) = store.attempts(bad.key.rollout_id)
        assert (attempt.status, attempt.error) == ("failed", FAILED.error)
        assert attempt.finished_at == clock.now
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == [won, lost]

    @pytest.mark.parametrize("outcome", [FAILED, TIMED_OUT])
    def test_max_attempts_alone_means_that_many_attempts(
        self, store: Store, run_id: str, outcome: Outcome
    ) -> None:
        """``max_attempts=3`` and nothing else: three attempts, every error kept, then ``failed``."""
        claim = claimed(store, run_id, request(max_attempts=3))
        for number in (1, 2, 3):
            assert claim.key.number == number
            (rollout,) = store.finish([result(claim, outcome)])
            if number < 3:  # noqa: PLR2004
                assert (rollout.status, rollout.finished_at) == ("queued", None)
                (claim,) = store.claim(run_id, "worker")
        assert rollout.status == "failed"
        attempts = store.attempts(rollout.rollout_id)
        assert [(item.status, item.error) for item in attempts] == [(outcome.status, outcome.error)] * 3

    def test_an_attempt_that_is_given_back_is_queued_at_once(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """A worker that stops ends its attempt as ``lost``: no lease is waited for, no try used up."""
        claim = claimed(store, run_id, request(max_lost=1, lease_s=60))
        back = Outcome(status="lost", error="worker one was stopped")
        (rollout,) = store.finish([result(claim, back, spans=[span(claim.key)])])
        assert rollout.status == "queued"
        (again,) = store.claim(run_id, "two")
        assert again.key == (claim.key.rollout_id, 2)
        clock.advance(61)
        assert store.rollouts(RolloutQuery(run_id=run_id)).items[0].status == "failed"
        (rollout,) = store.finish([result(again, back)])  # given back after the lease ended: the same
        assert rollout.status == "failed"
        lost = store.attempts(rollout.rollout_id)
        assert [item.status for item in lost] == ["lost", "lost"]
        assert lost[0].error == back.error

    def test_a_retry_that_succeeds_is_the_result(self, store: Store, run_id: str) -> None:
        """The rollout has the last attempt's output and nothing of those before."""
        first = claimed(store, run_id, request(max_attempts=2))
        store.finish([result(first, Outcome(status="failed", error="no", output="partial"))])
        (second,) = store.claim(run_id, "worker")
        assert second.rollout.output is None
        (rollout,) = store.finish([result(second)])
        assert (rollout.status, rollout.output, rollout.attempt) == ("succeeded", {"answer": 42}, 2)

    def test_only_what_retry_on_names_is_retried(self, store: Store, run_id: str) -> None:
        """An outcome that is not in ``retry_on`` fails the rollout at once, tries left or not."""
        config = {"max_attempts": 3, "retry_on": ("timed_out",)}
        first, second = (claimed(store, run_id, request(**config)) for _ in range(2))
        failed, timed_out = store.finish([result(first, FAILED), result(second, TIMED_OUT)])
        assert (failed.status, timed_out.status) == ("failed", "queued")

    def test_a_result_repeated_is_harmless(self, store: Store, run_id: str, clock: Clock) -> None:
        """A lost reply makes workers send again: the same result changes and raises nothing."""
        claim = claimed(store, run_id)
        given = result(claim, SUCCEEDED, [span(claim.key)])
        before = store.finish([given])
        clock.advance(5)
        assert store.finish([given, given]) == [before[0], before[0]]
        assert store.attempts(claim.key.rollout_id)[0].finished_at == before[0].finished_at
        assert store.statistics(run_id).spans == 1
        assert store.statistics(run_id).late_results == 0

    @pytest.mark.parametrize(
        "other", [FAILED, TIMED_OUT, Outcome(status="succeeded", output="another")]
    )
    def test_another_result_for_an_attempt_that_is_over_is_stale(
        self, store: Store, run_id: str, other: Outcome
    ) -> None:
        """The first result stands; another raises ``StaleAttempt``, is counted and changes nothing."""
        claim = claimed(store, run_id)
        (first,) = store.finish([result(claim)])
        with pytest.raises(StaleAttempt, match=claim.key.rollout_id):
            store.finish([result(claim, other)])
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == [first]
        assert store.statistics(run_id).late_results == 1

    def test_late_spans_and_results_revive_nothing(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Attempt 1 timed out, 2 succeeds; what still comes from 1 is kept but moves nothing."""
        first = claimed(store, run_id, request(max_attempts=2))
        store.finish([result(first, TIMED_OUT)])
        (second,) = store.claim(run_id, "worker")
        assert store.add_spans([span(first.key, 1)]) == 1
        with pytest.raises(StaleAttempt):
            store.finish([result(first, SUCCEEDED, [span(first.key, 2)])])
        (rollout,) = store.finish([result(second, Outcome(status="succeeded", output="second"))])
        clock.advance(5)
        with pytest.raises(StaleAttempt):
            store.finish([result(first, SUCCEEDED)])
        name = rollout.rollout_id
        assert (rollout.status, rollout.output) == ("succeeded", "second")
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == [rollout]
        assert [item.status for item in store.attempts(name)] == ["timed_out", "succeeded"]
        assert len(list(store.spans([name], attempt=1))) == 2  # noqa: PLR2004

    def test_a_result_after_the_lease_was_lost_is_stale(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Once an attempt is given up its result is refused, also before the retry is claimed."""
        claim = claimed(store, run_id, request(lease_s=10))
        clock.advance(10)
        assert store.rollouts(RolloutQuery(run_id=run_id)).items[0].status == "queued"
        with pytest.raises(StaleAttempt, match="lost"):
            store.finish([result(claim)])
        assert store.rollouts(RolloutQuery(run_id=run_id)).items[0].status == "queued"

    def test_one_stale_result_spoils_no_other(self, store: Store, run_id: str) -> None:
        """Of many results, all good ones are stored and all spans, then the stale ones are named."""
        stale, good = claimed(store, run_id), claimed(store, run_id)
        store.finish([result(stale, FAILED)])
        with pytest.raises(StaleAttempt) as raised:
            store.finish([result(stale, SUCCEEDED, [span(stale.key)]), result(good)])
        assert stale.key.rollout_id in str(raised.value)
        assert good.key.rollout_id not in str(raised.value)
        assert [item.status for item in store.rollouts(RolloutQuery(run_id=run_id)).items] == [
            "failed", "succeeded"
        ]  # fmt: skip
        assert len(list(store.spans([stale.key.rollout_id]))) == 1

    def test_cancelling_a_queued_rollout_takes_it_from_the_queue(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """A cancelled rollout is over at once and never claimed."""
        kept, gone = store.enqueue(run_id, [request("kept"), request("gone", priority=9)])
        (cancelled,) = store.cancel([gone.rollout_id])
        assert (cancelled.status, cancelled.finished_at) == ("cancelled", clock.now)
        claims = store.claim(run_id, "worker", limit=5)
        assert [claim.key.rollout_id for claim in claims] == [kept.rollout_id]
        assert store.attempts(gone.rollout_id) == []

    def test_cancelling_a_running_rollout_reaches_its_worker(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """The rollout is over at once; the attempt runs until its worker, told CANCEL, finishes it."""
        claim = claimed(store, run_id)
        (cancelled,) = store.cancel([claim.key.rollout_id])
        assert cancelled.status == "cancelled"
        assert store.attempts(claim.key.rollout_id)[0].status == "running"
        assert store.heartbeat("worker", [claim.key]) == {claim.key: Order.CANCEL}
        clock.advance(1)
        assert store.finish([ended(claim, "cancelled")]) == [cancelled]
        assert store.attempts(claim.key.rollout_id)[0].status == "cancelled"
        assert store.heartbeat("worker", [claim.key]) == {claim.key: Order.LOST}

    @pytest.mark.parametrize("outcome", [SUCCEEDED, FAILED])
    def test_a_cancelled_rollout_stays_cancelled(
        self, store: Store, run_id: str, clock: Clock, outcome: Outcome
    ) -> None:
        """Its attempt ends as it really did or is lost; no retry, no output, no other status."""
        ended_, silent = (claimed(store, run_id, request(max_attempts=3, lease_s=10)) for _ in range(2))
        before = store.cancel([ended_.key.rollout_id, silent.key.rollout_id])
        store.finish([result(ended_, outcome)])
        clock.advance(10)
        assert store.claim(run_id, "worker") == []
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == before
        assert store.attempts(ended_.key.rollout_id)[0].status == outcome.status
        assert store.attempts(silent.key.rollout_id)[0].status == "lost"

    def test_cancelling_what_is_over_changes_nothing(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Rollouts that are over come back as they are, in the order asked for."""
        claim = claimed(store, run_id)
        (done,) = store.finish([result(claim)])
        (queued,) = store.enqueue(run_id, [request()])
        clock.advance(5)
        first, second = store.cancel([queued.rollout_id, done.rollout_id])
        assert (first.status, second) == ("cancelled", done)
        assert store.cancel([queued.rollout_id]) == [first]

    def test_a_worker_can_cancel_its_own_attempt(self, store: Store, run_id: str) -> None:
        """A result ``cancelled`` of a rollout nobody cancelled ends both as cancelled: no retry."""
        claim = claimed(store, run_id, request(max_attempts=3))
        (rollout,) = store.finish([ended(claim, "cancelled")])
        assert rollout.status == "cancelled"
        assert store.claim(run_id, "worker") == []

    def test_rewards_are_stored_and_cleared(self, store: Store, run_id: str) -> None:
        """``set_rewards`` changes the reward and nothing else, at any time; None clears it."""
        first, second = store.enqueue(run_id, [request(), request()])
        store.set_rewards({first.rollout_id: 0.5, second.rollout_id: True})
        rewards = [rollout.reward for rollout in store.rollouts(RolloutQuery(run_id=run_id)).items]
        assert rewards == [0.5, 1.0]
        store.set_rewards({first.rollout_id: None})
        assert store.rollouts(RolloutQuery(run_id=run_id)).items[0] == first
