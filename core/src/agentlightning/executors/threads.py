"""Workers in threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from agentlightning.executor import Executor, Reporting, Stoppable
from agentlightning.records import JSON

_INTERRUPT_DEADLINE_S: Final = 3.0
_LAST_WORDS_S: Final = 1.0
"""What workers get after that, to write what is recorded."""


class ThreadExecutor(Executor):
    """Runs every worker in a thread of its own; an agent that hangs can't be ended.

    The threads are daemons: at the end of the program they do not hold it up.
    """

    in_process: ClassVar[bool] = True

    def __init__(self) -> None:
        self._stopping = False
        self._worker: Callable[[], None] | None = None
        self._errors: list[BaseException] = []
        self._at_work = 0
        # Not Thread.join(): interrupted by Ctrl+C it takes threads that go on for ended (3.11, 3.12).
        self._ended = threading.Condition()

    def run(self, worker: Callable[[], None], count: int) -> None:
        """Run the workers; the first error of one stops the others and is raised at the end."""
        self._worker, self._errors = worker, []
        if self._stopping:
            return
        self._at_work = count
        try:
            for i in range(count):
                threading.Thread(
                    target=self._work, args=(worker,), name=f"worker-{i}", daemon=True
                ).start()
            self._wait()
        except KeyboardInterrupt:
            self.stop(_INTERRUPT_DEADLINE_S)
            self._wait(_LAST_WORDS_S)
            raise
        if self._errors:
            raise self._errors[0]

    def stop(self, deadline_s: float) -> None:
        """Ask the workers to end, and wait for them until the deadline."""
        end = time.monotonic() + deadline_s
        self._stopping = True
        if isinstance(self._worker, Stoppable):
            self._worker.stop(deadline_s)
        self._wait(max(0.0, end - time.monotonic()))

    def reports(self) -> Sequence[Mapping[str, JSON]]:
        """What the workers, which share a process, tell now."""
        return [self._worker.report()] if isinstance(self._worker, Reporting) else []

    def _wait(self, timeout_s: float | None = None) -> None:
        with self._ended:
            self._ended.wait_for(lambda: self._at_work == 0, timeout_s)

    def _work(self, worker: Callable[[], None]) -> None:
        try:
            if not self._stopping:
                worker()
        except BaseException as error:  # noqa: BLE001 - raised by run(), in the caller's thread
            self._errors.append(error)
            if isinstance(worker, Stoppable):
                worker.stop(0)
        finally:
            with self._ended:
                self._at_work -= 1
                self._ended.notify_all()
