"""Writes of every kind, each under a name of its own: found again, it is whole or it is not there."""

from __future__ import annotations

import random
from typing import Any

from agentlightning.records import AttemptKey, Data, Outcome, Span
from agentlightning.store import Claim, Result, Store
from agentlightning.testing.store.making import request, span

QUEUED, STREAMED, LAST = 10, 20, 5
"""Rollouts of an enqueue, spans of an add_spans, spans of each finish."""

_HELD = 6
_PADDING = "x" * 300
LEASE_S = 600.0  # what dies here keeps its attempts: nobody takes them over


class Writer:
    """One process's writes to a run; each returns what is to be noted once the store has answered."""

    def __init__(self, store: Store, run_id: str, name: str, chance: random.Random) -> None:
        self._store = store
        self._run_id = run_id
        self._name = name
        self._chance = chance
        self._count = 0
        self._held: list[Claim] = []
        self._queued: list[str] = []
        self._own_run = store.create_run(name, {}, key=name).run_id

    def write(self) -> dict[str, Any]:
        """Make the next write, of a kind that chance picks."""
        self._count += 1
        kinds = [self.enqueue, self.publish, self.log, self.save]
        if self._held:
            kinds += [self.add_spans] * 3 + [self.finish] * 2 + [self.finish_and_claim] * 2
        if len(self._held) < _HELD:
            kinds += [self.claim] * 3 + [self.begin]
        if self._queued:
            kinds += [self.cancel, self.reward]
        kind = self._chance.choice(kinds)
        name = f"{self._name}-{self._count}"
        return {"kind": kind.__name__, "name": name, **kind(name)}

    # --- each write and what is noted of it ---------------------------------------------------

    def enqueue(self, name: str) -> dict[str, Any]:
        requests = [request({"by": name, "of": QUEUED}, lease_s=LEASE_S)] * QUEUED
        made = [rollout.rollout_id for rollout in self._store.enqueue(self._run_id, requests, key=name)]
        self._queued.append(made[-1])
        return {"rollouts": made}

    def claim(self, name: str) -> dict[str, Any]:
        claims = self._store.claim(self._run_id, name, limit=3, key=name)
        self._held += claims
        return {"attempts": [claim.key for claim in claims]}

    def begin(self, name: str) -> dict[str, Any]:
        given = request({"by": name, "of": 1}, lease_s=LEASE_S)
        claim = self._store.begin("begun", given, name, key=name)
        self._held.append(claim)
        return {"attempts": [claim.key]}

    def add_spans(self, name: str) -> dict[str, Any]:
        key = self._chance.choice(self._held).key
        self._store.add_spans(_spans(key, name, STREAMED, of=STREAMED, last=False))
        return {"attempts": [key]}

    def finish(self, name: str) -> dict[str, Any]:
        ended = self._take()
        self._store.finish([_result(claim, name, len(ended)) for claim in ended])
        return {"attempts": [claim.key for claim in ended]}

    def finish_and_claim(self, name: str) -> dict[str, Any]:
        ended = self._take()
        turnover = self._store.finish_and_claim(
            [_result(claim, name, len(ended)) for claim in ended],
            self._run_id,
            name,
            limit=len(ended),
            key=name,
        )
        self._held += turnover.claims
        return {
            "attempts": [claim.key for claim in ended],
            "claimed": [claim.key for claim in turnover.claims],
        }

    def cancel(self, name: str) -> dict[str, Any]:
        rollout_id = self._queued.pop()
        self._store.cancel([rollout_id])
        return {"rollouts": [rollout_id]}

    def reward(self, name: str) -> dict[str, Any]:
        rewards = {rollout_id: float(self._count) for rollout_id in self._queued}
        self._store.set_rewards(rewards)
        self._queued = []  # so that each is given one reward
        return {"rewards": rewards}

    def publish(self, name: str) -> dict[str, Any]:
        made = self._store.publish(self._run_id, {"data": Data(value=name)}, note=name, key=name)
        return {"version": made.version}

    def log(self, name: str) -> dict[str, Any]:
        self._store.log_metrics(self._own_run, self._count, {"one": 1.0, "two": 2.0})
        return {"run": self._own_run, "step": self._count}

    def save(self, name: str) -> dict[str, Any]:
        self._store.save_state(self._own_run, {"count": self._count, "padding": _PADDING})
        return {"run": self._own_run, "count": self._count}

    def _take(self) -> list[Claim]:
        """Some of the attempts under way, to be finished together."""
        self._chance.shuffle(self._held)
        cut = self._chance.randint(1, len(self._held))
        taken, self._held = self._held[:cut], self._held[cut:]
        return taken


def _spans(key: AttemptKey, name: str, count: int, **told: Any) -> tuple[Span, ...]:
    attributes = {"padding": _PADDING, **told}
    return tuple(
        span(key, span_id=f"{name}-{number}", name=name, attributes=attributes)
        for number in range(count)
    )


def _result(claim: Claim, name: str, together: int) -> Result:
    spans = _spans(claim.key, name, LAST, of=together * LAST, last=True)
    return Result(key=claim.key, outcome=Outcome(status="succeeded", output={"by": name}), spans=spans)
