"""The contract every store backend keeps; ``agentlightning.testing.store`` proves that it does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

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
from agentlightning.store.transfer import StoredRow
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


class Store(ABC):
    """Keeps runs, rollouts, attempts, spans, resources and workers.

    Synchronous, thread-safe, bulk first. No call waits for work: :meth:`watch` wakes whoever waits,
    and :mod:`agentlightning.store.waiting` turns that into blocking and async waits. Every write is
    idempotent; a ``key`` used again with another body is ``KeyReused``. Every change of status is
    decided by the pure functions of :mod:`agentlightning.store.states`; a backend persists what they
    return, in one transaction a call. Every unknown id or impossible change is a named error of
    :mod:`agentlightning.errors`, and nothing is half written.
    """

    @classmethod
    def is_there(cls, url: str) -> bool:  # noqa: ARG003 - for those who override it
        """Whether a store was ever opened at ``url``; for a backend whose opening makes a new one."""
        return True

    # --- runs -----------------------------------------------------------------------------

    @abstractmethod
    def create_run(self, name: str, config: JSON, *, key: str | None = None) -> Run:
        """Open a run."""

    @abstractmethod
    def runs(self) -> list[Run]:
        """All runs, oldest first."""

    @abstractmethod
    def run(self, run_id: str) -> Run:
        """One run; ``UnknownRun`` if there is none."""

    @abstractmethod
    def set_run_status(self, run_id: str, status: RunStatus) -> Run:
        """Close or reopen a run."""

    @abstractmethod
    def set_endpoint(self, run_id: str, url: str | None) -> Run:
        """Say where the run's endpoint is reached from now on (its root), or that it is gone."""

    @abstractmethod
    def save_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        """Keep what the run's algorithm needs to go on after a restart, replacing the last state."""

    @abstractmethod
    def load_state(self, run_id: str) -> dict[str, JSON] | None:
        """The state saved last."""

    @abstractmethod
    def log_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        """Add numbers to a step; the same name at the same step is replaced."""

    @abstractmethod
    def metrics(self, run_id: str) -> list[Metrics]:
        """All that was logged, by step."""

    # --- rollouts and attempts ------------------------------------------------------------

    @abstractmethod
    def enqueue(
        self, run_id: str, requests: Sequence[RolloutRequest], *, key: str | None = None
    ) -> list[Rollout]:
        """Queue rollouts. Resources are pinned here when the request names a version."""

    @abstractmethod
    def claim(
        self, run_id: str | None, worker_id: str, *, limit: int = 1, key: str | None = None
    ) -> list[Claim]:
        """Take up to ``limit`` queued rollouts, highest priority and oldest first.

        Leases that ran out are dealt with first. Rollouts with no pinned version get the latest. The
        ``key`` gives the same claims again until some minutes after their attempts are over.
        """

    @abstractmethod
    def begin(
        self, run_name: str, request: RolloutRequest, worker_id: str, *, key: str | None = None
    ) -> Claim:
        """Get or create the run of that name, enqueue and claim in one step nobody can get between."""

    @abstractmethod
    def heartbeat(
        self, worker_id: str, attempts: Sequence[AttemptKey], report: dict[str, JSON] | None = None
    ) -> dict[AttemptKey, Order]:
        """Renew leases and learn which attempts to give up."""

    @abstractmethod
    def finish(self, results: Sequence[Result]) -> list[Rollout]:
        """End attempts, with their last spans, in one transaction; repeating it is harmless.

        A result for an attempt that is already over, in another way, raises ``StaleAttempt`` after
        the spans of all and the outcomes of the others are stored.
        """

    @abstractmethod
    def finish_and_claim(
        self,
        results: Sequence[Result],
        run_id: str | None,
        worker_id: str,
        *,
        limit: int = 1,
        key: str | None = None,
    ) -> Turnover:
        """:meth:`finish`, then :meth:`claim`, in one transaction (and one round trip).

        What a busy worker does between two rollouts. Late results are named in the answer instead of
        raised, since the claims must reach the worker. Under the same ``key`` the claims are the same.
        """

    @abstractmethod
    def set_rewards(self, rewards: Mapping[str, float | None]) -> None:
        """Store each rollout's outcome as last computed; NaN is refused with the rollout's id."""

    @abstractmethod
    def cancel(self, rollout_ids: Sequence[str]) -> list[Rollout]:
        """Cancel what is not over yet; runners learn of it at their next heartbeat."""

    @abstractmethod
    def rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        """A page of rollouts in the order they were made; expired leases are dealt with first."""

    @abstractmethod
    def attempts(self, rollout_id: str) -> list[Attempt]:
        """The rollout's attempts, first to last."""

    @abstractmethod
    def seconds_to_expiry(self) -> float | None:
        """How long until the next lease of any run ends, by the store's clock; None if none runs.

        For whoever waits: a time to wait, because two machines' clocks need not agree on a date.
        """

    @abstractmethod
    def check_token(self, key: AttemptKey, token: str) -> bool:
        """Whether ``token`` is the one this store's claim of that attempt carried."""

    @abstractmethod
    def access_token(self, role: AccessRole, run_id: str | None = None) -> str:
        """The token a server in front of this store asks for; the same in every opening.

        Args:
            role: ``"owner"`` may do everything; ``"runner"`` may claim, and then needs the token that
                came with a claim for whatever it does to that attempt.
            run_id: the one run a runner may claim from; None for every run. An owner has none.
        """

    # --- spans ----------------------------------------------------------------------------

    @abstractmethod
    def add_spans(self, spans: Sequence[Span]) -> int:
        """Store spans and say how many were new; idempotent by (rollout, attempt, span id)."""

    @abstractmethod
    def spans(
        self,
        rollout_ids: Sequence[str],
        *,
        attempt: int | Literal["last", "all"] = "last",
        kinds: Sequence[SpanKind] | None = None,
    ) -> Iterator[Span]:
        """Spans rollout by rollout in the order given, each in order of arrival."""

    # --- resources ------------------------------------------------------------------------

    @abstractmethod
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
        """Store a new version of the run's resources, numbered from 1."""

    @abstractmethod
    def resources(self, run_id: str, version: int | Literal["latest"]) -> ResourcesVersion:
        """A version; "latest" never is a candidate. ``UnknownResources`` if there is none."""

    # --- moving a run to another store ----------------------------------------------------

    def export_rows(self, run_id: str) -> Iterator[StoredRow]:
        """All there is of a run, each row after those it needs, in the memory of one page.

        A run that is worked on meanwhile comes out so that it can be imported: each rollout as it was
        at one moment, with its attempts.
        """
        cursor = None
        while True:
            page = self.export_page(run_id, cursor)
            yield from page.items
            if (cursor := page.cursor) is None:
                return

    @abstractmethod
    def export_page(self, run_id: str, cursor: str | None = None) -> Page[StoredRow]:
        """Some of :meth:`export_rows`; ``cursor`` continues an earlier page."""

    @abstractmethod
    def import_rows(self, rows: Sequence[StoredRow]) -> int:
        """Add rows that another store exported and say how many were new.

        Rows come in batches of any size, each in one transaction. A row that is there with the same
        content is left alone, so everything may be sent again. A rollout comes with all its attempts
        in one batch.

        Raises:
            KeyReused: a row is there with other content; nothing of the batch is written, nor is it in
                any other case.
            InvalidTransition: rows contradict each other.
            UnknownRun, UnknownRollout, UnknownAttempt, UnknownResources: a row needs what is neither
                stored nor in the batch.
        """

    # --- housekeeping ---------------------------------------------------------------------

    @abstractmethod
    def workers(self) -> list[Worker]:
        """Every worker that ever claimed or reported."""

    @abstractmethod
    def statistics(self, run_id: str | None = None) -> Statistics:
        """Counts by status."""

    @abstractmethod
    def watch(
        self, run_id: str | None, wake: Callable[[], None], *, on: Change | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` whenever something may have changed; returns the unsubscriber.

        ``wake`` is called from any thread, must return at once and may be called for nothing.

        Args:
            run_id: whose changes; None for every run.
            wake: called after a change is stored, also when another process stored it.
            on: ``"queued"`` for rollouts to claim, ``"over"`` for rollouts that ended; None for both.
                A run that is closed or reopened and a lease that ends before all others wake either.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; further calls raise ``StoreUnavailable``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
