"""Measure what recording costs: ``python -m benchmarks.capture [--case NAME] [--rounds N]``.

The tools take turns, round by round, in an order that changes; what a tool adds is the median over the
rounds of what its block took more than the same block of the bare client. So noise hits all alike.
Standard output has one JSON object a line and nothing else; a table goes to standard error.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

import click
import msgspec

from benchmarks.capture.judgement import print_judgement
from benchmarks.capture.tools import NONE, TOOLS
from benchmarks.capture.worker import AT_ONCE, Ask, Took
from benchmarks.store.figures import Line, progress

CASES = {"plain": 50, "streamed": 50, f"concurrent_{AT_ONCE}": AT_ONCE}
"""The calls of one block."""
METRICS = {"added_ms_per_call": "wall_s", "added_cpu_ms_per_call": "cpu_s"}


class Helper:
    """A process of ours, talked to in lines; it ends with its standard input."""

    def __init__(self, asked: IO[bytes], answers: IO[bytes]) -> None:
        self._asked = asked
        self._answers = answers

    def tell(self, line: bytes) -> None:
        """Write a line."""
        self._asked.write(line + b"\n")
        self._asked.flush()

    def listen(self) -> bytes:
        """Read a line."""
        return self._answers.readline()


class Worker:
    """A process that makes calls with one tool at work."""

    def __init__(self, process: Helper) -> None:
        self._process = process

    def work(self, ask: Ask) -> Took:
        """Have a block of calls made."""
        self._process.tell(msgspec.json.encode(ask))
        return msgspec.json.decode(self._process.listen(), type=Took)


@contextmanager
def running(module: str, *arguments: str) -> Iterator[Helper]:
    """A process that runs one of the modules beside this one."""
    command = [sys.executable, "-m", f"benchmarks.capture.{module}", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both were asked for")
        yield Helper(process.stdin, process.stdout)


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), help="Only this one.")
@click.option("--rounds", default=20, show_default=True, help="Blocks of each tool and case.")
def main(names: Sequence[str], *, rounds: int) -> None:
    """Measure what recording an LLM call costs, one JSON object a line."""
    lines = []
    with ExitStack() as stack:
        url = stack.enter_context(running("server")).listen().decode().strip()
        workers = {tool: Worker(stack.enter_context(running("worker", tool, url))) for tool in TOOLS}
        for name in names or CASES:
            progress(name)
            for line in measured(name, workers, rounds):
                sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
                sys.stdout.flush()
                lines.append(line)
    print_judgement(lines)


def measured(case: str, workers: dict[str, Worker], rounds: int) -> Iterator[Line]:
    """The figures of one case."""
    chance, calls = random.Random(0), CASES[case]
    added: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    bare = []
    for number in range(rounds + 1):
        order = chance.sample(sorted(workers), len(workers))
        took = {tool: workers[tool].work(Ask(case=case, calls=calls)) for tool in order}
        if number == 0:
            continue  # connections are made and modules imported in the first round
        bare.append(took[NONE].wall_s / calls)
        for tool in workers.keys() - {NONE}:
            for metric, seconds in METRICS.items():
                more = getattr(took[tool], seconds) - getattr(took[NONE], seconds)
                added[tool, metric].append(more / calls)
    progress(f"  without any tool a call takes {statistics.median(bare) * 1000:.3f} ms")
    for (tool, metric), values in sorted(added.items()):
        value = float(f"{statistics.median(values) * 1000:.4g}")
        yield Line(bench="capture", case=case, tool=tool, metric=metric, value=value, unit="ms")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.capture")
