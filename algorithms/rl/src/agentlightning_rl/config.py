"""What can be set for reinforcement learning. No torch here: a configuration is checked without it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from agentlightning.config import check_ranges, require_open_weights
from agentlightning.errors import ConfigError
from agentlightning.samples import Level, Limits

if TYPE_CHECKING:
    from agentlightning.config import Config

RESOURCE: Final = "llm"
"""The resource that is trained."""

POLICIES = ("grpo",)
COMING = ("dr_grpo", "dapo", "gspo", "rloo", "flow_grpo", "ppo")
"""Policies people ask for by name that this version does not have."""

_POSITIVE = (
    "batch_size",
    "epochs",
    "steps",
    "tla_window",
    "learning_rate",
    "temperature",
    "max_grad_norm",
    "max_new_tokens",
    "max_prompt_tokens",
    "max_response_tokens",
    "max_row_tokens",
    "block_tokens",
    "eval_every",
    "save_every",
)
_SMALLEST_GROUP = 2
_NOT_NEGATIVE = ("beta", "weight_decay", "warmup_steps", "max_staleness")


class RLConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The configuration keys of ``algorithm: rl``.

    Attributes:
        policy: how advantages and the loss are made; ``grpo``.
        level: what a training row is: one call (``transition``) or calls merged where each prompt
            continues the last reply (``trajectory``).
        use_tla: the same as ``level: trajectory``.
        tla_window: the largest number of calls merged into one row; None for no limit.
        batch_size: rollouts per step.
        group_size: rollouts per task; rewards are compared within such a group.
        steps: updates of the policy; None for ``epochs`` passes over the tasks.
        epochs: passes over the training tasks when ``steps`` is not given.
        learning_rate: of AdamW, at its highest.
        lr_schedule: how the learning rate falls after ``warmup_steps``.
        warmup_steps: updates over which the learning rate rises from 0.
        weight_decay: of AdamW.
        max_grad_norm: the gradient is scaled down to this norm.
        clip: how far the probability of a token may move from the sampled one's (PPO's epsilon).
        beta: weight of the KL divergence from the starting model; 0 needs no reference model.
        temperature: of sampling, forced on every training rollout.
        max_new_tokens: tokens of one reply, forced on every training rollout; None leaves it open.
        max_prompt_tokens: longer prompts are dropped, and counted.
        max_response_tokens: longer replies are dropped, and counted.
        max_row_tokens: no row grows longer; longer calls are dropped, and counted.
        max_staleness: updates that weights may be older than the current ones and still be trained
            on; only 0 so far.
        lora: train a LoRA instead of all weights: the keys of ``peft.LoraConfig``, ``{}`` for
            rank 16 on all linear layers. None trains all weights.
        precision: of the computation; weights are kept in float32 either way.
        gradient_checkpointing: less memory for about a third more time.
        block_tokens: tokens (padding included) whose graph is in memory at once; never changes a
            result.
        eval_every: steps between validations; None validates before and after training only.
        save_every: steps between checkpoints; the last step is always kept.
    """

    policy: str = "grpo"
    level: Level = "transition"
    use_tla: bool = False
    tla_window: int | None = None
    batch_size: int = 32
    group_size: int = 8
    steps: int | None = None
    epochs: int = 1
    learning_rate: float = 1e-6
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip: float = 0.2
    beta: float = 0.0
    temperature: float = 1.0
    max_new_tokens: int | None = None
    max_prompt_tokens: int | None = None
    max_response_tokens: int | None = None
    max_row_tokens: int | None = None
    max_staleness: int = 0
    lora: dict[str, Any] | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    block_tokens: int = 4096
    eval_every: int | None = None
    save_every: int = 10

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one line that says what can."""
        self._check_policy()
        check_ranges(self, positive=_POSITIVE, not_negative=_NOT_NEGATIVE)
        if not 0 < self.clip < 1:
            raise ValueError(f"clip: {self.clip} is not possible; expected a number between 0 and 1")
        if self.max_staleness:
            raise ValueError(
                f"max_staleness: {self.max_staleness} comes later; this version trains on rollouts of "
                "the current weights only, so leave it at 0"
            )
        if self.lora and self.lora.get("lora_dropout"):
            raise ValueError(
                "lora: lora_dropout has no effect here; agents are answered without dropout and the "
                "update has to compare with that, so leave it out"
            )
        self._check_groups()

    def _check_policy(self) -> None:
        name = self.policy.lower().replace("-", "_")
        if name in COMING:
            raise ValueError(
                f"policy: {self.policy!r} comes later; this version has {', '.join(POLICIES)}"
            )
        if name not in POLICIES:
            nearest = difflib.get_close_matches(name, POLICIES, n=1)
            guess = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ValueError(f"policy: {self.policy!r} is unknown; known: {', '.join(POLICIES)}{guess}")
        self.policy = name

    def _check_groups(self) -> None:
        if self.group_size < _SMALLEST_GROUP:
            raise ValueError(
                f"group_size: {self.group_size} leaves nothing to compare a rollout with, so nothing "
                "would be learned; expected 2 or more rollouts per task"
            )
        if self.batch_size % self.group_size:
            raise ValueError(
                f"batch_size: {self.batch_size} rollouts cannot be cut into groups of "
                f"{self.group_size}; expected a multiple of group_size, such as "
                f"{max(1, round(self.batch_size / self.group_size)) * self.group_size}"
            )
        if self.tla_window is not None and self.row_level == "transition":
            raise ValueError(
                "tla_window: has no effect on rows of one call; set use_tla: true or level: trajectory"
            )

    @property
    def row_level(self) -> Level:
        """``level``, with ``use_tla`` taken into account."""
        return "trajectory" if self.use_tla else self.level

    @property
    def needs_rewards(self) -> bool:
        """Rollouts without a reward teach nothing here."""
        return True

    @property
    def serves(self) -> tuple[str, ...]:
        """The resource that agents find the policy under."""
        return (RESOURCE,)

    @property
    def tasks_per_step(self) -> int:
        """Groups in a batch."""
        return self.batch_size // self.group_size

    @property
    def limits(self) -> Limits:
        """The sizes of rows, as ``agentlightning.samples`` takes them."""
        return Limits(
            max_prompt_tokens=self.max_prompt_tokens,
            max_response_tokens=self.max_response_tokens,
            max_row_tokens=self.max_row_tokens,
            window=self.tla_window,
        )

    def total_steps(self, tasks: int) -> int:
        """Updates in a run over so many training tasks; a last, part-filled batch is filled up."""
        if self.steps is not None:
            return self.steps
        return -(-self.epochs * tasks // self.tasks_per_step)

    def check(self, config: Config) -> None:
        """Refuse weights that cannot be opened and a budget below one step, before it is spent."""
        require_open_weights(
            str(config.model),
            "reinforcement learning",
            "wait for a later version, which has algorithm: prompt_optimization, and algorithm: sft "
            "through the provider's fine-tuning",
        )
        allowed = config.budget.rollouts
        if allowed is not None and allowed < self.batch_size:
            raise ConfigError(
                f"budget.rollouts: {allowed} is less than the {self.batch_size} rollouts of one step "
                "(batch_size), so nothing would be learned; raise it, or take smaller batches"
            )
