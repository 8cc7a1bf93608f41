"""A clock that does not jump, so that nobody who sets a machine's clock ends or stretches a lease.

A computer's wall clock is set: by an administrator, by time synchronisation, by a virtual machine that
wakes up. The seconds since the machine started are not. A :class:`SteadyClock` looks at the wall once
and counts those seconds from there. Dates in a store are therefore as right as the wall clock was at
that moment, and the distance of two dates is the time that really passed.
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path

_PROC = Path("/proc")


def machine_time() -> tuple[str | None, float]:
    """Which start of this machine it is, and the seconds since then.

    Returns:
        The id of the start, the same in all processes until the machine starts again. On Linux the
        seconds are the same in all processes too, and count the time the machine was suspended. None
        where the system tells no such id: then they mean something within this process only.
    """
    return _boot_id(), _seconds()


class SteadyClock:
    """Tells the time in seconds since the epoch, from a date of the machine's start.

    Args:
        booted_at: when :func:`machine_time` was zero, in seconds since the epoch.
    """

    def __init__(self, booted_at: float) -> None:
        self.booted_at = booted_at

    @classmethod
    def starting_at(cls, now: float) -> SteadyClock:
        """A clock that shows ``now`` at this moment."""
        return cls(now - _seconds())

    def __call__(self) -> float:
        """The time."""
        return self.booted_at + _seconds()


if sys.platform == "linux":

    def _seconds() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - _set_apart()

    @functools.cache
    def _boot_id() -> str | None:
        try:
            return (_PROC / "sys/kernel/random/boot_id").read_text().strip() or None
        except OSError:  # a sandbox that shows processes no such file
            return None

    @functools.cache
    def _set_apart() -> float:
        """What the seconds differ by in a container with a time namespace of its own."""
        try:
            lines = (_PROC / "self/timens_offsets").read_text().splitlines()
        except OSError:  # a kernel without time namespaces
            return 0.0
        offsets = {name: int(s) + int(ns) / 1e9 for name, s, ns in map(str.split, lines)}
        return offsets.get("boottime", 0.0)

else:

    def _seconds() -> float:
        return time.monotonic()

    def _boot_id() -> str | None:
        return None
