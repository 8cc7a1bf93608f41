"""Checks of numbers that every algorithm's configuration needs."""

from __future__ import annotations

from collections.abc import Iterable


def check_ranges(
    options: object, *, positive: Iterable[str] = (), not_negative: Iterable[str] = ()
) -> None:
    """Refuse numbers out of range; to be called from ``__post_init__``.

    Args:
        options: the algorithm's own configuration.
        positive: keys that have to be above 0; None is allowed.
        not_negative: keys that have to be 0 or more.

    Raises:
        ValueError: the message names the key, which the configuration turns into its own error.
    """
    for name in positive:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name}: {value} is not possible; expected more than 0")
    for name in not_negative:
        value = getattr(options, name)
        if not value >= 0:
            raise ValueError(f"{name}: {value} is not possible; expected 0 or more")
