"""Columns of the Parquet tables: how a field's values lie in Arrow, and come back bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from agentlightning.records import JSON, Choice, Floats, Tokens, from_json, to_json

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES: Final = 4


@dataclass(frozen=True)
class Column:
    """One kind of column.

    Attributes:
        encode: a field's value to a cell, which is what is kept until a row group is written.
        array: cells to Arrow.
        cells: Arrow to cells.
        decode: a cell to the field's value.
    """

    array: Callable[[Sequence[Any]], pa.Array]
    cells: Callable[[pa.Array], Iterable[Any]] = lambda array: array.to_pylist()
    encode: Callable[[Any], Any] = lambda value: value
    decode: Callable[[Any], Any] = lambda cell: cell


def size_of(cell: Any) -> int:
    """About how many bytes a cell takes."""
    kind = type(cell)
    if cell is None:
        return 0
    if kind is str:
        return len(cell)
    if kind is Tokens or kind is Floats:
        return _BYTES * len(cell)
    if kind is tuple or kind is list:
        return sum(map(size_of, cell))
    return 8


def _plain(kind: str) -> Callable[[Sequence[Any]], pa.Array]:
    def array(cells: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        return pa.array(cells, pa.type_for_alias(kind))

    return array


def _json_text(value: JSON) -> str | None:
    return None if value is None else to_json(value).decode()


def _json_value(text: str | None) -> JSON:
    return None if text is None else from_json(text, JSON)


def _texts(cells: Sequence[Sequence[str]]) -> pa.Array:
    import pyarrow as pa

    return pa.array(map(list, cells), pa.list_(pa.string()))


def _offsets(lengths: Iterable[int | None]) -> pa.Array:
    """Where each list begins; a null stands where there is no list."""
    import pyarrow as pa

    known = list(lengths)
    starts = list(accumulate((length or 0 for length in known), initial=0))
    marked = [None if length is None else start for length, start in zip(known, starts, strict=False)]
    return pa.array([*marked, starts[-1]], pa.int32())


def _packed_array(kind: str) -> Callable[[Sequence[Tokens | Floats | None]], pa.Array]:
    """Lists of numbers from their own buffers, so that every bit of them is kept."""

    def array(cells: Sequence[Tokens | Floats | None]) -> pa.Array:
        import pyarrow as pa

        data = b"".join(cell.to_bytes() for cell in cells if cell is not None)
        buffers = [None, pa.py_buffer(data)]
        numbers = pa.Array.from_buffers(pa.type_for_alias(kind), len(data) // _BYTES, buffers)
        offsets = _offsets(None if cell is None else len(cell) for cell in cells)
        return pa.ListArray.from_arrays(offsets, numbers)

    return array


def _packed_cells(
    kind: type[Tokens | Floats],
) -> Callable[[pa.ListArray], Iterable[Tokens | Floats | None]]:
    def cells(array: pa.ListArray) -> Iterable[Tokens | Floats | None]:
        numbers = array.values
        data = memoryview(numbers.buffers()[1] or b"")[numbers.offset * _BYTES :]
        offsets = array.offsets.to_pylist()
        for number, is_there in enumerate(array.is_valid().to_pylist()):
            part = data[offsets[number] * _BYTES : offsets[number + 1] * _BYTES]
            yield kind.from_bytes(bytes(part)) if is_there else None

    return cells


TEXT: Final = Column(_plain("string"))
JSON_TEXT: Final = Column(_plain("string"), encode=_json_text, decode=_json_value)
INTEGER: Final = Column(_plain("int64"))
REAL: Final = Column(_plain("float64"))
FLAG: Final = Column(_plain("bool"))
TEXTS: Final = Column(_texts)
TOKENS: Final = Column(_packed_array("uint32"), _packed_cells(Tokens))
LOGPROBS: Final = Column(_packed_array("float32"), _packed_cells(Floats))

_CHOICE: Final = {
    "index": INTEGER,
    "message": JSON_TEXT,
    "response_ids": TOKENS,
    "logprobs": LOGPROBS,
    "finish_reason": TEXT,
}


def _encoded_choices(choices: Sequence[Choice] | None) -> list[tuple[Any, ...]] | None:
    if choices is None:
        return None
    return [
        tuple(column.encode(getattr(choice, name)) for name, column in _CHOICE.items())
        for choice in choices
    ]


def _choices_array(cells: Sequence[list[tuple[Any, ...]] | None]) -> pa.Array:
    import pyarrow as pa

    flat = [choice for cell in cells for choice in cell or ()]
    columns = zip(*flat, strict=True) if flat else ((),) * len(_CHOICE)
    arrays = [
        column.array(list(values)) for column, values in zip(_CHOICE.values(), columns, strict=True)
    ]
    offsets = _offsets(None if cell is None else len(cell) for cell in cells)
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, list(_CHOICE)))


def _choices_cells(array: pa.ListArray) -> Iterable[list[tuple[Any, ...]] | None]:
    choices = array.values
    columns = [column.cells(choices.field(name)) for name, column in _CHOICE.items()]
    flat = list(zip(*columns, strict=True))
    offsets = array.offsets.to_pylist()
    for number, is_there in enumerate(array.is_valid().to_pylist()):
        yield flat[offsets[number] : offsets[number + 1]] if is_there else None


def _decoded_choices(cell: list[tuple[Any, ...]] | None) -> tuple[Choice, ...]:
    fields = [(name, column.decode) for name, column in _CHOICE.items()]
    return tuple(
        Choice(**{name: decode(value) for (name, decode), value in zip(fields, values, strict=True)})
        for values in cell or ()
    )


CHOICES: Final = Column(_choices_array, _choices_cells, _encoded_choices, _decoded_choices)
