"""``agl import otlp``: a run made of the traces in files."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentlightning import semconv
from agentlightning.errors import BadValue, ExchangeError
from agentlightning.exchange.files import STREAM
from agentlightning.exchange.moving import Imported, Progress
from agentlightning.exchange.traces.files import requests_of
from agentlightning.exchange.traces.heap import SpanHeap
from agentlightning.exchange.traces.rollouts import Rebuilder
from agentlightning.exchange.traces.storing import known_rollouts, store_rollouts
from agentlightning.otlp import exported, record_of
from agentlightning.records import JSON, Run, Span
from agentlightning.store import Store

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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
        known = known_rollouts(store, run)
        rebuilder = Rebuilder(run.run_id, options.rewards, known, imported.skipped)
        store_rollouts(store, run, heap, rebuilder, imported, told)
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


def _nothing(paths: Sequence[Path], skipped: Counter[str]) -> str:
    reasons = "; ".join(f"{count}: {reason}" for reason, count in skipped.most_common())
    return (
        f"no span in {', '.join(map(str, paths))}; expected OTLP traces as the collector's file "
        f"exporter writes them, in JSON or protobuf ({reasons or 'nothing is in there'})"
    )
