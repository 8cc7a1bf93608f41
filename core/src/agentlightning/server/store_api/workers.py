"""The threads in which the store is called: its calls may wait for a disk or a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A few threads of one server's own.

    Args:
        count: calls that run at once; a further one waits for its turn.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="store")
        self._loop = asyncio.get_running_loop()

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Call something in a thread."""
        return self._loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """End the threads when they have finished what they are at."""
        self._pool.shutdown(wait=False, cancel_futures=True)
