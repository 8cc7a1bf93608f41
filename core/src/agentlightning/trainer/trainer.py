"""The trainer: one run of an algorithm on an agent, from configuration to summary."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from agentlightning.config import Config, Elsewhere, load_config, load_dataset
from agentlightning.errors import AgentError, ConfigError, Interrupted, RunInterrupted, StoreAway
from agentlightning.executor import in_worker_process
from agentlightning.plugins import plugins
from agentlightning.records import JSON, LLM, Run, RunStatus
from agentlightning.runner import RunSettings
from agentlightning.store import Store
from agentlightning.store.opening import open_existing_store, open_store, without_password
from agentlightning.trainer.absence import Absence
from agentlightning.trainer.elsewhere import how_to_run
from agentlightning.trainer.lasting_store import LastingStore
from agentlightning.trainer.memory import MemoryWatch
from agentlightning.trainer.occupancy import occupied
from agentlightning.trainer.preflight import check_run
from agentlightning.trainer.report import draw_reward_curve
from agentlightning.trainer.scoring import reward_function
from agentlightning.trainer.session import folder_of, open_run, session
from agentlightning.trainer.summary import (
    CURVE_FILE,
    TrainResult,
    print_summary,
    summarise,
    write_summary,
)
from agentlightning.trainer.workers import make_settings

logger = logging.getLogger("agentlightning.trainer")


class Trainer:
    """Trains an agent as a configuration says.

    Args:
        config: a mapping, or the path of a YAML file.
        keys: further configuration keys, laid over ``config``.

    Raises:
        ConfigError: the configuration cannot be used; nothing has been started.
    """

    def __init__(self, config: Mapping[str, Any] | str | Path | None = None, **keys: Any) -> None:
        if in_worker_process():
            raise AgentError(
                "a Trainer was made while a worker process imported the script that the agent lies in; "
                "put what starts the training under: if __name__ == '__main__':"
            )
        self.config: Config = load_config(config, **keys)
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def train(self, dataset: Any = None, eval_dataset: Any = None) -> TrainResult:
        """Train on ``dataset`` (or the configuration's ``train_dataset``).

        The agent is the configuration's, or the built-in one: a single turn of the model on a row's
        ``messages``, ``prompt``, ``question`` or ``input``.
        """
        return self._run(dataset, eval_dataset)

    def fit(self, agent: Any = None, train: Any = None, val: Any = None) -> TrainResult:
        """Train ``agent`` on tasks.

        Args:
            agent: a function of a task, ``"module:name"``, a framework's own agent object, or whatever
                else :mod:`agentlightning.agent` takes; None for the configuration's, or, with
                ``runners.count`` 0, for one that only the runners started by others know.
            train: tasks; None for the configuration's ``train_dataset``.
            val: tasks not trained on; None for ``eval_dataset``.

        Raises:
            ConfigError: no agent or no task.
            RunInterrupted: Ctrl+C was pressed (a ``KeyboardInterrupt``); what is recorded stays and the
                run can be resumed.
        """
        if agent is not None:
            self.config.agent = agent
        if self.config.agent is None and self.config.runners.count == 0:
            self.config.agent = Elsewhere.AGENT
        if self.config.agent is None:
            raise ConfigError(
                "agent: none given; pass it to fit(), or call train() for the built-in one"
            )
        return self._run(train, val)

    def _run(self, train: Any, val: Any) -> TrainResult:
        config = self.config
        tasks, validation = self._datasets(train, val)
        score, how_scored = reward_function(config, tasks, validation)
        check_run(config, tasks, validation)
        if config.run_dir is not None:
            # Before the store, which may be a file in it.
            Path(config.run_dir).mkdir(parents=True, exist_ok=True)
        settings = make_settings(config, has_reward_function=score is not None)
        with self._open_store() as store:
            self._announce(how_scored)
            run = open_run(store, config, settings, self._console)
            run_dir = folder_of(config, run)
            run_dir.mkdir(parents=True, exist_ok=True)
            with (
                self._resumable(run),
                occupied(run_dir, run.run_id),
                _documented(store, run, run_dir, config.reward_version) as summary,
            ):
                self._say_where(run, settings)
                with session(
                    config,
                    store,
                    run,
                    train=tasks,
                    val=validation,
                    run_dir=run_dir,
                    score=score,
                    settings=settings,
                    console=self._console,
                ) as context:
                    algorithm = plugins().algorithms.get(config.algorithm)(config.options)
                    context.settle(algorithm.run(context))
                    context.raise_if_interrupted()
            return self._conclude(store, run, run_dir, summary)

    def _datasets(self, train: Any, val: Any) -> tuple[list[JSON], list[JSON]]:
        config = self.config
        tasks = load_dataset(config.train_dataset if train is None else train, "train_dataset")
        if not tasks and getattr(config.options, "needs_tasks", True):
            raise ConfigError("train_dataset: none given; pass it to the call or set the key")
        return tasks, load_dataset(config.eval_dataset if val is None else val, "eval_dataset")

    def _open_store(self) -> LastingStore:
        """The store; one with a run to resume has to be there."""
        resumes = self.config.resume is not None
        store = (open_existing_store if resumes else open_store)(self.config.store)
        return LastingStore(store, Absence())

    @contextmanager
    def _resumable(self, run: Run) -> Iterator[None]:
        """Say how to go on with a run that ended before its time."""
        try:
            yield
        except StoreAway:
            self._console.print(
                f"the store of run {run.run_id} stayed away; when it is back, go on with the key "
                f"resume: {run.run_id}",
                soft_wrap=True,
            )
            raise
        except (Interrupted, KeyboardInterrupt) as error:
            self._console.print(
                f"run {run.run_id} was interrupted; go on with the key resume: {run.run_id}",
                soft_wrap=True,
            )
            raise RunInterrupted from error

    def _announce(self, how_scored: str) -> None:
        defaults = ", ".join(f"{key}={value}" for key, value in sorted(self.config.defaults.items()))
        self._console.print(
            f"{self.config.algorithm} on {self.config.model}; defaults taken: {defaults or 'none'}",
            soft_wrap=True,
        )
        self._console.print(how_scored)
        for warning in self.config.warnings:
            self._console.print(f"warning: {warning}", style="yellow", soft_wrap=True)

    def _say_where(self, run: Run, settings: RunSettings) -> None:
        going_on = "" if self.config.resume is None else "going on with "
        store = without_password(self.config.store)
        self._console.print(f"{going_on}run {run.run_id} in {store}", soft_wrap=True)
        if self.config.runners.count == 0:
            for line in how_to_run(self.config, run, settings):
                self._console.print(line, soft_wrap=True)

    def _conclude(self, store: Store, run: Run, run_dir: Path, summary: dict[str, JSON]) -> TrainResult:
        resources = store.resources(run.run_id, "latest")
        models = [item.model for item in resources.resources.values() if isinstance(item, LLM)]
        shown = without_password(self.config.store)
        print_summary(self._console, summary, run_dir, shown, models)
        return TrainResult(
            run_id=run.run_id,
            resources=resources,
            reward_before=summary["reward_before"],
            reward_after=summary["reward_after"],
            run_dir=run_dir,
        )


@contextmanager
def _documented(
    store: Store, run: Run, run_dir: Path, reward_version: str
) -> Iterator[dict[str, JSON]]:
    """Whatever happens inside, leave the run with its status, its summary and its reward curve."""
    memory = MemoryWatch()
    summary: dict[str, JSON] = {}

    def document(status: RunStatus) -> None:
        ended = store.set_run_status(run.run_id, status)
        summary.update(summarise(store, ended, memory.stop(), reward_version))
        write_summary(run_dir, summary)
        draw_reward_curve(store, ended, run_dir / CURVE_FILE)

    try:
        yield summary
    except BaseException as error:
        stopped = isinstance(error, Interrupted | KeyboardInterrupt)
        try:
            document("cancelled" if stopped else "failed")
        except StoreAway as away:
            logger.error("run %s has no summary: %s", run.run_id, away)  # noqa: TRY400 - it says it all
        except Exception:  # what ended the run matters more, and is raised
            logger.exception("the summary of run %s could not be written", run.run_id)
        raise
    document("succeeded")
