"""The trace of an attempt says which attempt it is."""

import pytest
from agentlightning.records import AttemptKey, attempt_of_trace, root_span_id_of, trace_id_of
from agentlightning.store.keys import new_id


@pytest.mark.parametrize("number", [1, 2, 0xFFFF])
def test_the_attempt_is_read_back_from_its_trace(number):
    key = AttemptKey(new_id("ro", 1_800_000_000.0), number)
    assert len(trace_id_of(key)) == 32
    assert attempt_of_trace(trace_id_of(key)) == key


def test_what_samplers_look_at_differs_between_attempts_made_together():
    tails = {trace_id_of(AttemptKey(new_id("ro", 1.0), 1))[-10:] for _ in range(100)}
    assert len(tails) == 100


@pytest.mark.parametrize("key", [AttemptKey("mine", 1), AttemptKey("ro-" + "0" * 22, 2**20)])
def test_an_attempt_named_otherwise_has_a_trace_of_its_own_that_names_none(key):
    assert len(trace_id_of(key)) == 32
    assert trace_id_of(key) != trace_id_of(AttemptKey(key.rollout_id, 2))
    assert attempt_of_trace(trace_id_of(key)) is None


@pytest.mark.parametrize("trace_id", ["0" * 32, "f" * 32, "", "0" * 10 + "a" * 22, "0" * 9 + "1"])
def test_a_foreign_trace_is_no_attempts(trace_id):
    assert attempt_of_trace(trace_id) is None


def test_the_root_of_each_attempt_is_another():
    assert len({root_span_id_of(AttemptKey("ro-1", number)) for number in (1, 2, 3)}) == 3
