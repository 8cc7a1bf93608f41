import pytest
from agentlightning.errors import RewardError
from agentlightning.samples import (
    CreditRules,
    Fidelity,
    coverage,
    outcome,
    outcome_reward,
    outcomes,
    rewards,
)
from agentlightning.testing.attempts import AttemptBuilder

RULES = CreditRules()


def outcome_of(made, rules=RULES):
    return outcome(made.rollout, made.spans, rules)


def rewarded(value, rollout_id="r1"):
    made = AttemptBuilder(rollout_id)
    made.call([1], [2])
    made.reward(value)
    return made


def test_a_missing_reward_is_none_and_not_zero():
    assert [outcome_of(rewarded(value)) for value in (1.0, None, 0.0)] == [1.0, None, 0.0]


@pytest.mark.parametrize(("value", "expected"), [(True, 1.0), (False, 0.0), (0.0, 0.0), (3, 3.0)])
def test_numbers_and_truth_values_are_rewards(value, expected):
    assert outcome_of(rewarded(value)) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "0.5", [1.0], {}])
def test_anything_else_is_refused_with_the_rollout_id(value):
    made = rewarded(value, rollout_id="rollout-7")

    with pytest.raises(RewardError, match="rollout-7"):
        outcome_of(made)
    with pytest.raises(RewardError, match="rollout-7"):
        rewards(made.spans)


def test_a_reward_counts_though_no_call_was_recorded():
    made = AttemptBuilder()
    made.reward(0.25)

    assert outcome_of(made) == 0.25


def test_no_reward_is_unscored():
    found = outcome_reward(AttemptBuilder().rollout, [], RULES)

    assert (found.value, found.source, found.conflicts) == (None, None, 0)
    assert "no reward was recorded" in found.rule


def test_function_beats_returned_beats_emitted_and_each_disagreement_is_counted():
    made = AttemptBuilder()
    made.reward(1.0, source="function")
    made.reward(0.5, source="returned")
    made.reward(0.1)
    made.reward(1.0)

    found = outcome_reward(made.rollout, made.spans, RULES)

    assert (found.value, found.source, found.conflicts) == (1.0, "function", 2)
    assert found.rule == "the reward function's value"
    assert coverage([found]) == Fidelity(scored=1, reward_conflicts=2)


def test_the_last_of_several_emitted_rewards_counts_whatever_their_order_in_the_list():
    made = AttemptBuilder()
    made.reward(0.1)
    made.reward(0.9)
    made.spans.reverse()

    assert outcome_of(made) == 0.9


def test_a_reward_function_without_a_value_leaves_the_rollout_unscored():
    made = AttemptBuilder()
    made.reward(0.7, source="returned")
    made.reward(None, source="function")

    found = outcome_reward(made.rollout, made.spans, RULES)

    assert (found.value, found.conflicts) == (None, 1)
    assert "reward function" in found.rule


def test_the_rules_choose_dimension_and_version():
    made = AttemptBuilder()
    made.reward(0.1)
    made.reward(0.2, name="accuracy")
    made.reward(0.3, version="rescored")

    assert outcome_of(made) == 0.1
    assert outcome_of(made, CreditRules(reward_name="accuracy")) == 0.2
    assert outcome_of(made, CreditRules(version="rescored")) == 0.3
    assert outcome_of(made, CreditRules(reward_name="style")) is None
    assert outcomes(made.rollout, made.spans, RULES) == {"reward": 0.1, "accuracy": 0.2}
    assert [reward.value for reward in rewards(made.spans, "rescored")] == [0.3]


def test_rewards_of_a_step_or_an_agent_are_not_the_outcome():
    made = AttemptBuilder()
    call = made.call([1], [2])
    made.reward(0.3, step=call.span_id)
    made.reward(0.4, agent="planner")

    assert outcome_of(made) is None
    assert [(found.value, found.span_id, found.agent) for found in rewards(made.spans)] == [
        (0.3, call.span_id, None),
        (0.4, None, "planner"),
    ]


def test_only_the_last_attempt_is_scored():
    made = AttemptBuilder()
    made.reward(1.0)
    made.retried()

    assert outcome_of(made) is None
