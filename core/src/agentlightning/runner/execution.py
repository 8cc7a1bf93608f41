"""An agent at work on one attempt: started, waited for, given up."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Literal

from agentlightning.agent import BoundAgent
from agentlightning.errors import AgentLightningError, Deadline, RolloutCancelled
from agentlightning.recording.context import AttemptLife
from agentlightning.records import AttemptKey
from agentlightning.runner.event_loop import shared_loop
from agentlightning.store import Claim

GivenUp = Literal["timed_out", "cancelled", "lost", "stopped"]

_WHY: Mapping[GivenUp, str] = {
    "cancelled": "the rollout was cancelled",
    "lost": "no heartbeat came in time, the store gave the attempt to another worker",
    "stopped": "the runner was stopped",
}


@dataclass(frozen=True)
class Ending:
    """Why the runner stopped waiting for an agent.

    Attributes:
        value: what it returned.
        error: what it raised, ``SystemExit`` and its like included, or why it was given up; None
            after a return.
    """

    reason: Literal["returned", "raised"] | GivenUp
    value: object = None
    error: BaseException | None = None

    def raise_error(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error


def named(key: AttemptKey) -> str:
    """An attempt as messages name it."""
    return f"attempt {key.number} of rollout {key.rollout_id}"


class Execution:
    """Runs an agent for one attempt: a sync one in its own thread, an async one on the shared loop.

    It ends once, by whatever comes first: the agent returns or raises, its time is up, or it is given
    up. A thread can't be killed, so the agent's code may go on after that; its next LLM call raises
    ``RolloutCancelled``, and :attr:`at_rest` is set when it is really done.
    """

    def __init__(self, agent: BoundAgent, claim: Claim, life: AttemptLife) -> None:
        self.claim = claim
        self.life = life
        self.at_rest = threading.Event()
        self._agent = agent
        self._ended = threading.Event()
        self._ending: Ending | None = None
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return named(self.claim.key)

    def start(self, context: Context) -> None:
        """Let the agent begin, in ``context``; one that is given up already does not."""
        if self._ending is not None:
            self.at_rest.set()
            return
        if self._agent.is_async:
            self._start_task(self._call, context)
            return
        name = f"agent {self.claim.key.rollout_id}"
        threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True).start()

    def wait(self) -> Ending:
        """Wait for the end; when the rollout's time is up the agent is given up as timed out."""
        if not self._ended.wait(self.claim.rollout.config.timeout_s):
            self.give_up("timed_out")
        assert self._ending is not None  # noqa: S101 - set before the event, always
        return self._ending

    def give_up(self, reason: GivenUp) -> None:
        """Stop waiting, and make the agent stop as far as that is possible; from any thread."""
        if self._end(Ending(reason, error=self._explained(reason))):
            self.life.phase = "cancelled"
            if self._task is not None:
                shared_loop().call_soon_threadsafe(self._task.cancel)

    def _explained(self, reason: GivenUp) -> AgentLightningError:
        if reason == "timed_out":
            limit = self.claim.rollout.config.timeout_s
            return Deadline(f"the agent did not return within its {limit:g} s")
        return RolloutCancelled(f"the agent was given up while it worked: {_WHY[reason]}")

    def _call(self) -> Any:
        return self._agent(self.claim.rollout.input, self.claim)

    def _run(self) -> None:
        try:
            value = self._call()
        except BaseException as error:  # noqa: BLE001 - whatever an agent raises is its own failure
            self._rest(Ending("raised", error=error))
            return
        if inspect.isawaitable(value):
            self._start_task(lambda: value, copy_context())
        else:
            self._rest(Ending("returned", value))

    def _start_task(self, begin: Callable[[], Awaitable[object]], context: Context) -> None:
        loop = shared_loop()

        def start() -> None:
            self._task = loop.create_task(self._run_async(begin), context=context)
            self._task.add_done_callback(lambda _: self.at_rest.set())
            if self._ending is not None:  # given up before it began
                self._task.cancel()

        loop.call_soon_threadsafe(start)

    async def _run_async(self, begin: Callable[[], Awaitable[object]]) -> None:
        try:
            value = await begin()
        except BaseException as error:  # noqa: BLE001 - as in _run; nothing may reach the shared loop
            self._rest(Ending("raised", error=error))
        else:
            self._rest(Ending("returned", value))

    def _rest(self, ending: Ending) -> None:
        self.at_rest.set()  # before the end is told: its thread may take the next rollout then
        self._end(ending)

    def _end(self, ending: Ending) -> bool:
        with self._lock:
            if self._ending is not None:
                return False
            self._ending = ending
        self._ended.set()
        return True
