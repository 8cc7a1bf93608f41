"""Finding what a call names, or the error that says it is not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
    _check_found(rollout_ids, found)
    return found


def need_attempt_counts(tables: Tables, rollout_ids: Collection[str]) -> dict[str, int]:
    """How many attempts each of these rollouts had, or ``UnknownRollout``."""
    found = tables.attempt_counts(rollout_ids)
    _check_found(rollout_ids, found)
    return found


def need_attempts(
    tables: Tables, keys: Collection[AttemptKey]
) -> tuple[dict[str, Rollout], dict[str, list[Attempt]]]:
    """The rollouts of these attempts and all attempts of each.

    Raises:
        UnknownRollout: a rollout is not there.
        UnknownAttempt: a rollout has no attempt of that number.
    """
    rollouts = need_rollouts(tables, {key.rollout_id for key in keys})
    check_attempts({name: rollout.attempt for name, rollout in rollouts.items()}, keys)
    return rollouts, tables.attempts(rollouts.keys())


def check_attempts(counts: Mapping[str, int], keys: Iterable[tuple[str, int]]) -> None:
    """Raise ``UnknownAttempt`` if a rollout never had one of these attempts."""
    for rollout_id, number in keys:
        if not 1 <= number <= counts[rollout_id]:
            raise UnknownAttempt(
                f"rollout {rollout_id} has no attempt {number}; it had {counts[rollout_id]} so far"
            )


def attempt_numbers(count: int, attempt: int | Literal["last", "all"]) -> Collection[int]:
    """Which of a rollout's ``count`` attempts are asked for."""
    if attempt == "all":
        return range(1, count + 1)
    return [count if attempt == "last" else attempt]


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


def _check_found(wanted: Collection[str], found: Collection[str]) -> None:
    if len(found) == len(wanted):
        return
    missing = [repr(name) for name in wanted if name not in found]
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise UnknownRollout(
        f"the store has no rollout {', '.join(missing[:_SHOWN])}{more}; do the ids come from "
        "another store?"
    )
