import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import random
import threading

import pytest
from agentlightning import semconv
from agentlightning.errors import RewardError, UnroutedCall
from agentlightning.recording import emitters, guard
from agentlightning.recording.context import current_agent, current_span
from agentlightning.recording.emitters import (
    emit_annotation,
    emit_exception,
    emit_message,
    emit_object,
    emit_reward,
    operation,
)
from agentlightning.recording.ids import new_span_id
from agentlightning.recording.recorder import Recorder
from agentlightning.records import to_json


def by_name(spans):
    return {span.name: span for span in spans}


def test_spans_nest_by_the_current_span_by_handle_and_by_key(recording):
    recorder = Recorder()
    with recording.rollout(name="me") as context:
        outer = recorder.start("agent", "outer", key="run-1")
        recorder.start("tool", "inner").end()
        other = recorder.start("tool", "other", parent=outer, key="run-2")
        recorder.start("tool", "keyed", parent="run-1").end()
        recorder.start("tool", "unknown parent", parent="run-9").end()
        assert recorder.get("run-1") is outer
        other.end()
        outer.end()
        assert recorder.get("run-1") is None
        recorder.start("tool", "after").end()
    spans = by_name(recording.spans(context))
    assert spans["me"].span_id == context.root_span_id
    assert spans["outer"].parent_id == context.root_span_id
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["other"].parent_id == spans["outer"].span_id
    assert spans["keyed"].parent_id == spans["outer"].span_id
    assert spans["unknown parent"].parent_id == spans["other"].span_id
    assert spans["after"].parent_id == context.root_span_id
    assert {span.trace_id for span in spans.values()} == {context.trace_id}


def test_a_span_of_an_async_generator_closed_in_another_task_is_current_no_more(recording, caplog):
    recorder = Recorder()
    caplog.set_level(logging.WARNING)

    async def generate():
        handle = recorder.start("operation", "generator")
        try:
            for number in range(3):
                yield number
        finally:
            handle.end()

    async def consume():
        items = generate()
        assert await anext(items) == 0
        await asyncio.create_task(items.aclose())
        recorder.start("operation", "next").end()

    with recording.rollout() as context:
        asyncio.run(consume())
    names = [span.name for span in recording.spans(context)]
    assert names.count("generator") == 1
    assert by_name(recording.spans(context))["next"].parent_id == context.root_span_id
    assert not caplog.records


def test_agents_are_left_in_any_order_and_from_any_thread(recording):
    recorder = Recorder()
    with recording.rollout():
        a = recorder.enter_agent("a")
        b = recorder.enter_agent("b")
        recorder.leave_agent(a)
        assert current_agent() == "b"
        thread = threading.Thread(target=recorder.leave_agent, args=(b,))
        thread.start()
        thread.join()
        assert current_agent() is None
        with recorder.agent("c"), recorder.agent("d"):
            assert current_agent() == "d"
        assert current_agent() is None


def test_outside_a_rollout_the_recorder_does_nothing(recording):
    recorder = Recorder()
    handle = recorder.start("tool", "t", attributes={"a": 1})
    handle.set({"b": 2})
    handle.tool_result("x")
    handle.error(ValueError("v"))
    handle.end()
    assert recorder.get("k") is None
    assert current_span() is None


def test_the_recorder_never_raises(recording):
    class Unhashable:
        __hash__ = None

    before = sum(guard.faults().values())
    with recording.rollout():
        handle = Recorder().start("tool", "t", key=Unhashable())
        handle.set(None)
        handle.end()
    assert sum(guard.faults().values()) == before + 2


def test_a_span_that_nobody_ends_is_ended_with_its_attempt_and_says_so(recording):
    recorder = Recorder()
    with recording.rollout() as context:
        recorder.start("tool", "forgotten", key="k")
    late = recorder.start("tool", "outside")
    late.end()
    span = by_name(recording.spans(context))["forgotten"]
    assert span.status == "unset"
    assert span.attributes[semconv.UNFINISHED] is True
    assert context.life.open_spans == {}


def test_an_exception_of_the_agent_marks_the_root_span_and_goes_on_unchanged(recording):
    error = KeyError("mine")

    def run():
        nonlocal context
        with recording.rollout(name="me") as context:
            raise error

    context = None
    with pytest.raises(KeyError) as raised:
        run()
    assert raised.value is error
    root = by_name(recording.spans(context))["me"]
    assert root.status == "error"
    assert root.events[0].attributes[semconv.EXCEPTION_TYPE] == "builtins.KeyError"


def test_agents_that_seed_the_chance_they_share_get_ids_of_their_own():
    made = []
    for _ in range(2):
        random.seed(0)
        made.append(new_span_id())
    assert len(set(made)) == 2
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks there")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_gives_other_ids_than_its_parent():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_span_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 16).decode() != new_span_id()
    os.close(reading)
    os.close(writing)


@pytest.mark.usefixtures("installed")
def test_calls_that_strict_mode_refused_are_counted_though_the_agent_goes_on(recording, client):
    with recording.rollout(lambda info: None, strict=True) as context:
        for _ in range(2):
            with contextlib.suppress(UnroutedCall):
                client().chat.completions.create(model="m", messages=[])
    (root,) = recording.spans(context)
    assert root.attributes[semconv.REFUSED_CALLS] == 2


# --- emitters ---------------------------------------------------------------------------------


def test_what_an_agent_emits_is_recorded(recording):
    with recording.rollout() as context:
        emit_message({"role": "user", "content": "note"})
        emit_object({"a": 1}, name="plan")
        emit_annotation({"difficulty": 3})
        emit_exception(ValueError("handled"))
        with operation("search", query="q"):
            emit_message("inside")

        @operation("double")
        def double(x):
            return 2 * x

        @operation("fail")
        async def fail(x):
            raise ValueError(x)

        assert double(4) == 8
        with pytest.raises(ValueError, match="no"):
            asyncio.run(fail("no"))
    spans = recording.spans(context)
    kinds = {span.kind for span in spans}
    assert kinds == {"agent", "message", "object", "annotation", "exception", "operation"}
    named = by_name(spans)
    inside = next(span for span in spans if span.attributes.get(semconv.MESSAGE_BODY) == "inside")
    assert inside.parent_id == named["search"].span_id
    assert named["search"].attributes["query"] == "q"
    assert named["double"].attributes[semconv.OPERATION_INPUT] == {"x": 4}
    assert named["double"].attributes[semconv.OPERATION_OUTPUT] == 8
    assert named["fail"].status == "error"
    assert named["plan"].attributes[semconv.OBJECT_BODY] == {"a": 1}
    assert named["ValueError"].events[0].attributes[semconv.EXCEPTION_MESSAGE] == "handled"


def test_rewards_are_spans_of_the_outcome_or_of_the_latest_step(recording):
    with recording.rollout() as context:
        emit_reward(True)
        with operation("step"):
            step = current_span()
            emit_reward(0, step=True, agent="a")
        context.life.last_calls["a"] = "0" * 16
        emit_reward(0.5, step=True, agent="a", name="style")
    outcome, on_span, on_call = recording.spans(context, "reward")
    assert outcome.attributes[semconv.REWARD_VALUE] == 1.0
    assert semconv.REWARD_SPAN not in outcome.attributes
    assert on_span.attributes[semconv.REWARD_SPAN] == step
    assert on_span.attributes[semconv.REWARD_VALUE] == 0.0
    assert on_call.attributes[semconv.REWARD_SPAN] == "0" * 16
    assert on_call.attributes[semconv.REWARD_NAME] == "style"
    assert on_call.attributes[semconv.REWARD_AGENT] == "a"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, [1.0]])
def test_a_reward_that_is_no_finite_number_is_refused_with_its_rollout(recording, value):
    with recording.rollout() as context, pytest.raises(RewardError, match=context.key.rollout_id):
        emit_reward(value)


def test_emitting_outside_a_rollout_warns_once_and_says_what_to_do(caplog):
    emitters._warned.clear()
    emit_reward(1.0)
    emit_reward(1.0)
    emit_message("m")
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "agl.emit_reward",
        "agl.emit_message",
    ]
    assert "Trainer.fit" in caplog.text


class Fails:
    def __init__(self):
        raise RuntimeError("a class is not to be called")

    def __repr__(self):
        raise RuntimeError("nor shown")


def test_strange_values_neither_break_the_agent_nor_the_record(recording):
    strange = object.__new__(Fails)
    recorder = Recorder()
    with recording.rollout() as context:
        handle = recorder.start(
            "tool",
            "t",
            attributes={
                "cls": Fails,
                1: "x",
                "nan": float("nan"),
                "bytes": b"\xff",
                "odd": strange,
                "lock": threading.Lock(),
            },
        )
        handle.tool_result({"again": [strange, {2: float("inf")}]})
        handle.end()
    (span,) = recording.spans(context, "tool")
    assert span.attributes["1"] == "x"
    assert span.attributes["nan"] == "nan"
    assert "Fails" in span.attributes["cls"]
    assert "repr fails" in span.attributes["odd"]


class RaisingMapping(dict):
    def items(self):
        raise RuntimeError("not now")

    __repr__ = Fails.__repr__


class Liar:
    @property
    def __class__(self):
        raise RuntimeError("no class either")


@dataclasses.dataclass
class RaisingField:
    value: int = 0

    def __getattribute__(self, name):
        if name == "value":
            raise RuntimeError("no field")
        return super().__getattribute__(name)


class RaisingNumber(float):
    def __float__(self):
        raise RuntimeError("no number")

    __repr__ = Fails.__repr__


cycle = []
cycle.append({"again": cycle})
ODD = {
    "an object whose repr fails": object.__new__(Fails),
    "a class that cannot be made": Fails,
    "a mapping that raises": RaisingMapping(a=1),
    "an object without a class": Liar(),
    "a field that raises": RaisingField(),
    "keys that are no text": {1: "x", None: b"\xff"},
    "nan": float("nan"),
    "infinity": float("-inf"),
    "half a surrogate pair": "half \ud800",
    "a cycle": cycle,
    "memory": memoryview(b"ab"),
    "a set": {"a", 1},
    "a generator": (i for i in ()),
    "a lock": threading.Lock(),
    "a function": lambda: None,
    "an exception": ValueError("x"),
}


@pytest.mark.parametrize("named", ODD)
def test_any_value_passes_every_way_to_tell_something(recording, named):
    odd = ODD[named]

    @operation("same", given=odd)
    def same(value, *, name=odd):
        return value

    @operation("same")
    async def awaited(value):
        return value

    before = guard.faults()
    with recording.rollout() as context:
        emit_message(odd)
        emit_object(odd, name=odd)
        emit_annotation({"odd": odd})
        emit_reward(1.0, name=odd, agent=odd)
        emit_exception(odd)
        assert same(odd) is odd
        assert asyncio.run(awaited(odd)) is odd
        with operation(odd), Recorder().agent(odd):
            handle = Recorder().start("tool", odd, key=id(odd), attributes={"odd": odd})
            handle.tool_result(odd)
            handle.error(odd)
            handle.end()
        with pytest.raises(RewardError, match=context.key.rollout_id):
            emit_reward(odd)
    assert guard.faults() == before
    spans = recording.spans(context)
    assert len(spans) == 10
    for span in spans:
        json.loads(to_json(span), parse_constant=pytest.fail)


def test_a_reward_that_is_nearly_a_number_is_refused_in_the_same_words(recording):
    class Item:
        @property
        def item(self):
            raise KeyError("item")

    for value in (10**400, RaisingNumber(1), Item()):
        with recording.rollout() as context, pytest.raises(RewardError, match=context.key.rollout_id):
            emit_reward(value)
