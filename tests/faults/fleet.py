"""Processes at work together, killed one after the other at random, each replaced at once."""

from __future__ import annotations

import random
from collections.abc import Callable

from nursery import Member


class Fleet:
    """So many processes of a kind at work; the nursery that bore them ends those that are left.

    Args:
        start: starts the process of that number, counted from 0.
        size: how many work at once.
        chance: whom to kill.
    """

    def __init__(self, start: Callable[[int], Member], size: int, chance: random.Random) -> None:
        self.started = 0
        self._start = start
        self._size = size
        self._chance = chance
        self._working: dict[int, Member] = {}
        self.refill()

    def kill_one(self) -> list[int]:
        """Kill -9 one at random; its number."""
        number = self._chance.choice(sorted(self._working))
        self._working.pop(number).kill()
        return [number]

    def kill_all(self) -> list[int]:
        """Kill -9 all, so that nobody is left; their numbers."""
        gone = sorted(self._working)
        for member in self._working.values():
            member.kill()
        self._working = {}
        return gone

    def refill(self) -> None:
        """Start others for those that were killed."""
        while len(self._working) < self._size:
            self._working[self.started] = self._start(self.started)
            self.started += 1

    def end(self) -> list[int]:
        """Wait until all have ended by themselves; their exit codes."""
        return [member.end() for member in self._working.values()]
