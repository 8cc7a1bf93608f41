"""``agl run``: works on the rollouts of a run that somebody trains, here or on another machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
from rich.console import Console

from agentlightning.cli.common import json_option, open_existing, print_json, store_option
from agentlightning.cli.run_progress import in_words, shown, totals
from agentlightning.errors import EXIT_INTERRUPTED, AgentError, ConfigError, StoreAway
from agentlightning.executor import Executor, leave
from agentlightning.plugins import plugins
from agentlightning.records import JSON, Run
from agentlightning.store.http import TOKEN_VARIABLE
from agentlightning.store.opening import without_password
from agentlightning.store.tokens import read_access

_PATIENCE_S: Final = 60.0


@click.command("run")
@click.option("--run", "run_id", metavar="RUN", help="Only this run; else every run of the store.")
@click.option(
    "--agent", metavar="MODULE:NAME", help="The agent; by default the run's own, if it has a name."
)
@click.option(
    "--workers", default=8, show_default=True, type=click.IntRange(min=1), help="Rollouts at once."
)
@click.option("--executor", default="threads", show_default=True, help="threads, processes, …")
@click.option(
    "--env", multiple=True, metavar="KEY=VALUE", help="A variable for the agent; may be repeated."
)
@click.option(
    "--patience",
    default=_PATIENCE_S,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds the store may be away before this gives up.",
)
@json_option
@store_option
def run(
    run_id: str | None,
    agent: str | None,
    workers: int,
    executor: str,
    env: tuple[str, ...],
    patience: float,
    store_url: str,
    *,
    as_json: bool,
) -> None:
    """Run an agent on the rollouts of a run, until the run is closed.

    The agent is looked for in the current folder and on PYTHONPATH. A store behind a server is shown
    the token in AGENTLIGHTNING_STORE_TOKEN; a runner's suffices. How the agent is run (adapters,
    prompts, what is trained) is as the run says.

    Ctrl+C claims no more, and gives rollouts that are running a few seconds to finish; those that do
    not are run again by others, once their lease has run out.
    """
    from agentlightning.config import make_named
    from agentlightning.runner import RunnerSpec

    environment = dict(_variable(text) for text in env)
    chosen = make_named(plugins().executors, "--executor", executor, {})
    sys.path.insert(0, str(Path.cwd()))
    run_id = _run_allowed(run_id, store_url)
    found = None if run_id is None else _look_up(run_id, store_url, patience)
    spec = RunnerSpec(
        store=store_url,
        run_id=run_id,
        agent=_agent_of(agent, found),
        # The run may begin to serve its model only later, and the key that then stands in for a missing
        # one is good for nothing else.
        serves_model=True,
        environment=environment,
        patience_s=patience,
    )
    facts = {"store": without_password(store_url), "run_id": run_id, "agent": spec.agent}
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(_announcement(facts, found, workers, executor))
    _work(chosen, spec, workers, Ending(console, facts, as_json=as_json))


@dataclass(frozen=True)
class Ending:
    """Tells at the end what was done, in words and for machines.

    Attributes:
        console: where people look.
        facts: what the counts are of.
        as_json: whether to print them for machines too.
    """

    console: Console
    facts: Mapping[str, JSON]
    as_json: bool

    def tell(self, executor: Executor, seconds: float) -> dict[str, int]:
        """Print the counts of the workers of ``executor``; returns them."""
        counts = totals(executor)
        self.console.print(in_words(counts))
        if self.as_json:
            print_json({**self.facts, **counts, "seconds": round(seconds, 3)})
        return counts


def _work(executor: Executor, spec: Callable[[], None], workers: int, ending: Ending) -> None:
    """Run the workers to their end; an interrupted program ends here."""
    started, interrupted = time.monotonic(), False
    try:
        with _terminated_as_interrupted(), shown(ending.console, executor):
            executor.run(spec, workers)
    except KeyboardInterrupt:
        interrupted = True
        ending.console.print("interrupted")
    finally:
        counts = ending.tell(executor, time.monotonic() - started)
    if interrupted:
        leave(EXIT_INTERRUPTED)  # threads that agents left behind would keep the program
    if counts["overdue"]:
        leave(0)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Take SIGTERM, by which service managers end programs, for Ctrl+C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(f"--env {name!r}: expected KEY=VALUE")
    return name, value


def _run_allowed(run_id: str | None, store_url: str) -> str | None:
    """The run that was named, else the only one that the token is good for."""
    if urlsplit(store_url).scheme not in {"http", "https"}:
        return run_id
    access = read_access(os.environ.get(TOKEN_VARIABLE, "").strip())
    only = None if access is None else access[1]
    if run_id is not None and only is not None and run_id != only:
        raise ConfigError(
            f"--run {run_id}: the token in {TOKEN_VARIABLE} is good for run {only} only; leave --run "
            f"out, or get another token: agl store token --run {run_id}"
        )
    return run_id or only


def _look_up(run_id: str, store_url: str, patience: float) -> Run:
    from agentlightning.runner.patience import patiently

    opened = patiently(
        lambda: open_existing(store_url), what="open the store", deadline_s=patience, on=StoreAway
    )
    with opened as store:
        return patiently(lambda: store.run(run_id), what=f"look up run {run_id}", deadline_s=patience)


def _agent_of(given: str | None, run: Run | None) -> str:
    """The agent that was named, else the run's own."""
    from agentlightning.runner import settings_of

    if given is not None:
        return given
    if run is None:
        raise ConfigError("--agent: none given; name one, or a run (--run) that has one")
    own = settings_of(run).agent
    if own is None:
        raise AgentError(
            f"run {run.run_id} does not say by what name its agent is imported; give it: "
            "--agent module:name"
        )
    return own


def _announcement(facts: Mapping[str, JSON], run: Run | None, workers: int, executor: str) -> str:
    whose = "every run" if run is None else f"run {run.run_id} ({run.name})"
    closed = "" if run is None or run.status == "open" else f"; it is over: {run.status}"
    return (
        f"runs {facts['agent']} for {whose} in {facts['store']}, {workers} rollouts at once "
        f"({executor}){closed}"
    )
