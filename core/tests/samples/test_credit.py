import pytest
from agentlightning.samples import CreditRules, credit_rule, transitions
from agentlightning.testing.attempts import AttemptBuilder


def step_rewards(made, **rules):
    found = transitions(made.rollout, made.spans, CreditRules(need_reward=False, **rules))
    return [one.reward for one in found]


def at(start, end=None):
    return {"start_ns": start, "end_ns": start if end is None else end}


def test_a_reward_goes_to_the_nearest_earlier_call_and_zero_is_a_value():
    made = AttemptBuilder()
    made.call([1], [2], span=at(1))
    made.call([1], [2], span=at(4))
    made.reward(0.0, step="elsewhere", **at(6))

    assert step_rewards(made) == [None, 0.0]


def test_a_reward_before_or_together_with_the_call_is_not_the_calls():
    made = AttemptBuilder()
    made.reward(1.0, step="elsewhere", **at(1))
    made.call([1], [2], span=at(2))
    made.reward(1.0, step="elsewhere", **at(2))

    assert step_rewards(made) == [None]


@pytest.mark.parametrize("named", [True, False], ids=["agent named", "agent span above"])
def test_a_reward_stays_with_its_agent_though_another_called_since(named):
    made = AttemptBuilder()
    x, y = made.agent("X", **at(19, 36)), made.agent("Y", **at(30, 33))
    made.call([1], [2], agent="X", span={**at(20, 30), "parent_id": x.span_id})
    made.reward(0.8, agent="X" if named else None, step=x.span_id, **at(35), parent_id=x.span_id)
    made.call([1], [2], agent="Y", span={**at(31, 32), "parent_id": y.span_id})

    assert step_rewards(made) == [0.8, None]


def test_a_reward_that_names_a_call_is_that_calls_whatever_the_clocks_say():
    made = AttemptBuilder()
    first = made.call([1], [2], agent="A", span=at(100, 200))
    made.call([1], [2], agent="A", span=at(1, 2))
    made.reward(0.5, step=first.span_id, **at(50))

    assert step_rewards(made) == [0.5, None]


def test_a_call_that_is_still_running_gets_nothing():
    made = AttemptBuilder()
    made.call([1], [2], span=at(1, 2))
    made.call([1], [2], span=at(3, 9))
    made.reward(0.5, step="elsewhere", **at(5))

    assert step_rewards(made) == [0.5, None]


def test_a_failed_call_takes_no_reward_away():
    made = AttemptBuilder()
    made.call([1], [2])
    made.failed_call("HTTP 500")
    made.reward(0.5, step="elsewhere")

    assert step_rewards(made) == [0.5, None]


def test_several_rewards_of_one_step_add_up():
    made = AttemptBuilder()
    call = made.call([1], [2])
    made.reward(0.5, step=call.span_id)
    made.reward(0.25, step=call.span_id)

    assert step_rewards(made) == [0.75]


def test_later_rewards_flow_back_within_an_agent_only():
    made = AttemptBuilder()
    made.call([1], [2], agent="A")
    made.call([1], [2], agent="B")
    made.call([1], [2], agent="A")
    last = made.call([1], [2], agent="A")
    made.reward(1.0, step=last.span_id)

    assert step_rewards(made, gamma=0.5) == [0.25, None, 0.5, 1.0]
    assert step_rewards(made, gamma=1.0) == [1.0, None, 1.0, 1.0]
    assert step_rewards(made) == [None, None, None, 1.0]


def test_the_outcome_is_no_step_reward():
    made = AttemptBuilder()
    made.call([1], [2])
    made.reward(1.0)

    assert step_rewards(made) == [None]


def test_the_rule_can_be_named():
    assert credit_rule(CreditRules()) == "step rewards go to the nearest earlier call of the same agent"
    assert "0.9" in credit_rule(CreditRules(gamma=0.9))
