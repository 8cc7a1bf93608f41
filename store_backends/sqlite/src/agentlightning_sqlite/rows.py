"""Records to rows and back: one tuple a row, JSON as text that any SQLite tool can read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from agentlightning.records import (
    JSON,
    Attempt,
    AttemptKey,
    LLMCall,
    Rollout,
    RolloutConfig,
    Run,
    Span,
    SpanEvent,
    from_json,
    to_json,
)

Row: TypeAlias = tuple[Any, ...]

RUN = "run_id, name, status, endpoint_url, created_at, config"
ROLLOUT = (
    "rollout_id, run_id, group_id, mode, status, priority, attempt, resources_version, reward, "
    "created_at, finished_at, input, output, config, metadata"
)
ATTEMPT = "rollout_id, number, status, worker_id, started_at, lease_until, finished_at, error"
SPAN = (
    "rollout_id, attempt, span_id, parent_id, trace_id, kind, name, status, start_ns, end_ns, "
    "attributes, events, call"
)
_EMPTY = "{}"


def places(columns: str) -> str:
    """A question mark a column."""
    return ", ".join("?" * (columns.count(",") + 1))


def text(value: object) -> str:
    """A value as JSON text."""
    return to_json(value).decode()


def run_row(run: Run) -> Row:
    """The columns ``RUN``."""
    return (
        run.run_id,
        run.name,
        run.status,
        run.endpoint_url,
        run.created_at,
        text(run.config),
    )


def run_of(row: Row) -> Run:
    """A run from the columns ``RUN``."""
    run_id, name, status, endpoint_url, created_at, config = row
    return Run(
        run_id=run_id,
        name=name,
        status=status,
        endpoint_url=endpoint_url,
        created_at=created_at,
        config=from_json(config, JSON),
    )


def rollout_row(rollout: Rollout) -> Row:
    """The columns ``ROLLOUT``."""
    return (
        rollout.rollout_id,
        rollout.run_id,
        rollout.group_id,
        rollout.mode,
        rollout.status,
        rollout.priority,
        rollout.attempt,
        rollout.resources_version,
        rollout.reward,
        rollout.created_at,
        rollout.finished_at,
        text(rollout.input),
        output_text(rollout),
        _config_text(rollout.config),
        text(rollout.metadata) if rollout.metadata else _EMPTY,
    )


def output_text(rollout: Rollout) -> str | None:
    """The output as JSON, NULL for none."""
    return None if rollout.output is None else text(rollout.output)


def rollout_of(row: Row) -> Rollout:
    """A rollout from the columns ``ROLLOUT``."""
    (
        rollout_id,
        run_id,
        group_id,
        mode,
        status,
        priority,
        attempt,
        resources_version,
        reward,
        created_at,
        finished_at,
        task,
        output,
        config,
        metadata,
    ) = row
    return Rollout(
        rollout_id=rollout_id,
        run_id=run_id,
        group_id=group_id,
        mode=mode,
        status=status,
        priority=priority,
        attempt=attempt,
        resources_version=resources_version,
        reward=reward,
        created_at=created_at,
        finished_at=finished_at,
        input=from_json(task, JSON),
        output=None if output is None else from_json(output, JSON),
        config=_config_of(config),
        metadata={} if metadata == _EMPTY else from_json(metadata, dict),
    )


def attempt_of(row: Row) -> Attempt:
    """An attempt from the columns ``ATTEMPT``."""
    rollout_id, number, status, worker_id, started_at, lease_until, finished_at, error = row
    return Attempt(
        rollout_id=rollout_id,
        number=number,
        status=status,
        worker_id=worker_id,
        started_at=started_at,
        lease_until=lease_until,
        finished_at=finished_at,
        error=error,
    )


def span_row(span: Span, call: bytes | None) -> Row:
    """The columns ``SPAN``, the last of them the packed call."""
    return (
        span.rollout_id,
        span.attempt,
        span.span_id,
        span.parent_id,
        span.trace_id,
        span.kind,
        span.name,
        span.status,
        span.start_ns,
        span.end_ns,
        text(span.attributes) if span.attributes else _EMPTY,
        text(span.events) if span.events else None,
        call,
    )


def key_in(row: Row) -> AttemptKey:
    """The attempt of a row of ``seq`` and the columns ``SPAN``."""
    return AttemptKey(row[1], row[2])


def span_id_in(row: Row) -> str:
    """The span id of such a row."""
    return str(row[3])


def call_in(row: Row) -> bytes | None:
    """The packed call of such a row."""
    call: bytes | None = row[-1]
    return call


def span_of(row: Row, call: LLMCall | None) -> Span:
    """A span from such a row and its call."""
    (
        seq,
        rollout_id,
        attempt,
        span_id,
        parent_id,
        trace_id,
        kind,
        name,
        status,
        start_ns,
        end_ns,
        attributes,
        events,
        _,
    ) = row
    return Span(
        index=seq,
        rollout_id=rollout_id,
        attempt=attempt,
        span_id=span_id,
        parent_id=parent_id,
        trace_id=trace_id,
        kind=kind,
        name=name,
        status=status,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes={} if attributes == _EMPTY else from_json(attributes, dict),
        events=() if events is None else from_json(events, tuple[SpanEvent, ...]),
        call=call,
    )


@lru_cache(maxsize=256)
def _config_text(config: RolloutConfig) -> str:
    return text(config)


@lru_cache(maxsize=256)
def _config_of(config: str) -> RolloutConfig:
    return from_json(config, RolloutConfig)
