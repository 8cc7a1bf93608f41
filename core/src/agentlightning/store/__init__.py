"""The store: its contract, the state machine behind it, and the backends that need no plug-in."""

from agentlightning.store.contract import Store
from agentlightning.store.paging import rollout_pages
from agentlightning.store.patient import PatientStore
from agentlightning.store.types import (
    AccessRole,
    Change,
    Claim,
    Metrics,
    Order,
    Page,
    Result,
    RolloutQuery,
    Statistics,
    Turnover,
    Worker,
)

__all__ = [
    "AccessRole",
    "Change",
    "Claim",
    "Metrics",
    "Order",
    "Page",
    "PatientStore",
    "Result",
    "RolloutQuery",
    "Statistics",
    "Store",
    "Turnover",
    "Worker",
    "rollout_pages",
]
