"""Carries the rollout into threads, which contextvars do not do by themselves."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.pool import Pool, ThreadPool
from typing import Any, Final

from agentlightning.recording.context import current_rollout
from agentlightning.recording.patching import Patch


def _start(original: Callable[[threading.Thread], None], thread: threading.Thread) -> None:
    if current_rollout() is not None and not _is_ours(thread):
        context, run = contextvars.copy_context(), thread.run

        def run_in_context() -> None:
            del thread.run  # the thread looks untouched again
            context.run(run)

        thread.run = run_in_context  # type: ignore[method-assign]
    original(thread)


def _is_ours(thread: threading.Thread) -> bool:
    """Whether a thread runs this package's own code: a server, a writer; they outlive the rollout.

    What the endpoint sends to its models would else be an LLM call of whoever made it start.
    """
    target = getattr(thread, "_target", None)  # nothing public tells it
    return str(getattr(target, "__module__", "")).startswith("agentlightning.")


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


def _hand_out(
    original: Callable[..., Any],
    pool: Pool,
    func: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    # Tasks of a pool of processes are sent by pickle, and belong to no thread.
    task = _in_this_context(func) if isinstance(pool, ThreadPool) else func
    return original(pool, task, *args, **kwargs)


def _in_this_context(function: Callable[..., Any]) -> Callable[..., Any]:
    context = contextvars.copy_context()

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        return context.copy().run(function, *args, **kwargs)  # one context runs one task at a time

    return run


_POOL_METHODS: Final = ("apply_async", "map", "map_async", "starmap", "starmap_async", "imap",
                        "imap_unordered")  # fmt: skip
_patches: Final = (
    Patch(threading.Thread, "start", _start),
    Patch(ThreadPoolExecutor, "submit", _submit),
    *(Patch(Pool, method, _hand_out) for method in _POOL_METHODS),
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
