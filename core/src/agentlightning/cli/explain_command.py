"""``agl explain``: why a rollout gave the samples it gave."""

from __future__ import annotations

import click

from agentlightning.cli.common import (
    find_rollout,
    json_option,
    number,
    open_existing,
    output,
    print_json,
    store_option,
)
from agentlightning.samples import explain as explain_rollout
from agentlightning.samples import recorded_rules


@click.command("explain")
@click.argument("rollout_id", metavar="ROLLOUT")
@json_option
@store_option
def explain(rollout_id: str, store_url: str, *, as_json: bool) -> None:
    """Say what became of every LLM call and reward of ROLLOUT."""
    with open_existing(store_url) as store:
        rollout = find_rollout(store, rollout_id)
        spans = list(store.spans([rollout_id]))
        attempts = store.attempts(rollout_id)
    explanation = explain_rollout(rollout, spans, *recorded_rules(rollout))
    if as_json:
        print_json({"explanation": explanation, "attempts": attempts})
        return
    console = output(wrap=False)
    console.print(
        f"rollout {rollout_id} ({explanation.mode}) {explanation.status}, "
        f"attempt {explanation.attempt}; reward {number(explanation.reward)} "
        f"({explanation.reward_rule}); {explanation.rows} training rows"
    )
    for attempt in attempts:
        if attempt.error:
            console.print(f"  attempt {attempt.number} {attempt.status}: {attempt.error}")
    for fate in explanation.fates:
        console.print(f"  {fate.what}: {fate.fate}")
    for note in explanation.notes:
        console.print(f"  note: {note}")
