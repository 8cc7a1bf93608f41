"""Queueing and claiming: what comes back, in which order, pinned to which resources."""

from __future__ import annotations

from agentlightning.records import Data, PromptTemplate, RolloutConfig, RolloutRequest
from agentlightning.store import RolloutQuery, Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import Clock, claimed, ended, request


class ClaimTests(StoreTests):
    """From the queue to a worker."""

    def test_a_rollout_comes_back_as_it_was_asked_for(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Every field of a request must be stored with its rollout and read back equal."""
        store.publish(run_id, {"p": PromptTemplate(template="{q}")})
        given = RolloutRequest(
            input={"q": "2+2?", "n": [1, 2.5, None], "big": 10**30},
            mode="val",
            group_id="group",
            resources_version=1,
            config=RolloutConfig(
                timeout_s=5, max_attempts=4, max_lost=2, lease_s=9, retry_on=("timed_out",)
            ),
            metadata={"row": 3, "tags": ["a"]},
            priority=-2,
        )
        (rollout,) = store.enqueue(run_id, [given])
        for field in given.__struct_fields__:
            assert getattr(rollout, field) == getattr(given, field), field
        assert (rollout.status, rollout.attempt, rollout.reward) == ("queued", 0, None)
        assert (rollout.created_at, rollout.finished_at) == (clock.now, None)
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == [rollout]

    def test_a_claim_has_all_that_is_needed(self, store: Store, run_id: str, clock: Clock) -> None:
        """A claim is the rollout running, its first attempt with a lease, the run and a good token."""
        claim = claimed(store, run_id, request("task", lease_s=30))
        assert (claim.rollout.status, claim.rollout.attempt) == ("running", 1)
        assert claim.rollout.input == "task"
        attempt = claim.attempt
        assert (attempt.number, attempt.status, attempt.worker_id) == (1, "running", "worker")
        assert (attempt.started_at, attempt.lease_until) == (clock.now, clock.now + 30)
        assert claim.run == store.run(run_id)
        assert store.attempts(claim.key.rollout_id) == [attempt]
        assert store.check_token(claim.key, claim.token)

    def test_a_token_is_good_for_its_own_attempt_only(self, store: Store, run_id: str) -> None:
        """The token must depend on rollout and attempt number, and a wrong one is just False."""
        first, second = claimed(store, run_id), claimed(store, run_id)
        assert not store.check_token(first.key, second.token)
        assert not store.check_token(first.key._replace(number=2), first.token)
        assert not store.check_token(first.key, "é")

    def test_the_oldest_is_claimed_first(self, store: Store, run_id: str) -> None:
        """Equal priorities are claimed in the order of queueing, within a call and over calls."""
        store.enqueue(run_id, [request(n) for n in range(3)])
        store.enqueue(run_id, [request(3)])
        claims = store.claim(run_id, "worker", limit=3) + store.claim(run_id, "worker", limit=3)
        assert [claim.rollout.input for claim in claims] == [0, 1, 2, 3]

    def test_a_higher_priority_is_claimed_before_an_older_one(self, store: Store, run_id: str) -> None:
        """Priority beats age, negative ones included."""
        store.enqueue(run_id, [request(p, priority=p) for p in (0, -1, 5, 5, 2)])
        claims = store.claim(run_id, "worker", limit=9)
        assert [claim.rollout.input for claim in claims] == [5, 5, 2, 0, -1]

    def test_a_retry_keeps_its_place(self, store: Store, run_id: str) -> None:
        """A rollout that is queued again is as old as before; newer ones do not overtake it."""
        store.enqueue(run_id, [request(n, max_attempts=2) for n in range(3)])
        (first,) = store.claim(run_id, "worker")
        store.finish([ended(first, "failed")])
        again = store.claim(run_id, "worker", limit=3)
        assert [(claim.rollout.input, claim.key.number) for claim in again] == [(0, 2), (1, 1), (2, 1)]

    def test_nothing_is_claimed_twice(self, store: Store, run_id: str) -> None:
        """A claimed rollout is not in the queue, and an empty queue gives an empty list at once."""
        store.enqueue(run_id, [request()])
        assert len(store.claim(run_id, "one", limit=5)) == 1
        assert store.claim(run_id, "two", limit=5) == []

    def test_a_claim_without_a_run_takes_from_all(self, store: Store, run_id: str) -> None:
        """``run_id=None`` serves every open run, by priority first, then by age over all of them."""
        other = store.create_run("other", {}).run_id
        store.enqueue(run_id, [request("a"), request("b", priority=1)])
        store.enqueue(other, [request("c", priority=2), request("d")])
        store.enqueue(run_id, [request("e")])
        claims = store.claim(None, "worker", limit=9)
        assert [claim.rollout.input for claim in claims] == ["c", "b", "a", "d", "e"]
        assert [claim.run.run_id for claim in claims[:2]] == [other, run_id]

    def test_the_latest_resources_are_pinned_at_the_claim(self, store: Store, run_id: str) -> None:
        """A request that names no version gets the latest when it is claimed, and keeps it."""
        (rollout,) = store.enqueue(run_id, [request(max_attempts=2)])
        store.publish(run_id, {"x": Data(value=1)})
        store.publish(run_id, {"x": Data(value=2)})
        (claim,) = store.claim(run_id, "worker")
        assert (claim.resources.version, claim.resources.resources) == (2, {"x": Data(value=2)})
        store.publish(run_id, {"x": Data(value=3)})
        store.finish([ended(claim, "failed")])
        (again,) = store.claim(run_id, "worker")
        assert again.rollout.rollout_id == rollout.rollout_id
        assert again.resources.version == again.rollout.resources_version == 2  # noqa: PLR2004

    def test_a_named_version_is_pinned_at_once(self, store: Store, run_id: str) -> None:
        """A request that names a version gets that one, be it a candidate, whatever comes later."""
        store.publish(run_id, {"x": Data(value="candidate")}, candidate=True)
        store.enqueue(run_id, [request(resources_version=1)])
        store.publish(run_id, {"x": Data(value="later")})
        (claim,) = store.claim(run_id, "worker")
        assert claim.resources.resources == {"x": Data(value="candidate")}

    def test_a_run_without_resources_gives_none(self, store: Store, run_id: str) -> None:
        """Before anything is published a claim carries version 0, which is empty."""
        claim = claimed(store, run_id)
        assert (claim.resources.version, claim.resources.resources) == (0, {})
        assert store.resources(run_id, 0) == claim.resources

    def test_begin_makes_the_run_once_and_claims(self, store: Store) -> None:
        """``begin`` finds the latest open run of the name or makes it, and nobody can claim between."""
        first = store.begin("local", request("one"), "worker")
        second = store.begin("local", request("two"), "worker")
        assert first.run == second.run
        assert (first.rollout.status, first.rollout.input) == ("running", "one")
        assert store.claim(first.run.run_id, "thief") == []
        store.set_run_status(first.run.run_id, "succeeded")
        third = store.begin("local", request(), "worker")
        assert third.run.run_id != first.run.run_id

    def test_what_a_caller_does_with_its_copy_stays_there(self, store: Store, run_id: str) -> None:
        """Records hold copies: an agent that writes into its task must not change the stored one."""
        task = {"history": ["a"]}
        (rollout,) = store.enqueue(run_id, [request(task, metadata={"n": [1]}, max_attempts=2)])
        task["history"].append("b")
        rollout.input["history"].append("c")
        (claim,) = store.claim(run_id, "worker")
        assert claim.rollout.input == {"history": ["a"]}
        claim.rollout.input["history"].append("d")
        claim.rollout.metadata["n"].append(2)
        store.finish([ended(claim, "failed")])
        (again,) = store.claim(run_id, "worker")
        assert (again.rollout.input, again.rollout.metadata) == ({"history": ["a"]}, {"n": [1]})

    def test_rollouts_are_filtered(self, store: Store, run_id: str) -> None:
        """Every field of ``RolloutQuery`` narrows the answer, all of them together."""
        made = store.enqueue(
            run_id,
            [request(1, group_id="g"), request(2, mode="val"), request(3, mode="val", group_id="g")],
        )
        store.cancel([made[2].rollout_id])

        def found(**fields: object) -> list[object]:
            query = RolloutQuery(run_id=run_id, **fields)  # type: ignore[arg-type]
            return [rollout.input for rollout in store.rollouts(query).items]

        assert found() == [1, 2, 3]
        assert found(mode="val") == [2, 3]
        assert found(group_id="g") == [1, 3]
        assert found(status=("queued",)) == [1, 2]
        assert found(status=()) == []
        assert found(rollout_ids=(made[2].rollout_id, made[0].rollout_id)) == [1, 3]
        assert found(rollout_ids=(made[2].rollout_id,), status=("cancelled",), mode="val") == [3]

    def test_pages_follow_each_other_without_gap_or_overlap(self, store: Store, run_id: str) -> None:
        """A cursor continues after the last item, also when rollouts were added meanwhile."""
        store.enqueue(run_id, [request(n) for n in range(5)])
        store.enqueue(store.create_run("other", {}).run_id, [request("other")])
        seen, cursor = [], None
        while True:
            page = store.rollouts(RolloutQuery(run_id=run_id, limit=2, cursor=cursor))
            seen += [rollout.input for rollout in page.items]
            if len(seen) == 2:  # noqa: PLR2004
                store.enqueue(run_id, [request("late")])
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == [0, 1, 2, 3, 4, "late"]
