"""``agl import otlp``: a run made of the traces in files."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentlightning import semconv
from agentlightning.errors import BadValue, ExchangeError
from agentlightning.exchange.files import STREAM
from agentlightning.exchange.moving import Imported, Progress
from agentlightning.exchange.traces.files import requests_of
from agentlightning.exchange.traces.heap import Group, SpanHeap
from agentlightning.exchange.traces.rollouts import GROUP, Rebuilder, Rebuilt
from agentlightning.otlp import exported, record_of
from agentlightning.records import JSON, Run, Span
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.transfer import AttemptRow, RolloutRow, RunRow, SpanRow, StoredRow

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_PAGE: Final = 1000
_BATCH: Final = 500


@dataclass(frozen=True)
class TraceOptions:
    """How traces become rollouts.

    Attributes:
        run_name: of the run they go into; None for the name of the first file. Importing into the same
            name again adds what is new.
        group_by: an attribute of spans or resources, such as ``session.id``: all traces with one value
            of it make one rollout. By default each trace is one.
        rewards: the reward's name by the attribute that holds its value.
    """

    run_name: str | None = None
    group_by: str | None = None
    rewards: Mapping[str, str] = field(default_factory=dict)


def import_traces(
    store: Store, paths: Sequence[Path], options: TraceOptions, told: Progress
) -> Imported:
    """Make rollouts of the traces in files.

    Raises:
        ExchangeError: a file cannot be read, or none of them holds a span that can be kept; nothing
            is stored.
    """
    run = _run(store, options.run_name or _name_of(paths[0]))
    imported = Imported(runs=[run.run_id])
    with SpanHeap() as heap:
        _read(paths, heap, options.group_by, imported.skipped, told)
        if not len(heap):
            raise ExchangeError(_nothing(paths, imported.skipped))
        _store(store, run, heap, options, imported, told)
    return imported


def _run(store: Store, name: str) -> Run:
    run_id = f"run-{hashlib.sha256(f'otlp/{name}'.encode()).hexdigest()[:22]}"
    known = {run.run_id: run for run in store.runs()}
    made = Run(run_id=run_id, name=name, config={}, created_at=time.time(), status="succeeded")
    return known.get(run_id, made)


def _name_of(path: Path) -> str:
    return "otlp" if path == STREAM else path.name.partition(".")[0] or "otlp"


def _read(
    paths: Sequence[Path], heap: SpanHeap, group_by: str | None, skipped: Counter[str], told: Progress
) -> None:
    sizes = [0 if path == STREAM or not path.exists() else path.stat().st_size for path in paths]
    total = sum(sizes) if STREAM not in paths else None
    before = 0
    for path, size in zip(paths, sizes, strict=True):
        for request, at in requests_of(path):
            if isinstance(request, BadValue):
                skipped[str(request)] += 1
            else:
                _take(request, heap, group_by, skipped)
            told(before + at, total)
        before += size


def _take(
    request: ExportTraceServiceRequest, heap: SpanHeap, group_by: str | None, skipped: Counter[str]
) -> None:
    for item in exported(request):
        try:
            span = record_of(item)
        except BadValue as error:
            skipped[f"spans: {error}"] += 1
            continue
        heap.add(span, _rollout_named(span, group_by))


def _rollout_named(span: Span, group_by: str | None) -> str | None:
    if isinstance(rollout_id := span.attributes.get(semconv.ROLLOUT_ID), str):
        return f"rollout {rollout_id}"
    if group_by is None:
        return None
    resource = span.attributes.get("otel.resource")
    value: JSON = span.attributes.get(group_by)
    if value is None and isinstance(resource, dict):
        value = resource.get(group_by)
    return None if value is None else f"{group_by} {value}"


def _store(
    store: Store,
    run: Run,
    heap: SpanHeap,
    options: TraceOptions,
    imported: Imported,
    told: Progress,
) -> None:
    there = _there(store, run)
    rebuilder = Rebuilder(run.run_id, options.rewards, there, imported.skipped)
    known = frozenset(there.values())
    imported.rows["run"] += 1
    imported.new += store.import_rows([RunRow(record=run)])
    done, total = 0, len(heap)
    for page in _paged(heap.groups()):
        made = [rebuilt for group in page if (rebuilt := rebuilder.rebuilt(group)) is not None]
        for rebuilt in made:
            imported.rows.update(rollout=1, attempt=len(rebuilt.attempts), span=len(rebuilt.spans))
        new = [row for item in made if item.rollout.rollout_id not in known for row in _rows(item)]
        imported.new += store.import_rows(new) if new else 0
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


def _rows(rebuilt: Rebuilt) -> Iterator[StoredRow]:
    yield RolloutRow(record=rebuilt.rollout)
    yield from (AttemptRow(record=attempt) for attempt in rebuilt.attempts)
    yield from (SpanRow(record=span) for span in rebuilt.spans)


def _there(store: Store, run: Run) -> dict[str, str]:
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


def _go_on(store: Store, rebuilt: Sequence[Rebuilt], imported: Imported) -> None:
    """Add what is new of rollouts that are there: later spans, and rewards not asked for before."""
    for item in rebuilt:
        known = len(store.attempts(item.rollout.rollout_id))
        spans = [span for span in item.spans if span.attempt <= known]
        if late := len(item.spans) - len(spans):
            imported.skipped["spans of an attempt later than the rollout had when it was imported"] += (
                late
            )
        new = store.add_spans(spans)
        imported.new += new
        if new and item.rollout.reward is not None:
            store.set_rewards({item.rollout.rollout_id: item.rollout.reward})


def _nothing(paths: Sequence[Path], skipped: Counter[str]) -> str:
    reasons = "; ".join(f"{count}: {reason}" for reason, count in skipped.most_common())
    return (
        f"no span in {', '.join(map(str, paths))}; expected OTLP traces as the collector's file "
        f"exporter writes them, in JSON or protobuf ({reasons or 'nothing is in there'})"
    )
