"""A rollout outside any run: begun, kept alive, recorded and finished in one ``with``."""

from __future__ import annotations

import contextvars
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from agentlightning import semconv
from agentlightning.errors import StaleAttempt, StoreError
from agentlightning.llm_api import error_line, scrub
from agentlightning.otlp import shared_exporter
from agentlightning.recording.attempt import attempt
from agentlightning.recording.context import AttemptLife, RolloutContext
from agentlightning.recording.sink import Sink
from agentlightning.records import (
    JSON,
    Outcome,
    Passthrough,
    Resolver,
    Rollout,
    RolloutConfig,
    RolloutRequest,
)
from agentlightning.samples import outcome, recorded_rules
from agentlightning.store import Claim, Order, Result, RolloutQuery, Store

logger = logging.getLogger("agentlightning.recording")

LOCAL_RUN: Final = "local"
"""The run that holds what was recorded outside of any other."""


class OwnRollout:
    """A rollout that this code runs itself.

    Attributes:
        output: what is stored as the rollout's output when it ends.
    """

    def __init__(self, claim: Claim, context: RolloutContext) -> None:
        self.claim = claim
        self.context = context
        self.output: JSON = None


@contextmanager
def own_rollout(store: Store, *, name: str, input: Any, why: str) -> Iterator[OwnRollout]:  # noqa: A002 - the record's own word
    """Run the body as a new rollout of the run ``local``.

    Args:
        store: where it is kept.
        name: the agent's name.
        input: the task, recorded as JSON.
        why: the reason its LLM calls are left alone, kept with each.

    Raises:
        StoreError: it could not be begun or stored; the body's own exception comes first.
    """
    request = RolloutRequest(
        input=scrub(input),
        mode="test",
        config=RolloutConfig(max_lost=0),  # nobody else can take it up
        metadata={semconv.AGENT_NAME: name},
    )
    worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    claim = store.begin(LOCAL_RUN, request, worker)
    sink = Sink(store)
    resolve: Resolver = lambda _info: Passthrough(reason=why)  # noqa: E731 - its type is the point
    ending = Outcome(status="succeeded")
    try:
        with attempt(claim, sink, resolve=resolve, name=name) as context:
            mine = OwnRollout(claim, context)
            with _kept_alive(store, claim, worker, context.life):
                yield mine
        ending = Outcome(status="succeeded", output=scrub(mine.output))
    except BaseException as error:
        ending = Outcome(status="failed", error=error_line(error))
        raise
    finally:
        _finish(store, sink, claim, ending)


def _finish(store: Store, sink: Sink, claim: Claim, ending: Outcome) -> None:
    try:
        (rollout,) = store.finish([Result(key=claim.key, outcome=ending, spans=sink.take(claim.key))])
        keep_outcome(store, rollout)
        _send(store, claim)
    except StaleAttempt as error:
        logger.warning("the rollout's result was not taken: %s", error)
    except StoreError:
        if ending.status == "succeeded":
            raise
        logger.exception("rollout %s could not be stored", claim.rollout.rollout_id)
    finally:
        sink.close()


def _send(store: Store, claim: Claim) -> None:
    """Hand the rollout to the process's exporter, where there is one."""
    exporter = shared_exporter()
    if exporter is not None:
        name = claim.key.rollout_id
        (rollout,) = store.rollouts(RolloutQuery(rollout_ids=(name,))).items
        exporter.add(claim.run, rollout, list(store.spans([name])))


def keep_outcome(store: Store, rollout: Rollout) -> None:
    """Keep the outcome of the rewards recorded so far with the rollout, as a run's trainer does."""
    rules, _, _ = recorded_rules(rollout)
    spans = list(store.spans([rollout.rollout_id], kinds=["reward"]))
    if (value := outcome(rollout, spans, rules)) is not None:
        store.set_rewards({rollout.rollout_id: value})


@contextmanager
def _kept_alive(store: Store, claim: Claim, worker: str, life: AttemptLife) -> Iterator[None]:
    """Renew the lease while the body runs, and pass on an order to give up."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(claim.rollout.config.lease_s / 3):
            try:
                order = store.heartbeat(worker, [claim.key])[claim.key]
            except StoreError as error:
                logger.warning("no heartbeat for rollout %s: %s", claim.rollout.rollout_id, error)
                continue
            if order is not Order.CONTINUE and life.phase == "open":
                life.phase = "cancelled"

    thread = threading.Thread(target=beat, name="agentlightning-heartbeat", daemon=True)
    contextvars.Context().run(thread.start)
    try:
        yield
    finally:
        over.set()
        thread.join()
