"""What the trainer hands an algorithm: :class:`AlgorithmContext` over a store, runners and engines."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from agentlightning.algorithm import (
    AlgorithmContext,
    Evaluation,
    RolloutBatch,
    RolloutResult,
)
from agentlightning.config import Config
from agentlightning.engine import Engine, Weights
from agentlightning.errors import AlgorithmError, BudgetExhausted, Interrupted
from agentlightning.plugins import plugins
from agentlightning.records import (
    AGENT_VERSION,
    JSON,
    LLM,
    Mode,
    Resource,
    Resources,
    ResourcesVersion,
    RolloutConfig,
    RolloutRequest,
    Run,
)
from agentlightning.samples import CreditRules, Level, Limits, remember_rules
from agentlightning.store.keys import fingerprint
from agentlightning.trainer.agents_seen import AgentsSeen
from agentlightning.trainer.engines import make_engine
from agentlightning.trainer.lasting_store import LastingStore
from agentlightning.trainer.progress import RunProgress
from agentlightning.trainer.results import Batch, ResultBuilder, Shape
from agentlightning.trainer.runners import Runners
from agentlightning.trainer.serving import Serving
from agentlightning.trainer.spending import Spending
from agentlightning.trainer.traces_out import Send
from agentlightning.trainer.unfinished import is_queued, queue
from agentlightning.trainer.validation import evaluation_of, metrics_of, why_unscored

logger = logging.getLogger("agentlightning.trainer")

STALL_S = 600.0
"""Seconds without a finished rollout (or two of its time limits) after which a batch is given up."""


@dataclass(frozen=True)
class Parts:
    """The rooms a context connects."""

    store: LastingStore
    serving: Serving
    runners: Runners
    builder: ResultBuilder
    spending: Spending
    progress: RunProgress
    interrupt: threading.Event
    send: Send


class RunContext(AlgorithmContext):
    """The context of one run."""

    def __init__(
        self,
        config: Config,
        run: Run,
        parts: Parts,
        *,
        train: Sequence[JSON],
        val: Sequence[JSON],
        run_dir: Path,
    ) -> None:
        self.config = config
        self.run = run
        self.store = parts.store
        self.train = train
        self.val = val
        self.seed = config.seed
        self.run_dir = run_dir
        self.budget = parts.spending.budget
        self.resources = parts.store.resources(run.run_id, "latest")
        self._parts = parts
        self._agents = AgentsSeen(config)
        self._current: dict[str, Resource] = dict(self.resources.resources)

    # --- serving --------------------------------------------------------------------------

    def engine(self) -> Engine:
        """The engine the configuration names, for its ``model``; not started."""
        return make_engine(self.config)

    def serve(
        self,
        engine: Engine,
        *,
        name: str = "llm",
        sampling: Mapping[str, JSON] | None = None,
        version: int = 0,
    ) -> LLM:
        """Start the engine behind the endpoint and publish the resource that leads there."""
        llm = self._parts.serving.serve(name, engine, sampling or {}, version)
        self.publish({name: llm}, note=f"{name} is served")
        return llm

    def publish(
        self,
        resources: Mapping[str, Resource],
        *,
        weights: Mapping[str, Weights] | None = None,
        note: str = "",
        candidate: bool = False,
    ) -> ResourcesVersion:
        """Load weights into their engines, then post the resources as a new version."""
        loaded = {name: self._parts.serving.load(name, item) for name, item in (weights or {}).items()}
        merged: dict[str, Resource] = {**self._current, **resources, **loaded}
        published = self.store.publish(
            self.run.run_id, merged, note=note, parent=self.resources.version, candidate=candidate
        )
        if not candidate:
            self._current, self.resources = merged, published
        plugins().resources_published(run=self.run, version=published)
        return published

    def settle(self, best: Resources) -> None:
        """Make the best resources found the latest, where the algorithm ended on others."""
        if dict(best) != self._current:
            self.publish(best, note="the best found")

    # --- rollouts -------------------------------------------------------------------------

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
        """Queue ``n`` rollouts of each task and see to it that workers run."""
        self._check()
        group = key or uuid.uuid4().hex
        self._check_budget(len(tasks) * n, group)
        limits_of_each = config or self.config.rollout
        rules, limits = self._versioned(rules or CreditRules()), limits or Limits()
        requests = [
            RolloutRequest(
                input=task,
                mode=mode,
                group_id=f"{group}-{index}",
                resources_version=resources.version if resources else None,
                config=limits_of_each,
                metadata=remember_rules(rules, limits, level),
            )
            for index, task in enumerate(tasks)
            for _ in range(n)
        ]
        queued = queue(self.store, self.run.run_id, requests, key)
        self._parts.runners.start(serves_model=bool(self._parts.serving.served))
        return Batch(
            self._parts.store,
            self._parts.builder,
            queued,
            Shape(rules, limits, level),
            check=self._check,
            finished=self._account,
            completed=self._report_missing_agents,
            stall_s=max(STALL_S, 2 * (limits_of_each.timeout_s or 0)),
            hint=self._parts.runners.hint,
        )

    def evaluate(self, resources: ResourcesVersion | None = None, *, step: int) -> Evaluation:
        """Run the agent once on every validation task and log the mean reward."""
        version = (resources or self.resources).version
        # A resumed run publishes what it serves anew: the same resources under another number.
        content = version if resources else fingerprint(self.resources.resources)[:16]
        results = self.rollouts(
            self.val, resources=resources, mode="val", key=f"val-{step}-{content}"
        ).wait()
        evaluation = evaluation_of(results, version)
        if reasons := why_unscored(results):
            logger.warning(
                "validation at step %d: %d of %d rollouts have no reward: %s",
                step,
                len(results) - evaluation.scored,
                len(results),
                reasons,
            )
        self.log(metrics_of(evaluation), step)
        return evaluation

    def _versioned(self, rules: CreditRules) -> CreditRules:
        """The rules with the version of rewards that the configuration names."""
        version = self.config.reward_version
        if rules.version not in (AGENT_VERSION, version):
            raise AlgorithmError(
                f"{self.config.algorithm} asks for rewards of version {rules.version!r} and the "
                f"configuration for {version!r}; name the version as reward_version only"
            )
        return replace(rules, version=version)

    def _account(self, result: RolloutResult) -> None:
        self._parts.spending.add(result.rollout, result.spans)
        self._agents.add(result)
        self._parts.send(result)
        plugins().rollout_finished(run=self.run, result=result)

    def _report_missing_agents(self) -> None:
        for line in self._agents.missing():
            logger.warning(line)

    def _check_budget(self, wanted: int, group: str) -> None:
        """Refuse what the budget does not allow; what was queued before a restart is paid for."""
        left = self.budget.left("rollouts")
        if left < wanted and not is_queued(self.store, self.run.run_id, f"{group}-0"):
            raise BudgetExhausted(
                f"budget: {wanted} rollouts asked for and {left:.0f} of {self.budget.rollouts} left; "
                "raise budget.rollouts or take fewer tasks"
            )

    # --- telling and keeping --------------------------------------------------------------

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep numbers with the run, with what was spent so far, and show them."""
        spending = self._parts.spending
        spending.step = step
        self.store.log_metrics(self.run.run_id, step, {**metrics, **spending.metrics()})
        self._parts.progress.metrics(metrics)
        plugins().metrics_logged(run=self.run, metrics=metrics, step=step)

    def progress(self, done: int, total: int, label: str = "") -> None:
        """Move the progress bar."""
        self._parts.progress.step(done, total, label or self.config.algorithm)

    def checkpoint(self, state: Mapping[str, JSON]) -> None:
        """Keep ``state`` in the store, replacing the last."""
        self.store.save_state(self.run.run_id, state)

    def restore(self) -> Mapping[str, JSON] | None:
        """The state kept last; None in a new run."""
        return self.store.load_state(self.run.run_id)

    def stopping(self) -> bool:
        """Whether the run was interrupted or one of its budgets is used up."""
        self._parts.spending.tick()
        return self.budget.is_used_up or self.interrupted()

    def interrupted(self) -> bool:
        """Whether Ctrl+C was pressed."""
        return self._parts.interrupt.is_set()

    def raise_if_interrupted(self) -> None:
        """End an interrupted run, once its workers have ended and what they finished is stored.

        Raises:
            Interrupted: Ctrl+C was pressed.
        """
        if self.interrupted():
            self._parts.runners.stop()
            raise Interrupted(f"run {self.run.run_id} was interrupted")

    def _check(self) -> None:
        self.raise_if_interrupted()
        self._parts.runners.check()
