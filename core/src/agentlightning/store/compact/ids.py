"""Token ids in few bits each.

Ids are small numbers in four bytes each: their upper bytes are mostly zero. So the bytes are kept
apart, in four planes, and a plane whose bytes are small is written with 0, 1, 2 or 4 bits a byte; a
vocabulary of 128k takes 17 bits an id. The ids of common words are smaller still: where it pays, those
under 4,096 are written apart, in 12 bits, with a bit an id that says which are where.

Everything is slicing, numbers of many digits and iterators of C: packing costs no Python step an id.
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
_SMALL_BYTES = 1.5
_WIDTHS: Final = (0, 1, 2, 4, 8)
_FITTING: Final = tuple(bytes(range(2**width)) for width in _WIDTHS)
_ONE_RUN, _TWO_RUNS = b"\0", b"\1"
_HEX = b"0123456789abcdef"
_VALUE_OF_HEX: Final = bytes.maketrans(_HEX, bytes(range(16)))
_LOW_BIT: Final = bytes(48 + value % 2 for value in range(256))  # as the digits 0 and 1
_HIGH_BIT: Final = bytes(48 + value // 2 % 2 for value in range(256))
_ZERO_FIRST: Final = bytes(value == 0 for value in range(256))
_UNDER_16_FIRST: Final = bytes(value < 16 for value in range(256))  # noqa: PLR2004  (half a byte)


def pack_ids(ids: bytes) -> Ids:
    """Write ids given as little-endian uint32."""
    count = len(ids) // _SIZE
    whole = _ONE_RUN + _pack_run(ids)
    is_small = _small_ones(ids)
    smalls = is_small.count(1)
    saved = smalls * (len(whole) / max(count, 1) - _SMALL_BYTES)
    if saved < count / 8:  # less than the bits cost that say which are where
        return count, whole
    numbers = _numbers(ids)
    small = _bytes_of(array("I", compress(numbers, is_small)))
    large = _bytes_of(array("I", compress(numbers, is_small.translate(_ZERO_FIRST))))
    apart = _TWO_RUNS + _pack_plane(is_small, 1) + _pack_run(small) + _pack_run(large)
    return count, min(whole, apart, key=len)


def unpack_ids(packed: Ids) -> bytes:
    """The ids as little-endian uint32."""
    count, data = packed
    if count > len(data):  # which no ids do: each has a byte of its own
        raise ValueError(f"{count} ids cannot be in {len(data)} bytes")
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
    size = len(ids) // _SIZE
    tests = [ids[1::_SIZE].translate(_UNDER_16_FIRST)]
    tests += [
        plane.translate(_ZERO_FIRST)
        for plane in (ids[2::_SIZE], ids[3::_SIZE])
        if plane.count(0) < size
    ]
    passed = int.from_bytes(tests[0], "little")
    for test in tests[1:]:
        passed &= int.from_bytes(test, "little")
    return passed.to_bytes(size, "little") if len(tests) > 1 else tests[0]


def _pack_run(ids: bytes) -> bytes:
    """A byte with the widths of the upper three planes, and the planes."""
    head, scale, planes = 0, 1, [ids[0::_SIZE]]
    for place in range(1, _SIZE):
        plane = ids[place::_SIZE]
        digit = _width_of(plane)
        head += scale * digit
        scale *= len(_WIDTHS)
        planes.append(_pack_plane(plane, _WIDTHS[digit]))
    return b"".join([bytes([head]), *planes])


def _unpack_run(data: bytes, count: int) -> tuple[bytes, bytes]:
    """The ids of a run, and what comes after it."""
    head = data[0]
    ids = bytearray(count * _SIZE)
    end = 1 + count
    ids[0::_SIZE] = data[1:end]
    for place in range(1, _SIZE):
        head, digit = divmod(head, len(_WIDTHS))
        width = _WIDTHS[digit]
        start, end = end, end + _plane_size(count, width)
        if width:
            ids[place::_SIZE] = _unpack_plane(data[start:end], width, count)
    return bytes(ids), data[end:]


def _width_of(plane: bytes) -> int:
    """The place in ``_WIDTHS`` of the bits that every byte of a plane fits in."""
    if plane.count(0) == len(plane):
        return 0
    if plane.translate(None, _FITTING[3]):
        return 4
    return 1 if not plane.translate(None, _FITTING[1]) else 2 + bool(plane.translate(None, _FITTING[2]))


def _plane_size(count: int, width: int) -> int:
    if width == 2:  # noqa: PLR2004  (two planes of one bit)
        return 2 * _plane_size(count, 1)
    return (count * width + 7) // 8


def _pack_plane(plane: bytes, width: int) -> bytes:
    """The bits of a plane. Python reads and writes digits of base 2 and 16 as fast as it copies."""
    if not width or not plane:
        return b""
    if width == 1:
        return int(plane.translate(_LOW_BIT), 2).to_bytes(_plane_size(len(plane), 1), "big")
    if width == 2:  # noqa: PLR2004
        high = int(plane.translate(_HIGH_BIT), 2).to_bytes(_plane_size(len(plane), 1), "big")
        return _pack_plane(plane, 1) + high
    if width == 4:  # noqa: PLR2004
        digits = plane.translate(_HEX.ljust(256)).decode()
        return bytes.fromhex(digits if len(plane) % 2 == 0 else digits + "0")
    return plane


def _unpack_plane(packed: bytes, width: int, count: int) -> bytes:
    if width == 1:
        digits = format(int.from_bytes(packed, "big"), f"0{count}b") if count else ""
        return digits.encode().translate(_VALUE_OF_HEX)
    if width == 2:  # noqa: PLR2004
        half = len(packed) // 2
        low = int.from_bytes(_unpack_plane(packed[:half], 1, count), "big")
        high = int.from_bytes(_unpack_plane(packed[half:], 1, count), "big")
        return (low + 2 * high).to_bytes(count, "big")
    if width == 4:  # noqa: PLR2004
        return packed.hex().encode().translate(_VALUE_OF_HEX)[:count]
    return packed


def _numbers(ids: bytes) -> array[int]:
    numbers = array("I", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _bytes_of(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
