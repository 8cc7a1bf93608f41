"""``agl rollouts``: what a store holds."""

from __future__ import annotations

import click
from rich.table import Table

from agentlightning.cli.common import (
    json_option,
    number,
    open_existing,
    output,
    print_json,
    short,
    store_option,
)
from agentlightning.records import ROLLOUT_OVER
from agentlightning.store import RolloutQuery

STATUSES = ("queued", "running", *sorted(ROLLOUT_OVER))


@click.command("rollouts")
@click.option("--run", "run_id", metavar="RUN", help="Only this run.")
@click.option(
    "--status", multiple=True, type=click.Choice(STATUSES), help="Only these; may be repeated."
)
@click.option("--mode", type=click.Choice(["train", "val", "test"]))
@click.option("--limit", default=50, show_default=True, help="How many to list.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@json_option
@store_option
def rollouts(
    run_id: str | None,
    status: tuple[str, ...],
    mode: str | None,
    limit: int,
    cursor: str | None,
    store_url: str,
    *,
    as_json: bool,
) -> None:
    """List rollouts, oldest first."""
    query = RolloutQuery(
        run_id=run_id,
        status=status or None,  # type: ignore[arg-type]  # click checked the choice
        mode=mode,  # type: ignore[arg-type]  # likewise
        limit=limit,
        cursor=cursor,
    )
    with open_existing(store_url) as store:
        page = store.rollouts(query)
    if as_json:
        print_json({"rollouts": page.items, "cursor": page.cursor})
        return
    table = Table()
    for column in ("rollout", "run", "mode", "status", "reward", "attempts", "task", "output"):
        table.add_column(column, no_wrap=column == "rollout", overflow="fold")
    for item in page.items:
        table.add_row(
            item.rollout_id,
            item.run_id,
            item.mode,
            item.status,
            number(item.reward),
            str(item.attempt),
            short(item.input, 40),
            "" if item.output is None else short(item.output, 40),
        )
    console = output()
    console.print(table)
    if page.cursor is not None:
        console.print(f"more: --cursor {page.cursor}")
