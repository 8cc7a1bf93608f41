"""Reading a run as rows, a page at a time, so that one of any size takes the memory of a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, get_args

import msgspec
from msgspec import Meta

from agentlightning.errors import BadValue
from agentlightning.records import Rollout, from_json, to_json
from agentlightning.store.lookups import need_resources, need_run
from agentlightning.store.repeats import in_run
from agentlightning.store.tables import Tables
from agentlightning.store.transfer import (
    AnswerRow,
    AttemptRow,
    KeyedOperation,
    LateResults,
    LateRow,
    MetricsRow,
    ResourcesRow,
    RolloutRow,
    RunRow,
    SpanRow,
    StateRow,
    StoredAnswer,
    StoredRow,
    StoredState,
)
from agentlightning.store.types import Page, RolloutQuery

PAGE_ROWS: Final = 500
"""A page ends with the rollout that fills it: a rollout, its attempts and spans are read together."""

_ROWS_OF_A_CALL: Final = 20
"""A span with an LLM call takes as much room as some twenty others."""

_ROLLOUTS_AT_ONCE: Final = 32

_OPERATIONS: Final[tuple[KeyedOperation, ...]] = get_args(KeyedOperation)


class _Place(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far an export has come; its JSON is the cursor.

    Attributes:
        is_begun: the run itself is written.
        resources: the last version that is.
        rollouts: the tables' cursor, of a page of which ``skip`` rollouts are written.
        operation: which operation's answers come next, and ``after`` which key.
        is_rest_told: metrics, state and the count of late results are written.
    """

    is_begun: bool = False
    resources: Annotated[int, Meta(ge=0)] = 0
    rollouts: str | None = None
    skip: Annotated[int, Meta(ge=0)] = 0
    operation: Annotated[int, Meta(ge=0)] = 0
    after: str | None = None
    is_rest_told: bool = False


def export_page(tables: Tables, run_id: str, cursor: str | None) -> Page[StoredRow]:
    """The rows after ``cursor``, about :data:`PAGE_ROWS` of them.

    Each page looks first for resources and rollouts that came since the last one. So in a run that is
    still worked on, what a row needs is written before it all the same.

    Raises:
        UnknownRun: there is no such run.
        BadValue: the cursor is none that a page came with.
    """
    need_run(tables, run_id)
    export = _Export(tables, run_id, _read_place(cursor))
    rows: list[StoredRow] = []
    size = 0
    for unit in export.units():
        rows += unit
        size += sum(map(_size, unit))
        if size >= PAGE_ROWS:
            return Page(items=rows, cursor=to_json(export.place).decode())
    return Page(items=rows)


def _size(row: StoredRow) -> int:
    return _ROWS_OF_A_CALL if isinstance(row, SpanRow) and row.record.call is not None else 1


def _read_place(cursor: str | None) -> _Place:
    if cursor is None:
        return _Place()
    try:
        return from_json(cursor, _Place)
    except msgspec.MsgspecError as error:
        raise BadValue(f"the cursor {cursor!r} is none that a page of rows came with") from error


class _Export:
    """A run's rows from a place on, in units that a page is not cut within."""

    def __init__(self, tables: Tables, run_id: str, place: _Place) -> None:
        self._tables = tables
        self._run_id = run_id
        self.place = place

    def units(self) -> Iterator[list[StoredRow]]:
        """Unit by unit; ``place`` is always the one after the unit given last."""
        if not self.place.is_begun:
            self.place.is_begun = True
            yield [RunRow(record=need_run(self._tables, self._run_id))]
        yield from self._resources()
        yield from self._rollouts()
        yield from self._answers()
        if not self.place.is_rest_told:
            self.place.is_rest_told = True
            yield list(self._rest())

    def _resources(self) -> Iterator[list[StoredRow]]:
        newest = self._tables.newest_resources(self._run_id, candidates=True)
        for version in range(self.place.resources + 1, newest + 1):
            self.place.resources = version
            yield [ResourcesRow(record=need_resources(self._tables, self._run_id, version))]

    def _rollouts(self) -> Iterator[list[StoredRow]]:
        place = self.place
        while True:
            query = RolloutQuery(run_id=self._run_id, limit=_ROLLOUTS_AT_ONCE, cursor=place.rollouts)
            page = self._tables.find_rollouts(query)
            for rollout in page.items[place.skip :]:
                place.skip += 1
                yield self._with_attempts(rollout)
            if page.cursor is None:
                return
            place.rollouts, place.skip = page.cursor, 0

    def _with_attempts(self, rollout: Rollout) -> list[StoredRow]:
        name = rollout.rollout_id
        attempts = self._tables.attempts([name])[name]
        spans = self._tables.spans(name, range(1, rollout.attempt + 1), None)
        return [
            RolloutRow(record=rollout),
            *(AttemptRow(record=attempt) for attempt in attempts),
            *(SpanRow(record=span) for span in spans),
        ]

    def _answers(self) -> Iterator[list[StoredRow]]:
        place = self.place
        while place.operation < len(_OPERATIONS):
            operation = _OPERATIONS[place.operation]
            stored_as = operation if operation == "create_run" else in_run(operation, self._run_id)
            found = self._tables.answers(stored_as, after=place.after, limit=PAGE_ROWS)
            if found:
                place.after = found[-1][0]
            else:
                place.operation, place.after = place.operation + 1, None
            yield [
                AnswerRow(
                    record=StoredAnswer(
                        operation=operation,
                        run_id=self._run_id,
                        key=key,
                        fingerprint=answer.fingerprint,
                        made=tuple(answer.made),
                    )
                )
                for key, answer in found
                if operation != "create_run" or answer.made == [self._run_id]
            ]

    def _rest(self) -> Iterator[StoredRow]:
        for metrics in self._tables.metrics(self._run_id):
            yield MetricsRow(record=metrics)
        if (state := self._tables.state(self._run_id)) is not None:
            yield StateRow(record=StoredState(run_id=self._run_id, state=state))
        if late := self._tables.statistics(self._run_id).late_results:
            yield LateRow(record=LateResults(run_id=self._run_id, count=late))
