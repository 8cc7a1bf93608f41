"""``agl export``: a run as a file that people and programs read, and ``agl import`` takes back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from agentlightning.cli.bar import bar
from agentlightning.cli.common import json_option, open_existing, print_json, store_option
from agentlightning.errors import ExchangeError
from agentlightning.exchange import EXPORTS, export_format
from agentlightning.exchange.files import STREAM


@click.command(
    "export",
    epilog="Formats: " + "; ".join(f"{name}: {item.summary}" for name, item in EXPORTS.items()) + ".",
)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    help="A new file or folder, or - for standard output; by default RUN and the format's suffix.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(EXPORTS)),
    help="What to write; by default what the name after --to ends in, else jsonl.",
)
@json_option
@store_option
def export(
    run_id: str,
    target: Path | None,
    format_name: str | None,
    store_url: str,
    *,
    as_json: bool,
) -> None:
    """Write RUN to a file: everything that the store has of it."""
    name = export_format(format_name, target)
    target = target or Path(f"{run_id}{EXPORTS[name].suffix}")
    if as_json and target == STREAM:
        raise ExchangeError("--json and --to - both write to standard output; leave one of them out")
    with open_existing(store_url) as store, bar(f"exporting {run_id}") as told:
        exported = EXPORTS[name].write(store, run_id, target, told)
    if as_json:
        print_json(
            {
                "run_id": run_id,
                "path": str(target),
                "format": name,
                "rows": exported.rows,
                "bytes": exported.size,
            }
        )
        return
    size = "" if exported.size is None else f", {exported.size / 1e6:.1f} MB"
    click.echo(f"exported {listed(exported.rows)} to {target} ({name}{size})", err=True)


def listed(rows: Mapping[str, int]) -> str:
    """How many rows there are, and of which kinds."""
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in rows.items())
    return f"{sum(rows.values())} rows ({kinds or 'none'})"
