"""``agl import``: a run that was exported, into any store."""

from __future__ import annotations

from pathlib import Path

import click

from agentlightning.cli.bar import bar
from agentlightning.cli.common import json_option, print_json, store_option
from agentlightning.cli.export_command import listed
from agentlightning.errors import ExchangeError
from agentlightning.exchange import IMPORTS, import_format
from agentlightning.store.opening import open_store

_ONE, _NAMED = 1, 2


@click.command(
    "import",
    epilog="Formats: " + "; ".join(f"{name}: {item.summary}" for name, item in IMPORTS.items()) + ".",
)
@click.argument("source", nargs=-1, required=True, metavar="[FORMAT] PATH")
@json_option
@store_option
def import_(source: tuple[str, ...], store_url: str, *, as_json: bool) -> None:
    """Read PATH, or standard input for -, into the store.

    What is there already is left as it is, so that an import may be repeated. FORMAT is needed only
    where the path does not show it.
    """
    name, path = _format_and_path(source)
    with open_store(store_url) as store, bar(f"importing {path}") as told:
        imported = IMPORTS[name].read(store, path, told)
    total = imported.rows.total()
    if as_json:
        print_json(
            {
                "path": str(path),
                "format": name,
                "runs": imported.runs,
                "rows": imported.rows,
                "new": imported.new,
                "there_already": total - imported.new,
            }
        )
        return
    click.echo(
        f"imported {listed(imported.rows)}: {imported.new} new, {total - imported.new} there already"
    )
    for run_id in imported.runs:
        click.echo(f"run {run_id}")


def _format_and_path(source: tuple[str, ...]) -> tuple[str, Path]:
    if len(source) == _ONE:
        path = Path(source[0])
        return import_format(path), path
    if len(source) == _NAMED and source[0] in IMPORTS:
        return source[0], Path(source[1])
    raise ExchangeError(
        f"agl import {' '.join(source)}: expected a path, perhaps after one of the formats "
        f"{', '.join(IMPORTS)}"
    )
