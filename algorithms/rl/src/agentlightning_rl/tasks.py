"""Which tasks come next: every task once an epoch, each epoch in a new order."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentlightning.records import JSON


class TaskSampler:
    """Draws tasks without replacement, reshuffled each epoch.

    What is drawn depends on the seed and the position alone, so a restarted run draws the same.
    """

    def __init__(self, tasks: Sequence[JSON], seed: int) -> None:
        self._tasks = tasks
        self._seed = seed
        self._shuffled: tuple[int, list[int]] = (-1, [])

    def draw(self, position: int, count: int) -> list[JSON]:
        """The ``count`` tasks after the first ``position``; an epoch may end among them."""
        return [self._task(position + offset) for offset in range(count)]

    def _task(self, position: int) -> JSON:
        epoch, place = divmod(position, len(self._tasks))
        return self._tasks[self._order(epoch)[place]]

    def _order(self, epoch: int) -> list[int]:
        if self._shuffled[0] != epoch:
            order = list(range(len(self._tasks)))
            random.Random(f"{self._seed}-{epoch}").shuffle(order)  # noqa: S311 - not for secrets
            self._shuffled = (epoch, order)
        return self._shuffled[1]
