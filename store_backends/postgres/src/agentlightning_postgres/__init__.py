"""Keeps the runs of agentlightning in a PostgreSQL database that many machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlightning import hookimpl

if TYPE_CHECKING:
    from agentlightning.plugins import StoreBackendRegistry


@hookimpl
def register_store_backends(registry: StoreBackendRegistry) -> None:
    """Offer the store that ``postgresql://user@host/database`` opens."""
    registry.add(
        "postgres",
        "agentlightning_postgres.store:PostgresStore",
        summary="a PostgreSQL database, shared by any number of machines",
        schemes=("postgresql", "postgres"),
    )
