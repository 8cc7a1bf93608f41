import time

import pytest
from agentlightning.records import Floats, Tokens
from agentlightning.samples import CreditRules, Fidelity, Limits, Transition, rows, transitions
from agentlightning.testing.attempts import AttemptBuilder

ANY = CreditRules(need_reward=False)


def turn(seq, prompt, response, *, agent=None, rollout_id="r1", **fields):
    fields.setdefault("logprobs", Floats([-0.5] * len(response)))
    return Transition(
        rollout_id=rollout_id,
        attempt=1,
        seq=seq,
        choice=0,
        agent=agent,
        prompt_ids=Tokens(prompt),
        response_ids=Tokens(response),
        **fields,
    )


def numbered(*turns, **fields):
    return [turn(seq, *ids, **fields) for seq, ids in enumerate(turns, 1)]


def shape(row):
    return list(row.prompt_ids), list(row.response_ids), list(row.mask)


def merge(turns, limits=None):
    built, report = rows(turns, "trajectory", limits or Limits())
    return [shape(row) for row in built], report


def test_a_reply_that_comes_back_as_other_ids_starts_a_row_and_is_counted():
    built, report = merge(numbered(([10], [1, 2]), ([10, 3, 11], [7])))

    assert built == [([10], [1, 2], [1, 1]), ([10, 3, 11], [7], [1])]
    assert report.split == {"retokenised": 1}


@pytest.mark.parametrize("level", ["transition", "trajectory"])
def test_the_same_prompt_asked_again_gives_rows_of_equal_lengths(level):
    built, report = rows(numbered(([1, 2], [3]), ([1, 2], [3, 4])), level)

    assert [list(row.mask) for row in built] == [[1], [1, 1]]
    for row in built:
        assert len(row.response_ids) == len(row.mask) == len(row.logprobs)
    assert report.split == ({} if level == "transition" else {"same_prompt": 1})


def test_separators_and_tool_tokens_stay_in_the_row_unmasked():
    limits = Limits(max_response_tokens=2, max_row_tokens=16)

    built, report = merge(numbered(([5], [6, 99]), ([5, 6, 99, 198, 50], [7, 99])), limits)

    assert built == [([5], [6, 99, 198, 50, 7, 99], [1, 1, 0, 0, 1, 1])]
    assert report == Fidelity(calls=2, used=2, merged=1, rows=1, sampled_tokens=4, trained_tokens=4)


def test_each_turn_keeps_its_tokens_reward_and_version():
    turns = [
        turn(1, [5], [6], reward=0.5, model_version=3, temperature=1.0, finish_reason="tool_calls"),
        turn(2, [5, 6, 0], [7, 8], model_version=4, finish_reason="stop"),
    ]

    [row], _ = rows(turns, "trajectory")

    first, second = row.turns
    assert (first.seq, first.start, first.end, first.reward, first.model_version) == (1, 0, 1, 0.5, 3)
    assert (second.seq, second.start, second.end, second.reward, second.model_version) == (
        2,
        2,
        4,
        None,
        4,
    )
    assert [one.finish_reason for one in row.turns] == ["tool_calls", "stop"]
    assert list(row.logprobs) == [-0.5, 0.0, -0.5, -0.5]


def test_a_turn_that_adds_nothing_between_is_merged():
    built, _ = merge(numbered(([1], [2]), ([1, 2], [3])))

    assert built == [([1], [2, 3], [1, 1])]


def test_interleaved_agents_are_merged_each_with_its_own():
    turns = [
        turn(1, [1], [2], agent="A"),
        turn(2, [7], [8], agent="B"),
        turn(3, [1, 2, 0], [3], agent="A"),
        turn(4, [7, 8, 0], [9], agent="B"),
    ]

    built, report = merge(turns)

    assert built == [([1], [2, 0, 3], [1, 0, 1]), ([7], [8, 0, 9], [1, 0, 1])]
    assert report.split == {"different_agent": 1}


def test_one_agent_does_not_continue_anothers_row():
    built, report = merge([turn(1, [1], [2], agent="A"), turn(2, [1, 2], [3], agent="B")])

    assert len(built) == 2
    assert report.split == {"different_agent": 1}


def test_parallel_conversations_of_one_agent_are_told_apart():
    built, report = merge(
        numbered(([1, 5], [2]), ([1, 6], [3]), ([1, 5, 2, 0], [4]), ([1, 6, 3, 0], [4]))
    )

    assert built == [([1, 5], [2, 0, 4], [1, 0, 1]), ([1, 6], [3, 0, 4], [1, 0, 1])]
    assert report.split == {"other_trajectory": 1}


def test_the_longest_of_several_trajectories_is_continued():
    built, _ = merge(numbered(([1], [2]), ([1], [2, 3]), ([1, 2, 3, 0], [4])))

    assert built == [([1], [2], [1]), ([1], [2, 3, 0, 4], [1, 1, 0, 1])]


def test_choices_of_one_call_are_rows_and_the_chosen_one_goes_on():
    made = AttemptBuilder()
    made.call([1], [2], [3])
    made.call([1, 3, 0], [4])

    built, _ = rows(transitions(made.rollout, made.spans, ANY), "trajectory")

    assert [shape(row) for row in built] == [([1], [2], [1]), ([1], [3, 0, 4], [1, 0, 1])]
    assert [one.choice for one in built[1].turns] == [1, 0]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (([1, 5, 2, 9], [4]), "other_trajectory"),  # another beginning
        (([1, 5, 6, 2, 3, 9], [4]), "history_edited"),  # the reply is there, what precedes it changed
        (([1, 7, 0], [4]), "retokenised"),  # parts at the first sampled token
        (([1, 7, 2, 0], [4]), "retokenised"),
        (([1], [4]), "same_prompt"),
    ],
)
def test_why_a_second_call_stands_alone(second, reason):
    _, report = merge(numbered(([1, 7], [2, 3]), second))

    assert report.split == {reason: 1}


def test_an_edited_tool_result_is_an_edited_history():
    _, report = merge(numbered(([1], [2]), ([1, 2, 50, 51], [3]), ([1, 2, 50, 60, 3, 0], [4])))

    assert report.split == {"history_edited": 1}


def test_a_full_window_starts_the_next_row():
    turns = numbered(
        ([1], [2]), ([1, 2], [3]), ([1, 2, 3], [4]), ([1, 2, 3, 4], [5]), ([1, 2, 3, 4, 5], [6])
    )

    built, report = merge(turns, Limits(window=2))

    assert built == [
        ([1], [2, 3], [1, 1]),
        ([1, 2, 3], [4, 5], [1, 1]),
        ([1, 2, 3, 4, 5], [6], [1]),
    ]
    assert report.split == {"window_full": 2}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_prompt_tokens=2), "prompt_too_long"),
        (Limits(max_response_tokens=1), "response_too_long"),
        (Limits(max_row_tokens=4), "row_too_long"),
    ],
)
@pytest.mark.parametrize("level", ["transition", "trajectory"])
def test_what_is_over_a_limit_is_dropped_whole_and_counted(limits, reason, level):
    built, report = rows(numbered(([1, 2, 3], [4, 5]), ([8], [9])), level, limits)

    assert [shape(row) for row in built] == [([8], [9], [1])]
    assert report.dropped == {reason: 1}
    assert (report.sampled_tokens, report.trained_tokens) == (3, 1)


def test_the_prompt_limit_is_of_the_rows_own_prompt():
    turns = numbered(([1, 2], [3]), ([1, 2, 3, 0], [4]))

    assert rows(turns, "trajectory", Limits(max_prompt_tokens=2))[1].dropped == {}
    assert rows(turns, "transition", Limits(max_prompt_tokens=2))[1].dropped == {"prompt_too_long": 1}


def test_weights_follow_the_turns_and_add_up_per_rollout():
    turns = [
        *numbered(([1], [2]), ([1, 2], [3]), ([9], [9])),
        turn(1, [1], [2], rollout_id="r2"),
    ]

    by_trajectory, _ = rows(turns, "trajectory")
    by_transition, _ = rows(turns, "transition")

    assert [row.weight for row in by_trajectory] == pytest.approx([2 / 3, 1 / 3, 1.0])
    assert [row.weight for row in by_transition] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])


def test_rollouts_are_never_merged_with_each_other():
    built, report = merge([turn(1, [1], [2]), turn(1, [1, 2], [3], rollout_id="r2")])

    assert len(built) == 2
    assert report.split == {}


def test_a_row_has_log_probabilities_only_if_all_its_turns_have():
    turns = [turn(1, [1], [2]), turn(2, [1, 2], [3], logprobs=None)]

    [row], _ = rows(turns, "trajectory")

    assert row.logprobs is None


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (turn(1, [], [1]), "empty_prompt"),
        (turn(1, [1], []), "empty_response"),
        (turn(1, [1], [2], logprobs=Floats([])), "count_mismatch"),
    ],
)
def test_hand_made_transitions_are_checked_too(one, reason):
    built, report = rows([one], "trajectory")

    assert (built, report.dropped) == ([], {reason: 1})


def test_reports_add_up():
    _, first = merge(numbered(([10], [1, 2]), ([10, 3, 11], [7])))
    _, second = merge([turn(1, [1], []), turn(2, [1], [2])])

    total = sum([first, second], Fidelity())

    assert (total.calls, total.used, total.rows, total.sampled_tokens) == (4, 3, 3, 4)
    assert (total.dropped, total.split) == ({"empty_response": 1}, {"retokenised": 1})


def long_conversation(turns, new):
    """Half of the new tokens of a turn are sampled, half are observed."""
    made, history = AttemptBuilder(), [0]
    for number in range(turns):
        response = [number * new + index for index in range(new // 2)]
        made.call(history, response, logprobs=[[-1.0] * len(response)])
        history = history + response + [7] * (new // 2)
    made.reward(1.0)
    return made


def test_sixty_four_long_turns_become_one_row_quickly():
    made = long_conversation(64, 480)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        built, _ = rows(transitions(made.rollout, made.spans, CreditRules()), "trajectory")
        seconds.append(time.perf_counter() - started)

    assert len(built) == 1
    assert len(built[0].response_ids) == 63 * 480 + 240
    assert min(seconds) < 0.02  # 1.3 ms on an idle laptop; ten times that would be quadratic
