"""Finishing and claiming in one call, and the tokens of those who may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentlightning.errors import BadValue, KeyReused, UnknownRun
from agentlightning.store import Store
from agentlightning.store.tokens import read_access
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import FAILED, Clock, claimed, ended, request, result, span


class TurnoverTests(StoreTests):
    """``finish_and_claim`` and ``access_token``."""

    def test_one_call_finishes_and_claims(self, store: Store, run_id: str) -> None:
        """The result is stored with its spans, and the claim is a claim like any other."""
        claim = claimed(store, run_id)
        (queued,) = store.enqueue(run_id, [request("next")])
        done = store.finish_and_claim([result(claim, spans=[span(claim.key)])], run_id, "worker")
        assert [rollout.status for rollout in done.rollouts] == ["succeeded"]
        assert [given.key.rollout_id for given in done.claims] == [queued.rollout_id]
        assert done.late == ()
        assert len(list(store.spans([claim.key.rollout_id]))) == 1
        assert store.check_token(done.claims[0].key, done.claims[0].token)

    def test_a_failed_attempt_may_be_claimed_again_at_once(self, store: Store, run_id: str) -> None:
        """The claim sees what the finish did: it is one transaction, in this order."""
        claim = claimed(store, run_id, request(max_attempts=2))
        done = store.finish_and_claim([ended(claim, "failed")], run_id, "worker")
        assert [given.key for given in done.claims] == [(claim.key.rollout_id, 2)]
        assert done.rollouts[0].status == "queued"

    def test_a_late_result_does_not_cost_the_claims(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Late results are named, not raised: raised, the claims would be lost with the exception."""
        late = claimed(store, run_id, request(lease_s=1, max_lost=0))
        clock.advance(2)
        store.enqueue(run_id, [request("next")])
        assert store.claim(run_id, "another")  # which deals with the lease that ran out
        store.enqueue(run_id, [request("after that")])
        done = store.finish_and_claim([result(late, spans=[span(late.key)])], run_id, "worker")
        assert done.late == (late.key,)
        assert done.rollouts[0].status == "failed"
        assert [given.rollout.input for given in done.claims] == ["after that"]
        assert len(list(store.spans([late.key.rollout_id]))) == 1

    def test_a_lost_reply_is_asked_for_again(self, store: Store, run_id: str) -> None:
        """The same key gives the same claims, however often, and finishes nothing twice."""
        claim = claimed(store, run_id)
        store.enqueue(run_id, [request(1), request(2)])
        first = store.finish_and_claim([result(claim)], run_id, "worker", key="k")
        again = store.finish_and_claim([result(claim)], run_id, "worker", key="k")
        assert [given.key for given in again.claims] == [given.key for given in first.claims]
        assert again.rollouts == first.rollouts
        assert store.statistics(run_id).rollouts["queued"] == 1

    def test_what_is_refused_finishes_nothing(self, store: Store, run_id: str) -> None:
        """A reused key, an unknown run or a bad limit leave the attempt as it was."""
        claim = claimed(store, run_id)
        store.enqueue(run_id, [request()])
        assert store.claim(run_id, "worker", key="k")
        for error, arguments in (
            (KeyReused, {"run_id": run_id, "worker_id": "other", "key": "k"}),
            (UnknownRun, {"run_id": "no", "worker_id": "worker"}),
            (BadValue, {"run_id": run_id, "worker_id": "worker", "limit": 0}),
        ):
            with pytest.raises(error):
                store.finish_and_claim([result(claim, FAILED)], **arguments)
        assert store.attempts(claim.key.rollout_id)[0].status == "running"

    def test_access_tokens_differ_by_role_and_run(
        self, store: Store, run_id: str, reopen: Callable[[], Store] | None
    ) -> None:
        """Each opens its own door, and still does after the store was opened again."""
        tokens = {
            store.access_token("owner"),
            store.access_token("runner"),
            store.access_token("runner", run_id),
        }
        assert len(tokens) == 3  # noqa: PLR2004
        assert {read_access(token) for token in tokens} == {
            ("owner", None),
            ("runner", None),
            ("runner", run_id),
        }
        with pytest.raises(UnknownRun):
            store.access_token("runner", "no")
        with pytest.raises(BadValue):
            store.access_token("owner", run_id)
        if reopen is not None:
            with reopen() as other:
                assert other.access_token("runner", run_id) in tokens
