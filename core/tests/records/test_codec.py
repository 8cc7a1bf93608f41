import enum
import math

import msgspec
import pytest
from agentlightning.errors import BadValue
from agentlightning.records import (
    JSON,
    LLM,
    Attempt,
    Choice,
    Data,
    Floats,
    LLMCall,
    PromptTemplate,
    Record,
    ResourcesVersion,
    Reward,
    Rollout,
    RolloutConfig,
    Run,
    Span,
    SpanEvent,
    Tokens,
    as_json,
    as_resource,
    from_builtins,
    from_json,
    from_msgpack,
    to_builtins,
    to_json,
    to_msgpack,
)
from hypothesis import given
from hypothesis import strategies as st

SPAN = Span(
    rollout_id="ro",
    attempt=1,
    span_id="1" * 16,
    trace_id="2" * 32,
    kind="llm",
    name="chat",
    start_ns=1,
    end_ns=2,
    attributes={"a": [1, None, {"b": "é"}]},
    events=(SpanEvent(name="e", time_ns=1),),
    call=LLMCall(
        seq=1,
        api="chat",
        model="m",
        base_url="u",
        request={"messages": []},
        prompt_ids=Tokens([1, 2**32 - 1]),
        choices=(Choice(response_ids=Tokens([3]), logprobs=Floats([-0.25])), Choice(index=1)),
    ),
)
RECORDS = [
    Run(run_id="r", name="n", config={"x": 1}, created_at=1.5),
    Rollout(
        rollout_id="ro",
        run_id="r",
        input={"q": [1]},
        mode="val",
        status="failed",
        created_at=0.0,
        config=RolloutConfig(timeout_s=3, retry_on=("timed_out",)),
    ),
    Attempt(rollout_id="ro", number=1, status="lost", worker_id="w", started_at=0.0, lease_until=1.0),
    SPAN,
    Reward(rollout_id="ro", attempt=1, value=0.5, source="returned"),
    ResourcesVersion(
        run_id="r",
        version=1,
        created_at=0.0,
        resources={"llm": LLM(model="m"), "p": PromptTemplate(template="{x}"), "d": Data(value=[None])},
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_every_form(record):
    kind = type(record)
    assert from_json(to_json(record), kind) == record
    assert from_msgpack(to_msgpack(record), kind) == record
    assert from_builtins(to_builtins(record), kind) == record
    if isinstance(record, Record):
        assert to_builtins(record)["schema"] == 1


def test_a_record_never_changes():
    with pytest.raises(AttributeError):
        SPAN.name = "other"


def test_token_ids_are_compact_in_json():
    """32 turns that each repeat 8k tokens are several megabytes as lists, and a quarter of it packed."""
    ids = list(range(100_000, 108_000))
    call = msgspec.structs.replace(SPAN.call, prompt_ids=Tokens(ids))
    assert len(to_json(call)) < len(to_json(ids)) * 0.8
    assert len(to_msgpack(call)) < 4 * len(ids) + 500
    assert from_json(to_json(call), LLMCall).prompt_ids == ids


def test_lists_of_ids_are_read_too():
    plain = to_builtins(SPAN.call) | {"prompt_ids": [1, 2]}
    assert from_builtins(plain, LLMCall).prompt_ids == Tokens([1, 2])


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [("kind", "step", "kind"), ("start_ns", "soon", "start_ns"), ("events", [{"name": 1}], "events")],
)
def test_a_record_of_the_wrong_shape_is_refused_by_place(field, value, place):
    with pytest.raises(msgspec.ValidationError, match=place):
        from_builtins(to_builtins(SPAN) | {field: value}, Span)


def test_a_record_of_a_later_version_may_have_more_fields():
    assert from_builtins(to_builtins(SPAN) | {"later": 1}, Span) == SPAN


def test_an_unknown_setting_of_a_rollout_is_refused():
    with pytest.raises(msgspec.ValidationError, match="max_retries"):
        from_builtins({"max_retries": 3}, RolloutConfig)


def test_a_key_is_never_written_down():
    llm = LLM(model="m", api_key_env="NAME").with_key("sk-secret")
    assert llm.api_key == "sk-secret"
    for written in (to_json(llm), to_msgpack(llm), repr(to_builtins(llm)).encode(), repr(llm).encode()):
        assert b"sk-secret" not in written


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_json_passes_as_it_is(value):
    checked = as_json(value)
    assert checked == value
    assert from_json(to_json(checked), JSON) == value


def test_what_is_given_is_copied():
    given_value = {"list": [1]}
    checked = as_json(given_value)
    given_value["list"].append(2)
    assert checked == {"list": [1]}


def test_kinds_of_text_and_numbers_become_plain():
    class Colour(str, enum.Enum):  # noqa: UP042  (the older form, whose str() is its name)
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    class Score(float):
        pass

    checked = as_json({Colour.RED: [Colour.RED, Level.HIGH, Score(0.5), True, (1,), Tokens([7])]})
    assert checked == {"red": ["red", 3, 0.5, True, [1], [7]]}
    assert [type(item) for item in checked["red"]] == [str, int, float, bool, list, list]
    assert {type(key) for key in checked} == {str}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {"b": math.nan}]}, r"task\['a'\]\[1\]\['b'\] is nan"),
        ({"a": -math.inf}, r"task\['a'\] is -inf"),
        ({1: 2}, "the key 1"),
        ([object()], r"task\[0\] is a object"),
        ({"a": {1, 2}}, "is a set"),
        (b"bytes", "is a bytes"),
    ],
)
def test_what_is_not_json_is_refused_by_place(value, place):
    with pytest.raises(BadValue, match=place):
        as_json(value, "task")


def test_a_value_that_contains_itself_is_refused():
    value = {"a": []}
    value["a"].append(value)
    with pytest.raises(BadValue, match="task is nested too deeply, or contains itself"):
        as_json(value, "task")


def test_plain_values_become_resources():
    assert as_resource({"a": (1,)}, "x") == Data(value={"a": [1]})
    assert as_resource(PromptTemplate(template="t"), "x") == PromptTemplate(template="t")
    with pytest.raises(BadValue, match="resource 'x'"):
        as_resource(object(), "x")
