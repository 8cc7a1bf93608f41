"""Keeping the sample rules with each rollout, so that it can be explained later as it was used."""

from __future__ import annotations

from agentlightning.records import JSON, Rollout, from_builtins, to_builtins
from agentlightning.samples.types import CreditRules, Level, Limits

KEY = "agentlightning.samples"
"""The rollout's metadata key."""


def remember_rules(rules: CreditRules, limits: Limits, level: Level) -> dict[str, JSON]:
    """Metadata that holds the rules a rollout's samples are made by."""
    return {KEY: {"rules": to_builtins(rules), "limits": to_builtins(limits), "level": level}}


def recorded_rules(rollout: Rollout) -> tuple[CreditRules, Limits, Level]:
    """The rules a rollout was enqueued with; the defaults for one recorded outside a training run."""
    kept = rollout.metadata.get(KEY, {})
    return (
        from_builtins(kept.get("rules", {}), CreditRules),
        from_builtins(kept.get("limits", {}), Limits),
        kept.get("level", "transition"),
    )
