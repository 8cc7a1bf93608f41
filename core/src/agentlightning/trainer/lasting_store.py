"""A run's store, whose absences are sat out."""

# ruff: noqa: D102  (Store says what each method does)

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, ParamSpec, TypeVar, cast

from agentlightning.errors import Deadline, StoreAway
from agentlightning.records import Rollout, Span, SpanKind
from agentlightning.store import Store
from agentlightning.store.waiting import wait
from agentlightning.trainer.absence import Absence

P = ParamSpec("P")
T = TypeVar("T")


def _sat_out(method: Callable[P, T]) -> Callable[P, T]:
    """A method that is called again while the store is away: twice does the same as once."""

    @functools.wraps(method, updated=())  # its mark of an abstract method is not taken over
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        here = cast("LastingStore", args[0])
        asked: Callable[..., T] = getattr(here.itself, method.__name__)
        return here.absence.sit_out(lambda: asked(*args[1:], **kwargs))

    return call


def _under_a_key(method: Callable[P, T]) -> Callable[P, T]:
    """The same for one that twice does more than once, unless both are given the same key."""
    repeated = cast("Callable[..., T]", _sat_out(method))

    @functools.wraps(method, updated=())  # its mark of an abstract method is not taken over
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return repeated(*args, **{**kwargs, "key": kwargs.get("key") or secrets.token_hex(16)})

    return call


def _passed_on(method: Callable[P, T]) -> Callable[P, T]:
    """A method that is called once, whatever happens."""

    @functools.wraps(method, updated=())  # its mark of an abstract method is not taken over
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        asked: Callable[..., T] = getattr(cast("LastingStore", args[0]).itself, method.__name__)
        return asked(*args[1:], **kwargs)

    return call


class LastingStore(Store):
    """Another store, which may go away for a while: calls then wait until it is back.

    Any call can be made again when it is not known whether the store has heard it: each write carries a
    key, or does the same twice as once. What workers call is passed on as it is, for they have a
    patience of their own.

    Attributes:
        itself: the store.
        absence: how long it may be away.
    """

    def __init__(self, store: Store, absence: Absence) -> None:
        self.itself = store
        self.absence = absence

    create_run = _under_a_key(Store.create_run)
    runs = _sat_out(Store.runs)
    run = _sat_out(Store.run)
    set_run_status = _sat_out(Store.set_run_status)
    set_endpoint = _sat_out(Store.set_endpoint)
    save_state = _sat_out(Store.save_state)
    load_state = _sat_out(Store.load_state)
    log_metrics = _sat_out(Store.log_metrics)
    metrics = _sat_out(Store.metrics)

    enqueue = _under_a_key(Store.enqueue)
    begin = _under_a_key(Store.begin)
    set_rewards = _sat_out(Store.set_rewards)
    cancel = _sat_out(Store.cancel)
    rollouts = _sat_out(Store.rollouts)
    attempts = _sat_out(Store.attempts)
    seconds_to_expiry = _sat_out(Store.seconds_to_expiry)
    check_token = _sat_out(Store.check_token)
    access_token = _sat_out(Store.access_token)

    add_spans = _sat_out(Store.add_spans)
    publish = _under_a_key(Store.publish)
    resources = _sat_out(Store.resources)
    export_page = _sat_out(Store.export_page)
    import_rows = _sat_out(Store.import_rows)
    workers = _sat_out(Store.workers)
    statistics = _sat_out(Store.statistics)

    claim = _passed_on(Store.claim)
    heartbeat = _passed_on(Store.heartbeat)
    finish = _passed_on(Store.finish)
    finish_and_claim = _passed_on(Store.finish_and_claim)
    watch = _passed_on(Store.watch)
    close = _passed_on(Store.close)

    def spans(
        self,
        rollout_ids: Sequence[str],
        *,
        attempt: int | Literal["last", "all"] = "last",
        kinds: Sequence[SpanKind] | None = None,
    ) -> Iterator[Span]:
        reading = _Reading(self, list(dict.fromkeys(rollout_ids)), attempt, kinds)
        reading.begin()  # now, for an unknown id is told before anything is read
        return iter(reading.next, None)

    def wait(self, rollout_ids: Sequence[str], *, timeout_s: float, count: int) -> list[Rollout]:
        """See :func:`agentlightning.store.waiting.wait`; an absence does not count as waiting."""

        def ask() -> list[Rollout]:
            try:
                return wait(self.itself, rollout_ids, timeout_s=timeout_s, count=count)
            except Deadline as error:
                if isinstance(error.__cause__, StoreAway):
                    raise error.__cause__ from None
                raise

        return self.absence.sit_out(ask)


class _Reading:
    """Spans that are read on, from the rollout they had come to, when the store is back."""

    def __init__(
        self,
        store: LastingStore,
        rollout_ids: list[str],
        attempt: int | Literal["last", "all"],
        kinds: Sequence[SpanKind] | None,
    ) -> None:
        self._store = store
        self._left = rollout_ids
        self._attempt: int | Literal["last", "all"] = attempt
        self._kinds = kinds
        self._seen: set[tuple[int, str]] = set()  # of the first rollout that is left
        self._spans: Iterator[Span] | None = None

    def begin(self) -> None:
        """Ask for what is left."""
        self._store.absence.sit_out(self._open)

    def next(self) -> Span | None:
        """The next span; None after the last."""
        return self._store.absence.sit_out(self._read)

    def _open(self) -> Iterator[Span]:
        self._spans = self._store.itself.spans(self._left, attempt=self._attempt, kinds=self._kinds)
        return self._spans

    def _read(self) -> Span | None:
        spans = self._spans or self._open()
        try:
            for span in spans:
                if self._is_new(span):
                    return span
        except StoreAway:
            self._spans = None
            raise
        return None

    def _is_new(self, span: Span) -> bool:
        if span.rollout_id != self._left[0]:
            self._left = self._left[self._left.index(span.rollout_id) :]
            self._seen.clear()
        key = (span.attempt, span.span_id)
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new
