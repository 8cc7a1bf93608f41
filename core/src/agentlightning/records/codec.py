"""JSON and MessagePack for records (msgspec), and the check that a user's value is plain JSON.

msgspec was chosen over pydantic for its speed on many small records (the store moves tens of
thousands of spans a second) and because importing it costs a few milliseconds. It writes NaN as
``null``, so numbers are checked for finiteness where they enter: :func:`as_json`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from agentlightning.errors import BadValue
from agentlightning.records.packed import Floats, Tokens

JSON: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, or lists and string-keyed dicts of those."""

T = TypeVar("T")


def _encode_json(value: object) -> object:
    if isinstance(value, Tokens | Floats):
        return value.to_base64()
    raise NotImplementedError(f"a record holds a {type(value).__name__}, which is not JSON")


def _decode_json(target: type, value: Any) -> object:
    if issubclass(target, Tokens | Floats):
        return target.from_base64(value) if isinstance(value, str) else target(value)
    raise NotImplementedError(f"cannot read a {target.__name__}")


def _encode_packed(value: object) -> object:
    if isinstance(value, Tokens | Floats):
        return value.to_bytes()
    raise NotImplementedError(f"a record holds a {type(value).__name__}, which cannot be packed")


def _decode_packed(target: type, value: Any) -> object:
    if issubclass(target, Tokens | Floats):
        return target.from_bytes(value) if isinstance(value, bytes) else target(value)
    raise NotImplementedError(f"cannot read a {target.__name__}")


_json_encoder = msgspec.json.Encoder(enc_hook=_encode_json)
_packed_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_packed)

# By kind: making a decoder takes longer than reading a small record with it.
_json_decoders: dict[Any, Callable[[bytes | str], Any]] = {}
_packed_decoders: dict[Any, Callable[[bytes], Any]] = {}


def to_json(record: object) -> bytes:
    """Write a record (or any JSON value holding records) as compact UTF-8 JSON."""
    return _json_encoder.encode(record)


def from_json(data: bytes | str, kind: type[T]) -> T:
    """Read what :func:`to_json` wrote; a ``msgspec.ValidationError`` names the place that is off."""
    return json_decoder(kind)(data)


def json_decoder(kind: type[T]) -> Callable[[bytes | str], T]:
    """:func:`from_json` for many of one kind, which may be a union of records told by their tags."""
    decode = _json_decoders.get(kind)
    if decode is None:
        decode = _json_decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_decode_json).decode
    return decode


def to_msgpack(record: object) -> bytes:
    """Write a record as MessagePack, token arrays as raw bytes."""
    return _packed_encoder.encode(record)


def from_msgpack(data: bytes, kind: type[T]) -> T:
    """Read what :func:`to_msgpack` wrote."""
    decode = _packed_decoders.get(kind)
    if decode is None:
        decode = _packed_decoders[kind] = msgspec.msgpack.Decoder(kind, dec_hook=_decode_packed).decode
    read: T = decode(data)
    return read


def to_builtins(record: object) -> JSON:
    """A record as plain dicts and lists, token arrays in their compact JSON form."""
    return msgspec.to_builtins(record, enc_hook=_encode_json)


def from_builtins(value: JSON, kind: type[T]) -> T:
    """Build a record from plain dicts and lists."""
    return msgspec.convert(value, kind, dec_hook=_decode_json)


def as_json(value: object, what: str = "value") -> JSON:
    """Return ``value`` as plain JSON of its own; else raise ``BadValue``.

    Tuples become lists, and subclasses of ``str``, ``int`` and ``float`` (an enum, numpy's
    ``float64``) the plain value. Dicts and lists are copied.

    Args:
        value: anything a user handed in.
        what: how the message names it, for example ``"task 3"``.

    Raises:
        BadValue: a NaN or infinite number, a key that is not a string, an object of another type,
            or a value that contains itself; the message has the path of the place.
    """
    try:
        return _as_json(value, what)
    except RecursionError:
        raise BadValue(f"{what} is nested too deeply, or contains itself") from None


def _as_json(value: object, what: str) -> JSON:
    if value is None or isinstance(value, str | int | float):
        return _as_scalar(value, what)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BadValue(f"{what} has the key {key!r}; JSON objects have string keys")
        return {str.__str__(key): _as_json(item, f"{what}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item, f"{what}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Tokens | Floats):
        return list(value)
    raise BadValue(
        f"{what} is a {type(value).__name__}; expected JSON (None, bool, number, string, list or dict)"
    )


def _as_scalar(value: str | float | None, what: str) -> JSON:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # an enum's own __str__ gives its name
    if isinstance(value, int):
        return int(value)
    if not math.isfinite(value):
        raise BadValue(f"{what} is {value}; JSON has finite numbers only")
    return float(value)
