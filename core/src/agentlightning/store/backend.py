"""The whole store contract, written once over a backend's tables."""

# ruff: noqa: D102  (Store says what each method does)

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from msgspec.structs import replace

from agentlightning.errors import StaleAttempt
from agentlightning.records import (
    JSON,
    Attempt,
    AttemptKey,
    Resources,
    ResourcesVersion,
    Rollout,
    RolloutRequest,
    Run,
    RunStatus,
    Span,
    SpanKind,
)
from agentlightning.store import checks, claims, endings, versions
from agentlightning.store.clock import SteadyClock
from agentlightning.store.contract import Store
from agentlightning.store.forgetting import Forgetting
from agentlightning.store.handing_out import HandingOut
from agentlightning.store.keys import new_id
from agentlightning.store.lookups import (
    attempt_numbers,
    check_attempts,
    need_attempt_counts,
    need_resources,
    need_rollouts,
    need_run,
)
from agentlightning.store.repeats import Once, in_run, keys_of, names_of
from agentlightning.store.tables import Tables
from agentlightning.store.tokens import access_token, is_token_for
from agentlightning.store.transfer import StoredRow
from agentlightning.store.transfer_export import export_page
from agentlightning.store.transfer_import import checked_rows, import_rows
from agentlightning.store.types import (
    AccessRole,
    Change,
    Claim,
    Metrics,
    Order,
    Page,
    Result,
    RolloutQuery,
    Statistics,
    Turnover,
    Worker,
)
from agentlightning.store.watching import Watchers


class TableStore(HandingOut, Store):
    """A store whose backend gives it tables and transactions.

    A subclass implements :meth:`_reading`, :meth:`_writing`, :meth:`close` and has a secret. The
    writing context commits when its body ends, and then wakes ``watchers`` for the tables' ``changes``.

    Every body looks first and writes last: what it refuses, it refuses before its first write. So
    nothing is half written in a backend that cannot roll back either (the one in memory); one whose
    writes can fail by themselves, as on a full disk, has to roll back when the body raises.

    Args:
        url: what the store was opened by.
        secret: signs the attempts' tokens; kept with the data, so that all its users have the same.
        clock: the time in seconds since the epoch; by default one that does not jump, right as of now.
    """

    def __init__(self, url: str, secret: bytes, *, clock: Callable[[], float] | None = None) -> None:
        self.url = url
        self.watchers = Watchers()
        self._forgetting = Forgetting()
        self._secret = secret
        self._clock = SteadyClock.starting_at(time.time()) if clock is None else clock

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Tables]:
        """A transaction that reads one consistent state."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Tables]:
        """A transaction that nobody else's writes get between."""

    # --- runs -----------------------------------------------------------------------------

    def create_run(self, name: str, config: JSON, *, key: str | None = None) -> Run:
        config = checks.json_value(config, "the run's config")
        checks.texts(name=name, key=key)
        with self._writing() as tables:
            once = Once(tables, "create_run", key, name, config)
            if made := once.made():
                return self._own_run(need_run(tables, made[0]))
            now = self._clock()
            run = Run(run_id=new_id("run", now), name=name, config=config, created_at=now)
            tables.insert_run(run)
            once.keep([run.run_id])
            return self._own_run(run)

    def runs(self) -> list[Run]:
        with self._reading() as tables:
            return [self._own_run(run) for run in tables.runs()]

    def run(self, run_id: str) -> Run:
        with self._reading() as tables:
            return self._own_run(need_run(tables, run_id))

    def set_run_status(self, run_id: str, status: RunStatus) -> Run:
        status = checks.run_status(status)
        with self._writing() as tables:
            tables.lock_run(run_id)
            run = replace(need_run(tables, run_id), status=status)
            tables.update_run(run)
            tables.changed(run_id, "queued", "over")
            return self._own_run(run)

    def set_endpoint(self, run_id: str, url: str | None) -> Run:
        checks.texts(url=url)
        with self._writing() as tables:
            tables.lock_run(run_id)
            run = replace(need_run(tables, run_id), endpoint_url=url)
            tables.update_run(run)
            return self._own_run(run)

    def save_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        state = checks.json_object(state, "the algorithm's state")
        with self._writing() as tables:
            need_run(tables, run_id)
            tables.put_state(run_id, state)

    def load_state(self, run_id: str) -> dict[str, JSON] | None:
        with self._reading() as tables:
            need_run(tables, run_id)
            return tables.state(run_id)

    def log_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        finite = checks.numbers(values, f"metrics of step {step}")
        with self._writing() as tables:
            need_run(tables, run_id)
            tables.put_metrics(Metrics(run_id=run_id, step=step, at=self._clock(), values=finite))

    def metrics(self, run_id: str) -> list[Metrics]:
        with self._reading() as tables:
            need_run(tables, run_id)
            return tables.metrics(run_id)

    # --- rollouts and attempts ------------------------------------------------------------

    def enqueue(
        self, run_id: str, requests: Sequence[RolloutRequest], *, key: str | None = None
    ) -> list[Rollout]:
        checked = [checks.request(item, number) for number, item in enumerate(requests)]
        checks.texts(key=key)
        with self._writing() as tables:
            once = Once(tables, in_run("enqueue", run_id), key, checked)
            if made := once.made():
                found = need_rollouts(tables, made)
                return self._own([found[rollout_id] for rollout_id in made])
            tables.lock_run(run_id, shared=True)
            rollouts = claims.enqueue(tables, run_id, checked, self._clock())
            once.keep([rollout.rollout_id for rollout in rollouts])
            return self._own(rollouts)

    def claim(
        self, run_id: str | None, worker_id: str, *, limit: int = 1, key: str | None = None
    ) -> list[Claim]:
        checks.limit(limit)
        checks.texts(worker_id=worker_id, key=key)
        with self._writing() as tables:
            once = Once(tables, "claim", key, run_id, worker_id, limit)
            again = self._claimed_before(tables, once)
            return self._claim(tables, once, run_id, worker_id, limit) if again is None else again

    def _claimed_before(self, tables: Tables, once: Once) -> list[Claim] | None:
        made = once.made()
        if made is None:
            return None
        return self._own_claims(claims.claims_again(tables, self._secret, keys_of(made)))

    def _claim(
        self, tables: Tables, once: Once, run_id: str | None, worker_id: str, limit: int
    ) -> list[Claim]:
        if run_id is not None:
            need_run(tables, run_id)
        now = self._clock()
        given = claims.claim(tables, self._secret, run_id, worker_id, limit=limit, now=now)
        self._keep_claims(tables, once, given, now)
        return self._own_claims(given)

    def _keep_claims(self, tables: Tables, once: Once, given: Sequence[Claim], now: float) -> None:
        if once.keep(names_of(given)):
            self._forgetting.kept_one(tables, once.operation, now)

    def begin(
        self, run_name: str, request: RolloutRequest, worker_id: str, *, key: str | None = None
    ) -> Claim:
        checked = checks.request(request, 0)
        checks.texts(run_name=run_name, worker_id=worker_id, key=key)
        with self._writing() as tables:
            once = Once(tables, "begin", key, run_name, checked, worker_id)
            if made := once.made():
                return self._own_claims(claims.claims_again(tables, self._secret, keys_of(made)))[0]
            now = self._clock()
            run = claims.open_run_for(tables, run_name, checked, now)
            rollouts = claims.enqueue(tables, run.run_id, [checked], now)
            given = claims.start(tables, self._secret, rollouts, worker_id, now, tables.next_expiry())
            self._keep_claims(tables, once, given, now)
            return self._own_claims(given)[0]

    def heartbeat(
        self, worker_id: str, attempts: Sequence[AttemptKey], report: dict[str, JSON] | None = None
    ) -> dict[AttemptKey, Order]:
        checks.texts(worker_id=worker_id)
        if report is not None:
            report = checks.json_object(report, f"the report of worker {worker_id}")
        with self._writing() as tables:
            return endings.heartbeat(tables, worker_id, attempts, report, self._clock())

    def finish(self, results: Sequence[Result]) -> list[Rollout]:
        checked = checks.results(results)
        with self._writing() as tables:
            rollouts, stale = endings.finish(tables, checked, self._clock())
            rollouts = self._own(rollouts)
        if stale:
            raise StaleAttempt("; ".join(map(str, stale.values())))
        return rollouts

    def finish_and_claim(
        self,
        results: Sequence[Result],
        run_id: str | None,
        worker_id: str,
        *,
        limit: int = 1,
        key: str | None = None,
    ) -> Turnover:
        checked = checks.results(results)
        checks.limit(limit)
        checks.texts(worker_id=worker_id, key=key)
        with self._writing() as tables:
            once = Once(tables, "claim", key, run_id, worker_id, limit)
            again = self._claimed_before(tables, once)
            if run_id is not None:
                need_run(tables, run_id)
            rollouts, stale = endings.finish(tables, checked, self._clock())
            given = self._claim(tables, once, run_id, worker_id, limit) if again is None else again
            return Turnover(rollouts=self._own(rollouts), late=tuple(stale), claims=given)

    def set_rewards(self, rewards: Mapping[str, float | None]) -> None:
        checked = {name: checks.reward(name, value) for name, value in rewards.items()}
        with self._writing() as tables:
            found = need_rollouts(tables, checked.keys())
            tables.update_rollouts(
                [replace(rollout, reward=checked[name]) for name, rollout in found.items()]
            )

    def cancel(self, rollout_ids: Sequence[str]) -> list[Rollout]:
        with self._writing() as tables:
            return self._own(endings.cancel(tables, rollout_ids, self._clock()))

    def rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        checks.limit(query.limit)
        self._expire()
        with self._reading() as tables:
            if query.run_id is not None:
                need_run(tables, query.run_id)
            if query.rollout_ids is not None:
                need_attempt_counts(tables, set(query.rollout_ids))
            page = tables.find_rollouts(query)
            return Page(items=self._own(page.items), cursor=page.cursor)

    def attempts(self, rollout_id: str) -> list[Attempt]:
        self._expire()
        with self._reading() as tables:
            need_attempt_counts(tables, [rollout_id])
            return tables.attempts([rollout_id])[rollout_id]

    def seconds_to_expiry(self) -> float | None:
        with self._reading() as tables:
            expiry = tables.next_expiry()
        return None if expiry is None else max(0.0, expiry - self._clock())

    def check_token(self, key: AttemptKey, token: str) -> bool:
        return is_token_for(self._secret, key, token)

    def access_token(self, role: AccessRole, run_id: str | None = None) -> str:
        if run_id is not None:
            self.run(run_id)
        return access_token(self._secret, role, run_id)

    # --- spans ----------------------------------------------------------------------------

    def add_spans(self, spans: Sequence[Span]) -> int:
        checked = [checks.span(span) for span in spans]
        keys = {(span.rollout_id, span.attempt) for span in checked}
        with self._writing() as tables:
            counts = need_attempt_counts(tables, {rollout_id for rollout_id, _ in keys})
            check_attempts(counts, keys)
            return tables.insert_spans(checked)

    def spans(
        self,
        rollout_ids: Sequence[str],
        *,
        attempt: int | Literal["last", "all"] = "last",
        kinds: Sequence[SpanKind] | None = None,
    ) -> Iterator[Span]:
        with self._reading() as tables:
            counts = need_attempt_counts(tables, set(rollout_ids))
            if isinstance(attempt, int):
                check_attempts(counts, [(name, attempt) for name in counts])
        return self._spans(
            {name: attempt_numbers(counts[name], attempt) for name in rollout_ids}, kinds
        )

    def _spans(
        self, wanted: Mapping[str, Collection[int]], kinds: Sequence[SpanKind] | None
    ) -> Iterator[Span]:
        """Rollout by rollout, so that a long reading neither fills the memory nor keeps a lock."""
        for rollout_id, numbers in wanted.items():
            with self._reading() as tables:
                found = tables.spans(rollout_id, numbers, kinds)
            yield from found

    # --- resources ------------------------------------------------------------------------

    def publish(
        self,
        run_id: str,
        resources: Resources,
        *,
        note: str = "",
        parent: int | None = None,
        candidate: bool = False,
        key: str | None = None,
    ) -> ResourcesVersion:
        checked = checks.resources(resources)
        checks.texts(note=note, key=key)
        with self._writing() as tables:
            need_run(tables, run_id)
            once = Once(tables, in_run("publish", run_id), key, checked, note, parent, candidate)
            if made := once.made():
                return need_resources(tables, run_id, int(made[0]))
            version = versions.publish(tables, run_id, checked, note, parent, candidate, self._clock())
            once.keep([str(version.version)])
            return version

    def resources(self, run_id: str, version: int | Literal["latest"]) -> ResourcesVersion:
        with self._reading() as tables:
            need_run(tables, run_id)
            return need_resources(tables, run_id, version)

    # --- moving a run to another store ----------------------------------------------------

    def export_page(self, run_id: str, cursor: str | None = None) -> Page[StoredRow]:
        with self._reading() as tables:
            page = export_page(tables, run_id, cursor)
        return Page(items=[self._own_row(row) for row in page.items], cursor=page.cursor)

    def import_rows(self, rows: Sequence[StoredRow]) -> int:
        checked = checked_rows(rows)
        with self._writing() as tables:
            return import_rows(tables, checked)

    # --- housekeeping ---------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        self._expire()
        with self._reading() as tables:
            return tables.workers()

    def statistics(self, run_id: str | None = None) -> Statistics:
        self._expire()
        with self._reading() as tables:
            if run_id is not None:
                need_run(tables, run_id)
            return tables.statistics(run_id)

    def watch(
        self, run_id: str | None, wake: Callable[[], None], *, on: Change | None = None
    ) -> Callable[[], None]:
        return self.watchers.add(run_id, on, wake)

    def _expire(self) -> None:
        """Deal with leases that ran out, before somebody looks."""
        with self._reading() as tables:
            expiry = tables.next_expiry()
        if expiry is not None and expiry <= self._clock():
            with self._writing() as tables:
                endings.expire(tables, self._clock())
