"""The contract of an executor: what runs the runner's loop, several at a time."""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NoReturn, Protocol, runtime_checkable

from agentlightning.records import JSON

EXIT_STUCK: Final = 75
"""Exit code of a worker process whose agents all hang; its executor replaces it."""


class Executor(ABC):
    """Runs ``count`` copies of a worker. Registered as ``executor(**options)``.

    A worker that raises stops the others, and :meth:`run` raises its error: nothing waits for ever for
    work that nobody does. A worker that is a :class:`Stoppable` is told when to end. An executor that
    was stopped runs nothing more; the next run takes a new one.

    Attributes:
        in_process: whether workers run in this process, so that the agent is imported here.
    """

    in_process: ClassVar[bool] = False

    def check(self, worker: Callable[[], None]) -> None:  # noqa: B027 - most can run anything
        """Raise what :meth:`run` would raise of this worker before any is started; starts none."""

    @abstractmethod
    def run(self, worker: Callable[[], None], count: int) -> None:
        """Run ``worker`` (a claim, run, finish loop) ``count`` times at once; return when all ended.

        An executor with processes pickles ``worker``; one that cannot be pickled is an ``AgentError``
        that says what to hand in instead.
        """

    @abstractmethod
    def stop(self, deadline_s: float) -> None:
        """Ask all workers to end; after ``deadline_s`` seconds end them where that is possible."""

    def reports(self) -> Sequence[Mapping[str, JSON]]:
        """What a :class:`Reporting` worker told last, one report a process, ended ones included.

        Empty where an executor does not pass that on.
        """
        return ()


@runtime_checkable
class Stoppable(Protocol):
    """A worker that can be asked to end; the runner is one."""

    def __call__(self) -> None:
        """Work until there is no more to do, or :meth:`stop` is called from another thread."""

    def stop(self, deadline_s: float) -> None:
        """Begin nothing new, and give up what still runs after ``deadline_s`` seconds."""


@runtime_checkable
class Reporting(Protocol):
    """A worker that tells about itself; the runner is one."""

    def report(self) -> dict[str, JSON]:
        """Counts of what was done and of what went wrong; from any thread."""


def leave(code: int) -> NoReturn:
    """End this process without waiting for threads that agents left running."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


_in_worker_process = False


def enter_worker_process() -> None:
    """Say that this process was started by an executor; called by its first lines."""
    global _in_worker_process  # noqa: PLW0603 - a fact about the whole process
    _in_worker_process = True


def in_worker_process() -> bool:
    """Whether an executor started this process; a script that is imported here must start nothing."""
    return _in_worker_process
