"""Makes whatever went over the wire fit to be recorded: plain JSON, no secrets, no large media.

Nothing is changed in place: the user's objects are only read, never called, and a copy is returned.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from agentlightning.llm_api.secrets import known_secrets
from agentlightning.records import JSON

MEDIA_LIMIT: Final = 4096
"""Characters of base64 above which a payload is replaced by its size and hash."""

REMOVED: Final = "[removed: secret]"
_SECRET_NAMES: Final = frozenset(
    {
        "api_key", "api-key", "apikey", "x-api-key", "openai_api_key", "anthropic_api_key",
        "x-goog-api-key", "azure_ad_token", "authorization", "proxy-authorization", "access_token",
        "client_secret", "cookie", "set-cookie",
    }
)  # fmt: skip
_HEADER_NAMES: Final = frozenset({"extra_headers", "default_headers"})
_WATCHED_NAMES: Final = _SECRET_NAMES | _HEADER_NAMES | {"headers"}
_PAYLOAD_NAMES: Final = frozenset({"data", "file_data", "b64_json", "result", "partial_image_b64"})
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*?;base64,([A-Za-z0-9+/_=-]+)")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_SECRET_TEXT: Final = re.compile(r"(?i)\b(bearer\s+|sk-|key=)[A-Za-z0-9_.\-*]{6,}")
_LARGEST_INT: Final = 2**63
_LONGEST_REPR: Final = 1000
_DEEPEST: Final = 200
"""Levels that are kept; JSON writers and readers give up somewhat further down."""


def scrub(value: object, *, media_limit: int = MEDIA_LIMIT) -> JSON:
    """A copy of ``value`` as strict JSON, without secrets and large media.

    Values under names such as ``api_key`` or ``Authorization`` and all of ``extra_headers`` are
    replaced; of a data URL or base64 payload over ``media_limit`` characters its type, size and
    SHA-256 are kept. What is not JSON is described in text; classes are never called.
    """
    return _Scrubber(media_limit).clean(value, "")


def scrub_body(body: Mapping[Any, Any]) -> dict[str, JSON]:
    """:func:`scrub` for a request's or a reply's body."""
    return _Scrubber(MEDIA_LIMIT).mapping(body)


def scrub_text(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """``text`` (an error message, a traceback) without keys.

    Removed are those given, those that went along with calls that failed
    (:func:`~agentlightning.llm_api.secrets.remember_secrets`), and what looks like one. Lone
    surrogates, which no store takes, are written as escapes.
    """
    for secret in (*secrets, *known_secrets()):
        if secret:
            text = text.replace(secret, REMOVED)
    return _well_formed(_SECRET_TEXT.sub(REMOVED, text))


def as_name(value: object) -> str:
    """What should be a name, as text that can be recorded, whatever it is."""
    return scrub_text(str(scrub(value)))


def error_message(error: BaseException, *, secrets: Iterable[str | None] = ()) -> str:
    """What an exception says, as :func:`scrub_text` leaves it; never raises."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything; the type still tells
        text = "its own text cannot be read"
    return scrub_text(text, secrets=secrets)


def error_line(error: BaseException, *, secrets: Iterable[str | None] = ()) -> str:
    """``Type: message`` of an exception, by :func:`error_message`; its type if it says nothing."""
    return ": ".join(filter(None, (type(error).__name__, error_message(error, secrets=secrets))))


class _Scrubber:
    # Every call's request and reply pass here: what is plain JSON already takes the short ways.

    def __init__(self, media_limit: int) -> None:
        self._limit = media_limit
        self._within: set[int] = set()

    def clean(self, value: object, name: str) -> JSON:
        kind = type(value)
        if kind is str:
            return self._string(value, name)  # type: ignore[arg-type]  # just checked
        if kind is dict or kind is list:
            return self._container(value, name)
        if value is None or kind is bool:
            return value
        try:
            return self._other(value, name)
        except Exception:  # noqa: BLE001 - a user's object may raise whatever it is asked; its text is kept
            return _text(value)

    def _other(self, value: object, name: str) -> JSON:
        if isinstance(value, enum.Enum):
            return self.clean(value.value, name)
        if isinstance(value, int | float):
            return _number(value)
        if isinstance(value, str):
            return self._string(str(value), name)
        if isinstance(value, bytes | bytearray | memoryview):
            return _described("bytes", bytes(value))
        return self._container(value, name)

    def _container(self, value: object, name: str) -> JSON:
        within, mark = self._within, id(value)
        if mark in within:
            return "<itself>"
        if len(within) >= _DEEPEST:
            return "<nested too deeply>"
        within.add(mark)
        try:
            if isinstance(value, dict):
                return self.mapping(value)
            if isinstance(value, list | tuple | AbstractSet):
                return [self.clean(item, name) for item in value]
            return self.mapping(value) if isinstance(value, Mapping) else self._object(value, name)
        finally:
            within.discard(mark)

    def mapping(self, value: Mapping[Any, Any]) -> dict[str, JSON]:
        cleaned: dict[str, JSON] = {}
        for key, item in list(value.items()):  # another thread may add to it meanwhile
            name = key if type(key) is str and key.isascii() else _name(key)
            if name.lower() in _WATCHED_NAMES:
                cleaned[name] = self._watched(name, item, value)
            else:
                cleaned[name] = self.clean(item, name)
        return cleaned

    def _watched(self, name: str, item: object, within: Mapping[Any, Any]) -> JSON:
        """The value of a name that may hold a secret."""
        lower = name.lower()
        # An MCP tool of the Responses API carries the headers its server is called with.
        if lower in _HEADER_NAMES or (lower == "headers" and within.get("type") == "mcp"):
            return _without_values(item)
        if lower in _SECRET_NAMES and isinstance(item, str | bytes | bytearray | list | tuple):
            return REMOVED
        return self.clean(item, name)  # the schema of a tool may well have such a field

    def _string(self, value: str, name: str) -> str:
        if not value.isascii():
            value = _well_formed(value)
        if len(value) <= self._limit:
            return value
        if name in _PAYLOAD_NAMES and _BASE64.fullmatch(value):
            return _marker("base64 data", value)
        return _DATA_URL.sub(self._data_url, value) if "base64," in value else value

    def _data_url(self, match: re.Match[str]) -> str:
        payload = match.group(2)
        if len(payload) <= self._limit:
            return match.group(0)
        return _marker(match.group(1) or "data", payload)

    def _object(self, value: object, name: str) -> JSON:
        if isinstance(value, type):
            return f"<class {value.__module__}.{value.__qualname__}>"
        if dataclasses.is_dataclass(value):
            fields = {item.name: getattr(value, item.name, None) for item in dataclasses.fields(value)}
            return self.mapping(fields)
        dump = getattr(type(value), "model_dump", None)
        if callable(dump):
            return self.clean(dump(value, mode="json", exclude_unset=True), name)
        return _text(value)


def _name(key: object) -> str:
    """A key as JSON has it."""
    return _well_formed(str(key)) if isinstance(key, str) else _text(key)


def _number(value: float) -> int | float | str:
    """A plain number; one that JSON or a 64-bit reader cannot hold becomes text."""
    if isinstance(value, int):
        return int(value) if -_LARGEST_INT <= value < _LARGEST_INT else str(int(value))
    return float(value) if math.isfinite(value) else str(float(value))


def _well_formed(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no encoder takes
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _text(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's __repr__ may raise anything; the type still tells
        text = f"<{type(value).__qualname__} object whose repr fails>"
    return scrub_text(text[:_LONGEST_REPR])


def _without_values(headers: object) -> JSON:
    if isinstance(headers, Mapping):
        return {str(name): REMOVED for name in headers}
    return REMOVED


def _marker(kind: str, payload: str) -> str:
    padded = payload.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except binascii.Error:  # not base64 after all: size and hash of the text itself
        data = payload.encode()
    return _described(kind, data)


def _described(kind: str, data: bytes) -> str:
    return f"[removed: {kind}, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}]"
