"""The threads in which the store is called: its calls may wait for a disk or a network.

Not ``run_in_executor``, because each request waits for such a call: its two kinds of future for a call
and a wake-up of the event loop for each result cost half as much again as the rest of a request.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_END_S: Final = 5.0

_Job: TypeAlias = tuple[asyncio.Future[Any], Callable[[], Any]]
_Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]


class Workers:
    """A few threads of one server's own; made and used on its event loop.

    Args:
        count: calls that run at once; a further one waits for its turn.
    """

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._outcomes: list[_Outcome] = []
        self._threads = [
            threading.Thread(target=self._work, name=f"store-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Call something in a thread."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((future, lambda: call(*args, **kwargs)))
        return future

    def close(self) -> None:
        """End the threads when they have finished what they are at, or after a while without them."""
        for _thread in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.cancelled():  # nobody asks any more
                continue
            try:
                self._report(future, call(), None)
            except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
                self._report(future, None, error)

    def _report(self, *outcome: *_Outcome) -> None:
        with self._lock:
            self._outcomes.append(outcome)
            is_first = len(self._outcomes) == 1
        if is_first and not self._loop.is_closed():  # the others come along with it
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        for future, result, error in outcomes:
            if future.done():  # cancelled meanwhile
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
