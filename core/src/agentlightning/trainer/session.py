"""Opening everything a run needs, and closing it again in the right order, whatever happens."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from agentlightning.config import Config, wrap_resources
from agentlightning.errors import ConfigError, Interrupted, StoreAway
from agentlightning.recording.sink import Sink
from agentlightning.records import AGENT_VERSION, JSON, Run
from agentlightning.runner import RunSettings
from agentlightning.store import Store
from agentlightning.trainer.context import Parts, RunContext
from agentlightning.trainer.lasting_store import LastingStore
from agentlightning.trainer.occupancy import check_free
from agentlightning.trainer.progress import RunProgress
from agentlightning.trainer.results import ResultBuilder
from agentlightning.trainer.runners import Runners
from agentlightning.trainer.scoring import Scorer
from agentlightning.trainer.serving import Serving
from agentlightning.trainer.spending import Spending
from agentlightning.trainer.traces_out import traces_out
from agentlightning.trainer.trouble import count_trouble
from agentlightning.trainer.unfinished import cancel_unfinished
from agentlightning.trainer.workers import changed_settings, kept

logger = logging.getLogger("agentlightning.trainer")


def open_run(store: Store, config: Config, settings: RunSettings, console: Console) -> Run:
    """The run to work in: a new one with its first resources, or the one to resume.

    Raises:
        ConfigError: the run to resume was made by another algorithm or with another version of rewards,
            or somebody works in its folder.
    """
    if config.resume is None:
        if config.run_dir is not None:
            check_free(Path(config.run_dir))
        run = store.create_run(config.run_name or config.algorithm, kept(config, settings))
        store.publish(run.run_id, wrap_resources(config), note="as configured")
        return run
    run = store.run(config.resume)
    _check_resumable(run, config)
    killed = check_free(folder_of(config, run))
    if run.status == "open" and killed != run.run_id:
        console.print(
            f"warning: run {run.run_id} was never ended, and {folder_of(config, run)} does not tell "
            "that its trainer was killed on this machine; if one is at work elsewhere, stop it: two "
            "cancel each other's rollouts",
            style="yellow",
            soft_wrap=True,
        )
    if changed := changed_settings(run, config, settings):
        console.print(
            f"warning: {', '.join(changed)}: not as the run was started with; runners that "
            "others start go on as before",
            style="yellow",
            soft_wrap=True,
        )
    if unfinished := cancel_unfinished(store, run.run_id):
        console.print(f"{unfinished} rollouts were left unfinished; those still wanted are made anew")
    return store.set_run_status(run.run_id, "open")


def _check_resumable(run: Run, config: Config) -> None:
    """What a run was made with and its rollouts depend on cannot change half-way."""
    earlier = run.config if isinstance(run.config, dict) else {}
    for key, was, given in (
        ("algorithm", earlier.get("algorithm"), config.algorithm),
        ("reward_version", earlier.get("reward_version", AGENT_VERSION), config.reward_version),
    ):
        if was != given:
            raise ConfigError(
                f"resume: run {run.run_id} was made with {key} {was!r} and the configuration says "
                f"{given!r}; resume it with the configuration it was started with, or start a new run"
            )


def folder_of(config: Config, run: Run) -> Path:
    """Where the files of a run go."""
    return Path(config.run_dir or f"runs/{run.name}-{run.run_id[-6:]}")


@contextmanager
def session(
    config: Config,
    store: LastingStore,
    run: Run,
    *,
    train: Sequence[JSON],
    val: Sequence[JSON],
    run_dir: Path,
    score: Callable[..., Any] | None,
    settings: RunSettings,
    console: Console,
) -> Iterator[RunContext]:
    """A context for the algorithm; at the end runners stop first, then endpoint and engines.

    What no worker finished is cancelled then, and what went wrong on the way is counted. Ctrl+C stops
    the runners, and nobody waits any longer for a store that is away.

    Args:
        config: of the run.
        store: with ``run`` in it.
        run: to work in.
        train: training tasks.
        val: validation tasks.
        run_dir: where its files go.
        score: the reward function; None leaves rewards to the agent.
        settings: how workers run the agent.
        console: for the progress bar.
    """
    with ExitStack() as closing:
        sink = Sink(store.itself, flush_every_s=0)  # a killed trainer loses as little as can be
        closing.callback(sink.close)
        serving = Serving(store, sink, run.run_id, config.endpoint)
        closing.callback(_unless_away, "taking the endpoint down", serving.stop)
        spending = Spending(config.budget.fresh(), store, run.run_id)
        closing.callback(_unless_away, "noting what was spent", spending.keep)
        send = closing.enter_context(
            traces_out(
                config.otlp, run, lambda counts: store.log_metrics(run.run_id, spending.step, counts)
            )
        )
        closing.callback(
            _unless_away, "cancelling what is unfinished", cancel_unfinished, store, run.run_id
        )
        runners = Runners(config, store, run, settings)
        closing.callback(runners.stop)
        scorer = Scorer(score, config.reward_version)

        def stop() -> None:
            store.absence.give_up()
            runners.stop()

        parts = Parts(
            store=store,
            serving=serving,
            runners=runners,
            builder=ResultBuilder(store, sink, scorer),
            spending=spending,
            send=send,
            progress=closing.enter_context(RunProgress(console)),
            interrupt=closing.enter_context(interruptible(console, then=stop)),
        )
        closing.callback(
            _unless_away,
            "noting what went wrong",
            lambda: store.log_metrics(
                run.run_id,
                spending.step,
                count_trouble(serving.endpoint, sink, scorer, store, run.run_id),
            ),
        )
        try:
            yield RunContext(config, run, parts, train=train, val=val, run_dir=run_dir)
        except StoreAway as error:
            if parts.interrupt.is_set():
                raise Interrupted(f"run {run.run_id} was interrupted") from error
            raise


def _unless_away(what: str, call: Callable[..., object], *arguments: object) -> None:
    """Do what the end of a run asks of its store; one that is away must not hide what ended the run."""
    try:
        call(*arguments)
    except StoreAway as error:
        logger.warning("%s: not done, %s", what, error)


@contextmanager
def interruptible(console: Console, *, then: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl+C sets; the second one interrupts at once.

    ``then`` is called at the first, in a thread of its own: the algorithm may look at the event only
    minutes later. Outside the main thread signals cannot be caught and the event is never set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    interrupted, is_over = threading.Event(), threading.Event()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            signal.default_int_handler(number, frame)
        interrupted.set()
        console.print("interrupted: saving and stopping (press again to stop at once)")

    def follow() -> None:
        interrupted.wait()
        if not is_over.is_set():
            then()

    threading.Thread(target=follow, name="agl-interrupt", daemon=True).start()
    earlier = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, earlier)
        is_over.set()
        interrupted.set()  # lets the thread end
