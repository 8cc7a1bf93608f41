"""One event loop a process, on a thread of its own, kept alive: all async agents share it.

Clients that frameworks cache (an ``httpx.AsyncClient`` with open connections) break when the loop they
were used on is closed, so a loop for each rollout is not an option.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading

logger = logging.getLogger("agentlightning.runner")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def shared_loop() -> asyncio.AbstractEventLoop:
    """The process's loop for agents, started at the first call; it lives as long as the process."""
    global _loop  # noqa: PLW0603 - one a process is the point
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=_run, args=(_loop,), name="agentlightning-agents", daemon=True
            )
            # An empty context: the loop outlives the rollout that happens to start it.
            contextvars.Context().run(thread.start)
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            # asyncio lets these two out of the loop when a task that an agent started raises them; the
            # task keeps the exception, and the other rollouts' tasks go on.
            logger.warning("a background task of an agent raised %s", type(error).__name__)
