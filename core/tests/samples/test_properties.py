"""Whatever an agent does with its history, no token is lost, invented or trained twice."""

import math
from collections import Counter

from agentlightning.samples import CreditRules, Limits, explain, rows, transitions
from agentlightning.testing.attempts import AttemptBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

RULES = CreditRules(agents=("A", "B"))
TOKENS = st.lists(st.integers(0, 3), max_size=3)  # few ids: equal prompts and chance matches abound
REPLY = st.lists(st.integers(0, 3), min_size=1, max_size=3) | TOKENS
LIMITS = st.builds(
    Limits,
    max_prompt_tokens=st.none() | st.none() | st.integers(1, 12),
    max_response_tokens=st.none() | st.none() | st.integers(1, 4),
    max_row_tokens=st.none() | st.none() | st.integers(1, 20),
    window=st.none() | st.integers(1, 3),
)
RARELY = st.sampled_from([False] * 6 + [True])
LEVELS = st.sampled_from(["transition", "trajectory"])
steady = settings(deadline=None, database=None)  # a busy machine is no failure; examples leave no files


@st.composite
def attempts(draw):
    """Interleaved conversations of several agents: continued, branched, edited, cut short, failed."""
    made = AttemptBuilder(draw(st.sampled_from(["r1", "r2", "r3"])))
    conversations = [("A", [0]), ("A", [0, 1]), ("B", [0]), ("judge", [2])]
    for _ in range(draw(st.integers(2, 12))):
        number = draw(st.integers(0, len(conversations) - 1))
        agent, history = conversations[number]
        prompt = draw(next_prompt(history))
        if draw(RARELY):
            made.failed_call("HTTP 500", agent=agent)
            continue
        replies = [draw(REPLY) for _ in range(2 if draw(RARELY) else 1)]
        logprobs = [[-1.0 - index for index in range(len(reply))] for reply in replies]
        made.call(prompt, *replies, logprobs=logprobs if draw(st.booleans()) else None, agent=agent)
        conversations[number] = (agent, prompt + replies[-1])
        if draw(RARELY):
            conversations.append((agent, history))  # another branch may grow from here
    if not draw(RARELY):
        made.reward(draw(st.floats(0, 1)))
    return made


@st.composite
def next_prompt(draw, history):
    """Mostly the history and what the agent observed since; else a history that was tampered with."""
    how = draw(st.sampled_from(["continued"] * 4 + ["edited", "cut"]))
    if how == "cut":
        return history[: draw(st.integers(0, len(history)))]
    if how == "edited":
        place = draw(st.integers(0, len(history) - 1)) if history else 0
        history = [*history[:place], draw(st.integers(0, 3)), *history[place + 1 :]]
    return history + draw(TOKENS)


def samples(made, level, limits):
    found = transitions(made.rollout, made.spans, RULES)
    return found, *rows(found, level, limits)


@steady
@given(attempts(), LEVELS, LIMITS)
def test_ids_mask_and_log_probabilities_have_one_length(made, level, limits):
    _, built, _ = samples(made, level, limits)

    for row in built:
        assert len(row.response_ids) == len(row.mask) == len(row.logprobs or row.mask)
        assert row.prompt_ids
        assert row.turns[-1].end == len(row.mask)


@steady
@given(attempts(), LEVELS, LIMITS)
def test_every_sampled_token_is_trained_exactly_once_and_no_other(made, level, limits):
    found, built, report = samples(made, level, limits)
    by_reply = {(one.seq, one.choice): one for one in found}

    trained = Counter((turn.seq, turn.choice) for row in built for turn in row.turns)
    assert all(count == 1 for count in trained.values())
    assert not [key for key in trained if by_reply[key].dropped]
    for row in built:
        sampled = bytearray(len(row.mask))
        for turn in row.turns:
            reply = by_reply[turn.seq, turn.choice]
            assert row.response_ids[turn.start : turn.end] == reply.response_ids
            sampled[turn.start : turn.end] = b"\x01" * len(reply.response_ids)
            if row.logprobs is not None:
                assert row.logprobs[turn.start : turn.end] == reply.logprobs
        assert row.mask == bytes(sampled)
        assert row.logprobs is None or not any(
            value for value, is_sampled in zip(row.logprobs, sampled, strict=True) if not is_sampled
        )
    assert report.trained_tokens == sum(len(by_reply[key].response_ids) for key in trained)


@steady
@given(attempts(), LIMITS)
def test_each_turn_was_sampled_from_exactly_what_precedes_it_in_its_row(made, limits):
    found, built, _ = samples(made, "trajectory", limits)
    prompts = {(one.seq, one.choice): one.prompt_ids for one in found}

    for row in built:
        for turn in row.turns:
            assert row.prompt_ids + row.response_ids[: turn.start] == prompts[turn.seq, turn.choice]


@steady
@given(attempts(), LEVELS, LIMITS)
def test_nothing_is_dropped_or_split_without_being_counted(made, level, limits):
    found, built, report = samples(made, level, limits)

    assert report.calls == len(found) == report.used + sum(report.dropped.values())
    assert report.used == sum(len(row.turns) for row in built)
    assert report.rows == len(built) == report.used - report.merged
    assert report.sampled_tokens == sum(len(one.response_ids) for one in found)
    expected_splits = max(len(built) - 1, 0) if level == "trajectory" else 0
    assert sum(report.split.values()) == expected_splits


@steady
@given(attempts(), LEVELS, LIMITS)
def test_limits_hold(made, level, limits):
    _, built, _ = samples(made, level, limits)

    for row in built:
        assert len(row.prompt_ids) <= (limits.max_prompt_tokens or math.inf)
        assert len(row.prompt_ids) + len(row.response_ids) <= (limits.max_row_tokens or math.inf)
        if level == "trajectory":
            assert len(row.turns) <= (limits.window or math.inf)


@steady
@given(st.lists(attempts(), max_size=4, unique_by=lambda made: made.rollout.rollout_id), LEVELS, LIMITS)
def test_a_rollouts_weights_add_up_to_one_and_it_gets_the_same_rows_in_any_batch(batch, level, limits):
    together = [one for made in batch for one in transitions(made.rollout, made.spans, RULES)]

    built, _ = rows(together, level, limits)

    total = Counter()
    for row in built:
        total[row.rollout_id] += row.weight
    assert all(math.isclose(weight, 1.0) for weight in total.values())
    assert built == [row for made in batch for row in samples(made, level, limits)[1]]


@steady
@given(attempts(), LEVELS, LIMITS)
def test_the_explanation_tells_the_same_as_the_rows(made, level, limits):
    _, built, report = samples(made, level, limits)

    found = explain(made.rollout, made.spans, RULES, limits, level)

    calls = [fate for fate in found.fates if fate.what.startswith("call")]
    assert len(calls) == report.calls
    assert Counter(fate.row for fate in calls if fate.row) == {
        number: len(row.turns) for number, row in enumerate(built, 1)
    }
    assert sum("dropped: " in fate.fate for fate in calls) == sum(report.dropped.values())
