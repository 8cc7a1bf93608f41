"""The life of one worker process: receive the worker, run it in threads, end with the parent."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

from agentlightning.executor import Executor, enter_worker_process
from agentlightning.executors.threads import ThreadExecutor

logger = logging.getLogger("agentlightning.executors")

EXIT_FAILED: Final = 1
EXIT_ORPHANED: Final = 76
READY: Final = "ready"
"""Sent when the worker could be read; a process that dies before was started wrongly."""

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
    parent = Connection(file_descriptor)
    executor = ThreadExecutor()
    job: Job = _received(parent)
    try:
        worker = pickle.loads(job.worker)  # noqa: S301 - our own parent wrote it
        parent.send(READY)
        threading.Thread(target=_obey, args=(parent, executor), name="parent", daemon=True).start()
        executor.run(worker, job.threads)
    except BaseException as error:
        logger.debug("a worker process failed", exc_info=True)
        with suppress(OSError):  # the parent is gone, and _obey() is about to notice
            parent.send(Failure(type(error).__name__, str(error)))
        _leave(EXIT_FAILED)
    _leave(0)


def _obey(parent: Connection, executor: Executor) -> None:
    """End when the parent says so."""
    while True:
        executor.stop(_received(parent).deadline_s)


def _received(parent: Connection) -> Any:
    """What the parent says; without a parent this process ends at once, leases bring its work back."""
    try:
        return parent.recv()
    except (EOFError, OSError):
        _leave(EXIT_ORPHANED)


def _leave(code: int) -> NoReturn:
    """End without waiting for threads that agents left running."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
