"""Each operation as the one call of the store that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from agentlightning.records import AttemptKey
from agentlightning.server.store_api.limits import MAX_CLAIMS, check_amount
from agentlightning.store import Store
from agentlightning.store.http import messages as m
from agentlightning.store.http import operations as ops
from agentlightning.store.http import transfer_messages as t

RequestT = TypeVar("RequestT", bound=msgspec.Struct)
ReplyT = TypeVar("ReplyT", bound=msgspec.Struct)
Call = Callable[[Store, RequestT], ReplyT]

CALLS: Final[dict[str, Call[Any, msgspec.Struct]]] = {}
"""How an operation is carried out, by its name; what may wait or comes in pages is not here."""


def _answers(
    operation: ops.Operation[RequestT, ReplyT],
) -> Callable[[Call[RequestT, ReplyT]], Call[RequestT, ReplyT]]:
    def register(call: Call[RequestT, ReplyT]) -> Call[RequestT, ReplyT]:
        CALLS[operation.name] = call
        return call

    return register


# --- runs -------------------------------------------------------------------------------------


@_answers(ops.CREATE_RUN)
def _create_run(store: Store, ask: m.CreateRun) -> m.OneRun:
    return m.OneRun(run=store.create_run(ask.name, ask.config, key=ask.key))


@_answers(ops.RUNS)
def _runs(store: Store, _ask: m.Nothing) -> m.Runs:
    return m.Runs(runs=store.runs())


@_answers(ops.RUN)
def _run(store: Store, ask: m.OfRun) -> m.OneRun:
    return m.OneRun(run=store.run(ask.run_id))


@_answers(ops.SET_RUN_STATUS)
def _set_run_status(store: Store, ask: m.SetRunStatus) -> m.OneRun:
    return m.OneRun(run=store.set_run_status(ask.run_id, ask.status))


@_answers(ops.SET_ENDPOINT)
def _set_endpoint(store: Store, ask: m.SetEndpoint) -> m.OneRun:
    return m.OneRun(run=store.set_endpoint(ask.run_id, ask.url))


@_answers(ops.SAVE_STATE)
def _save_state(store: Store, ask: m.SaveState) -> m.Done:
    store.save_state(ask.run_id, ask.state)
    return m.Done()


@_answers(ops.LOAD_STATE)
def _load_state(store: Store, ask: m.OfRun) -> m.State:
    return m.State(state=store.load_state(ask.run_id))


@_answers(ops.LOG_METRICS)
def _log_metrics(store: Store, ask: m.LogMetrics) -> m.Done:
    store.log_metrics(ask.run_id, ask.step, ask.values)
    return m.Done()


@_answers(ops.METRICS)
def _metrics(store: Store, ask: m.OfRun) -> m.MetricsOfRun:
    return m.MetricsOfRun(metrics=store.metrics(ask.run_id))


# --- rollouts and attempts --------------------------------------------------------------------


@_answers(ops.ENQUEUE)
def _enqueue(store: Store, ask: m.Enqueue) -> m.Rollouts:
    return m.Rollouts(rollouts=store.enqueue(ask.run_id, ask.requests, key=ask.key))


@_answers(ops.BEGIN)
def _begin(store: Store, ask: m.Begin) -> m.Claims:
    return m.Claims(claims=[store.begin(ask.run_name, ask.request, ask.worker_id, key=ask.key)])


@_answers(ops.HEARTBEAT)
def _heartbeat(store: Store, ask: m.Heartbeat) -> m.Orders:
    orders = store.heartbeat(ask.worker_id, ask.attempts, ask.report)
    return m.Orders(orders=list(orders.items()))


@_answers(ops.FINISH)
def _finish(store: Store, ask: m.Finish) -> m.Rollouts:
    return m.Rollouts(rollouts=store.finish(ask.results))


@_answers(ops.FINISH_AND_CLAIM)
def _finish_and_claim(store: Store, ask: m.FinishAndClaim) -> m.TurnedOver:
    check_claims(ask.limit)
    turnover = store.finish_and_claim(
        ask.results, ask.run_id, ask.worker_id, limit=ask.limit, key=ask.key
    )
    return m.TurnedOver(
        rollouts=turnover.rollouts,
        late=list(turnover.late),
        claims=turnover.claims,
        run_is_open=bool(turnover.claims) or is_open(store, ask.run_id),
    )


@_answers(ops.SET_REWARDS)
def _set_rewards(store: Store, ask: m.SetRewards) -> m.Done:
    store.set_rewards(ask.rewards)
    return m.Done()


@_answers(ops.CANCEL)
def _cancel(store: Store, ask: m.OfRollouts) -> m.Rollouts:
    return m.Rollouts(rollouts=store.cancel(ask.rollout_ids))


@_answers(ops.ATTEMPTS)
def _attempts(store: Store, ask: m.OfRollout) -> m.Attempts:
    return m.Attempts(attempts=store.attempts(ask.rollout_id))


@_answers(ops.EXPIRY)
def _expiry(store: Store, _ask: m.Nothing) -> m.Seconds:
    return m.Seconds(seconds=store.seconds_to_expiry())


@_answers(ops.CHECK_TOKEN)
def _check_token(store: Store, ask: m.CheckToken) -> m.Answer:
    return m.Answer(answer=store.check_token(AttemptKey(ask.rollout_id, ask.number), ask.token))


# --- spans, resources, housekeeping -----------------------------------------------------------


@_answers(ops.ADD_SPANS)
def _add_spans(store: Store, ask: m.AddSpans) -> m.Count:
    return m.Count(count=store.add_spans(ask.spans))


@_answers(ops.PUBLISH)
def _publish(store: Store, ask: m.Publish) -> m.OneVersion:
    version = store.publish(
        ask.run_id,
        ask.resources,
        note=ask.note,
        parent=ask.parent,
        candidate=ask.candidate,
        key=ask.key,
    )
    return m.OneVersion(version=version)


@_answers(ops.RESOURCES)
def _resources(store: Store, ask: m.ResourcesOf) -> m.OneVersion:
    return m.OneVersion(version=store.resources(ask.run_id, ask.version))


@_answers(ops.EXPORT_ROWS)
def _export_rows(store: Store, ask: t.ExportRows) -> t.StoredRows:
    page = store.export_page(ask.run_id, ask.cursor)
    return t.StoredRows(rows=page.items, cursor=page.cursor)


@_answers(ops.IMPORT_ROWS)
def _import_rows(store: Store, ask: t.ImportRows) -> m.Count:
    return m.Count(count=store.import_rows(ask.rows))


@_answers(ops.RUNNER_TOKEN)
def _runner_token(store: Store, ask: m.RunnerToken) -> m.Token:
    return m.Token(token=store.access_token("runner", ask.run_id))


@_answers(ops.WORKERS)
def _workers(store: Store, _ask: m.Nothing) -> m.Workers:
    return m.Workers(workers=store.workers())


@_answers(ops.STATISTICS)
def _statistics(store: Store, ask: m.StatisticsOf) -> m.Counts:
    return m.Counts(statistics=store.statistics(ask.run_id))


def check_claims(limit: int) -> None:
    """Refuse to claim more than one reply should carry."""
    check_amount(limit, MAX_CLAIMS, "claims a request", "claim again for more")


def is_open(store: Store, run_id: str | None) -> bool:
    """Whether waiting for work makes sense."""
    return run_id is None or store.run(run_id).status == "open"
