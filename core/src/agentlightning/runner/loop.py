"""The runner: claims a rollout, runs the agent on it, finishes it, and again."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context

from agentlightning.agent import BoundAgent
from agentlightning.errors import BadValue, LimitExceeded, StaleAttempt
from agentlightning.llm_api import error_message
from agentlightning.recording.attempt import attempt
from agentlightning.recording.sink import Sink
from agentlightning.records import Resolver
from agentlightning.runner.claims import Claims
from agentlightning.runner.counts import Counts
from agentlightning.runner.execution import Ending, Execution, named
from agentlightning.runner.heart import Heart
from agentlightning.runner.outcomes import as_kept, failed, outcome_of
from agentlightning.runner.overdue import Overdue
from agentlightning.runner.patience import patiently
from agentlightning.runner.routing import resolver_for
from agentlightning.store import Claim, Result, Store

logger = logging.getLogger("agentlightning.runner")


def new_worker_id() -> str:
    """A name for this process that no other has: host, process id and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Runner:
    """Works on the rollouts of a run until it is closed or the runner is stopped.

    One a process; :meth:`work` is called by as many threads as rollouts are to run at once. They share
    one waiter for work, one thread of heartbeats and one sink. Whatever an agent raises ends its own
    attempt and nothing else.

    Args:
        run_id: whose rollouts; None for those of every run.
        resolver_factory: makes the routes of an attempt; by default every call goes to the run's model.
        strict: refuse LLM calls that nobody routed.
        has_reward_function: the run scores outputs itself, so a returned number is output only.
        patience_s: how long the store may be unavailable before the runner gives up.
        overdue: waits for agents that go on after their attempt is over.
    """

    def __init__(
        self,
        store: Store,
        run_id: str | None,
        agent: BoundAgent,
        *,
        resolver_factory: Callable[[Claim], Resolver] = resolver_for,
        strict: bool = False,
        has_reward_function: bool = False,
        worker_id: str | None = None,
        patience_s: float = 60.0,
        overdue: Overdue | None = None,
    ) -> None:
        self.worker_id = worker_id or new_worker_id()
        self._store = store
        self._agent = agent
        self._resolver_for = resolver_factory
        self._strict = strict
        self._has_reward_function = has_reward_function
        self._patience_s = patience_s
        self._counts = Counts()
        self._overdue = Overdue() if overdue is None else overdue
        self._heart = Heart(store, self.worker_id, self.report)
        self._claims = Claims(store, run_id, self.worker_id, patience_s=patience_s)
        self._sink = Sink(store)
        self._out_of_time = False
        self._working = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        """The same as :meth:`work`: what an executor calls."""
        self.work()

    def work(self) -> None:
        """Claim, run and finish rollouts, one at a time.

        Returns when the run is not open any more, or after :meth:`stop`.

        Raises:
            StoreUnavailable: the store could not be reached for longer than ``patience_s``.
        """
        with self._at_work():
            while (claim := self._claims.next()) is not None:
                self._counts.add("claimed")
                self._run(claim)

    def stop(self, deadline_s: float) -> None:
        """Claim no more, and wait for the attempts under way.

        Those that still run after ``deadline_s`` seconds are left to the store: once their lease has
        run out they are queued again, and that costs them no try.
        """
        self._claims.close()
        with self._changed:
            if self._changed.wait_for(lambda: not self._working, deadline_s):
                return
        self._out_of_time = True
        self._overdue.abandon()
        for execution in self._heart.executions():
            execution.give_up("stopped")

    def close(self) -> None:
        """Write what is not written yet; to be called when every :meth:`work` has returned.

        Raises:
            Deadline: the store did not take it in time.
        """
        self._sink.close()

    def report(self) -> dict[str, object]:
        """What is sent along with heartbeats: counts of attempts by how they ended, and of trouble."""
        return {
            "running": len(self._heart.executions()),
            "overdue": self._overdue.count,
            "failed_beats": self._heart.failed_beats,
            "refused_spans": self._sink.refused,
            **self._counts.report(),
        }

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """The first thread to come starts the heartbeats, the last one to go stops them."""
        with self._changed:
            self._working += 1
            if self._working == 1:
                self._heart.start()
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                if self._working == 0:
                    self._heart.stop()
                self._changed.notify_all()

    def _run(self, claim: Claim) -> None:
        try:
            resolve = self._resolver_for(claim)
        except Exception as error:  # noqa: BLE001 - a wrong set-up fails the rollout, with its reason
            self._refuse(claim, error)
            return
        ending, execution = self._perform(claim, resolve)
        try:
            self._conclude(execution, ending)
        finally:
            self._heart.remove(execution)
        self._overdue.wait_for(execution, of=self._working)

    def _refuse(self, claim: Claim, reason: Exception) -> None:
        """Fail an attempt that can't begin; its root span holds the reason, as with one that did."""
        try:
            with attempt(claim, self._sink, resolve=lambda _: None, name=self._agent.name):
                Ending("raised", error=reason).raise_error()
        except Exception as error:
            if error is not reason:
                raise
        self._finish(Result(key=claim.key, outcome=failed(reason), spans=self._sink.take(claim.key)))

    def _perform(self, claim: Claim, resolve: Resolver) -> tuple[Ending, Execution]:
        """Run the agent inside the attempt's recording, which sees why it failed."""
        ending: Ending | None = None
        try:
            with attempt(
                claim, self._sink, resolve=resolve, strict=self._strict, name=self._agent.name
            ) as context:
                self._counts.follow(context.life)
                execution = Execution(self._agent, claim, context.life)
                self._heart.add(execution)
                if self._out_of_time:  # claimed in the moment of a stop
                    execution.give_up("stopped")
                execution.start(copy_context())
                ending = as_kept(claim, execution.wait(), has_reward_function=self._has_reward_function)
                ending.raise_error()
        except BaseException as error:
            if ending is None or error is not ending.error:
                raise
        return ending, execution

    def _conclude(self, execution: Execution, ending: Ending) -> None:
        claim = execution.claim
        self._counts.add(ending.reason)
        if ending.reason in ("lost", "stopped"):
            logger.debug("%s: %s", execution, ending.error)
            return
        outcome, rewards = outcome_of(ending)
        self._finish(
            Result(key=claim.key, outcome=outcome, spans=(*self._sink.take(claim.key), *rewards))
        )

    def _finish(self, result: Result) -> None:
        if result.outcome.error:
            status, error_text = result.outcome.status, result.outcome.error
            logger.warning("%s %s: %s", named(result.key), status.replace("_", " "), error_text)
        try:
            self._store_result(result)
        except StaleAttempt as error:
            self._counts.add("stale")
            logger.debug("%s", error)
        except (BadValue, LimitExceeded) as error:
            why = error_message(error)
            logger.error("the store refused the result of %s: %s", named(result.key), why)  # noqa: TRY400 - the message says it all
            self._finish_without(result, error)

    def _finish_without(self, result: Result, refusal: Exception) -> None:
        """Fail an attempt whose result the store refused; what was recorded is kept."""
        for span in result.spans:  # one by one: it may be one of them that was refused
            self._sink.add(span)
        self._sink.flush()
        self._store_result(Result(key=result.key, outcome=failed(refusal)))

    def _store_result(self, result: Result) -> None:
        patiently(
            lambda: self._store.finish([result]), what="finish a rollout", deadline_s=self._patience_s
        )
