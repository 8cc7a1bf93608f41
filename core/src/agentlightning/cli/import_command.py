"""``agl import``: a run that was exported, or traces of other tracers, into any store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from agentlightning.cli.bar import bar
from agentlightning.cli.common import json_option, print_json, store_option
from agentlightning.cli.export_command import listed
from agentlightning.errors import ExchangeError
from agentlightning.exchange import IMPORTS, Imported, TraceOptions, import_format, import_traces
from agentlightning.store.opening import open_store

_OTLP = "otlp"
_DEFAULT_REWARD = "reward"


@dataclass(frozen=True)
class _Source:
    """What to read, and as what."""

    format_name: str
    paths: Sequence[Path]


@click.command(
    "import",
    epilog="Formats: " + "; ".join(f"{name}: {item.summary}" for name, item in IMPORTS.items()) + ".",
)
@click.argument("source", nargs=-1, required=True, metavar="[FORMAT] PATH…")
@click.option("--run", "run_name", metavar="NAME", help="otlp: the run to make; else the file's name.")
@click.option(
    "--group-by",
    metavar="ATTRIBUTE",
    help="otlp: traces with one value of it, such as session.id, make one rollout.",
)
@click.option(
    "--reward",
    "rewards",
    multiple=True,
    metavar="ATTRIBUTE[=NAME]",
    help="otlp: its value is a reward, of that name if given. May be repeated.",
)
@json_option
@store_option
def import_(
    source: tuple[str, ...],
    run_name: str | None,
    group_by: str | None,
    rewards: tuple[str, ...],
    store_url: str,
    *,
    as_json: bool,
) -> None:
    """Read PATH, or standard input for -, into the store.

    What is there already is left as it is, so that an import may be repeated. FORMAT is needed only
    where the path does not show it. Several paths are read as one for otlp only.
    """
    chosen = _chosen(source)
    options = TraceOptions(run_name, group_by, _reward_names(rewards))
    if chosen.format_name != _OTLP and options != TraceOptions():
        raise ExchangeError("--run, --group-by and --reward are for otlp only; leave them out")
    named = ", ".join(map(str, chosen.paths))
    with open_store(store_url) as store, bar(f"importing {named}") as told:
        if chosen.format_name == _OTLP:
            imported = import_traces(store, chosen.paths, options, told)
        else:
            imported = IMPORTS[chosen.format_name].read(store, chosen.paths[0], told)
    _tell(chosen, imported, as_json=as_json)


def _tell(source: _Source, imported: Imported, *, as_json: bool) -> None:
    total = imported.rows.total()
    if as_json:
        print_json(
            {
                "path": str(source.paths[0]),
                "paths": [str(path) for path in source.paths],
                "format": source.format_name,
                "runs": imported.runs,
                "rows": imported.rows,
                "new": imported.new,
                "there_already": total - imported.new,
                "skipped": imported.skipped,
            }
        )
        return
    click.echo(
        f"imported {listed(imported.rows)}: {imported.new} new, {total - imported.new} there already"
    )
    for reason, count in imported.skipped.most_common():
        click.echo(f"note: {count}: {reason}", err=True)
    for run_id in imported.runs:
        click.echo(f"run {run_id}")


def _chosen(source: tuple[str, ...]) -> _Source:
    name, *rest = source
    if name in IMPORTS and rest:
        paths = [Path(path) for path in rest]
        if name == _OTLP or len(paths) == 1:
            return _Source(name, paths)
    elif not rest:
        return _Source(import_format(Path(name)), [Path(name)])
    raise ExchangeError(
        f"agl import {' '.join(source)}: expected a path, perhaps after one of the formats "
        f"{', '.join(IMPORTS)}; several paths after otlp only"
    )


def _reward_names(given: Sequence[str]) -> dict[str, str]:
    """The reward's name by the attribute's."""
    named = {}
    for item in given:
        attribute, _, name = item.partition("=")
        named[attribute] = name or _DEFAULT_REWARD
    if len(set(named.values())) < len(named):
        raise ExchangeError(
            f"--reward {' --reward '.join(given)}: two rewards of one name; expected "
            "ATTRIBUTE=NAME for all but one"
        )
    return named
