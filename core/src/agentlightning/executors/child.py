"""The life of one worker process: receive the worker, run it in threads, end with the parent."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from agentlightning.executor import Executor, Reporting, enter_worker_process, leave
from agentlightning.executors.threads import ThreadExecutor
from agentlightning.records import JSON

logger = logging.getLogger("agentlightning.executors")

EXIT_FAILED: Final = 1
EXIT_ORPHANED: Final = 76
READY: Final = "ready"
"""Sent when the worker could be read; a process that dies before was started wrongly."""

_REPORT_EVERY_S: Final = 1.0
_BOOTSTRAP: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from agentlightning.executors.child import main; main(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Job:
    """What the parent sends first: the pickled worker, and how many threads are to run it."""

    worker: bytes
    threads: int


@dataclass(frozen=True)
class Stop:
    """What the parent may send later: end within so many seconds."""

    deadline_s: float


@dataclass(frozen=True)
class Report:
    """What is sent to the parent now and then: what the worker tells about itself."""

    counts: Mapping[str, JSON]


@dataclass(frozen=True)
class Failure:
    """What is sent to the parent when a worker raised: the error's class and its text."""

    kind: str
    text: str


def command(file_descriptor: int) -> list[str]:
    """How a child is started: a fresh interpreter that imports what it is told, and no more.

    ``multiprocessing`` would import the program's main script again in every child, with all that it
    imports, and would run it where it has no main guard.
    """
    return [sys.executable, "-c", _BOOTSTRAP, str(file_descriptor), *sys.path]


def main(file_descriptor: int) -> None:
    """Run as a worker process; does not return."""
    enter_worker_process()
    signal.signal(signal.SIGINT, lambda *_: None)  # the parent hears it too and says what to do
    os.set_inheritable(file_descriptor, False)
    parent = _Parent(Connection(file_descriptor))
    executor = ThreadExecutor()
    job: Job = parent.received()
    try:
        worker = pickle.loads(job.worker)  # noqa: S301 - our own parent wrote it
        parent.send(READY)
        threading.Thread(target=_obey, args=(parent, executor), name="parent", daemon=True).start()
        _work(parent, executor, worker, job.threads)
    except BaseException as error:
        logger.debug("a worker process failed", exc_info=True)
        parent.send(Failure(type(error).__name__, str(error)))
        leave(EXIT_FAILED)
    leave(0)


class _Parent:
    """The connection to the parent, for several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: object) -> None:
        """Tell the parent; one that is gone hears nothing, and :func:`_obey` is about to notice."""
        with self._sending, suppress(OSError):
            self._connection.send(message)

    def received(self) -> Any:
        """What the parent says; without one this process ends at once, leases bring its work back."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            leave(EXIT_ORPHANED)


def _work(parent: _Parent, executor: Executor, worker: Callable[[], None], threads: int) -> None:
    """Run the worker, and tell the parent how it is getting on."""
    if not isinstance(worker, Reporting):
        executor.run(worker, threads)
        return
    is_over = threading.Event()
    telling = threading.Thread(
        target=_tell, args=(parent, worker, is_over), name="reports", daemon=True
    )
    telling.start()
    try:
        executor.run(worker, threads)
    finally:
        is_over.set()
        telling.join()


def _tell(parent: _Parent, worker: Reporting, is_over: threading.Event) -> None:
    """Report now and then, and once more at the end."""
    while not is_over.wait(_REPORT_EVERY_S):
        parent.send(Report(worker.report()))
    parent.send(Report(worker.report()))


def _obey(parent: _Parent, executor: Executor) -> None:
    """End when the parent says so."""
    while True:
        executor.stop(parent.received().deadline_s)
