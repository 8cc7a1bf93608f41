"""Going through all rollouts that a query finds, in the memory of a page."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from agentlightning.records import Rollout
from agentlightning.store.contract import Store
from agentlightning.store.types import RolloutQuery


def rollout_pages(store: Store, query: RolloutQuery) -> Iterator[list[Rollout]]:
    """Page by page of ``query.limit`` each, from ``query.cursor`` on; the last may be empty."""
    while True:
        page = store.rollouts(query)
        yield page.items
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
