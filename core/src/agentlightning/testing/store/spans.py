"""Spans: kept whole, in order of arrival, each once."""

from __future__ import annotations

from msgspec.structs import replace

from agentlightning.records import AttemptKey, Span
from agentlightning.store import Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import claimed, ended, request, result, rich_span, span


class SpanTests(StoreTests):
    """What attempts did."""

    def test_a_span_comes_back_whole(self, store: Store, run_id: str) -> None:
        """Every field must survive: any script, 64-bit integers, token ids, events, the call."""
        key = claimed(store, run_id).key
        for given in (rich_span(key), span(key)):
            assert store.add_spans([given]) == 1
        rich, plain = store.spans([key.rollout_id])
        assert replace(rich, index=0) == rich_span(key)
        assert replace(plain, index=0) == span(key)

    def test_tuples_become_lists(self, store: Store, run_id: str) -> None:
        """Values are stored as JSON has them, so every backend gives back the same."""
        key = claimed(store, run_id).key
        store.add_spans([span(key, attributes={"pair": (1, (2, 3))})])
        (found,) = store.spans([key.rollout_id])
        assert found.attributes == {"pair": [1, [2, 3]]}

    def test_spans_are_numbered_in_order_of_arrival(self, store: Store, run_id: str) -> None:
        """``index`` grows by arrival over all attempts of a rollout, whatever the spans' own times."""
        first = claimed(store, run_id, request(max_attempts=2))
        store.add_spans([span(first.key, 9), span(first.key, 3)])
        store.finish([ended(first, "failed")])
        (second,) = store.claim(run_id, "worker")
        store.add_spans([span(second.key, 5)])
        store.add_spans([span(first.key, 1)])
        found = list(store.spans([first.key.rollout_id], attempt="all"))
        assert [item.start_ns for item in found] == [9, 3, 5, 1]
        indexes = [item.index for item in found]
        assert indexes == sorted(set(indexes))
        assert indexes[0] >= 1

    def test_a_span_sent_again_is_stored_once(self, store: Store, run_id: str) -> None:
        """Spans are idempotent by rollout, attempt and span id; only the new ones are counted."""
        first, second = claimed(store, run_id), claimed(store, run_id)
        assert store.add_spans([span(first.key, 1), span(first.key, 2), span(first.key, 1)]) == 2  # noqa: PLR2004
        assert store.add_spans([span(first.key, 2), span(first.key, 3), span(second.key, 1)]) == 2  # noqa: PLR2004
        store.finish([result(first, spans=[span(first.key, 3), span(first.key, 4)])])
        assert _numbers(store, first.key) == [1, 2, 3, 4]
        assert _numbers(store, second.key) == [1]

    def test_the_last_attempts_spans_are_the_default(self, store: Store, run_id: str) -> None:
        """``attempt`` picks the last, one by number, or all; a rollout never claimed has none."""
        first = claimed(store, run_id, request(max_attempts=2))
        store.add_spans([span(first.key, 1)])
        store.finish([ended(first, "failed")])
        (second,) = store.claim(run_id, "worker")
        name = first.key.rollout_id
        assert list(store.spans([name])) == []
        store.add_spans([span(second.key, 2)])
        assert [item.attempt for item in store.spans([name])] == [2]
        assert [item.attempt for item in store.spans([name], attempt=1)] == [1]
        assert [item.attempt for item in store.spans([name], attempt="all")] == [1, 2]
        (queued,) = store.enqueue(run_id, [request()])
        assert list(store.spans([queued.rollout_id])) == []

    def test_spans_come_rollout_by_rollout_in_the_order_asked(self, store: Store, run_id: str) -> None:
        """Rollouts in the order given, whatever their age; within each the order of arrival."""
        first, second = claimed(store, run_id).key, claimed(store, run_id).key
        store.add_spans([span(first, 1), span(second, 1), span(first, 2)])
        found = list(store.spans([second.rollout_id, first.rollout_id]))
        assert [(item.rollout_id, item.start_ns) for item in found] == [
            (second.rollout_id, 1),
            (first.rollout_id, 1),
            (first.rollout_id, 2),
        ]

    def test_spans_are_filtered_by_kind(self, store: Store, run_id: str) -> None:
        """``kinds`` keeps those only; none of them gives nothing."""
        key = claimed(store, run_id).key
        kinds: tuple[Span, ...] = tuple(
            span(key, number, kind=kind) for number, kind in enumerate(("tool", "reward", "tool"))
        )
        store.add_spans(kinds)
        names = [key.rollout_id]
        assert [item.start_ns for item in store.spans(names, kinds=["tool"])] == [0, 2]
        assert len(list(store.spans(names, kinds=["tool", "reward"]))) == 3  # noqa: PLR2004
        assert list(store.spans(names, kinds=[])) == []

    def test_what_is_recorded_does_not_follow_its_source(self, store: Store, run_id: str) -> None:
        """An agent goes on appending to the messages it sent: the stored request must not grow."""
        key = claimed(store, run_id).key
        given = rich_span(key)
        assert given.call is not None
        store.add_spans([given])
        given.call.request["messages"].append({"role": "user", "content": "later"})
        given.attributes["list"].append("later")
        (found,) = store.spans([key.rollout_id])
        assert replace(found, index=0) == rich_span(key)

    def test_many_spans_are_stored_in_one_call(self, store: Store, run_id: str) -> None:
        """Bulk has no limit of its own: thousands of spans of many attempts in one call."""
        store.enqueue(run_id, [request() for _ in range(20)])
        keys = [claim.key for claim in store.claim(run_id, "worker", limit=20)]
        spans = [span(key, number) for number in range(250) for key in keys]
        assert store.add_spans(spans) == len(spans)
        assert _numbers(store, keys[7]) == list(range(250))
        assert store.add_spans([]) == 0


def _numbers(store: Store, key: AttemptKey) -> list[int]:
    return [item.start_ns for item in store.spans([key.rollout_id])]
