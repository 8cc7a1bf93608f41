"""Which rollout, agent and span the running code belongs to: contextvars of our own.

Agents and spans are frames that are marked as left, never reset by token: their end may be told in
another task or thread than their start (async generators, callbacks), and whoever still carries a
frame that was left simply sees the one outside it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agentlightning.records import AttemptKey, Resolver

if TYPE_CHECKING:
    from agentlightning.recording.open_call import OpenCall
    from agentlightning.recording.recorder import SpanHandle
    from agentlightning.recording.sink import Sink

Phase = Literal["open", "cancelled", "over"]


class AttemptLife:
    """Whether an attempt still runs, and what came too late; shared by all its threads.

    Attributes:
        phase: "cancelled" makes the next LLM call raise; "over" ends all recording.
        late: what came after the attempt was over and was not recorded, counted.
        refused: how many LLM calls strict mode refused.
        last_calls: the latest LLM call's span id by agent; a step reward belongs to it.
        open_spans: spans under way by their key, so that their end finds them.
        open_calls: LLM calls under way by their span id.
    """

    def __init__(self) -> None:
        self.phase: Phase = "open"
        self.late: Counter[str] = Counter()
        self.refused = 0
        self.last_calls: dict[str | None, str] = {}
        self.open_spans: dict[Hashable, SpanHandle] = {}
        self.open_calls: dict[str, OpenCall] = {}
        self._lock = threading.Lock()
        self._seq = 0

    def next_seq(self) -> int:
        """The number of the next LLM call, in the order calls start."""
        with self._lock:
            self._seq += 1
            return self._seq

    def count_refused(self) -> None:
        """Count an LLM call that strict mode refused."""
        with self._lock:
            self.refused += 1

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


class Frame:
    """An agent at work or a span under way, and the frame outside it."""

    __slots__ = ("left", "outer", "value")

    def __init__(self, value: str, outer: Frame | None) -> None:
        self.value = value
        self.outer = outer
        self.left = False


_rollout: ContextVar[RolloutContext | None] = ContextVar("agentlightning_rollout", default=None)
_agent: ContextVar[Frame | None] = ContextVar("agentlightning_agent", default=None)
_span: ContextVar[Frame | None] = ContextVar("agentlightning_span", default=None)


def _innermost(frame: Frame | None) -> Frame | None:
    while frame is not None and frame.left:
        frame = frame.outer
    return frame


def current_rollout() -> RolloutContext | None:
    """The rollout the running code belongs to; None outside one."""
    return _rollout.get()


def current_agent() -> str | None:
    """The name of the agent at work, as an adapter told it."""
    frame = _innermost(_agent.get())
    return frame.value if frame else None


def current_span() -> str | None:
    """The id of the innermost open span; the attempt's own span when no other is open."""
    frame = _innermost(_span.get())
    if frame is not None:
        return frame.value
    context = _rollout.get()
    return context.root_span_id if context else None


def enter_agent_frame(name: str) -> Frame:
    """Make ``name`` the current agent until its frame is marked as left."""
    frame = Frame(name, _innermost(_agent.get()))
    _agent.set(frame)
    return frame


def enter_span_frame(span_id: str, parent: Frame | None = None) -> Frame:
    """Make a span the current one until its frame is marked as left.

    Then the one that was current before is so again; ``parent`` where none was.
    """
    frame = Frame(span_id, _innermost(_span.get()) or parent)
    _span.set(frame)
    return frame


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
