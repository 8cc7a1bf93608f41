"""Reading the rollouts of a run together with their rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from agentlightning.records import Rollout, Span
from agentlightning.store import RolloutQuery, Store, rollout_pages

_PAGE: Final = 100


def rewarded_rollouts(store: Store, query: RolloutQuery) -> Iterator[tuple[Rollout, list[Span]]]:
    """The rollouts that a query finds, each with the reward spans of its latest attempt."""
    for page in rollout_pages(store, replace(query, limit=_PAGE)):
        spans: dict[str, list[Span]] = {rollout.rollout_id: [] for rollout in page}
        for span in store.spans(list(spans), kinds=["reward"]):
            spans[span.rollout_id].append(span)
        for rollout in page:
            yield rollout, spans[rollout.rollout_id]
