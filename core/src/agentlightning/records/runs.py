"""Runs, rollouts and attempts: what the store's state machine moves."""

from __future__ import annotations

from typing import Literal, NamedTuple

from agentlightning.records.base import Int64, Part, Record
from agentlightning.records.codec import JSON

RunStatus = Literal["open", "succeeded", "failed", "cancelled"]
Mode = Literal["train", "val", "test"]
RolloutStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
AttemptStatus = Literal["running", "succeeded", "failed", "timed_out", "lost", "cancelled"]
OutcomeStatus = Literal["succeeded", "failed", "timed_out", "cancelled", "lost"]

ROLLOUT_OVER: frozenset[RolloutStatus] = frozenset({"succeeded", "failed", "cancelled"})
ATTEMPT_OVER: frozenset[AttemptStatus] = frozenset(
    {"succeeded", "failed", "timed_out", "lost", "cancelled"}
)


class AttemptKey(NamedTuple):
    """Names one attempt: the rollout and its number, from 1."""

    rollout_id: str
    number: Int64


class Run(Record, frozen=True, kw_only=True):
    """One training or recording job; rollouts, resources and reports belong to one.

    ``endpoint_url`` is the root of the endpoint that serves this run's policy while it is up.
    Times are seconds since the epoch.
    """

    run_id: str
    name: str
    config: JSON
    created_at: float
    status: RunStatus = "open"
    endpoint_url: str | None = None


class RolloutConfig(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one rollout.

    Attributes:
        timeout_s: seconds one attempt may take; None for no limit.
        max_attempts: attempts that may fail or time out before the rollout is failed.
        max_lost: attempts that may be lost with their worker, counted apart.
        lease_s: seconds a worker may be silent before its attempt counts as lost.
        retry_on: outcomes that are tried again while ``max_attempts`` allows.
    """

    timeout_s: float | None = None
    max_attempts: Int64 = 1
    max_lost: Int64 = 3
    lease_s: float = 60.0
    retry_on: tuple[Literal["failed", "timed_out"], ...] = ("failed", "timed_out")


class RolloutRequest(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of ``Store.enqueue`` for one rollout."""

    input: JSON
    mode: Mode = "train"
    group_id: str | None = None
    resources_version: Int64 | None = None
    config: RolloutConfig = RolloutConfig()
    metadata: dict[str, JSON] = {}
    priority: int = 0


class Rollout(Record, frozen=True, kw_only=True):
    """The work of running the agent once on one task.

    ``reward`` is the outcome as last computed; ``attempt`` the number of the latest attempt, 0 for
    none. Higher ``priority`` is claimed first.
    """

    rollout_id: str
    run_id: str
    input: JSON
    mode: Mode
    status: RolloutStatus
    created_at: float
    config: RolloutConfig = RolloutConfig()
    group_id: str | None = None
    output: JSON = None
    reward: float | None = None
    resources_version: Int64 | None = None
    metadata: dict[str, JSON] = {}
    priority: int = 0
    finished_at: float | None = None
    attempt: Int64 = 0

    @property
    def key(self) -> AttemptKey:
        """The latest attempt's key."""
        return AttemptKey(self.rollout_id, self.attempt)


class Attempt(Record, frozen=True, kw_only=True):
    """One execution of a rollout; retries make more."""

    rollout_id: str
    number: Int64
    status: AttemptStatus
    worker_id: str
    started_at: float
    lease_until: float
    finished_at: float | None = None
    error: str | None = None

    @property
    def key(self) -> AttemptKey:
        """This attempt's key."""
        return AttemptKey(self.rollout_id, self.number)


class Outcome(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an attempt ended; ``error`` is the message a person reads.

    ``lost`` is what a worker says that gives an attempt back unfinished, because it has to stop: the
    rollout is queued again, as if the lease had run out, but at once.
    """

    status: OutcomeStatus
    error: str | None = None
    output: JSON = None
