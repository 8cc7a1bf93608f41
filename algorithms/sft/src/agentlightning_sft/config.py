"""What can be set for supervised fine-tuning. No torch here: a configuration is checked without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from agentlightning.config import check_ranges, require_open_weights

if TYPE_CHECKING:
    from agentlightning.config import Config

RESOURCE: Final = "llm"
"""The resource that is trained."""

_POSITIVE = (
    "epochs",
    "steps",
    "batch_size",
    "micro_batch_size",
    "learning_rate",
    "max_grad_norm",
    "max_length",
    "best_per_task",
    "save_every",
)
_NOT_NEGATIVE = ("weight_decay", "warmup_steps")


class SFTConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The configuration keys of ``algorithm: sft``.

    Attributes:
        epochs: passes over the rows when ``steps`` is not given.
        steps: updates of the weights; None for ``epochs`` passes.
        batch_size: rows per update.
        micro_batch_size: rows in memory at once; must divide ``batch_size``. None takes all of them.
        learning_rate: of AdamW, at its highest.
        lr_schedule: how the learning rate falls after ``warmup_steps``.
        warmup_steps: updates over which the learning rate rises from 0.
        weight_decay: of AdamW.
        adam_beta2: of AdamW; lower forgets old gradients sooner.
        max_grad_norm: the gradient is scaled down to this norm.
        lora: train a LoRA instead of all weights: the keys of ``peft.LoraConfig``, ``{}`` for
            rank 16 on all linear layers. None trains all weights.
        precision: of the computation; weights are kept in float32 either way.
        gradient_checkpointing: less memory for about a third more time.
        max_length: longer rows are dropped, and counted; None for the model's own limit.
        assistant_only: train on what the model said only; false trains on every token.
        source_run: id or name of a recorded run of the same store to learn from; its successful
            training rollouts become rows, beside those of ``train_dataset``.
        reward_threshold: take rollouts of ``source_run`` with at least this reward.
        best_per_task: of the rollouts of one task in ``source_run``, take so many with the best
            reward.
        save_every: steps between checkpoints; None keeps one only when the run is stopped early.
    """

    epochs: int = 1
    steps: int | None = None
    batch_size: int = 16
    micro_batch_size: int | None = None
    learning_rate: float = 2e-5
    lr_schedule: Literal["constant", "linear", "cosine"] = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    adam_beta2: float = 0.999
    max_grad_norm: float = 1.0
    lora: dict[str, Any] | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    max_length: int | None = None
    assistant_only: bool = True
    source_run: str | None = None
    reward_threshold: float | None = None
    best_per_task: int | None = None
    save_every: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one line that says what can."""
        check_ranges(self, positive=_POSITIVE, not_negative=_NOT_NEGATIVE)
        if not 0 < self.adam_beta2 < 1:
            raise ValueError(
                f"adam_beta2: {self.adam_beta2} is not possible; expected a number between 0 and 1"
            )
        if self.batch_size % self.rows_at_once:
            raise ValueError(
                f"micro_batch_size: {self.micro_batch_size} does not divide batch_size "
                f"{self.batch_size}; expected one of its divisors"
            )
        for name in ("reward_threshold", "best_per_task"):
            if getattr(self, name) is not None and self.source_run is None:
                raise ValueError(
                    f"{name}: chooses among recorded rollouts and there are none; set source_run to "
                    "the id or name of a recorded run, or leave it out"
                )

    @property
    def rows_at_once(self) -> int:
        """Rows in memory at once."""
        return self.micro_batch_size or self.batch_size

    @property
    def needs_tasks(self) -> bool:
        """Whether there is nothing to train on without ``train_dataset``."""
        return self.source_run is None

    @property
    def serves(self) -> tuple[str, ...]:
        """The resource that agents find the model under, where validation tasks are run."""
        return (RESOURCE,)

    def total_steps(self, rows: int) -> int:
        """Updates in a run over so many rows; the last, part-filled batch of a pass counts."""
        return self.steps if self.steps is not None else self.epochs * -(-rows // self.batch_size)

    def check(self, config: Config) -> None:
        """Refuse a model whose weights cannot be opened, before anything is spent."""
        require_open_weights(
            str(config.model),
            "supervised fine-tuning",
            "wait for fine-tuning through the provider's API, which is not part of this version yet",
        )
