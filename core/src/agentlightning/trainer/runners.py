"""The run's own workers: an executor with runners, in the background, from the first rollout on."""

from __future__ import annotations

import threading

from agentlightning.config import Config
from agentlightning.errors import AgentError
from agentlightning.executor import Executor
from agentlightning.records import Run
from agentlightning.runner import RunnerSpec
from agentlightning.store import Store
from agentlightning.trainer.workers import make_executor, make_spec

STOP_S = 4.0
"""Seconds that agents may go on after the run has ended; with a margin, no child is left after 5."""


class Runners:
    """Starts the workers a configuration asks for, and notices when they are gone."""

    def __init__(self, config: Config, store: Store, run: Run, *, has_reward_function: bool) -> None:
        self._config = config
        self._store = store
        self._run = run
        self._has_reward_function = has_reward_function
        self._executor: Executor | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._changing = threading.Lock()
        self._stopped = False

    def start(self, *, serves_model: bool) -> None:
        """Start the workers; a second call changes nothing, nor does one after :meth:`stop`.

        Args:
            serves_model: the run serves the model, so agents need no API key of their own.
        """
        with self._changing:
            if self._thread is None and not self._stopped:
                self._start(serves_model=serves_model)

    def _start(self, *, serves_model: bool) -> None:
        self._executor = executor = make_executor(self._config)
        spec = make_spec(
            self._config,
            run_id=self._run.run_id,
            serves_model=serves_model,
            has_reward_function=self._has_reward_function,
        ).using(self._store)
        self._thread = threading.Thread(
            target=self._work, args=(executor, spec), name="agl-runners", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the workers, if they have ended."""
        if self._error is not None:
            raise self._error
        if self._thread is not None and not self._thread.is_alive():
            raise AgentError("all workers have ended although the run is open; see the log for why")

    def stop(self) -> None:
        """Let the workers finish what they run, for a while, and end them; from any thread."""
        with self._changing:
            if self._thread is not None and self._executor is not None and not self._stopped:
                self._executor.stop(STOP_S)
                self._thread.join(2 * STOP_S)
            self._stopped = True

    def _work(self, executor: Executor, spec: RunnerSpec) -> None:
        try:
            executor.run(spec, self._config.runners.count)
        except BaseException as error:  # noqa: BLE001 - raised by check(), in the trainer's thread
            self._error = error
