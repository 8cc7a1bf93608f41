"""A run as rows: what moves it from one store to another, whatever their backends.

Rows are the records themselves, and come in an order in which whatever a row needs is there before it:
the run, its resources, each rollout with its attempts and then its spans, the answers given to
idempotency keys (so that a run resumed elsewhere finds the rollouts it has queued already), metrics,
the algorithm's state and the count of late results.

What is the store's own does not move: its secret, so tokens are given anew; its workers; the answers to
claims, whose tokens would be wrong. ``Span.index`` is the order of arrival in one store: the order
moves, the number is the importing store's.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from agentlightning.records import JSON, Attempt, Part, ResourcesVersion, Rollout, Run, Span
from agentlightning.store.types import Metrics

KeyedOperation: TypeAlias = Literal["create_run", "enqueue", "publish"]
"""The operations whose answers move with a run."""


class StoredAnswer(Part, frozen=True, kw_only=True):
    """What a call under an idempotency key made, by name, so that it can be answered again."""

    operation: KeyedOperation
    run_id: str
    key: str
    fingerprint: str
    made: tuple[str, ...]


class StoredState(Part, frozen=True, kw_only=True):
    """The state a run's algorithm saved last."""

    run_id: str
    state: dict[str, JSON]


class LateResults(Part, frozen=True, kw_only=True):
    """How many results of a run came too late."""

    run_id: str
    count: Annotated[int, Meta(ge=1, lt=2**31)]


class _Row(Part, frozen=True, kw_only=True, tag_field="kind"):
    """One row; ``kind`` says which."""


class RunRow(_Row, frozen=True, kw_only=True, tag="run"):
    """A run."""

    record: Run


class ResourcesRow(_Row, frozen=True, kw_only=True, tag="resources"):
    """A version of a run's resources."""

    record: ResourcesVersion


class RolloutRow(_Row, frozen=True, kw_only=True, tag="rollout"):
    """A rollout; its attempts follow, and are imported with it."""

    record: Rollout


class AttemptRow(_Row, frozen=True, kw_only=True, tag="attempt"):
    """An attempt. A running one moves as it is: on the other side its lease runs out."""

    record: Attempt


class SpanRow(_Row, frozen=True, kw_only=True, tag="span"):
    """A span."""

    record: Span


class AnswerRow(_Row, frozen=True, kw_only=True, tag="answer"):
    """An answer to an idempotency key."""

    record: StoredAnswer


class MetricsRow(_Row, frozen=True, kw_only=True, tag="metrics"):
    """Numbers of one step."""

    record: Metrics


class StateRow(_Row, frozen=True, kw_only=True, tag="state"):
    """An algorithm's state."""

    record: StoredState


class LateRow(_Row, frozen=True, kw_only=True, tag="late_results"):
    """A count of late results."""

    record: LateResults


StoredRow: TypeAlias = (
    RunRow
    | ResourcesRow
    | RolloutRow
    | AttemptRow
    | SpanRow
    | AnswerRow
    | MetricsRow
    | StateRow
    | LateRow
)
"""Any of them; as JSON ``{"kind": "span", "record": {…}}``."""


def kind_of(row: StoredRow) -> str:
    """The row's kind, as it is written."""
    return str(type(row).__struct_config__.tag)
