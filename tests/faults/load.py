"""Writers and runners at work on a store, while something that they need is killed under them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentlightning.store import Store
from agentlightning.store.waiting import wait
from journal import entries
from nursery import Nursery
from processes import eventually
from rollouts import check_runs, enqueue_ahead, ids_of, rollouts_of
from written import check_answered, check_whole

WRITERS, RUNNERS, THREADS = 2, 2, 3
LEASE_S = 60.0
"""So long that no attempt is lost: whoever holds one lives, and what was killed is back before."""


class Load:
    """Two writers and two runners, each a process that nobody kills: they have to go on.

    Args:
        nursery: bears them.
        url: the store as they know it.
        store: the same store as the test sees it.
        folder: where they note what they were answered.
        writing: variables of the writers.
        running: variables of the runners.
    """

    def __init__(
        self,
        nursery: Nursery,
        url: str,
        store: Store,
        folder: Path,
        *,
        writing: Mapping[str, str] | None = None,
        running: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store
        self._written, self._worked = (
            store.create_run(name, {}).run_id for name in ("written", "worked")
        )
        self._writes = [folder / f"writes{number}" for number in range(WRITERS)]
        self._runs = [folder / f"runs{number}" for number in range(RUNNERS)]
        self._writers = [
            nursery.start("writer", url, self._written, str(path), path.name, environment=writing)
            for path in self._writes
        ]
        arguments = (url, self._worked, "agents:stepping")
        self._runners = [
            nursery.start("runner_process", *arguments, str(path), str(THREADS), environment=running)
            for path in self._runs
        ]
        self.top_up()
        self.goes_on()

    def top_up(self) -> None:
        """Keep the queue from running dry."""
        enqueue_ahead(self._store, self._worked, lease_s=LEASE_S)

    def goes_on(self) -> None:
        """Wait until each of them has been answered once more, which shows that none has given up."""
        before = {path: len(entries(path)) for path in (*self._writes, *self._runs)}
        for path, noted in before.items():
            eventually(lambda path=path, noted=noted: len(entries(path)) > noted)

    def end(self) -> None:
        """Let the runners finish all there is, and end the writers."""
        wait(self._store, ids_of(rollouts_of(self._store, self._worked)), timeout_s=60)
        self._store.set_run_status(self._worked, "succeeded")
        assert [runner.end() for runner in self._runners] == [0] * RUNNERS
        for writer in self._writers:
            writer.kill()

    def check(self, *, kills: int) -> None:
        """Nothing that they were answered is lost, nothing is there twice, and they were busy."""
        check_runs(self._store, self._worked, self._runs)
        noted = [entries(path) for path in self._writes]
        for of_writer in noted:
            assert len(of_writer) > kills
            check_answered(self._store, self._written, of_writer)
        everything = [entry for of_writer in noted for entry in of_writer]
        check_whole(self._store, self._written, everything, lives=WRITERS)
