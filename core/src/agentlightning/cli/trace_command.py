"""``agl trace``: a rollout's trace as a tree."""

from __future__ import annotations

import click

from agentlightning.cli.common import (
    find_rollout,
    json_option,
    open_existing,
    output,
    print_json,
    store_option,
)
from agentlightning.cli.trace_tree import trace_tree


@click.group("trace")
def trace() -> None:
    """Look at recorded traces."""


@trace.command("show")
@click.argument("rollout_id", metavar="ROLLOUT")
@click.option("--attempt", type=int, help="Attempt number; the last one if not given.")
@json_option
@store_option
def show(rollout_id: str, attempt: int | None, store_url: str, *, as_json: bool) -> None:
    """Print the trace of ROLLOUT as a tree."""
    with open_existing(store_url) as store:
        rollout = find_rollout(store, rollout_id)
        spans = list(store.spans([rollout_id], attempt="last" if attempt is None else attempt))
    if as_json:
        print_json({"rollout": rollout, "spans": spans})
        return
    output(wrap=False).print(trace_tree(rollout, spans))
