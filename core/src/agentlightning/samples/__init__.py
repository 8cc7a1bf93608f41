"""From spans to training rows: rewards, transitions, rows, and the explanation of each."""

from agentlightning.samples.credit import credit_rule
from agentlightning.samples.explanation import explain, why_empty
from agentlightning.samples.merging import rows
from agentlightning.samples.reasons import Reason
from agentlightning.samples.recorded import recorded_rules, remember_rules
from agentlightning.samples.rewards import (
    coverage,
    outcome,
    outcome_reward,
    outcomes,
    rewards,
    unknown_version,
    versions_of,
)
from agentlightning.samples.transitions import exact_agents, transitions
from agentlightning.samples.types import (
    CreditRules,
    Explanation,
    Fate,
    Fidelity,
    Level,
    Limits,
    OutcomeReward,
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
    "OutcomeReward",
    "Reason",
    "Row",
    "Transition",
    "Turn",
    "coverage",
    "credit_rule",
    "exact_agents",
    "explain",
    "outcome",
    "outcome_reward",
    "outcomes",
    "recorded_rules",
    "remember_rules",
    "rewards",
    "rows",
    "transitions",
    "unknown_version",
    "versions_of",
    "why_empty",
]
