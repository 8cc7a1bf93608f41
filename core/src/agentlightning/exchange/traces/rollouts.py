"""The spans of one trace, or of one session, as a rollout with its attempts and LLM calls."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast, get_args

from msgspec.structs import replace

from agentlightning import semconv
from agentlightning.errors import BadValue
from agentlightning.exchange.traces.bodies import answered_by, asked_of
from agentlightning.exchange.traces.heap import Group
from agentlightning.exchange.traces.scores import reward_spans
from agentlightning.otlp import OURS, attempt_named, with_call
from agentlightning.records import (
    JSON,
    Attempt,
    AttemptStatus,
    Mode,
    Rollout,
    RolloutStatus,
    Span,
    SpanEvent,
    to_json,
)
from agentlightning.samples import CreditRules, outcome

WORKER: Final = "agl import"
GROUP: Final = "otel.trace"
"""The rollout's metadata key for the name of its group."""

_NS: Final = 1e9
_MOST_ATTEMPTS: Final = 1000
_SAID_ELSEWHERE: Final = (*OURS, semconv.MODE, semconv.STATUS, semconv.SEQ)
_OVER: Final[Mapping[str, tuple[RolloutStatus, AttemptStatus]]] = {
    "failed": ("failed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
    "succeeded": ("succeeded", "succeeded"),
}


@dataclass
class Rebuilt:
    """A rollout as it is imported."""

    rollout: Rollout
    attempts: list[Attempt]
    spans: list[Span]


@dataclass
class Rebuilder:
    """Makes rollouts of groups of spans.

    Attributes:
        run_id: the run they go into.
        rewards: the reward's name by the attribute that holds it.
        known: ids of rollouts that were imported before, by the name of their group.
        skipped: what was left out, counted by reason.
    """

    run_id: str
    rewards: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    def rebuilt(self, group: Group) -> Rebuilt | None:
        """The rollout of a group; None if none of its spans can be kept."""
        rollout_id = self.known.get(group.name) or _new_id(self.run_id, group)
        by_attempt: dict[int, list[Span]] = {}
        for span in self._numbered(group.spans, rollout_id):
            by_attempt.setdefault(span.attempt, []).append(span)
        if not by_attempt:
            return None
        last = max(by_attempt)
        attempts = [
            self._attempt(rollout_id, number, by_attempt.get(number, []))
            for number in range(1, last + 1)
        ]
        spans = {number: self._with_calls(found) for number, found in by_attempt.items()}
        rollout = self._rollout(attempts[-1], group, by_attempt[last], spans[last])
        return Rebuilt(rollout, attempts, [span for number in sorted(spans) for span in spans[number]])

    def _numbered(self, spans: Sequence[Span], rollout_id: str) -> Iterator[Span]:
        seen: set[tuple[int, str]] = set()
        for span in spans:
            try:
                key = attempt_named(span.attributes)
            except BadValue as error:
                self.skipped[str(error)] += 1
                continue
            number = 1 if key is None else key.number
            if number > _MOST_ATTEMPTS:
                self.skipped[f"spans of an attempt beyond number {_MOST_ATTEMPTS}"] += 1
            elif (number, span.span_id) in seen:
                self.skipped["spans with the id of another of their rollout"] += 1
            else:
                seen.add((number, span.span_id))
                yield replace(span, rollout_id=rollout_id, attempt=number)

    def _with_calls(self, spans: Sequence[Span]) -> list[Span]:
        """The spans of an attempt with their LLM calls and rewards, without what named the attempt."""
        by_id = {span.span_id: span for span in spans}
        is_ours = any(semconv.SEQ in span.attributes for span in spans)
        made: list[Span] = []
        told: set[str] = set()
        seq = 0
        for span in spans:
            kept = span
            if span.kind == "llm":
                seq += 1
                kept = self._call(span, seq, by_id, told, is_ours=is_ours)
            attributes = {
                name: value for name, value in kept.attributes.items() if name not in _SAID_ELSEWHERE
            }
            made.append(replace(kept, attributes=attributes))
        return [*made, *reward_spans(made, self.rewards, self.skipped)]

    def _call(
        self, span: Span, seq: int, by_id: Mapping[str, Span], told: set[str], *, is_ours: bool
    ) -> Span:
        """An LLM span with its call; as structure only where another one has told of that call."""
        if is_ours and semconv.SEQ not in span.attributes:
            self.skipped["LLM spans of another tracer beside our own: kept as structure"] += 1
            return replace(span, kind="other")
        try:
            told_seq = span.attributes.get(semconv.SEQ)
            seq = told_seq if isinstance(told_seq, int) else seq
            made = with_call(span, seq=seq, agent=_agent(span, by_id))
        except BadValue as error:
            self.skipped[str(error)] += 1
            return span
        response_id = made.call.response_id if made.call else None
        if response_id is not None and response_id in told:
            self.skipped["LLM spans of a call that another span told of: kept as structure"] += 1
            return replace(span, kind="other")
        if response_id is not None:
            told.add(response_id)
        return made

    def _attempt(self, rollout_id: str, number: int, spans: Sequence[Span]) -> Attempt:
        if not spans:
            return Attempt(
                rollout_id=rollout_id, number=number, status="lost", worker_id=WORKER, started_at=0.0,
                lease_until=0.0, finished_at=0.0, error="no span of this attempt was in the files",
            )  # fmt: skip
        root = _root(spans)
        failed = root.status == "error"
        told = _OVER.get(str(root.attributes.get(semconv.STATUS)))
        ended = max(span.end_ns for span in spans) / _NS
        return Attempt(
            rollout_id=rollout_id,
            number=number,
            status="failed" if failed else told[1] if told else "succeeded",
            worker_id=WORKER,
            started_at=min(span.start_ns for span in spans) / _NS,
            lease_until=ended,
            finished_at=ended,
            error=_error(root) if failed else None,
        )

    def _rollout(
        self, attempt: Attempt, group: Group, told: Sequence[Span], spans: Sequence[Span]
    ) -> Rollout:
        root = _root(told)
        if root.parent_id is not None:
            self.skipped[
                "rollouts without a root span in the files: their first span counts as it"
            ] += 1
        calls = [span.call for span in spans if span.call is not None]
        mode = root.attributes.get(semconv.MODE)
        status = attempt.status if attempt.status in ("succeeded", "cancelled") else "failed"
        asked = asked_of(root, calls)
        rollout = Rollout(
            rollout_id=attempt.rollout_id,
            run_id=self.run_id,
            group_id=_task_id(asked),
            input=asked,
            mode=cast("Mode", mode) if mode in get_args(Mode) else "train",
            status=status,
            created_at=min(span.start_ns for span in group.spans) / _NS,
            output=answered_by(root, calls) if status == "succeeded" else None,
            metadata=_metadata(root, group),
            finished_at=attempt.finished_at,
            attempt=attempt.number,
        )
        return replace(rollout, reward=outcome(rollout, spans, CreditRules()))


def _new_id(run_id: str, group: Group) -> str:
    """The same whenever the same is read; it begins with the time, as stores' own ids do."""
    began_ms = group.spans[0].start_ns // 1_000_000
    return f"ro-{began_ms:012x}{hashlib.sha256(f'{run_id}/{group.name}'.encode()).hexdigest()[:10]}"


def _task_id(asked: JSON) -> str:
    """The same for all rollouts on one task, so that the best of each can be chosen."""
    return f"task-{hashlib.sha256(to_json(asked)).hexdigest()[:22]}"


def _root(spans: Sequence[Span]) -> Span:
    """The span without a parent; else the first whose parent is elsewhere."""
    known = {span.span_id for span in spans}
    without = [span for span in spans if span.parent_id is None]
    return (without or [span for span in spans if span.parent_id not in known] or list(spans))[0]


def _agent(span: Span, by_id: Mapping[str, Span]) -> str | None:
    """The agent that a span names, or the nearest agent above it that has a name of its own."""
    seen: set[str] = set()
    above: Span | None = span
    while above is not None and above.span_id not in seen:
        seen.add(above.span_id)
        if above.kind in ("agent", "llm") and (name := above.attributes.get(semconv.AGENT_NAME)):
            return str(name)
        if semconv.SEQ in above.attributes:  # ours, and no agent was known
            return None
        above = by_id.get(above.parent_id or "")
    return None


def _metadata(root: Span, group: Group) -> dict[str, JSON]:
    resource = root.attributes.get("otel.resource")
    service = resource.get("service.name") if isinstance(resource, dict) else None
    told: dict[str, JSON] = {
        semconv.AGENT_NAME: root.attributes.get(semconv.AGENT_NAME) or root.name,
        GROUP: group.name,
        "service.name": service,
    }
    return {name: value for name, value in told.items() if value is not None}


def _error(root: Span) -> str:
    found: list[SpanEvent] = [
        event for event in root.events if semconv.EXCEPTION_MESSAGE in event.attributes
    ]
    if found:
        told = found[-1].attributes
        return f"{told.get(semconv.EXCEPTION_TYPE, 'error')}: {told[semconv.EXCEPTION_MESSAGE]}"
    return str(root.attributes.get("otel.status_description") or "its root span failed")
