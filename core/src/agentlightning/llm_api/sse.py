"""Server-sent events: read piece by piece as the bytes pass, and written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

DONE: Final = "[DONE]"
"""The data of the last event of a stream of chat completions."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def write_event(data: bytes) -> bytes:
    """One event; data of several lines takes a field for each."""
    return b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"


def write_named_event(name: str, data: bytes) -> bytes:
    """One event of a protocol whose events have names."""
    return b"event: " + name.encode() + b"\n" + write_event(data)


class EventReader:
    """Takes bytes as they arrive, cut anywhere, and gives the ``data`` of each finished event."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that ``piece`` completes."""
        self._rest += piece
        for line in self._whole_lines():
            yield from self._line(line)

    def end(self) -> Iterator[str]:
        """The data of an event that was cut short of its empty line."""
        yield from self._line(self._rest.rstrip(b"\r"))
        self._rest = b""
        yield from self._line(b"")

    def _whole_lines(self) -> list[bytes]:
        if b"\r" not in self._rest:  # what nearly all servers send
            *lines, self._rest = self._rest.split(b"\n")
            return lines
        lines, at = [], 0
        for end in _LINE_END.finditer(self._rest):
            if end.group() == b"\r" and end.end() == len(self._rest):
                break  # its \n may come with the next piece
            lines.append(self._rest[at : end.start()])
            at = end.end()
        self._rest = self._rest[at:]
        return lines

    def _line(self, line: bytes) -> Iterator[str]:
        if not line:
            if self._data:
                yield "\n".join(self._data)
            self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" ").decode(errors="replace"))
