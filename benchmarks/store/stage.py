"""An empty store of one kind, open and ready to be measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import psutil
from agentlightning.store import Store


@dataclass(frozen=True)
class Stage:
    """What a case sets up.

    Attributes:
        store: the store, as one client has it.
        another: opens a further client of the same store.
        keeper: the process whose memory would grow if a store did not keep its promise.
        kept_bytes: how many bytes the rows of a rollout's LLM calls have; None where there are no rows.
        is_remote: whether the store's work is done by another process than this.
    """

    store: Store
    another: Callable[[], AbstractContextManager[Store]]
    keeper: psutil.Process = field(default_factory=psutil.Process)
    kept_bytes: Callable[[str], int] | None = None
    is_remote: bool = False
