"""From finished rollouts to training rows, advantages and the numbers that describe a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import msgspec
from agentlightning.algorithm import RolloutResult
from agentlightning.errors import NoSamples
from agentlightning.samples import (
    Fidelity,
    Level,
    Limits,
    Reason,
    Row,
    Transition,
    rows,
    why_empty,
)

from agentlightning_rl.advantages import advantages


@dataclass(frozen=True)
class Collected:
    """What one step trains on.

    Attributes:
        rows: every row of every rollout that has a reward.
        advantages: by rollout id.
        fidelity: what became of every call.
        metrics: rewards, counts and fidelity, by metric name.
    """

    rows: list[Row]
    advantages: Mapping[str, float]
    fidelity: Fidelity
    metrics: dict[str, float]


def collect(
    results: Sequence[RolloutResult], *, level: Level, limits: Limits, version: int | None
) -> Collected:
    """Make the rows of a batch and compare each rollout with the others on its task.

    Args:
        results: finished rollouts, each in its group.
        level: what a row is.
        limits: sizes above which calls are dropped.
        version: the current weights'; calls of others are dropped and counted. None keeps all.

    Raises:
        NoSamples: the batch gave no row; the message counts why.
    """
    usable = [call for result in results for call in _usable(result, version)]
    made, fidelity = rows(usable, level, limits)
    if not made:
        raise NoSamples(_why_empty(results, fidelity))
    scored = [reward for result in results if (reward := _reward(result)) is not None]
    compared = advantages(_groups(results))
    counts = Counter(_fate(result) for result in results)
    metrics = {
        "train/reward": fmean(scored),
        "train/reward_std": pstdev(scored),
        "train/reward_min": min(scored),
        "train/reward_max": max(scored),
        "train/scored": counts["scored"],
        "train/unscored": counts["unscored"],
        "train/failed": counts["failed"],
        "train/groups": compared.groups,
        "train/zero_groups": compared.zero_groups,
        "train/rows": len(made),
    }
    return Collected(made, compared.values, fidelity, metrics | _fidelity_metrics(fidelity))


def _reward(result: RolloutResult) -> float | None:
    """The reward that counts: a failed rollout's says nothing about the policy's rows."""
    return result.reward if result.status == "succeeded" else None


def _fate(result: RolloutResult) -> str:
    if result.status != "succeeded":
        return "failed"
    return "unscored" if result.reward is None else "scored"


def _groups(results: Sequence[RolloutResult]) -> list[dict[str, float | None]]:
    groups: dict[str, dict[str, float | None]] = {}
    for result in results:
        rollout = result.rollout
        of_group = groups.setdefault(rollout.group_id or rollout.rollout_id, {})
        of_group[rollout.rollout_id] = _reward(result)
    return list(groups.values())


def _usable(result: RolloutResult, version: int | None) -> list[Transition]:
    """The result's transitions, those that cannot be trained on marked with the reason."""
    unscored = _reward(result) is None
    marked = []
    for call in result.transitions:
        dropped = call.dropped
        if dropped is None and unscored:
            dropped = Reason.UNSCORED
        if dropped is None and version is not None and call.model_version != version:
            dropped = Reason.STALE
        marked.append(msgspec.structs.replace(call, dropped=dropped))
    return marked


def _fidelity_metrics(fidelity: Fidelity) -> dict[str, float]:
    names = ("calls", "used", "merged", "sampled_tokens", "trained_tokens", "reward_conflicts")
    numbers = {f"fidelity/{name}": float(getattr(fidelity, name)) for name in names}
    numbers["fidelity/dropped"] = float(sum(fidelity.dropped.values()))
    numbers |= {f"fidelity/dropped/{key}": float(count) for key, count in fidelity.dropped.items()}
    return numbers | {f"fidelity/split/{key}": float(count) for key, count in fidelity.split.items()}


def _why_empty(results: Sequence[RolloutResult], fidelity: Fidelity) -> str:
    why = why_empty(result.explain() for result in results)
    stale = fidelity.dropped.get(Reason.STALE.key, 0)
    return f"{why}\n  {stale} calls: {Reason.STALE.value}" if stale else why
