"""TRL's settings, from ours."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig  # type: ignore[attr-defined]  # TRL exports it lazily

from agentlightning_rl.config import RLConfig


def trainer_arguments(
    config: RLConfig, *, directory: Path, steps: int, seed: int, report_to: Sequence[str] = ()
) -> GRPOConfig:
    """TRL's settings for a configuration.

    Args:
        config: the algorithm's keys.
        directory: where checkpoints go.
        steps: updates of the whole run.
        seed: of the trainer's own random choices.
        report_to: experiment trackers, as transformers names them.
    """
    with_warmup = config.lr_schedule == "constant" and config.warmup_steps
    settings: dict[str, Any] = dict(
        output_dir=str(directory),
        max_steps=steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup" if with_warmup else config.lr_schedule,
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        epsilon=config.clip,
        beta=config.beta,
        temperature=config.temperature,
        loss_type="dapo",
        disable_dropout=True,  # agents are answered without it, and the ratio compares with that
        bf16=config.precision == "bfloat16",
        router_aux_loss_coef=0.0,  # it would count once a block, so depend on how a batch is cut
        use_cpu=torch.accelerator.current_accelerator(check_available=True) is None,
        gradient_checkpointing=config.gradient_checkpointing,
        seed=seed,
        save_steps=config.save_every,
        save_total_limit=2,
        logging_steps=1,
        report_to=list(report_to) or "none",
        disable_tqdm=True,
        **_ONE_DATASET_ROW_A_STEP,
    )
    with warnings.catch_warnings():
        # TRL itself sets the field's old name, so this says nothing that a user could act on.
        warnings.filterwarnings("ignore", "`gradient_checkpointing` is deprecated", FutureWarning)
        return GRPOConfig(**settings)


_ONE_DATASET_ROW_A_STEP: dict[str, Any] = {
    "shuffle_dataset": False,
    "remove_unused_columns": False,
    "dataloader_pin_memory": False,
    "per_device_train_batch_size": 2,  # the smallest group TRL takes; our groups are our own
    "num_generations": 2,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 1,
    "num_iterations": 1,
}
