"""Telling a collapsing policy while it runs. Pure Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean

from agentlightning.records import JSON

WINDOW = 4
"""Steps averaged before anything is concluded: one batch is too noisy."""
ENTROPY_FACTOR = 1.5
"""Entropy so many times that of the first steps counts as risen…"""
ENTROPY_RISE = 0.2
"""…if it is also higher by so many nats, as a nearly deterministic policy may double for nothing."""
REWARD_LEFT = 0.25
"""A mean reward that keeps less than this share of the best one's lead over the lowest is gone."""


class CollapseWatch:
    """Watches reward and entropy for the collapse that a too high learning rate brings.

    The policy forgets what it knew: entropy rises far above its start while the reward falls to next
    to nothing (tried on a tiny policy at learning rate 1e-3: entropy 1.3 to 3.0, reward to 0, within 30
    steps). Entropy that rises with the reward is exploration, and a reward that falls at steady
    entropy has other causes; neither alone is reported.
    """

    def __init__(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        self._rewards: list[float] = []
        self._entropies: list[float] = []
        self._first_entropy = math.nan
        self._best = -math.inf
        self._lowest = math.inf

    def update(self, step: int, *, reward: float, lowest: float, entropy: float) -> str | None:
        """Take in a step; a message while the policy is collapsing, None otherwise.

        Args:
            step: the step's number.
            reward: mean reward of its rollouts.
            lowest: the lowest reward of one of them.
            entropy: mean entropy of its sampled tokens, in nats.
        """
        self._rewards = [*self._rewards, reward][-WINDOW:]
        self._entropies = [*self._entropies, entropy][-WINDOW:]
        self._lowest = min(self._lowest, lowest)
        if len(self._rewards) < WINDOW:
            return None
        recent, recent_entropy = fmean(self._rewards), fmean(self._entropies)
        if math.isnan(self._first_entropy):
            self._first_entropy = recent_entropy
        self._best = max(self._best, recent)
        if not (self._has_risen(recent_entropy) and self._is_gone(recent)):
            return None
        return (
            f"step {step}: the policy is collapsing: entropy rose from {self._first_entropy:.2f} to "
            f"{recent_entropy:.2f} and the reward fell from {self._best:.3g} to {recent:.3g}. "
            f"Expected: entropy near its start and a reward that holds. learning_rate "
            f"{self._learning_rate:g} is probably too high; stop, set a third of it, and start again "
            "from the model or an earlier checkpoint"
        )

    def _has_risen(self, entropy: float) -> bool:
        return entropy > max(ENTROPY_FACTOR * self._first_entropy, self._first_entropy + ENTROPY_RISE)

    def _is_gone(self, reward: float) -> bool:
        return reward - self._lowest < REWARD_LEFT * (self._best - self._lowest)

    def state(self) -> dict[str, JSON]:
        """What a checkpoint keeps."""
        return {
            "rewards": list(self._rewards),
            "entropies": list(self._entropies),
            "first_entropy": None if math.isnan(self._first_entropy) else self._first_entropy,
            "best": None if math.isinf(self._best) else self._best,
            "lowest": None if math.isinf(self._lowest) else self._lowest,
        }

    def load(self, state: Mapping[str, JSON]) -> None:
        """Go on from what :meth:`state` gave."""
        self._rewards = [float(value) for value in state["rewards"]]
        self._entropies = [float(value) for value in state["entropies"]]
        for name, unset in (("first_entropy", math.nan), ("best", -math.inf), ("lowest", math.inf)):
            value = state[name]
            setattr(self, f"_{name}", unset if value is None else float(value))
