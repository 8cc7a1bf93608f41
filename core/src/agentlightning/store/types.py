"""What goes in and out of a store, beside the records."""

from __future__ import annotations

import enum
from typing import Generic, Literal, TypeVar

import msgspec

from agentlightning.records import (
    JSON,
    Attempt,
    AttemptKey,
    Int64,
    Mode,
    Outcome,
    Part,
    Record,
    ResourcesVersion,
    Rollout,
    RolloutStatus,
    Run,
    Span,
)

T = TypeVar("T")

AccessRole = Literal["owner", "runner"]
"""Whom a token lets in: the owner of the store to everything, a runner to work and what it claimed."""

Change = Literal["queued", "over"]
"""What a waiter waits for: rollouts it may claim, or rollouts that are over."""


class Order(enum.Enum):
    """The store's answer to a heartbeat, an attempt."""

    CONTINUE = "continue"
    CANCEL = "cancel"
    LOST = "lost"


class Claim(Record, frozen=True, kw_only=True):
    """An attempt to work on, and all that is needed for it.

    ``endpoint_url`` is the base URL of this attempt at the run's endpoint (ending in ``/v1``), None
    while the run serves no model. ``token`` is good for this attempt only.
    """

    rollout: Rollout
    attempt: Attempt
    run: Run
    resources: ResourcesVersion
    token: str
    endpoint_url: str | None = None

    @property
    def key(self) -> AttemptKey:
        """The attempt's key."""
        return self.attempt.key


class Result(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of an attempt, with the spans that have not been sent yet."""

    key: AttemptKey
    outcome: Outcome
    spans: tuple[Span, ...] = ()


class Turnover(Part, frozen=True, kw_only=True):
    """What :meth:`Store.finish_and_claim` did.

    Attributes:
        rollouts: of each result, as they are now.
        late: attempts whose result came too late and was dropped; their spans are kept.
        claims: the work that comes next.
    """

    rollouts: list[Rollout]
    late: tuple[AttemptKey, ...] = ()
    claims: list[Claim] = []


class RolloutQuery(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rollouts to list, in the order they were made; ``cursor`` continues an earlier page."""

    run_id: str | None = None
    rollout_ids: tuple[str, ...] | None = None
    status: tuple[RolloutStatus, ...] | None = None
    mode: Mode | None = None
    group_id: str | None = None
    limit: Int64 = 1000
    cursor: str | None = None


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some of the answers; ``cursor`` is None on the last page."""

    items: list[T]
    cursor: str | None = None


class Worker(Record, frozen=True, kw_only=True):
    """A process that claims rollouts; ``report`` is whatever it last told about itself."""

    worker_id: str
    first_seen: float
    last_seen: float
    running: int = 0
    report: dict[str, JSON] = {}


class Statistics(Part, frozen=True, kw_only=True):
    """Counts over a run, or over the whole store."""

    rollouts: dict[str, int]
    attempts: dict[str, int]
    spans: int
    late_results: int = 0


class Metrics(Record, frozen=True, kw_only=True):
    """Numbers an algorithm logged at one step."""

    run_id: str
    step: Int64
    at: float
    values: dict[str, float]
