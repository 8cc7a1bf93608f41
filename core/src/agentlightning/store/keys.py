"""Ids the store gives out, and fingerprints that tell whether an idempotency key came with its body."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import msgspec
from msgspec.structs import fields

from agentlightning.records import to_builtins

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
        tag = type(value).__struct_config__.tag
        told = {
            field.encode_name: _essence(getattr(value, field.name))
            for field in fields(value)
            if getattr(value, field.name) != _default(field)
        }
        return [tag, told]
    if isinstance(value, dict):
        return {key: _essence(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_essence(item) for item in value]
    return to_builtins(value)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
