import pytest
from agentlightning.errors import ConfigError
from agentlightning.samples import CreditRules, Reason, exact_agents, rows, transitions
from agentlightning.testing.attempts import AttemptBuilder

RULES = CreditRules()


def made_of(made, rules=RULES):
    return transitions(made.rollout, made.spans, rules)


def reasons(made, rules=RULES):
    return [one.dropped for one in made_of(made, rules)]


def one_call(*, reward=1.0, **fields):
    made = AttemptBuilder()
    made.call(fields.pop("prompt", [1, 2]), fields.pop("response", [3]), **fields)
    if reward is not None:
        made.reward(reward)
    return made


def test_refused_and_empty_replies_are_dropped_with_their_reason_and_the_rest_is_used():
    made = AttemptBuilder()
    made.failed_call("HTTP 400: the prompt is longer than the context")
    made.call([1], [])
    made.call([1], [2])
    made.reward(1.0)

    found = made_of(made)
    built, report = rows(found)

    assert [one.dropped for one in found] == [Reason.INCOMPLETE, Reason.EMPTY_RESPONSE, None]
    assert found[0].detail == "HTTP 400: the prompt is longer than the context"
    assert [(list(row.prompt_ids), list(row.response_ids)) for row in built] == [([1], [2])]
    assert (report.calls, report.used, report.dropped) == (3, 1, {"incomplete": 1, "empty_response": 1})


def test_calls_come_in_the_order_they_started_whatever_clocks_and_arrival_say():
    made = AttemptBuilder()
    made.call([1], [1], seq=3, span={"start_ns": 1})
    made.call([2], [2], seq=1, span={"start_ns": 9})
    made.call([3], [3], seq=2, span={"start_ns": 5})

    assert [one.seq for one in made_of(made)] == [1, 2, 3]


def test_each_choice_is_a_transition_of_its_own():
    made = AttemptBuilder()
    made.call([1], [2], [3, 4], logprobs=[[-0.1], [-0.2, -0.3]], usage={"completion_tokens": 3})
    made.reward(1.0)

    found = made_of(made)

    assert [(one.choice, list(one.response_ids), one.dropped) for one in found] == [
        (0, [2], None),
        (1, [3, 4], None),
    ]


def test_a_call_without_any_choice_is_dropped_not_lost():
    made = AttemptBuilder()
    made.call([1])
    made.reward(1.0)

    assert reasons(made) == [Reason.INCOMPLETE]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"prompt": None}, Reason.NO_TOKEN_IDS),
        ({"response": None}, Reason.NO_TOKEN_IDS),
        ({"prompt": []}, Reason.EMPTY_PROMPT),
        ({"response": []}, Reason.EMPTY_RESPONSE),
        ({"complete": False}, Reason.INCOMPLETE),
        ({"logprobs": [[-0.1, -0.2]]}, Reason.COUNT_MISMATCH),
        ({"usage": {"completion_tokens": 2}}, Reason.COUNT_MISMATCH),
        ({"usage": {"prompt_tokens": 3}}, Reason.COUNT_MISMATCH),
        ({"usage": {"prompt_tokens": 2, "completion_tokens": 1}}, None),
        ({"reward": None}, Reason.UNSCORED),
    ],
)
def test_what_cannot_be_trained_on_says_why(fields, reason):
    assert reasons(one_call(**fields)) == [reason]


def test_a_call_at_another_temperature_is_dropped_with_both_numbers():
    rules = CreditRules(temperature=1.0)

    assert reasons(one_call(temperature=1.0), rules) == [None]
    assert reasons(one_call(temperature=None), rules) == [Reason.OTHER_TEMPERATURE]
    [found] = made_of(one_call(temperature=0.2), rules)
    assert (found.dropped, found.detail) == (Reason.OTHER_TEMPERATURE, "0.2, not 1")
    assert reasons(one_call(temperature=0.2)) == [None]


def test_log_probabilities_are_missed_only_where_they_are_needed():
    assert reasons(one_call()) == [None]
    assert reasons(one_call(), CreditRules(need_logprobs=True)) == [Reason.NO_LOGPROBS]


def test_a_failed_rollout_gives_no_sample_unless_asked():
    made = AttemptBuilder(status="failed")
    made.call([1], [2])
    made.reward(1.0)

    assert reasons(made) == [Reason.FAILED_ROLLOUT]
    assert reasons(made, CreditRules(use_failed=True)) == [None]


def test_calls_of_unscored_rollouts_are_kept_where_no_reward_is_needed():
    assert reasons(one_call(reward=None), CreditRules(need_reward=False)) == [None]


def test_a_step_reward_is_a_reward():
    made = AttemptBuilder()
    call = made.call([1], [2])
    made.reward(0.5, step=call.span_id)

    assert reasons(made) == [None]


def test_only_the_last_attempt_gives_samples():
    made = AttemptBuilder()
    made.call([1], [2])
    made.retried()
    made.call([3], [4])
    made.reward(1.0)

    assert [(one.attempt, list(one.prompt_ids)) for one in made_of(made)] == [(2, [3])]


def test_a_try_that_the_client_sent_again_is_no_call():
    made = AttemptBuilder()
    call = made.call([1], [2], retries=1)
    made.failed_call("HTTP 503", seq=1, span={"parent_id": call.span_id})
    made.reward(1.0)

    assert reasons(made) == [None]


def writers():
    made = AttemptBuilder()
    made.agent("write", start_ns=1, end_ns=5)
    made.agent("rewrite", start_ns=6, end_ns=9)
    made.call([1], [1], span={"start_ns": 2, "end_ns": 3})
    made.call([2], [2], span={"start_ns": 7, "end_ns": 8})
    made.reward(1.0)
    return made


@pytest.mark.parametrize(
    ("agents", "used"),
    [
        (("^write$",), ["write"]),
        (("write",), ["write", "rewrite"]),
        (("check",), []),
        (("check", "^re"), ["rewrite"]),
        (exact_agents(["write"]), ["write"]),
        (None, ["write", "rewrite"]),
    ],
)
def test_agents_are_chosen_by_search_though_calls_hang_under_the_root(agents, used):
    found = made_of(writers(), CreditRules(agents=agents))

    assert [one.agent for one in found if one.dropped is None] == used
    assert {one.dropped for one in found} <= {None, Reason.OTHER_AGENT}


def test_a_recorded_name_beats_the_span_above_which_beats_time():
    made = AttemptBuilder()
    outer = made.agent("outer", start_ns=1, end_ns=90)
    made.agent("inner", start_ns=2, end_ns=80, parent_id=outer.span_id)
    made.call([1], [1], agent="named", span={"parent_id": outer.span_id, "start_ns": 3, "end_ns": 4})
    made.call([1], [1], span={"parent_id": outer.span_id, "start_ns": 3, "end_ns": 4})
    made.call([1], [1], span={"start_ns": 3, "end_ns": 4})

    assert [one.agent for one in made_of(made)] == ["named", "outer", "inner"]


def test_time_does_not_tell_between_agents_side_by_side():
    made = AttemptBuilder()
    made.agent("left", start_ns=1, end_ns=9)
    made.agent("right", start_ns=1, end_ns=9)
    made.call([1], [1], span={"start_ns": 2, "end_ns": 3})

    assert [one.agent for one in made_of(made)] == [None]


def test_a_call_of_an_unknown_agent_is_not_a_trained_agents():
    made = one_call()

    [found] = made_of(made, CreditRules(agents=(".*",)))

    assert (found.dropped, found.detail) == (Reason.OTHER_AGENT, "no agent known")


def test_an_agent_pattern_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError, match=r"\(planner"):
        made_of(one_call(), CreditRules(agents=("(planner",)))


def test_exact_names_are_taken_literally():
    made = one_call(agent="Agent (v2)")

    assert reasons(made, CreditRules(agents=exact_agents(["Agent (v2)"]))) == [None]
    assert reasons(made, CreditRules(agents=exact_agents(["Agent"]))) == [Reason.OTHER_AGENT]
