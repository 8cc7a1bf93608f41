"""The configuration's one schema, for a dict, a YAML file and keyword arguments alike."""

from __future__ import annotations

import enum
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agentlightning.algorithm import Budget
from agentlightning.otlp import told_by_environment
from agentlightning.records import AGENT_VERSION, JSON, RolloutConfig
from agentlightning.store.opening import default_url


class Elsewhere(enum.Enum):
    """In the place of an agent: one that only the runners started by others can import."""

    AGENT = "elsewhere"


class RunnersConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who runs the agent.

    Attributes:
        count: rollouts at once, over all threads and processes; 0 leaves them all to runners that are
            started with ``agl run``, here or on other machines. ``runners: 0`` says the same.
        executor: a name (``threads``, ``processes``), or ``{"name": …, …its options}``.
        environment: variables set for the agent before it is imported.
    """

    count: int = 8
    executor: str | dict[str, Any] = "threads"
    environment: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse a number of workers that there cannot be."""
        if self.count < 0:
            raise ValueError(
                f"count is {self.count}; expected at least 1, or 0 to leave the work to `agl run`"
            )


class EndpointConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where agents find the model that the run serves.

    Attributes:
        host: the address to listen on; one beyond this machine only where runners on others need it.
        port: 0 for a free one.
        url: where runners reach it, if not at host and port: through a proxy, or when it listens on
            all addresses.
    """

    host: str = "127.0.0.1"
    port: int = 0
    url: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be listened on, or not be reached."""
        if not 0 <= self.port < _PORTS:
            raise ValueError(f"port is {self.port}; expected 0 (a free one) to {_PORTS - 1}")
        if self.url is None:
            if self.host in _WILDCARDS:
                raise ValueError(
                    f"host {self.host!r} means all addresses; expected url too, the one that runners "
                    "reach this machine by, such as http://trainer.example:8000"
                )
        elif urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).hostname:
            raise ValueError(f"url is {self.url!r}; expected one such as http://trainer.example:8000")
        elif self.port == 0:
            raise ValueError(
                "url says where runners connect to, but port is 0, a free one that is another each "
                "time; give the port to listen on"
            )


_PORTS = 65536
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound


class BudgetConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the run may spend; None for no limit."""

    rollouts: int | None = None
    llm_calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse a budget that is used up before anything is done."""
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} is {limit}; expected more than 0, or nothing for no limit")

    def fresh(self) -> Budget:
        """The same limits with nothing spent yet."""
        return Budget(self.rollouts, self.llm_calls, self.seconds, self.tokens)


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The top level of a configuration; every other key belongs to the algorithm.

    Attributes:
        algorithm: a registered name or alias, such as ``rl``, ``grpo``, ``sft``.
        agent: what :meth:`Trainer.fit` takes; None runs the built-in single-turn agent.
        model: a local directory, a hub id (``owner/name``) or a hosted model's name.
        base_url: where a hosted model is asked, when not at the provider's own address.
        store: the store's URL; else ``AGENTLIGHTNING_STORE``. run_name: the run's name in it.
        train_dataset: tasks. eval_dataset: validation tasks, not trained on.
        reward_function: ``f(task, output)`` or ``f(task, output, rollout)``, or ``"module:name"``.
        reward_version: the version of rewards that the run reads, and that its reward function's values
            are recorded as: ``"agent"``, or the version of an ``agl rescore``.
        endpoint: where agents find the model that the run serves.
        engine: a name, a URL, or ``{"name": …, …its options}``.
        adapters: options by adapter name.
        strict: refuse LLM calls that nobody routed.
        resources: further resources of the agent by name.
        prompts: resource name to agent name, for prompts the seam puts in.
        trained_agents: names of the agents whose calls go to ``model``; None for all.
        resume: the id of a stopped run to go on with.
        report_to: experiment trackers, as transformers names them.
        otlp: where finished rollouts are sent as OpenTelemetry's traces: a collector's URL, or True for
            the one that ``OTEL_EXPORTER_OTLP_ENDPOINT`` names; else ``AGENTLIGHTNING_OTLP``.
    """

    algorithm: str
    agent: Any = None
    model: str | None = None
    base_url: str | None = None
    store: str = msgspec.field(default_factory=default_url)
    run_name: str | None = None
    train_dataset: Any = None
    eval_dataset: Any = None
    reward_function: Any = None
    reward_version: str = AGENT_VERSION
    runners: RunnersConfig = msgspec.field(default_factory=RunnersConfig)
    endpoint: EndpointConfig = msgspec.field(default_factory=EndpointConfig)
    engine: str | dict[str, Any] | None = None
    adapters: dict[str, dict[str, Any]] = {}
    strict: bool = False
    rollout: RolloutConfig = RolloutConfig()
    resources: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    trained_agents: tuple[str, ...] | None = None
    seed: int = 0
    run_dir: str | None = None
    resume: str | None = None
    report_to: tuple[str, ...] | str = ()
    otlp: bool | str | None = msgspec.field(default_factory=told_by_environment)
    budget: BudgetConfig = msgspec.field(default_factory=BudgetConfig)


class Config(Settings, kw_only=True):
    """A checked configuration.

    Attributes:
        options: the algorithm's own ``Config``.
        defaults: every default that was taken, by key; printed at the start and kept with the run.
        warnings: what the user should know before anything is spent.
    """

    options: Any = None
    defaults: dict[str, JSON] = {}
    warnings: tuple[str, ...] = ()
