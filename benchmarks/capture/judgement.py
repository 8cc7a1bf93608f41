"""The figures beside their aims: under 0.2 ms a call, and below both other tools in every case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.store.figures import Line

OURS: Final = "agentlightning"
AIM_MS: Final = 0.2
JUDGED: Final = "added_ms_per_call"


def judge(lines: Sequence[Line]) -> Table:
    """A row for each case and metric, a column for each tool, and whether the aim is met."""
    values = {(line.case, line.metric, line.tool): line.value for line in lines}
    tools = sorted({line.tool for line in lines})
    table = Table("case", "metric", *tools, "verdict", box=box.SIMPLE_HEAD)
    for case, metric in dict.fromkeys((line.case, line.metric) for line in lines):
        row = [values[case, metric, tool] for tool in tools]
        ours = values[case, metric, OURS]
        met = ours < AIM_MS and ours == min(row)
        verdict = ("met" if met else "missed") if metric == JUDGED else ""
        table.add_row(case, metric, *(f"{value:.3f} ms" for value in row), verdict)
    return table


def print_judgement(lines: Sequence[Line]) -> None:
    """Write the table to standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 120  # a file has no width to fit into
    console.print(judge(lines))
