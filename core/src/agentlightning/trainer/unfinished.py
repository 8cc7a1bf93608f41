"""Rollouts that a run left unfinished: cancelled when it ends or goes on, made anew when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentlightning.errors import AlgorithmError, KeyReused
from agentlightning.records import Rollout, RolloutRequest
from agentlightning.store import RolloutQuery, Store

_PAGE: Final = 1000


def cancel_unfinished(store: Store, run_id: str) -> int:
    """Cancel the run's rollouts that are not over; returns how many there were.

    Nobody works on them any more, or only for an endpoint that is gone. Left as they were, those of a
    killed run would be waited for until their lease ends, and queued ones be run as soon as the run
    goes on, with whatever weights there are then.
    """
    query = RolloutQuery(run_id=run_id, status=("queued", "running"), limit=_PAGE)
    count = 0
    while unfinished := store.rollouts(query).items:
        store.cancel([rollout.rollout_id for rollout in unfinished])
        count += len(unfinished)
    return count


def queue(
    store: Store, run_id: str, requests: Sequence[RolloutRequest], key: str | None
) -> list[Rollout]:
    """Queue rollouts, or find those that were queued under this key before, one for each request.

    One that was cancelled has a successor: it is made once, and found from then on.

    Raises:
        AlgorithmError: the key was used for other requests.
    """
    try:
        queued = store.enqueue(run_id, requests, key=key)
    except KeyReused as error:
        raise AlgorithmError(
            f"the rollouts {key!r} of run {run_id} were made for other tasks or with other settings; "
            "expected the datasets and the configuration that the run was started with. Give those, "
            "or start a new run"
        ) from error
    pairs = zip(queued, requests, strict=True)
    return [_standing(store, rollout, request) for rollout, request in pairs]


def _standing(store: Store, rollout: Rollout, request: RolloutRequest) -> Rollout:
    while rollout.status == "cancelled":
        key = f"instead of {rollout.rollout_id}"
        (rollout,) = store.enqueue(rollout.run_id, [request], key=key)
    return rollout


def is_queued(store: Store, run_id: str, group_id: str) -> bool:
    """Whether rollouts of this group exist."""
    return bool(store.rollouts(RolloutQuery(run_id=run_id, group_id=group_id, limit=1)).items)
