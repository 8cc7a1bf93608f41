"""``agl report``: a run in text, and its reward curve as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from agentlightning.cli.common import json_option, open_existing, output, print_json, store_option
from agentlightning.errors import ConfigError
from agentlightning.store import Store


@click.command("report")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the reward curve here."
)
@click.option("--reward-version", "version", help="Read the rollouts' rewards of this version too.")
@json_option
@store_option
def report(
    run_id: str, plot: Path | None, version: str | None, store_url: str, *, as_json: bool
) -> None:
    """Report on RUN: rewards, what was recorded, trained on and dropped."""
    from agentlightning.trainer.report import report as report_run

    with open_existing(store_url) as store:
        facts = report_run(store, run_id, version)
        drawn = plot is not None and _draw(store, run_id, plot)
    if as_json:
        print_json({**facts, "plot": str(plot) if drawn else None})
        return
    console = output()
    _print(console, facts)
    if plot is not None:
        console.print(
            f"reward curve: {plot}" if drawn else "no reward was logged, so no curve was drawn"
        )


def _draw(store: Store, run_id: str, plot: Path) -> bool:
    from agentlightning.trainer.report import draw_reward_curve

    try:
        return draw_reward_curve(store, store.run(run_id), plot)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--plot {plot}: the picture cannot be written ({error}); expected a file such as "
            "reward.png in a folder that exists"
        ) from error


def _print(console: Console, facts: dict[str, Any]) -> None:
    console.print(f"run {facts['run_id']} ({facts['name']}) {facts['status']}")
    table = Table("what", "value")
    for step in facts["validation"]:
        table.add_row(f"validation reward at step {step['step']}", f"{step['reward']:.3f}")
    table.add_row("reward version of the run", facts["reward_version"])
    for mode, told in (facts["rewards"] or {}).get("modes", {}).items():
        name = f"mean reward of version {facts['rewards']['version']}, {mode}"
        table.add_row(name, f"{told['mean']:.3f} over {told['scored']} rollouts")
    for title, counts in (("rollouts", facts["rollouts"]), ("attempts", facts["attempts"])):
        table.add_row(
            title, ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        )
    table.add_row("spans", str(facts["spans"]))
    for name, value in facts["totals"].items():
        table.add_row(f"{name}, all steps", f"{value:g}")
    for name, value in sorted(facts["latest"].items()):
        if not name.startswith("fidelity/"):
            table.add_row(f"{name}, latest", f"{value:.4g}")
    console.print(table)
