"""``agl export --format otlp``: a run as the collector's file exporter would write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentlightning.exchange.files import STREAM, written
from agentlightning.exchange.moving import Exported, Progress
from agentlightning.otlp import request_of, write_json
from agentlightning.records import Rollout, Span
from agentlightning.store import RolloutQuery, Store

_PAGE: Final = 100


def export_traces(store: Store, run_id: str, target: Path, told: Progress) -> Exported:
    """Write every span of a run, of every attempt, an export request a rollout and line.

    Raises:
        UnknownRun: the store has no such run; nothing is written.
        ExchangeError: it cannot be written there.
    """
    run = store.run(run_id)
    total = sum(store.statistics(run_id).rollouts.values())
    exported = Exported()
    with written(target) as file:
        for done, (rollout, spans) in enumerate(_rollouts(store, run_id), 1):
            exported.rows.update(rollout=1, span=len(spans))
            if spans:
                file.write(write_json(request_of(run, rollout, spans)) + b"\n")
            told(done, max(done, total))
    exported.size = None if target == STREAM else target.stat().st_size
    return exported


def _rollouts(store: Store, run_id: str) -> Iterator[tuple[Rollout, list[Span]]]:
    cursor = None
    while True:
        page = store.rollouts(RolloutQuery(run_id=run_id, limit=_PAGE, cursor=cursor))
        spans: dict[str, list[Span]] = {rollout.rollout_id: [] for rollout in page.items}
        for span in store.spans(list(spans), attempt="all"):
            spans[span.rollout_id].append(span)
        yield from ((rollout, spans[rollout.rollout_id]) for rollout in page.items)
        if (cursor := page.cursor) is None:
            return
