"""What is due around a step of training: publish, validate, log, watch, keep."""

# ruff: noqa: ARG002 - the names are those that transformers passes
from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agentlightning.algorithm import AlgorithmContext
from agentlightning.errors import AlgorithmError, Interrupted
from agentlightning.records import JSON
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentlightning_rl.config import RLConfig
from agentlightning_rl.watch import CollapseWatch
from agentlightning_rl.weights import Lending, Publisher

logger = logging.getLogger("agentlightning.rl")

CHECKPOINTS = "checkpoints"
"""The folder of ``run_dir`` that checkpoints go to."""

GAP_LIMIT = 0.1
"""Mean difference (nats) between recorded and recomputed log-probabilities that is warned of."""


class StepEvents(TrainerCallback):
    """Called by the trainer's loop.

    Attributes:
        version: of the weights being served.
        saved_step: the step of the last checkpoint.
    """

    def __init__(
        self,
        ctx: AlgorithmContext,
        config: RLConfig,
        lending: Lending,
        publisher: Publisher,
        restored: Mapping[str, JSON] | None = None,
    ) -> None:
        self._ctx = ctx
        self._config = config
        self._lending = lending
        self._publisher = publisher
        self._watch = CollapseWatch(config.learning_rate)
        self._warned_of_gap = False
        self.version = 0
        self.saved_step = 0
        if restored:
            self.saved_step = int(restored["step"])
            self._watch.load(restored["watch"])

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Serve the weights (of the checkpoint, after a restart); validate before the first step.

        After a restart too, if it is time: what the last start finished of that is not run again.
        """
        with self._lending.serving():
            self.version = self._publisher.publish(state.global_step)
            self._validate_if_due(state)

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Serve the new weights; validate if it is time; stop if the run is to stop."""
        with self._lending.serving():
            self.version = self._publisher.publish(state.global_step)
            # An interruption here still has the step logged and kept; _train() raises it after that.
            with suppress(Interrupted):
                self._validate_if_due(state)
        if self._ctx.stopping():
            control.should_training_stop = control.should_save = True

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log a step's numbers, and look for trouble in them."""
        logs: dict[str, float] = kwargs["logs"]
        if "loss" not in logs:
            return  # transformers' summary at the end of training
        step = state.global_step
        numbers = {_named(name): float(value) for name, value in logs.items() if name != "epoch"}
        collapse = self._watch.update(
            step,
            reward=numbers["train/reward"],
            lowest=numbers["train/reward_min"],
            entropy=numbers["train/entropy"],
        )
        if collapse:
            logger.warning(collapse)
        self._ctx.log({**numbers, "train/collapse": float(collapse is not None)}, step)
        self._ctx.progress(step, state.max_steps)
        self._check_gradient(step, numbers["train/grad_norm"])
        self._check_gap(step, numbers["train/logprob_gap"])

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell the store of the checkpoint, once its files are complete."""
        self.remember(state.global_step)

    def remember(self, step: int) -> None:
        """Make the checkpoint written after ``step`` the one a restart goes on from."""
        path = f"{CHECKPOINTS}/checkpoint-{step}"
        self._ctx.checkpoint({"step": step, "checkpoint": path, "watch": self._watch.state()})
        self.saved_step = step

    def _validate_if_due(self, state: TrainerState) -> None:
        step, every = state.global_step, self._config.eval_every
        is_due = step == 0 or (every and step % every == 0 and step < state.max_steps)
        if is_due and len(self._ctx.val):
            self._ctx.evaluate(step=step)

    def _check_gradient(self, step: int, norm: float) -> None:
        if not math.isfinite(norm):
            raise AlgorithmError(
                f"step {step}: the gradient's norm is {norm}; expected a finite number. The weights "
                f"are spoilt; the last good ones kept are those after step {self.saved_step}. Lower "
                "learning_rate or max_grad_norm"
            )

    def _check_gap(self, step: int, gap: float) -> None:
        if gap <= GAP_LIMIT or self._warned_of_gap:
            return
        self._warned_of_gap = True
        logger.warning(
            "step %d: log-probabilities recorded while sampling differ from the trainer's by %.3f nats "
            "a token; expected next to none for the current weights. The engine serves other weights, "
            "another precision, or log-probabilities at another temperature than %g",
            step,
            gap,
            self._config.temperature,
        )


def _named(name: str) -> str:
    """TRL's name of a number as the run keeps it: what has no group of its own is about training."""
    return name if "/" in name else f"train/{name}"
