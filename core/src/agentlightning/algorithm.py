"""The contract of an algorithm, and what the trainer hands it."""

from __future__ import annotations

import inspect
import math
import sys
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from agentlightning.engine import Engine, Weights
from agentlightning.errors import AlgorithmError
from agentlightning.plugins import when_loaded
from agentlightning.plugins.registry import checked_name
from agentlightning.records import (
    JSON,
    LLM,
    Mode,
    Resource,
    Resources,
    ResourcesVersion,
    Rollout,
    RolloutConfig,
    Run,
    Span,
)
from agentlightning.samples import CreditRules, Explanation, Level, Limits, Transition
from agentlightning.store import Store

if TYPE_CHECKING:
    from agentlightning.config import Config
    from agentlightning.config import Config as RunConfig


@dataclass
class Budget:
    """What a run may spend; None for no limit. ``spent`` counts by the same names."""

    rollouts: int | None = None
    llm_calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    spent: dict[str, float] = field(default_factory=dict)

    def left(self, what: str) -> float:
        """How much of ``what`` is left; infinite without a limit."""
        limit = getattr(self, what)
        return math.inf if limit is None else limit - self.spent.get(what, 0)

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left of one of the limits."""
        return any(self.left(what) <= 0 for what in ("rollouts", "llm_calls", "seconds", "tokens"))


@dataclass(frozen=True)
class RolloutResult:
    """One finished rollout with its samples.

    Built only after the endpoint's and the runner's sinks have flushed the attempt, so nothing is
    missing from ``spans`` because it was late.

    Attributes:
        reward: the outcome by the credit rules; None = unscored, never 0.0.
        rewards: the outcome rewards by name.
        transitions: one for each choice of each call, dropped ones included with their reason.
    """

    rollout: Rollout
    spans: Sequence[Span]
    reward: float | None
    rewards: Mapping[str, float]
    transitions: Sequence[Transition]
    rules: CreditRules
    limits: Limits = Limits()
    level: Level = "transition"

    @property
    def status(self) -> str:
        """The rollout's status."""
        return self.rollout.status

    @property
    def output(self) -> JSON:
        """What the agent returned."""
        return self.rollout.output

    def messages(self, agent: str | None = None) -> list[dict[str, JSON]]:
        """The longest conversation recorded, the last reply included; of one agent if named."""
        from agentlightning.llm_api import conversation

        calls = [span.call for span in self.spans if span.call and span.call.complete]
        mine = [conversation(call) for call in calls if agent is None or call.agent == agent]
        return max(mine, key=len, default=[])

    def explain(self) -> Explanation:
        """What became of every call and reward."""
        from agentlightning.samples import explain

        return explain(self.rollout, self.spans, self.rules, self.limits, self.level)


class RolloutBatch(ABC):
    """Rollouts under way. Iterating gives each as it finishes."""

    @abstractmethod
    def __iter__(self) -> Iterator[RolloutResult]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[RolloutResult]:
        """All results, in the order of the tasks (each task's copies side by side)."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel what is not finished; its results come back with status ``cancelled``."""


@dataclass(frozen=True)
class Evaluation:
    """The agent on the validation tasks with one version of the resources.

    ``reward`` is the mean over the scored rollouts, None if none was scored. Missing ones (failed,
    cancelled) and unscored ones are counted, never taken for 0.
    """

    reward: float | None
    scored: int
    unscored: int
    missing: int
    version: int


class AlgorithmContext(ABC):
    """What an algorithm may use; implemented by the trainer.

    Attributes:
        run: the run everything is recorded in.
        config: the top level of the configuration.
        train: training tasks. val: validation tasks; may be empty.
        resources: the version current at the start.
        run_dir: where files of this run go.
    """

    run: Run
    config: Config
    train: Sequence[JSON]
    val: Sequence[JSON]
    store: Store
    resources: ResourcesVersion
    seed: int
    run_dir: Path
    budget: Budget

    @abstractmethod
    def engine(self) -> Engine:
        """The engine the configuration names, for its ``model``; not started."""

    @abstractmethod
    def serve(
        self,
        engine: Engine,
        *,
        name: str = "llm",
        sampling: Mapping[str, JSON] | None = None,
        version: int = 0,
    ) -> LLM:
        """Start the engine behind the endpoint; the resource ``name`` leads there from now on.

        Args:
            engine: not started yet.
            name: the resource to serve.
            sampling: request fields forced on every training rollout (``temperature``, ``top_p``);
                validation keeps what the agent asks for.
            version: the version of the weights the engine starts with; after a restart, the one the
                checkpoint was made at. :meth:`publish` counts on from it.
        """

    @abstractmethod
    def rollouts(
        self,
        tasks: Sequence[JSON],
        *,
        resources: ResourcesVersion | None = None,
        n: int = 1,
        mode: Mode = "train",
        config: RolloutConfig | None = None,
        rules: CreditRules | None = None,
        limits: Limits | None = None,
        level: Level = "transition",
        key: str | None = None,
    ) -> RolloutBatch:
        """Run the agent ``n`` times on each task; returns at once.

        The ``n`` rollouts of a task share a group id. The same ``key`` after a restart gives the same
        rollouts, so none is paid for twice; those that an interruption cancelled are made anew.
        ``rules`` (with the configured ``reward_version``), ``limits`` and ``level`` shape the results'
        samples; they are kept with each rollout, so that ``agl explain`` tells what the algorithm saw.
        """

    @abstractmethod
    def publish(
        self,
        resources: Mapping[str, Resource],
        *,
        weights: Mapping[str, Weights] | None = None,
        note: str = "",
        candidate: bool = False,
    ) -> ResourcesVersion:
        """Post better resources (merged over the current ones).

        ``weights`` by resource name: the endpoint pauses and drains, the engine loads, the ``LLM`` is
        stamped with a new version, requests go on.
        """

    @abstractmethod
    def evaluate(self, resources: ResourcesVersion | None = None, *, step: int) -> Evaluation:
        """Run the agent once on every validation task, log ``val/reward`` and remember the result.

        The first evaluation of a run is its ``reward_before``, the last its ``reward_after``.
        """

    @abstractmethod
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep numbers with the run and show them in the progress bar."""

    @abstractmethod
    def progress(self, done: int, total: int, label: str = "") -> None:
        """Tell the progress bar how far the algorithm is."""

    @abstractmethod
    def checkpoint(self, state: Mapping[str, JSON]) -> None:
        """Keep what is needed to go on after a restart, in the store."""

    @abstractmethod
    def restore(self) -> Mapping[str, JSON] | None:
        """What the last checkpoint of this run kept; None in a new run."""

    @abstractmethod
    def stopping(self) -> bool:
        """Whether the run was interrupted or its budget is used up: finish the step and return."""

    def interrupted(self) -> bool:
        """Whether it is not the budget that stops the run: keep what is needed to go on later."""
        return self.stopping() and not self.budget.is_used_up


class Algorithm(ABC):
    """Reads samples and posts resources. Registered as ``algorithm(config)``.

    ``Config`` is a ``msgspec.Struct`` whose fields are the algorithm's configuration keys; its module
    imports no torch, so that a configuration is checked without it. What else the trainer asks it for,
    where it has that:

    - ``check(config)``: raises a ``ConfigError`` for what cannot work, when a configuration is read;
    - ``needs_tasks``: False if there need be no training dataset;
    - ``needs_rewards``: True if agents run on the training tasks and rollouts without a reward teach
      nothing;
    - ``serves``: the names of the resources under which agents find ``model``, served by the run.
    """

    Config: ClassVar[type]

    def __init__(self, config: Any) -> None:
        self.config = config

    def check(  # noqa: B027 - not every algorithm needs it
        self, config: RunConfig, train: Sequence[JSON], val: Sequence[JSON]
    ) -> None:
        """Refuse what cannot work, before the run exists and anything is spent.

        It may import the training library. An algorithm that has nothing to check leaves this out.

        Args:
            config: the whole configuration.
            train: training tasks.
            val: validation tasks.

        Raises:
            AgentLightningError: what is wrong, what was expected, and what to do.
        """

    @abstractmethod
    def run(self, ctx: AlgorithmContext) -> Resources:
        """Do the work; returns the best resources found, already published."""


AlgorithmFunction = Callable[..., Resources]


class FunctionAlgorithm(Algorithm):
    """An algorithm made of one function by :func:`algorithm`.

    Attributes:
        function: the function as it was written.
    """

    function: ClassVar[AlgorithmFunction]

    def run(self, ctx: AlgorithmContext) -> Resources:
        """Call the function with its configuration as keyword arguments."""
        options = {name: getattr(self.config, name) for name in self.config.__struct_fields__}
        best = self.function(ctx, **options)
        if not isinstance(best, Mapping):
            raise AlgorithmError(
                f"the algorithm {self.function.__qualname__} returned {type(best).__name__}; "
                "expected the best resources it published, by name"
            )
        return best


def algorithm(
    name: str, *, summary: str | None = None
) -> Callable[[AlgorithmFunction], type[FunctionAlgorithm]]:
    """Make an algorithm of a function that takes ``ctx`` and options, and offer it by name.

    The options, with their types and defaults, are the algorithm's configuration keys::

        @agl.algorithm("best-of-two")
        def best_of_two(ctx, rounds: int = 3):
            ...

    Args:
        name: what a configuration calls it.
        summary: one line for listings; the first line of the docstring otherwise.

    Raises:
        PluginError: the name cannot be typed in a configuration.
        AlgorithmError: an option has no name of its own.
    """
    checked_name("algorithm", name)

    def decorate(function: AlgorithmFunction) -> type[FunctionAlgorithm]:
        config = _config_of(function)
        made = type(
            function.__name__,
            (FunctionAlgorithm,),
            {
                "__module__": function.__module__,
                "__qualname__": function.__qualname__,
                "__doc__": function.__doc__,
                "Config": config,
                "function": staticmethod(function),
            },
        )
        text = summary or (function.__doc__ or "").strip().partition("\n")[0]
        when_loaded(lambda plugins: plugins.algorithms.add(name, made, summary=text, config=config))
        return made

    return decorate


def _config_of(function: AlgorithmFunction) -> type[msgspec.Struct]:
    """The options of a function as a configuration class, so that they are checked like any other."""
    _, *options = inspect.signature(function).parameters.values()
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for option in options:
        if option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL, option.POSITIONAL_ONLY):
            raise AlgorithmError(
                f'the algorithm {function.__qualname__} takes "{option}"; expected named options, '
                "since its configuration is checked by their names"
            )
        annotation = _evaluated(function, option)
        required = option.default is option.empty
        fields.append(
            (option.name, annotation) if required else (option.name, annotation, option.default)
        )
    return msgspec.defstruct(
        f"{function.__name__}_config", fields, kw_only=True, module=function.__module__
    )


def _evaluated(function: AlgorithmFunction, option: inspect.Parameter) -> Any:
    if option.annotation is option.empty:
        return Any
    # One option at a time: the annotation of ``ctx`` is often importable for type checkers only.
    holder = types.SimpleNamespace(__annotations__={option.name: option.annotation})
    scope = inspect.unwrap(function).__globals__
    return typing.get_type_hints(holder, globalns=scope)[option.name]


class _CallableModule(types.ModuleType):
    """This module, which can be called as the decorator :func:`algorithm`.

    Importing a module sets it as an attribute of its package, so ``agentlightning.algorithm`` is this
    module whenever it is loaded, and ``@agentlightning.algorithm("name")`` has to work all the same.
    """

    def __call__(
        self, name: str, *, summary: str | None = None
    ) -> Callable[[AlgorithmFunction], type[FunctionAlgorithm]]:
        return algorithm(name, summary=summary)


sys.modules[__name__].__class__ = _CallableModule
