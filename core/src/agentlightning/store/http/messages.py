"""The bodies of the store's HTTP API: one request and one reply an operation.

They are the arguments and results of :class:`~agentlightning.store.Store`, in the same words. Requests
refuse unknown fields: a misspelt option is an error and not a default. Replies may gain fields.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agentlightning.records import (
    JSON,
    Attempt,
    AttemptKey,
    Int64,
    Resource,
    ResourcesVersion,
    Rollout,
    RolloutRequest,
    Run,
    RunStatus,
    Span,
    SpanKind,
)
from agentlightning.store.types import (
    Change,
    Claim,
    Metrics,
    Order,
    Result,
    RolloutQuery,
    Statistics,
    Worker,
)


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a reply."""


class Nothing(Request, frozen=True):
    """A request without arguments: ``{}``."""


class Done(Reply, frozen=True):
    """Done, and nothing more to say."""


class Refusal(Reply, frozen=True):
    """Why a request was not carried out: a class of :mod:`agentlightning.errors`, and its message."""

    error: str
    message: str


# --- runs -----------------------------------------------------------------------------------------


class CreateRun(Request, frozen=True):
    """Open a run."""

    name: str
    config: JSON
    key: str | None = None


class OfRun(Request, frozen=True):
    """About one run."""

    run_id: str


class SetRunStatus(Request, frozen=True):
    """Close or reopen a run."""

    run_id: str
    status: RunStatus


class SetEndpoint(Request, frozen=True):
    """Say where the run's endpoint is."""

    run_id: str
    url: str | None


class SaveState(Request, frozen=True):
    """Keep the state of the run's algorithm."""

    run_id: str
    state: dict[str, JSON]


class LogMetrics(Request, frozen=True):
    """Add numbers to a step."""

    run_id: str
    step: Int64
    values: dict[str, float]


class OneRun(Reply, frozen=True):
    """A run."""

    run: Run


class Runs(Reply, frozen=True):
    """Runs, oldest first."""

    runs: list[Run]


class State(Reply, frozen=True):
    """The state saved last, null for none."""

    state: dict[str, JSON] | None


class MetricsOfRun(Reply, frozen=True):
    """All that was logged, by step."""

    metrics: list[Metrics]


# --- rollouts and attempts ------------------------------------------------------------------------

Tokens = dict[str, str]
"""Proof of the attempts a runner works on: ``"rollout_id/number"`` to the token its claim came with."""


class Enqueue(Request, frozen=True):
    """Queue rollouts."""

    run_id: str
    requests: list[RolloutRequest]
    key: str | None = None


class ClaimWork(Request, frozen=True):
    """Take queued rollouts; wait up to ``wait_s`` seconds for the first one."""

    worker_id: str
    run_id: str | None = None
    limit: Int64 = 1
    key: str | None = None
    wait_s: float = 0.0


class StopWaiting(Request, frozen=True):
    """Let the worker's waiting claims return at once, with nothing."""

    worker_id: str


class Begin(Request, frozen=True):
    """Get or create a run, enqueue and claim in one step."""

    run_name: str
    request: RolloutRequest
    worker_id: str
    key: str | None = None


class Heartbeat(Request, frozen=True):
    """Renew the leases of attempts."""

    worker_id: str
    attempts: list[AttemptKey]
    report: dict[str, JSON] | None = None
    tokens: Tokens = {}


class Finish(Request, frozen=True):
    """End attempts."""

    results: list[Result]
    tokens: Tokens = {}


class FinishAndClaim(Request, frozen=True):
    """End attempts and take the next rollouts."""

    results: list[Result]
    worker_id: str
    run_id: str | None = None
    limit: Int64 = 1
    key: str | None = None
    tokens: Tokens = {}


class SetRewards(Request, frozen=True):
    """Store outcomes by rollout id; null is unscored."""

    rewards: dict[str, float | None]


class OfRollouts(Request, frozen=True):
    """About these rollouts."""

    rollout_ids: list[str]


class OfRollout(Request, frozen=True):
    """About one rollout."""

    rollout_id: str


class WaitOver(Request, frozen=True):
    """Wait up to ``wait_s`` seconds until ``count`` of these rollouts (null: all) are over."""

    rollout_ids: list[str]
    count: Int64 | None = None
    wait_s: float = 0.0


class CheckToken(Request, frozen=True):
    """Ask whether a token is an attempt's."""

    rollout_id: str
    number: Int64
    token: str


class Rollouts(Reply, frozen=True):
    """Rollouts; ``cursor`` asks for the next page, null on the last."""

    rollouts: list[Rollout]
    cursor: str | None = None


class Claims(Reply, frozen=True):
    """Claims; ``run_is_open`` says whether waiting for more makes sense."""

    claims: list[Claim]
    run_is_open: bool = True


class Orders(Reply, frozen=True):
    """What to do about each attempt, in the order asked."""

    orders: list[tuple[AttemptKey, Order]]


class TurnedOver(Reply, frozen=True):
    """What became of the results, and the next claims."""

    rollouts: list[Rollout]
    late: list[AttemptKey]
    claims: list[Claim]
    run_is_open: bool = True


class Attempts(Reply, frozen=True):
    """Attempts, first to last."""

    attempts: list[Attempt]


class Seconds(Reply, frozen=True):
    """A time from now, null for none."""

    seconds: float | None


class Answer(Reply, frozen=True):
    """Yes or no."""

    answer: bool


# --- spans ----------------------------------------------------------------------------------------


class AddSpans(Request, frozen=True):
    """Store spans."""

    spans: list[Span]
    tokens: Tokens = {}


class SpansOf(Request, frozen=True):
    """Spans of rollouts, a page at a time."""

    rollout_ids: list[str]
    attempt: Int64 | Literal["last", "all"] = "last"
    kinds: list[SpanKind] | None = None
    cursor: str | None = None


class Count(Reply, frozen=True):
    """How many were new."""

    count: int


class Spans(Reply, frozen=True):
    """Spans in order; ``cursor`` asks for the next page, null on the last."""

    spans: list[Span]
    cursor: str | None = None


# --- resources ------------------------------------------------------------------------------------


class Publish(Request, frozen=True):
    """Store a new version of a run's resources."""

    run_id: str
    resources: dict[str, Resource]
    note: str = ""
    parent: Int64 | None = None
    candidate: bool = False
    key: str | None = None


class ResourcesOf(Request, frozen=True):
    """A version of a run's resources."""

    run_id: str
    version: Int64 | Literal["latest"] = "latest"


class OneVersion(Reply, frozen=True):
    """A version of a run's resources."""

    version: ResourcesVersion


# --- housekeeping ---------------------------------------------------------------------------------


class RunnerToken(Request, frozen=True):
    """A token for runners of one run, or of every run."""

    run_id: str | None = None


class StatisticsOf(Request, frozen=True):
    """Counts over a run, or over the whole store."""

    run_id: str | None = None


class Changes(Request, frozen=True):
    """Wait up to ``wait_s`` seconds for a change after the ones ``since`` stands for."""

    run_id: str | None = None
    on: Change | None = None
    since: str | None = None
    wait_s: float = 0.0


class Token(Reply, frozen=True):
    """A token, to be kept secret."""

    token: str


class Workers(Reply, frozen=True):
    """Workers, first seen first."""

    workers: list[Worker]


class Counts(Reply, frozen=True):
    """Counts by status."""

    statistics: Statistics


class Changed(Reply, frozen=True):
    """Whether something may have changed since; ``now`` is the next ``since``."""

    changed: bool
    now: str


Query = RolloutQuery
"""The request of ``rollouts``."""
