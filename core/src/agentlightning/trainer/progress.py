"""What a person sees while a run is going on: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY_S = 10.0

SHOWN = {
    "train/reward": "reward {:.3f}",
    "val/reward": "val {:.3f}",
    "train/loss": "loss {:.3f}",
    "train/tokens_per_s": "{:,.0f} tok/s",
}
"""The metrics that fit into one line, and how they are written."""


class RunProgress:
    """The progress display of one run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._latest: dict[str, float] = {}
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._started = time.monotonic()
        self._before: int | None = None  # steps made before this start of the run
        self._last_line = 0.0
        if console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[metrics]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def metrics(self, values: Mapping[str, float]) -> None:
        """Take the newest numbers; shown with the next step."""
        self._latest.update(values)

    def step(self, done: int, total: int, label: str) -> None:
        """Show that ``done`` of ``total`` steps are made."""
        if self._bar is None:
            self._line(done, total, label)
            return
        if self._task is None:
            self._task = self._bar.add_task(label, total=total, metrics="")
        self._bar.update(
            self._task, completed=done, total=total, description=label, metrics=self._summary()
        )

    def _summary(self) -> str:
        return "  ".join(
            form.format(self._latest[key]) for key, form in SHOWN.items() if key in self._latest
        )

    def _line(self, done: int, total: int, label: str) -> None:
        now = time.monotonic()
        if self._before is None:
            self._before = max(0, done - 1)
        if done < total and now - self._last_line < LINE_EVERY_S:
            return
        self._last_line = now
        elapsed = now - self._started
        made = done - self._before
        left = f"{elapsed / made * (total - done):.0f} s left" if made else "time left unknown"
        self._console.print(f"{label} {done}/{total}  {self._summary()}  {elapsed:.0f} s, {left}")
