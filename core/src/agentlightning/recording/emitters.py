"""What an agent may tell on its own: rewards, messages, objects, exceptions, operations.

Each adds a span to the rollout the code runs in. Outside a rollout nothing can be recorded; the first
such call of each kind is answered with a warning that says how to get one.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, cast

from agentlightning import semconv
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.context import (
    RolloutContext,
    current_agent,
    current_rollout,
    current_span,
)
from agentlightning.recording.guard import never_raises
from agentlightning.recording.recorder import Recorder, SpanHandle
from agentlightning.records import SpanKind

logger = logging.getLogger("agentlightning.recording")

P = ParamSpec("P")
T = TypeVar("T")

_recorder: Final = Recorder()
_warned: Final[set[str]] = set()


def emit_reward(
    value: float, *, name: str = "reward", agent: str | None = None, step: bool = False
) -> None:
    """Give the current rollout a reward.

    Args:
        value: a finite number, or a bool (1.0 or 0.0).
        name: the reward dimension; ``"reward"`` is the one that counts by default.
        agent: the agent it belongs to; the current one if it is a step's.
        step: the reward of the latest LLM call (of that agent) instead of the whole rollout's.

    Raises:
        RewardError: the value is not a finite number.
    """
    context = _context("emit_reward")
    if context is None:
        return
    agent = agent or (current_agent() if step else None)
    of_step = _latest_call(context, agent) if step else None
    context.sink.add(
        reward_span(context, value, name=name, source="emitted", agent=agent, span_id=of_step)
    )


def emit_message(body: Any) -> None:
    """Record a message, such as a note on what the agent is about to do."""
    _emit("emit_message", "message", "message", {semconv.MESSAGE_BODY: body})


def emit_object(obj: Any, *, name: str = "object") -> None:
    """Record any object; what is not JSON is kept as text."""
    _emit("emit_object", "object", name, {semconv.OBJECT_BODY: obj})


def emit_annotation(attributes: Mapping[str, Any], *, name: str = "annotation") -> None:
    """Record named values, such as the difficulty of the task."""
    _emit("emit_annotation", "annotation", name, attributes)


def emit_exception(exc: BaseException) -> None:
    """Record an exception that the agent dealt with itself."""
    if _context("emit_exception") is not None:
        handle = _recorder.start("exception", type(exc).__name__)
        handle.error(exc)
        handle.end()


class operation:  # noqa: N801 - used like a function
    """A named step of the agent, as a context manager or a decorator.

    As a decorator it also records arguments and result; coroutine functions work the same. What
    happens inside is recorded below it. An exception marks it as failed and goes on unchanged.

    Args:
        name: what people read.
        attributes: further values to record.

    Example:
        >>> with operation("search", query="llamas"):
        ...     ...
    """

    def __init__(self, name: str, **attributes: Any) -> None:
        self._name = name
        self._attributes = attributes
        self._handles: list[SpanHandle] = []

    def __enter__(self) -> Self:
        self._handles.append(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _end(self._handles.pop(), error)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Make every call of ``function`` such a step."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                handle = self._start(function, args, kwargs)
                try:
                    result = await function(*args, **kwargs)
                except BaseException as error:
                    _end(handle, error)
                    raise
                handle.set({semconv.OPERATION_OUTPUT: result})
                _end(handle, None)
                return result

            return cast("Callable[P, T]", awaited)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            handle = self._start(function, args, kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                _end(handle, error)
                raise
            handle.set({semconv.OPERATION_OUTPUT: result})
            _end(handle, None)
            return result

        return called

    def _start(
        self,
        function: Callable[..., Any] | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> SpanHandle:
        _context("operation")
        handle = _recorder.start("operation", self._name, attributes=self._attributes)
        if function is not None:
            _set_arguments(handle, function, args, kwargs or {})
        return handle


def _emit(function: str, kind: SpanKind, name: str, attributes: Mapping[str, Any]) -> None:
    if _context(function) is not None:
        _recorder.start(kind, name, attributes=attributes).end()


def _context(function: str) -> RolloutContext | None:
    """The current rollout; outside one, None and one warning."""
    context = current_rollout()
    if context is None and function not in _warned:
        _warned.add(function)
        logger.warning(
            "agl.%s was called outside a rollout, so there is nowhere to record it. Run the agent "
            "with Trainer.fit, or inside `with agl.Tracer().trace(agent):`",
            function,
        )
    if context is not None and context.life.phase == "over" and function == "emit_reward":
        context.life.count_late("reward")
        return None
    return context


def _latest_call(context: RolloutContext, agent: str | None) -> str | None:
    """The span a step's reward belongs to: the agent's latest LLM call, else the current span."""
    return context.life.last_calls.get(agent) or current_span()


@never_raises(lambda: None)
def _set_arguments(
    handle: SpanHandle,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    bound = inspect.signature(function).bind_partial(*args, **kwargs)
    handle.set({semconv.OPERATION_INPUT: bound.arguments})


def _end(handle: SpanHandle, error: BaseException | None) -> None:
    if error is not None:
        handle.error(error)
    handle.end()
