"""Writing rebuilt rollouts into a store: new ones whole, and of known ones what is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agentlightning.errors import BadValue, LimitExceeded, StoreError, StoreUnavailable
from agentlightning.exchange.moving import Imported, Progress
from agentlightning.exchange.traces.heap import Group, SpanHeap
from agentlightning.exchange.traces.rollouts import GROUP, Rebuilder, Rebuilt
from agentlightning.records import Run
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.transfer import AttemptRow, RolloutRow, RunRow, SpanRow, StoredRow

_PAGE: Final = 1000
_BATCH: Final = 500


def known_rollouts(store: Store, run: Run) -> dict[str, str]:
    """The ids of the rollouts that the run has already, by the name of their group."""
    found: dict[str, str] = {}
    if run.run_id not in {known.run_id for known in store.runs()}:
        return found
    cursor = None
    while True:
        page = store.rollouts(RolloutQuery(run_id=run.run_id, limit=_PAGE, cursor=cursor))
        found |= {str(item.metadata.get(GROUP)): item.rollout_id for item in page.items}
        if (cursor := page.cursor) is None:
            return found


def store_rollouts(
    store: Store, run: Run, heap: SpanHeap, rebuilder: Rebuilder, imported: Imported, told: Progress
) -> None:
    """Write the rollouts of all spans, some at a time.

    Raises:
        StoreUnavailable: the store cannot be reached; what was written stays, and importing everything
            again adds the rest.
    """
    known = frozenset(rebuilder.known.values())
    imported.rows["run"] += 1
    imported.new += store.import_rows([RunRow(record=run)])
    done, total = 0, len(heap)
    for page in _paged(heap.groups()):
        made = [rebuilt for group in page if (rebuilt := rebuilder.rebuilt(group)) is not None]
        _add(store, [item for item in made if item.rollout.rollout_id not in known], imported)
        _go_on(store, [item for item in made if item.rollout.rollout_id in known], imported)
        done += len(page)
        told(done, total)


def _paged(groups: Iterator[Group]) -> Iterator[list[Group]]:
    page: list[Group] = []
    spans = 0
    for group in groups:
        page.append(group)
        spans += len(group.spans)
        if spans >= _BATCH:
            yield page
            page, spans = [], 0
    if page:
        yield page


def _add(store: Store, rebuilt: Sequence[Rebuilt], imported: Imported) -> None:
    """Add new rollouts; one that the store refuses does not keep the others out."""
    if not rebuilt:
        return
    rows = [row for item in rebuilt for row in _rows(item)]
    try:
        imported.new += store.import_rows(rows)
    except StoreUnavailable:
        raise
    except (StoreError, BadValue, LimitExceeded) as error:
        if len(rebuilt) == 1:
            imported.skipped[f"rollouts that the store refused: {error}"] += 1
            return
        for item in rebuilt:
            _add(store, [item], imported)
        return
    for item in rebuilt:
        _count(item, imported)


def _rows(rebuilt: Rebuilt) -> Iterator[StoredRow]:
    yield RolloutRow(record=rebuilt.rollout)
    yield from (AttemptRow(record=attempt) for attempt in rebuilt.attempts)
    yield from (SpanRow(record=span) for span in rebuilt.spans)


def _go_on(store: Store, rebuilt: Sequence[Rebuilt], imported: Imported) -> None:
    """Add what is new of rollouts that are there: later spans, and rewards not asked for before."""
    for item in rebuilt:
        name = item.rollout.rollout_id
        attempts = len(store.attempts(name))
        spans = [span for span in item.spans if span.attempt <= attempts]
        if late := len(item.spans) - len(spans):
            imported.skipped["spans of an attempt after the last that was imported"] += late
        new = store.add_spans(spans)
        imported.new += new
        _count(item, imported)
        if new and item.rollout.reward is not None:
            store.set_rewards({name: item.rollout.reward})


def _count(item: Rebuilt, imported: Imported) -> None:
    imported.rows.update(rollout=1, attempt=len(item.attempts), span=len(item.spans))
