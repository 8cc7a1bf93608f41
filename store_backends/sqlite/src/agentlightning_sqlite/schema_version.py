"""The version of the schema, apart from the steps that make it.

Most processes open a file that is up to date. They read its version and need neither the steps nor
sqlite-utils, which imports pandas where that is installed: 90 MB in every worker process.
"""

from __future__ import annotations

import sqlite3
from typing import Final

SCHEMA_VERSION: Final = 5
"""The number of steps in ``migrations``; kept in a file as SQLite's ``user_version``."""


def is_up_to_date(connection: sqlite3.Connection) -> bool:
    """Whether the file has exactly this version's schema."""
    (version,) = connection.execute("pragma user_version").fetchone()
    return bool(version == SCHEMA_VERSION)
