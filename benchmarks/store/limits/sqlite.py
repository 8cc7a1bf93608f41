"""Bare ``sqlite3`` with the same tables, settings and rows, and nothing of ours in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from agentlightning.store.opening import open_store

from benchmarks.store import workload
from benchmarks.store.figures import Figure, Stopwatch, median_rate


def of_sqlite(folder: Path, sizes: workload.Sizes) -> Iterator[Figure]:
    """The rows that the store makes of its spans, and the fewest statements of a turnover."""
    rows = _rows_of_spans(folder / "rows.db", sizes.spans)
    paths = (folder / f"bare-{number}.db" for number in range(2 * sizes.repeats))
    adding = median_rate(sizes.spans, sizes.repeats, lambda: _add(next(paths), rows))
    yield Figure("limit_add_spans_per_s", adding, "spans/s")
    pairs = median_rate(sizes.rollouts, sizes.repeats, lambda: _turn_over(next(paths), sizes.rollouts))
    yield Figure("limit_claim_finish_pairs_per_s", pairs, "pairs/s")


def _rows_of_spans(path: Path, count: int) -> list[tuple[object, ...]]:
    """The rows that the store makes of the spans it is measured with."""
    with open_store(f"sqlite:///{path}") as store:
        for batch in workload.batches(workload.begun(store, count // workload.SPANS_EACH)):
            store.add_spans(batch)
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("select * from spans order by seq").fetchall()


def _bare(path: Path, rollouts: int = 0) -> sqlite3.Connection:
    """A connection to a new file with the store's tables, treated as the store treats its own."""
    with open_store(f"sqlite:///{path}") as store:
        workload.queued(store, rollouts)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute("pragma wal_autocheckpoint = 4000")
    return connection


def _add(path: Path, rows: Sequence[tuple[object, ...]]) -> float:
    sql = f"insert into spans values ({', '.join('?' * len(rows[0]))})"
    watch = Stopwatch()
    with closing(_bare(path)) as connection:
        for start in range(0, len(rows), workload.BATCH):
            watch.time(
                lambda start=start: _insert(connection, sql, rows[start : start + workload.BATCH])
            )
    return watch.seconds


def _insert(connection: sqlite3.Connection, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    connection.execute("begin immediate")
    connection.executemany(sql, rows)
    connection.execute("commit")


def _turn_over(path: Path, count: int) -> float:
    """The fewest statements that keep what a claim and a finish change, a transaction a pair."""
    watch = Stopwatch()
    with closing(_bare(path, count)) as connection:
        (run_id,) = connection.execute("select run_id from runs").fetchone()
        for _ in range(count):
            watch.time(lambda: _pair(connection, run_id))
    return watch.seconds


def _pair(connection: sqlite3.Connection, run_id: str) -> None:
    run = connection.execute
    run("begin immediate")
    (name,) = run(
        "select rollout_id from rollouts where run_id = ? and status = 'queued' "
        "order by priority desc, seq limit 1",
        (run_id,),
    ).fetchone()
    run("update rollouts set status = 'running', attempt = 1 where rollout_id = ?", (name,))
    run(
        "insert into attempts (rollout_id, number, run_id, status, worker_id, started_at, lease_until) "
        "values (?, 1, ?, 'running', 'bench', 1.0, 2.0)",
        (name, run_id),
    )
    run("update attempts set status = 'succeeded', finished_at = 2.0 where rollout_id = ?", (name,))
    run(
        "update rollouts set status = 'succeeded', output = '{}', finished_at = 2.0 "
        "where rollout_id = ?",
        (name,),
    )
    run("commit")
