"""Adding to a run's resources."""

from __future__ import annotations

from agentlightning.records import Resources, ResourcesVersion
from agentlightning.store.lookups import need_resources
from agentlightning.store.tables import Tables


def publish(
    tables: Tables,
    run_id: str,
    resources: Resources,
    note: str,
    parent: int | None,
    candidate: bool,
    now: float,
) -> ResourcesVersion:
    """Store the next version of a run's resources."""
    tables.lock_run(run_id)
    if parent is not None:
        need_resources(tables, run_id, parent)
    version = ResourcesVersion(
        run_id=run_id,
        version=tables.newest_resources(run_id, candidates=True) + 1,
        created_at=now,
        resources=dict(resources),
        parent=parent,
        note=note,
        candidate=candidate,
    )
    tables.insert_resources(version)
    return need_resources(tables, run_id, version.version)
