"""The class that the test of an adapter inherits."""

from __future__ import annotations

from agentlightning.testing.adapter.isolation import IsolationScenarios
from agentlightning.testing.adapter.manners import MannersScenarios
from agentlightning.testing.adapter.structure import StructureScenarios


class AdapterConformance(StructureScenarios, IsolationScenarios, MannersScenarios):
    """Supply the builders, and every scenario runs against your framework.

    Agents have to ask their model through an OpenAI-style client of the framework's own, at the
    address they are given and without retries. A scenario of a capability that the adapter does not
    declare is skipped.
    """
