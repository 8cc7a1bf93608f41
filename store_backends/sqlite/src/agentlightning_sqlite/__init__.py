"""Keeps the runs of agentlightning in one SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import StoreBackendRegistry


@hookimpl
def register_store_backends(registry: StoreBackendRegistry) -> None:
    """Offer the store that ``sqlite:///file.db`` opens."""
    registry.add(
        "sqlite",
        "agentlightning_sqlite.store:SqliteStore",
        summary="one file, shared by the processes of this machine",
        schemes=("sqlite",),
    )
