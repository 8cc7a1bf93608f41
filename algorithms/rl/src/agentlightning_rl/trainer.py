"""TRL's ``GRPOTrainer`` on rows that come from traced rollouts instead of its own generation."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from agentlightning.errors import AlgorithmError
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]  # TRL exports them lazily
from trl.trainer.utils import selective_log_softmax

from agentlightning_rl.batch import Block, make_blocks
from agentlightning_rl.collect import Collected
from agentlightning_rl.model import Model

SMALL_LOGITS = 2**28
"""Logits (numbers, not bytes) up to which a block's are kept whole; TRL's tiled LM head needs less
memory above, but several times longer on a CPU."""

RowSource = Callable[[int], Collected]
"""What to train on in a step, by the step's number (from 1)."""


class RowTrainer(GRPOTrainer):
    """One update a step, on any number of rows per rollout and rollouts per group.

    Overridden, and nothing else:

    - ``training_step``: asks the row source, then goes forward and backward block by block, so that
      one block's graph is in memory at a time
    - ``_prepare_inputs``: a block is used as it is; TRL's shuffles rows and drops what does not divide
    - ``_get_per_token_logps_and_entropies``: a plain forward where the logits are small
    - ``create_model_card`` and ``_send_telemetry``: nothing is written or sent that was not asked for

    TRL's ``dapo`` loss is a weighted sum over tokens divided by ``num_items_in_batch``; the weights of
    :func:`~agentlightning_rl.batch.token_weights` make it the policy's own.

    Args:
        model: what to train.
        source: where a step's rows come from.
        args: from :func:`~agentlightning_rl.arguments.trainer_arguments`.
        block_tokens: tokens in memory at once.
        callbacks: transformers callbacks.
    """

    def __init__(
        self,
        model: Model,
        source: RowSource,
        args: GRPOConfig,
        *,
        block_tokens: int,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        # TRL repeats each row of its dataset num_generations times; here a row is just a step.
        steps = Dataset.from_dict({"prompt": [str(step) for step in range(1, args.max_steps + 1)]})
        super().__init__(
            model=model.module,
            reward_funcs=_never_called,
            args=args,
            train_dataset=steps,
            processing_class=model.tokenizer,
            callbacks=list(callbacks),
        )
        self.remove_callback(PrinterCallback)
        if self.accelerator.num_processes > 1:
            raise AlgorithmError(
                f"{self.accelerator.num_processes} training processes were started; this version "
                "trains in one. Start it without a distributed launcher"
            )
        self._source = source
        self._block_tokens = block_tokens
        self._takes_plain_forward = _takes(self._base(), "position_ids", "logits_to_keep")
        self._vocabulary: int = self._base().config.get_text_config().vocab_size
        self._last_logps = torch.empty(0)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Get the step's rows and add up the gradients of its blocks."""
        del inputs  # the number of the step, which the trainer's state knows too
        began = time.perf_counter()
        step = self.state.global_step + 1
        collected = self._source(step)
        blocks = make_blocks(
            collected.rows,
            collected.advantages,
            pad_id=self._tokenizer.pad_token_id,
            block_tokens=self._block_tokens,
            device=self.accelerator.device,
        )
        collected_at = time.perf_counter()
        self._metrics["train"].clear()
        losses = [self._block_step(model, block, num_items_in_batch) for block in blocks]
        loss = torch.stack(losses).sum()
        if not torch.isfinite(loss):
            raise AlgorithmError(
                f"step {step}: the loss is {loss.item()}; expected a finite number. The weights are as "
                "they were before the step; lower learning_rate and go on from the last checkpoint"
            )
        now = time.perf_counter()
        timing = {"time/rollouts": collected_at - began, "time/update": now - collected_at}
        self._report(blocks, collected.metrics | timing)
        return loss

    def _block_step(self, model: Any, block: Block, num_items_in_batch: Any) -> torch.Tensor:
        if self.beta:
            block["ref_per_token_logps"] = self._reference_logps(block)
        loss: torch.Tensor = super().training_step(  # type: ignore[no-untyped-call]
            model, block, num_items_in_batch
        )
        sampled = block["tool_mask"] > 0
        gap = (self._last_logps - block["old_per_token_logps"])[sampled].abs().mean()
        self._metrics["train"]["logprob_gap"].append(gap.item())
        return loss

    def _prepare_inputs(self, generation_batch: Block) -> Block:
        return generation_batch

    def _reference_logps(self, block: Block) -> torch.Tensor:
        """Log-probabilities under the model that training started from."""
        ids = torch.cat([block["prompt_ids"], block["completion_ids"]], dim=1)
        mask = torch.cat([block["prompt_mask"], block["completion_mask"]], dim=1)
        reference: Any = self.ref_model
        without_lora: AbstractContextManager[Any] = nullcontext()
        if reference is None:  # a LoRA: without it the module is the model it started from
            reference = self.model
            without_lora = self.accelerator.unwrap_model(self.model).disable_adapter()
        with torch.no_grad(), without_lora:
            logps, _, _ = self._get_per_token_logps_and_entropies(
                reference, ids, mask, block["completion_ids"].size(1)
            )
        return logps

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        small = len(input_ids) * logits_to_keep * self._vocabulary <= SMALL_LOGITS
        if not small or compute_aux_loss or not self._takes_plain_forward:
            logps, entropies, aux_loss = super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                compute_aux_loss=compute_aux_loss,
                **images,
            )
        else:
            logits = self._completion_logits(model, input_ids, attention_mask, logits_to_keep)
            logps = selective_log_softmax(logits, input_ids[:, -logits_to_keep:])
            entropies, aux_loss = (_entropies(logits) if compute_entropy else None), None
        self._last_logps = logps.detach()
        return logps, entropies, aux_loss

    def _completion_logits(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int
    ) -> torch.Tensor:
        """Logits that predict the last ``logits_to_keep`` tokens, at the sampling temperature."""
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        with self.accelerator.autocast():
            output = model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=positions,
                logits_to_keep=logits_to_keep + 1,
                use_cache=False,
            )
        logits: torch.Tensor = output.logits[:, -logits_to_keep - 1 : -1]
        return logits.float() / self.temperature

    def _report(self, blocks: Sequence[Block], metrics: Mapping[str, float]) -> None:
        """Leave the step's numbers where TRL's ``log`` finds them, one value a name.

        TRL appended one mean a block; weighted with the blocks' token weights they are the batch's.
        Names go without ``train/``, which transformers puts before every one for experiment trackers.
        """
        recorded = self._metrics["train"]
        weights = [block["tool_mask"].sum().item() for block in blocks]
        means = {
            ours: sum(v * w for v, w in zip(recorded[theirs], weights, strict=True)) / sum(weights)
            for theirs, ours in REPORTED.items()
            if theirs in recorded
        }
        tokens = sum(int(b["prompt_mask"].sum() + b["completion_mask"].sum()) for b in blocks)
        means |= {"tokens": tokens, "tokens_per_s": tokens / metrics["time/update"]}
        recorded.clear()
        for name, value in {**means, **metrics}.items():
            recorded[name.removeprefix("train/")].append(float(value))

    def _base(self) -> Any:
        model: Any = self.accelerator.unwrap_model(self.model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    def save_checkpoint(self) -> None:
        """Write a checkpoint of the state as it is, between two steps."""
        self._save_checkpoint(self.model, None)  # type: ignore[no-untyped-call]

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Nothing: TRL's card would describe a dataset that is only step numbers."""

    def _send_telemetry(self) -> None:
        """Nothing leaves this machine that the user did not send."""


REPORTED = {
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/region_mean": "clip_ratio",
    "logprob_gap": "logprob_gap",
}
"""The numbers kept of each block, by TRL's name and ours."""


def _entropies(logits: torch.Tensor) -> torch.Tensor:
    """Entropy at each position, for the metric only: without gradient."""
    with torch.no_grad():
        logps = torch.log_softmax(logits, dim=-1)
        return -(logps.exp() * logps).sum(dim=-1)


def _takes(module: Any, *names: str) -> bool:
    parameters = inspect.signature(type(module).forward).parameters
    return all(name in parameters for name in names)


def _never_called(*_: Any, **__: Any) -> list[float | None]:
    raise AlgorithmError("TRL asked for a reward; rewards come with the rollouts")
