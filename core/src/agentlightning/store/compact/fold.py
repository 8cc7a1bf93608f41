"""Leaving out of encoded values what is known already, and filling it in again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from agentlightning.store.compact.parts import Values

Entry: TypeAlias = bytes | list[int | bytes]
"""One value: itself; or how many bytes of the base's content it begins with, its header, and pieces
that are literal or the number of a known text."""

Folded: TypeAlias = tuple[list[str] | None, dict[int, Entry]]
"""The names (None for the base's, in its order), and the values by their place; the base's are left
out."""

_WORTHWHILE = 16


def fold(
    values: Values, base: Values | None, *, known: Sequence[bytes] = (), prefixes: bool = False
) -> Folded:
    """Write ``values`` as a difference.

    Args:
        values: what to write.
        base: what the reader has; None if nothing.
        known: texts that the reader has too.
        prefixes: whether a value may share only its beginning with the base's (a list its first
            items), rather than all or nothing.
    """
    before = base or {}
    names = None if base is not None and list(values) == list(base) else list(values)
    return names, {
        place: _entry(value, before.get(name), known, prefixes=prefixes)
        for place, (name, value) in enumerate(values.items())
        if value != before.get(name)
    }


def unfold(folded: Folded, base: Values | None, known: Callable[[], Sequence[bytes]]) -> Values:
    """Read what :func:`fold` wrote, given the same ``base`` and ``known``."""
    names, entries = folded
    before = base or {}
    return {
        name: _value(entries[place], before.get(name), known) if place in entries else before[name]
        for place, name in enumerate(before if names is None else names)
    }


def common_prefix(first: bytes, second: bytes, start: int = 0, second_start: int = 0) -> int:
    """How many bytes two values go on alike from where they start."""
    low, size = 0, min(len(first) - start, len(second) - second_start)
    view = memoryview(second)[second_start : second_start + size]
    if first.startswith(view, start):
        return size
    high = size
    while high - low > 1:  # the first difference is at or after ``low`` and before ``high``
        middle = (low + high) // 2
        if first.startswith(view[low:middle], start + low):
            low = middle
        else:
            high = middle
    return low


def shared_content(value: bytes, other: bytes | None) -> int:
    """How many bytes of content two encoded values begin with alike, however long each goes on."""
    if value == other:
        return len(value)
    if other is None or len(value) < _WORTHWHILE:
        return 0
    return common_prefix(value, other, _header_size(value), _header_size(other))


def _entry(value: bytes, other: bytes | None, known: Sequence[bytes], *, prefixes: bool) -> Entry:
    if len(value) < _WORTHWHILE:
        return value
    start = _header_size(value)
    shared = shared_content(value, other) if prefixes else 0
    if shared < _WORTHWHILE:
        shared = 0
    pieces = _cut(value[start + shared :], known)
    if not shared and len(pieces) == 1:
        return value
    return [shared, value[:start], *pieces]


def _value(entry: Entry, other: bytes | None, known: Callable[[], Sequence[bytes]]) -> bytes:
    if isinstance(entry, bytes):
        return entry
    shared, header, *pieces = entry
    begin = 0 if other is None else _header_size(other)
    content = (other or b"")[begin : begin + int(shared)]
    texts = [piece if isinstance(piece, bytes) else known()[piece] for piece in pieces]
    return b"".join([bytes(header), content, *texts])


def _cut(data: bytes, known: Sequence[bytes]) -> list[int | bytes]:
    """``data`` in pieces: literal bytes, and numbers where a known text stands."""
    pieces: list[int | bytes] = [data]
    for number, text in enumerate(known):
        if text not in data:
            continue
        cut: list[int | bytes] = []
        for piece in pieces:
            if isinstance(piece, int):
                cut.append(piece)
                continue
            first, *others = piece.split(text)
            cut.append(first)
            for other in others:
                cut += (number, other)
        pieces = cut
    return [piece for piece in pieces if piece != b""] or [b""]


def _header_size(value: bytes) -> int:
    """How many bytes of an encoded list, object or text say only what and how long it is."""
    first = value[0]
    if 0x80 <= first < 0xC0:  # noqa: PLR2004  (MessagePack's short objects, lists and texts)
        return 1
    return {0xD9: 2, 0xDA: 3, 0xDB: 5, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}.get(first, 0)
