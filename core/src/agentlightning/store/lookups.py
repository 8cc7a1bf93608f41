"""Finding what a call names, or the error that says it is not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from agentlightning.errors import UnknownAttempt, UnknownResources, UnknownRollout, UnknownRun
from agentlightning.records import Attempt, AttemptKey, ResourcesVersion, Rollout, Run
from agentlightning.store.tables import Tables

_SHOWN = 5


def need_run(tables: Tables, run_id: str) -> Run:
    """The run, or ``UnknownRun``."""
    run = tables.run(run_id)
    if run is None:
        known = [run.run_id for run in tables.runs()][-_SHOWN:]
        raise UnknownRun(
            f"the store has no run {run_id!r}; its latest are: {', '.join(known) or 'none'}"
        )
    return run


def need_rollouts(tables: Tables, rollout_ids: Collection[str]) -> dict[str, Rollout]:
    """All of these rollouts by id, or ``UnknownRollout`` naming those there are not."""
    found = tables.rollouts(rollout_ids)
    if len(found) < len(rollout_ids) and (missing := _missing(rollout_ids, found)):
        raise UnknownRollout(f"the store has no rollout {missing}; was it opened on another file?")
    return found


def need_attempts(
    tables: Tables, keys: Collection[AttemptKey]
) -> tuple[dict[str, Rollout], dict[str, list[Attempt]]]:
    """The rollouts of these attempts and all attempts of each.

    Raises:
        UnknownRollout: a rollout is not there.
        UnknownAttempt: a rollout has no attempt of that number.
    """
    rollout_ids = {key.rollout_id for key in keys}
    rollouts = need_rollouts(tables, rollout_ids)
    check_attempts(rollouts, keys)
    return rollouts, tables.attempts(rollout_ids)


def check_attempts(rollouts: dict[str, Rollout], keys: Iterable[tuple[str, int]]) -> None:
    """Raise ``UnknownAttempt`` if a rollout never had one of these attempts."""
    for rollout_id, number in keys:
        latest = rollouts[rollout_id].attempt
        if not 1 <= number <= latest:
            raise UnknownAttempt(
                f"rollout {rollout_id} has no attempt {number}; it had {latest} so far"
            )


def need_resources(tables: Tables, run_id: str, version: int | Literal["latest"]) -> ResourcesVersion:
    """A version of the run's resources, or ``UnknownResources``.

    Version 0 is what a run has before anything is published: nothing.
    """
    if version == "latest":
        number = tables.newest_resources(run_id, candidates=False)
        if number == 0:
            raise UnknownResources(
                f"run {run_id} has no resources yet; publish some, or ask for version 0 (none)"
            )
    else:
        number = version
    if number == 0:
        created_at = need_run(tables, run_id).created_at
        return ResourcesVersion(run_id=run_id, version=0, created_at=created_at, resources={})
    found = tables.resources(run_id, number)
    if found is None:
        newest = tables.newest_resources(run_id, candidates=True)
        raise UnknownResources(
            f"run {run_id} has no resources version {number!r}; the newest is {newest}"
        )
    return found


def _missing(wanted: Collection[str], found: Collection[str]) -> str:
    missing = [name for name in wanted if name not in found]
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return ", ".join(map(repr, missing[:_SHOWN])) + more if missing else ""
