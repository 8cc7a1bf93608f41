"""TRL's ``SFTTrainer`` on tokenised examples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from agentlightning.errors import AlgorithmError
from datasets import Dataset
from torch.nn.functional import cross_entropy
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig as TRLConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling, SFTTrainer

from agentlightning_sft.config import SFTConfig
from agentlightning_sft.examples import Example
from agentlightning_sft.model import save_model

# TRL computes the logits of large vocabularies in slices, with their entropy beside the loss. Below so
# many logits a batch one plain pass is faster, and gives the same loss.
_SMALL_LOGITS: Final = 2**25
_IGNORED: Final = -100


class ExampleTrainer(SFTTrainer):
    """Trains on examples as they are: tokenised, masked, nothing cut."""

    def __init__(
        self,
        module: Any,
        tokenizer: Any,
        examples: Sequence[Example],
        args: TRLConfig,
        *,
        lora: Any = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        self._lora = lora is not None
        self._vocabulary: int = module.config.get_text_config().vocab_size
        super().__init__(
            model=module,
            args=args,
            train_dataset=_dataset(examples),
            processing_class=tokenizer,
            peft_config=lora,
            callbacks=list(callbacks),
        )
        self.remove_callback(PrinterCallback)
        if self.accelerator.num_processes > 1:
            raise AlgorithmError(
                f"{self.accelerator.num_processes} training processes were started; this version "
                "trains in one. Start it without a distributed launcher"
            )

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The mean negative log-likelihood of the trained tokens."""
        logits = inputs["input_ids"].numel() * self._vocabulary
        if return_outputs or self.aux_loss_enabled or logits > _SMALL_LOGITS:
            of_trl: Any = super().compute_loss
            return of_trl(model, inputs, return_outputs, num_items_in_batch)
        total, count = negative_log_likelihood(model, inputs)
        return total / torch.as_tensor(num_items_in_batch or count).clamp(min=1)

    def load(self, checkpoint: Path) -> None:
        """Take the weights of a finished training's checkpoint; ``train`` would make one step more."""
        self._load_from_checkpoint(str(checkpoint))

    def save(self, directory: Path) -> None:
        """Write the trained model where plain ``transformers`` reads it; training ends with this."""
        module = self.accelerator.unwrap_model(self.model)
        save_model(module, self.processing_class, directory, lora=self._lora)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: TRL's card would describe a dataset that only exists in memory."""

    def _send_telemetry(self) -> None:
        """Nothing leaves this machine that the user did not send."""


def negative_log_likelihood(model: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, int]:
    """Summed over the trained tokens of a batch, and their number."""
    labels = inputs["labels"][:, 1:]
    logits = model(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
    ).logits
    total = cross_entropy(
        logits[:, :-1].flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=_IGNORED,
        reduction="sum",
    )
    return total, int((labels != _IGNORED).sum())


def mean_loss(module: Any, tokenizer: Any, examples: Sequence[Example], *, batch_size: int) -> float:
    """Mean negative log-likelihood over all trained tokens of ``examples``, in nats.

    Every token weighs the same, in whatever batch it lies.
    """
    collate = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id)
    longest = max(len(one.ids) for one in examples)
    fitting = _SMALL_LOGITS // (longest * module.config.get_text_config().vocab_size)
    at_once = max(1, min(batch_size, fitting))
    was_training, total, count = module.training, 0.0, 0
    module.eval()
    with torch.no_grad():
        for start in range(0, len(examples), at_once):
            batch = collate([_columns(one) for one in examples[start : start + at_once]])
            on_device = {name: tensor.to(module.device) for name, tensor in batch.items()}
            of_batch, tokens = negative_log_likelihood(module, on_device)
            total, count = total + of_batch.item(), count + tokens
    module.train(was_training)
    return total / count


def trl_arguments(
    config: SFTConfig, *, directory: Path, steps: int, seed: int, report_to: Sequence[str] = ()
) -> TRLConfig:
    """TRL's settings for a configuration.

    Args:
        config: the algorithm's keys.
        directory: where checkpoints go.
        steps: updates of the whole run.
        seed: of the order of rows, and of a LoRA's first weights.
        report_to: experiment trackers, as transformers names them.
    """
    warms_up = config.lr_schedule == "constant" and config.warmup_steps
    with warnings.catch_warnings():
        # TRL itself sets the field's old name, so this says nothing that a user could act on.
        warnings.filterwarnings("ignore", "`gradient_checkpointing` is deprecated", FutureWarning)
        return TRLConfig(
            output_dir=str(directory),
            max_steps=steps,
            per_device_train_batch_size=config.rows_at_once,
            gradient_accumulation_steps=config.batch_size // config.rows_at_once,
            learning_rate=config.learning_rate,
            lr_scheduler_type="constant_with_warmup" if warms_up else config.lr_schedule,
            warmup_steps=config.warmup_steps,
            weight_decay=config.weight_decay,
            adam_beta2=config.adam_beta2,
            max_grad_norm=config.max_grad_norm,
            bf16=config.precision == "bfloat16",
            gradient_checkpointing=config.gradient_checkpointing,
            max_length=None,  # rows that are too long are left out before, and counted
            dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available(),
            dataloader_num_workers=0,
            seed=seed,
            save_strategy="steps" if config.save_every else "no",
            save_steps=config.save_every or steps,
            save_total_limit=2,
            logging_steps=max(1, min(10, steps // 10)),
            logging_nan_inf_filter=False,  # it would show the mean of earlier losses instead
            include_num_input_tokens_seen="non_padding",
            report_to=list(report_to) or "none",
            disable_tqdm=True,
        )


def _dataset(examples: Sequence[Example]) -> Dataset:
    columns = [_columns(one) for one in examples]
    return Dataset.from_dict({name: [one[name] for one in columns] for name in ("input_ids", "labels")})


def _columns(one: Example) -> dict[str, list[int]]:
    ids = list(one.ids)
    return {
        "input_ids": ids,
        "labels": [
            token if trained else _IGNORED for token, trained in zip(ids, one.mask, strict=True)
        ],
    }
