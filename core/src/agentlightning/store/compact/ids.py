"""Token ids in few bits each.

Ids are small numbers in four bytes each: their upper bytes are mostly zero. So the bytes are kept
apart, in four planes, and a plane whose bytes are small is written with 0, 1, 2 or 4 bits a byte; a
vocabulary of 128k takes 17 bits an id. The ids of common words are smaller still: where it pays, those
under 4,096 are written apart, in 12 bits, with a bit an id that says which are where.

Everything is slicing, big integers and iterators of C: packing costs no Python step an id.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from itertools import compress
from typing import Final, TypeAlias

Ids: TypeAlias = tuple[int, bytes]
"""How many ids, and their bits."""

_SIZE = 4
_WIDTHS: Final = (0, 1, 2, 4, 8)
_FITTING: Final = tuple(bytes(range(2**width)) for width in _WIDTHS)
_ONE_RUN, _TWO_RUNS = b"\0", b"\1"
_INVERT: Final = bytes([1, 0])
_UNDER_4096: Final = (
    bytes(value < 16 for value in range(256)),  # noqa: PLR2004  (the second byte of such an id)
    bytes(value == 0 for value in range(256)),
)


def pack_ids(ids: bytes) -> Ids:
    """Write ids given as little-endian uint32."""
    count = len(ids) // _SIZE
    whole = _ONE_RUN + _pack_run(ids)
    is_small = _small_ones(ids)
    smalls = is_small.count(1)
    if not 0 < smalls < count:
        return count, whole
    numbers = _numbers(ids)
    small = _bytes_of(array("I", compress(numbers, is_small)))
    large = _bytes_of(array("I", compress(numbers, is_small.translate(_INVERT.ljust(256)))))
    apart = _TWO_RUNS + _pack_plane(is_small, 1) + _pack_run(small) + _pack_run(large)
    return count, min(whole, apart, key=len)


def unpack_ids(packed: Ids) -> bytes:
    """The ids as little-endian uint32."""
    count, data = packed
    if data[:1] == _ONE_RUN:
        return _unpack_run(data[1:], count)[0]
    end = 1 + _plane_size(count, 1)
    is_small = _unpack_plane(data[1:end], 1, count)
    smalls = is_small.count(1)
    small, rest = _unpack_run(data[end:], smalls)
    large, _ = _unpack_run(rest, count - smalls)
    runs: tuple[Iterator[int], ...] = (iter(_numbers(large)), iter(_numbers(small)))
    return _bytes_of(array("I", map(next, map(runs.__getitem__, is_small))))


def _small_ones(ids: bytes) -> bytes:
    """A byte an id: 1 if it is under 4,096."""
    second, third, fourth = ids[1::_SIZE], ids[2::_SIZE], ids[3::_SIZE]
    tests = (
        second.translate(_UNDER_4096[0]),
        third.translate(_UNDER_4096[1]),
        fourth.translate(_UNDER_4096[1]),
    )
    first, *others = (int.from_bytes(test, "little") for test in tests)
    for other in others:
        first &= other
    return first.to_bytes(len(second), "little")


def _pack_run(ids: bytes) -> bytes:
    """A byte with the widths of the upper three planes, and the planes."""
    planes = [ids[place::_SIZE] for place in range(_SIZE)]
    digits = [_width_of(plane) for plane in planes[1:]]
    head = digits[0] + 5 * digits[1] + 25 * digits[2]
    upper = [
        _pack_plane(plane, _WIDTHS[digit]) for plane, digit in zip(planes[1:], digits, strict=True)
    ]
    return bytes([head]) + planes[0] + b"".join(upper)


def _unpack_run(data: bytes, count: int) -> tuple[bytes, bytes]:
    """The ids of a run, and what comes after it."""
    head = data[0]
    ids = bytearray(count * _SIZE)
    end = 1 + count
    ids[0::_SIZE] = data[1:end]
    for place, digit in enumerate((head % 5, head // 5 % 5, head // 25), start=1):
        width = _WIDTHS[digit]
        start, end = end, end + _plane_size(count, width)
        if width:
            ids[place::_SIZE] = _unpack_plane(data[start:end], width, count)
    return bytes(ids), data[end:]


def _width_of(plane: bytes) -> int:
    """The place in ``_WIDTHS`` of the bits that every byte of a plane fits in."""
    for place, fitting in enumerate(_FITTING):
        if not plane.translate(None, fitting):
            return place
    raise AssertionError("a byte has eight bits")


def _plane_size(count: int, width: int) -> int:
    return (count * width + 7) // 8


def _pack_plane(plane: bytes, width: int) -> bytes:
    if width == 0:
        return b""
    step = 8 // width
    bits = 0
    for place in range(step):
        bits |= int.from_bytes(plane[place::step], "little") << (width * place)
    return bits.to_bytes(_plane_size(len(plane), width), "little")


def _unpack_plane(packed: bytes, width: int, count: int) -> bytes:
    step = 8 // width
    bits = int.from_bytes(packed, "little")
    mask = int.from_bytes(bytes([2**width - 1]) * len(packed), "little")
    plane = bytearray(len(packed) * step)
    for place in range(step):
        plane[place::step] = ((bits >> (width * place)) & mask).to_bytes(len(packed), "little")
    return bytes(plane[:count])


def _numbers(ids: bytes) -> array[int]:
    numbers = array("I", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _bytes_of(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
