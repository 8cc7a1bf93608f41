"""The simplest store there could be, as the Hypothesis machine's idea of what is right.

Plain dicts and lists, no code shared with the store: where the two disagree, one of them is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LEASE_S = 10.0


@dataclass
class ModelAttempt:
    """One attempt: who works on it, until when, and how it stands."""

    worker: str
    until: float
    status: str = "running"


@dataclass
class ModelRollout:
    """One rollout and its attempts."""

    age: int
    priority: int
    max_attempts: int
    max_lost: int
    status: str = "queued"
    output: object = None
    attempts: list[ModelAttempt] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether its status can never change again."""
        return self.status in ("succeeded", "failed", "cancelled")

    def end(self, number: int, status: str, output: object = None) -> None:
        """Attempt ``number`` has ended; what becomes of the rollout."""
        self.attempts[number - 1].status = status
        if self.is_over:
            return
        ended = [attempt.status for attempt in self.attempts]
        tries = ended.count("failed") + ended.count("timed_out")
        may_try_again = {
            "failed": tries < self.max_attempts,
            "timed_out": tries < self.max_attempts,
            "lost": ended.count("lost") <= self.max_lost,
        }
        if may_try_again.get(status, False):
            self.status = "queued"
        else:
            self.status = status if status in ("succeeded", "cancelled") else "failed"
            self.output = output


class Model:
    """All rollouts of one run, and the time."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.is_open = True
        self.rollouts: dict[str, ModelRollout] = {}
        self.late = 0

    def expire(self) -> None:
        """Give up what is overdue."""
        for rollout in self.rollouts.values():
            for number, attempt in enumerate(rollout.attempts, start=1):
                if attempt.status == "running" and attempt.until <= self.now:
                    rollout.end(number, "lost")

    def next_to_claim(self, limit: int) -> list[str]:
        """The ids a claim must give, in order."""
        queued = [name for name, rollout in self.rollouts.items() if rollout.status == "queued"]
        queued.sort(key=lambda name: (-self.rollouts[name].priority, self.rollouts[name].age))
        return queued[:limit] if self.is_open else []

    def claim(self, name: str, worker: str) -> None:
        """Start an attempt."""
        rollout = self.rollouts[name]
        rollout.status = "running"
        rollout.attempts.append(ModelAttempt(worker, self.now + LEASE_S))

    def heartbeat(self, name: str, number: int, worker: str) -> Literal["continue", "cancel", "lost"]:
        """The order a worker must be given."""
        rollout = self.rollouts[name]
        attempt = rollout.attempts[number - 1]
        if attempt.status != "running" or attempt.worker != worker:
            return "lost"
        attempt.until = max(attempt.until, self.now + LEASE_S)
        return "cancel" if rollout.is_over else "continue"

    def finish(self, name: str, number: int, status: str, output: object) -> bool:
        """End an attempt; whether the result was taken (or had been before)."""
        rollout = self.rollouts[name]
        was = rollout.attempts[number - 1].status
        if was == "running":
            rollout.end(number, status, output)
            return True
        is_final = number == len(rollout.attempts) and rollout.status == was
        if was == status and (not is_final or rollout.output == output):
            return True
        self.late += 1
        return False
