"""The state machine of rollouts and attempts: pure functions from records and a time to new records.

::

    rollout   queued ──claim──► running ──finish──► succeeded | failed | cancelled
                │  ▲               │
         cancel │  └── retry ──────┤ cancel
                ▼                  ▼
            cancelled          cancelled        (its attempt runs on until the worker ends it)

    attempt   running ──finish──► succeeded | failed | timed_out | cancelled
                 └──── lease runs out, or its worker gives it back ────► lost

An attempt that ``failed`` or ``timed_out`` is tried again while fewer than ``max_attempts`` have done
so; one that was ``lost`` with its worker costs no try, and may be lost ``max_lost`` times. Otherwise
the rollout is ``failed``.

Over is over: no function here takes a rollout or an attempt out of a state it ended in. A result for
an attempt that ended otherwise is :class:`~agentlightning.errors.StaleAttempt`; the same result again
changes nothing. Cancelling a running rollout ends the *rollout* at once, so that nobody waits for it;
its attempt stays ``running`` until its worker, told by the next heartbeat, finishes it or falls silent.

No function reads a clock or touches storage: a backend loads records, calls one of these and persists
what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agentlightning.errors import InvalidTransition, StaleAttempt
from agentlightning.records import (
    ATTEMPT_OVER,
    ROLLOUT_OVER,
    Attempt,
    Outcome,
    Rollout,
    RolloutStatus,
)
from agentlightning.store.types import Order


class Step(NamedTuple):
    """A rollout and one of its attempts after a change, to be persisted together."""

    rollout: Rollout
    attempt: Attempt


def start(rollout: Rollout, worker_id: str, now: float, *, resources_version: int) -> Step:
    """Give a queued rollout to a worker, as a new attempt with a lease.

    Args:
        rollout: what to start.
        worker_id: who works on it.
        now: the time, seconds since the epoch.
        resources_version: what the rollout is run with if it has no pinned version yet.

    Raises:
        InvalidTransition: the rollout is not queued.
    """
    if rollout.status != "queued":
        raise InvalidTransition(
            f"rollout {rollout.rollout_id} is {rollout.status}; only a queued one can be claimed"
        )
    number = rollout.attempt + 1
    pinned = rollout.resources_version
    started = replace(
        rollout,
        status="running",
        attempt=number,
        resources_version=resources_version if pinned is None else pinned,
    )
    attempt = Attempt(
        rollout_id=rollout.rollout_id,
        number=number,
        status="running",
        worker_id=worker_id,
        started_at=now,
        lease_until=now + rollout.config.lease_s,
    )
    return Step(started, attempt)


def finish(
    rollout: Rollout, attempts: Sequence[Attempt], number: int, outcome: Outcome, now: float
) -> Step | None:
    """End one attempt as its worker reports it.

    Args:
        rollout: the attempt's rollout.
        attempts: all attempts of the rollout, first to last.
        number: which of them ended.
        outcome: how.
        now: the time, seconds since the epoch.

    Returns:
        The new records, or None when this very result is stored already.

    Raises:
        StaleAttempt: the attempt is over and ended otherwise.
    """
    attempt = attempts[number - 1]
    if attempt.status in ATTEMPT_OVER:
        if _is_repeated(rollout, attempt, outcome):
            return None
        raise StaleAttempt(
            f"attempt {number} of rollout {rollout.rollout_id} is over ({attempt.status}); "
            f"its result ({outcome.status}) came too late and was dropped"
        )
    ended = replace(attempt, status=outcome.status, finished_at=now, error=outcome.error)
    if rollout.status in ROLLOUT_OVER:  # it was cancelled meanwhile, and stays so
        return Step(rollout, ended)
    status = _after(rollout, [*attempts[: number - 1], ended])
    if status == "queued":
        return Step(replace(rollout, status=status), ended)
    return Step(replace(rollout, status=status, output=outcome.output, finished_at=now), ended)


def expire(rollout: Rollout, attempts: Sequence[Attempt], now: float) -> Step | None:
    """Give up the latest attempt if its worker let the lease run out; None if it did not."""
    attempt = attempts[-1] if attempts else None
    if attempt is None or attempt.status != "running" or attempt.lease_until > now:
        return None
    lost = replace(
        attempt,
        status="lost",
        finished_at=now,
        error=f"worker {attempt.worker_id} was silent until its lease ran out",
    )
    if rollout.status in ROLLOUT_OVER:
        return Step(rollout, lost)
    status = _after(rollout, [*attempts[:-1], lost])
    if status == "queued":
        return Step(replace(rollout, status=status), lost)
    return Step(replace(rollout, status=status, finished_at=now), lost)


def cancel(rollout: Rollout, now: float) -> Rollout:
    """The rollout cancelled; one that is over already comes back as it is."""
    if rollout.status in ROLLOUT_OVER:
        return rollout
    return replace(rollout, status="cancelled", finished_at=now)


def heartbeat(rollout: Rollout, attempt: Attempt, worker_id: str, now: float) -> tuple[Order, Attempt]:
    """What to tell a worker about an attempt it works on, and the attempt with its lease renewed.

    A lease never gets shorter, whatever the order in which heartbeats arrive. A worker that is late
    but whose attempt nobody has given up yet keeps it.
    """
    if attempt.status != "running" or attempt.worker_id != worker_id:
        return Order.LOST, attempt
    lease_until = max(attempt.lease_until, now + rollout.config.lease_s)
    order = Order.CANCEL if rollout.status in ROLLOUT_OVER else Order.CONTINUE
    return order, replace(attempt, lease_until=lease_until)


def _after(rollout: Rollout, attempts: Sequence[Attempt]) -> RolloutStatus:
    """The status of a running rollout whose last attempt has just ended."""
    config, last = rollout.config, attempts[-1].status
    if last == "succeeded" or last == "cancelled":  # noqa: PLR1714  (mypy narrows this form)
        return last
    if last == "lost":
        again = _count(attempts, "lost") <= config.max_lost
    else:
        tries = _count(attempts, "failed", "timed_out")
        again = last in config.retry_on and tries < config.max_attempts
    return "queued" if again else "failed"


def _count(attempts: Sequence[Attempt], *statuses: str) -> int:
    return sum(attempt.status in statuses for attempt in attempts)


def _is_repeated(rollout: Rollout, attempt: Attempt, outcome: Outcome) -> bool:
    """Whether ``outcome`` is what the attempt ended with.

    The output is compared where it is kept: with the attempt that ended the rollout.
    """
    if attempt.status == outcome.status == "lost":  # given up by the store, or given back before
        return True
    if attempt.status != outcome.status or attempt.error != outcome.error:
        return False
    decided = rollout.attempt == attempt.number and rollout.status == attempt.status
    return not decided or rollout.output == outcome.output
