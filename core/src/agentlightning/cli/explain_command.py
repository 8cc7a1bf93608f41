"""``agl explain``: why a rollout gave the samples it gave."""

from __future__ import annotations

import click
from msgspec.structs import replace

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
from agentlightning.samples import recorded_rules, unknown_version, versions_of


@click.command("explain")
@click.argument("rollout_id", metavar="ROLLOUT")
@click.option("--reward-version", "version", help="Read the rewards of this version.")
@json_option
@store_option
def explain(rollout_id: str, version: str | None, store_url: str, *, as_json: bool) -> None:
    """Say what became of every LLM call and reward of ROLLOUT."""
    with open_existing(store_url) as store:
        rollout = find_rollout(store, rollout_id)
        spans = list(store.spans([rollout_id]))
        attempts = store.attempts(rollout_id)
    rules, limits, level = recorded_rules(rollout)
    if version is not None:
        if version not in (there := versions_of(spans)):
            raise unknown_version(version, there, f"rollout {rollout_id}", rollout.run_id)
        rules = replace(rules, version=version)
    explanation = explain_rollout(rollout, spans, rules, limits, level)
    if as_json:
        print_json({"explanation": explanation, "attempts": attempts, "reward_version": rules.version})
        return
    console = output(wrap=False)
    console.print(
        f"rollout {rollout_id} ({explanation.mode}) {explanation.status}, "
        f"attempt {explanation.attempt}; reward {number(explanation.reward)} of version "
        f"{rules.version} ({explanation.reward_rule}); {explanation.rows} training rows"
    )
    for attempt in attempts:
        if attempt.error:
            console.print(f"  attempt {attempt.number} {attempt.status}: {attempt.error}")
    for fate in explanation.fates:
        console.print(f"  {fate.what}: {fate.fate}")
    for note in explanation.notes:
        console.print(f"  note: {note}")
