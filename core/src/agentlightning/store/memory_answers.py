"""Answers to calls with an idempotency key, in memory: by key, and in the order they were given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import Final

from agentlightning.store.tables import Answer

_SPARE: Final = 1000


class MemoryAnswers:
    """The answers to all operations."""

    def __init__(self) -> None:
        self._operations: defaultdict[str, _Answers] = defaultdict(_Answers)

    def put(self, operation: str, key: str, answer: Answer) -> None:
        """Keep one, after all there are."""
        self._operations[operation].put(key, answer)

    def get(self, operation: str, key: str) -> Answer | None:
        """One of them."""
        kept = self._operations.get(operation)
        return None if kept is None else kept.get(key)

    def page(self, operation: str, after: str | None, limit: int) -> list[tuple[str, Answer]]:
        """Those given after the one of a key; all if there is none of that key (any more)."""
        kept = self._operations.get(operation)
        return [] if kept is None else kept.page(after, limit)

    def drop(self, operation: str, keys: Iterable[str]) -> None:
        """Forget some."""
        self._operations[operation].drop(keys)


class _Answers:
    """The answers to one operation. What is dropped leaves a gap, which is closed in due time."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[int, Answer]] = {}
        self._keys: list[str | None] = []
        self._first = 0

    def put(self, key: str, answer: Answer) -> None:
        self._answers[key] = (len(self._keys), answer)
        self._keys.append(key)

    def get(self, key: str) -> Answer | None:
        found = self._answers.get(key)
        return None if found is None else found[1]

    def page(self, after: str | None, limit: int) -> list[tuple[str, Answer]]:
        start = self._answers[after][0] + 1 if after in self._answers else self._first
        later = (key for key in islice(self._keys, start, None) if key is not None)
        return [(key, self._answers[key][1]) for key in islice(later, limit)]

    def drop(self, keys: Iterable[str]) -> None:
        for key in keys:
            place, _ = self._answers.pop(key)
            self._keys[place] = None
        while self._first < len(self._keys) and self._keys[self._first] is None:
            self._first += 1
        if len(self._keys) > 2 * len(self._answers) + _SPARE:
            self._keys, self._first = list(self._answers), 0
            numbered = enumerate(self._answers.items())
            self._answers = {key: (place, answer) for place, (key, (_, answer)) in numbered}
