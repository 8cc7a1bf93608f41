"""Conformance of a store backend: inherit one class, give it one fixture.

::

    from agentlightning.testing.store import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, clock):
            with MyStore("my://…", clock=clock) as store:
                yield store

A backend whose data outlives it also gives the fixture ``reopen``, a function that opens the same data
once more. A test that a backend cannot pass is overridden with a strict ``xfail`` that says why; none
can be left out silently.
"""

import pytest

pytest.register_assert_rewrite(__name__)  # before the modules below: their asserts explain themselves

from agentlightning.testing.store.conformance import StoreConformance  # noqa: E402
from agentlightning.testing.store.making import Clock, request, span  # noqa: E402

__all__ = ["Clock", "StoreConformance", "request", "span"]
