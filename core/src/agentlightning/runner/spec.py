"""Everything a process needs to build a runner, small enough to send to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from agentlightning.agent import BoundAgent, bind_agent, load_agent, single_turn
from agentlightning.errors import ConfigError
from agentlightning.recording.instruments import instruments
from agentlightning.recording.stand_in import stand_in_key
from agentlightning.records import Resources
from agentlightning.runner.environment import variables_set
from agentlightning.runner.loop import Runner
from agentlightning.runner.overdue import GRACE_S, Overdue
from agentlightning.runner.routing import resolver_for
from agentlightning.store import Store
from agentlightning.store.opening import open_store


@dataclass
class RunnerSpec:
    """A worker for any executor: it builds one :class:`Runner` a process and works.

    Attributes:
        store: the store's URL.
        run_id: whose rollouts; None for those of every run.
        agent: ``"module:name"`` or an importable function; None for the built-in single-turn agent.
        adapters: options by adapter name.
        trained_agents: whose LLM calls go to the run's model; None for all.
        prompts: resource name to the agent whose system prompt it replaces.
        strict: refuse LLM calls that nobody routed.
        has_reward_function: the run scores outputs itself.
        serves_model: the run serves the model, so the agent needs no API key of its own.
        environment: variables set before the agent is imported, and put back after the work.
        overdue_grace_s: how long agents that are over may hold every slot of a process; see
            :class:`~agentlightning.runner.overdue.Overdue`.
        path: entries that ``sys.path`` gets where it lacks them; by default those of this process.
    """

    store: str
    run_id: str | None
    agent: object = None
    adapters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trained_agents: tuple[str, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    has_reward_function: bool = False
    serves_model: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
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

    def build(self, store: Store) -> Runner:
        """Import the agent and make a runner on ``store``.

        The process must be prepared and its instruments installed, and stay so while the runner works.

        Raises:
            AgentError: the agent can't be imported, or is none.
        """
        return Runner(
            store,
            self.run_id,
            self._bound_agent(),
            resolver_factory=partial(
                resolver_for, trained_agents=self.trained_agents, prompts=self.prompts
            ),
            strict=self.strict,
            has_reward_function=self.has_reward_function,
            overdue=Overdue(grace_s=self.overdue_grace_s),
        )

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
            instruments.install(self.adapters)
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
                    self._runner = None
                    self._closing.close()

    def stop(self, deadline_s: float) -> None:
        self._stopped = True
        if (runner := self._runner) is not None:
            runner.stop(deadline_s)

    def _open(self) -> Runner:
        with ExitStack() as opened:
            opened.enter_context(self._spec.prepared())
            store = self.given_store or opened.enter_context(open_store(self._spec.store))
            instruments.install(self._spec.adapters)
            opened.callback(instruments.uninstall)
            runner = self._spec.build(store)
            opened.callback(runner.close)
            self._closing = opened.pop_all()
        return runner
