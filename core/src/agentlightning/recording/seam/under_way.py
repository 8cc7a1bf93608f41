"""The call under way: opened by one seam, and known to the other, so that nothing is told twice."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Final, TypeVar

from agentlightning.errors import MissingKey, RolloutCancelled, UnroutedCall
from agentlightning.recording.context import RolloutContext
from agentlightning.recording.guard import report_fault
from agentlightning.recording.open_call import OpenCall

T = TypeVar("T")

_current: Final[ContextVar[OpenCall | None]] = ContextVar("agentlightning_call", default=None)


def call_under_way() -> OpenCall | None:
    """The call whose request the running code is sending."""
    return _current.get()


class UnderWay:
    """Makes ``call`` the one under way for a ``with`` body, and records it if the body fails.

    A class and no generator, so that an exception passes with its traceback untouched.
    """

    __slots__ = ("_call", "_outer")

    def __init__(self, call: OpenCall) -> None:
        self._call = call
        self._outer: OpenCall | None = None

    def __enter__(self) -> None:
        self._outer = _current.get()
        _current.set(self._call)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _current.set(self._outer)  # not reset by token: a coroutine may be closed in another context
        if error is not None:
            self._call.failed(error)
        elif not self._call.answered:
            told = "the client returned without a reply of the server"
            self._call.failed(told)


def decided(context: RolloutContext, prepare: Callable[[], T]) -> T | None:
    """What ``prepare`` returns; None if it fails by a fault of ours, which is reported.

    Raises:
        UnroutedCall: strict mode, and nobody decided, or the fault left the call without a decision.
        RolloutCancelled: the attempt was cancelled, timed out or is over.
        MissingKey: the request would carry the stand-in for a key to a server that is not ours.
    """
    try:
        return prepare()
    except (UnroutedCall, RolloutCancelled, MissingKey):
        raise
    except Exception as error:
        report_fault("the preparation of an LLM call", error)
        if context.strict:
            told = f"the LLM call could not be prepared ({type(error).__name__}: {error})"
            raise UnroutedCall(f"strict mode: {told}") from error
        return None
