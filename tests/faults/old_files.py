"""Store files as an older release left them, with rows in every table it had."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agentlightning_sqlite import migrations
from sqlite_utils import Database

STEPS = list(migrations.steps)
ROLLOUTS = 200

_ROWS = {
    "001_runs": [
        "insert into runs values (1, 'run-1', 'old', 'open', null, 1700000000.5, '{}')",
        """insert into states values ('run-1', '{"step":3}')""",
        "insert into metrics values ('run-1', 1, 'loss', 0.5, 1700000001.0)",
    ],
    "002_rollouts": [
        f"""with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROLLOUTS})
        insert into rollouts select i, 'ro-' || i, 'run-1', 'g', 'train', 'succeeded', 0, 1, 0, i / 2.0,
            1700000000.0, 1700000009.0, '"task ' || i || '"', '"done"', '{{}}', '{{}}' from n""",
        """insert into attempts select rollout_id, 1, run_id, 'succeeded', 'worker', 1700000001.0,
            1700000061.0, 1700000009.0, null from rollouts""",
    ],
    "003_spans": [
        """insert into spans select seq, rollout_id, 1, 'span-' || seq, null, 't', 'tool', 'step', 'ok',
            1, 2, '{"text":"' || hex(randomblob(400)) || '"}', '[]', null from rollouts""",
    ],
    "004_bookkeeping": [
        """insert into answers values ('enqueue in run-1', 'key', 'fingerprint', '["ro-1"]')""",
        "insert into workers values ('worker', 1700000001.0, 1700000009.0, '{}')",
        "insert into counters values ('run-1', 3, 4, 0)",
    ],
}
"""Rows as the release wrote them that had this step as its last: never to be changed, as the steps."""


def make_old_file(path: Path, last_step: str) -> None:
    """A file with the steps up to ``last_step``, as SQLite keeps a store, and rows in it."""
    number = STEPS.index(last_step) + 1
    with closing(sqlite3.connect(path)) as file:
        file.execute("pragma journal_mode = wal")
        db = Database(file, recursive_triggers=False, execute_plugins=False, strict=True)
        migrations._migrations.apply(db, stop_before=STEPS[number : number + 1])
        for step in STEPS[:number]:
            for sql in _ROWS.get(step, ()):
                file.execute(sql)
        file.execute(f"pragma user_version = {number}")
        file.commit()


def rows_of(path: Path) -> dict[str, list[dict[str, object]]]:
    """Every row of every table of a store."""
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        assert file.execute("pragma integrity_check").fetchone()[0] == "ok"
        tables = (
            "select name from sqlite_master where type = 'table' and name not like '\\_%' escape '\\'"
        )
        names = [row[0] for row in file.execute(tables)]
        return {name: [dict(row) for row in file.execute(f"select * from {name}")] for name in names}


def version_of(path: Path) -> int:
    """The number of steps the file has taken; its list of steps says the same."""
    with closing(sqlite3.connect(path)) as file:
        (version,) = file.execute("pragma user_version").fetchone()
        taken = [row[0] for row in file.execute("select name from _sqlite_migrations order by rowid")]
    assert taken == STEPS[:version]
    return version
