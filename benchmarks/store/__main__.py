"""Measure the stores: ``python -m benchmarks.store [--case NAME] [--quick]``.

Standard output has one JSON object a line and nothing else; progress and a table of the figures beside
their aims go to standard error. Each case has a process of its own, so that none inherits the memory
of another.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from benchmarks.store import limits, measures, storage
from benchmarks.store.aims import print_judgement
from benchmarks.store.cases import CASES
from benchmarks.store.figures import Line, progress
from benchmarks.store.workload import FULL, QUICK, Sizes

PARTS = (
    measures.growing,  # first: memory that other parts have used and freed would hide its growth
    measures.adding,
    measures.claiming,
    measures.turning_over,
    storage.storing,
)


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), help="Only this one.")
@click.option("--quick", is_flag=True, help="A fiftieth of the spans, for a look while developing.")
@click.option("--here", is_flag=True, hidden=True, help="Measure in this process and judge nothing.")
def main(names: Sequence[str], *, quick: bool, here: bool) -> None:
    """Measure the stores, one JSON object a line."""
    sizes = QUICK if quick else FULL
    lines = []
    for name in names or CASES:
        for line in measured(name, sizes) if here else measured_apart(name, quick=quick):
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            sys.stdout.flush()
            lines.append(line)
    if not here:
        print_judgement(lines)


def measured(name: str, sizes: Sizes) -> Iterator[Line]:
    """The figures of one case, each part on a store of its own."""
    for part in PARTS:
        progress(f"{name}: {part.__name__.replace('_', ' ')}")
        with TemporaryDirectory(prefix="bench-") as folder, CASES[name](Path(folder)) as stage:
            yield from (Line.of(name, figure) for figure in part(stage, sizes))
    if name in limits.OF:
        progress(f"{name}: limits")
        with TemporaryDirectory(prefix="bench-") as folder:
            yield from (Line.of(name, figure) for figure in limits.OF[name](Path(folder), sizes))


def measured_apart(name: str, *, quick: bool) -> Iterator[Line]:
    """The figures of one case, measured by a process of their own."""
    options = ["--quick"] if quick else []
    command = [sys.executable, "-m", "benchmarks.store", "--here", "--case", name, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for line in process.stdout or ():
            yield msgspec.json.decode(line, type=Line)
    if process.returncode:
        raise click.ClickException(f"measuring {name} failed; its error is above")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.store")
