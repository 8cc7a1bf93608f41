"""A run to move: one with everything in it that there can be, and all that a store tells of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from agentlightning.errors import StaleAttempt, UnknownResources
from agentlightning.records import JSON, AttemptKey, Data, Outcome, Resources, ResourcesVersion, Span
from agentlightning.store import Result, RolloutQuery, Store
from agentlightning.store.transfer import (
    AnswerRow,
    AttemptRow,
    LateRow,
    ResourcesRow,
    RolloutRow,
    RunRow,
    SpanRow,
    StoredRow,
)
from agentlightning.testing.store.making import FAILED, SUCCEEDED, Clock, request, rich_span, span

AWKWARD: JSON = {"text": 'naïve 🦊 \0 "quoted"\n', "big": 2**70, "list": [1, 2.5, None, True, {}]}
RESOURCES: Resources = {"table": Data(value=AWKWARD)}
LEASE_S = 10.0
QUEUED = [
    request(AWKWARD, group_id="g", metadata=AWKWARD, mode="val", lease_s=LEASE_S, max_attempts=2),
    request("to be lost", lease_s=LEASE_S, max_lost=0),
    request("to succeed", lease_s=1000, resources_version=2),
    request("to be cancelled", lease_s=1000),
    request("to wait", timeout_s=5.5, retry_on=("timed_out",), priority=-(2**40)),
]


def fill(store: Store, clock: Clock) -> str:
    """A run in which attempts failed, were lost, succeeded, were cancelled, came too late and run on.

    Returns:
        The run's id; the store has another run too, of which nothing may be moved.
    """
    store.enqueue(store.create_run("another", {}).run_id, [request("not of this run")])
    run_id = store.create_run("moved", {"any": 1}, key="the run").run_id
    store.set_endpoint(run_id, "http://127.0.0.1:1")
    store.publish(run_id, RESOURCES, note="first", key="published")
    store.publish(run_id, {}, parent=1, candidate=True)
    store.enqueue(run_id, QUEUED, key="step 1")
    retried, lost, succeeded, cancelled = (
        claim.key for claim in store.claim(run_id, "worker", limit=4)
    )
    _end(store, retried, FAILED, [span(retried, 2), span(retried, 1)])
    _end(store, succeeded, SUCCEEDED, [rich_span(succeeded), span(succeeded, 3, kind="reward")])
    store.set_rewards({succeeded.rollout_id: 0.1 + 0.2})
    (again,) = store.claim(run_id, "other worker")
    store.add_spans([span(again.key, 4), span(retried, 5), span(again.key, 6)])
    store.cancel([cancelled.rollout_id])
    store.heartbeat("other worker", [again.key], {"seen": True})
    clock.advance(LEASE_S / 2)
    store.heartbeat("other worker", [again.key])
    clock.advance(LEASE_S / 2)
    _end(store, lost, SUCCEEDED, [span(lost, 7)])
    store.log_metrics(run_id, 3, {"loss": 1e-300, "val/reward": 0.1})
    store.log_metrics(run_id, 1, {"loss": 2.0})
    store.save_state(run_id, {"step": 3, "awkward": AWKWARD})
    return run_id


def _end(store: Store, key: AttemptKey, outcome: Outcome, spans: Sequence[Span]) -> None:
    store.attempts(key.rollout_id)  # looking ends what is overdue
    try:
        store.finish([Result(key=key, outcome=outcome, spans=tuple(spans))])
    except StaleAttempt:
        return  # that one was to come too late


def picture(store: Store, run_id: str) -> dict[str, Any]:
    """Everything a store tells of a run."""
    rollouts = store.rollouts(RolloutQuery(run_id=run_id)).items
    names = [rollout.rollout_id for rollout in rollouts]
    return {
        "run": store.run(run_id),
        "rollouts": rollouts,
        "attempts": [store.attempts(name) for name in names],
        "spans": [replace(item, index=0) for item in store.spans(names, attempt="all")],
        "last spans": [replace(item, index=0) for item in store.spans(names)],
        "resources": list(_versions(store, run_id)),
        "latest": store.resources(run_id, "latest"),
        "metrics": store.metrics(run_id),
        "state": store.load_state(run_id),
        "statistics": store.statistics(run_id),
    }


def _versions(store: Store, run_id: str) -> Iterator[ResourcesVersion]:
    for number in itertools.count():
        try:
            yield store.resources(run_id, number)
        except UnknownResources:
            return


def unnumbered(rows: Iterable[StoredRow]) -> list[StoredRow]:
    """Rows without the number of a span's arrival, which is each store's own."""
    return [
        replace(row, record=replace(row.record, index=0)) if isinstance(row, SpanRow) else row
        for row in rows
    ]


def pages_after(store: Store, run_id: str, cursor: str | None) -> Iterator[StoredRow]:
    """The rows of all pages after the one that ``cursor`` came with."""
    while cursor is not None:
        page = store.export_page(run_id, cursor)
        yield from page.items
        cursor = page.cursor


_CHANGES: dict[type, dict[str, Any]] = {
    RunRow: {"name": "another name"},
    ResourcesRow: {"note": "another note"},
    RolloutRow: {"priority": 7},
    AttemptRow: {"worker_id": "another worker"},
    SpanRow: {"name": "another name"},
    AnswerRow: {"fingerprint": "another body"},
    LateRow: {"count": 1000},
}


def changed(row: StoredRow) -> StoredRow:
    """The row with other content under the same name."""
    fields = _CHANGES[type(row)]
    return replace(row, record=replace(row.record, **fields))
