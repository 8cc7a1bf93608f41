"""``agl plugins``: what is installed, what each plug-in offers, and why one is not in use.

It is what one turns to when something is broken, so it needs no other part of the core.
"""

from __future__ import annotations

import json
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentlightning.plugins import HOOK_API, PluginInfo, State
from agentlightning.plugins import plugins as installed_plugins

COLOURS = {
    State.BUILTIN: "green",
    State.ACTIVE: "green",
    State.INACTIVE: "yellow",
    State.DISABLED: "yellow",
    State.FAILED: "red",
}


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def plugins(*, as_json: bool) -> None:
    """List the plug-ins: what they offer, their framework's range, and why one is not in use."""
    infos = installed_plugins().infos()
    if as_json:
        facts = {"hook_api": HOOK_API, "plugins": [_facts(info) for info in infos]}
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("name", "kind", "distribution", "version", "framework", "state", "reason"):
        table.add_column(column, overflow="fold", no_wrap=column in {"name", "version", "state"})
    for info in infos:
        table.add_row(
            info.name,
            _offers(info),
            info.distribution,
            info.version,
            "\n".join(f"{need.requirement} ({need.found or 'none'})" for need in info.needs),
            Text(info.state.value, COLOURS[info.state]),
            info.reason or "",
        )
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 200  # a pipe has no width to fit into
    console.print(table)
    console.print(f"hook API {HOOK_API}")


def _offers(info: PluginInfo) -> str:
    """``algorithm: rl, grpo`` and so on, a line a kind."""
    kinds: dict[str, list[str]] = {}
    for kind, name in info.offers:
        kinds.setdefault(kind, []).append(name)
    return "\n".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())


def _facts(info: PluginInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "distribution": info.distribution,
        "version": info.version,
        "state": info.state.value,
        "reason": info.reason,
        "framework": [
            {"requirement": need.requirement, "found": need.found, "met": need.met}
            for need in info.needs
        ],
        "offers": [{"kind": kind, "name": name} for kind, name in info.offers],
    }
