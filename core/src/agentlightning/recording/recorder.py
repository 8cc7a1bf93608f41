"""The recorder: all an adapter may use. It opens and closes spans and never raises."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeGuard

from agentlightning import semconv
from agentlightning.llm_api import as_name, error_message, scrub, scrub_body, scrub_text
from agentlightning.recording.context import (
    Frame,
    RolloutContext,
    current_rollout,
    current_span,
    enter_agent_frame,
    enter_span_frame,
)
from agentlightning.recording.guard import never_raises
from agentlightning.recording.ids import new_span_id
from agentlightning.records import JSON, Span, SpanEvent, SpanKind, SpanStatus

AgentToken = Frame
"""What :meth:`Recorder.enter_agent` returns."""


class SpanHandle:
    """A span under way. Every method may be called from any thread and never raises.

    Made by :meth:`Recorder.start`. One that belongs to no rollout is inert: it takes everything and
    records nothing.
    """

    def __init__(
        self,
        context: RolloutContext | None,
        kind: SpanKind,
        name: str,
        *,
        parent_id: str | None = None,
        frame: Frame | None = None,
        key: Hashable = None,
    ) -> None:
        self.span_id: Final = frame.value if frame else new_span_id()
        self._context = context
        self._kind = kind
        self._name = name
        self._parent_id = parent_id
        self._frame = frame
        self._key = key
        self._start_ns = time.time_ns()
        self._attributes: dict[str, JSON] = {}
        self._events: list[SpanEvent] = []
        self._status: SpanStatus = "ok"
        self._lock = threading.Lock()

    @property
    def frame(self) -> Frame | None:
        """Its place in the nesting of open spans; None for an inert handle."""
        return self._frame

    @never_raises(lambda: None)
    def set(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes; values that are not JSON are kept as text."""
        cleaned = scrub_body(attributes)
        with self._lock:
            self._attributes.update(cleaned)

    @never_raises(lambda: None)
    def tool_result(self, value: Any) -> None:
        """Record what a tool returned."""
        self.set({semconv.TOOL_RESULT: value})

    @never_raises(lambda: None)
    def error(self, exc: BaseException | str) -> None:
        """Mark the span as failed and record why; it still has to be ended."""
        event = exception_event(exc) if _is_exception(exc) else None
        with self._lock:
            self._status = "error"
            if event is not None:
                self._events.append(event)
            else:
                self._attributes[semconv.EXCEPTION_MESSAGE] = as_name(exc)

    @never_raises(lambda: None)
    def end(self) -> None:
        """Close the span and hand it to the sink; only the first call counts."""
        with self._lock:
            context, self._context = self._context, None
        if self._frame is not None:
            self._frame.left = True
        if context is None:
            return
        context.life.open_spans.pop(self._key, None)
        context.sink.add(self._finished(context))

    def abandon(self) -> None:
        """End a span that nobody ended before its attempt was over, and say so."""
        with self._lock:
            self._attributes[semconv.UNFINISHED] = True
            self._status = "unset" if self._status == "ok" else self._status
        self.end()

    def _finished(self, context: RolloutContext) -> Span:
        return Span(
            rollout_id=context.key.rollout_id,
            attempt=context.key.number,
            span_id=self.span_id,
            trace_id=context.trace_id,
            parent_id=self._parent_id,
            kind=self._kind,
            name=self._name,
            start_ns=self._start_ns,
            end_ns=time.time_ns(),
            status=self._status,
            attributes=self._attributes,
            events=tuple(self._events),
        )


def _inert() -> SpanHandle:
    return SpanHandle(None, "other", "")


def _unknown() -> SpanHandle | None:
    return None


class Recorder:
    """Records spans into the rollout the calling code belongs to; outside one it does nothing.

    A key is the framework's own id of a run, so that the callback that ends it finds the span. Keys
    are looked up in the current rollout only.
    """

    @never_raises(_inert)
    def start(
        self,
        kind: SpanKind,
        name: str,
        *,
        key: Hashable = None,
        parent: SpanHandle | Hashable | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> SpanHandle:
        """Open a span and make it the current one for what follows in this task or thread.

        Args:
            kind: the kind of step.
            name: what people read, such as the tool's name.
            key: the framework's own id of this run, for :meth:`get` and as a later ``parent``.
            parent: a handle or the key of an open span; None or an unknown key = the current span.
            attributes: first attributes of the span.
        """
        context = current_rollout()
        if context is None:
            return _inert()
        if context.life.phase == "over":
            context.life.count_late("span")
            return _inert()
        above = self._handle(context, parent)
        parent_id = above.span_id if above else current_span()
        frame = enter_span_frame(new_span_id(), above.frame if above else None)
        held = key if key is not None else frame
        handle = SpanHandle(context, kind, as_name(name), parent_id=parent_id, frame=frame, key=held)
        if attributes:
            handle.set(attributes)
        context.life.open_spans[held] = handle
        return handle

    @never_raises(_unknown)
    def get(self, key: Hashable) -> SpanHandle | None:
        """The open span of that key in the current rollout."""
        context = current_rollout()
        return context.life.open_spans.get(key) if context else None

    @contextmanager
    def agent(self, name: str) -> Iterator[None]:
        """Run the body as agent ``name``: LLM calls are recorded as its own."""
        token = self.enter_agent(name)
        try:
            yield
        finally:
            self.leave_agent(token)

    @never_raises(lambda: Frame("", None))
    def enter_agent(self, name: str) -> AgentToken:
        """Make ``name`` the current agent, for frameworks that tell start and end apart."""
        return enter_agent_frame(as_name(name))

    @never_raises(lambda: None)
    def leave_agent(self, token: AgentToken) -> None:
        """End what :meth:`enter_agent` began, from any task or thread, in any order."""
        token.left = True

    def _handle(
        self, context: RolloutContext, parent: SpanHandle | Hashable | None
    ) -> SpanHandle | None:
        if parent is None or isinstance(parent, SpanHandle):
            return parent if parent is not None and parent.frame is not None else None
        return context.life.open_spans.get(parent)


def _is_exception(value: object) -> TypeGuard[BaseException]:
    """By its type alone: an object may have a ``__class__`` that raises."""
    return issubclass(type(value), BaseException)


def exception_event(exc: BaseException) -> SpanEvent:
    """An exception as the span event OpenTelemetry describes, without secrets."""
    trace = "".join(traceback.format_exception(exc))
    return SpanEvent(
        name="exception",
        time_ns=time.time_ns(),
        attributes={
            semconv.EXCEPTION_TYPE: f"{type(exc).__module__}.{type(exc).__qualname__}",
            semconv.EXCEPTION_MESSAGE: scrub(error_message(exc)),
            semconv.EXCEPTION_STACKTRACE: scrub(scrub_text(trace)),
        },
    )
