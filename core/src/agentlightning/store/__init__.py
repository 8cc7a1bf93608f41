"""The store: its contract, the state machine behind it, and the backends that need no plug-in."""

from agentlightning.store.contract import Store
from agentlightning.store.types import (
    Change,
    Claim,
    Metrics,
    Order,
    Page,
    Result,
    RolloutQuery,
    Statistics,
    Worker,
)

__all__ = [
    "Change",
    "Claim",
    "Metrics",
    "Order",
    "Page",
    "Result",
    "RolloutQuery",
    "Statistics",
    "Store",
    "Worker",
]
