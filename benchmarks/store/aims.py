"""What each figure ought to be, and which measured limit explains one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.store.figures import Line


@dataclass(frozen=True)
class Aim:
    """At least or at most so much; ``limit`` is the figure of the same case that bounds this one."""

    at_least: float | None = None
    at_most: float | None = None
    limit: str | None = None

    def is_met(self, value: float) -> bool:
        """Whether ``value`` is where it should be."""
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        return f"≥ {self.at_least:,g}" if self.at_least is not None else f"≤ {self.at_most:,g}"


AIMS = {
    ("memory", "add_spans_per_s"): Aim(at_least=60_000, limit="limit_add_spans_per_s"),
    ("memory", "claims_per_s"): Aim(at_least=20_000),
    ("sqlite", "add_spans_per_s"): Aim(at_least=30_000, limit="limit_add_spans_per_s"),
    ("sqlite", "claim_finish_pairs_per_s"): Aim(at_least=5000, limit="limit_claim_finish_pairs_per_s"),
    ("sqlite", "read_1000_of_1m_ms"): Aim(at_most=10),
    ("sqlite", "rss_growth_mb_over_1m"): Aim(at_most=32),  # flat: a million spans are over a gigabyte
    ("sqlite", "token_storage_ratio"): Aim(at_least=40),
    ("postgres", "token_storage_ratio"): Aim(at_least=40),
    ("http_sqlite", "add_spans_per_s"): Aim(at_least=20_000, limit="limit_add_spans_per_s"),
    ("http_sqlite", "claim_finish_pairs_per_s"): Aim(at_least=1500, limit="limit_requests_per_s"),
    ("http_sqlite", "read_1000_of_1m_ms"): Aim(at_most=40),
}


def judge(lines: Sequence[Line]) -> Table:
    """Every figure with its aim, and whether it is met; a miss names its limit."""
    values = {(line.case, line.metric): line for line in lines}
    table = Table("case", "metric", "value", "aim", "verdict", box=box.SIMPLE_HEAD)
    for place, line in values.items():
        aim = AIMS.get(place)
        row = (line.case, line.metric, f"{line.value:,.4g} {line.unit}")
        if aim is None:
            table.add_row(*row, "", "")
            continue
        limit = values.get((line.case, aim.limit or ""))
        bound = f"; {limit.metric} is {limit.value:,.4g}" if limit else ""
        table.add_row(*row, str(aim), "met" if aim.is_met(line.value) else f"missed{bound}")
    return table


def print_judgement(lines: Sequence[Line]) -> None:
    """Write the table to standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = 120  # a file has no width to fit into
    console.print(judge(lines))
