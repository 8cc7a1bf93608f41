"""Tokens: proof that whoever shows one was given it by this store.

A token is an HMAC under the store's own random secret: of an attempt's key, or of a role. Nothing has
to be stored or looked up for one, a token says nothing about any other, and all are good for as long
as the store keeps its secret, however often a server in front of it is started.
"""

from __future__ import annotations

import hmac
import secrets

from agentlightning.errors import BadValue
from agentlightning.records import AttemptKey
from agentlightning.store.types import AccessRole

_PREFIX = "agl-"
_BYTES = 32


def new_secret() -> bytes:
    """A random secret, made once for each store and kept by it."""
    return secrets.token_bytes(_BYTES)


def token_for(secret: bytes, key: AttemptKey) -> str:
    """The token that is good for the attempt ``key`` only."""
    digest = hmac.digest(secret, f"{key.rollout_id}/{key.number}".encode(), "sha256")
    return _PREFIX + digest.hex()


def access_token(secret: bytes, role: AccessRole, run_id: str | None = None) -> str:
    """The token of a role; a runner's may be for one run only, which it names in the clear."""
    if role == "owner" and run_id is not None:
        raise BadValue(f"an owner's token is for the whole store; run_id is {run_id!r}, expected None")
    scope = role if run_id is None else f"{role}-{run_id}"
    return f"{_PREFIX}{scope}-{hmac.digest(secret, f'access/{scope}'.encode(), 'sha256').hex()}"


def read_access(token: str) -> tuple[AccessRole, str | None] | None:
    """The role and run that an access token claims to be for, not proved; None if it is none.

    To prove it, compare it with what :meth:`Store.access_token` gives for them.
    """
    scope, _, digest = token.removeprefix(_PREFIX).rpartition("-")
    if not token.startswith(_PREFIX) or not scope or not digest:
        return None
    if scope == "owner":
        return "owner", None
    role, _, run_id = scope.partition("-")
    return ("runner", run_id or None) if role == "runner" else None


def is_token_for(secret: bytes, key: AttemptKey, token: str) -> bool:
    """Whether ``token`` is the attempt's, compared in constant time."""
    return hmac.compare_digest(token_for(secret, key).encode(), token.encode(errors="replace"))
