"""Agents that the configuration names and that never come."""

from __future__ import annotations

from collections.abc import Iterable

from agentlightning.algorithm import RolloutResult
from agentlightning.config import Config


class AgentsSeen:
    """Compares the names in a configuration with the agents whose calls were recorded.

    A name that no agent bears has no effect, and nothing else would tell.
    """

    def __init__(self, config: Config) -> None:
        self._named: dict[str, str] = dict.fromkeys(config.prompts.values(), "prompts")
        self._named |= dict.fromkeys(config.trained_agents or (), "trained_agents")
        self._seen: set[str] = set()
        self._rollouts = 0
        self._told = False

    def add(self, result: RolloutResult) -> None:
        """Take in a rollout that is over."""
        if self._told:  # nobody asks any more, and agents may have names without end
            return
        self._rollouts += 1
        self._seen.update(call.agent for call in result.transitions if call.agent)

    def missing(self) -> Iterable[str]:
        """A line for each name that did not come so far; told at the first call only."""
        if self._told:
            return
        self._told = True
        seen = ", ".join(sorted(self._seen)) or (
            "none; install the adapter of the agent's framework, which tells their names"
        )
        for name, key in self._named.items():
            if name not in self._seen:
                yield (
                    f"{key}: no call of an agent {name!r} in the first {self._rollouts} rollouts; "
                    f"agents seen: {seen}"
                )
