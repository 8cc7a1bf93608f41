"""A process that writes as fast as it can, and notes each write that the store has answered."""

from __future__ import annotations

import os
import random
from pathlib import Path

from agentlightning.store.opening import open_store
from journal import Journal
from writes import Writer


def main(url: str, run_id: str, journal: str, name: str) -> None:
    noted = Journal(Path(journal))
    store = open_store(url)
    if pages := os.environ.get("CHECKPOINT_PAGES"):
        store._connection.execute(f"pragma wal_autocheckpoint = {pages}")
    writer = Writer(store, run_id, name, random.Random(name), patience_s=60.0)
    while True:
        noted.note(writer.write())
