"""Workers in several processes of this machine, which can be ended whatever their agents do."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Pipe, wait
from typing import Final

from agentlightning import errors
from agentlightning.errors import AgentError, AgentLightningError
from agentlightning.executor import EXIT_STUCK, Executor
from agentlightning.executors.child import READY, Failure, Job, Report, Stop, command
from agentlightning.executors.pickling import dumps
from agentlightning.records import JSON

logger = logging.getLogger("agentlightning.executors")

_INTERRUPT_DEADLINE_S: Final = 4.0
_AGENTS_SHARE: Final = 0.75
"""Part of a deadline that agents get; the rest is for writing what is recorded, and leaving."""
_CRASHES: Final = 5
_CRASH_WINDOW_S: Final = 60.0
_LOOK_S: Final = 1.0


class ProcessExecutor(Executor):
    """Splits the workers over processes, each a fresh interpreter with some threads.

    They end with this process, however it ends. One that crashes is replaced and reported, until that
    happens more than five times in a minute; its rollouts are queued again when their lease runs out.

    Args:
        processes: how many; None for as many as there are CPUs, never more than workers.
    """

    def __init__(self, processes: int | None = None) -> None:
        if processes is not None and processes < 1:
            raise AgentError(f"the executor 'processes' got processes={processes}; expected 1 or more")
        if os.name == "nt":
            raise AgentError("the executor 'processes' needs Linux or macOS; use 'threads'")
        self._processes = processes
        self._children: list[_Child] = []
        self._told: list[Mapping[str, JSON]] = []  # by processes that have ended
        self._stopping = False
        self._lock = threading.Lock()
        self._error: AgentLightningError | None = None
        self._crashes: deque[float] = deque(maxlen=_CRASHES + 1)

    def check(self, worker: Callable[[], None]) -> None:
        """Raise an ``AgentError`` if the worker can't be sent to a process."""
        dumps(worker)

    def run(self, worker: Callable[[], None], count: int) -> None:
        """Run the workers until all have ended.

        Raises:
            AgentError: the worker can't be sent to a process, or processes keep crashing.
            AgentLightningError: what a worker raised, by its own class where it is one of ours.
        """
        payload = dumps(worker)
        try:
            for threads in _shares(count, self._processes or os.cpu_count() or 1):
                self._start(Job(payload, threads))
            while self._children:
                wait([child.connection for child in self._children], _LOOK_S)
                for child in list(self._children):
                    if child.has_ended():
                        self._bury(child)
        except KeyboardInterrupt:
            self.stop(_INTERRUPT_DEADLINE_S)
            raise
        finally:
            self._kill()
        if self._error is not None:
            raise self._error

    def stop(self, deadline_s: float) -> None:
        """Ask the processes to end, and kill those that have not after ``deadline_s`` seconds."""
        end = time.monotonic() + deadline_s
        with self._lock:
            self._stopping = True
        for child in list(self._children):
            child.ask_to_stop(deadline_s * _AGENTS_SHARE)
        for child in list(self._children):
            child.end_by(end)

    def reports(self) -> Sequence[Mapping[str, JSON]]:
        """What each process told last; at most a second old while it runs."""
        with self._lock:
            return [*self._told, *(child.report for child in self._children)]

    def _start(self, job: Job) -> None:
        with self._lock:  # so that no process is started which stop() does not know of
            if not self._stopping:
                self._children.append(_Child(job))

    def _bury(self, child: _Child) -> None:
        """Decide what the end of a process means."""
        with self._lock:
            self._children.remove(child)
            self._told.append(child.report)
        child.connection.close()
        if child.failure is not None:
            self._give_up(_error_of(child.failure))
        elif child.process.returncode == 0 or self._stopping:
            return
        elif not child.is_ready:
            self._give_up(AgentError(f"{child} could not start: it {child.ending()}"))
        elif self._may_replace(child):
            self._start(child.job)

    def _may_replace(self, child: _Child) -> bool:
        if child.process.returncode == EXIT_STUCK:
            logger.warning("%s is replaced: all its agents hang", child)
            return True
        self._crashes.append(now := time.monotonic())
        if len(self._crashes) > _CRASHES and now - self._crashes[0] < _CRASH_WINDOW_S:
            self._give_up(
                AgentError(
                    f"worker processes keep crashing, {len(self._crashes)} in the last minute; the "
                    f"latest, {child}, {child.ending()}. Run the agent in the executor 'threads' to "
                    f"see why"
                )
            )
            return False
        logger.error(
            "%s %s; it is replaced, and its rollouts are run again when their lease runs out",
            child,
            child.ending(),
        )
        return True

    def _give_up(self, error: AgentLightningError) -> None:
        """Stop everything for the first error; those that follow come from stopping."""
        if self._error is None and not self._stopping:
            self._error = error
            self.stop(_INTERRUPT_DEADLINE_S)
        else:
            logger.warning("while the workers were being stopped: %s", error)

    def _kill(self) -> None:
        for child in self._children:
            child.end_by(0.0)
            child.has_ended()  # reads what it said last
        with self._lock:
            self._told += [child.report for child in self._children]
            self._children.clear()


class _Child:
    """One worker process and the connection to it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_ready = False
        self.failure: Failure | None = None
        self.report: Mapping[str, JSON] = {}
        self.connection, theirs = Pipe()
        self.process = subprocess.Popen(  # noqa: S603 - this very interpreter
            command(theirs.fileno()),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl+C in the terminal reaches the parent only
        )
        theirs.close()
        self._send(job)

    def __str__(self) -> str:
        return f"worker process {self.process.pid}"

    def has_ended(self) -> bool:
        """Tell whether it is gone, after reading all that it said."""
        is_gone = self.process.poll() is not None
        try:
            while self.connection.poll():
                message = self.connection.recv()
                self.is_ready = self.is_ready or message == READY
                if isinstance(message, Failure):
                    self.failure = message
                elif isinstance(message, Report):
                    self.report = message.counts
        except (EOFError, OSError):
            self.process.wait()
            return True
        return is_gone

    def ending(self) -> str:
        """How it ended, in words."""
        code = self.process.returncode
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name} (exit code {code})"
        return f"ended with exit code {code}"

    def ask_to_stop(self, deadline_s: float) -> None:
        """Let it end by itself."""
        self._send(Stop(deadline_s))

    def end_by(self, end: float) -> None:
        """Wait until ``end`` (monotonic seconds), then kill it."""
        try:
            self.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.warning("%s did not end in time and is killed", self)
            self.process.kill()
            self.process.wait()

    def _send(self, message: Job | Stop) -> None:
        try:
            self.connection.send(message)
        except OSError:
            logger.debug("%s is gone already", self)  # has_ended() tells how


def _shares(count: int, processes: int) -> Sequence[int]:
    """``count`` workers over at most ``processes`` processes, as evenly as it goes."""
    processes = min(processes, count)
    return [count // processes + (i < count % processes) for i in range(processes)]


def _error_of(failure: Failure) -> AgentLightningError:
    """The error a worker raised: ours by its class, any other as an ``AgentError``."""
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, AgentLightningError):
        return kind(failure.text)
    return AgentError(f"a worker process failed: {failure.kind}: {failure.text}")
