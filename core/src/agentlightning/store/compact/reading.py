"""Reading the calls of an attempt, each after the one it is written against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agentlightning.records import LLMCall
from agentlightning.store.compact.delta import Base, Delta, read, restore
from agentlightning.store.compact.parts import Parts


class Read(NamedTuple):
    """One row: the call's parts, and the base it was written against."""

    span_id: str
    parts: Parts | None
    base: Base | None


def unpack(rows: Iterable[tuple[str, bytes | None]]) -> list[LLMCall | None]:
    """The calls of one attempt.

    Args:
        rows: *all* rows of the attempt that hold a call, in order of arrival: span id, and what
            :meth:`Packing.pack` gave (or a call as plain MessagePack); None for a span without.

    Raises:
        DamagedRecord: a row does not fit its base, or its base is not among the rows.
        SchemaMismatch: a later version wrote a row.
    """
    return [None if row.parts is None else row.parts.call() for row in read_parts(rows)]


def read_parts(rows: Iterable[tuple[str, bytes | None]]) -> Iterator[Read]:
    """The parts of each row. A base is held until its last use only, so that long attempts fit."""
    kept = [(span_id, None if data is None else read(data, span_id)) for span_id, data in rows]
    last_use = {
        row.base_id: place
        for place, (_, row) in enumerate(kept)
        if isinstance(row, Delta) and row.base is not None
    }
    bases: dict[str, Parts] = {}
    for place, (span_id, row) in enumerate(kept):
        base = None
        if isinstance(row, Delta):
            base_id = row.base_id
            before = None if base_id is None else bases.get(base_id)
            parts = restore(row, before, span_id)
            if base_id is not None and before is not None:
                base = Base(base_id, before)
                if last_use[base_id] == place:
                    del bases[base_id]
        elif row is None:
            yield Read(span_id, None, None)
            continue
        else:
            parts = Parts.of(row)
        if last_use.get(span_id, -1) > place:
            bases[span_id] = parts
        yield Read(span_id, parts, base)
