"""Replies that may have been lost on their way, kept for a client that tries again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Sized(Protocol):
    """Something whose bytes can be counted and let go."""

    size: int

    def let_go(self) -> None:
        """Free the bytes."""


class Kept:
    """The newest replies, up to a number of bytes; older ones are let go.

    Args:
        limit_bytes: of all of them together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: OrderedDict[int, Sized] = OrderedDict()
        self._size = 0

    def add(self, reply: Sized) -> None:
        """Keep a reply, at the cost of the oldest."""
        self._held[id(reply)] = reply
        self._size += reply.size
        while self._size > self._limit:
            _, oldest = self._held.popitem(last=False)
            self._size -= oldest.size
            oldest.let_go()
