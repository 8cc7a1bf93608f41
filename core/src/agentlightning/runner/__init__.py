"""The runner: claims rollouts, runs the agent on them, and finishes them."""

from agentlightning.runner.loop import Runner
from agentlightning.runner.routing import resolver_for
from agentlightning.runner.settings import KEPT_AS, RunSettings, settings_of
from agentlightning.runner.spec import RunnerSpec

__all__ = ["KEPT_AS", "RunSettings", "Runner", "RunnerSpec", "resolver_for", "settings_of"]
