r"""Text as PostgreSQL can hold it.

Its ``text`` has no character 0, and neither has what ``jsonb`` makes of a string; a name or a log line
may well have one. JSON is therefore kept as ``json``, which stores what it was given, ``\u0000`` and
integers of any length included. Plain columns, and whatever is compared with them, are written with the
few characters that cannot be held replaced by U+0001 and their number, so every text comes back.
"""

from __future__ import annotations

import re
from typing import Final

from psycopg.types.string import StrDumperUnknown

_MARK: Final = "\x01"
_NOT_HELD: Final = re.compile("[\x00\x01\ud800-\udfff]")
_MARKED: Final = re.compile("\x01([0-9a-f]{4})")


def escaped(text: str) -> str:
    """``text`` with what PostgreSQL cannot hold replaced; different texts stay different."""
    return _NOT_HELD.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def unescaped(text: str) -> str:
    """The text that :func:`escaped` was given."""
    return _MARKED.sub(lambda found: chr(int(found[1], 16)), text) if _MARK in text else text


class TextDumper(StrDumperUnknown):
    """Sends every string escaped, so that no statement can forget to."""

    def dump(self, obj: str) -> bytes:
        """The bytes to send."""
        try:
            if "\x00" not in obj and _MARK not in obj:
                return obj.encode()
        except UnicodeEncodeError:
            pass  # half a surrogate pair, which UTF-8 cannot hold either
        return escaped(obj).encode()
