"""Stores that do the waiting themselves, and how the waiting helpers ask them."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from agentlightning.errors import StoreClosed, StoreUnavailable
from agentlightning.records import Rollout
from agentlightning.store.contract import Store
from agentlightning.store.types import Claim

T = TypeVar("T")

_SHORTEST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class PatientStore(Store):
    """A store at the far end of a network: a request is held back there until there is an answer.

    One request that waits takes the place of a wake-up, a look and another look. Each of these methods
    may come back early with nothing: because the far end holds a request back for so long only, or is
    about to be restarted. Whoever wants to go on waiting asks again.
    """

    @abstractmethod
    def claim_waiting(
        self,
        run_id: str | None,
        worker_id: str,
        *,
        limit: int = 1,
        timeout_s: float,
        key: str | None = None,
    ) -> tuple[list[Claim], bool]:
        """:meth:`claim`, held back until there is something to claim, for ``timeout_s`` at most.

        Asked again under the same ``key`` after ``StoreUnavailable``, it gives the claims whose reply
        was lost.

        Returns:
            Up to ``limit`` claims, and whether the run is still open, so that asking again makes sense.
        """

    @abstractmethod
    def stop_waiting(self, worker_id: str) -> None:
        """Have the worker's :meth:`claim_waiting` return now; a claim it has made is still returned.

        One that is still on its way there is not met: call again while it has not returned.
        """

    @abstractmethod
    def wait_over(
        self, rollout_ids: Sequence[str], *, timeout_s: float, count: int | None = None
    ) -> list[Rollout]:
        """Those of these rollouts that are over; held back until ``count`` are (default: all)."""


class Patience:
    """The time that a wait has, and the absences of the store that it sits out.

    A store behind a server is away whenever that server is started again. Whoever waits has time, so
    that costs nothing but time; a store that was closed here does not come back and is not waited for.

    Attributes:
        trouble: why the store could not be asked last, None when it could.
    """

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = _SHORTEST_PAUSE_S
        self.trouble: StoreUnavailable | None = None

    @property
    def left_s(self) -> float:
        """Seconds to the deadline, 0 when it has passed."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def pause_s(self) -> float:
        """How long to leave the store alone after some trouble; longer each time, until it helps."""
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return min(self._pause_s, self.left_s)

    def ask(self, call: Callable[[], T]) -> T | None:
        """What ``call`` gives, or None if the store cannot be asked at present."""
        try:
            answer = call()
        except StoreClosed:
            raise
        except StoreUnavailable as error:
            self.trouble = error
            return None
        self.trouble, self._pause_s = None, _SHORTEST_PAUSE_S
        return answer

    def ask_until_answered(self, call: Callable[[float], T | None]) -> T | None:
        """Ask again and again, each time for as long as there is left, until the answer is not None."""
        while True:
            began, left_s = time.monotonic(), self.left_s
            answer = self.ask(partial(call, left_s))
            if answer is not None or left_s <= 0:
                return answer
            if self.trouble:
                time.sleep(self.pause_s)
            else:  # an answer that came early, as from a server about to stop: do not spin
                time.sleep(min(self.left_s, max(0.0, began + _SHORTEST_PAUSE_S - time.monotonic())))
