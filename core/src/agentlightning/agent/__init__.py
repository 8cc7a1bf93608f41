"""Agents: what may be one, what it is given, what it may return."""

from agentlightning.agent.binding import BoundAgent, bind_agent, rollout
from agentlightning.agent.builtin import conversation_for, single_turn
from agentlightning.agent.loading import load_agent, load_object, reference_to, require_module
from agentlightning.agent.resources import attempt_resources
from agentlightning.agent.returns import Result, normalise_return
from agentlightning.agent.setup import init

__all__ = [
    "BoundAgent",
    "Result",
    "attempt_resources",
    "bind_agent",
    "conversation_for",
    "init",
    "load_agent",
    "load_object",
    "normalise_return",
    "reference_to",
    "require_module",
    "rollout",
    "single_turn",
]
