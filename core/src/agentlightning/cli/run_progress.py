"""What ``agl run`` shows of its workers: a line that moves in a terminal, and the counts at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console

from agentlightning.executor import Executor

_LOOK_S: Final = 0.5

COUNTS: Final = {
    "claimed": "claimed",
    "done": "returned",
    "failed": "raised",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
    "lost": "lost",
    "given_up": "stopped",
    "running": "running",
    "overdue": "overdue",
    "late_results": "stale",
    "refused_spans": "refused_spans",
    "failed_heartbeats": "failed_beats",
}
"""What is printed of a worker's report, by the names people know."""


def totals(executor: Executor) -> dict[str, int]:
    """The counts of all workers of an executor, by the names of :data:`COUNTS`."""
    reports: list[Any] = list(executor.reports())
    counted = {name: sum(int(report.get(key, 0)) for report in reports) for name, key in COUNTS.items()}
    late = sum(sum(report.get("late", {}).values()) for report in reports)
    return {**counted, "late_calls": late}


def in_words(counts: dict[str, int]) -> str:
    """Counts on one line: the three that matter, and whatever else there is."""
    usual = [f"{counts[name]} {name}" for name in ("done", "failed", "running")]
    others = [
        f"{count} {name.replace('_', ' ')}"
        for name, count in counts.items()
        if count and name not in {"claimed", "done", "failed", "running"}
    ]
    return ", ".join(usual + others)


@contextmanager
def shown(console: Console, executor: Executor) -> Iterator[None]:
    """Show the counts while the body runs, where somebody looks: in a terminal."""
    if not console.is_terminal:
        yield
        return
    is_over = threading.Event()
    with console.status("waiting for work") as line:

        def move() -> None:
            while not is_over.wait(_LOOK_S):
                line.update(in_words(totals(executor)))

        thread = threading.Thread(target=move, name="agl-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
