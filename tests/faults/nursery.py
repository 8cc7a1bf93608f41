"""Processes that are born at once: a warm one has imported everything and forks them.

A test that kills fifty processes would otherwise spend its time on fifty starts of an interpreter. The
nursery itself has no thread and opens nothing, so what it forks begins as a fresh process does. When
the test is gone, its input ends, and it takes its children along.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path


class Nursery:
    """Forks processes that run ``main`` of a module of this folder; see :meth:`start`.

    Args:
        modules: what they need, imported before.
        before: a command that runs the interpreter, such as ``unshare``.
    """

    def __init__(self, *modules: str, before: tuple[str, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [*before, sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        assert self._hear() == "warm"
        self._members: set[Member] = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in list(self._members):
            member.kill()
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def start(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> Member:
        """A process that runs ``module.main(*arguments)``."""
        pid = int(self.ask({"fork": [module, *arguments], "environment": environment or {}}))
        member = Member(self, pid)
        self._members.add(member)
        return member

    def ask(self, order: dict) -> str:
        """Give it an order and hear the answer."""
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        return self._hear()

    def forget(self, member: Member) -> None:
        """It has ended."""
        self._members.discard(member)

    def _hear(self) -> str:
        line = self._process.stdout.readline()
        assert line, f"the nursery ended: {self._process.wait(60)}"
        return line.strip()


class Member:
    """One process of a nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._code: int | None = None

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.end()

    def send(self, number: int) -> None:
        """Send a signal, unless it was waited for: its id may be somebody else's then."""
        if self._code is None:
            os.kill(self.pid, number)

    def end(self) -> int:
        """Wait until it has ended; its exit code, negative for a signal."""
        if self._code is None:
            self._code = int(self._nursery.ask({"wait": self.pid}))
            self._nursery.forget(self)
        return self._code


# --- the nursery's own side ---------------------------------------------------------------------


def serve(*modules: str) -> None:
    """Fork and wait as told, until the input ends."""
    for module in modules:
        importlib.import_module(module)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a child prints goes where errors go
    children: set[int] = set()
    answers.write("warm\n")
    for line in sys.stdin:
        order = json.loads(line)
        if "fork" in order:
            pid = os.fork()
            if pid == 0:
                answers.close()
                _live(*order["fork"], environment=order["environment"])
            children.add(pid)
            answers.write(f"{pid}\n")
        else:
            _, status = os.waitpid(order["wait"], 0)
            children.discard(order["wait"])
            answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _live(module: str, *arguments: str, environment: dict[str, str]) -> None:
    """A child's whole life."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environment)
    code = 1
    try:
        importlib.import_module(module).main(*arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - the test sees the code, and the traceback beside it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(*sys.argv[1:])
