"""``agl rescore``: a new reward function, or a judge, over the rollouts of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from agentlightning.cli.bar import bar
from agentlightning.cli.common import (
    json_option,
    number,
    open_existing,
    output,
    print_json,
    store_option,
)
from agentlightning.records import JSON, ROLLOUT_OVER


@click.command("rescore")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--reward",
    "reference",
    required=True,
    metavar="MODULE:FUNCTION",
    help="f(task, output) or f(task, output, rollout), sync or async; found in the current folder.",
)
@click.option("--version", help="What the new rewards are recorded as; by default MODULE:FUNCTION.")
@click.option("--mode", type=click.Choice(["train", "val", "test"]), help="Only these.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    default=["succeeded"],
    show_default=True,
    type=click.Choice(sorted(ROLLOUT_OVER)),
    help="Only these; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Score so many at most.")
@click.option(
    "--workers", default=8, show_default=True, type=click.IntRange(min=1), help="Calls at once."
)
@click.option("--again", is_flag=True, help="Score those too that have a reward of this version.")
@click.option(
    "--make-current", is_flag=True, help="Show the new rewards as the rollouts' own from now on."
)
@json_option
@store_option
def rescore(
    run_id: str,
    reference: str,
    version: str | None,
    mode: str | None,
    statuses: tuple[str, ...],
    limit: int | None,
    workers: int,
    store_url: str,
    *,
    again: bool,
    make_current: bool,
    as_json: bool,
) -> None:
    """Score the stored rollouts of RUN anew, without running an agent.

    The rewards are kept as a version of their own beside those there are; an algorithm uses them by
    its key reward_version. What is scored under that version already is left alone, so that the command
    goes on where it was interrupted.
    """
    from agentlightning.trainer.rescoring import rescore as rescore_run
    from agentlightning.trainer.scoring import load_reward_function

    sys.path.insert(0, str(Path.cwd()))
    function = load_reward_function(reference, "--reward")
    with open_existing(store_url) as store, bar(f"scoring {run_id}") as told:
        rescored = rescore_run(
            store,
            run_id,
            function,
            version=reference if version is None else version,
            mode=mode,  # type: ignore[arg-type]  # click checked the choice
            statuses=statuses,  # type: ignore[arg-type]  # likewise
            limit=limit,
            workers=workers,
            again=again,
            make_current=make_current,
            told=told,
        )
    facts = rescored.facts()
    if as_json:
        print_json(facts)
    else:
        _print(output(), facts)
    if rescored.refusal is not None:
        raise rescored.refusal


def _print(console: Console, facts: dict[str, JSON]) -> None:
    rewards = Table("version", "scored", "mean reward")
    for side in ("old", "new"):
        told = facts[side]
        rewards.add_row(told["version"], str(told["scored"]), number(told["mean"]))
    console.print(rewards)
    counts = [f"scored now: {facts['scored']}", f"scored before: {facts['scored_before']}"]
    if facts["unattempted"]:
        counts.append(f"never attempted: {facts['unattempted']}")
    console.print("; ".join(counts))
    for reason, count in facts["unscored"].items():
        console.print(f"unscored: {count}: {reason}")
    if facts["correlation"] is not None:
        console.print(
            f"correlation of the two over {facts['both']} rollouts: {facts['correlation']:.3f}"
        )
    if facts["differences"]:
        widest = Table("rollout", "old", "new", title="biggest differences")
        for item in facts["differences"]:
            widest.add_row(item["rollout_id"], number(item["old"]), number(item["new"]))
        console.print(widest)
    console.print(f"an algorithm uses them by: reward_version: {facts['new']['version']}")
