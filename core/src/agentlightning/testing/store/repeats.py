"""Calls that come again with the same idempotency key, because a reply was lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentlightning.errors import KeyReused
from agentlightning.records import Data
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.transfer import AnswerRow
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import Clock, ended, request


class RepeatTests(StoreTests):
    """Every write with a key happens once."""

    def test_a_run_is_made_once(self, store: Store) -> None:
        """``create_run`` with the same key and body gives the same run, as it is now."""
        made = store.create_run("name", {"a": 1, "b": 2}, key="k")
        assert store.create_run("name", {"b": 2, "a": 1}, key="k") == made
        closed = store.set_run_status(made.run_id, "failed")
        assert store.create_run("name", {"a": 1, "b": 2}, key="k") == closed
        assert store.runs() == [closed]

    def test_rollouts_are_queued_once(self, store: Store, run_id: str) -> None:
        """``enqueue`` again gives the same rollouts in the same order, as they are now."""
        body = [request(n, metadata={"n": n}) for n in range(3)]
        made = store.enqueue(run_id, body, key="step 1")
        store.cancel([made[1].rollout_id])
        again = store.enqueue(run_id, body, key="step 1")
        assert [item.rollout_id for item in again] == [item.rollout_id for item in made]
        assert [item.status for item in again] == ["queued", "cancelled", "queued"]
        assert len(store.rollouts(RolloutQuery(run_id=run_id)).items) == 3  # noqa: PLR2004

    def test_a_claim_is_answered_again(self, store: Store, run_id: str, clock: Clock) -> None:
        """A claim whose reply was lost gives the same attempts and tokens, and takes nothing more."""
        store.enqueue(run_id, [request(n) for n in range(5)])
        first = store.claim(run_id, "worker", limit=2, key="k")
        clock.advance(1)
        assert store.claim(run_id, "worker", limit=2, key="k") == first
        assert store.statistics(run_id).rollouts["queued"] == 3  # noqa: PLR2004

    def test_a_claim_whose_attempts_are_long_over_is_forgotten(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Over HTTP every claim has a key: answers must not pile up, but running attempts keep theirs.

        See :mod:`agentlightning.store.forgetting`: some are looked at with every 64th claim.
        """
        store.enqueue(run_id, [request(n, lease_s=1e6) for n in range(133)], key="stays")
        (over,) = store.claim(run_id, "worker", key="a claim that is over")
        running = store.claim(run_id, "worker", key="a claim that is not")
        store.finish([ended(over, "succeeded")])
        assert store.claim(run_id, "worker", key="a claim that is over")[0].key == over.key
        clock.advance(3600)
        for number in range(130):
            store.claim(run_id, "worker", key=f"later {number}")
        assert store.claim(run_id, "worker", key="a claim that is not") == running
        (new,) = store.claim(run_id, "worker", key="a claim that is over")
        assert new.rollout.input == 132  # noqa: PLR2004
        assert store.enqueue(run_id, [request(n, lease_s=1e6) for n in range(133)], key="stays")
        assert sum(store.statistics(run_id).rollouts.values()) == 133  # noqa: PLR2004

    def test_an_empty_claim_may_be_asked_again(self, store: Store, run_id: str) -> None:
        """Nothing was made, so nothing is remembered: the key claims what has come meanwhile."""
        assert store.claim(run_id, "worker", key="k") == []
        store.enqueue(run_id, [request()])
        assert len(store.claim(run_id, "worker", key="k")) == 1

    def test_begin_happens_once(self, store: Store) -> None:
        """``begin`` again gives the same claim, also after its attempt has ended."""
        first = store.begin("local", request("task"), "worker", key="k")
        assert store.begin("local", request("task"), "worker", key="k") == first
        store.finish([ended(first, "succeeded")])
        again = store.begin("local", request("task"), "worker", key="k")
        assert (again.key, again.attempt.status) == (first.key, "succeeded")

    def test_resources_are_published_once(self, store: Store, run_id: str) -> None:
        """``publish`` again gives the same version."""
        made = store.publish(run_id, {"x": Data(value=1)}, note="n", key="k")
        assert store.publish(run_id, {"x": Data(value=1)}, note="n", key="k") == made
        assert store.publish(run_id, {}).version == 2  # noqa: PLR2004

    @pytest.mark.parametrize("call", ["create_run", "enqueue", "claim", "begin", "publish"])
    def test_a_key_with_another_body_is_refused(self, store: Store, run_id: str, call: str) -> None:
        """Two bodies under one key are a caller's mistake: ``KeyReused``, and nothing is written."""
        store.enqueue(run_id, [request(n) for n in range(3)])
        calls: dict[str, Callable[[int], object]] = {
            "create_run": lambda n: store.create_run("name", {"n": n}, key="k"),
            "enqueue": lambda n: store.enqueue(run_id, [request({"n": n})], key="k"),
            "claim": lambda n: store.claim(run_id, f"worker {n}", key="k"),
            "begin": lambda n: store.begin("local", request({"n": n}), "worker", key="k"),
            "publish": lambda n: store.publish(run_id, {"n": Data(value=n)}, key="k"),
        }
        calls[call](1)
        before = store.statistics(), len(store.runs())
        with pytest.raises(KeyReused, match="'k'"):
            calls[call](2)
        assert (store.statistics(), len(store.runs())) == before

    def test_every_answer_that_a_run_resumes_by_is_exported(self, store: Store, run_id: str) -> None:
        """Whatever the key is; the empty one comes before all others."""
        keys = ["", "\0", "k", "ü"]
        for key in keys:
            store.enqueue(run_id, [request()], key=key)
        answers = [row.record for row in store.export_rows(run_id) if isinstance(row, AnswerRow)]
        found = [answer.key for answer in answers if answer.operation == "enqueue"]
        assert sorted(found) == sorted(keys)

    def test_runs_have_their_own_keys(self, store: Store, run_id: str) -> None:
        """An algorithm's "step 1" in one run is not that of another; nor are keys shared by calls."""
        other = store.create_run("other", {}, key="k").run_id
        mine = store.enqueue(run_id, [request("mine")], key="k")
        theirs = store.enqueue(other, [request("theirs")], key="k")
        assert mine[0].rollout_id != theirs[0].rollout_id
        assert store.publish(run_id, {}, key="k").version == 1
