"""Advantages: how much better a rollout did than the others on the same task. Pure Python."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)

EPSILON = 1e-4
"""Added to a group's standard deviation; TRL's value, so that results can be compared."""


def group_relative(rewards: Sequence[float | None]) -> list[float | None]:
    """Rewards of one group, centred and scaled by the group's own statistics.

    The outcome advantage of GRPO, ``(r - mean) / std`` (Shao et al. 2024, "DeepSeekMath", section
    4.1.2). The deviation is the sample's (divisor n - 1).

    Args:
        rewards: one a rollout; None for a rollout without a reward, which takes no part.

    Returns:
        One advantage a rollout, None where there is no reward. All are exactly 0 when fewer than two
        have a reward or when those rewards are equal: there is nothing to learn from the group.
    """
    scored = [reward for reward in rewards if reward is not None]
    if not scored or min(scored) == max(scored):
        return [None if reward is None else 0.0 for reward in rewards]
    mean, scale = fmean(scored), stdev(scored) + EPSILON
    return [None if reward is None else (reward - mean) / scale for reward in rewards]


@dataclass(frozen=True)
class Advantages(Generic[Member]):
    """The advantages of a batch.

    Attributes:
        values: by member; members without a reward are not in it.
        groups: how many groups there were.
        zero_groups: groups from which nothing is learned.
        unscored: members without a reward.
    """

    values: Mapping[Member, float]
    groups: int
    zero_groups: int
    unscored: int


def advantages(groups: Sequence[Mapping[Member, float | None]]) -> Advantages[Member]:
    """Group-relative advantages of a batch, one a rollout, however many rows it gave.

    Args:
        groups: rewards by member, one mapping a group.
    """
    values: dict[Member, float] = {}
    zero_groups = unscored = 0
    for group in groups:
        of_group = dict(zip(group, group_relative(list(group.values())), strict=True))
        scored = {member: value for member, value in of_group.items() if value is not None}
        zero_groups += not any(scored.values())
        unscored += len(of_group) - len(scored)
        values |= scored
    return Advantages(values, len(groups), zero_groups, unscored)
