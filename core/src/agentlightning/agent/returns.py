"""What an agent may return, and what is made of it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentlightning.errors import BadValue
from agentlightning.records import JSON, as_json

ReturnedReward: TypeAlias = tuple[str, Any]
"""Name and value of a reward as the agent returned it; making its span checks that it is a number."""

OUTCOME = "reward"
"""The name of the reward that is the rollout's outcome."""


@dataclass(frozen=True)
class Result:
    """What an agent returns to say output and rewards apart.

    Attributes:
        output: any value; what is not JSON is kept in its text form.
        reward: the rollout's outcome; None = unscored.
        rewards: further outcome rewards by name.
    """

    output: object = None
    reward: float | bool | None = None
    rewards: Mapping[str, float | bool] = field(default_factory=dict)


def normalise_return(value: object, has_reward_function: bool) -> tuple[JSON, Sequence[ReturnedReward]]:
    """Split what an agent returned into its output and its rewards.

    A number or bool is output *and* outcome reward; a :class:`Result` says each itself; anything else
    is the output. With a reward function the return is the output only.

    Args:
        value: what the agent returned.
        has_reward_function: the run scores outputs itself.

    Returns:
        The output as JSON (or the value's text form) and the rewards as name and value.
    """
    value = _plain_number(value)
    if isinstance(value, Result):
        rewards = () if has_reward_function else tuple(_rewards_of(value))
        return _as_output(_plain_number(value.output)), rewards
    if isinstance(value, int | float) and not has_reward_function:
        return _as_output(value), ((OUTCOME, value),)
    return _as_output(value), ()


def _rewards_of(result: Result) -> Sequence[ReturnedReward]:
    named = {**result.rewards}
    if result.reward is not None:
        named[OUTCOME] = result.reward
    return [(name, _plain_number(value)) for name, value in named.items()]


def _plain_number(value: object) -> object:
    """NumPy's and torch's scalars as Python numbers, so that each counts as a reward like any other."""
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        return item()
    return value


def _as_output(value: object) -> JSON:
    try:
        return as_json(value, "the agent's output")
    except BadValue:
        return str(value)
