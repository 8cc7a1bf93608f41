"""From spans to training rows: rewards, transitions, rows, and the explanation of each."""

from agentlightning.samples.types import (
    CreditRules,
    Explanation,
    Fate,
    Fidelity,
    Level,
    Limits,
    Reason,
    Row,
    Transition,
    Turn,
)

__all__ = [
    "CreditRules",
    "Explanation",
    "Fate",
    "Fidelity",
    "Level",
    "Limits",
    "Reason",
    "Row",
    "Transition",
    "Turn",
]
