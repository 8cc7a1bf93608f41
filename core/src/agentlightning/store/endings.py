"""Heartbeats and the ways an attempt or a rollout ends: finished, lost with its worker, cancelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentlightning.errors import StaleAttempt
from agentlightning.records import JSON, ROLLOUT_OVER, AttemptKey, Rollout
from agentlightning.store import states
from agentlightning.store.lookups import need_attempts, need_rollouts
from agentlightning.store.tables import Tables
from agentlightning.store.types import Order, Result


def expire(tables: Tables, now: float) -> float | None:
    """Give up every attempt whose lease has run out, and say when the next lease ends."""
    expiry = tables.next_expiry()
    if expiry is None or expiry > now:
        return expiry
    late = tables.expired(now)
    rollouts, attempts = tables.rollouts(late), tables.attempts(late)
    steps = [states.expire(rollouts[name], attempts[name], now) for name in late]
    _persist(tables, [step for step in steps if step is not None])
    return tables.next_expiry()


def heartbeat(
    tables: Tables,
    worker_id: str,
    keys: Sequence[AttemptKey],
    report: Mapping[str, JSON] | None,
    now: float,
) -> dict[AttemptKey, Order]:
    """Renew the leases of these attempts and say which of them to give up."""
    rollouts, attempts = need_attempts(tables, keys)
    orders: dict[AttemptKey, Order] = {}
    renewed = []
    for key in keys:
        attempt = attempts[key.rollout_id][key.number - 1]
        orders[key], after = states.heartbeat(rollouts[key.rollout_id], attempt, worker_id, now)
        if after is not attempt:
            renewed.append(after)
    tables.update_attempts(renewed)
    tables.put_worker(worker_id, now, report)
    return orders


def finish(
    tables: Tables, results: Sequence[Result], now: float
) -> tuple[list[Rollout], dict[AttemptKey, StaleAttempt]]:
    """Store the spans of all results, and the outcome of each that is not too late."""
    rollouts, attempts = need_attempts(tables, [result.key for result in results])
    spans = [span for result in results for span in result.spans]
    if spans:
        tables.insert_spans(spans)
    stale: dict[AttemptKey, StaleAttempt] = {}
    steps = []
    for result in results:
        rollout_id, number = result.key
        try:
            step = states.finish(
                rollouts[rollout_id], attempts[rollout_id], number, result.outcome, now
            )
        except StaleAttempt as error:
            tables.count_late(rollouts[rollout_id].run_id)
            stale[result.key] = error
            continue
        if step is not None:
            rollouts[rollout_id] = step.rollout
            attempts[rollout_id][number - 1] = step.attempt
            steps.append(step)
    _persist(tables, steps)
    return [rollouts[result.key.rollout_id] for result in results], stale


def cancel(tables: Tables, rollout_ids: Sequence[str], now: float) -> list[Rollout]:
    """Cancel those of these rollouts that are not over."""
    before = need_rollouts(tables, set(rollout_ids))
    after = {name: states.cancel(rollout, now) for name, rollout in before.items()}
    changed = [rollout for name, rollout in after.items() if rollout is not before[name]]
    tables.update_rollouts(changed)
    for rollout in changed:
        tables.changed(rollout.run_id, "over")
    return [after[rollout_id] for rollout_id in rollout_ids]


def _persist(tables: Tables, steps: Sequence[states.Step]) -> None:
    """Store these steps; of several of one rollout the last says how it stands."""
    if not steps:
        return
    rollouts = {step.rollout.rollout_id: step.rollout for step in steps}
    tables.update_rollouts(list(rollouts.values()))
    tables.update_attempts([step.attempt for step in steps])
    for rollout in rollouts.values():
        if rollout.status == "queued":
            tables.changed(rollout.run_id, "queued")
        elif rollout.status in ROLLOUT_OVER:
            tables.changed(rollout.run_id, "over")
