"""A stored row: one call as the difference to its base.

The row carries a checksum of the whole call. A base that is not what the row was written against, or a
row that was changed, is an error by name, never wrong ids.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from agentlightning.errors import DamagedRecord, SchemaMismatch
from agentlightning.records import LLMCall, from_msgpack
from agentlightning.store.compact.fold import Folded, common_prefix, fold, shared_content, unfold
from agentlightning.store.compact.ids import Ids, pack_ids, unpack_ids
from agentlightning.store.compact.parts import ID_SIZE, ChoiceParts, Parts

_MARK: Final = b"\xc1"  # no MessagePack begins with it, so a plain call never does
_VERSION: Final = b"\x01"
_MISFITS: Final = (LookupError, ValueError, TypeError, ArithmeticError)
_DIGITS, _TEXT = b"x", b"t"


class Base(NamedTuple):
    """An earlier call that a row may refer to."""

    span_id: str
    parts: Parts


class DeltaChoice(msgspec.Struct, array_like=True, frozen=True):
    """One reply of a :class:`Delta`."""

    head: Folded
    ids: Ids | None
    logprobs: bytes | None


class Delta(msgspec.Struct, array_like=True, frozen=True):
    """A row as it is stored.

    Attributes:
        checksum: of the whole call.
        base: the span whose call this one is written against; None for a call written whole.
        continued: which of the base's replies the prompt goes on after.
        shared: how many ids of the base's prompt and that reply the prompt begins with.
        ids: the prompt's other ids; None for a call without.
        head: the call's plain fields.
        request: the request's values.
        choices: the replies.
        response: the response's values; what the replies hold is not repeated in them.
    """

    checksum: int
    base: bytes | None
    continued: int
    shared: int
    ids: Ids | None
    head: Folded
    request: Folded
    choices: list[DeltaChoice]
    response: Folded | None

    @property
    def base_id(self) -> str | None:
        """The base's span id."""
        return None if self.base is None else _long(self.base)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Delta)


def write(parts: Parts, base: Base | None) -> bytes:
    """A row with ``parts``, as the difference to ``base``."""
    before = None if base is None else base.parts
    shared, continued = (0, 0) if before is None else _shared_ids(parts, before)
    prompt = parts.prompt_ids
    delta = Delta(
        checksum=parts.checksum(),
        base=None if base is None else _short(base.span_id),
        continued=continued,
        shared=shared,
        ids=None if prompt is None else pack_ids(prompt[shared * ID_SIZE :]),
        head=fold(parts.head, before.head if before else None),
        request=fold(
            parts.request,
            before.request if before else None,
            known=before.said if before else (),
            prefixes=True,
        ),
        choices=[
            DeltaChoice(
                fold(choice.head, _choice_head(before, place)),
                None if choice.response_ids is None else pack_ids(choice.response_ids),
                choice.logprobs,
            )
            for place, choice in enumerate(parts.choices)
        ],
        response=None
        if parts.response is None
        else fold(parts.response, before.response if before else None, known=_replied(parts)),
    )
    return _MARK + _VERSION + _encoder.encode(delta)


def read(data: bytes, span_id: str) -> Delta | LLMCall:
    """A row as it was stored: a difference, or a whole call as plain MessagePack."""
    if data[:1] == _MARK and data[1:2] != _VERSION:
        raise SchemaMismatch(
            f"the call of span {span_id} was stored by a later version of agentlightning; upgrade "
            "with: pip install -U agentlightning"
        )
    try:
        if data[:1] != _MARK:
            return from_msgpack(data, LLMCall)
        delta = _decoder.decode(memoryview(data)[2:])
        if delta.base is not None:
            _long(delta.base)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise _damaged(span_id, None) from error
    return delta


def restore(delta: Delta, before: Parts | None, span_id: str) -> Parts:
    """The parts that ``delta`` was written of.

    Raises:
        DamagedRecord: ``before`` is not what the row was written against, or the row was changed.
    """
    if delta.base is not None and before is None:
        raise DamagedRecord(
            f"the call of span {span_id} is stored as a continuation of span {delta.base_id}, which is "
            "not there; restore the store from a copy"
        )
    try:
        parts = _restored(delta, before)
        intact = parts.checksum() == delta.checksum
    except (*_MISFITS, msgspec.MsgspecError) as error:
        raise _damaged(span_id, delta.base_id) from error
    if not intact:
        raise _damaged(span_id, delta.base_id)
    return parts


def shared_with(parts: Parts, base: Parts) -> int:
    """How many bytes of ids and request a row with ``base`` would save."""
    ids, _ = _shared_ids(parts, base)
    return ids * ID_SIZE + sum(
        shared_content(value, base.request.get(name)) for name, value in parts.request.items()
    )


def _short(span_id: str) -> bytes:
    """A span id in few bytes: most are hexadecimal digits."""
    try:
        digits = bytes.fromhex(span_id)
    except ValueError:
        digits = b""
    return _DIGITS + digits if digits.hex() == span_id else _TEXT + span_id.encode()


def _long(short: bytes) -> str:
    return short[1:].hex() if short[:1] == _DIGITS else short[1:].decode()


def _shared_ids(parts: Parts, base: Parts) -> tuple[int, int]:
    """How many ids the prompt and the base's prompt and one of its replies begin with; which reply."""
    if parts.prompt_ids is None or base.prompt_ids is None:
        return 0, 0
    size = common_prefix(parts.prompt_ids, base.prompt_ids)
    if size < len(base.prompt_ids):
        return size // ID_SIZE, 0
    prompt = parts.prompt_ids
    replies = [common_prefix(prompt, choice.response_ids or b"", size) for choice in base.choices]
    longest = max(replies, default=0)
    return (size + longest) // ID_SIZE, replies.index(longest) if longest else 0


def _restored(delta: Delta, before: Parts | None) -> Parts:
    choices = [
        ChoiceParts(
            unfold(choice.head, _choice_head(before, place), list),
            None if choice.ids is None else unpack_ids(choice.ids),
            choice.logprobs,
        )
        for place, choice in enumerate(delta.choices)
    ]
    parts = Parts(
        head=unfold(delta.head, before.head if before else None, list),
        request=unfold(
            delta.request, before.request if before else None, lambda: before.said if before else []
        ),
        response=None,
        prompt_ids=None if delta.ids is None else _begun(delta, before) + unpack_ids(delta.ids),
        choices=choices,
    )
    if delta.response is not None:
        parts.response = unfold(
            delta.response, before.response if before else None, lambda: _replied(parts)
        )
    return parts


def _begun(delta: Delta, before: Parts | None) -> bytes:
    if before is None or not delta.shared:
        return b""
    told = before.prompt_ids or b""
    if len(told) < delta.shared * ID_SIZE:
        told += before.choices[delta.continued].response_ids or b""
    return told[: delta.shared * ID_SIZE]


def _choice_head(parts: Parts | None, place: int) -> dict[str, bytes] | None:
    if parts is None or place >= len(parts.choices):
        return None
    return dict(parts.choices[place].head)


def _replied(parts: Parts) -> list[bytes]:
    """What the response says that stands elsewhere in the call: messages, usage, texts."""
    messages = [choice.head["message"] for choice in parts.choices]
    return [text for text in (*messages, parts.head["usage"]) if len(text) > 1] + parts.said


def _damaged(span_id: str, base: str | None) -> DamagedRecord:
    return DamagedRecord(
        f"the call of span {span_id} is not what was stored (it continues span {base}): it or a call "
        "before it was changed since; restore the store from a copy"
    )
