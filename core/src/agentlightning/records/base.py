"""The base of every record."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

SCHEMA: Final = 1
"""Version of the records' shape; raised when a reader of the old shape would misread the new."""


Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that every backend can keep; a larger one is refused where a record is read.

(Inside a JSON value that a backend keeps as text, integers may be larger.)
"""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A plain, immutable, JSON round-trippable record that carries its schema number."""

    schema: Int64 = SCHEMA


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a record; the record it lies in carries the schema number."""
