"""The report of a run, as text and as a picture of its reward curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from agentlightning.records import AGENT_VERSION, JSON, Run
from agentlightning.samples import outcome, recorded_rules, unknown_version, versions_of
from agentlightning.store import Metrics, RolloutQuery, Store
from agentlightning.trainer.rewarded import rewarded_rollouts
from agentlightning.trainer.summary import validation_rewards


def report(store: Store, run_id: str, version: str | None = None) -> dict[str, JSON]:
    """Everything the report shows, as JSON.

    Args:
        store: has the run.
        run_id: the run.
        version: read the rewards of all rollouts in this version too, which takes a while in a large
            run; None leaves them out.

    Raises:
        UnknownRun: the store has no such run.
        ConfigError: no rollout has a reward of that version; the message lists those there are.
    """
    run = store.run(run_id)
    metrics = store.metrics(run_id)
    statistics = store.statistics(run_id)
    return {
        "run_id": run.run_id,
        "name": run.name,
        "status": run.status,
        "config": run.config,
        "reward_version": _version_of(run),
        "rewards": None if version is None else _rewards(store, run_id, version),
        "rollouts": dict(statistics.rollouts),
        "attempts": dict(statistics.attempts),
        "spans": statistics.spans,
        "validation": [
            {"step": step, "reward": reward} for step, reward in validation_rewards(metrics)
        ],
        "latest": _latest(metrics),
        "totals": _totals(metrics),
    }


def _version_of(run: Run) -> str:
    """The version of rewards that the run was made with."""
    kept = run.config.get("reward_version") if isinstance(run.config, dict) else None
    return str(kept or AGENT_VERSION)


def _rewards(store: Store, run_id: str, version: str) -> dict[str, JSON]:
    """How many succeeded rollouts of each mode have a reward of a version, and its mean."""
    found: dict[str, list[float]] = {}
    there: set[str] = set()
    for rollout, spans in rewarded_rollouts(store, RolloutQuery(run_id=run_id, status=("succeeded",))):
        there |= versions_of(spans)
        rules, _, _ = recorded_rules(rollout)
        value = outcome(rollout, spans, replace(rules, version=version))
        if value is not None:
            found.setdefault(rollout.mode, []).append(value)
    if version not in there:
        raise unknown_version(version, there, f"run {run_id}", run_id)
    modes = {mode: {"scored": len(values), "mean": fmean(values)} for mode, values in found.items()}
    return {"version": version, "modes": modes}


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
