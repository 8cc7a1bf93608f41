"""What a store does on a disk that is full: each case runs as a process that may mount a small one."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentlightning.errors import StoreUnavailable
from agentlightning.store import Store
from agentlightning.store.opening import open_store
from journal import Journal, entries
from writes import Writer
from written import check_answered, check_whole

SIZE = 24 * 2**20
ROUNDS = 10


def main(case: str, folder: str, seed: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], check=True)
    globals()[case](Path(folder), random.Random(seed))


def refuses_and_goes_on(folder: Path, chance: random.Random) -> None:
    """One object meets a full disk again and again, and needs no opening in between."""
    with open_store(url_in(folder)) as store:
        run_id = store.create_run("full", {}).run_id
        writer = Writer(store, run_id, "writer", chance)
        noted = []
        for _ in range(ROUNDS):
            with almost_full(folder, leaving=chance.randint(0, 400_000)):
                noted += written_until_full(writer)
                check(store, run_id, noted)
                noted += written_until_full(writer)  # the rest of the room goes to smaller writes
                check(store, run_id, noted)
            noted += [writer.write() for _ in range(20)]
        check(store, run_id, noted)
    check_file(folder)


def keeps_no_trace_of_a_refused_version(folder: Path, _: random.Random) -> None:
    """The number of a version that was refused goes to the next one, which is what is read."""
    with open_store(url_in(folder)) as store:
        run_id = store.create_run("full", {}).run_id
        refused, kept = {"data": {"padding": "x" * 200_000}}, {"data": "small"}
        with almost_full(folder, leaving=100_000):
            assert "make room on the disk" in refusal(lambda: store.publish(run_id, refused))
        assert store.publish(run_id, kept).version == 1
        assert store.resources(run_id, 1).resources["data"].value == "small"


def is_read_by_others(folder: Path, chance: random.Random) -> None:
    """A writer dies on the full disk; a process that opens the file there reads all, and goes on."""
    with open_store(url_in(folder)) as store:
        run_id = store.create_run("full", {}).run_id
    journal = folder.parent / "journal.jsonl"
    with almost_full(folder, leaving=400_000):
        if os.fork() == 0:
            writer = Writer(open_store(url_in(folder)), run_id, "writer", chance)
            for entry in written_until_full(writer):
                Journal(journal).note(entry)
            os._exit(0)  # as if killed: nothing is closed
        os.wait()
        noted = entries(journal)
        assert len(noted) > 3
        store = open_store(url_in(folder))
        check(store, run_id, noted)
        assert refusal(lambda: store.create_run("more", {"padding": "x" * 100_000}))
    with store:
        store.create_run("more", {"padding": "x" * 100_000})
        check(store, run_id, noted)
    check_file(folder)


def is_opened_with_no_room_at_all(folder: Path, _: random.Random) -> None:
    """Nobody has the file open, and not a byte is left: it says so, or is read."""
    with open_store(url_in(folder)) as store:
        run_id = store.create_run("full", {}).run_id
    with almost_full(folder, leaving=0):
        why = refusal(lambda: open_store(url_in(folder)).close())
        assert why is None or "room on the disk" in why, why
    with open_store(url_in(folder)) as store:
        assert store.run(run_id).name == "full"


# --- the words of the cases ---------------------------------------------------------------------


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder}/runs.db"


@contextmanager
def almost_full(folder: Path, *, leaving: int) -> Iterator[None]:
    """Somebody else's file takes all room of the disk but so many bytes; then it is gone."""
    other = folder / "other"
    with other.open("wb") as file:
        left = shutil.disk_usage(folder).free - leaving
        os.posix_fallocate(file.fileno(), 0, max(left, 1))
    yield
    other.unlink()


def written_until_full(writer: Writer) -> list[dict]:
    """Write until a write is refused; what was answered."""
    noted: list[dict] = []
    why = refusal(lambda: noted.extend(iter(writer.write, None)))
    assert "make room on the disk" in why, why
    return noted


def refusal(call) -> str | None:
    try:
        call()
    except StoreUnavailable as error:
        return str(error)
    return None


def check(store: Store, run_id: str, noted: list[dict]) -> None:
    """All that was answered is there, and nothing else."""
    check_answered(store, run_id, noted)
    check_whole(store, run_id, noted, lives=0)


def check_file(folder: Path) -> None:
    file = sqlite3.connect(folder / "runs.db")
    assert file.execute("pragma integrity_check").fetchall() == [("ok",)]
    file.close()
