"""Handing in results: each is kept in some way, and brings the next rollout where one is wanted."""

from __future__ import annotations

import logging

from agentlightning.errors import BadValue, LimitExceeded, StaleAttempt, StoreError
from agentlightning.llm_api import error_message
from agentlightning.recording.sink import Sink
from agentlightning.runner.claims import Claims
from agentlightning.runner.counts import Counts
from agentlightning.runner.execution import named
from agentlightning.runner.outcomes import failed
from agentlightning.runner.patience import patiently
from agentlightning.store import Claim, Result, Store

logger = logging.getLogger("agentlightning.runner")


class Finishing:
    """Stores results; one that comes too late, or that the store refuses, ends no worker.

    Args:
        store: where results go.
        sink: takes the spans of a result that is refused.
        claims: what a busy worker gets its next rollout from, with the same call.
        counts: counts results that came too late.
        patience_s: how long the store may be unavailable.
    """

    def __init__(
        self, store: Store, sink: Sink, claims: Claims, counts: Counts, *, patience_s: float
    ) -> None:
        self._store = store
        self._sink = sink
        self._claims = claims
        self._counts = counts
        self._patience_s = patience_s

    def finish(self, result: Result, *, and_claim: bool) -> Claim | None:
        """Store a result.

        Args:
            result: of an attempt of this runner.
            and_claim: whoever calls takes the next rollout, if there is one.

        Raises:
            StoreUnavailable: the store could not be reached for too long.
        """
        if result.outcome.error:
            status, error_text = result.outcome.status, result.outcome.error
            logger.warning("%s %s: %s", named(result.key), status.replace("_", " "), error_text)
        try:
            if and_claim:
                return self._turn_over(result)
            self._end(result)
        except (BadValue, LimitExceeded) as error:
            why = error_message(error)
            logger.error("the store refused the result of %s: %s", named(result.key), why)  # noqa: TRY400 - the message says it all
            self._finish_without(result, error)
        return None

    def give_back(self, result: Result) -> None:
        """Let somebody else have an unfinished attempt, now or, if that fails, when its lease ends."""
        try:
            self._store.finish([result])
        except StaleAttempt as error:
            self._count_late(str(error))
        except StoreError as error:
            logger.warning(
                "%s could not be given back (%s); it is queued again when its lease has run out",
                named(result.key),
                error_message(error),
            )

    def _turn_over(self, result: Result) -> Claim | None:
        turnover = self._claims.turn_over([result])
        for key in turnover.late:
            self._count_late(f"the result of {named(key)} came too late and was dropped")
        return turnover.claims[0] if turnover.claims else None

    def _end(self, result: Result) -> None:
        try:
            patiently(
                lambda: self._store.finish([result]),
                what="finish a rollout",
                deadline_s=self._patience_s,
            )
        except StaleAttempt as error:
            self._count_late(str(error))

    def _count_late(self, message: str) -> None:
        self._counts.add("stale")
        logger.debug(message)

    def _finish_without(self, result: Result, refusal: Exception) -> None:
        """Fail an attempt whose result the store refused; what was recorded is kept."""
        for span in result.spans:  # one by one: it may be one of them that was refused
            self._sink.add(span)
        self._sink.flush()
        self._end(Result(key=result.key, outcome=failed(refusal)))
