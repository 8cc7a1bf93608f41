"""Files of spans that wait on disk while their store is slow or away.

Each file holds one batch, a JSON object a line, and is written once. The files of a store lie in a
folder of its own and carry the name of the process that wrote them, which holds a lock as long as it
lives. So a process that finds files whose lock is free knows that nobody will write these spans any
more, and does it itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from agentlightning.records import AttemptKey, Span, from_json, to_json
from agentlightning.store import Store
from agentlightning.store.opening import without_password

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

logger = logging.getLogger("agentlightning.recording")

SPILL_VARIABLE: Final = "AGENTLIGHTNING_SPILL"
_ENDING: Final = ".jsonl"
_BINARY: Final = getattr(os, "O_BINARY", 0)  # Windows would write its own line ends


@dataclass(frozen=True)
class SpillFile:
    """One batch on disk.

    Attributes:
        count: how many spans lie in it.
        first: the number of its first span in the sink; 0 if another process left it behind.
        keys: whose spans they are; empty if another process left them behind.
    """

    path: Path
    count: int
    first: int = 0
    keys: frozenset[AttemptKey] = frozenset()


class Spill:
    """The spans of one sink that wait on disk.

    Args:
        store: where they are to go. Its URL is what a later process knows them by; those of a store
            that ends with its process are of no use to another.
    """

    def __init__(self, store: Store) -> None:
        url = without_password(str(getattr(store, "url", "")))
        self.outlives: Final = bool(url) and not url.startswith("memory:")
        self.folder: Final = spill_root() / hashlib.sha256(url.encode()).hexdigest()[:16]
        self._url = url
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._written = 0
        self._locks: dict[str, int] = {}

    def write(self, spans: Sequence[tuple[int, Span]]) -> SpillFile:
        """Put numbered spans on disk, in one file.

        They are the operating system's then: a process that is killed does not lose them, a machine
        that loses power may.

        Raises:
            OSError: the disk is full or cannot be written; nothing is left of the file.
        """
        if self._name not in self._locks:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._locks[self._name] = self._own_lock()
        self._written += 1
        path = self.folder / f"{self._name}.{self._written:06d}{_ENDING}"
        lines = b"".join(to_json(span) + b"\n" for _, span in spans)
        # What agents say to models is nobody else's business.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(lines)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        keys = frozenset(AttemptKey(span.rollout_id, span.attempt) for _, span in spans)
        return SpillFile(path, first=spans[0][0], count=len(spans), keys=keys)

    def read(self, file: SpillFile, of: AttemptKey | None = None) -> list[Span]:
        """The spans of a file, or only those of one attempt.

        What is no span is logged and left out: the last line of a process that was killed while it
        wrote may be cut short.

        Raises:
            OSError: the file cannot be read, or is gone because its spans were stored meanwhile.
        """
        lines = file.path.read_bytes().splitlines()
        if of is None:
            return [span for line in lines if (span := _span_of(line, file.path)) is not None]
        wanted = to_json(of.rollout_id)  # most lines are of others, and need not be read for that
        read = (_span_of(line, file.path) for line in lines if wanted in line)
        return [span for span in read if span and (span.rollout_id, span.attempt) == of]

    def left_behind(self) -> list[SpillFile]:
        """The files that processes which live no more left for this store, oldest first; now ours."""
        try:
            found = self._take_over()
        except OSError as error:  # recording goes on all the same
            logger.error("cannot look for spans left behind in %s: %s", self.folder, error)  # noqa: TRY400
            return []
        if found:
            logger.warning(
                "an earlier process could not write its last spans to the store; they are taken in "
                "now, from %d files in %s", len(found), self.folder,
            )  # fmt: skip
        return [SpillFile(path, count=_lines(path)) for path in found]

    def _take_over(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        names = [path.stem for path in self.folder.glob("*.lock") if self._takes_over(path)]
        found = [path for name in names for path in self.folder.glob(f"{name}.*{_ENDING}")]
        if not self.outlives:  # their store has ended with the process that left them
            for path in found:
                path.unlink(missing_ok=True)
            found = []
        for name in set(names) - {_owner(path) for path in found}:
            self._let_go(name)
        return sorted(found, key=_age)

    def remove(self, file: SpillFile) -> None:
        """Delete a file whose spans are stored."""
        file.path.unlink(missing_ok=True)
        name = _owner(file.path)
        if name != self._name and not any(self.folder.glob(f"{name}.*{_ENDING}")):
            self._let_go(name)

    def close(self) -> None:
        """Release the locks; what still lies there is anybody's who records to the same store."""
        for name in list(self._locks):
            self._let_go(name)

    def _own_lock(self) -> int:
        """A lock that nobody took in the moment between making and locking it."""
        path = self.folder / f"{self._name}.lock"
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if _locked(handle) and path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                os.write(handle, f"{self._url}\n".encode())  # for a person who wonders whose it is
                return handle
            os.close(handle)

    def _takes_over(self, path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError:  # gone, or another user's
            return False
        if path.stem in self._locks or not _locked(handle):
            os.close(handle)
            return False
        self._locks[path.stem] = handle
        return True

    def _let_go(self, name: str) -> None:
        handle = self._locks.pop(name)
        if not any(self.folder.glob(f"{name}.*{_ENDING}")):
            (self.folder / f"{name}.lock").unlink(missing_ok=True)
        os.close(handle)


def spill_root() -> Path:
    """Where spans wait: ``AGENTLIGHTNING_SPILL``, else where this user's programs keep their state."""
    if named := os.environ.get(SPILL_VARIABLE):
        return Path(named)
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:  # a user without a home
        state = tempfile.gettempdir()
    return Path(state) / "agentlightning" / "spill"


def _span_of(line: bytes, path: Path) -> Span | None:
    try:
        return from_json(line, Span)
    except msgspec.MsgspecError as error:
        logger.error("a line of %s is no span and is left out: %s", path, error)  # noqa: TRY400
        return None


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _locked(handle: int) -> bool:
    """Lock an open file, if nobody else has; the lock ends with the process, however that ends."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _owner(path: Path) -> str:
    return path.name.partition(".")[0]


def _age(path: Path) -> tuple[float, str]:
    return path.stat().st_mtime, path.name
