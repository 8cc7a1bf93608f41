"""Who waits for whom when many machines write at once.

There is no lock on everything. A writing transaction runs at READ COMMITTED and locks what it decides
upon before it reads it, so that nobody changes that until it ends. Locks are taken in this order, and
whoever holds one waits for none that stands before it, so no two transactions wait for each other:

1. ``KEY``: an idempotency key, alone. Of two calls with one key the second finds what the first made.
2. ``NAME``: the name of a run that is to be made, alone.
3. Rollouts, by id: each change of an attempt or its spans goes through its rollout's row. The next
   rollouts to claim and those whose lease ran out are locked as far as they are free (``skip locked``),
   which waits for nobody.
4. ``RUN``: shared by those who queue and claim in it, alone by who closes it, reopens it, moves its
   endpoint or numbers its resources.
5. ``METRICS`` of a run, alone; then single rows that are written and not read: a worker, an answer,
   and, by key, the answers that are dropped.
6. ``ORDER``: alone, by who adds rollouts, as the last thing before the commit. Rollouts are numbered
   under it, so their order is the order of commits, and a page never begins behind a rollout that is
   yet to be committed.

Two things leave this order, and are cheap to repeat should PostgreSQL ever find two transactions
waiting for each other: a call that is repeated under its key locks the rollouts it made before those it
ends, and an import looks for keys between rollouts.

Keys, names and runs are advisory locks of the transaction: they need no row to be there already, and
sharing one writes nothing to a table, as ``for share`` would.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Final


class Lock(enum.Enum):
    """What an advisory lock is on; the value keeps the kinds apart."""

    KEY = "key"
    NAME = "name"
    RUN = "run"
    METRICS = "metrics"
    ORDER = "order"


ALONE: Final = "select pg_advisory_xact_lock(%s)"
SHARED: Final = "select pg_advisory_xact_lock_shared(%s)"


def number_of(lock: Lock, *names: str) -> int:
    """The number PostgreSQL knows a lock by.

    Two that get the same number by chance, which 64 bits make unlikely, wait without need.
    """
    name = "\0".join(["agentlightning", lock.value, *names]).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), signed=True)
