"""The store behind a server, as any other store: ``http://host:port``."""

# ruff: noqa: D102  (Store says what each method does)

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NoReturn

from msgspec.structs import replace

from agentlightning.errors import BadValue, StaleAttempt, StoreClosed
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
from agentlightning.store import checks
from agentlightning.store.http import messages as m
from agentlightning.store.http import operations as ops
from agentlightning.store.http import transfer_messages as t
from agentlightning.store.http.address import address_of, token_for
from agentlightning.store.http.asking import Asker
from agentlightning.store.http.attempt_tokens import AttemptTokens, ProvedTokens
from agentlightning.store.http.feed import Feed
from agentlightning.store.http.pages import pages
from agentlightning.store.http.transport import RETRY_S, Transport
from agentlightning.store.patient import PatientStore
from agentlightning.store.tokens import read_access
from agentlightning.store.transfer import StoredRow
from agentlightning.store.transfer_import import checked_rows
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


class HttpStore(PatientStore):
    """A store behind a server: ``agl store serve`` there, this object here.

    It answers as the store there would, and raises the same errors. What it is given is checked before
    it is sent. A request that is lost is sent again for some seconds, and then is ``StoreUnavailable``;
    writes happen once nevertheless, since each can be repeated or carries an idempotency key. (A
    repeated :meth:`add_spans` counts as new only what the lost one had not stored.) Opening it asks
    nothing, so a worker may start before its server does.

    One call is one request and one transaction there, with two exceptions. Spans of more than 8 MB are
    stored in several, as several calls of :meth:`add_spans` would. Results that come with as much are
    finished together, after their spans have been stored. Anything else that is larger than the server
    takes is ``LimitExceeded``, and nothing of it is done. One claim takes at most 1,000 rollouts.

    Args:
        url: the URL that the server printed. It holds no secret.
        token: the owner's or a runner's; the environment variable ``AGENTLIGHTNING_STORE_TOKEN`` if
            None. With a runner's the store can be worked for, and the tokens of the attempts claimed
            are sent along where they are needed.
        retry_s: for how many seconds a request that gets no answer is sent again.

    Raises:
        ConfigError: the URL is not one, or has a secret in it.
        Unauthorized: there is no token.
    """

    def __init__(self, url: str, *, token: str | None = None, retry_s: float = RETRY_S) -> None:
        address = address_of(url)
        self.url = address.url
        self._token = token_for(self.url, token)
        self._transport = Transport(address, self._token, retry_s=retry_s)
        self._feed = Feed(self._transport)
        self._tokens = AttemptTokens(needed=read_access(self._token) != ("owner", None))
        self._asker = Asker(self._transport, self._tokens)
        self._proved = ProvedTokens()

    # --- runs -----------------------------------------------------------------------------

    def create_run(self, name: str, config: JSON, *, key: str | None = None) -> Run:
        config = checks.json_value(config, "the run's config")
        return self._asker.ask(
            ops.CREATE_RUN, m.CreateRun(name=name, config=config, key=_once(key))
        ).run

    def runs(self) -> list[Run]:
        return self._asker.ask(ops.RUNS, m.Nothing()).runs

    def run(self, run_id: str) -> Run:
        return self._asker.ask(ops.RUN, m.OfRun(run_id=run_id)).run

    def set_run_status(self, run_id: str, status: RunStatus) -> Run:
        status = checks.run_status(status)
        return self._asker.ask(ops.SET_RUN_STATUS, m.SetRunStatus(run_id=run_id, status=status)).run

    def set_endpoint(self, run_id: str, url: str | None) -> Run:
        return self._asker.ask(ops.SET_ENDPOINT, m.SetEndpoint(run_id=run_id, url=url)).run

    def save_state(self, run_id: str, state: Mapping[str, JSON]) -> None:
        plain = checks.json_object(state, "the algorithm's state")
        self._asker.ask(ops.SAVE_STATE, m.SaveState(run_id=run_id, state=plain))

    def load_state(self, run_id: str) -> dict[str, JSON] | None:
        return self._asker.ask(ops.LOAD_STATE, m.OfRun(run_id=run_id)).state

    def log_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        finite = checks.numbers(values, f"metrics of step {step}")
        self._asker.ask(ops.LOG_METRICS, m.LogMetrics(run_id=run_id, step=step, values=finite))

    def metrics(self, run_id: str) -> list[Metrics]:
        return self._asker.ask(ops.METRICS, m.OfRun(run_id=run_id)).metrics

    # --- rollouts and attempts ------------------------------------------------------------

    def enqueue(
        self, run_id: str, requests: Sequence[RolloutRequest], *, key: str | None = None
    ) -> list[Rollout]:
        checked = [checks.request(item, number) for number, item in enumerate(requests)]
        request = m.Enqueue(run_id=run_id, requests=checked, key=_once(key))
        return self._asker.ask(ops.ENQUEUE, request).rollouts

    def claim(
        self, run_id: str | None, worker_id: str, *, limit: int = 1, key: str | None = None
    ) -> list[Claim]:
        return self.claim_waiting(run_id, worker_id, limit=limit, timeout_s=0.0, key=key)[0]

    def claim_waiting(
        self,
        run_id: str | None,
        worker_id: str,
        *,
        limit: int = 1,
        timeout_s: float,
        key: str | None = None,
    ) -> tuple[list[Claim], bool]:
        wait_s = _held_back(timeout_s)
        request = m.ClaimWork(
            run_id=run_id, worker_id=worker_id, limit=limit, key=_once(key), wait_s=wait_s
        )
        reply = self._asker.ask(ops.CLAIM, request, wait_s=wait_s)
        self._tokens.keep(reply.claims)
        return reply.claims, reply.run_is_open

    def stop_waiting(self, worker_id: str) -> None:
        self._asker.ask(ops.STOP_WAITING, m.StopWaiting(worker_id=worker_id))

    def begin(
        self, run_name: str, request: RolloutRequest, worker_id: str, *, key: str | None = None
    ) -> Claim:
        checked = checks.request(request, 0)
        asked = m.Begin(run_name=run_name, request=checked, worker_id=worker_id, key=_once(key))
        (claim,) = self._asker.ask(ops.BEGIN, asked).claims
        self._tokens.keep([claim])
        return claim

    def heartbeat(
        self, worker_id: str, attempts: Sequence[AttemptKey], report: dict[str, JSON] | None = None
    ) -> dict[AttemptKey, Order]:
        if report is not None:
            report = checks.json_object(report, f"the report of worker {worker_id}")
        request = m.Heartbeat(
            worker_id=worker_id,
            attempts=list(attempts),
            report=report,
            tokens=self._tokens.of(attempts),
        )
        orders = dict(self._asker.ask(ops.HEARTBEAT, request).orders)
        self._tokens.renew(key for key, order in orders.items() if order is not Order.LOST)
        return orders

    def finish(self, results: Sequence[Result]) -> list[Rollout]:
        checked = checks.results(results)
        keys = [result.key for result in checked]
        request = m.Finish(results=checked, tokens=self._tokens.of(keys))
        try:
            rollouts = self._asker.with_spans(ops.FINISH, request).rollouts
        except StaleAttempt:
            self._tokens.end(keys)
            raise
        self._tokens.end(keys)
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
        keys = [result.key for result in checked]
        request = m.FinishAndClaim(
            results=checked,
            run_id=run_id,
            worker_id=worker_id,
            limit=limit,
            key=_once(key),
            tokens=self._tokens.of(keys),
        )
        done = self._asker.with_spans(ops.FINISH_AND_CLAIM, request)
        self._tokens.end(keys)
        self._tokens.keep(done.claims)
        return Turnover(rollouts=done.rollouts, late=tuple(done.late), claims=done.claims)

    def set_rewards(self, rewards: Mapping[str, float | None]) -> None:
        checked = {name: checks.reward(name, value) for name, value in rewards.items()}
        self._asker.ask(ops.SET_REWARDS, m.SetRewards(rewards=checked))

    def cancel(self, rollout_ids: Sequence[str]) -> list[Rollout]:
        return self._asker.ask(ops.CANCEL, m.OfRollouts(rollout_ids=list(rollout_ids))).rollouts

    def rollouts(self, query: RolloutQuery) -> Page[Rollout]:
        found: list[Rollout] = []
        cursor = query.cursor
        while True:  # the server may have put less on a page than was asked for
            limit = min(query.limit - len(found), ops.MAX_PAGE)
            page = self._asker.ask(ops.ROLLOUTS, replace(query, cursor=cursor, limit=limit))
            found += page.rollouts
            cursor = page.cursor
            if cursor is None or len(found) >= query.limit:
                return Page(items=found, cursor=cursor)

    def attempts(self, rollout_id: str) -> list[Attempt]:
        return self._asker.ask(ops.ATTEMPTS, m.OfRollout(rollout_id=rollout_id)).attempts

    def wait_over(
        self, rollout_ids: Sequence[str], *, timeout_s: float, count: int | None = None
    ) -> list[Rollout]:
        wait_s = _held_back(timeout_s)
        request = m.WaitOver(rollout_ids=list(rollout_ids), count=count, wait_s=wait_s)
        return self._asker.ask(ops.WAIT_OVER, request, wait_s=wait_s).rollouts

    def seconds_to_expiry(self) -> float | None:
        return self._asker.ask(ops.EXPIRY, m.Nothing()).seconds

    def check_token(self, key: AttemptKey, token: str) -> bool:
        """See :meth:`Store.check_token`; a token once found to be right is not asked about again."""
        if (key, token) in self._proved:
            self._transport.check_usable()
            return True
        request = m.CheckToken(rollout_id=key.rollout_id, number=key.number, token=token)
        is_right = self._asker.ask(ops.CHECK_TOKEN, request).answer
        if is_right:
            self._proved.add(key, token)
        return is_right

    def access_token(self, role: AccessRole, run_id: str | None = None) -> str:
        """See :meth:`Store.access_token`; only an owner may ask. The server sends no owner's token."""
        if role == "owner":
            if run_id is not None:
                raise BadValue(f"an owner's token is for the whole store; run_id is {run_id!r}")
            self._asker.ask(ops.RUNNER_TOKEN, m.RunnerToken())  # Forbidden, unless ours is the owner's
            return self._token
        return self._asker.ask(ops.RUNNER_TOKEN, m.RunnerToken(run_id=run_id)).token

    # --- spans ----------------------------------------------------------------------------

    def add_spans(self, spans: Sequence[Span]) -> int:
        return self._asker.add_spans([checks.span(span) for span in spans])

    def spans(
        self,
        rollout_ids: Sequence[str],
        *,
        attempt: int | Literal["last", "all"] = "last",
        kinds: Sequence[SpanKind] | None = None,
    ) -> Iterator[Span]:
        request = m.SpansOf(
            rollout_ids=list(rollout_ids),
            attempt=attempt,
            kinds=None if kinds is None else list(kinds),
        )
        first = self._asker.ask(
            ops.SPANS, request
        )  # now, for an unknown id is told before anything is read
        following = pages(
            first, lambda cursor: self._asker.ask(ops.SPANS, replace(request, cursor=cursor))
        )
        return (span for page in following for span in page.spans)

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
        request = m.Publish(
            run_id=run_id,
            resources=checks.resources(resources),
            note=note,
            parent=parent,
            candidate=candidate,
            key=_once(key),
        )
        return self._asker.ask(ops.PUBLISH, request).version

    def resources(self, run_id: str, version: int | Literal["latest"]) -> ResourcesVersion:
        return self._asker.ask(ops.RESOURCES, m.ResourcesOf(run_id=run_id, version=version)).version

    # --- moving a run to another store ----------------------------------------------------

    def export_page(self, run_id: str, cursor: str | None = None) -> Page[StoredRow]:
        page = self._asker.ask(ops.EXPORT_ROWS, t.ExportRows(run_id=run_id, cursor=cursor))
        return Page(items=page.rows, cursor=page.cursor)

    def import_rows(self, rows: Sequence[StoredRow]) -> int:
        return self._asker.ask(ops.IMPORT_ROWS, t.ImportRows(rows=checked_rows(rows))).count

    # --- housekeeping ---------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        return self._asker.ask(ops.WORKERS, m.Nothing()).workers

    def statistics(self, run_id: str | None = None) -> Statistics:
        return self._asker.ask(ops.STATISTICS, m.StatisticsOf(run_id=run_id)).statistics

    def watch(
        self, run_id: str | None, wake: Callable[[], None], *, on: Change | None = None
    ) -> Callable[[], None]:
        """See :meth:`Store.watch`; while the server is away, watchers are woken to find that out."""
        return self._feed.watch(run_id, wake, on)

    def close(self) -> None:
        self._transport.close()
        self._feed.close()

    def __reduce__(self) -> NoReturn:
        raise StoreClosed(
            f"the connections to the store {self.url} are this process's own; open the store again, by "
            "its URL, in the other process"
        )


def _once(key: str | None) -> str:
    """A key for a call that gave none, so that it can be repeated when its reply is lost."""
    return secrets.token_hex(16) if key is None else key


def _held_back(timeout_s: float) -> float:
    return min(max(timeout_s, 0.0), ops.MAX_WAIT_S)
