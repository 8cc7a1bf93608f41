"""Carries the rollout into threads, which contextvars do not do by themselves."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from agentlightning.recording.context import current_rollout
from agentlightning.recording.patching import Patch


def _start(original: Callable[[threading.Thread], None], thread: threading.Thread) -> None:
    if current_rollout() is not None:
        context, run = contextvars.copy_context(), thread.run

        def run_in_context() -> None:
            del thread.run  # the thread looks untouched again
            context.run(run)

        thread.run = run_in_context  # type: ignore[method-assign]
    original(thread)


def _submit(
    original: Callable[..., Future[Any]],
    pool: ThreadPoolExecutor,
    function: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Future[Any]:
    context = contextvars.copy_context()
    # In an empty context, so that a pool's thread belongs to no rollout, only its tasks do.
    return contextvars.Context().run(original, pool, context.run, function, *args, **kwargs)


_patches: Final = (
    Patch(threading.Thread, "start", _start),
    Patch(ThreadPoolExecutor, "submit", _submit),
)
_installs = 0
_lock: Final = threading.Lock()


def install() -> None:
    """Make threads and pool tasks belong to the rollout that starts them; installs are counted."""
    global _installs  # noqa: PLW0603 - one patch a process, whoever asks
    with _lock:
        _installs += 1
        if _installs == 1:
            for patch in _patches:
                patch.apply()


def uninstall() -> None:
    """Undo one :func:`install`; the last one restores the originals."""
    global _installs  # noqa: PLW0603
    with _lock:
        if _installs == 0:
            return
        _installs -= 1
        if _installs == 0:
            for patch in _patches:
                patch.remove()
