"""All parts of the conformance class, as one to inherit."""

from __future__ import annotations

from agentlightning.testing.store.calls import CallTests
from agentlightning.testing.store.claims import ClaimTests
from agentlightning.testing.store.endings import EndingTests
from agentlightning.testing.store.leases import LeaseTests
from agentlightning.testing.store.refusals import RefusalTests
from agentlightning.testing.store.repeats import RepeatTests
from agentlightning.testing.store.resources import ResourceTests
from agentlightning.testing.store.runs import RunTests
from agentlightning.testing.store.sharing import SharingTests
from agentlightning.testing.store.spans import SpanTests
from agentlightning.testing.store.transfer import TransferTests
from agentlightning.testing.store.turnover import TurnoverTests
from agentlightning.testing.store.waking import WakingTests


class StoreConformance(
    RunTests,
    ClaimTests,
    LeaseTests,
    EndingTests,
    TurnoverTests,
    SpanTests,
    CallTests,
    ResourceTests,
    RepeatTests,
    TransferTests,
    RefusalTests,
    WakingTests,
    SharingTests,
):
    """What every store backend must do; each test says in its docstring what to fix when it fails."""
