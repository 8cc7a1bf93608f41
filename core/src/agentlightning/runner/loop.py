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
from typing import Final

from agentlightning.agent import BoundAgent
from agentlightning.errors import Deadline, StoreUnavailable
from agentlightning.recording.attempt import attempt
from agentlightning.recording.sink import Sink
from agentlightning.records import Outcome, Resolver, Run
from agentlightning.runner.claims import Claims
from agentlightning.runner.counts import Counts
from agentlightning.runner.execution import Ending, Execution
from agentlightning.runner.finishing import Finishing
from agentlightning.runner.heart import Heart
from agentlightning.runner.outcomes import as_kept, failed, outcome_of
from agentlightning.runner.overdue import Overdue
from agentlightning.runner.routing import resolver_for
from agentlightning.runner.settings import RunSettings, settings_of
from agentlightning.store import Claim, Result, Store

logger = logging.getLogger("agentlightning.runner")

_LAST_WORDS_S: Final = 1.0
"""What the sink gets to end where the store stays away: most often nothing is left to write."""


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
        settings: how the agent is run in a run; by default as the run itself says.
        patience_s: how long the store may be unavailable before the runner gives up.
        overdue: waits for agents that go on after their attempt is over.
    """

    def __init__(
        self,
        store: Store,
        run_id: str | None,
        agent: BoundAgent,
        *,
        settings: Callable[[Run], RunSettings] = settings_of,
        worker_id: str | None = None,
        patience_s: float = 60.0,
        overdue: Overdue | None = None,
    ) -> None:
        self.worker_id = worker_id or new_worker_id()
        self._agent = agent
        self._settings_of = settings
        self._counts = Counts()
        self._overdue = Overdue() if overdue is None else overdue
        self._heart = Heart(store, self.worker_id, self.report)
        self._claims = Claims(store, run_id, self.worker_id, patience_s=patience_s)
        self._sink = Sink(store)
        self._finishing = Finishing(
            store, self._sink, self._claims, self._counts, patience_s=patience_s
        )
        self._out_of_time = False
        self._gave_up = False
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
            try:
                claim = self._claims.next()
                while claim is not None:
                    self._counts.add("claimed")
                    claim = self._run(claim) or self._claims.next()
            except StoreUnavailable:
                self._gave_up = True
                raise
            self._overdue.abandon()  # nothing more is to be run, so nobody waits for a free slot

    def stop(self, deadline_s: float) -> None:
        """Claim no more, and wait for the attempts under way.

        Those that still run after ``deadline_s`` seconds are given back to the store, which queues them
        again; that costs them no try.
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
        if not self._gave_up:
            self._sink.close()
            return
        try:
            self._sink.close(timeout_s=_LAST_WORDS_S)
        except Deadline as error:  # the reason, that the store stayed away, is raised by work()
            logger.error("not all spans are in the store: %s", error)  # noqa: TRY400 - the message says it all

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
                    self._heart.stop(wait=not self._gave_up)
                self._changed.notify_all()

    def _run(self, claim: Claim) -> Claim | None:
        """Run one attempt; returns the next one, where finishing this one brought it."""
        try:
            settings = self._settings_of(claim.run)
            resolve = resolver_for(
                claim, trained_agents=settings.trained_agents, prompts=settings.prompts
            )
        except Exception as error:  # noqa: BLE001 - a wrong set-up fails the rollout, with its reason
            return self._refuse(claim, error)
        ending, execution = self._perform(claim, resolve, settings)
        try:
            following = self._conclude(execution, ending)
        finally:
            self._heart.remove(execution)
        self._overdue.wait_for(execution, of=self._working)
        return following

    def _refuse(self, claim: Claim, reason: Exception) -> Claim | None:
        """Fail an attempt that can't begin; its root span holds the reason, as with one that did."""
        self._counts.add("raised")
        try:
            with attempt(claim, self._sink, resolve=lambda _: None, name=self._agent.name):
                Ending("raised", error=reason).raise_error()
        except Exception as error:
            if error is not reason:
                raise
        result = Result(key=claim.key, outcome=failed(reason), spans=self._sink.take(claim.key))
        return self._finishing.finish(result, and_claim=not self._claims.closed)

    def _perform(
        self, claim: Claim, resolve: Resolver, settings: RunSettings
    ) -> tuple[Ending, Execution]:
        """Run the agent inside the attempt's recording, which sees why it failed."""
        ending: Ending | None = None
        scored = settings.has_reward_function
        try:
            with attempt(
                claim, self._sink, resolve=resolve, strict=settings.strict, name=self._agent.name
            ) as context:
                self._counts.follow(context.life)
                execution = Execution(self._agent, claim, context.life)
                self._heart.add(execution)
                if self._out_of_time:  # claimed in the moment of a stop
                    execution.give_up("stopped")
                execution.start(copy_context())
                ending = as_kept(claim, execution.wait(), has_reward_function=scored)
                ending.raise_error()
        except BaseException as error:
            if ending is None or error is not ending.error:
                raise
        return ending, execution

    def _conclude(self, execution: Execution, ending: Ending) -> Claim | None:
        """Hand in what came of it. A thread that its agent still holds takes nothing new with it."""
        claim = execution.claim
        self._counts.add(ending.reason)
        if ending.reason == "lost":
            logger.debug("%s: %s", execution, ending.error)
            return None
        if ending.reason == "stopped":
            self._finishing.give_back(
                Result(
                    key=claim.key,
                    outcome=Outcome(status="lost", error=f"worker {self.worker_id} was stopped"),
                    spans=self._sink.take(claim.key),
                )
            )
            return None
        outcome, rewards = outcome_of(ending)
        result = Result(key=claim.key, outcome=outcome, spans=(*self._sink.take(claim.key), *rewards))
        is_free = execution.at_rest.is_set() and not self._claims.closed
        return self._finishing.finish(result, and_claim=is_free)
