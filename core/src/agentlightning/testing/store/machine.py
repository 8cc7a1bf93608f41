"""A Hypothesis state machine that compares a store with the simplest one there could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentlightning.errors import InvalidTransition, StaleAttempt
from agentlightning.records import AttemptKey, Outcome, OutcomeStatus
from agentlightning.store import Result, RolloutQuery, Store
from agentlightning.testing.store.making import Clock, request, span
from agentlightning.testing.store.model import LEASE_S, Model, ModelRollout

WORKERS = st.sampled_from(["one", "two"])
OUTCOMES = st.sampled_from(["succeeded", "failed", "timed_out", "cancelled", "lost"])


def check_against_model(
    open_store: Callable[[Clock], Store], *, examples: int = 40, steps: int = 40
) -> None:
    """Do random things to a store and to a model of it, and compare after every one.

    Args:
        open_store: opens a new, empty store on the clock it is given.
        examples: how many stores to try.
        steps: how many things to do to each, at most.

    Raises:
        AssertionError: they differ; Hypothesis prints the shortest sequence that shows it.
    """

    class Machine(StoreMachine):
        make_store = staticmethod(open_store)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            # It measures how busy the computer is: a store on a disk or a server takes its time.
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


class StoreMachine(RuleBasedStateMachine):
    """Everything that moves rollouts, in any order, at any time."""

    make_store: Callable[[Clock], Store]
    rollouts: Bundle[str] = Bundle("rollouts")
    attempts: Bundle[AttemptKey] = Bundle("attempts")

    @initialize()
    def open_store(self) -> None:
        """Begin with an empty store and an open run."""
        self.clock = Clock()
        self.store = self.make_store(self.clock)
        self.run_id = self.store.create_run("machine", {}).run_id
        self.model = Model(self.clock.now)

    def teardown(self) -> None:
        """Close the store of this example."""
        if hasattr(self, "store"):
            self.store.close()

    # --- what can happen ------------------------------------------------------------------

    @precondition(lambda self: self.model.is_open)
    @rule(
        target=rollouts,
        count=st.integers(1, 3),
        priority=st.integers(-1, 1),
        max_attempts=st.integers(1, 2),
        max_lost=st.integers(0, 1),
    )
    def enqueue(self, count: int, **limits: Any) -> Any:
        """Queue a few alike."""
        given = [request("task", lease_s=LEASE_S, **limits) for _ in range(count)]
        made = self.store.enqueue(self.run_id, given)
        for rollout in made:
            self.model.rollouts[rollout.rollout_id] = ModelRollout(len(self.model.rollouts), **limits)
        return multiple(*(rollout.rollout_id for rollout in made))

    @rule(target=attempts, worker=WORKERS, limit=st.integers(1, 3))
    def claim(self, worker: str, limit: int) -> Any:
        """Claim: the very rollouts the model would give, in its order."""
        self.model.expire()
        expected = self.model.next_to_claim(limit)
        claims = self.store.claim(self.run_id, worker, limit=limit)
        assert [claim.key.rollout_id for claim in claims] == expected
        for name in expected:
            self.model.claim(name, worker)
        return multiple(*(claim.key for claim in claims))

    # Of an empty bundle a list cannot be drawn: Hypothesis would throw all that came before away.
    @precondition(lambda self: any(item.attempts for item in self.model.rollouts.values()))
    @rule(keys=st.lists(attempts, min_size=1, max_size=3, unique=True), worker=WORKERS)
    def heartbeat(self, keys: list[AttemptKey], worker: str) -> None:
        """Beat for attempts of any age, one's own or not."""
        orders = self.store.heartbeat(worker, keys)
        expected = {key: self.model.heartbeat(*key, worker) for key in keys}
        assert {key: order.value for key, order in orders.items()} == expected

    @rule(key=attempts, status=OUTCOMES, output=st.sampled_from(["a", "b"]))
    def finish(self, key: AttemptKey, status: OutcomeStatus, output: str) -> None:
        """Finish an attempt of any age, in any way, perhaps once more."""
        is_taken = self.model.finish(*key, status, output)
        given = Result(key=key, outcome=Outcome(status=status, output=output))
        try:
            self.store.finish([given])
        except StaleAttempt:
            assert not is_taken
        else:
            assert is_taken

    @precondition(lambda self: self.model.rollouts)
    @rule(names=st.lists(rollouts, min_size=1, max_size=2))
    def cancel(self, names: list[str]) -> None:
        """Cancel rollouts in any state."""
        self.store.cancel(names)
        for name in names:
            if not self.model.rollouts[name].is_over:
                self.model.rollouts[name].status = "cancelled"

    @rule(key=attempts, number=st.integers(1, 3))
    def add_span(self, key: AttemptKey, number: int) -> None:
        """Add a span to an attempt of any age, perhaps once more."""
        spans = self.model.rollouts[key.rollout_id].spans
        is_new = (key.number, number) not in spans
        assert self.store.add_spans([span(key, number)]) == is_new
        if is_new:
            spans.append((key.number, number))

    @rule(seconds=st.sampled_from([-LEASE_S / 4, 1.0, LEASE_S / 2, LEASE_S]))
    def let_time_pass(self, seconds: float) -> None:
        """Let leases come nearer to their end or run out, or set the clock back."""
        self.clock.advance(seconds)
        self.model.now += seconds

    @rule(is_open=st.booleans())
    def close_or_reopen(self, is_open: bool) -> None:
        """Close the run, or open it again."""
        self.store.set_run_status(self.run_id, "open" if is_open else "cancelled")
        self.model.is_open = is_open

    @precondition(lambda self: not self.model.is_open)
    @rule()
    def enqueue_into_a_closed_run(self) -> None:
        """A closed run takes nothing."""
        try:
            self.store.enqueue(self.run_id, [request()])
        except InvalidTransition:
            return
        raise AssertionError("a closed run took a rollout")

    # --- what must be so after each -------------------------------------------------------

    @invariant()
    def store_and_model_agree(self) -> None:
        """Every status, output, attempt, span and count."""
        if not hasattr(self, "store"):
            return
        self.model.expire()
        found = self.store.rollouts(RolloutQuery(run_id=self.run_id, limit=10_000)).items
        assert [rollout.rollout_id for rollout in found] == list(self.model.rollouts)
        for rollout in found:
            expected = self.model.rollouts[rollout.rollout_id]
            assert (rollout.status, rollout.output) == (expected.status, expected.output)
            assert (rollout.finished_at is not None) == expected.is_over
            attempts = self.store.attempts(rollout.rollout_id)
            assert [(item.status, item.worker_id, item.lease_until) for item in attempts] == [
                (item.status, item.worker, item.until) for item in expected.attempts
            ]
            spans = self.store.spans([rollout.rollout_id], attempt="all")
            assert [(item.attempt, item.start_ns) for item in spans] == expected.spans
        self._compare_counts()

    def _compare_counts(self) -> None:
        rollouts = self.model.rollouts.values()
        statistics = self.store.statistics(self.run_id)
        assert +Counter(statistics.rollouts) == Counter(item.status for item in rollouts)
        assert +Counter(statistics.attempts) == Counter(
            attempt.status for item in rollouts for attempt in item.attempts
        )
        assert statistics.spans == sum(len(item.spans) for item in rollouts)
        assert statistics.late_results == self.model.late
        running = [a.until for item in rollouts for a in item.attempts if a.status == "running"]
        expiry = self.store.seconds_to_expiry()
        assert expiry == (min(running) - self.model.now if running else None)
