"""The runner: claims rollouts, runs the agent on them, and finishes them."""

from agentlightning.runner.loop import Runner
from agentlightning.runner.routing import resolver_for
from agentlightning.runner.spec import RunnerSpec

__all__ = ["Runner", "RunnerSpec", "resolver_for"]
