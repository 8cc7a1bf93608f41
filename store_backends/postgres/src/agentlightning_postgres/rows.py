"""Records to rows and back: one tuple a row, JSON as PostgreSQL's ``json``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

from agentlightning.records import (
    JSON,
    Attempt,
    LLMCall,
    Rollout,
    RolloutConfig,
    Run,
    Span,
    from_json,
    to_json,
)
from msgspec.structs import replace

from agentlightning_postgres.text import unescaped

Row: TypeAlias = tuple[Any, ...]

RUN: Final = "run_id, name, status, endpoint_url, created_at, config"
ROLLOUT: Final = (
    "rollout_id, run_id, group_id, mode, status, priority, attempt, resources_version, reward, "
    "created_at, finished_at, input, output, config, metadata"
)
ATTEMPT: Final = "rollout_id, number, status, worker_id, started_at, lease_until, finished_at, error"
SPAN: Final = "rollout_id, attempt, span_id, kind, record, call"
_EMPTY: Final = "{}"


def places(columns: str) -> str:
    """A placeholder a column."""
    return ", ".join(["%s"] * (columns.count(",") + 1))


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
        run_id=unescaped(run_id),
        name=unescaped(name),
        status=status,
        endpoint_url=_unescaped(endpoint_url),
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
        rollout_id=unescaped(rollout_id),
        run_id=unescaped(run_id),
        group_id=_unescaped(group_id),
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


def attempt_row(attempt: Attempt) -> Row:
    """The columns ``ATTEMPT``."""
    return (
        attempt.rollout_id,
        attempt.number,
        attempt.status,
        attempt.worker_id,
        attempt.started_at,
        attempt.lease_until,
        attempt.finished_at,
        attempt.error,
    )


def attempt_of(row: Row) -> Attempt:
    """An attempt from the columns ``ATTEMPT``."""
    rollout_id, number, status, worker_id, started_at, lease_until, finished_at, error = row
    return Attempt(
        rollout_id=unescaped(rollout_id),
        number=number,
        status=status,
        worker_id=unescaped(worker_id),
        started_at=started_at,
        lease_until=lease_until,
        finished_at=finished_at,
        error=_unescaped(error),
    )


def span_row(span: Span, call: bytes | None) -> Row:
    """The columns ``SPAN``."""
    bare = span if span.call is None else replace(span, call=None)
    return (span.rollout_id, span.attempt, span.span_id, span.kind, text(bare), call)


def span_of(record: str, seq: int, call: LLMCall | None) -> Span:
    """A span from its record, its place in the order of arrival, and its call."""
    return replace(from_json(record, Span), index=seq, call=call)


def _unescaped(value: str | None) -> str | None:
    return None if value is None else unescaped(value)


@lru_cache(maxsize=256)
def _config_text(config: RolloutConfig) -> str:
    return text(config)


@lru_cache(maxsize=256)
def _config_of(config: str) -> RolloutConfig:
    return from_json(config, RolloutConfig)
