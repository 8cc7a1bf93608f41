"""The Parquet tables: which columns a kind of row has, and how a record lies in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from agentlightning.exchange.columns import (
    CHOICES,
    FLAG,
    INTEGER,
    JSON_TEXT,
    REAL,
    TEXT,
    TEXTS,
    TOKENS,
    Column,
)
from agentlightning.records import (
    Attempt,
    LLMCall,
    ResourcesVersion,
    Rollout,
    Run,
    Span,
    from_builtins,
)
from agentlightning.store import Metrics
from agentlightning.store.transfer import (
    AnswerRow,
    AttemptRow,
    LateResults,
    LateRow,
    MetricsRow,
    ResourcesRow,
    RolloutRow,
    RunRow,
    SpanRow,
    StateRow,
    StoredAnswer,
    StoredState,
)

Fields: TypeAlias = dict[str, Any]
"""One row of a table, by column."""


def _one_row(record: Any) -> Iterable[Fields]:
    return [{name: getattr(record, name) for name in record.__struct_fields__}]


@dataclass(frozen=True)
class Table:
    """The table of one kind of row.

    Attributes:
        name: of the file, without ``.parquet``.
        row: the kind.
        record: what such a row holds.
        columns: by name, in order.
        rows_of: a record as rows of the table.
        records_of: rows of the table as records.
    """

    name: str
    row: type[Any]
    record: type[Any]
    columns: Mapping[str, Column]
    rows_of: Callable[[Any], Iterable[Fields]] = _one_row
    records_of: Callable[[Iterator[Fields]], Iterator[Any]] | None = None

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.name}.parquet"

    def records(self, rows: Iterator[Fields]) -> Iterator[Any]:
        """The records in rows of the table.

        Raises:
            msgspec.ValidationError: a value is none its field can have.
        """
        if self.records_of is not None:
            return self.records_of(rows)
        return (from_builtins(fields, self.record) for fields in rows)


# --- spans: the call's fields are columns of their own ----------------------------------------------

_CALL: Final = "call_"
_CALL_COLUMNS: Final = {
    "seq": INTEGER,
    "api": TEXT,
    "agent": TEXT,
    "model": TEXT,
    "base_url": TEXT,
    "model_version": INTEGER,
    "request": JSON_TEXT,
    "response": JSON_TEXT,
    "response_id": TEXT,
    "streamed": FLAG,
    "complete": FLAG,
    "retries": INTEGER,
    "temperature": REAL,
    "usage": JSON_TEXT,
    "error": TEXT,
    "prompt_ids": TOKENS,
    "choices": CHOICES,
}


def _rows_of_span(span: Span) -> Iterable[Fields]:
    (fields,) = _one_row(span)
    call = fields.pop("call")
    for name in _CALL_COLUMNS:
        fields[_CALL + name] = None if call is None else getattr(call, name)
    return [fields]


def _spans_of(rows: Iterator[Fields]) -> Iterator[Span]:
    for fields in rows:
        told = {name: fields.pop(_CALL + name) for name in _CALL_COLUMNS}
        span = from_builtins(fields, Span)
        if told["seq"] is None:
            yield span
            continue
        exact = {"prompt_ids": told.pop("prompt_ids"), "choices": told.pop("choices")}
        yield replace(span, call=replace(from_builtins(told, LLMCall), **exact))


# --- metrics: a row a number ------------------------------------------------------------------------


def _rows_of_metrics(metrics: Metrics) -> Iterable[Fields]:
    where = {"run_id": metrics.run_id, "step": metrics.step, "at": metrics.at}
    if not metrics.values:
        return [{**where, "name": None, "value": None}]
    return [{**where, "name": name, "value": value} for name, value in metrics.values.items()]


def _metrics_of(rows: Iterator[Fields]) -> Iterator[Metrics]:
    for (run_id, step, at), values in groupby(
        rows, key=lambda fields: (fields["run_id"], fields["step"], fields["at"])
    ):
        named = {item["name"]: item["value"] for item in values if item["name"] is not None}
        yield from_builtins({"run_id": run_id, "step": step, "at": at, "values": named}, Metrics)


TABLES: Final = (
    Table(
        "runs",
        RunRow,
        Run,
        {
            "run_id": TEXT,
            "name": TEXT,
            "status": TEXT,
            "created_at": REAL,
            "endpoint_url": TEXT,
            "config": JSON_TEXT,
        },
    ),
    Table(
        "resources",
        ResourcesRow,
        ResourcesVersion,
        {
            "run_id": TEXT,
            "version": INTEGER,
            "parent": INTEGER,
            "candidate": FLAG,
            "note": TEXT,
            "created_at": REAL,
            "resources": JSON_TEXT,
        },
    ),
    Table(
        "rollouts",
        RolloutRow,
        Rollout,
        {
            "rollout_id": TEXT,
            "run_id": TEXT,
            "group_id": TEXT,
            "mode": TEXT,
            "status": TEXT,
            "reward": REAL,
            "attempt": INTEGER,
            "resources_version": INTEGER,
            "priority": INTEGER,
            "created_at": REAL,
            "finished_at": REAL,
            "input": JSON_TEXT,
            "output": JSON_TEXT,
            "config": JSON_TEXT,
            "metadata": JSON_TEXT,
        },
    ),
    Table(
        "attempts",
        AttemptRow,
        Attempt,
        {
            "rollout_id": TEXT,
            "number": INTEGER,
            "status": TEXT,
            "worker_id": TEXT,
            "started_at": REAL,
            "lease_until": REAL,
            "finished_at": REAL,
            "error": TEXT,
        },
    ),
    Table(
        "spans",
        SpanRow,
        Span,
        {
            "rollout_id": TEXT,
            "attempt": INTEGER,
            "index": INTEGER,
            "span_id": TEXT,
            "parent_id": TEXT,
            "trace_id": TEXT,
            "kind": TEXT,
            "name": TEXT,
            "status": TEXT,
            "start_ns": INTEGER,
            "end_ns": INTEGER,
            "attributes": JSON_TEXT,
            "events": JSON_TEXT,
            **{_CALL + name: column for name, column in _CALL_COLUMNS.items()},
        },
        _rows_of_span,
        _spans_of,
    ),
    Table(
        "answers",
        AnswerRow,
        StoredAnswer,
        {"operation": TEXT, "run_id": TEXT, "key": TEXT, "fingerprint": TEXT, "made": TEXTS},
    ),
    Table(
        "metrics",
        MetricsRow,
        Metrics,
        {"run_id": TEXT, "step": INTEGER, "at": REAL, "name": TEXT, "value": REAL},
        _rows_of_metrics,
        _metrics_of,
    ),
    Table("states", StateRow, StoredState, {"run_id": TEXT, "state": JSON_TEXT}),
    Table("late_results", LateRow, LateResults, {"run_id": TEXT, "count": INTEGER}),
)
"""In an order in which each comes after those it needs, but for attempts, which come with rollouts."""
