"""Forgetting the answers to claims that nobody asks for again.

Every claim over HTTP comes under an idempotency key, so each leaves an answer behind. It is of use as
long as its reply may have been lost: to a worker that has it not, or whose request was sent twice and
comes late. Some minutes after all its attempts are over it serves nobody, and is dropped. The answers
that a run resumes by, to ``create_run``, ``enqueue`` and ``publish``, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from agentlightning.store.repeats import keys_of
from agentlightning.store.tables import Answer, Tables

KEPT_S: Final = 600.0
"""How long an answer outlives its attempts; no request is under way for so long."""

EVERY: Final = 64
"""After so many claims some answers are looked at, in the transaction of the last of these claims."""

_LOOKED_AT: Final = 2 * EVERY
"""Twice as many as came since, so that there never are more than twice those that are of use."""


class Forgetting:
    """Where the looking through one store's answers has come to; a part of it at a time."""

    def __init__(self) -> None:
        self._claims: Counter[str] = Counter()
        self._after: dict[str, str | None] = {}

    def kept_one(self, tables: Tables, operation: str, now: float) -> None:
        """One more answer to ``operation`` is kept: drop some old ones when it is time for that."""
        self._claims[operation] += 1
        if self._claims[operation] % EVERY:
            return
        after = self._after.get(operation)
        found = tables.answers(operation, after=after, limit=_LOOKED_AT)
        dropped = _over_before(tables, found, now - KEPT_S)
        tables.drop_answers(operation, sorted(dropped))
        remaining = [key for key, _ in found if key not in dropped]
        is_end = len(found) < _LOOKED_AT
        self._after[operation] = None if is_end else (remaining[-1] if remaining else after)


def _over_before(tables: Tables, found: Sequence[tuple[str, Answer]], moment: float) -> set[str]:
    """The keys of those answers all of whose attempts were over by then."""
    named = {key: keys_of(answer.made) for key, answer in found}
    attempts = tables.attempts({of.rollout_id for made in named.values() for of in made})
    over = {
        attempt.key
        for of_rollout in attempts.values()
        for attempt in of_rollout
        if attempt.finished_at is not None and attempt.finished_at < moment
    }
    return {key for key, made in named.items() if over.issuperset(made)}
