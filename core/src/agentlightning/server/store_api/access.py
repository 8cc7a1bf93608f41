"""Who asks: the owner, a runner, or somebody with the token of an attempt."""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from agentlightning.errors import Forbidden, Unauthorized, UnknownRun
from agentlightning.records import AttemptKey
from agentlightning.store import Store
from agentlightning.store.tokens import read_access
from agentlightning.store.types import AccessRole

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,1024}=*")  # what RFC 6750 lets a bearer token be
_REMEMBERED: Final = 4096


@dataclass(frozen=True)
class Caller:
    """Whose token a request shows.

    Attributes:
        role: ``"attempt"`` is not proved yet: only an attempt's key says which token is its own.
        run_id: the one run a runner may work in; None for every run.
        token: what was shown.
    """

    role: AccessRole | Literal["attempt"]
    run_id: str | None
    token: str

    @property
    def is_owner(self) -> bool:
        """Whether everything is allowed."""
        return self.role == "owner"


class Access:
    """Tells callers by their tokens; remembers what the store said, for a look there costs more.

    Args:
        store: whose tokens are asked for.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._expected: dict[tuple[AccessRole, str | None], bytes] = {}
        self._lock = threading.Lock()

    def known(self, token: str) -> Caller | None:
        """The caller, if it can be told without asking the store.

        Raises:
            Unauthorized: there is no token, or one that no store can have made.
        """
        if not token:
            raise Unauthorized(
                'no token came with the request; expected a header "Authorization: Bearer TOKEN" with '
                "the token that the server printed when it started, or that came with a claim"
            )
        if not _TOKEN.fullmatch(token):
            raise _unknown()
        claimed = read_access(token)
        if claimed is None:
            return Caller("attempt", None, token)
        expected = self._expected.get(claimed)
        return None if expected is None else _proved(claimed, token, expected)

    def proved(self, token: str) -> Caller:
        """The caller; asks the store, so it is not for the event loop.

        Raises:
            Unauthorized: the store has no such token.
        """
        claimed = read_access(token)
        if claimed is None:
            return Caller("attempt", None, token)
        try:
            expected = self._store.access_token(*claimed).encode()
        except UnknownRun:
            raise _unknown() from None
        caller = _proved(claimed, token, expected)
        with self._lock:
            if len(self._expected) >= _REMEMBERED:
                self._expected.clear()
            self._expected[claimed] = expected
        return caller

    def check_attempts(
        self, caller: Caller, attempts: Collection[AttemptKey], tokens: Mapping[str, str]
    ) -> None:
        """Make sure that a caller has the token of every attempt it asks about.

        Args:
            caller: the owner needs none.
            attempts: what the request is about.
            tokens: the proofs in the request, by ``"rollout_id/number"``.

        Raises:
            Forbidden: a token is missing or another attempt's.
            Unauthorized: the caller's own token is no runner's and of none of the attempts.
        """
        if caller.is_owner:
            return
        own = caller.token if caller.role == "attempt" else None
        is_own_proved, unproved = False, None
        for key in attempts:
            if own is not None and self._store.check_token(key, own):
                is_own_proved = True
                continue
            name = f"{key.rollout_id}/{key.number}"
            token = tokens.get(name)
            if token is None or not self._store.check_token(key, token):
                unproved = unproved or name
        if own is not None and not is_own_proved:
            raise _unknown()
        if unproved is not None:
            raise Forbidden(
                f"nothing shows that the attempt {unproved} is yours; expected in `tokens`, under "
                f'"{unproved}", the token that came with its claim'
            )


def _proved(claimed: tuple[AccessRole, str | None], token: str, expected: bytes) -> Caller:
    if not hmac.compare_digest(expected, token.encode()):
        raise _unknown()
    role, run_id = claimed
    return Caller(role, run_id, token)


def _unknown() -> Unauthorized:
    return Unauthorized(
        "the token is not one that this store knows for what was asked; expected the owner's (printed "
        "when the server starts), a runner's (agl store token), or that of the attempt asked about"
    )
