"""A figure, and how one is taken: repeated, and the median kept."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec


class Figure(NamedTuple):
    """One measured number."""

    metric: str
    value: float
    unit: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as it is printed: one JSON object a line."""

    bench: str = "store"
    case: str
    tool: str = "agentlightning"
    metric: str
    value: float
    unit: str

    @classmethod
    def of(cls, case: str, figure: Figure) -> Line:
        """The line of a figure that was measured for ``case``, to six digits."""
        value = float(f"{figure.value:.6g}")
        return cls(case=case, metric=figure.metric, value=value, unit=figure.unit)


@dataclass
class Stopwatch:
    """Adds up the time of what is run through it, and leaves out what lies between."""

    seconds: float = 0.0

    def time(self, work: Callable[[], object]) -> None:
        """Run ``work`` and count its time."""
        started = time.perf_counter()
        work()
        self.seconds += time.perf_counter() - started


def median_rate(count: int, repeats: int, once: Callable[[], float]) -> float:
    """``count`` things by the median of what doing them took, in seconds, over some repeats."""
    return count / statistics.median(once() for _ in range(repeats))


def named(size: int) -> str:
    """10,000 as ``10k`` and 1,000,000 as ``1m``."""
    if size % 1_000_000 == 0:
        return f"{size // 1_000_000}m"
    return f"{size // 1000}k"


def progress(text: str) -> None:
    """Tell a person what goes on; standard output belongs to the figures."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
