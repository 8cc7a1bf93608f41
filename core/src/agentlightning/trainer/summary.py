"""What a run leaves: the result, ``summary.json``, and the lines printed at its end."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentlightning.records import AGENT_VERSION, JSON, ResourcesVersion, Run
from agentlightning.store import Metrics, Store
from agentlightning.trainer.trouble import told_trouble

SUMMARY_FILE = "summary.json"
CURVE_FILE = "reward.png"


@dataclass(frozen=True)
class TrainResult:
    """What :meth:`Trainer.fit` returns.

    ``reward_before`` and ``reward_after`` are the first and last mean validation reward, None when
    there were no validation tasks or none was scored.
    """

    run_id: str
    resources: ResourcesVersion
    reward_before: float | None
    reward_after: float | None
    run_dir: Path


def validation_rewards(metrics: Sequence[Metrics]) -> list[tuple[int, float]]:
    """The steps with a validation and its mean reward."""
    return [(m.step, m.values["val/reward"]) for m in metrics if "val/reward" in m.values]


def summarise(store: Store, run: Run, peak_memory_mb: float, reward_version: str) -> dict[str, JSON]:
    """The run in a dozen numbers."""
    metrics = store.metrics(run.run_id)
    validated = validation_rewards(metrics)
    spent = {
        name: max(
            (m.values[f"spent/{name}"] for m in metrics if f"spent/{name}" in m.values), default=0.0
        )
        for name in ("seconds", "rollouts", "llm_calls", "tokens")
    }
    return {
        "run_id": run.run_id,
        "run_name": run.name,
        "status": run.status,
        "reward_version": reward_version,
        "reward_before": validated[0][1] if validated else None,
        "reward_after": validated[-1][1] if validated else None,
        "seconds": round(spent["seconds"], 1),
        "peak_memory_mb": round(peak_memory_mb, 1),
        "rollouts": int(spent["rollouts"]),
        "llm_calls": int(spent["llm_calls"]),
        "tokens": int(spent["tokens"]),
        "trouble": dict(told_trouble(metrics)),
    }


def write_summary(run_dir: Path, summary: dict[str, JSON]) -> None:
    """Write ``summary.json``."""
    (run_dir / SUMMARY_FILE).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def print_summary(
    console: Console, summary: dict[str, JSON], run_dir: Path, store_url: str, models: Sequence[str]
) -> None:
    """Print the result, where everything lies, and what to try next."""
    table = Table(show_header=False, box=None, pad_edge=False)
    before, after = summary["reward_before"], summary["reward_after"]
    if before is not None and after is not None:
        version = summary["reward_version"]
        of_version = "" if version == AGENT_VERSION else f" (version {version})"
        table.add_row("validation reward", f"{before:.3f} before, {after:.3f} after{of_version}")
    table.add_row(
        "spent",
        f"{summary['seconds']:.0f} s, {summary['rollouts']} rollouts, "
        f"{summary['llm_calls']} LLM calls, {summary['peak_memory_mb']:.0f} MB at most",
    )
    for model in models:
        table.add_row("model", model)
    table.add_row("run", f"{summary['run_id']} in {store_url}")
    table.add_row("files", str(run_dir))
    if trouble := summary["trouble"]:
        counts = ", ".join(f"{name}: {count}" for name, count in trouble.items())
        table.add_row("trouble", counts, style="yellow")
    console.print(table)
    console.print("next:")
    for command in next_commands(summary["run_id"], store_url):
        console.print(f"  {command}", soft_wrap=True)


def next_commands(run_id: str, store_url: str) -> list[str]:
    """The commands that show more of a run."""
    agl, store = agl_command(), shlex.quote(store_url)
    return [
        f"{agl} report {run_id} --store {store}",
        f"{agl} rollouts --run {run_id} --store {store}",
        f"{agl} explain ROLLOUT --store {store}",
        f"{agl} trace show ROLLOUT --store {store}",
    ]


def agl_command() -> str:
    """What to type for ``agl``: with its folder where that is not on the PATH, as under nox."""
    beside = Path(sys.executable).with_name("agl")
    found = shutil.which("agl")
    if not beside.exists() or (found and Path(found).resolve() == beside.resolve()):
        return "agl"
    return os.path.relpath(beside)
