"""The base of every record."""

from __future__ import annotations

from typing import Final

import msgspec

SCHEMA: Final = 1
"""Version of the records' shape; raised when a reader of the old shape would misread the new."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A plain, immutable, JSON round-trippable record that carries its schema number."""

    schema: int = SCHEMA


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a record; the record it lies in carries the schema number."""
