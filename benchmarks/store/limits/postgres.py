"""Bare PostgreSQL: the same rows by ``copy``, the quickest way in, and commits that change one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentlightning.store.opening import open_store
from agentlightning.testing.postgres import PostgresServer

from benchmarks.store import workload
from benchmarks.store.figures import Figure, Stopwatch, median_rate

if TYPE_CHECKING:
    from psycopg import Connection


def of_postgres(_folder: Path, sizes: workload.Sizes) -> Iterator[Figure]:
    """Spans a second that only pass the network and the disk; commits a second of one client."""
    with PostgresServer(durable=True) as server:
        rows = _rows_of_spans(server.create_database(), sizes.spans)
        adding = median_rate(sizes.spans, sizes.repeats, lambda: _add(_new(server), rows))
        yield Figure("limit_add_spans_per_s", adding, "spans/s")
        url = _new(server)
        commits = median_rate(sizes.rollouts, sizes.repeats, lambda: _commit(url, sizes.rollouts))
        yield Figure("limit_commits_per_s", commits, "commits/s")


def _connected(url: str) -> Connection:
    import psycopg  # here, so that the other cases can be measured without it

    return psycopg.connect(url)


def _new(server: PostgresServer) -> str:
    """A database with the store's tables, empty."""
    url = server.create_database()
    with open_store(url):
        return url


def _rows_of_spans(url: str, count: int) -> Sequence[bytes]:
    """The rows that the store makes of the spans it is measured with, as ``copy`` writes them."""
    with open_store(url) as store:
        for batch in workload.batches(workload.begun(store, count // workload.SPANS_EACH)):
            store.add_spans(batch)
    with _connected(url) as connection, connection.cursor().copy("copy spans to stdout") as copy:
        return [bytes(row) for row in copy]


def _add(url: str, rows: Sequence[bytes]) -> float:
    watch = Stopwatch()
    with _connected(url) as connection:
        for start in range(0, len(rows), workload.BATCH):
            watch.time(lambda start=start: _copy(connection, rows[start : start + workload.BATCH]))
    return watch.seconds


def _copy(connection: Connection, rows: Sequence[bytes]) -> None:
    with connection.cursor().copy("copy spans from stdin") as copy:
        copy.write(b"".join(rows))
    connection.commit()


def _commit(url: str, count: int) -> float:
    sql = (
        "insert into states values ('run', %s) "
        "on conflict (run_id) do update set state = excluded.state"
    )
    watch = Stopwatch()
    with _connected(url) as connection:
        for number in range(count):
            watch.time(lambda number=number: _change(connection, sql, str(number)))
    return watch.seconds


def _change(connection: Connection, sql: str, state: str) -> None:
    connection.execute(sql, (state,))
    connection.commit()
