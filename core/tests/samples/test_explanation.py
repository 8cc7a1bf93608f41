from agentlightning import semconv
from agentlightning.records import SpanEvent, from_json, to_json
from agentlightning.samples import CreditRules, Explanation, Limits, Reason, explain, why_empty
from agentlightning.testing.attempts import AttemptBuilder
from msgspec.structs import replace

RULES = CreditRules()


def explained(made, rules=RULES, **options):
    return explain(made.rollout, made.spans, rules, **options)


def lines(explanation):
    return [f"{fate.what}: {fate.fate}" for fate in explanation.fates]


def notes(explanation):
    return "\n".join(explanation.notes)


def test_every_call_and_reward_has_one_line():
    made = AttemptBuilder()
    made.call([10], [1, 2], agent="solver")
    made.call([10, 1, 2, 0], [3], agent="solver")
    made.failed_call(refusal := "HTTP 400: the prompt is longer than the context", agent="solver")
    last = made.call([10, 9], [7], agent="solver")
    made.reward(0.5, step=last.span_id)
    made.reward(0.1)
    made.reward(1.0, source="returned")
    made.reward(0.3, name="style")
    made.reward(0.4, version="rescored")

    found = explained(made, level="trajectory")

    assert lines(found) == [
        "call 1 (solver, policy): used: row 1",
        "call 2 (solver, policy): merged into row 1",
        f"call 3 (solver, policy): dropped: {Reason.INCOMPLETE.value}: {refusal}",
        f"call 4 (solver, policy): used: begins row 2, because {Reason.RETOKENISED.value}; step reward 0.5",
        "reward 'reward' 0.5 (emitted): credited to call 4",
        "reward 'reward' 0.1 (emitted): overruled: the value the agent returned counts",
        "reward 'reward' 1 (returned): the rollout's outcome: the value the agent returned",
        "reward 'style' 0.3 (emitted): not used: the rules ask for 'reward'",
        "reward 'reward' 0.4 (emitted): not used: version 'rescored', not 'agent'",
    ]
    assert [fate.row for fate in found.fates[:4]] == [1, 1, None, 2]
    assert (found.reward, found.rows, found.reward_rule) == (1.0, 2, "the value the agent returned")
    assert "same agent" in found.credit_rule
    assert (found.fidelity.scored, found.fidelity.reward_conflicts) == (1, 1)
    assert found.notes == ()


def test_each_choice_has_a_line_of_its_own():
    made = AttemptBuilder()
    made.call([1], [2], [])
    made.reward(1.0)

    assert lines(explained(made))[:2] == [
        "call 1 choice 1 (policy): used: row 1",
        "call 1 choice 2 (policy): dropped: the model returned no token: stop",
    ]


def test_a_step_reward_that_meets_no_call_says_so():
    made = AttemptBuilder()
    made.reward(0.5, step="0" * 16, agent="planner")

    assert lines(explained(made)) == [
        "reward 'reward' 0.5 (emitted): not used: no earlier call of planner is over"
    ]


def test_without_any_call_it_says_what_to_do():
    found = explained(AttemptBuilder())

    assert "no LLM call was recorded" in notes(found)
    assert "openai client" in notes(found)
    assert "emit_reward" in notes(found)
    assert (found.rows, found.reward) == (0, None)


def routed(route, **fields):
    return {"span": {"attributes": {semconv.ROUTE: route}}, **fields}


def test_calls_that_nobody_routed_are_counted_by_where_they_went_with_what_to_do():
    made = AttemptBuilder()
    made.call(None, None, **routed("unrouted", base_url="https://models.example/v1"))
    made.call(None, None, **routed("unrouted", base_url="https://models.example/v1"))
    made.call(None, None, **routed("passthrough: a judge", base_url="https://judge.example/v1"))
    made.reward(1.0)

    found = notes(explained(made))

    assert "2 calls to https://models.example/v1 were routed by nobody" in found
    assert "trained_agents" in found
    assert "1 calls to https://judge.example/v1 were left alone on purpose: a judge" in found


def test_calls_that_were_left_alone_beside_trained_ones_need_no_note():
    made = AttemptBuilder()
    made.call([1], [2], **routed("routed"))
    made.call(None, None, **routed("unrouted"))
    made.reward(1.0)

    assert "routed by nobody" not in notes(explained(made))


def test_calls_that_strict_mode_refused_are_told_though_none_was_recorded():
    made = AttemptBuilder()
    made.spans[0] = replace(made.spans[0], attributes={semconv.REFUSED_CALLS: 3})

    found = notes(explained(made))

    assert "3 LLM calls were refused in strict mode" in found
    assert "strict: false" in found
    assert "no LLM call was recorded" in found


def test_a_filter_that_matches_nothing_lists_the_agents_seen():
    made = AttemptBuilder()
    made.call([1], [2], agent="write")
    made.call([1], [2], agent="rewrite")
    made.reward(1.0)

    assert "agents seen: rewrite, write" in notes(explained(made, CreditRules(agents=("check",))))
    assert explained(made, CreditRules(agents=("^write$",))).notes == ()


def test_without_any_agent_name_it_names_the_missing_adapter():
    made = AttemptBuilder()
    made.call([1], [2])
    made.reward(1.0)

    assert "adapter" in notes(explained(made, CreditRules(agents=("check",))))


def test_calls_without_token_ids_are_counted_by_where_they_went():
    made = AttemptBuilder()
    made.call(None, None, base_url="https://models.example/v1", model="big")
    made.call(None, None, base_url="https://models.example/v1", model="big")
    made.call([1], [2])
    made.reward(1.0)

    [note] = explained(made).notes

    assert note.startswith("2 calls went to https://models.example/v1 (model big)")


def test_rewards_of_another_name_are_pointed_out():
    made = AttemptBuilder()
    made.call([1], [2])
    made.reward(1.0, name="accuracy")

    found = notes(explained(made))

    assert "no reward 'reward' was recorded" in found
    assert "'accuracy'" in found


def test_the_exception_of_a_failed_attempt_is_shown():
    made = AttemptBuilder(status="failed")
    made.call([1], [2])
    made.failed("KeyError", "'answer'")

    found = explained(made)

    assert "the rollout failed: KeyError: 'answer'" in notes(found)
    assert "its rollout failed" in lines(found)[0]


def test_a_reward_function_that_failed_is_shown_with_its_exception():
    made = AttemptBuilder()
    made.call([1], [2])
    event = SpanEvent(
        name="exception",
        time_ns=0,
        attributes={semconv.EXCEPTION_TYPE: "builtins.KeyError", semconv.EXCEPTION_MESSAGE: "'a'"},
    )
    made.reward(None, source="function", status="error", events=(event,))

    found = explained(made)

    assert found.reward_rule == "unscored: the reward function failed: KeyError: 'a'"
    assert found.reward_rule in notes(found)


def test_an_attempt_without_an_end_says_that_its_worker_is_gone():
    made = AttemptBuilder(status="failed")
    made.spans.clear()

    assert "its worker died" in notes(explained(made))


def test_the_errors_of_calls_are_shown_when_no_call_can_be_used():
    made = AttemptBuilder()
    made.failed_call("HTTP 503: no weights")
    made.failed_call("HTTP 503: no weights")

    assert "2 calls failed: HTTP 503: no weights" in notes(explained(made))


def test_other_attempts_and_retries_are_mentioned():
    made = AttemptBuilder()
    made.call([1], [2])
    made.retried()
    call = made.call([1], [2])
    made.failed_call("HTTP 503", span={"parent_id": call.span_id})
    made.reward(1.0)

    found = notes(explained(made))

    assert "2 spans of other attempts than the last (2) are not used" in found
    assert "1 tries of calls failed and were sent again" in found


def test_a_rollout_under_way_can_be_explained():
    made = AttemptBuilder(status="running", mode="val")
    made.call([1], [2])
    made.reward(1.0)

    found = notes(explained(made))

    assert "the rollout is running" in found
    assert "'val'" in found


def test_limits_show_in_the_explanation():
    made = AttemptBuilder()
    made.call([1], [2, 3])
    made.reward(1.0)

    [line, _] = lines(explained(made, limits=Limits(max_response_tokens=1)))

    assert "longer than max_response_tokens" in line


def test_an_empty_batch_names_rollouts_and_reasons():
    every = []
    for name in ("r1", "r2"):
        made = AttemptBuilder(name)
        made.failed_call("HTTP 400")
        made.call([1], [])
        every.append(explained(made))

    message = why_empty(every)

    assert "2 rollouts gave nothing to train on: r1, r2" in message
    assert "2 calls: the model returned no token" in message
    assert "emit_reward in it, or give a reward_function (2 of 2 rollouts)" in message


def test_the_same_reason_counts_once_for_all_rollouts_though_it_names_each():
    every = []
    for name in ("r1", "r2"):
        made = AttemptBuilder(name)
        made.failed("RewardError", f"the reward of rollout {name} is nan")
        every.append(explained(made))

    message = why_empty(every)

    assert "RewardError: the reward of the rollout is nan (2 of 2 rollouts)" in message


def test_an_explanation_is_plain_json():
    made = AttemptBuilder()
    made.call([1], [2])
    made.reward(1.0)
    found = explained(made)

    assert from_json(to_json(found), Explanation) == found
