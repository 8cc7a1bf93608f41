"""Which rollout, agent and span the running code belongs to: contextvars of our own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agentlightning.records import AttemptKey, Resolver

if TYPE_CHECKING:
    from agentlightning.recording.sink import Sink

Phase = Literal["open", "cancelled", "over"]


class AttemptLife:
    """Whether an attempt still runs, and what came too late; shared by all its threads."""

    def __init__(self) -> None:
        self.phase: Phase = "open"
        self.late: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._seq = 0

    def next_seq(self) -> int:
        """The number of the next LLM call, in the order calls start."""
        with self._lock:
            self._seq += 1
            return self._seq

    def count_late(self, what: str) -> None:
        """Count something that arrived after the attempt was over and was not recorded."""
        with self._lock:
            self.late[what] += 1


@dataclass(frozen=True)
class RolloutContext:
    """Everything recording needs to know about the attempt the current code runs for.

    Attributes:
        resolve: decides the route of each LLM call.
        sink: takes finished spans; never blocks.
        strict: refuse LLM calls that nobody routed.
        root_span_id: the attempt's own span; parent of whatever has no other.
        endpoint_origin: where our endpoint is (``http://host:port``); calls that go there are recorded
            by it and not by the seam. None when the run serves no model.
    """

    key: AttemptKey
    run_id: str
    trace_id: str
    root_span_id: str
    resolve: Resolver
    sink: Sink
    strict: bool = False
    endpoint_origin: str | None = None
    life: AttemptLife = field(default_factory=AttemptLife)


_rollout: ContextVar[RolloutContext | None] = ContextVar("agentlightning_rollout", default=None)
_agent: ContextVar[str | None] = ContextVar("agentlightning_agent", default=None)
_span: ContextVar[str | None] = ContextVar("agentlightning_span", default=None)


def current_rollout() -> RolloutContext | None:
    """The rollout the running code belongs to; None outside one."""
    return _rollout.get()


def current_agent() -> str | None:
    """The name of the agent at work, as an adapter told it."""
    return _agent.get()


def current_span() -> str | None:
    """The id of the innermost open span; the attempt's own span when no other is open."""
    context = _rollout.get()
    return _span.get() or (context.root_span_id if context else None)


@contextmanager
def entered(context: RolloutContext) -> Iterator[RolloutContext]:
    """Run the body for ``context``; agent and span start afresh."""
    tokens = _rollout.set(context), _agent.set(None), _span.set(None)
    try:
        yield context
    finally:
        _rollout.reset(tokens[0])
        _agent.reset(tokens[1])
        _span.reset(tokens[2])
