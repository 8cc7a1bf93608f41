"""What validation rollouts say of the resources they were run with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from agentlightning.algorithm import Evaluation, RolloutResult


def evaluation_of(results: Sequence[RolloutResult], version: int) -> Evaluation:
    """The mean reward of those that were scored, and how many were not.

    A failed rollout is missing, whatever reward its agent had emitted before.
    """
    succeeded = [result for result in results if result.status == "succeeded"]
    scored = [result.reward for result in succeeded if result.reward is not None]
    return Evaluation(
        reward=fmean(scored) if scored else None,
        scored=len(scored),
        unscored=len(succeeded) - len(scored),
        missing=len(results) - len(succeeded),
        version=version,
    )


def metrics_of(evaluation: Evaluation) -> dict[str, float]:
    """An evaluation as metrics; without a reward where nothing was scored."""
    reward = {} if evaluation.reward is None else {"val/reward": evaluation.reward}
    return reward | {
        "val/scored": evaluation.scored,
        "val/unscored": evaluation.unscored,
        "val/missing": evaluation.missing,
    }


def why_unscored(results: Sequence[RolloutResult]) -> str:
    """The reasons of those without a reward, counted; empty if all have one."""
    reasons = Counter(_reason(result) for result in results if result.reward is None)
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())


def _reason(result: RolloutResult) -> str:
    explanation = result.explain()
    if result.status == "succeeded":
        return explanation.reward_rule
    return explanation.notes[0].replace(f"rollout {explanation.rollout_id}", "the rollout")
