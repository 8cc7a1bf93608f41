"""Our own faults inside a user's agent: logged and counted, never raised into it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

logger = logging.getLogger("agentlightning.recording")

P = ParamSpec("P")
T = TypeVar("T")

_counts: Counter[str] = Counter()
_lock = threading.RLock()  # a fault may be reported while garbage is collected in here


def report_fault(what: str, error: BaseException) -> None:
    """Count a fault of ours and log it; the first of its kind with its traceback."""
    with _lock:
        _counts[what] += 1
        first = _counts[what] == 1
    logger.warning(
        "recording failed in %s (%s: %s); the agent runs on, this step is missing from its record",
        what,
        type(error).__name__,
        error,
        exc_info=error if first else None,
    )


def faults() -> dict[str, int]:
    """How often recording failed in this process, by place."""
    with _lock:
        return dict(_counts)


def never_raises(default: Callable[[], T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function report its faults and return ``default()`` instead of raising."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the agent must run on whatever fails in here
                report_fault(function.__qualname__, error)
                return default()

        return guarded

    return decorate
