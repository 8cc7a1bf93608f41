"""The run's own workers: an executor with runners, in the background, from the first rollout on."""

from __future__ import annotations

import threading

from agentlightning.config import Config
from agentlightning.errors import AgentError
from agentlightning.executor import Executor
from agentlightning.records import Run
from agentlightning.runner import RunnerSpec, RunSettings
from agentlightning.trainer.elsewhere import Watch, command_for
from agentlightning.trainer.lasting_store import LastingStore
from agentlightning.trainer.workers import make_executor, make_spec

STOP_S = 4.0
"""Seconds that agents may go on after the run has ended; with a margin, no child is left after 5."""


class Runners:
    """Starts the workers a configuration asks for, and notices when they are gone.

    With a count of 0 it starts none, and notices when nobody else does.

    Attributes:
        hint: what to do if nothing gets done; empty where the run has workers of its own.
    """

    def __init__(self, config: Config, store: LastingStore, run: Run, settings: RunSettings) -> None:
        self._config = config
        self._store = store
        self._run = run
        self._settings = settings
        self._executor: Executor | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._changing = threading.Lock()
        self._stopped = False
        self._watch: Watch | None = None
        self.hint = ""
        if config.runners.count == 0:
            command = command_for(config, run, settings)
            self.hint = f"start runners with: {command}"
            self._watch = Watch(store, run, command)

    def start(self, *, serves_model: bool) -> None:
        """Start the workers; a second call changes nothing, nor does one after :meth:`stop`.

        Args:
            serves_model: the run serves the model, so agents need no API key of their own.
        """
        with self._changing:
            if self._thread is None and not self._stopped and self._config.runners.count:
                self._start(serves_model=serves_model)

    def _start(self, *, serves_model: bool) -> None:
        self._executor = executor = make_executor(self._config)
        spec = make_spec(
            self._config,
            run_id=self._run.run_id,
            serves_model=serves_model,
            settings=self._settings,
        ).using(self._store.itself)
        self._thread = threading.Thread(
            target=self._work, args=(executor, spec), name="agl-runners", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the workers, if they have ended; to be called now and then."""
        if self._watch is not None:
            self._watch.look()
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
