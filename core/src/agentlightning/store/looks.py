"""What is waited for: one look each at work to claim and at rollouts that are over."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from agentlightning.errors import BadValue, Deadline, StoreUnavailable
from agentlightning.records import ROLLOUT_OVER, Rollout
from agentlightning.store.contract import Store
from agentlightning.store.patient import PatientStore
from agentlightning.store.types import Claim, RolloutQuery

_PAGE: Final = 1000


class ClaimLook:
    """One look for something to claim; None means: go on waiting.

    A store behind a server is asked under one key: claims whose reply was lost come with the next look.
    """

    def __init__(self, store: Store, run_id: str | None, worker_id: str, limit: int) -> None:
        self._store = store
        self._run_id = run_id
        self._worker_id = worker_id
        self._limit = limit
        self._key = secrets.token_hex(16) if isinstance(store, PatientStore) else None

    def __call__(self) -> list[Claim] | None:
        """Claims; none of them if the run is closed."""
        claims = self._store.claim(self._run_id, self._worker_id, limit=self._limit, key=self._key)
        if claims:
            return claims
        is_closed = self._run_id is not None and self._store.run(self._run_id).status != "open"
        return [] if is_closed else None


class Over:
    """Which of some rollouts are over, as far as was seen."""

    def __init__(self, rollout_ids: Sequence[str], count: int | None) -> None:
        self._order = list(dict.fromkeys(rollout_ids))
        self._pending = set(self._order)
        self._over: dict[str, Rollout] = {}
        self._count = len(self._order) if count is None else count
        if not 0 <= self._count <= len(self._order):
            raise BadValue(
                f"waiting for {count} of {len(self._order)} rollouts; expected 0 to all of them"
            )

    @property
    def pending(self) -> list[str]:
        """Those not seen over yet, in the order given."""
        return [name for name in self._order if name in self._pending]

    @property
    def found(self) -> list[Rollout]:
        """Those that are over, in the order given."""
        return [self._over[name] for name in self._order if name in self._over]

    @property
    def missing(self) -> int:
        """How many more have to be over."""
        return max(0, self._count - len(self._over))

    def saw(self, rollouts: Iterable[Rollout]) -> list[Rollout] | None:
        """Take note of rollouts that are over; the answer once there are enough."""
        for rollout in rollouts:
            self._over[rollout.rollout_id] = rollout
            self._pending.discard(rollout.rollout_id)
        return None if self.missing else self.found

    def missed(self, timeout_s: float, trouble: StoreUnavailable | None) -> list[Rollout]:
        """Raise ``Deadline``; ``trouble`` is why the store could not be asked at the end."""
        why = None if trouble is None else f"the store could not be asked: {trouble}"
        raise Deadline(
            f"{len(self._over)} of {len(self._order)} rollouts were over after {timeout_s:g} s, "
            f"{self._count} were waited for; {why or 'is a runner at work on this store?'}"
        ) from trouble


class OverLook:
    """One look for rollouts that are over."""

    def __init__(self, store: Store, over: Over) -> None:
        self._store = store
        self._over = over

    def __call__(self) -> list[Rollout] | None:
        """Those that are over, in the order asked; None while they are too few."""
        names, found = self._over.pending, list[Rollout]()
        for start in range(0, len(names), _PAGE):
            query = RolloutQuery(
                rollout_ids=tuple(names[start : start + _PAGE]),
                status=tuple(ROLLOUT_OVER),
                limit=_PAGE,
            )
            found += self._store.rollouts(query).items
        return self._over.saw(found)
