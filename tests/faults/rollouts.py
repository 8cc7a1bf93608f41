"""What is asked of a store about a run in which processes were killed."""

from __future__ import annotations

from collections import Counter

from agentlightning import semconv
from agentlightning.store import RolloutQuery
from agentlightning.testing.store import request
from journal import entries

AHEAD = 40
"""Rollouts that wait in the queue while something is killed, so that it is always under load."""

STEPS, PAUSE_S = 4, 0.03
"""How often an agent says something, and what it takes over that."""


def enqueue_ahead(store, run_id, *, lease_s):
    """Keep the queue from running dry."""
    lacking = AHEAD - store.statistics(run_id).rollouts["queued"]
    task = {"steps": STEPS, "pause_s": PAUSE_S}
    store.enqueue(run_id, [request(task, lease_s=lease_s, max_lost=1000)] * max(0, lacking))


def rollouts_of(store, run_id, **which):
    """All rollouts of a run, or those of a status."""
    return store.rollouts(RolloutQuery(run_id=run_id, limit=10**6, **which)).items


def ids_of(rollouts):
    return [rollout.rollout_id for rollout in rollouts]


def check_each_ended_once(rollouts, attempts):
    """All attempts but the last were lost with their worker, and the last one ended the rollout."""
    for rollout in rollouts:
        *earlier, last = attempts[rollout.rollout_id]
        assert rollout.status == last.status == "succeeded"
        assert {attempt.status for attempt in earlier} <= {"lost"}
        assert [attempt.number for attempt in (*earlier, last)] == list(range(1, rollout.attempt + 1))


def check_successes_are_complete(rollouts, spans, *, steps=STEPS):
    """The final attempt has its root, each of its steps and its reward, once."""
    kinds, said = Counter(), Counter()
    for span in spans:
        kinds[span.rollout_id, span.attempt, span.kind] += 1
        if span.kind == "message":
            said[span.rollout_id, span.attempt, str(span.attributes[semconv.MESSAGE_BODY])] += 1
    assert set(said.values()) == {1}
    for rollout in rollouts:
        assert rollout.output == {"steps": steps, "attempt": rollout.attempt}
        final = rollout.rollout_id, rollout.attempt
        found = {kind: kinds[*final, kind] for kind in ("agent", "message", "reward")}
        assert found == {"agent": 1, "message": steps, "reward": 1}


def check_answers_were_kept(noted, attempts, spans):
    """What a runner was told is stored is stored: each span once, each result as the attempt's end."""
    stored = Counter((span.rollout_id, span.attempt, span.span_id) for span in spans)
    assert set(stored.values()) == {1}
    answered = {tuple(name) for entry in noted for name in entry["spans"]}
    assert answered <= stored.keys()
    results = Counter(tuple(result) for entry in noted for result in entry["results"])
    assert set(results.values()) == {1}
    assert len({rollout_id for rollout_id, _, _ in results}) == len(results)
    for rollout_id, number, status in results:
        assert attempts[rollout_id][number - 1].status == status


def check_runs(store, run_id, journals, *, steps=STEPS):
    """Every rollout took one attempt: no claim and no result was lost with its reply, or made twice."""
    rollouts = rollouts_of(store, run_id)
    attempts = {name: store.attempts(name) for name in ids_of(rollouts)}
    spans = list(store.spans(ids_of(rollouts), attempt="all"))
    assert {rollout.attempt for rollout in rollouts} == {1}
    check_each_ended_once(rollouts, attempts)
    check_successes_are_complete(rollouts, spans, steps=steps)
    check_answers_were_kept([entry for j in journals for entry in entries(j)], attempts, spans)
