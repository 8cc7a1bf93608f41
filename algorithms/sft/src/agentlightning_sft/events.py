"""What is due around a training step: progress, numbers, stopping, checkpoints."""

# ruff: noqa: ARG002 - the names are those that transformers passes

from __future__ import annotations

import math
import time
from typing import Any, Final

from agentlightning.algorithm import AlgorithmContext
from agentlightning.errors import AlgorithmError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_KEPT: Final = ("loss", "learning_rate", "grad_norm")


class StepEvents(TrainerCallback):
    """Connects transformers' loop with the context."""

    def __init__(self, ctx: AlgorithmContext, steps: int) -> None:
        self._ctx = ctx
        self._steps = steps
        self._tokens = 0
        self._since = time.perf_counter()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Start the clock."""
        self._tokens, self._since = state.num_input_tokens_seen, time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Move the bar; end when the run is to stop, with a checkpoint if it can go on later."""
        self._ctx.progress(state.global_step, self._steps, "sft")
        if self._ctx.stopping() and state.global_step < self._steps:
            control.should_training_stop = True
            control.should_save = self._ctx.interrupted()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Remember which checkpoint is the last."""
        self._ctx.checkpoint({"step": state.global_step})

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Keep the numbers of the last steps.

        Raises:
            AlgorithmError: the loss or its gradient is no number any more.
        """
        given = logs or {}
        if "loss" not in given:  # the summary at the end
            return
        numbers = {f"train/{name}": float(given[name]) for name in _KEPT if name in given}
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise AlgorithmError(
                    f"step {state.global_step}: {name} is {value}; expected a finite number. Lower "
                    "learning_rate, or raise warmup_steps"
                )
        now = time.perf_counter()
        speed = (state.num_input_tokens_seen - self._tokens) / (now - self._since)
        self._tokens, self._since = state.num_input_tokens_seen, now
        self._ctx.log({**numbers, "train/tokens_per_s": speed}, state.global_step)
