"""The HTTP clients of this package itself: what they send is no call of an agent."""

from __future__ import annotations

from typing import Final, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_own: Final[WeakSet[object]] = WeakSet()


def own_client(client: T) -> T:
    """Mark ``client`` (of httpx or httpx2) as ours, so that the seam leaves its requests alone."""
    _own.add(client)
    return client


def is_own(client: object) -> bool:
    """Whether ``client`` was marked by :func:`own_client`."""
    return client in _own
