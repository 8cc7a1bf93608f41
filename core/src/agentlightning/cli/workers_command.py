"""``agl workers``: who works, or has worked, on the rollouts of a store."""

from __future__ import annotations

import time
from typing import Any, Final

import click
from rich.table import Table

from agentlightning.cli.common import json_option, open_existing, output, print_json, store_option
from agentlightning.store import Worker

_TROUBLE: Final = {
    "timed_out": "timed out",
    "cancelled": "cancelled",
    "lost": "lost",
    "stopped": "given up",
    "stale": "late results",
    "overdue": "overdue agents",
    "refused_spans": "refused spans",
    "failed_beats": "failed heartbeats",
}
"""The counts of a worker's report that are shown where they are not 0."""

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


@click.command("workers")
@json_option
@store_option
def workers(store_url: str, *, as_json: bool) -> None:
    """List the workers of a store: what each is doing, and what became of its rollouts."""
    with open_existing(store_url) as store:
        known = store.workers()
    if as_json:
        print_json({"workers": known})
        return
    table = Table()
    for column in ("worker", "host", "running", "last seen", "done", "failed", "trouble"):
        table.add_column(column, no_wrap=column == "worker", overflow="fold")
    for worker in known:
        table.add_row(*_row(worker))
    output().print(table)


def _row(worker: Worker) -> tuple[str, ...]:
    report: dict[str, Any] = worker.report
    trouble = [f"{words} {report[name]}" for name, words in _TROUBLE.items() if report.get(name)]
    trouble += [f"late {what} {count}" for what, count in report.get("late", {}).items() if count]
    return (
        worker.worker_id,
        str(report.get("host", "")),
        str(worker.running),
        _ago(time.time() - worker.last_seen),
        str(report.get("returned", 0)),
        str(report.get("raised", 0)),
        ", ".join(trouble),
    )


def _ago(seconds: float) -> str:
    """A time as people say it; the store's clock may be a little ahead of ours."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "now"
