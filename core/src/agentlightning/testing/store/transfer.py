"""Moving a run to another store: everything arrives as it was, or is refused by name."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from agentlightning.errors import (
    AgentLightningError,
    BadValue,
    InvalidTransition,
    KeyReused,
    UnknownAttempt,
    UnknownResources,
    UnknownRollout,
    UnknownRun,
)
from agentlightning.records import AttemptKey
from agentlightning.store import Store
from agentlightning.store.memory import MemoryStore
from agentlightning.store.transfer import (
    AnswerRow,
    AttemptRow,
    ResourcesRow,
    RolloutRow,
    RunRow,
    SpanRow,
    StoredRow,
    kind_of,
)
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import Clock, request, span
from agentlightning.testing.store.moving import (
    QUEUED,
    RESOURCES,
    changed,
    fill,
    pages_after,
    picture,
    unnumbered,
)

Rows = list[StoredRow]
WAKE_S = 5.0


class TransferTests(StoreTests):
    """``export_rows`` here, ``import_rows`` there."""

    @pytest.fixture
    def other(self, clock: Clock) -> Iterator[Store]:
        """A store of another kind, with nothing in it."""
        with MemoryStore(clock=clock) as store:
            yield store

    @pytest.fixture
    def moved_id(self, other: Store, clock: Clock) -> str:
        """A run in ``other`` with everything in it that there can be."""
        return fill(other, clock)

    @pytest.fixture
    def rows(self, other: Store, moved_id: str) -> Rows:
        """That run's rows."""
        return list(other.export_rows(moved_id))

    def test_an_imported_run_answers_as_it_did(
        self, store: Store, other: Store, moved_id: str, rows: Rows
    ) -> None:
        """Every reading call gives what the store gave that the run comes from."""
        assert store.import_rows(rows) == len(rows)
        assert picture(store, moved_id) == picture(other, moved_id)

    def test_an_exported_run_arrives_as_it_is(self, store: Store, other: Store, clock: Clock) -> None:
        """``export_rows`` gives everything, the state of running attempts included."""
        run_id = fill(store, clock)
        other.import_rows(list(store.export_rows(run_id)))
        assert picture(other, run_id) == picture(store, run_id)

    def test_a_run_comes_back_as_it_went(self, store: Store, rows: Rows, moved_id: str) -> None:
        """Exporting what was imported gives the same rows in the same order."""
        store.import_rows(rows)
        assert unnumbered(store.export_rows(moved_id)) == unnumbered(rows)

    def test_whatever_a_row_needs_comes_before_it(self, store: Store, clock: Clock) -> None:
        """Rows can be imported in any cuts that leave a rollout with its attempts."""
        kinds = [kind_of(row) for row in store.export_rows(fill(store, clock))]
        assert kinds[:3] == ["run", "resources", "resources"]
        assert kinds[3:6] == ["rollout", "attempt", "attempt"]
        assert kinds.index("answer") > max(n for n, kind in enumerate(kinds) if kind == "span")

    def test_an_export_is_read_in_pages(self, store: Store, run_id: str) -> None:
        """A page ends before it has much more than 500 rows; the cursor goes on after it."""
        store.enqueue(run_id, [request(n) for n in range(1100)])
        pages = [store.export_page(run_id)]
        while (cursor := pages[-1].cursor) is not None:
            pages.append(store.export_page(run_id, cursor))
        found = [
            row.record.input for page in pages for row in page.items if isinstance(row, RolloutRow)
        ]
        assert found == list(range(1100))
        assert len(pages) > 1
        assert max(len(page.items) for page in pages) < 1000  # noqa: PLR2004

    def test_what_came_meanwhile_is_exported_before_what_needs_it(
        self, store: Store, other: Store, run_id: str
    ) -> None:
        """A run that is worked on while it is exported can be imported all the same."""
        store.enqueue(run_id, [request(n) for n in range(600)])
        first = store.export_page(run_id)
        store.publish(run_id, RESOURCES)
        store.enqueue(run_id, [request("new", priority=9)], key="later")
        store.claim(run_id, "worker", limit=601)
        rest = list(pages_after(store, run_id, first.cursor))
        other.import_rows(first.items)
        other.import_rows(rest)
        assert other.enqueue(run_id, [request("new", priority=9)], key="later")[0].input == "new"
        assert other.resources(run_id, "latest").resources == RESOURCES

    def test_importing_twice_is_harmless(
        self, store: Store, other: Store, rows: Rows, moved_id: str
    ) -> None:
        """What is there as it is given is left alone, and not counted."""
        store.import_rows(rows)
        assert store.import_rows(rows) == 0
        assert picture(store, moved_id) == picture(other, moved_id)

    def test_an_import_is_completed_by_sending_everything_again(
        self, store: Store, other: Store, rows: Rows, moved_id: str
    ) -> None:
        """After half of the rows, all of them add the other half."""
        starts = [n for n, row in enumerate(rows) if not isinstance(row, AttemptRow)]
        half = next(n for n in starts if n >= len(rows) // 2)
        assert store.import_rows(rows[:half]) == half
        assert store.import_rows(rows) == len(rows) - half
        assert picture(store, moved_id) == picture(other, moved_id)

    def test_an_imported_run_goes_on(self, store: Store, rows: Rows, moved_id: str) -> None:
        """Keys find what they made, queued rollouts are claimed, and new resources count on."""
        store.import_rows(rows)
        assert store.create_run("moved", {"any": 1}, key="the run").run_id == moved_id
        again = store.enqueue(moved_id, QUEUED, key="step 1")
        assert [item.input for item in again] == [item.input for item in QUEUED]
        assert store.publish(moved_id, RESOURCES, note="first", key="published").version == 1
        assert store.publish(moved_id, {}).version == 3  # noqa: PLR2004
        claims = store.claim(moved_id, "new worker", limit=10)
        assert "to wait" in [claim.rollout.input for claim in claims]
        assert all(store.check_token(claim.key, claim.token) for claim in claims)

    def test_a_running_attempt_is_lost_where_its_worker_is_not(
        self, store: Store, rows: Rows, moved_id: str, clock: Clock
    ) -> None:
        """It arrives running, under its lease; nobody renews that, so it is tried again."""
        store.import_rows(rows)
        running = [row.record for row in rows if isinstance(row, AttemptRow)]
        running = [item for item in running if item.status == "running"]
        assert running
        clock.advance(2000)
        assert store.statistics(moved_id).attempts["running"] == 0
        lost = store.attempts(running[0].rollout_id)[running[0].number - 1]
        assert (lost.status, lost.worker_id) == ("lost", running[0].worker_id)

    def test_waiters_learn_of_imported_work(self, store: Store, rows: Rows, moved_id: str) -> None:
        """Rollouts to claim wake whoever watches."""
        woken = threading.Event()
        forget = store.watch(moved_id, woken.set, on="queued")
        store.import_rows(rows)
        assert woken.wait(WAKE_S)
        forget()

    @pytest.mark.parametrize("kind", ["run", "resources", "rollout", "attempt", "span", "answer"])
    def test_a_row_with_other_content_is_refused(
        self, store: Store, other: Store, rows: Rows, moved_id: str, kind: str
    ) -> None:
        """``KeyReused`` names the row and what differs; new rows of the batch are not written."""
        store.import_rows(rows)
        given = [changed(row) if kind_of(row) == kind else row for row in rows]
        newcomer = RunRow(record=replace(other.run(moved_id), run_id="run-new"))
        with pytest.raises(KeyReused, match="is there already, with another"):
            store.import_rows([newcomer, *given])
        assert picture(store, moved_id) == picture(other, moved_id)
        with pytest.raises(UnknownRun):
            store.run("run-new")

    @pytest.mark.parametrize("kind", ["metrics", "state", "late_results"])
    def test_a_run_that_went_on_is_not_set_back(
        self, store: Store, rows: Rows, moved_id: str, kind: str
    ) -> None:
        """What was logged and saved since is kept, and the old export refused."""
        store.import_rows(rows)
        store.log_metrics(moved_id, 3, {"loss": 5.0})
        store.save_state(moved_id, {"step": 4})
        given = [row for row in rows if kind_of(row) == kind]
        if kind == "late_results":
            given = [changed(row) for row in given]
        with pytest.raises(KeyReused):
            store.import_rows(given)
        assert store.load_state(moved_id) == {"step": 4}
        assert store.metrics(moved_id)[-1].values["loss"] == 5.0  # noqa: PLR2004

    @pytest.mark.parametrize(
        ("left_out", "error"),
        [
            (RunRow, UnknownRun),
            (ResourcesRow, UnknownResources),
            (RolloutRow, UnknownRollout),
            (AttemptRow, InvalidTransition),
        ],
    )
    def test_a_row_without_what_it_needs_is_refused(
        self, store: Store, rows: Rows, left_out: type, error: type[AgentLightningError]
    ) -> None:
        """The error names what is missing, and nothing is written."""
        with pytest.raises(error):
            store.import_rows([row for row in rows if not isinstance(row, left_out)])
        assert store.runs() == []
        assert store.statistics().rollouts == MemoryStore().statistics().rollouts

    def test_a_span_needs_its_attempt(self, store: Store, rows: Rows, moved_id: str) -> None:
        """Spans of attempts that never were are refused."""
        store.import_rows(rows)
        rollout = next(row.record for row in rows if isinstance(row, RolloutRow))
        stray = SpanRow(record=span(AttemptKey(rollout.rollout_id, 9)))
        with pytest.raises(UnknownAttempt, match="attempt 9"):
            store.import_rows([stray])
        assert store.statistics(moved_id).spans == sum(isinstance(row, SpanRow) for row in rows)

    def test_rows_that_contradict_each_other_are_refused(self, store: Store, rows: Rows) -> None:
        """No rollout arrives in a state that it could never leave."""
        broken = [
            replace(row, record=replace(row.record, status="running"))
            if isinstance(row, RolloutRow) and row.record.status != "running"
            else row
            for row in rows
        ]
        with pytest.raises(InvalidTransition, match="running attempts"):
            store.import_rows(broken)
        assert store.runs() == []

    def test_a_rollout_comes_with_exactly_its_attempts(self, store: Store, rows: Rows) -> None:
        """None is missing, however many it says it had, and none is more than it had."""
        others = [row for row in rows if not isinstance(row, RolloutRow | AttemptRow | SpanRow)]
        rollouts = [row for row in rows if isinstance(row, RolloutRow)]
        attempts = [row for row in rows if isinstance(row, AttemptRow)]
        boasting = [replace(row, record=replace(row.record, attempt=2**62)) for row in rollouts]
        with pytest.raises(InvalidTransition, match=str(2**62)):
            store.import_rows([*others, *boasting, *attempts])
        for number in (0, 2**40):
            stray = AttemptRow(record=replace(attempts[0].record, number=number))
            with pytest.raises(UnknownAttempt, match=str(number)):
                store.import_rows([*others, *rollouts, *attempts, stray])
        assert store.runs() == []

    def test_an_answer_names_only_what_its_run_has(self, store: Store, rows: Rows) -> None:
        """Else a resumed run would be promised rollouts that are not there."""
        broken = [
            replace(row, record=replace(row.record, made=("somebody's",)))
            if isinstance(row, AnswerRow) and row.record.operation == "enqueue"
            else row
            for row in rows
        ]
        with pytest.raises(UnknownRollout, match="somebody's"):
            store.import_rows(broken)
        assert store.runs() == []

    def test_values_that_no_store_can_keep_are_refused(self, store: Store, rows: Rows) -> None:
        """Rows are checked as any other call's values: a file can hold anything."""
        broken = [
            replace(row, record=replace(row.record, reward=float("nan")))
            if isinstance(row, RolloutRow)
            else row
            for row in rows
        ]
        with pytest.raises(BadValue, match="nan"):
            store.import_rows(broken)
        assert store.runs() == []

    def test_an_unknown_run_and_a_made_up_cursor_are_refused(self, store: Store, run_id: str) -> None:
        """``UnknownRun`` names the runs there are; a cursor is taken only from a page."""
        with pytest.raises(UnknownRun, match=run_id):
            list(store.export_rows("run-nobody-made"))
        for cursor in ("", "7", "{}x", '{"resources": -1}', '{"place": 1}'):
            with pytest.raises(BadValue, match="cursor"):
                store.export_page(run_id, cursor)
