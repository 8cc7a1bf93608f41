"""Spans, and their calls in compact form."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is our own column names, never a value)

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import psycopg
from agentlightning.records import AttemptKey, LLMCall, Span, SpanKind
from agentlightning.store.compact import unpack

from agentlightning_postgres import rows
from agentlightning_postgres.session import Cursor, Remembered, Session
from agentlightning_postgres.text import unescaped


class SpanTables(Session):
    """The table ``spans``. Their rollouts are locked by whoever adds some."""

    def __init__(self, connection: psycopg.Connection, remembered: Remembered, *, writes: bool) -> None:
        super().__init__(connection, remembered, writes=writes)
        self.packing = remembered.packer.begin(self._stored_calls)

    def insert_spans(self, spans: Iterable[Span]) -> int:
        """Leaves out what is there before it packs: a call may refer to no span but the one stored."""
        new = self._not_there(list(spans))
        sql = f"insert into spans ({rows.SPAN}) values ({rows.places(rows.SPAN)})"
        calls = self.packing.pack(new)
        self._execute_many(sql, map(rows.span_row, new, calls))
        return len(new)

    def known_spans(self, key: AttemptKey, span_ids: Collection[str]) -> set[str]:
        return _names(self._ask_for_known(key, span_ids))

    def spans(
        self, rollout_id: str, attempts: Collection[int], kinds: Collection[SpanKind] | None
    ) -> list[Span]:
        sql = (
            "select record, seq, attempt, call is not null from spans "
            "where rollout_id = %s and attempt = any(%s)"
        )
        values: list[object] = [rollout_id, list(attempts)]
        if kinds is not None:
            sql += " and kind = any(%s)"
            values.append(list(kinds))
        found = self._execute(f"{sql} order by seq", *values).fetchall()
        calls = self._calls(rollout_id, {attempt for _, _, attempt, has_call in found if has_call})
        return [rows.span_of(record, seq, calls.get(seq)) for record, seq, _, _ in found]

    def _not_there(self, spans: Sequence[Span]) -> list[Span]:
        given: dict[AttemptKey, dict[str, Span]] = {}
        for span in spans:
            of_attempt = given.setdefault(AttemptKey(span.rollout_id, span.attempt), {})
            of_attempt.setdefault(span.span_id, span)
        asked = [(named, self._ask_for_known(key, named)) for key, named in given.items()]
        for named, cursor in asked:
            for span_id in _names(cursor):
                del named[span_id]
        kept = {id(span) for named in given.values() for span in named.values()}
        return [span for span in spans if id(span) in kept]

    def _ask_for_known(self, key: AttemptKey, span_ids: Collection[str]) -> Cursor:
        # One by one: of a list, a planner without statistics reads all spans of the attempt.
        sql = (
            "select given.span_id from unnest(%s::text[]) as given (span_id) cross join lateral ("
            "select from spans where rollout_id = %s and attempt = %s and span_id = given.span_id "
            "limit 1) as known"
        )
        return self._execute(sql, list(span_ids), *key)

    def _calls(self, rollout_id: str, attempts: Collection[int]) -> dict[int, LLMCall]:
        """The calls of whole attempts, since each is kept as what it adds to earlier ones."""
        sql = (
            "select seq, attempt, span_id, call from spans "
            "where rollout_id = %s and attempt = any(%s) and call is not null order by attempt, seq"
        )
        packed: dict[int, list[tuple[int, str, bytes]]] = {}
        if attempts:
            for seq, attempt, span_id, call in self._execute(sql, rollout_id, list(attempts)):
                packed.setdefault(attempt, []).append((seq, unescaped(span_id), call))
        return {
            row[0]: call
            for of_attempt in packed.values()
            for row, call in zip(of_attempt, unpack(row[1:] for row in of_attempt), strict=True)
            if call is not None
        }

    def _stored_calls(self, key: AttemptKey) -> list[tuple[str, bytes]]:
        sql = (
            "select span_id, call from spans "
            "where rollout_id = %s and attempt = %s and call is not null order by seq"
        )
        return [(unescaped(span_id), call) for span_id, call in self._execute(sql, *key)]


def _names(cursor: Cursor) -> set[str]:
    return {unescaped(name) for (name,) in cursor}
