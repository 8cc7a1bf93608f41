"""The tokens of attempts that a client holds or has seen proved."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from agentlightning.records import AttemptKey
from agentlightning.store.http.messages import Tokens
from agentlightning.store.types import Claim

_LONG_GONE_S: Final = 3600.0
_LOOK_EVERY_S: Final = 60.0
_REMEMBERED: Final = 10_000


class AttemptTokens:
    """Tokens that claims came with, to be shown with whatever is done to those attempts.

    A runner's own token lets it claim and no more. The token of an attempt that is over is kept for a
    while, because its last spans may come late: of the latest 10,000. That of an attempt that was never
    finished goes when its lease has been over for an hour.

    Args:
        needed: False for an owner, who may do everything; then none is kept.
    """

    def __init__(self, *, needed: bool) -> None:
        self._needed = needed
        self._lock = threading.Lock()
        self._running: dict[AttemptKey, tuple[str, float, float]] = {}  # token, lease, until when
        self._over: OrderedDict[AttemptKey, str] = OrderedDict()
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._running) + len(self._over)

    def keep(self, claims: Iterable[Claim]) -> None:
        """Remember what these claims came with."""
        if not self._needed:
            return
        now = time.monotonic()
        with self._lock:
            for claim in claims:
                lease_s = claim.rollout.config.lease_s
                self._running[claim.key] = (claim.token, lease_s, now + lease_s)
            if now >= self._look_at:
                self._look_at = now + _LOOK_EVERY_S
                self._forget_before(now - _LONG_GONE_S)

    def renew(self, keys: Iterable[AttemptKey]) -> None:
        """Their leases begin anew."""
        now = time.monotonic()
        with self._lock:
            for key in keys:
                if known := self._running.get(key):
                    token, lease_s, _ = known
                    self._running[key] = (token, lease_s, now + lease_s)

    def end(self, keys: Iterable[AttemptKey]) -> None:
        """These attempts are over."""
        with self._lock:
            for key in keys:
                if known := self._running.pop(key, None):
                    self._over[key] = known[0]
            while len(self._over) > _REMEMBERED:
                self._over.popitem(last=False)

    def of(self, keys: Iterable[AttemptKey]) -> Tokens:
        """What there is for these attempts, as a request shows it."""
        if not self._needed:
            return {}
        found = {}
        with self._lock:
            for key in keys:
                known = self._running.get(key)
                token = self._over.get(key) if known is None else known[0]
                if token is not None:
                    found[f"{key.rollout_id}/{key.number}"] = token
        return found

    def _forget_before(self, moment: float) -> None:
        gone = [key for key, (_, _, until) in self._running.items() if until < moment]
        for key in gone:
            del self._running[key]


class ProvedTokens:
    """Tokens that the store has said are an attempt's: that stays true, and is not asked again.

    The latest 10,000; the endpoint of a run asks before every LLM call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._proved: OrderedDict[tuple[AttemptKey, str], None] = OrderedDict()

    def __contains__(self, proof: tuple[AttemptKey, str]) -> bool:
        with self._lock:
            if proof not in self._proved:
                return False
            self._proved.move_to_end(proof)
            return True

    def add(self, key: AttemptKey, token: str) -> None:
        """Remember that this is the attempt's token."""
        with self._lock:
            self._proved[key, token] = None
            if len(self._proved) > _REMEMBERED:
                self._proved.popitem(last=False)
