"""A framework so small that it fits on a page: an agent answers with what its tools say.

It stands for any framework that tells listeners when an agent or a tool starts and ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol


class Listener(Protocol):
    """What the framework tells; ``run`` is its own number of the agent or tool run."""

    def started(self, run: int, kind: str, name: str, given: str, parent: int | None) -> None: ...

    def ended(self, run: int, result: str | None, error: Exception | None) -> None: ...


listeners: list[Listener] = []
_numbers = itertools.count(1)


class Agent:
    """Answers a task with what the tools named in it say."""

    def __init__(self, name: str, tools: Mapping[str, Callable[[str], str]]) -> None:
        self.name = name
        self.tools = tools

    def run(self, task: str) -> str:
        """Run each tool whose name is a word of the task."""
        return _told("agent", self.name, task, None, self._answer)

    def _answer(self, task: str, run: int) -> str:
        words = [word for word in task.split() if word in self.tools]
        said = [
            _told("tool", word, task, run, lambda task, _, word=word: self.tools[word](task))
            for word in words
        ]
        return " ".join(said) or task


def _told(kind: str, name: str, given: str, parent: int | None, call: Callable[[str, int], str]) -> str:
    run = next(_numbers)
    for listener in listeners:
        listener.started(run, kind, name, given, parent)
    try:
        result = call(given, run)
    except Exception as error:
        for listener in listeners:
            listener.ended(run, None, error)
        raise
    for listener in listeners:
        listener.ended(run, result, None)
    return result
