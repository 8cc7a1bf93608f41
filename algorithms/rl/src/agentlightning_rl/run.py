"""One run of reinforcement learning: rollouts in, better weights out, step after step."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agentlightning.algorithm import AlgorithmContext
from agentlightning.errors import AlgorithmError, BudgetExhausted, Interrupted
from agentlightning.records import JSON, LLM, Resources
from agentlightning.samples import CreditRules, exact_agents
from transformers.utils import logging as transformers_logging
from trl import GRPOTrainer  # type: ignore[attr-defined]  # TRL exports it lazily

from agentlightning_rl.arguments import trainer_arguments
from agentlightning_rl.collect import Collected, collect
from agentlightning_rl.config import RESOURCE, RLConfig
from agentlightning_rl.events import CHECKPOINTS, StepEvents
from agentlightning_rl.model import load_model
from agentlightning_rl.tasks import TaskSampler
from agentlightning_rl.trainer import RowTrainer
from agentlightning_rl.trl_check import check_trl
from agentlightning_rl.weights import Lending, Publisher

logger = logging.getLogger("agentlightning.rl")


def train(config: RLConfig, ctx: AlgorithmContext) -> Resources:
    """Train as ``config`` says; returns the resources published last."""
    check_trl(GRPOTrainer)
    if not len(ctx.train):
        raise AlgorithmError("there are no training tasks; expected at least one in train_dataset")
    with _one_progress_bar():
        return Training(config, ctx).run()


class Training:
    """Everything one run holds.

    TRL's trainer owns the loop; it asks for a step's rows at its start, and
    :class:`~agentlightning_rl.events.StepEvents` does what is due at its end.
    """

    def __init__(self, config: RLConfig, ctx: AlgorithmContext) -> None:
        self._config = config
        self._ctx = ctx
        self._tasks = TaskSampler(ctx.train, ctx.seed)
        self._rules = _rules(config, ctx.config.trained_agents)
        self._model = load_model(str(ctx.config.model), lora=config.lora, seed=ctx.seed)
        self._restored = ctx.restore()
        engine = ctx.engine()
        self._lending = Lending(engine, self._model)
        # Publishing the weights before the first step counts one up: version = updates + 1, always.
        done = int(self._restored["step"]) if self._restored else 0
        ctx.serve(engine, name=RESOURCE, sampling=_sampling(config), version=done)
        publisher = Publisher(ctx, self._model, RESOURCE)
        self._events = StepEvents(ctx, config, self._lending, publisher, self._restored)
        self._trainer = self._make_trainer()

    def _make_trainer(self) -> RowTrainer:
        ctx, report_to = self._ctx, self._ctx.config.report_to
        arguments = trainer_arguments(
            self._config,
            directory=ctx.run_dir / CHECKPOINTS,
            steps=self._config.total_steps(len(ctx.train)),
            seed=ctx.seed,
            report_to=(report_to,) if isinstance(report_to, str) else report_to,
        )
        return RowTrainer(
            self._model,
            self._collect,
            arguments,
            block_tokens=self._config.block_tokens,
            callbacks=[self._events],
        )

    def run(self) -> Resources:
        """Train, save the model, validate it; returns the resources published last."""
        with self._lending.training():
            self._train()
        directory = self._ctx.run_dir / "model"
        self._model.save(directory)
        self._validate_at_end()
        trained = LLM(model=str(directory), version=self._events.version)
        note = f"trained for {self._trainer.state.global_step} steps"
        return self._ctx.publish({RESOURCE: trained}, note=note).resources

    def _train(self) -> None:
        checkpoint = _checkpoint(self._restored, self._ctx.run_dir)
        try:
            self._trainer.train(resume_from_checkpoint=checkpoint)
        except Interrupted:
            self._save_unsaved()
            raise
        except BudgetExhausted as error:
            if not self._trainer.state.global_step:
                raise  # nothing was learned: there is no trained model to save
            logger.warning("training ends after %d steps: %s", self._trainer.state.global_step, error)
            self._save_unsaved()
        if self._ctx.interrupted():
            raise Interrupted(
                f"the run was interrupted after {self._trainer.state.global_step} of "
                f"{self._trainer.state.max_steps} steps"
            )

    def _save_unsaved(self) -> None:
        """Keep the steps since the last checkpoint; what ended training came between two steps."""
        step = self._trainer.state.global_step
        if step > self._events.saved_step:
            self._trainer.save_checkpoint()
            self._events.remember(step)

    def _validate_at_end(self) -> None:
        if not len(self._ctx.val):
            return
        try:
            self._ctx.evaluate(step=self._trainer.state.global_step)
        except BudgetExhausted as error:
            logger.warning("the trained model was not validated: %s", error)

    def _collect(self, step: int) -> Collected:
        """Run the agent on the step's tasks; the same rollouts again after a restart."""
        config = self._config
        tasks = self._tasks.draw((step - 1) * config.tasks_per_step, config.tasks_per_step)
        with self._lending.serving():
            results = self._ctx.rollouts(
                tasks,
                n=config.group_size,
                rules=self._rules,
                limits=config.limits,
                level=config.row_level,
                key=f"step-{step}",
            ).wait()
        version = self._events.version
        return collect(results, level=config.row_level, limits=config.limits, version=version)


def _rules(config: RLConfig, trained_agents: tuple[str, ...] | None) -> CreditRules:
    return CreditRules(
        agents=exact_agents(trained_agents) if trained_agents else None,
        temperature=config.temperature,
        need_logprobs=True,
    )


def _sampling(config: RLConfig) -> dict[str, JSON]:
    """What training rollouts are sampled with, whatever the agent asks for."""
    forced: dict[str, JSON] = {"temperature": config.temperature, "top_p": 1.0}
    if config.max_new_tokens is not None:
        forced["max_tokens"] = config.max_new_tokens
    return forced


def _checkpoint(restored: Mapping[str, JSON] | None, run_dir: Path) -> str | None:
    if restored is None:
        return None
    path = run_dir / str(restored["checkpoint"])
    if not path.is_dir():
        raise AlgorithmError(
            f"the checkpoint {path} is gone, so the run cannot go on from step {restored['step']}; "
            "expected the run_dir of the stopped run. Give that run_dir, or start a new run"
        )
    return str(path)


@contextmanager
def _one_progress_bar() -> Iterator[None]:
    """Transformers draws a bar for each load and save; the run's own bar is enough."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
