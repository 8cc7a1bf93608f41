"""The fixtures of the conformance class, and the guard that no test is dropped silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentlightning.store import Store
from agentlightning.testing.store.making import Clock


class StoreTests:
    """What every part of the conformance class stands on."""

    @pytest.fixture
    def clock(self) -> Clock:
        """The store's time; give it to the backend as ``clock``."""
        return Clock()

    @pytest.fixture
    def store(self) -> Store:
        """An empty store on ``clock``: the one fixture a backend has to give."""
        raise NotImplementedError("give StoreConformance a fixture `store` with an empty store")

    @pytest.fixture
    def reopen(self) -> Callable[[], Store] | None:
        """Opens the data of ``store`` once more; None for a backend whose data ends with it."""
        return None

    @pytest.fixture
    def run_id(self, store: Store) -> str:
        """An open run."""
        return store.create_run("conformance", {}).run_id

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, test in vars(cls).items():
            overridden = name.startswith("test_") and any(
                name in vars(base) for base in cls.__mro__[1:]
            )
            if overridden and not _is_excused(test):
                raise TypeError(
                    f"{cls.__name__}.{name} replaces a conformance test; if the backend cannot pass "
                    'it, mark it @pytest.mark.xfail(strict=True, reason="why"), else give it a new name'
                )


def _is_excused(test: Any) -> bool:
    marks = getattr(test, "pytestmark", [])
    return any(
        mark.name == "xfail" and mark.kwargs.get("strict") and mark.kwargs.get("reason")
        for mark in marks
    )
