"""The bodies of the operations that move a run to another store."""

from __future__ import annotations

from agentlightning.store.http.messages import Reply, Request
from agentlightning.store.transfer import StoredRow


class ExportRows(Request, frozen=True):
    """Everything there is of a run, a page at a time."""

    run_id: str
    cursor: str | None = None


class ImportRows(Request, frozen=True):
    """Add rows that another store exported; a rollout comes with all its attempts."""

    rows: list[StoredRow]


class StoredRows(Reply, frozen=True):
    """Rows, each after those it needs; ``cursor`` asks for the next page, null on the last."""

    rows: list[StoredRow]
    cursor: str | None = None
