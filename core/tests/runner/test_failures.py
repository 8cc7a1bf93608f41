"""What an agent may do wrong, and what becomes of it and of the others."""

import asyncio
import math
import threading

import pytest
from agentlightning import semconv
from agentlightning.agent import Result, bind_agent
from agentlightning.errors import RolloutCancelled
from agentlightning.recording.emitters import emit_message
from agentlightning.runner import Runner, RunSettings


def misbehave(task):
    if isinstance(task, str):
        raise {
            "raises": ValueError("no lamp"),
            "exits": SystemExit(3),
            "interrupts": KeyboardInterrupt(),
            "cancels": asyncio.CancelledError(),
            "group": BaseExceptionGroup("both", [KeyError("a"), SystemExit(1)]),
            "stops": StopIteration("end"),
        }[task]
    return task


async def misbehave_async(task):
    await asyncio.sleep(0)
    return misbehave(task)


async def misbehave_in_a_background_task(task):
    await asyncio.gather(misbehave_async(task))
    return task


def return_a_coroutine(task):
    return misbehave_async(task)


KINDS = ["raises", "exits", "interrupts", "cancels", "group", "stops"]


@pytest.mark.parametrize(
    "agent", [misbehave, misbehave_async, misbehave_in_a_background_task, return_a_coroutine]
)
def test_an_agent_that_fails_in_any_way_fails_its_own_rollout_only(bench, agent):
    rollouts = bench.done(agent, 1.0, *KINDS, 0.5)

    assert [rollout.status for rollout in rollouts] == [
        "succeeded", *["failed"] * len(KINDS), "succeeded"
    ]  # fmt: skip
    assert (rollouts[0].output, rollouts[-1].output) == (1.0, 0.5)


def test_the_error_and_its_traceback_are_kept(bench):
    rollout = bench.done(misbehave, "raises")[0]

    assert bench.attempts(rollout)[0].error == "ValueError: no lamp"
    (root,) = bench.spans(rollout)
    assert (root.kind, root.status) == ("agent", "error")
    assert "in misbehave" in root.events[0].attributes[semconv.EXCEPTION_STACKTRACE]


def test_max_attempts_alone_means_that_many_attempts(bench):
    tries = []

    def agent(task):
        tries.append(task)
        if len(tries) < 3:
            msg = f"try {len(tries)}"
            raise ValueError(msg)
        return 1.0

    rollout = bench.done(agent, "task", max_attempts=3)[0]

    assert (rollout.status, rollout.attempt, rollout.output) == ("succeeded", 3, 1.0)
    assert [attempt.error for attempt in bench.attempts(rollout)] == [
        "ValueError: try 1", "ValueError: try 2", None
    ]  # fmt: skip
    rewards = [span for span in bench.spans(rollout, attempt="all") if span.kind == "reward"]
    assert [span.attempt for span in rewards] == [3]


def test_an_agent_that_always_raises_fails_with_all_its_errors(bench):
    rollouts = bench.done(misbehave, "raises", 1.0, max_attempts=3)

    assert [rollout.status for rollout in rollouts] == ["failed", "succeeded"]
    assert [it.error for it in bench.attempts(rollouts[0])] == ["ValueError: no lamp"] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf, Result("x", reward=math.nan)])
def test_a_reward_that_is_no_number_fails_the_attempt_and_names_the_rollout(bench, value):
    rollout = bench.done(lambda task: value, "task")[0]

    assert rollout.status == "failed"
    error = bench.attempts(rollout)[0].error
    assert "RewardError" in error
    assert rollout.rollout_id in error
    assert not [span for span in bench.spans(rollout) if span.kind == "reward"]
    (root,) = bench.spans(rollout)
    assert root.events[0].attributes[semconv.EXCEPTION_TYPE].endswith("RewardError")


def test_what_was_recorded_is_kept_when_the_store_refuses_the_output(bench):
    def agent(task):
        emit_message("so far so good")
        return "half of a pair: \ud800"

    rollout = bench.done(agent, "task")[0]

    assert rollout.status == "failed"
    assert "BadValue" in bench.attempts(rollout)[0].error
    assert [span.kind for span in bench.spans(rollout)] == ["message", "agent"]


def test_an_agent_that_wants_what_the_run_has_not_fails_with_the_name(bench):
    rollout = bench.done(lambda task, wether: task, "task")[0]

    assert "'wether'" in bench.attempts(rollout)[0].error


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("raised", "kept"),
    [
        (ValueError("refused sk-secret-0123456789"), "ValueError: refused [removed: secret]"),
        (OSError("no file \udcff.txt"), "OSError: no file \\udcff.txt"),
        (Unreadable(), "Unreadable: its own text cannot be read"),
        (ValueError(), "ValueError"),
    ],
)
def test_what_an_agent_raises_is_kept_and_logged_without_keys(bench, caplog, raised, kept):
    def agent(task):
        raise raised

    (rollout,) = bench.done(agent, "task")

    assert bench.attempts(rollout)[0].error == kept
    assert kept in caplog.text
    assert "sk-secret" not in caplog.text
    (root,) = bench.spans(rollout)
    assert root.events[0].attributes[semconv.EXCEPTION_TYPE].endswith(type(raised).__name__)


def test_routes_that_cannot_be_made_fail_the_rollout(bench):
    rollout_ids = bench.enqueue("a", "b")
    wrong = RunSettings(prompts={"manners": "clerk"})
    with bench.runner(lambda task: task, settings=lambda run: wrong) as runner:
        rollouts = bench.finished(rollout_ids)
        assert runner.report()["raised"] == 2

    assert [rollout.status for rollout in rollouts] == ["failed", "failed"]
    assert "prompts names 'manners'" in bench.attempts(rollouts[0])[0].error
    (root,) = bench.spans(rollouts[0])
    assert "prompts names 'manners'" in root.events[0].attributes[semconv.EXCEPTION_MESSAGE]


def test_a_runner_ends_when_its_run_is_closed(bench):
    with bench.runner(lambda task: task, count=3):
        bench.finished(bench.enqueue("a"))
        bench.store.set_run_status(bench.run.run_id, "succeeded")
    bench.store.set_run_status(bench.run.run_id, "succeeded")

    late = Runner(bench.store, bench.run.run_id, bind_agent(lambda task: task))
    thread = threading.Thread(target=late.work, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


def test_an_agent_may_raise_what_it_is_cancelled_with(bench):
    def agent(task):
        msg = "by itself"
        raise RolloutCancelled(msg)

    assert bench.done(agent, "task")[0].status == "failed"
