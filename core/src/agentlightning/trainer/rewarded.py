"""Reading the rollouts of a run together with their rewards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from agentlightning.records import Rollout, Span
from agentlightning.store import RolloutQuery, Store

_PAGE: Final = 100


def rewarded_rollouts(store: Store, query: RolloutQuery) -> Iterator[tuple[Rollout, list[Span]]]:
    """The rollouts that a query finds, each with the reward spans of its latest attempt."""
    query = replace(query, limit=_PAGE)
    while True:
        page = store.rollouts(query)
        spans: dict[str, list[Span]] = {rollout.rollout_id: [] for rollout in page.items}
        for span in store.spans(list(spans), kinds=["reward"]):
            spans[span.rollout_id].append(span)
        for rollout in page.items:
            yield rollout, spans[rollout.rollout_id]
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
