"""The errors that a server's answers stand for, raised here as a local store raises them."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from agentlightning import errors
from agentlightning.records import from_json
from agentlightning.store.http.messages import Refusal

T = TypeVar("T")

_KINDS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, errors.StoreError | errors.BadValue | errors.RewardError)
    and kind is not errors.StoreClosed  # that is said of this end only
}
"""What a store raises. A name is looked up here and nowhere else, whatever a server may call it."""

_BY_STATUS: Final[dict[int, type[errors.StoreError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    413: errors.LimitExceeded,
}
"""What a proxy in front of the server may mean, which knows nothing of our errors."""

_STAYS: Final = frozenset({errors.SchemaMismatch.__name__, errors.DamagedRecord.__name__})
"""What is wrong with the store itself: its server failed, and will again."""

_COME_AGAIN: Final = frozenset({408, 429})
_OK: Final = 200
_SERVER_ERROR: Final = 500
_SHOWN: Final = 120


def answer(status: int, body: bytes, kind: type[T], url: str) -> T:
    """The reply to a request that was carried out.

    Raises:
        AgentLightningError: it was not; the error that the store at the server raised.
        StoreUnavailable: what answered is no store.
    """
    if status != _OK:
        raise _refusal(status, body, url)
    try:
        return from_json(body, kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise errors.StoreUnavailable(
            f"{url} answered {status} with something that is no answer of a store ({error}): "
            f"{gist(body)}; is it the URL that agl store serve printed, and the same version?"
        ) from error


def is_final(status: int, body: bytes) -> bool:
    """Whether the same request will not be answered otherwise in a moment."""
    return status < _SERVER_ERROR or _named(body) in _STAYS


def gist(body: bytes) -> str:
    """What a server said when it did not carry out a request."""
    try:
        return from_json(body, Refusal).message
    except (msgspec.DecodeError, ValueError, RecursionError):
        text = " ".join(body.decode(errors="replace").split())
        return repr(text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")) if text else "nothing"


def _named(body: bytes) -> str | None:
    try:
        return from_json(body, Refusal).error
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _refusal(status: int, body: bytes, url: str) -> errors.AgentLightningError:
    try:
        refusal = from_json(body, Refusal)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _from_another(status, body, url)
    if status in _COME_AGAIN:
        return errors.StoreUnavailable(f"the store {url} answered {status}: {refusal.message}")
    kind = _KINDS.get(refusal.error)
    if kind is None:
        return errors.StoreError(f"{refusal.error}: {refusal.message}")
    return kind(refusal.message)


def _from_another(status: int, body: bytes, url: str) -> errors.StoreError:
    """The error for an answer that is not our server's."""
    said = f"{url} answered {status}: {gist(body)}"
    if kind := _BY_STATUS.get(status):
        return kind(f"{said}. This was said by something in front of the store")
    return errors.StoreUnavailable(
        f"{said}. That is no store: is it the URL that agl store serve printed? Redirects are not "
        "followed, since the token would go along"
    )
