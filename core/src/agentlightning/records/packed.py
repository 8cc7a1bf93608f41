"""Token ids and log-probabilities as packed arrays that behave as sequences.

Thirty-two turns of up to 8k tokens are 5.1 MB as JSON lists; packed they are a tenth of that, and
reading them back costs no Python object a token until somebody indexes.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar, Generic, Self, TypeVar, overload

N = TypeVar("N", int, float)
_SHOWN = 8
_HUGE, _HUGE_NEGATIVE = 0x7F, 0xFF


class _Packed(Sequence[N], Generic[N]):
    """An immutable sequence of numbers in one little-endian buffer."""

    __slots__ = ("_numbers",)
    typecode: ClassVar[str]

    def __init__(self, numbers: Iterable[N] = ()) -> None:
        self._numbers: array[N] = array(self.typecode, numbers)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the little-endian buffer that :meth:`to_bytes` writes."""
        packed = cls()
        packed._numbers.frombytes(data)
        if sys.byteorder == "big":
            packed._numbers.byteswap()
        return packed

    def to_bytes(self) -> bytes:
        """The numbers as one little-endian buffer, four bytes each."""
        if sys.byteorder == "big":
            swapped = array(self.typecode, self._numbers)
            swapped.byteswap()
            return swapped.tobytes()
        return self._numbers.tobytes()

    @classmethod
    def from_base64(cls, text: str) -> Self:
        """Read the compact JSON form."""
        return cls.from_bytes(base64.b64decode(text, validate=True))

    def to_base64(self) -> str:
        """The compact JSON form."""
        return base64.b64encode(self.to_bytes()).decode("ascii")

    @overload
    def __getitem__(self, index: int) -> N: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> N | Self:
        if isinstance(index, slice):
            return type(self)(self._numbers[index])
        return self._numbers[index]

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[N]:
        return iter(self._numbers)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Packed):
            return type(self) is type(other) and self._numbers == other._numbers
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.typecode, self._numbers.tobytes()))

    def __add__(self, other: Iterable[N]) -> Self:
        return type(self)(chain(self._numbers, other))

    def __repr__(self) -> str:
        head = ", ".join(str(n) for n in self._numbers[:_SHOWN])
        return f"{type(self).__name__}([{head}{', …' if len(self) > _SHOWN else ''}], len={len(self)})"

    def __reduce__(self) -> tuple[object, tuple[list[N]]]:
        return type(self), (list(self._numbers),)


class Tokens(_Packed[int]):
    """Token ids, uint32."""

    __slots__ = ()
    typecode = "I"

    def startswith(self, prefix: Tokens) -> bool:
        """Whether ``prefix`` is the beginning of these ids, token for token."""
        return len(prefix) <= len(self) and self._numbers[: len(prefix)] == prefix._numbers


class Floats(_Packed[float]):
    """Log-probabilities, float32; NaN and infinities are refused by whatever stores them."""

    __slots__ = ()
    typecode = "f"

    def are_finite(self) -> bool:
        """Whether none is NaN or infinite; a nanosecond a number."""
        highest_bytes = self.to_bytes()[3::4]  # sign and exponent: 0x7f or 0xff for what is not finite
        if _HUGE not in highest_bytes and _HUGE_NEGATIVE not in highest_bytes:
            return True
        return math.isfinite(sum(self._numbers))  # huge ones look alike; too few to overflow a double
