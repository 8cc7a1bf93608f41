"""Queueing rollouts and giving them to workers."""

from __future__ import annotations

from collections.abc import Sequence

from agentlightning.errors import InvalidTransition
from agentlightning.records import (
    AttemptKey,
    Rollout,
    RolloutRequest,
    Run,
)
from agentlightning.store import endings, states
from agentlightning.store.keys import new_id
from agentlightning.store.lookups import need_attempts, need_resources, need_run
from agentlightning.store.tables import Tables
from agentlightning.store.tokens import token_for
from agentlightning.store.types import Claim


def enqueue(
    tables: Tables, run_id: str, requests: Sequence[RolloutRequest], now: float
) -> list[Rollout]:
    """Queue one rollout a request."""
    run = need_run(tables, run_id)
    if run.status != "open":
        raise InvalidTransition(
            f"run {run_id} is {run.status}, so nothing would claim new rollouts; reopen it first: "
            f'set_run_status({run_id!r}, "open")'
        )
    for version in {request.resources_version for request in requests} - {None}:
        need_resources(tables, run_id, version or 0)
    made = [_new_rollout(run_id, request, now) for request in requests]
    tables.insert_rollouts(made)
    if made:
        tables.changed(run_id, "queued")
    return made


def claim(
    tables: Tables, secret: bytes, run_id: str | None, worker_id: str, *, limit: int, now: float
) -> list[Claim]:
    """Start up to ``limit`` queued rollouts; their leases begin now, those that ran out end first."""
    expiry = endings.expire(tables, now)
    return start(tables, secret, tables.queued(run_id, limit), worker_id, now, expiry)


def start(
    tables: Tables,
    secret: bytes,
    queued: Sequence[Rollout],
    worker_id: str,
    now: float,
    expiry: float | None,
) -> list[Claim]:
    """Start these rollouts for a worker.

    Args:
        tables: where they are queued.
        secret: what the attempts' tokens are signed with.
        queued: the rollouts.
        worker_id: whom to give them to.
        now: the time.
        expiry: when the first of the running leases ends.
    """
    if not queued:
        return []
    latest = {
        run_id: tables.newest_resources(run_id, candidates=False)
        for run_id in {rollout.run_id for rollout in queued}
    }
    steps = [
        states.start(rollout, worker_id, now, resources_version=latest[rollout.run_id])
        for rollout in queued
    ]
    _note_nearer_expiry(tables, steps, expiry)
    tables.update_rollouts([step.rollout for step in steps])
    tables.insert_attempts([step.attempt for step in steps])
    tables.put_worker(worker_id, now, None)
    return _claims(tables, secret, steps)


def claims_again(tables: Tables, secret: bytes, keys: Sequence[AttemptKey]) -> list[Claim]:
    """The claims an earlier call made, for its repetition."""
    rollouts, attempts = need_attempts(tables, keys)
    steps = [
        states.Step(rollouts[key.rollout_id], attempts[key.rollout_id][key.number - 1]) for key in keys
    ]
    return _claims(tables, secret, steps)


def open_run_for(tables: Tables, name: str, request: RolloutRequest, now: float) -> Run:
    """The latest open run of that name, made if there is none and the request fits it."""
    known = tables.open_run_named(name)
    if known is not None:
        return known
    run = Run(run_id=new_id("run", now), name=name, config={}, created_at=now)
    if request.resources_version:
        need_resources(tables, run.run_id, request.resources_version)
    tables.insert_run(run)
    return run


def _new_rollout(run_id: str, request: RolloutRequest, now: float) -> Rollout:
    return Rollout(
        rollout_id=new_id("ro", now),
        run_id=run_id,
        status="queued",
        created_at=now,
        input=request.input,
        mode=request.mode,
        group_id=request.group_id,
        resources_version=request.resources_version,
        config=request.config,
        metadata=request.metadata,
        priority=request.priority,
    )


def _note_nearer_expiry(tables: Tables, steps: Sequence[states.Step], expiry: float | None) -> None:
    """Wake the run's waiters if a new lease ends before all others: they sleep for too long."""
    for step in steps:
        if expiry is None or step.attempt.lease_until < expiry:
            tables.changed(step.rollout.run_id, "queued", "over")


def _claims(tables: Tables, secret: bytes, steps: Sequence[states.Step]) -> list[Claim]:
    runs = {name: need_run(tables, name) for name in {step.rollout.run_id for step in steps}}
    return [_claim(tables, secret, step, runs[step.rollout.run_id]) for step in steps]


def _claim(tables: Tables, secret: bytes, step: states.Step, run: Run) -> Claim:
    rollout, key = step.rollout, step.attempt.key
    return Claim(
        rollout=rollout,
        attempt=step.attempt,
        run=run,
        resources=need_resources(tables, rollout.run_id, rollout.resources_version or 0),
        token=token_for(secret, key),
        endpoint_url=_attempt_url(run.endpoint_url, key),
    )


def _attempt_url(endpoint_url: str | None, key: AttemptKey) -> str | None:
    if endpoint_url is None:
        return None
    return f"{endpoint_url.rstrip('/')}/rollout/{key.rollout_id}/attempt/{key.number}/v1"
