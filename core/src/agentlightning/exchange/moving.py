"""Carrying rows between a store and a file, in the memory of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from agentlightning.errors import BadValue, StoreError
from agentlightning.store import Store
from agentlightning.store.transfer import AttemptRow, RunRow, StoredRow, kind_of

Progress: TypeAlias = Callable[[int, int | None], None]
"""Told how much is done, of how much (None while nobody knows)."""

_BATCH_ROWS: Final = 500
_BATCH_BYTES: Final = 4_000_000
"""What a batch holds at most, unless a single rollout is larger: a server takes 64 MB a request."""


class Item(NamedTuple):
    """A row as it was read: where it stands (``line 7``), and about how large it is."""

    place: str
    row: StoredRow
    size: int


@dataclass
class Exported:
    """What was written: rows by kind, and how many bytes they take (None for a stream)."""

    rows: Counter[str] = field(default_factory=Counter)
    size: int | None = None


@dataclass
class Imported:
    """What was read: rows by kind, how many of all were new, and the runs they are of.

    ``skipped`` counts, by reason, what could not be read or was not taken as what it was.
    """

    rows: Counter[str] = field(default_factory=Counter)
    new: int = 0
    runs: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


Writer: TypeAlias = Callable[[Path, str, Iterator[StoredRow]], int | None]
"""Writes the rows of a run (its id comes second) to a path; how many bytes that took."""


def export_run(store: Store, run_id: str, target: Path, write: Writer, told: Progress) -> Exported:
    """Write all rows of a run.

    Raises:
        UnknownRun: the store has no such run; nothing is written.
        ExchangeError: it cannot be written there.
    """
    statistics = store.statistics(run_id)
    counts = (*statistics.rollouts.values(), *statistics.attempts.values(), statistics.spans)
    expected = sum(counts)
    exported = Exported()

    def counted() -> Iterator[StoredRow]:
        for number, row in enumerate(store.export_rows(run_id), 1):
            exported.rows[kind_of(row)] += 1
            yield row
            told(number, max(expected, number))

    exported.size = write(target, run_id, counted())
    return exported


def import_rows(store: Store, path: Path, items: Iterator[Item]) -> Imported:
    """Add the rows that were read; what came before one that is refused stays.

    Raises:
        StoreError, BadValue: a row was refused, with the lines it stands in; none of its batch was
            written. To read everything again later is harmless.
    """
    imported = Imported()
    for batch in _batches(items):
        rows = [item.row for item in batch]
        try:
            imported.new += store.import_rows(rows)
        except (StoreError, BadValue) as error:
            where = f"{path}, {batch[0].place} to {batch[-1].place}"
            raise type(error)(f"{where}: {error}") from error
        imported.rows.update(map(kind_of, rows))
        imported.runs += [row.record.run_id for row in rows if isinstance(row, RunRow)]
    return imported


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Cut anywhere but between a rollout and its attempts, which a store takes together."""
    batch: list[Item] = []
    size = 0
    for item in items:
        is_full = len(batch) >= _BATCH_ROWS or size + item.size > _BATCH_BYTES
        if batch and is_full and not isinstance(item.row, AttemptRow):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.size
    if batch:
        yield batch
