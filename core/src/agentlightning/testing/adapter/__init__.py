"""Conformance of a tracer adapter: inherit one class, say how your framework builds and runs an agent.

::

    from agentlightning.testing.adapter import AdapterConformance

    class TestMyAdapter(AdapterConformance):
        def adapter(self):
            return MyAdapter()

        def build(self, base_url, *, name, instructions, tools):
            return MyAgent(name, instructions, tools, model=MyModel(base_url, retries=0))

        def run(self, agent, text):
            return agent.ask(text)

``arun``, ``stream`` and ``build_handoff`` are for frameworks and adapters that have such a thing.
"""

import pytest

pytest.register_assert_rewrite(__name__)  # before the modules below: their asserts explain themselves

from agentlightning.testing.adapter.conformance import AdapterConformance  # noqa: E402

__all__ = ["AdapterConformance"]
