"""What the trainer hands an algorithm: :class:`AlgorithmContext` over a store, runners and engines."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from agentlightning.algorithm import (
    AlgorithmContext,
    Evaluation,
    RolloutBatch,
    RolloutResult,
)
from agentlightning.config import Config
from agentlightning.engine import Engine, Weights
from agentlightning.errors import BudgetExhausted, Interrupted
from agentlightning.plugins import plugins
from agentlightning.records import (
    JSON,
    LLM,
    Mode,
    Resource,
    ResourcesVersion,
    RolloutConfig,
    RolloutRequest,
    Run,
)
from agentlightning.samples import CreditRules, Level, Limits, remember_rules
from agentlightning.store import Store
from agentlightning.trainer.engines import make_engine
from agentlightning.trainer.progress import RunProgress
from agentlightning.trainer.results import Batch, ResultBuilder, Shape
from agentlightning.trainer.runners import Runners
from agentlightning.trainer.serving import Serving

STALL_S = 600.0
"""Seconds without a finished rollout (or two of its time limits) after which a batch is given up."""


@dataclass(frozen=True)
class Parts:
    """The rooms a context connects."""

    store: Store
    serving: Serving
    runners: Runners
    builder: ResultBuilder
    progress: RunProgress
    interrupt: threading.Event


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
        self.budget = config.budget.fresh()
        self.budget.spent.update(_spent_before(parts.store, run.run_id))
        self.resources = parts.store.resources(run.run_id, "latest")
        self._parts = parts
        self._current: dict[str, Resource] = dict(self.resources.resources)
        self._started = time.monotonic() - self.budget.spent.get("seconds", 0.0)

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
        wanted = len(tasks) * n
        if (left := self.budget.left("rollouts")) < wanted:
            raise BudgetExhausted(
                f"budget: {wanted} rollouts asked for and {left:.0f} of {self.budget.rollouts} left; "
                "raise budget.rollouts or take fewer tasks"
            )
        limits_of_each = config or self.config.rollout
        rules, limits = rules or CreditRules(), limits or Limits()
        group = key or uuid.uuid4().hex
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
        queued = self.store.enqueue(self.run.run_id, requests, key=key)
        self._parts.runners.start(serves_model=bool(self._parts.serving.served))
        return Batch(
            self.store,
            self._parts.builder,
            queued,
            Shape(rules, limits, level),
            check=self._check,
            finished=self._account,
            stall_s=max(STALL_S, 2 * (limits_of_each.timeout_s or 0)),
        )

    def evaluate(self, resources: ResourcesVersion | None = None, *, step: int) -> Evaluation:
        """Run the agent once on every validation task and log the mean reward."""
        version = (resources or self.resources).version
        results = self.rollouts(
            self.val, resources=resources, mode="val", key=f"val-{step}-{version}"
        ).wait()
        scored = [result.reward for result in results if result.reward is not None]
        unscored = sum(r.reward is None and r.status == "succeeded" for r in results)
        evaluation = Evaluation(
            reward=fmean(scored) if scored else None,
            scored=len(scored),
            unscored=unscored,
            missing=len(results) - len(scored) - unscored,
            version=version,
        )
        counts = {
            "val/scored": evaluation.scored,
            "val/unscored": unscored,
            "val/missing": evaluation.missing,
        }
        reward = {} if evaluation.reward is None else {"val/reward": evaluation.reward}
        self.log(reward | counts, step)
        return evaluation

    def _account(self, result: RolloutResult) -> None:
        calls = [span.call for span in result.spans if span.call]
        usage = [call.usage or {} for call in calls]
        spent = self.budget.spent
        spent["rollouts"] = spent.get("rollouts", 0) + 1
        spent["llm_calls"] = spent.get("llm_calls", 0) + len(calls)
        spent["tokens"] = spent.get("tokens", 0) + sum(item.get("total_tokens") or 0 for item in usage)
        plugins().rollout_finished(run=self.run, result=result)

    # --- telling and keeping --------------------------------------------------------------

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep numbers with the run, with what was spent so far, and show them."""
        self.budget.spent["seconds"] = time.monotonic() - self._started
        spent = {f"{SPENT}{what}": float(amount) for what, amount in self.budget.spent.items()}
        self.store.log_metrics(self.run.run_id, step, {**metrics, **spent})
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
        self.budget.spent["seconds"] = time.monotonic() - self._started
        used_up = any(
            self.budget.left(what) <= 0 for what in ("rollouts", "llm_calls", "seconds", "tokens")
        )
        return used_up or self._parts.interrupt.is_set()

    def _check(self) -> None:
        if self._parts.interrupt.is_set():
            raise Interrupted(f"run {self.run.run_id} was interrupted")
        self._parts.runners.check()


SPENT = "spent/"
"""Prefix of the metrics that say what a run has spent so far."""


def _spent_before(store: Store, run_id: str) -> dict[str, float]:
    """What a resumed run had spent when it stopped."""
    spent: dict[str, float] = {}
    for metrics in store.metrics(run_id):
        for name, value in metrics.values.items():
            if name.startswith(SPENT):
                what = name.removeprefix(SPENT)
                spent[what] = max(spent.get(what, 0.0), value)
    return spent
