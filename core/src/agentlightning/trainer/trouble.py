"""What went wrong in a run without ending it: counted where it happened, told at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agentlightning.endpoint import Endpoint
from agentlightning.plugins import plugins
from agentlightning.recording.guard import faults
from agentlightning.recording.sink import Sink
from agentlightning.store import Metrics, Store
from agentlightning.trainer.scoring import Scorer

TROUBLE: Final = "trouble/"
"""Prefix of the metrics that count it."""

_NO_TROUBLE: Final = ("calls", "joined", "replayed", "forced_")
"""What an endpoint counts, by beginning, that is as it should be."""


def count_trouble(
    endpoint: Endpoint, sink: Sink, scorer: Scorer, store: Store, run_id: str
) -> dict[str, float]:
    """Everything that was counted and should not have happened, as metrics; empty after a clean run."""
    counted: dict[str, int] = {
        f"endpoint_{name}": count
        for name, count in endpoint.report().items()
        if not name.startswith(_NO_TROUBLE)
    }
    counted |= {f"recording: {place}": count for place, count in faults().items()}
    for (distribution, hook), count in plugins().observer_errors.items():
        counted[f"{distribution}: {hook}"] = count
    counted["spans_refused"] = sink.refused
    counted["reward_function_crashed"] = scorer.crashes
    counted["late_results"] = store.statistics(run_id).late_results
    return {f"{TROUBLE}{name}": float(count) for name, count in counted.items() if count}


def told_trouble(metrics: Iterable[Metrics]) -> Mapping[str, int]:
    """The counts a run logged, by name."""
    return {
        name.removeprefix(TROUBLE): int(value)
        for item in metrics
        for name, value in item.values.items()
        if name.startswith(TROUBLE)
    }
