"""The contract of an executor: what runs the runner's loop, several at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Executor(ABC):
    """Runs ``count`` copies of a worker. Registered as ``executor(**options)``."""

    @abstractmethod
    def run(self, worker: Callable[[], None], count: int) -> None:
        """Run ``worker`` (a claim, run, finish loop) ``count`` times at once; return when all ended.

        An executor with processes pickles ``worker``; one that cannot be pickled is an ``AgentError``
        that says what to hand in instead.
        """

    @abstractmethod
    def stop(self, deadline_s: float) -> None:
        """Ask all workers to end; after ``deadline_s`` seconds end them where that is possible."""
