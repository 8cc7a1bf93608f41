"""Everything that can be asked of a store over HTTP, each once, for server, client and OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from agentlightning import errors
from agentlightning.store.http import messages as m
from agentlightning.store.http import transfer_messages as t

PREFIX: Final = "/store/v1"
"""Every operation is ``POST {PREFIX}/{name}`` with a JSON body."""

MAX_WAIT_S: Final = 30.0
"""The longest a request is held back; who wants to wait longer asks again."""

MAX_PAGE: Final = 10_000
"""The most rollouts of one page; the client puts larger ones together."""

Who: TypeAlias = Literal["owner", "runner", "attempts"]
"""``owner``: the owner only. ``runner``: a runner too, within its run. ``attempts``: also whoever shows
the token of each attempt that the request is about."""

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
ReplyT = TypeVar("ReplyT", bound=msgspec.Struct)


@dataclass(frozen=True)
class Operation(Generic[RequestT, ReplyT]):
    """One thing that can be asked.

    Attributes:
        name: the last part of its path.
        request: the body's type.
        reply: the type of the answer to a request that was carried out (status 200).
        who: whose token is good for it.
        summary: one line for the OpenAPI document.
    """

    name: str
    request: type[RequestT]
    reply: type[ReplyT]
    who: Who
    summary: str

    @property
    def path(self) -> str:
        """Where it is asked."""
        return f"{PREFIX}/{self.name}"


CREATE_RUN = Operation("create_run", m.CreateRun, m.OneRun, "owner", "Open a run")
RUNS = Operation("runs", m.Nothing, m.Runs, "owner", "List runs")
RUN = Operation("run", m.OfRun, m.OneRun, "runner", "Show a run")
SET_RUN_STATUS = Operation("set_run_status", m.SetRunStatus, m.OneRun, "owner", "Close or reopen a run")
SET_ENDPOINT = Operation("set_endpoint", m.SetEndpoint, m.OneRun, "owner", "Say where a run is served")
SAVE_STATE = Operation("save_state", m.SaveState, m.Done, "owner", "Keep an algorithm's state")
LOAD_STATE = Operation("load_state", m.OfRun, m.State, "owner", "Read an algorithm's state")
LOG_METRICS = Operation("log_metrics", m.LogMetrics, m.Done, "owner", "Add numbers to a step")
METRICS = Operation("metrics", m.OfRun, m.MetricsOfRun, "owner", "Read a run's numbers")

ENQUEUE = Operation("enqueue", m.Enqueue, m.Rollouts, "owner", "Queue rollouts")
CLAIM = Operation("claim", m.ClaimWork, m.Claims, "runner", "Take work, waiting for it if asked to")
STOP_WAITING = Operation(
    "stop_waiting", m.StopWaiting, m.Done, "runner", "End a worker's waiting claims"
)
BEGIN = Operation("begin", m.Begin, m.Claims, "owner", "Queue a rollout and take it, in one step")
HEARTBEAT = Operation("heartbeat", m.Heartbeat, m.Orders, "attempts", "Renew leases")
FINISH = Operation("finish", m.Finish, m.Rollouts, "attempts", "End attempts")
FINISH_AND_CLAIM = Operation(
    "finish_and_claim",
    m.FinishAndClaim,
    m.TurnedOver,
    "attempts",
    "End attempts and take the next work",
)
SET_REWARDS = Operation("set_rewards", m.SetRewards, m.Done, "owner", "Store outcomes")
CANCEL = Operation("cancel", m.OfRollouts, m.Rollouts, "owner", "Cancel rollouts")
ROLLOUTS = Operation("rollouts", m.Query, m.Rollouts, "owner", "List rollouts")
ATTEMPTS = Operation("attempts", m.OfRollout, m.Attempts, "owner", "List a rollout's attempts")
WAIT_OVER = Operation("wait_over", m.WaitOver, m.Rollouts, "owner", "Wait for rollouts to be over")
EXPIRY = Operation("seconds_to_expiry", m.Nothing, m.Seconds, "runner", "When the next lease ends")
CHECK_TOKEN = Operation(
    "check_token", m.CheckToken, m.Answer, "owner", "Whether a token is an attempt's"
)

ADD_SPANS = Operation("add_spans", m.AddSpans, m.Count, "attempts", "Store spans")
SPANS = Operation("spans", m.SpansOf, m.Spans, "owner", "Read spans")

PUBLISH = Operation("publish", m.Publish, m.OneVersion, "owner", "Store new resources")
RESOURCES = Operation("resources", m.ResourcesOf, m.OneVersion, "runner", "Read resources")

EXPORT_ROWS = Operation("export_rows", t.ExportRows, t.StoredRows, "owner", "Read a run to move it")
IMPORT_ROWS = Operation("import_rows", t.ImportRows, m.Count, "owner", "Add a run of another store")

RUNNER_TOKEN = Operation("runner_token", m.RunnerToken, m.Token, "owner", "Make a token for runners")
WORKERS = Operation("workers", m.Nothing, m.Workers, "owner", "List workers")
STATISTICS = Operation("statistics", m.StatisticsOf, m.Counts, "owner", "Count by status")
CHANGES = Operation("changes", m.Changes, m.Changed, "runner", "Wait for a change")

OPERATIONS: Final[tuple[Operation[msgspec.Struct, msgspec.Struct], ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Operation)
)

STATUS: Final[dict[type[errors.AgentLightningError], int]] = {
    errors.BadValue: 400,
    errors.RewardError: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.UnknownRun: 404,
    errors.UnknownRollout: 404,
    errors.UnknownAttempt: 404,
    errors.UnknownResources: 404,
    errors.StaleAttempt: 409,
    errors.InvalidTransition: 409,
    errors.KeyReused: 409,
    errors.LimitExceeded: 413,
    errors.SchemaMismatch: 500,
    errors.DamagedRecord: 500,
    errors.StoreUnavailable: 503,
}
"""The HTTP status of each error; the body is a :class:`~agentlightning.store.http.messages.Refusal`."""
