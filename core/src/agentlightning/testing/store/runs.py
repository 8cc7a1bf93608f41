"""Runs, and what their algorithms keep and log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentlightning.errors import InvalidTransition
from agentlightning.store import RolloutQuery, Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import SUCCEEDED, Clock, claimed, request, result, rich_span


class RunTests(StoreTests):
    """Runs, their state, metrics and life."""

    def test_a_run_comes_back_as_it_was_made(self, store: Store, clock: Clock) -> None:
        """Every field of a run must be stored; ``config`` is any JSON, integers of any size too."""
        config = {"rate": 1e-6, "names": ["a", None, True], "big": 10**30, "text": "é"}
        run = store.create_run("first", config)
        assert (run.name, run.config, run.status) == ("first", config, "open")
        assert run.created_at == clock.now
        assert store.run(run.run_id) == run

    def test_runs_are_listed_oldest_first(self, store: Store) -> None:
        """``runs()`` keeps the order of making, also for equal names and times."""
        made = [store.create_run("same", {}) for _ in range(3)]
        assert store.runs() == made

    def test_a_run_is_closed_and_reopened(self, store: Store, run_id: str) -> None:
        """A status is stored, and any status may follow any other: a run is resumed after failing."""
        assert store.set_run_status(run_id, "failed").status == "failed"
        assert store.set_run_status(run_id, "open") == store.run(run_id)

    def test_a_closed_run_takes_and_gives_no_work(self, store: Store, run_id: str) -> None:
        """``enqueue`` into a closed run is an error; ``claim`` finds nothing until it is open again."""
        store.enqueue(run_id, [request()])
        store.set_run_status(run_id, "cancelled")
        with pytest.raises(InvalidTransition, match="cancelled"):
            store.enqueue(run_id, [request()])
        assert store.claim(run_id, "worker") == []
        assert store.claim(None, "worker") == []
        store.set_run_status(run_id, "open")
        assert len(store.claim(run_id, "worker")) == 1

    def test_the_endpoint_is_told_to_every_claim(self, store: Store, run_id: str) -> None:
        """A claim carries the attempt's own URL below the run's endpoint, None without one."""
        assert claimed(store, run_id).endpoint_url is None
        store.set_endpoint(run_id, "http://127.0.0.1:8000/")
        claim = claimed(store, run_id)
        path = f"/rollout/{claim.key.rollout_id}/attempt/1/v1"
        assert claim.endpoint_url == f"http://127.0.0.1:8000{path}"
        assert store.set_endpoint(run_id, None).endpoint_url is None

    def test_the_algorithms_state_is_replaced_whole(self, store: Store, run_id: str) -> None:
        """``save_state`` replaces: nothing of the last state is left. None means never saved."""
        assert store.load_state(run_id) is None
        store.save_state(run_id, {"step": 1, "old": True})
        store.save_state(run_id, {"step": 2, "pool": [{"score": 0.5}]})
        assert store.load_state(run_id) == {"step": 2, "pool": [{"score": 0.5}]}

    def test_metrics_of_a_step_are_merged_by_name(self, store: Store, run_id: str) -> None:
        """Metrics are listed by step; the same name at the same step is replaced, others are kept."""
        store.log_metrics(run_id, 2, {"loss": 1.0})
        store.log_metrics(run_id, 1, {"loss": 3.0, "reward": 0})
        store.log_metrics(run_id, 2, {"loss": 0.5, "kl": 0.25})
        found = [(item.step, item.values) for item in store.metrics(run_id)]
        assert found == [(1, {"loss": 3.0, "reward": 0.0}), (2, {"loss": 0.5, "kl": 0.25})]

    def test_what_a_caller_does_with_a_config_is_not_stored(self, store: Store) -> None:
        """Runs are given out by many calls, and their config is the caller's each time."""
        config = {"rate": [1]}
        run = store.create_run("mine", config)
        store.enqueue(run.run_id, [request()])
        (claim,) = store.claim(run.run_id, "worker")
        given = [run, claim.run, store.run(run.run_id), *store.runs()]
        given += [store.set_endpoint(run.run_id, None), store.set_run_status(run.run_id, "open")]
        for item in given:
            item.config["rate"].append(2)
        config["rate"].append(3)
        assert store.run(run.run_id).config == {"rate": [1]}

    def test_two_runs_never_see_each_other(self, store: Store, run_id: str) -> None:
        """Every query by run must filter by run: rollouts, claims, metrics, state, statistics."""
        other = store.create_run("other", {}).run_id
        mine = claimed(store, run_id)
        store.save_state(run_id, {"mine": True})
        store.log_metrics(run_id, 1, {"loss": 1.0})
        assert store.rollouts(RolloutQuery(run_id=other)).items == []
        assert store.claim(other, "worker") == []
        assert store.load_state(other) is None
        assert store.metrics(other) == []
        assert store.statistics(other).rollouts["running"] == 0
        assert store.statistics(run_id).rollouts["running"] == 1
        assert [item.rollout_id for item in store.rollouts(RolloutQuery(run_id=run_id)).items] == [
            mine.key.rollout_id
        ]

    def test_statistics_count_every_status(self, store: Store, run_id: str) -> None:
        """Counts have every status there is, zeros too, over a run and over the whole store."""
        claim = claimed(store, run_id)
        store.finish([result(claim, spans=[rich_span(claim.key)])])
        store.enqueue(run_id, [request(), request()])
        store.enqueue(store.create_run("other", {}).run_id, [request()])
        mine, everything = store.statistics(run_id), store.statistics()
        assert mine.rollouts == {
            "queued": 2, "running": 0, "succeeded": 1, "failed": 0, "cancelled": 0
        }  # fmt: skip
        assert mine.attempts["succeeded"] == 1
        assert sum(mine.attempts.values()) == 1
        assert mine.spans == everything.spans == 1
        assert everything.rollouts["queued"] == 3  # noqa: PLR2004

    def test_what_was_stored_is_there_after_reopening(
        self, store: Store, run_id: str, reopen: Callable[[], Store] | None
    ) -> None:
        """All of it must be on disk when a call returns: another opening reads the same records."""
        if reopen is None:
            pytest.skip("this backend keeps nothing beyond its own life")
        claim = claimed(store, run_id, request({"q": 1}, metadata={"row": 7}, group_id="g"))
        store.finish([result(claim, SUCCEEDED, [rich_span(claim.key)])])
        store.save_state(run_id, {"step": 1})
        name = claim.key.rollout_id
        query = RolloutQuery(run_id=run_id)
        with reopen() as again:
            assert again.runs() == store.runs()
            assert again.rollouts(query) == store.rollouts(query)
            assert again.attempts(name) == store.attempts(name)
            assert list(again.spans([name])) == list(store.spans([name]))
            assert again.load_state(run_id) == {"step": 1}
            assert again.workers() == store.workers()
            assert again.check_token(claim.key, claim.token)
