"""Child processes of a test: started, talked to, killed by their id, and gone when the test is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 60
"""After which a child that should have ended counts as hanging."""

_PREAMBLE = """
import sys, time
from agentlightning.errors import StaleAttempt
from agentlightning.records import AttemptKey, Outcome, RolloutConfig, RolloutRequest
from agentlightning.store import Result, RolloutQuery, waiting
from agentlightning.testing.store.making import request, span
_real, _shift = time.time, [float(sys.argv[2])]
time.time = lambda: _real() + _shift[0]

def set_clock(seconds):
    _shift[0] = seconds

def say(*words):
    print(*words, flush=True)

def listen():
    return sys.stdin.readline().strip()

from agentlightning.store.opening import open_store
store = open_store(sys.argv[1])
"""


class Child:
    """A Python process that talks in lines; leaving the ``with`` block kills it.

    Args:
        arguments: what the interpreter is given: a script of this folder, or ``-c`` and code.
        before: a command that runs the interpreter, such as ``unshare``.
        environment: variables set for it beside those of the test.
    """

    def __init__(self, *arguments: str, before: tuple[str, ...] = (), environment=None) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=Path(__file__).parent,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def hear(self) -> str:
        """The next line it says; a child that died says nothing, and that is an error."""
        line = self.process.stdout.readline()
        assert line.endswith("\n"), (
            f"the child ended ({self.process.wait(DEADLINE_S)}) and said {line!r}"
        )
        return line.strip()

    def tell(self, line: str = "go") -> None:
        """Say a line to it."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill -9, and wait until it is gone; does nothing to a child that has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout):
            if not stream.closed:
                stream.close()

    def end(self) -> int:
        """Wait until it ends by itself; its exit code."""
        return self.process.wait(DEADLINE_S)


def eventually(condition: Callable[[], bool], *, within_s: float = DEADLINE_S) -> None:
    """Wait for what other processes are about to make true."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {within_s:g} s"
        time.sleep(0.01)


def doing(url: str, code: str, *, clock_s: float = 0.0, before: tuple[str, ...] = ()) -> Child:
    """A child with the store open that does what ``code`` says; its wall clock is ``clock_s`` wrong."""
    return Child("-c", _PREAMBLE + textwrap.dedent(code), url, str(clock_s), before=before)
