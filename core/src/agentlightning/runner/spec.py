"""Everything a process needs to build a runner, small enough to send to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from agentlightning.agent import BoundAgent, bind_agent, load_agent, single_turn
from agentlightning.errors import ConfigError, StoreAway
from agentlightning.recording.instruments import instruments
from agentlightning.recording.stand_in import stand_in_key
from agentlightning.records import JSON, Resources, Run
from agentlightning.runner.environment import variables_set
from agentlightning.runner.known_runs import KnownRuns
from agentlightning.runner.loop import Runner
from agentlightning.runner.overdue import GRACE_S, Overdue
from agentlightning.runner.patience import patiently
from agentlightning.runner.settings import RunSettings
from agentlightning.store import Store
from agentlightning.store.opening import open_store


@dataclass
class RunnerSpec:
    """A worker for any executor: it builds one :class:`Runner` a process and works.

    Attributes:
        store: the store's URL.
        run_id: whose rollouts; None for those of every run.
        agent: ``"module:name"`` or an importable function; None for the built-in single-turn agent.
        settings: how the agent is run; None to read with each claim what its run says.
        serves_model: the run serves the model, so the agent needs no API key of its own.
        environment: variables set before the agent is imported, and put back after the work.
        patience_s: how long the store may be unavailable before the workers give up.
        overdue_grace_s: how long agents that are over may hold every slot of a process; see
            :class:`~agentlightning.runner.overdue.Overdue`.
        path: entries that ``sys.path`` gets where it lacks them; by default those of this process.
    """

    store: str
    run_id: str | None
    agent: object = None
    settings: RunSettings | None = None
    serves_model: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = 60.0
    overdue_grace_s: float = GRACE_S
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def __post_init__(self) -> None:
        self._shared = _Shared(self)

    def using(self, store: Store) -> Self:
        """Work on this open store, as long as that is done in this process; it is left open."""
        self._shared.given_store = store
        return self

    def __call__(self) -> None:
        """Work until the run is closed or :meth:`stop`; the threads of a process share one runner."""
        with self._shared.runner() as runner:
            if runner is not None:
                runner.work()

    def stop(self, deadline_s: float) -> None:
        """See :meth:`Runner.stop`; a worker that has not begun yet will not."""
        self._shared.stop(deadline_s)

    def report(self) -> dict[str, JSON]:
        """What the runner of this process tells of itself, or told last; empty before it began."""
        return self._shared.report()

    @contextmanager
    def installed(self, store: Store) -> Iterator[Runner]:
        """Import the agent and make a runner on ``store``; the body is its life.

        The process must be prepared, and stay so meanwhile.

        Raises:
            AgentError: the agent can't be imported, or is none.
            PluginError: an adapter that is to be used is not here, or cannot be used.
        """
        with ExitStack() as opened:
            # Before the agent is imported: that is when adapters are made, with their options.
            runs = KnownRuns()
            opened.callback(runs.forget)
            if self.settings is None and self.run_id is not None:
                runs(self._run(store, self.run_id))
            instruments.install(self.settings.adapters if self.settings else {})
            opened.callback(instruments.uninstall)
            runner = Runner(
                store,
                self.run_id,
                self._bound_agent(),
                settings=runs if self.settings is None else self._given_settings,
                patience_s=self.patience_s,
                overdue=Overdue(grace_s=self.overdue_grace_s),
            )
            opened.callback(runner.close)
            yield runner

    def _run(self, store: Store, run_id: str) -> Run:
        return patiently(lambda: store.run(run_id), what="look up the run", deadline_s=self.patience_s)

    def _given_settings(self, _run: Run) -> RunSettings:
        assert self.settings is not None  # noqa: S101 - used where it is
        return self.settings

    def check(self, resources: Resources | None = None) -> None:
        """Make the agent as a worker does, in this process, and leave it at that.

        Args:
            resources: those it will be run with; None leaves its parameters unchecked.

        Raises:
            AgentError: the one a worker would end with, or every rollout of it.
        """
        with ExitStack() as opened:
            if isinstance(self.agent, str):
                opened.enter_context(self.prepared())
            instruments.install(self.settings.adapters if self.settings else {})
            opened.callback(instruments.uninstall)
            agent = self._bound_agent()
            if resources is not None:
                agent.check(resources)

    def _bound_agent(self) -> BoundAgent:
        agent = load_agent(self.agent) if isinstance(self.agent, str) else self.agent
        return bind_agent(single_turn if agent is None else agent, instruments.adapters)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Make this process one the agent can be imported and run in, for the body.

        Environment and API key are put back afterwards. Entries of ``sys.path`` stay: what was imported
        from them may import more later.
        """
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        with variables_set(self.environment), stand_in_key() if self.serves_model else nullcontext():
            yield

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to another process: everything but the runner of this one."""
        if self.store.startswith("memory:"):
            raise ConfigError(
                f"the store {self.store!r} lives in one process; for several use a file, such as "
                f"'sqlite:///runs.db', or the executor 'threads'"
            )
        return {key: value for key, value in vars(self).items() if key != "_shared"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Receive it."""
        vars(self).update(state, _shared=_Shared(self))


class _Shared:
    """What the workers of one process share: made by the first to come, ended by the last to go."""

    def __init__(self, spec: RunnerSpec) -> None:
        self.given_store: Store | None = None
        self._spec = spec
        self._lock = threading.Lock()
        self._workers = 0
        self._stopped = False
        self._runner: Runner | None = None
        self._last_report: dict[str, JSON] = {}
        self._closing = ExitStack()

    @contextmanager
    def runner(self) -> Iterator[Runner | None]:
        """The process's runner; None once it was stopped."""
        with self._lock:
            if self._runner is None and not self._stopped:
                self._runner = self._open()
                if self._stopped:  # while the agent was being imported
                    self._runner.stop(0)
            runner = self._runner
            self._workers += 1
        try:
            yield runner
        finally:
            with self._lock:
                self._workers -= 1
                if self._workers == 0:
                    self._close()

    def stop(self, deadline_s: float) -> None:
        self._stopped = True
        if (runner := self._runner) is not None:
            runner.stop(deadline_s)

    def report(self) -> dict[str, JSON]:
        runner = self._runner
        return self._last_report if runner is None else runner.report()

    def _open(self) -> Runner:
        with ExitStack() as opened:
            opened.enter_context(self._spec.prepared())
            store = self.given_store or opened.enter_context(self._open_store())
            runner = opened.enter_context(self._spec.installed(store))
            self._closing = opened.pop_all()
        return runner

    def _open_store(self) -> Store:
        """The store; a database that is being restarted is waited for, a wrong password is not."""
        return patiently(
            lambda: open_store(self._spec.store),
            what="open the store",
            deadline_s=self._spec.patience_s,
            on=StoreAway,
        )

    def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            self._closing.close()
        finally:
            self._last_report = runner.report()
