"""The reward function: what may be one, and what becomes of what it does wrong."""

from __future__ import annotations

import math

import pytest
from agentlightning.errors import RewardError
from agentlightning.records import Rollout
from agentlightning.samples import CreditRules, outcome_reward
from agentlightning.trainer.scoring import Scorer, is_scored

ROLLOUT = Rollout(
    rollout_id="r1",
    run_id="run",
    input={"answer": "4"},
    output="4",
    mode="train",
    status="succeeded",
    created_at=0.0,
    attempt=1,
)


class Judge:
    def __call__(self, task, output):
        return 1.0


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda task, output: 0.5, 0.5),
        (lambda task, output, rollout: rollout.attempt, 1.0),
        (lambda *given: len(given), 3.0),
        (Judge(), 1.0),
        (lambda task, output: task["answer"] == output, 1.0),
        (lambda task, output: None, None),
    ],
)
def test_it_is_called_with_as_much_as_it_takes(function, expected):
    span = Scorer(function).score(ROLLOUT)
    assert is_scored([span])
    assert outcome_reward(ROLLOUT, [span], CreditRules()).value == expected


async def later(task, output):
    return 0.25


def test_it_may_be_async_and_its_values_have_the_version_of_the_run():
    span = Scorer(later, "judge").score(ROLLOUT)
    assert is_scored([span], "judge")
    assert not is_scored([span])
    assert outcome_reward(ROLLOUT, [span], CreditRules(version="judge")).value == 0.25
    nothing = outcome_reward(ROLLOUT, [span], CreditRules(version="other"))
    assert nothing.rule == "unscored: no reward of version 'other' was recorded"


def test_one_that_raises_leaves_the_rollout_unscored_with_the_reason():
    scorer = Scorer(lambda task, output: task["nothing"])
    span = scorer.score(ROLLOUT)
    scorer.raise_refusal()
    assert not is_scored([span])  # so that a resumed run tries again
    assert "KeyError: 'nothing'" in outcome_reward(ROLLOUT, [span], CreditRules()).rule


@pytest.mark.parametrize("value", [math.nan, "good", [1.0]])
def test_what_is_no_number_is_recorded_and_then_ends_the_run(value):
    scorer = Scorer(lambda task, output: value)
    span = scorer.score(ROLLOUT)
    assert "expected a finite number" in outcome_reward(ROLLOUT, [span], CreditRules()).rule
    with pytest.raises(RewardError, match="r1"):
        scorer.raise_refusal()
