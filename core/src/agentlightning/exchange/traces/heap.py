"""Spans by rollout, however they lie in the files: in a temporary file, not in memory."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from agentlightning.records import Span, from_msgpack, to_msgpack


class Group(NamedTuple):
    """The spans of one rollout by their start; ``name`` is its trace, its session, or what named it."""

    name: str
    spans: list[Span]


class SpanHeap:
    """Takes spans in any order and gives them back by rollout, those that began first coming first."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="agl-import-")
        self._tables = sqlite3.connect(Path(self._folder.name) / "spans.db")
        self._tables.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE spans (trace TEXT, start INTEGER, body BLOB);"
            "CREATE TABLE named (trace TEXT PRIMARY KEY, name TEXT) WITHOUT ROWID;"
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tables.close()
        self._folder.cleanup()

    def add(self, span: Span, name: str | None) -> None:
        """Keep a span; ``name`` says which rollout its whole trace belongs to."""
        self._tables.execute(
            "INSERT INTO spans VALUES (?, ?, ?)", (span.trace_id, span.start_ns, to_msgpack(span))
        )
        if name is not None:
            self._tables.execute("INSERT OR IGNORE INTO named VALUES (?, ?)", (span.trace_id, name))

    def __len__(self) -> int:
        """How many rollouts there are."""
        (count,) = self._tables.execute(
            "SELECT count(DISTINCT coalesce(name, trace)) FROM spans LEFT JOIN named USING (trace)"
        ).fetchone()
        return int(count)

    def groups(self) -> Iterator[Group]:
        """Rollout by rollout. Each span once, however often it was exported."""
        self._tables.execute("CREATE INDEX by_trace ON spans (trace, start)")
        names = self._tables.execute(
            "SELECT coalesce(name, trace) AS rollout, group_concat(DISTINCT trace), min(start) "
            "FROM spans LEFT JOIN named USING (trace) GROUP BY rollout ORDER BY min(start), rollout"
        )
        for name, traces, _ in names:
            spans: dict[tuple[str, str], Span] = {}
            for trace in traces.split(","):
                for (body,) in self._tables.execute(
                    "SELECT body FROM spans WHERE trace = ? ORDER BY start", (trace,)
                ):
                    span = from_msgpack(body, Span)
                    spans.setdefault((span.trace_id, span.span_id), span)
            yield Group(name, sorted(spans.values(), key=lambda span: span.start_ns))
