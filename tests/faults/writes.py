"""Writes of every kind, each under a name of its own: found again, it is whole or it is not there."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

from agentlightning.records import AttemptKey, Choice, Data, Floats, LLMCall, Outcome, Span, Tokens
from agentlightning.runner.patience import patiently
from agentlightning.store import Claim, Result, Store
from agentlightning.testing.store.making import request, span

QUEUED, STREAMED, LAST = 10, 20, 5
"""Rollouts of an enqueue, spans of an add_spans, spans of each finish."""

_HELD = 6
_LONGEST = 40
_PADDING = "x" * 300
LEASE_S = 600.0  # what dies here keeps its attempts: nobody takes them over


class Writer:
    """One process's writes to a run; each returns what is to be noted once the store has answered.

    Args:
        store: where to write.
        run_id: the run that several writers share; each has one of its own as well.
        name: unlike any other writer's.
        chance: what is written next.
        patience_s: how long a write that finds the store away is repeated, the same one every time.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        name: str,
        chance: random.Random,
        *,
        patience_s: float = 0.0,
    ) -> None:
        self._store = patient(store, patience_s)
        self._run_id = run_id
        self._name = name
        self._chance = chance
        self._count = 0
        self._held: list[Claim] = []
        self._queued: list[str] = []
        self._own_run = self._store.create_run(name, {}, key=name).run_id

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
        self._store.add_spans(streamed(key, name))
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


def patient(store: Store, patience_s: float) -> Store:
    """A store whose every call is made again, the same one, while the store is away."""
    return cast("Store", _Patient(store, patience_s))


class _Patient:
    def __init__(self, store: Store, patience_s: float) -> None:
        self._store = store
        self._patience_s = patience_s

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            return patiently(
                lambda: method(*arguments, **options), what=name, deadline_s=self._patience_s
            )

        return call


def streamed(key: AttemptKey, name: str) -> list[Span]:
    """The spans that ``add_spans`` writes under a name, the first with a call to a model."""
    return _spans(key, name, STREAMED, of=STREAMED, last=False)


def last(key: AttemptKey, name: str, *, together: int) -> list[Span]:
    """The spans an attempt is finished with under a name, one of so many attempts."""
    return _spans(key, name, LAST, of=together * LAST, last=True)


def _spans(key: AttemptKey, name: str, count: int, **told: Any) -> list[Span]:
    attributes = {"padding": _PADDING, **told}
    return [
        span(
            key,
            number,
            span_id=f"{name}-{number}",
            name=name,
            attributes=attributes,
            call=None if number else _conversation(int(name.rpartition("-")[2])),
        )
        for number in range(count)
    ]


def _conversation(turns: int) -> LLMCall:
    """A call to a model whose prompt repeats those of the calls before, and goes on."""
    text = [{"role": "user", "content": f"turn {turn}"} for turn in range(turns % _LONGEST)]
    return LLMCall(
        seq=turns,
        api="chat",
        model="small",
        base_url="http://127.0.0.1:1/v1",
        request={"messages": text},
        response={"id": str(turns)},
        prompt_ids=Tokens(range(1000, 1050 + 3 * len(text))),
        choices=(
            Choice(
                index=0,
                message={"role": "assistant", "content": "yes"},
                response_ids=Tokens([turns, 1, 2]),
                logprobs=Floats([-0.5, -0.25, -1.0]),
                finish_reason="stop",
            ),
        ),
    )


def _result(claim: Claim, name: str, together: int) -> Result:
    outcome = Outcome(status="succeeded", output={"by": name})
    spans = tuple(last(claim.key, name, together=together))
    return Result(key=claim.key, outcome=outcome, spans=spans)
