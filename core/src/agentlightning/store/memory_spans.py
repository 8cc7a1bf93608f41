"""The spans of the store in memory: packed, in order of arrival.

That makes them a third of the size (calls far less), and nobody's later change to a dict that was
recorded reaches the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import force_setattr, replace

from agentlightning.records import AttemptKey, LLMCall, Span, SpanKind, from_msgpack, to_msgpack
from agentlightning.store.compact import CallPacker, unpack


class MemorySpans:
    """The spans of all attempts."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptKey, _Spans] = {}
        self._arrived = 0
        self._packer = CallPacker()

    def add(self, spans: Iterable[Span]) -> int:
        """Add those whose id is new to their attempt; how many were."""
        packing = self._packer.begin(self._calls)
        packed = [
            (span, to_msgpack(span if call is None else replace(span, call=None)), call)
            for span, call in packing.pack_new(spans, self.known)
        ]  # all, before any is kept
        before = self._arrived
        for span, data, call in packed:
            kept = self._attempts.setdefault(AttemptKey(span.rollout_id, span.attempt), _Spans())
            if span.span_id not in kept.ids:
                self._arrived += 1
                kept.ids.add(span.span_id)
                kept.rows.append(_Row(self._arrived, span.span_id, span.kind, data, call))
        packing.keep()
        return self._arrived - before

    def known(self, key: AttemptKey, span_ids: Collection[str]) -> set[str]:
        """Which of these ids an attempt has."""
        kept = self._attempts.get(key)
        return set() if kept is None else kept.ids.intersection(span_ids)

    def count(self, key: AttemptKey) -> int:
        """How many spans an attempt has."""
        kept = self._attempts.get(key)
        return 0 if kept is None else len(kept.rows)

    def of(self, keys: Iterable[AttemptKey], kinds: Collection[SpanKind] | None) -> list[Span]:
        """The spans of these attempts, in order of arrival."""
        found = []
        for key in keys:
            kept = self._attempts.get(key)
            if kept is None:
                continue
            wanted = [row for row in kept.rows if kinds is None or row.kind in kinds]
            has_calls = any(row.call is not None for row in wanted)
            calls = self._read_calls(key) if has_calls else {}
            found += [_span_of(row, calls.get(row.span_id)) for row in wanted]
        found.sort(key=lambda span: span.index)
        return found

    def _read_calls(self, key: AttemptKey) -> dict[str, LLMCall | None]:
        packed = self._calls(key)
        return dict(zip((span_id for span_id, _ in packed), unpack(packed), strict=True))

    def _calls(self, key: AttemptKey) -> list[tuple[str, bytes]]:
        kept = self._attempts.get(key)
        rows = () if kept is None else kept.rows
        return [(row.span_id, row.call) for row in rows if row.call is not None]


class _Row(NamedTuple):
    """A span packed without its call, and the call packed against others of its attempt."""

    arrived: int
    span_id: str
    kind: SpanKind
    data: bytes
    call: bytes | None


class _Spans:
    """The spans of one attempt."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.rows: list[_Row] = []


def _span_of(row: _Row, call: LLMCall | None) -> Span:
    span = from_msgpack(row.data, Span)
    force_setattr(span, "index", row.arrived)  # nobody else has this record yet
    if call is not None:
        force_setattr(span, "call", call)
    return span
