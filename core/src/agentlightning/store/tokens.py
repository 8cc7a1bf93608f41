"""Attempt tokens: proof that whoever shows one was given that attempt by this store.

A token is an HMAC of the attempt's key under the store's own random secret. Nothing has to be stored
or looked up for one, and a token says nothing about any other attempt.
"""

from __future__ import annotations

import hmac
import secrets

from agentlightning.records import AttemptKey

_PREFIX = "agl-"
_BYTES = 32


def new_secret() -> bytes:
    """A random secret, made once for each store and kept by it."""
    return secrets.token_bytes(_BYTES)


def token_for(secret: bytes, key: AttemptKey) -> str:
    """The token that is good for the attempt ``key`` only."""
    digest = hmac.digest(secret, f"{key.rollout_id}/{key.number}".encode(), "sha256")
    return _PREFIX + digest.hex()


def is_token_for(secret: bytes, key: AttemptKey, token: str) -> bool:
    """Whether ``token`` is the attempt's, compared in constant time."""
    return hmac.compare_digest(token_for(secret, key).encode(), token.encode(errors="replace"))
