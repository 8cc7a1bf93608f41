"""An LLM call taken apart into encoded values, and put together again.

Comparing encoded bytes is quick and strict: ``1``, ``1.0`` and ``True`` are equal in Python and differ
here, and what a caller later does to a dict it recorded does not reach these.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from agentlightning.records import JSON, Choice, LLMCall, Tokens, from_msgpack, to_msgpack

Values: TypeAlias = Mapping[str, bytes]
"""Encoded values by name, in their order."""

ID_SIZE: Final = 4
_KNOWN_LENGTH = 24
_KNOWN_STRINGS = 64
_HEAD = tuple(
    name
    for name in LLMCall.__struct_fields__
    if name not in {"request", "response", "prompt_ids", "choices"}
)
_CHOICE_HEAD = tuple(
    name for name in Choice.__struct_fields__ if name not in {"response_ids", "logprobs"}
)
_KEYS: Final = {
    name: to_msgpack(name) for name in (*LLMCall.__struct_fields__, *Choice.__struct_fields__)
}
_NIL: Final = to_msgpack(None)


class ChoiceParts(NamedTuple):
    """One reply: its plain fields, its ids and logprobs as little-endian buffers."""

    head: Values
    response_ids: bytes | None
    logprobs: bytes | None


class Parts:
    """One call: its plain fields, the values of its request and response, its ids as buffers."""

    def __init__(
        self,
        head: Values,
        request: Values,
        response: Values | None,
        prompt_ids: bytes | None,
        choices: Sequence[ChoiceParts],
    ) -> None:
        self.head = head
        self.request = request
        self.response = response
        self.prompt_ids = prompt_ids
        self.choices = choices

    @classmethod
    def of(cls, call: LLMCall) -> Parts:
        """Take a call apart."""
        return cls(
            head={name: to_msgpack(getattr(call, name)) for name in _HEAD},
            request=_encoded(call.request),
            response=None if call.response is None else _encoded(call.response),
            prompt_ids=_buffer(call.prompt_ids),
            choices=[
                ChoiceParts(
                    {name: to_msgpack(getattr(choice, name)) for name in _CHOICE_HEAD},
                    _buffer(choice.response_ids),
                    None if choice.logprobs is None else choice.logprobs.to_bytes(),
                )
                for choice in call.choices
            ],
        )

    def call(self) -> LLMCall:
        """Put the call together again."""
        return from_msgpack(self.plain(), LLMCall)

    def plain(self) -> bytes:
        """The call as plain MessagePack; the order of its fields is not :func:`to_msgpack`'s."""
        return b"".join(
            [
                _map_header(len(self.head) + 4),
                *_fields(self.head),
                _KEYS["request"],
                *_map(self.request),
                _KEYS["response"],
                *([_NIL] if self.response is None else _map(self.response)),
                _KEYS["prompt_ids"],
                *_binary(self.prompt_ids),
                _KEYS["choices"],
                _array_header(len(self.choices)),
                *(piece for choice in self.choices for piece in _choice(choice)),
            ]
        )

    def checksum(self) -> int:
        """CRC-32 over every name and value of the call."""
        groups = (self.head, self.request, self.response or {}, *(item.head for item in self.choices))
        ids = (self.prompt_ids, *(data for item in self.choices for data in item[1:]))
        total = zlib.crc32("\0".join([name for group in groups for name in group]).encode())
        for group in groups:
            for value in group.values():
                total = zlib.crc32(value, total)
        for data in ids:
            total = zlib.crc32(b"" if data is None else data, total)
        return total

    @cached_property
    def said(self) -> list[bytes]:
        """The longer texts in the replies: an agent sends them back in its next request."""
        found: list[bytes] = []
        for choice in self.choices:
            found += _texts(from_msgpack(choice.head["message"], dict))
        return found[:_KNOWN_STRINGS]

    @cached_property
    def told(self) -> int:
        """How many bytes of ids and request another call could share."""
        ids = (self.prompt_ids, *(choice.response_ids for choice in self.choices))
        return sum(len(data or b"") for data in (*ids, *self.request.values()))

    @cached_property
    def size(self) -> int:
        """About how many bytes it holds in memory."""
        groups = (self.head, self.response or {}, *(choice.head for choice in self.choices))
        values = sum(len(value) for group in groups for value in group.values())
        logprobs = sum(len(choice.logprobs or b"") for choice in self.choices)
        return self.told + values + logprobs


def _encoded(values: Mapping[str, JSON]) -> Values:
    return {name: to_msgpack(value) for name, value in values.items()}


def _buffer(ids: Tokens | None) -> bytes | None:
    return None if ids is None else ids.to_bytes()


def _texts(message: JSON) -> list[bytes]:
    """Every text of some length in a message, in an order of its own that never changes."""
    texts: list[bytes] = []
    waiting = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if len(value) >= _KNOWN_LENGTH:
                texts.append(value.encode())
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return texts


def _fields(values: Values) -> list[bytes]:
    return [
        piece
        for name, value in values.items()
        for piece in (_KEYS.get(name) or to_msgpack(name), value)
    ]


def _map(values: Values) -> list[bytes]:
    return [_map_header(len(values)), *_fields(values)]


def _choice(choice: ChoiceParts) -> list[bytes]:
    return [
        _map_header(len(choice.head) + 2),
        *_fields(choice.head),
        _KEYS["response_ids"],
        *_binary(choice.response_ids),
        _KEYS["logprobs"],
        *_binary(choice.logprobs),
    ]


def _binary(data: bytes | None) -> list[bytes]:
    if data is None:
        return [_NIL]
    size = len(data)
    if size < 1 << 8:
        return [b"\xc4", size.to_bytes(1, "big"), data]
    if size < 1 << 16:
        return [b"\xc5", size.to_bytes(2, "big"), data]
    return [b"\xc6", size.to_bytes(4, "big"), data]


def _map_header(size: int) -> bytes:
    return _header(size, 0x80, b"\xde", b"\xdf")


def _array_header(size: int) -> bytes:
    return _header(size, 0x90, b"\xdc", b"\xdd")


def _header(size: int, small: int, middle: bytes, large: bytes) -> bytes:
    if size < 1 << 4:
        return bytes([small | size])
    if size < 1 << 16:
        return middle + size.to_bytes(2, "big")
    return large + size.to_bytes(4, "big")
