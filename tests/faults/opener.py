"""A process that opens a store and leaves again; or is killed in the midst of bringing it up to date."""

from __future__ import annotations

import os
import signal

from agentlightning.store.opening import open_store
from agentlightning_sqlite import migrations


def main(url: str, dies_in: str = "") -> None:
    for step in migrations._migrations._migrations:
        if step.name == dies_in:
            step.fn = _dying(step.fn)
    open_store(url).close()


def _dying(step):
    def killed(db):
        step(db)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed
