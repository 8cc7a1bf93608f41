"""Two versions of rewards side by side: how far they agree, and where least."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import StatisticsError, correlation, fmean
from typing import Final, NamedTuple

_SHOWN: Final = 5


class Difference(NamedTuple):
    """A rollout on which two versions differ."""

    size: float
    rollout_id: str
    old: float
    new: float


@dataclass
class Comparison:
    """Outcomes of the same rollouts in two versions; None is unscored, in either."""

    _old: array[float] = field(default_factory=lambda: array("d"))
    _new: array[float] = field(default_factory=lambda: array("d"))
    _both: tuple[array[float], array[float]] = field(default_factory=lambda: (array("d"), array("d")))
    _widest: list[Difference] = field(default_factory=list)

    def add(self, rollout_id: str, old: float | None, new: float | None) -> None:
        """Take one rollout."""
        if old is not None:
            self._old.append(old)
        if new is not None:
            self._new.append(new)
        if old is not None and new is not None:
            self._both[0].append(old)
            self._both[1].append(new)
            if old != new:
                heapq.heappush(self._widest, Difference(abs(new - old), rollout_id, old, new))
                if len(self._widest) > _SHOWN:
                    heapq.heappop(self._widest)

    @property
    def old(self) -> tuple[int, float | None]:
        """How many the old version scored, and their mean."""
        return len(self._old), _mean(self._old)

    @property
    def new(self) -> tuple[int, float | None]:
        """How many the new version scored, and their mean."""
        return len(self._new), _mean(self._new)

    @property
    def both(self) -> int:
        """How many have a score in either."""
        return len(self._both[0])

    @property
    def correlation(self) -> float | None:
        """Pearson's, over those that have both; None where one of them is always the same."""
        try:
            return correlation(*self._both)
        except StatisticsError:
            return None

    @property
    def widest(self) -> list[Difference]:
        """The rollouts that they differ most on, the widest first."""
        return sorted(self._widest, reverse=True)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
