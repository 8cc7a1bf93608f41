"""What a store refuses, and that nothing is half written when it does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from agentlightning.errors import (
    BadValue,
    RewardError,
    StoreUnavailable,
    UnknownAttempt,
    UnknownResources,
    UnknownRollout,
    UnknownRun,
)
from agentlightning.records import AttemptKey, Choice, Data, Floats, LLMCall, Outcome, Tokens
from agentlightning.store import Result, RolloutQuery, Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import SUCCEEDED, claimed, request, result, span

NAN = math.nan
HALF_A_PAIR = "\ud83d"
ITSELF: list[object] = []
ITSELF.append(ITSELF)
BAD_VALUES = [
    NAN,
    math.inf,
    {1: "key"},
    object(),
    [{"deep": NAN}],
    HALF_A_PAIR,
    {HALF_A_PAIR: 1},
    ITSELF,
]


class RefusalTests(StoreTests):
    """Named errors, and all or nothing."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda store: store.run("no"),
            lambda store: store.set_run_status("no", "failed"),
            lambda store: store.set_endpoint("no", None),
            lambda store: store.save_state("no", {}),
            lambda store: store.load_state("no"),
            lambda store: store.log_metrics("no", 1, {}),
            lambda store: store.metrics("no"),
            lambda store: store.enqueue("no", [request()]),
            lambda store: store.claim("no", "worker"),
            lambda store: store.publish("no", {}),
            lambda store: store.resources("no", 1),
            lambda store: store.statistics("no"),
            lambda store: store.rollouts(RolloutQuery(run_id="no")),
        ],
    )
    def test_an_unknown_run_is_named(self, store: Store, call: Callable[[Store], object]) -> None:
        """Every call that takes a run id must check it: ``UnknownRun`` with the id in the message."""
        with pytest.raises(UnknownRun, match="'no'"):
            call(store)

    @pytest.mark.parametrize(
        "call",
        [
            lambda store: store.attempts("no"),
            lambda store: store.cancel(["no"]),
            lambda store: store.set_rewards({"no": 1.0}),
            lambda store: store.heartbeat("worker", [AttemptKey("no", 1)]),
            lambda store: store.finish([Result(key=AttemptKey("no", 1), outcome=SUCCEEDED)]),
            lambda store: store.add_spans([span(AttemptKey("no", 1))]),
            lambda store: store.spans(["no"]),
            lambda store: store.rollouts(RolloutQuery(rollout_ids=("no",))),
        ],
    )
    def test_an_unknown_rollout_is_named(self, store: Store, call: Callable[[Store], object]) -> None:
        """Every call that takes rollout ids must check them, before an iterator is ever read."""
        with pytest.raises(UnknownRollout, match="'no'"):
            call(store)

    @pytest.mark.parametrize("number", [0, 2, -1])
    def test_an_unknown_attempt_is_named(self, store: Store, run_id: str, number: int) -> None:
        """An attempt that was never started: ``UnknownAttempt``, whatever the call."""
        key = AttemptKey(claimed(store, run_id).key.rollout_id, number)
        calls: list[Callable[[], object]] = [
            lambda: store.heartbeat("worker", [key]),
            lambda: store.finish([Result(key=key, outcome=SUCCEEDED)]),
            lambda: store.add_spans([span(key)]),
            lambda: store.spans([key.rollout_id], attempt=number),
        ]
        for call in calls:
            with pytest.raises(UnknownAttempt, match=key.rollout_id):
                call()

    def test_unknown_resources_are_named(self, store: Store, run_id: str) -> None:
        """A version that was never published: as a number, as a parent, or named by a request."""
        calls: list[Callable[[], object]] = [
            lambda: store.resources(run_id, 7),
            lambda: store.resources(run_id, -1),
            lambda: store.publish(run_id, {}, parent=7),
            lambda: store.enqueue(run_id, [request(), request(resources_version=7)]),
            lambda: store.begin("made for it", request(resources_version=7), "worker"),
        ]
        for call in calls:
            with pytest.raises(UnknownResources):
                call()
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == []
        assert [run.run_id for run in store.runs()] == [run_id]

    @pytest.mark.parametrize("value", BAD_VALUES)
    def test_a_value_that_is_not_json_is_refused(self, store: Store, run_id: str, value: Any) -> None:
        """NaN, odd keys, objects and broken text are refused wherever a value enters."""
        claim = claimed(store, run_id)
        calls: list[Callable[[], object]] = [
            lambda: store.create_run("name", {"x": value}),
            lambda: store.enqueue(run_id, [request(), request(value)]),
            lambda: store.enqueue(run_id, [request(metadata={"x": value})]),
            lambda: store.finish([result(claim, Outcome(status="succeeded", output=value))]),
            lambda: store.add_spans([span(claim.key, 1), span(claim.key, 2, attributes={"x": value})]),
            lambda: store.add_spans([span(claim.key, 2, call=_call({"x": value}))]),
            lambda: store.publish(run_id, {"x": Data(value=value)}),
            lambda: store.save_state(run_id, {"x": value}),
            lambda: store.heartbeat("worker", [claim.key], {"x": value}),
        ]
        before = _everything(store, claim.key)
        for call in calls:
            with pytest.raises(BadValue):
                call()
        assert _everything(store, claim.key) == before

    def test_a_name_that_is_no_text_is_refused(self, store: Store, run_id: str) -> None:
        """Names, keys and notes end up in replies and files too: half a surrogate pair is refused."""
        calls: list[Callable[[], object]] = [
            lambda: store.create_run(HALF_A_PAIR, {}),
            lambda: store.create_run("name", {}, key=HALF_A_PAIR),
            lambda: store.enqueue(run_id, [request()], key=HALF_A_PAIR),
            lambda: store.enqueue(run_id, [request(group_id=HALF_A_PAIR)]),
            lambda: store.claim(run_id, HALF_A_PAIR),
            lambda: store.begin(HALF_A_PAIR, request(), "worker"),
            lambda: store.heartbeat(HALF_A_PAIR, []),
            lambda: store.finish_and_claim([], run_id, "worker", key=HALF_A_PAIR),
            lambda: store.publish(run_id, {}, note=HALF_A_PAIR),
            lambda: store.set_endpoint(run_id, HALF_A_PAIR),
            lambda: store.log_metrics(run_id, 1, {HALF_A_PAIR: 1.0}),
        ]
        before = store.runs(), store.statistics(), store.workers()
        for call in calls:
            with pytest.raises(BadValue):
                call()
        assert (store.runs(), store.statistics(), store.workers()) == before

    @pytest.mark.parametrize("number", [NAN, math.inf, -math.inf])
    def test_a_log_probability_that_is_not_finite_is_refused(
        self, store: Store, run_id: str, number: float
    ) -> None:
        """They come packed, so no JSON reader looks at them; the most negative float32 is fine."""
        claim = claimed(store, run_id)
        lowest = -3.4e38

        def call(*logprobs: float) -> LLMCall:
            choice = Choice(response_ids=Tokens(range(3)), logprobs=Floats(logprobs))
            return replace(_call({}), choices=(choice,))

        spans = [span(claim.key, call=call(-0.5, number, lowest))]
        with pytest.raises(BadValue, match="log-probability"):
            store.add_spans(spans)
        with pytest.raises(BadValue, match="log-probability"):
            store.finish([result(claim, spans=spans)])
        assert store.statistics(run_id).spans == 0
        assert store.add_spans([span(claim.key, call=call(-0.5, 0.0, lowest))]) == 1

    @pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, "1", [1]])
    def test_a_reward_that_is_no_finite_number_is_refused(
        self, store: Store, run_id: str, value: Any
    ) -> None:
        """The message has the rollout's id, and the good rewards of the same call are not stored."""
        good, bad = store.enqueue(run_id, [request(), request()])
        with pytest.raises(RewardError, match=bad.rollout_id):
            store.set_rewards({good.rollout_id: 1.0, bad.rollout_id: value})
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == [good, bad]

    def test_a_metric_that_is_not_finite_is_refused(self, store: Store, run_id: str) -> None:
        """The message names the metric; nothing of the step is stored."""
        with pytest.raises(BadValue, match="kl"):
            store.log_metrics(run_id, 1, {"loss": 1.0, "kl": NAN})
        assert store.metrics(run_id) == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"max_attempts": 0},
            {"max_lost": -1},
            {"lease_s": 0},
            {"lease_s": NAN},
            {"timeout_s": -1},
            {"mode": "training"},
            {"retry_on": ("lost",)},
            {"priority": "high"},
            {"priority": 2**70},
        ],
    )
    def test_a_request_that_makes_no_sense_is_refused(
        self, store: Store, run_id: str, fields: dict[str, Any]
    ) -> None:
        """Each setting must be able to have an effect; the refusal of the call names the field."""
        with pytest.raises(BadValue, match=next(iter(fields))):
            store.enqueue(run_id, [request(), request(**fields)])
        assert store.rollouts(RolloutQuery(run_id=run_id)).items == []

    def test_words_that_do_not_exist_are_refused(self, store: Store, run_id: str) -> None:
        """A status, kind or limit outside its list or range is a ``BadValue``, not stored as it is."""
        claim = claimed(store, run_id)
        calls: list[Callable[[], object]] = [
            lambda: store.set_run_status(run_id, "done"),  # type: ignore[arg-type]
            lambda: store.finish([result(claim, Outcome(status="running"))]),  # type: ignore[arg-type]
            lambda: store.add_spans([span(claim.key, kind="step")]),
            lambda: store.add_spans([span(claim.key, status="fine")]),
            lambda: store.add_spans([span(claim.key, attributes={"big": 2**64})]),
            lambda: store.claim(run_id, "worker", limit=0),
            lambda: store.claim(run_id, "worker", limit=2**63),
            lambda: store.rollouts(RolloutQuery(limit=0)),
            lambda: store.rollouts(RolloutQuery(cursor="x")),
            lambda: store.rollouts(RolloutQuery(cursor="9" * 19)),
            lambda: store.rollouts(RolloutQuery(cursor="9" * 5000)),
        ]
        for call in calls:
            with pytest.raises(BadValue):
                call()

    def test_a_bulk_call_is_all_or_nothing(self, store: Store, run_id: str) -> None:
        """One unknown id among many must leave nothing of the call behind."""
        claim = claimed(store, run_id)
        (queued,) = store.enqueue(run_id, [request()])
        unknown = AttemptKey("no", 1)
        before = _everything(store, claim.key)
        calls: list[Callable[[], object]] = [
            lambda: store.add_spans([span(claim.key), span(unknown)]),
            lambda: store.finish(
                [result(claim, spans=[span(claim.key)]), Result(key=unknown, outcome=SUCCEEDED)]
            ),
            lambda: store.heartbeat("worker", [claim.key, unknown], {"cpu": 1}),
            lambda: store.cancel([queued.rollout_id, "no"]),
            lambda: store.set_rewards({queued.rollout_id: 1.0, "no": 1.0}),
        ]
        for call in calls:
            with pytest.raises(UnknownRollout):
                call()
        assert _everything(store, claim.key) == before

    def test_a_result_brings_the_spans_of_its_own_attempt_only(self, store: Store, run_id: str) -> None:
        """Spans of another attempt in a result are a mistake of the worker and refused."""
        mine, other = claimed(store, run_id), claimed(store, run_id)
        with pytest.raises(BadValue, match=other.key.rollout_id):
            store.finish([result(mine, spans=[span(other.key)])])
        assert store.statistics(run_id).rollouts["running"] == 2  # noqa: PLR2004

    def test_a_closed_store_says_so(self, store: Store, run_id: str) -> None:
        """After ``close`` every call is ``StoreUnavailable``; closing again is harmless."""
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            store.runs,
            lambda: store.claim(run_id, "worker"),
            lambda: store.create_run("name", {}),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="closed"):
                call()


def _call(request_body: dict[str, Any]) -> LLMCall:
    return LLMCall(seq=1, api="chat", model="m", base_url="u", request=request_body)


def _everything(store: Store, key: AttemptKey) -> tuple[object, ...]:
    """What the refused calls of these tests could have changed."""
    return (
        store.runs(),
        store.rollouts(RolloutQuery()).items,
        store.attempts(key.rollout_id),
        list(store.spans([key.rollout_id])),
        store.workers(),
        store.statistics(),
    )
