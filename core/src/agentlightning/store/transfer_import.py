"""Writing rows of another store: all of a batch that is new, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from agentlightning.errors import UnknownAttempt, UnknownResources, UnknownRollout
from agentlightning.records import Attempt, AttemptKey, ResourcesVersion, Rollout, Run, Span
from agentlightning.store import checks
from agentlightning.store.lookups import need_run
from agentlightning.store.repeats import in_run
from agentlightning.store.tables import Answer, Tables
from agentlightning.store.transfer import (
    AnswerRow,
    AttemptRow,
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
    kind_of,
)
from agentlightning.store.transfer_checks import check_answer, check_rollout, check_version, is_there
from agentlightning.store.types import Metrics


def checked_rows(rows: Sequence[StoredRow]) -> list[StoredRow]:
    """The rows, everything in them of its type and such that every backend can keep it."""
    checked: list[StoredRow] = []
    for number, row in enumerate(rows):
        if isinstance(row, SpanRow):
            checked.append(replace(row, record=checks.span(row.record)))
        else:
            record = checks.record(row.record, f"row {number} ({kind_of(row)})")
            checked.append(replace(row, record=record))
    return checked


def import_rows(tables: Tables, rows: Sequence[StoredRow]) -> int:
    """Add those of these checked rows that are not there; how many were not.

    Raises:
        KeyReused: a row is there already with other content.
        InvalidTransition: rows contradict each other.
        UnknownRun, UnknownRollout, UnknownAttempt, UnknownResources: a row needs what is neither in the
            store nor among these rows.
    """
    batch = _Batch(tables, rows)
    batch.look()
    return batch.write()


class _Batch:
    """What of a batch is new. It looks at everything first, and writes when all of it fits."""

    def __init__(self, tables: Tables, rows: Sequence[StoredRow]) -> None:
        self._tables = tables
        self._rows = rows
        names = {
            row.record.rollout_id for row in rows if isinstance(row, RolloutRow | AttemptRow | SpanRow)
        }
        self._there = tables.rollouts(names)
        self._attempts_there = tables.attempts(self._there.keys())
        self._runs: dict[str, Run] = {}
        self._versions: dict[tuple[str, int], ResourcesVersion] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._spans: dict[tuple[AttemptKey, str], Span] = {}
        self._answers: dict[tuple[str, str], Answer] = {}
        self._metrics: dict[tuple[str, int], Metrics] = {}
        self._metrics_there: dict[str, dict[int, Metrics]] = {}
        self._states: dict[str, StoredState] = {}
        self._late: dict[str, LateResults] = {}

    def look(self) -> None:
        """Find out what is new and whether it fits; nothing is written."""
        in_order_of_need: list[tuple[type[Any], Callable[[Any], None]]] = [
            (RunRow, self._look_at_run),
            (ResourcesRow, self._look_at_resources),
            (RolloutRow, self._look_at_rollout),
            (AttemptRow, self._look_at_attempt),
            (SpanRow, self._look_at_span),
            (AnswerRow, self._look_at_answer),
            (MetricsRow, self._look_at_metrics),
            (StateRow, self._look_at_state),
            (LateRow, self._look_at_late),
        ]
        for kind, look_at in in_order_of_need:
            for row in self._rows:
                if isinstance(row, kind):
                    look_at(row.record)
        self._check_rollouts()
        self._drop_spans_that_are_there()

    def write(self) -> int:
        """Write what is new; how many rows that was."""
        tables = self._tables
        for run in self._runs.values():
            tables.insert_run(run)
            tables.changed(run.run_id, "queued", "over")
        for version in self._versions.values():
            tables.insert_resources(version)
        tables.insert_rollouts(list(self._rollouts.values()))
        for run_id in {rollout.run_id for rollout in self._rollouts.values()}:
            tables.changed(run_id, "queued", "over")
        tables.insert_attempts(list(self._attempts.values()))
        tables.insert_spans(self._spans.values())
        for (operation, key), answer in self._answers.items():
            tables.put_answer(operation, key, answer)
        for metrics in self._metrics.values():
            tables.put_metrics(metrics)
        for state in self._states.values():
            tables.put_state(state.run_id, state.state)
        for late in self._late.values():
            tables.count_late(late.run_id, late.count)
        return sum(len(new) for new in self._all_new())

    def _all_new(self) -> tuple[dict[Any, Any], ...]:
        return (
            self._runs,
            self._versions,
            self._rollouts,
            self._attempts,
            self._spans,
            self._answers,
            self._metrics,
            self._states,
            self._late,
        )

    # --- runs and resources ---------------------------------------------------------------

    def _look_at_run(self, run: Run) -> None:
        there = self._runs.get(run.run_id) or self._tables.run(run.run_id)
        if not is_there(f"run {run.run_id}", there, run):
            self._runs[run.run_id] = run

    def _need_run(self, run_id: str) -> None:
        if run_id not in self._runs:
            need_run(self._tables, run_id)

    def _look_at_resources(self, version: ResourcesVersion) -> None:
        self._need_run(version.run_id)
        version = replace(version, resources=checks.resources(version.resources))
        key = (version.run_id, version.version)
        there = self._versions.get(key) or self._tables.resources(*key)
        if not is_there(f"resources version {key[1]} of run {key[0]}", there, version):
            check_version(version, self._newest_version(version.run_id))
            self._versions[key] = version

    def _newest_version(self, run_id: str) -> int:
        stored = self._tables.newest_resources(run_id, candidates=True)
        return max([stored, *(number for name, number in self._versions if name == run_id)])

    # --- rollouts, attempts, spans --------------------------------------------------------

    def _look_at_rollout(self, rollout: Rollout) -> None:
        name = rollout.rollout_id
        there = self._rollouts.get(name) or self._there.get(name)
        if is_there(f"rollout {name}", there, rollout):
            return
        self._need_run(rollout.run_id)
        newest = self._newest_version(rollout.run_id)
        if not 0 <= (rollout.resources_version or 0) <= newest:
            raise UnknownResources(
                f"rollout {name} is run with resources version {rollout.resources_version}, and the "
                f"newest of run {rollout.run_id} is {newest}; import the run's resources first"
            )
        self._rollouts[name] = rollout

    def _look_at_attempt(self, attempt: Attempt) -> None:
        name, number = attempt.key
        self._need_attempt(attempt.key)
        there = self._attempts.get(attempt.key)
        if name not in self._rollouts:
            there = self._attempts_there[name][number - 1]
        if not is_there(f"attempt {number} of rollout {name}", there, attempt):
            self._attempts[attempt.key] = attempt

    def _look_at_span(self, span: Span) -> None:
        key = AttemptKey(span.rollout_id, span.attempt)
        self._need_attempt(key)
        there = self._spans.get((key, span.span_id))
        if not is_there(_span(key, span), there, span):
            self._spans[key, span.span_id] = span

    def _need_attempt(self, key: AttemptKey) -> None:
        rollout = self._rollouts.get(key.rollout_id) or self._there.get(key.rollout_id)
        if rollout is None:
            raise UnknownRollout(
                f"a row is about rollout {key.rollout_id!r}, which is neither in the store nor among "
                "the rows with it; import the rollout first"
            )
        if not 1 <= key.number <= rollout.attempt:
            raise UnknownAttempt(
                f"a row is about attempt {key.number} of rollout {key.rollout_id}, which had "
                f"{rollout.attempt}; export the run anew"
            )

    def _check_rollouts(self) -> None:
        """Of each new rollout all attempts must be here: without them nobody could end it."""
        given: dict[str, list[Attempt]] = {name: [] for name in self._rollouts}
        for key, attempt in self._attempts.items():
            if key.rollout_id in given:
                given[key.rollout_id].append(attempt)
        for name, rollout in self._rollouts.items():
            check_rollout(rollout, given[name])

    def _drop_spans_that_are_there(self) -> None:
        wanted: dict[AttemptKey, set[str]] = {}
        for key, span_id in self._spans:
            if key.rollout_id in self._there:
                wanted.setdefault(key, set()).add(span_id)
        for key, span_ids in wanted.items():
            if known := self._tables.known_spans(key, span_ids):
                for there in self._tables.spans(key.rollout_id, [key.number], None):
                    if there.span_id in known:
                        is_there(_span(key, there), there, self._spans.pop((key, there.span_id)))

    # --- what belongs to a run ------------------------------------------------------------

    def _look_at_answer(self, given: StoredAnswer) -> None:
        self._need_run(given.run_id)
        elsewhere = [name for name in given.made if name not in self._rollouts]
        rollouts = {**self._tables.rollouts(elsewhere), **self._rollouts}
        check_answer(given, rollouts, self._newest_version(given.run_id))
        operation = given.operation
        stored_as = operation if operation == "create_run" else in_run(operation, given.run_id)
        there = self._answers.get((stored_as, given.key)) or self._tables.answer(stored_as, given.key)
        answer = Answer(given.fingerprint, list(given.made))
        if not is_there(f"the answer to {stored_as} with the key {given.key!r}", there, answer):
            self._answers[stored_as, given.key] = answer

    def _look_at_metrics(self, metrics: Metrics) -> None:
        run_id, step = key = (metrics.run_id, metrics.step)
        self._need_run(run_id)
        if run_id not in self._metrics_there:
            stored = self._tables.metrics(run_id)
            self._metrics_there[run_id] = {metrics.step: metrics for metrics in stored}
        there = self._metrics.get(key) or self._metrics_there[run_id].get(step)
        if not is_there(f"metrics of step {step} of run {run_id}", there, metrics):
            self._metrics[key] = metrics

    def _look_at_state(self, given: StoredState) -> None:
        self._need_run(given.run_id)
        there = self._states.get(given.run_id)
        if there is None and (state := self._tables.state(given.run_id)) is not None:
            there = StoredState(run_id=given.run_id, state=state)
        if not is_there(f"the state of run {given.run_id}", there, given):
            self._states[given.run_id] = given

    def _look_at_late(self, given: LateResults) -> None:
        self._need_run(given.run_id)
        there = self._late.get(given.run_id)
        if there is None and (count := self._tables.statistics(given.run_id).late_results):
            there = LateResults(run_id=given.run_id, count=count)
        if not is_there(f"the count of late results of run {given.run_id}", there, given):
            self._late[given.run_id] = given


def _span(key: AttemptKey, span: Span) -> str:
    return f"span {span.span_id} of attempt {key.number} of rollout {key.rollout_id}"
