"""Spans in order of arrival, their LLM calls packed."""

# ruff: noqa: D102  (Tables says what each method does)
# ruff: noqa: S608  (what is put into SQL text is this package's own column names, never a value)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from agentlightning.records import AttemptKey, LLMCall, Span, SpanKind
from agentlightning.store.compact import unpack

from agentlightning_sqlite import rows
from agentlightning_sqlite.attempt_tables import AttemptTables
from agentlightning_sqlite.connected import matching

_INSERT: Final = (
    f"insert into spans ({rows.SPAN}) values ({rows.places(rows.SPAN)}) "
    "on conflict (rollout_id, attempt, span_id) do nothing"
)
_KNOWN: Final = (
    "select value from json_each(?) where exists (select 1 from spans "
    "where rollout_id = ? and attempt = ? and span_id = value)"
)
_CALLS: Final = (
    "select span_id, call from spans where rollout_id = ? and attempt = ? and call is not null "
    "order by seq"
)


class SpanTables(AttemptTables):
    """``spans``."""

    def insert_spans(self, spans: Iterable[Span]) -> int:
        batch = [*spans]
        before = self._connection.total_changes
        if all(span.call is None for span in batch):
            self._executemany(_INSERT, [rows.span_row(span, None) for span in batch])
        else:
            if self._packing is None:
                self._packing = self._packer.begin(self._calls)
            packed = self._packing.pack_new(batch, self.known_spans)
            self._executemany(_INSERT, [rows.span_row(span, call) for span, call in packed])
        return self._connection.total_changes - before

    def known_spans(self, key: AttemptKey, span_ids: Collection[str]) -> set[str]:
        return {name for (name,) in self._execute(_KNOWN, (rows.text([*span_ids]), *key))}

    def spans(
        self, rollout_id: str, attempts: Collection[int], kinds: Collection[SpanKind] | None
    ) -> list[Span]:
        sql = f"select seq, {rows.SPAN} from spans where rollout_id = ?"
        values: list[object] = [rollout_id]
        for column, wanted in (("attempt", attempts), ("kind", kinds)):
            if wanted is not None:
                condition, value = matching([*wanted])
                sql += f" and {column} {condition}"
                values.append(value)
        found = self._execute(f"{sql} order by seq", values).fetchall()
        calls = self._calls_of(found, is_all=kinds is None)
        return [rows.span_of(row, calls.get(row[0])) for row in found]

    def _calls_of(self, found: Sequence[rows.Row], *, is_all: bool) -> dict[int, LLMCall | None]:
        """The calls of these spans by ``seq``; they may build on calls of spans that are not wanted."""
        by_attempt: defaultdict[AttemptKey, list[rows.Row]] = defaultdict(list)
        for row in found:
            if rows.call_in(row) is not None:
                by_attempt[rows.key_in(row)].append(row)
        calls: dict[int, LLMCall | None] = {}
        for key, wanted in by_attempt.items():
            packed = [(rows.span_id_in(row), rows.call_in(row)) for row in wanted]
            read = packed if is_all else self._calls(key)
            by_id = dict(zip((name for name, _ in read), unpack(read), strict=True))
            calls |= {row[0]: by_id[rows.span_id_in(row)] for row in wanted}
        return calls

    def _calls(self, key: AttemptKey) -> list[tuple[str, bytes | None]]:
        return self._execute(_CALLS, key).fetchall()
