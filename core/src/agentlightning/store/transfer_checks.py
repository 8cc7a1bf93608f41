"""Whether a row of another store is there already, and whether the rows of a run fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from agentlightning.errors import InvalidTransition, KeyReused, UnknownResources, UnknownRollout
from agentlightning.records import Attempt, ResourcesVersion, Rollout
from agentlightning.store.transfer import StoredAnswer

_GIVEN_BY_EACH_STORE: Final = {"index"}
"""The number of a span's arrival: its order moves with it, the number does not."""


def is_there(what: str, there: Any, given: Any) -> bool:
    """Whether a row is there already, with the same content.

    Args:
        what: how the message names it.
        there: the record of that name, None if there is none.
        given: the record to import.

    Raises:
        KeyReused: it is there with other content.
    """
    if there is None:
        return False
    if there == given:
        return True
    if differing := _differing(there, given):
        raise KeyReused(
            f"{what} is there already, with another {', '.join(differing)}; an import adds rows and "
            "changes none. If the run went on after it was moved, this export is out of date; to keep "
            "both, import into another store"
        )
    return True


def check_version(version: ResourcesVersion, newest: int) -> None:
    """Refuse a version of a run's resources that would leave a gap in their numbers."""
    if version.version != newest + 1 or (version.parent or 0) > newest:
        raise UnknownResources(
            f"resources version {version.version} of run {version.run_id} (parent: {version.parent}) "
            f"comes after version {newest}; import the versions in order"
        )


def check_rollout(rollout: Rollout, attempts: Sequence[Attempt]) -> None:
    """Refuse a rollout without all its attempts, or in a state that it could never leave or reach.

    Args:
        rollout: what is imported.
        attempts: those that come with it, each once, numbered from 1 to ``rollout.attempt``.

    Raises:
        InvalidTransition: the message says what does not fit.
    """
    name = f"rollout {rollout.rollout_id} ({rollout.status}, {rollout.attempt} attempts)"
    if len(attempts) != rollout.attempt:
        numbers = sorted(item.number for item in attempts)
        raise InvalidTransition(
            f"{name} comes with the attempts {numbers}; import a rollout together with its attempts, "
            "in one batch"
        )
    running = [item.number for item in attempts if item.status == "running"]
    latest = [rollout.attempt]
    allowed: dict[str, list[list[int]]] = {"queued": [[]], "running": [latest]}
    expected = allowed.get(rollout.status, [[], latest])
    if running not in expected:
        raise InvalidTransition(
            f"{name} has the running attempts {running}; expected {' or '.join(map(str, expected))}"
        )


def check_answer(answer: StoredAnswer, rollouts: Mapping[str, Rollout], newest: int) -> None:
    """Refuse an answer to an idempotency key that names what the run does not have.

    Args:
        answer: of another store.
        rollouts: at least those of ``answer.made`` that there are.
        newest: the run's newest resources version.
    """
    of_run = f"the answer to {answer.operation} in run {answer.run_id} with the key {answer.key!r}"
    if answer.operation == "enqueue":
        for name in answer.made:
            if name not in rollouts or rollouts[name].run_id != answer.run_id:
                raise UnknownRollout(f"{of_run} names rollout {name!r}, which the run does not have")
        return
    if answer.operation == "publish":
        known = answer.made in {(str(version),) for version in range(1, newest + 1)}
    else:
        known = answer.made == (answer.run_id,)
    if not known:
        raise InvalidTransition(f"{of_run} says {list(answer.made)}; expected what the call made")


def _differing(there: Any, given: Any) -> list[str]:
    """The fields in which two records differ."""
    left, right = _fields(there), _fields(given)
    return sorted(name for name in left.keys() - _GIVEN_BY_EACH_STORE if left[name] != right.get(name))


def _fields(record: Any) -> dict[str, Any]:
    if isinstance(record, msgspec.Struct):
        return asdict(record)
    fields: dict[str, Any] = record._asdict()  # the tables' Answer
    return fields
