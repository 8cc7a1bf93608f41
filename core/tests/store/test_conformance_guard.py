"""The conformance class itself: no test of it can be left out silently."""

import pytest
from agentlightning.testing.store import StoreConformance


def test_a_replaced_test_is_refused():
    with pytest.raises(TypeError, match="test_nothing_is_claimed_twice"):
        type("Mine", (StoreConformance,), {"test_nothing_is_claimed_twice": lambda self: None})


def test_a_replaced_test_with_a_strict_excuse_is_accepted():
    @pytest.mark.xfail(strict=True, reason="the backend has no transactions")
    def excused(self):
        raise AssertionError

    type("Mine", (StoreConformance,), {"test_nothing_is_claimed_twice": excused})


def test_an_excuse_that_is_not_strict_or_gives_no_reason_is_refused():
    for mark in (pytest.mark.xfail(reason="why"), pytest.mark.xfail(strict=True), pytest.mark.skip):
        with pytest.raises(TypeError):
            type(
                "Mine", (StoreConformance,), {"test_nothing_is_claimed_twice": mark(lambda self: None)}
            )


def test_every_test_says_what_to_fix():
    tests = [
        getattr(StoreConformance, name) for name in dir(StoreConformance) if name.startswith("test_")
    ]
    assert len(tests) > 60
    assert [test.__name__ for test in tests if not test.__doc__] == []
