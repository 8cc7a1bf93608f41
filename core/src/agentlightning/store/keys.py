"""Ids the store gives out, and fingerprints that tell whether an idempotency key came with its body."""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import fields

from agentlightning.records import to_builtins

_SCALARS: Final = (str, int, float, bool, type(None))
_encoder = msgspec.json.Encoder(order="deterministic")


def new_id(prefix: str, now: float) -> str:
    """An id that sorts by time, safe in a URL: ids made together are stored near each other."""
    return f"{prefix}-{int(now * 1000):012x}{secrets.token_hex(5)}"


def fingerprint(*body: object) -> str:
    """A hash of what a call was given.

    Fields that have their default are left out, so that a later version that adds a field still
    recognises a body of today.
    """
    return hashlib.sha256(_encoder.encode(_essence(body))).hexdigest()


def _essence(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        kind = type(value)
        told = {
            name: _essence(item)
            for field, name, default in _fields_of(kind)
            if (item := getattr(value, field)) != default
        }
        return [kind.__struct_config__.tag, told]
    if isinstance(value, dict):
        return {key: _essence(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_essence(item) for item in value]
    return value if isinstance(value, _SCALARS) else to_builtins(value)


@lru_cache(maxsize=256)
def _fields_of(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """Each field's name, its name in JSON, and its default."""
    return [(field.name, field.encode_name, _default(field)) for field in fields(kind)]


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
