"""The state machine, exhaustively: every status, every outcome, every limit."""

import itertools
from typing import get_args

import pytest
from agentlightning.errors import InvalidTransition, StaleAttempt
from agentlightning.records import (
    ATTEMPT_OVER,
    ROLLOUT_OVER,
    Attempt,
    AttemptStatus,
    Outcome,
    OutcomeStatus,
    Rollout,
    RolloutConfig,
    RolloutStatus,
)
from agentlightning.store import Order, states
from msgspec.structs import replace

NOW = 1000.0
ROLLOUT_STATUSES = get_args(RolloutStatus)
ATTEMPT_STATUSES = get_args(AttemptStatus)
OUTCOMES = get_args(OutcomeStatus)


def rollout(status="running", attempt=1, **config):
    return Rollout(
        rollout_id="ro",
        run_id="run",
        input=None,
        mode="train",
        status=status,
        created_at=0.0,
        attempt=attempt,
        config=RolloutConfig(**config),
        finished_at=NOW - 1 if status in ROLLOUT_OVER else None,
    )


def attempts(*statuses, lease_until=NOW + 5):
    return [
        Attempt(
            rollout_id="ro",
            number=number,
            status=status,
            worker_id="worker",
            started_at=NOW - 10,
            lease_until=lease_until,
            finished_at=NOW - 1 if status in ATTEMPT_OVER else None,
        )
        for number, status in enumerate(statuses, start=1)
    ]


@pytest.mark.parametrize("status", ROLLOUT_STATUSES)
def test_only_a_queued_rollout_starts(status):
    if status != "queued":
        with pytest.raises(InvalidTransition, match=status):
            states.start(rollout(status), "worker", NOW, resources_version=1)
        return
    step = states.start(rollout("queued", attempt=2, lease_s=7), "me", NOW, resources_version=1)
    assert (step.rollout.status, step.rollout.attempt, step.rollout.resources_version) == (
        "running",
        3,
        1,
    )
    assert (step.attempt.number, step.attempt.worker_id, step.attempt.lease_until) == (3, "me", NOW + 7)


def test_a_pinned_version_stays_pinned():
    pinned = replace(rollout("queued"), resources_version=0)
    assert states.start(pinned, "worker", NOW, resources_version=9).rollout.resources_version == 0


@pytest.mark.parametrize(
    ("max_attempts", "earlier", "outcome"),
    list(
        itertools.product(
            [1, 2, 3],
            [(), ("failed",), ("timed_out",), ("lost",), ("failed", "lost")],
            [outcome for outcome in OUTCOMES if outcome != "lost"],
        )
    ),
)
def test_what_becomes_of_the_rollout_when_an_attempt_ends(max_attempts, earlier, outcome):
    before = rollout(attempt=len(earlier) + 1, max_attempts=max_attempts)
    step = states.finish(
        before,
        attempts(*earlier, "running"),
        len(earlier) + 1,
        Outcome(status=outcome, output="o"),
        NOW,
    )
    tries = 1 + sum(status in ("failed", "timed_out") for status in earlier)
    if outcome in ("succeeded", "cancelled"):
        expected = outcome
    else:
        expected = "queued" if tries < max_attempts else "failed"
    assert step.attempt.status == outcome
    assert step.attempt.finished_at == NOW
    assert step.rollout.status == expected
    is_over = expected in ROLLOUT_OVER
    assert (step.rollout.output, step.rollout.finished_at) == (("o", NOW) if is_over else (None, None))


@pytest.mark.parametrize(
    ("max_lost", "earlier"),
    list(
        itertools.product([0, 1, 3], [(), ("lost",), ("failed",), ("lost", "failed", "lost", "lost")])
    ),
)
def test_what_becomes_of_the_rollout_when_an_attempt_is_lost_or_given_back(max_lost, earlier):
    number = len(earlier) + 1
    before = rollout(attempt=number, max_lost=max_lost, max_attempts=9)
    expired = states.expire(before, attempts(*earlier, "running", lease_until=NOW), NOW)
    given_back = states.finish(
        before, attempts(*earlier, "running"), number, Outcome(status="lost"), NOW
    )
    lost = 1 + earlier.count("lost")
    for step in (expired, given_back):
        assert step.attempt.status == "lost"
        assert step.rollout.status == ("queued" if lost <= max_lost else "failed")


@pytest.mark.parametrize("status", ATTEMPT_STATUSES)
def test_only_a_running_attempt_that_is_overdue_expires(status):
    overdue = attempts(status, lease_until=NOW)
    assert (states.expire(rollout(), overdue, NOW) is not None) == (status == "running")
    assert states.expire(rollout(), overdue, NOW - 0.001) is None
    assert states.expire(rollout("queued", attempt=0), [], NOW) is None


@pytest.mark.parametrize(
    ("rollout_status", "attempt_status", "outcome"),
    list(itertools.product(ROLLOUT_STATUSES, sorted(ATTEMPT_OVER), OUTCOMES)),
)
def test_an_attempt_that_is_over_never_changes(rollout_status, attempt_status, outcome):
    """Every combination, possible or not: the same outcome changes nothing, another one is stale."""
    before = replace(rollout(rollout_status), output="o")
    given = Outcome(status=outcome, output="o")
    if outcome == attempt_status:
        assert states.finish(before, attempts(attempt_status), 1, given, NOW) is None
    else:
        with pytest.raises(StaleAttempt, match=attempt_status):
            states.finish(before, attempts(attempt_status), 1, given, NOW)


def test_the_same_status_with_another_error_is_another_result():
    over = [replace(attempts("failed")[0], error="first")]
    with pytest.raises(StaleAttempt):
        states.finish(rollout("failed"), over, 1, Outcome(status="failed", error="second"), NOW)


def test_an_earlier_attempts_result_is_recognised_though_its_output_is_not_kept():
    """Attempt 1 failed and was tried again: its output is nowhere, so status and error decide."""
    given = Outcome(status="failed", output="of the first")
    before = replace(rollout("succeeded", attempt=2), output="of the second")
    assert states.finish(before, attempts("failed", "succeeded"), 1, given, NOW) is None


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_attempt_of_a_cancelled_rollout_ends_as_it_did(outcome):
    before = rollout("cancelled", max_attempts=5)
    step = states.finish(before, attempts("running"), 1, Outcome(status=outcome, output="o"), NOW)
    assert step.rollout is before
    assert step.attempt.status == outcome
    lost = states.expire(before, attempts("running", lease_until=NOW), NOW)
    assert (lost.rollout, lost.attempt.status) == (before, "lost")


@pytest.mark.parametrize("status", ROLLOUT_STATUSES)
def test_cancelling_ends_what_is_not_over(status):
    before = rollout(status)
    after = states.cancel(before, NOW)
    if status in ROLLOUT_OVER:
        assert after is before
    else:
        assert (after.status, after.finished_at) == ("cancelled", NOW)


@pytest.mark.parametrize(
    ("rollout_status", "attempt_status", "worker"),
    list(itertools.product(["running", "cancelled"], ATTEMPT_STATUSES, ["worker", "another"])),
)
def test_the_order_a_heartbeat_gets(rollout_status, attempt_status, worker):
    (attempt,) = attempts(attempt_status, lease_until=NOW - 1)
    order, after = states.heartbeat(rollout(rollout_status, lease_s=10), attempt, worker, NOW)
    if attempt_status != "running" or worker != "worker":
        assert (order, after) == (Order.LOST, attempt)
    else:
        assert order == (Order.CONTINUE if rollout_status == "running" else Order.CANCEL)
        assert after == replace(attempt, lease_until=NOW + 10)


def test_a_heartbeat_never_shortens_a_lease():
    (attempt,) = attempts("running", lease_until=NOW + 100)
    assert states.heartbeat(rollout(), attempt, "worker", NOW)[1].lease_until == NOW + 100
