"""The report of a run, as text and as a picture of its reward curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentlightning.records import JSON, Run
from agentlightning.store import Metrics, Store
from agentlightning.trainer.summary import validation_rewards


def report(store: Store, run_id: str) -> dict[str, JSON]:
    """Everything the report shows, as JSON."""
    run = store.run(run_id)
    metrics = store.metrics(run_id)
    statistics = store.statistics(run_id)
    return {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "config": run.config,
        "rollouts": dict(statistics.rollouts),
        "attempts": dict(statistics.attempts),
        "spans": statistics.spans,
        "validation": [
            {"step": step, "reward": reward} for step, reward in validation_rewards(metrics)
        ],
        "latest": _latest(metrics),
        "totals": _totals(metrics),
    }


def _latest(metrics: Sequence[Metrics]) -> dict[str, float]:
    """The newest value of every metric."""
    latest: dict[str, float] = {}
    for item in metrics:
        latest.update(item.values)
    return latest


def _totals(metrics: Sequence[Metrics]) -> dict[str, float]:
    """What was counted step by step (``fidelity/…``), added up over the run."""
    totals: dict[str, float] = {}
    for item in metrics:
        for name, value in item.values.items():
            if name.startswith("fidelity/"):
                totals[name] = totals.get(name, 0.0) + value
    return totals


def draw_reward_curve(store: Store, run: Run, path: Path) -> bool:
    """Draw training and validation reward by step into a PNG; False when there is nothing to draw."""
    metrics = store.metrics(run.run_id)
    trained = [(m.step, m.values["train/reward"]) for m in metrics if "train/reward" in m.values]
    validated = validation_rewards(metrics)
    if not trained and not validated:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    if trained:
        axes.plot(
            *zip(*trained, strict=True), color="tab:blue", label="training rollouts, mean of a step"
        )
    if validated:
        axes.plot(
            *zip(*validated, strict=True),
            "o-",
            color="tab:orange",
            label="validation tasks, not trained on",
        )
    axes.set(xlabel="step", ylabel="reward", title=run.name)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    return True
