"""What a connection remembers of the file is never wrong: others write, and commits of its own fail."""

import random
import sqlite3
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

from agentlightning.errors import StoreUnavailable
from agentlightning.testing.store.machine import check_against_model
from agentlightning_sqlite.store import SqliteStore


class Turns:
    """A store whose calls are taken by one opening of its file or the other, as chance has it.

    Now and then the commit of a claim is refused before: it has happened as far as the connection went,
    and not in the file.
    """

    def __init__(self, url, clock):
        self._chance = random.Random(url)
        self._stores = [SqliteStore(url, clock=clock) for _ in range(2)]

    def __getattr__(self, name):
        store = self._chance.choice(self._stores)
        if self._chance.random() < 0.3:
            with commits_refused(store._connection), suppress(StoreUnavailable):
                store.claim(None, "nobody", limit=2)
        return getattr(store, name)

    def close(self):
        for store in self._stores:
            store.close()


@contextmanager
def commits_refused(connection):
    def may(action, what, *_):
        is_commit = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
        return sqlite3.SQLITE_DENY if is_commit else sqlite3.SQLITE_OK

    with ExitStack() as after:
        after.callback(connection.set_authorizer, None)
        connection.set_authorizer(may)
        yield


def test_two_openings_whose_commits_fail_now_and_then_agree_with_the_model(tmp_path):
    numbers = count()
    check_against_model(
        lambda clock: Turns(f"sqlite:///{tmp_path}/{next(numbers)}.db", clock), examples=15
    )
