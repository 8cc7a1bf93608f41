"""Whether a store has what its writers were answered, once, and nothing by halves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentlightning.errors import UnknownResources
from agentlightning.records import AttemptKey, Rollout, Span
from agentlightning.store import RolloutQuery, Store
from msgspec.structs import replace
from writes import last, streamed

Entry = Mapping[str, Any]

_NAMED = {"enqueue", "begin", "add_spans", "finish", "finish_and_claim", "publish"}
"""The kinds of write whose name is found in what they wrote."""


def check_answered(store: Store, run_id: str, noted: Sequence[Entry]) -> None:
    """Every noted write is there, as it was noted.

    Args:
        store: a fresh opening of what was written to.
        run_id: the run that the writers share.
        noted: the writes of one writer, first to last.
    """
    seen = _Seen(store, noted)
    for entry in noted:
        _CHECKS[entry["kind"]](seen, entry)
    versions = {entry["version"]: entry["name"] for entry in noted if entry["kind"] == "publish"}
    for version, name in versions.items():
        assert store.resources(run_id, version).note == name
    _check_own_run(store, noted)


def check_whole(store: Store, run_id: str, noted: Sequence[Entry], *, lives: int) -> None:
    """Whatever is there is whole and there once, and all but the writers' last writes was noted.

    Args:
        store: a fresh opening of what was written to.
        run_id: the run that the writers share.
        noted: all that was noted by all writers.
        lives: how many writers there were: each may have been killed before it noted its last write.
    """
    rollouts = [r for r in store.rollouts(RolloutQuery(limit=10**6)).items if "by" in r.input]
    spans = list(store.spans([rollout.rollout_id for rollout in rollouts], attempt="all"))
    written = {
        *_whole((rollout.input["by"], rollout.input["of"]) for rollout in rollouts),
        *_whole((span.name, span.attributes["of"]) for span in spans),
        *_notes_of_versions(store, run_id),
    }
    _check_that_ends_have_their_spans(store, rollouts, spans)
    assert {entry["name"] for entry in noted if entry["kind"] in _NAMED} <= written
    unnoted = written - {entry["name"] for entry in noted}
    per_life = Counter(name.rpartition("-")[0] for name in unnoted)
    assert set(per_life.values()) <= {1}
    assert len(unnoted) <= lives


class _Seen:
    """What the store has of the things that entries name."""

    def __init__(self, store: Store, noted: Sequence[Entry]) -> None:
        keys = [
            AttemptKey(*key) for e in noted for key in (*e.get("attempts", ()), *e.get("claimed", ()))
        ]
        names = {key.rollout_id for key in keys} | {
            name for e in noted for name in (*e.get("rollouts", ()), *e.get("rewards", ()))
        }
        query = RolloutQuery(rollout_ids=tuple(names), limit=10**6)
        self.rollouts = {r.rollout_id: r for r in store.rollouts(query).items}
        self.attempts = {
            attempt.key: attempt
            for rollout_id in {key.rollout_id for key in keys}
            for attempt in store.attempts(rollout_id)
        }
        self._spans: defaultdict[tuple[AttemptKey, str], list[Span]] = defaultdict(list)
        for span in store.spans(sorted({key.rollout_id for key in keys}), attempt="all"):
            key = AttemptKey(span.rollout_id, span.attempt)
            self._spans[key, span.name].append(replace(span, index=0))

    def spans(self, key: AttemptKey, name: str) -> list[Span]:
        """What an attempt has under a name, as its writer knows it."""
        return self._spans[key, name]


# --- a check a kind -----------------------------------------------------------------------------


def _queued(seen: _Seen, entry: Entry) -> None:
    for rollout_id in entry["rollouts"]:
        assert seen.rollouts[rollout_id].input["by"] == entry["name"]


def _claimed(seen: _Seen, entry: Entry) -> None:
    for key in entry.get("claimed", entry["attempts"]):
        assert seen.attempts[AttemptKey(*key)].worker_id == entry["name"]


def _streamed(seen: _Seen, entry: Entry) -> None:
    for key in entry["attempts"]:
        attempt = AttemptKey(*key)
        assert seen.spans(attempt, entry["name"]) == streamed(attempt, entry["name"])


def _finished(seen: _Seen, entry: Entry) -> None:
    name, together = entry["name"], len(entry["attempts"])
    for attempt in (AttemptKey(*key) for key in entry["attempts"]):
        rollout = seen.rollouts[attempt.rollout_id]
        assert seen.attempts[attempt].status == "succeeded"
        assert rollout.status == "cancelled" or rollout.output == {"by": name}
        assert seen.spans(attempt, name) == last(attempt, name, together=together)


def _turned_over(seen: _Seen, entry: Entry) -> None:
    _finished(seen, entry)
    _claimed(seen, entry)


def _cancelled(seen: _Seen, entry: Entry) -> None:
    for rollout_id in entry["rollouts"]:  # another writer may have finished it before
        assert seen.rollouts[rollout_id].status in ("cancelled", "succeeded")


def _rewarded(seen: _Seen, entry: Entry) -> None:
    for rollout_id, reward in entry["rewards"].items():
        assert seen.rollouts[rollout_id].reward == reward


def _seen_by_run(seen: _Seen, entry: Entry) -> None:
    """Checked together with the run's others."""


_CHECKS = {
    "enqueue": _queued,
    "claim": _claimed,
    "begin": _claimed,
    "add_spans": _streamed,
    "finish": _finished,
    "finish_and_claim": _turned_over,
    "cancel": _cancelled,
    "reward": _rewarded,
    "publish": _seen_by_run,
    "log": _seen_by_run,
    "save": _seen_by_run,
}


def _check_own_run(store: Store, noted: Sequence[Entry]) -> None:
    """The steps a writer logged are all there, and its state is the one it saved last, or the next."""
    logged = [entry for entry in noted if entry["kind"] == "log"]
    if logged:
        found = {m.step: m.values for m in store.metrics(logged[0]["run"])}
        assert {entry["step"] for entry in logged} <= found.keys()
        assert all(values == {"one": 1.0, "two": 2.0} for values in found.values())
    saved = [entry for entry in noted if entry["kind"] == "save"]
    if saved:
        state = store.load_state(saved[-1]["run"])
        assert state["count"] in (saved[-1]["count"], len(noted) + 1)


# --- everything there is ------------------------------------------------------------------------


def _whole(parts: Iterable[tuple[str, int]]) -> set[str]:
    """The names of what is there in so many parts as each part tells."""
    told = list(parts)
    expected = dict(told)
    assert Counter(name for name, _ in told) == expected
    return set(expected)


def _notes_of_versions(store: Store, run_id: str) -> list[str]:
    notes: list[str] = []
    with suppress(UnknownResources):
        while True:
            notes.append(store.resources(run_id, len(notes) + 1).note)
    assert len(set(notes)) == len(notes)
    return notes


def _check_that_ends_have_their_spans(
    store: Store, rollouts: Sequence[Rollout], spans: Sequence[Span]
) -> None:
    """The last spans of an attempt are there if it is over, and only then."""
    with_end = {AttemptKey(s.rollout_id, s.attempt) for s in spans if s.attributes["last"]}
    tried = [rollout.rollout_id for rollout in rollouts if rollout.attempt]
    attempts = [attempt for rollout_id in tried for attempt in store.attempts(rollout_id)]
    assert {attempt.key for attempt in attempts if attempt.status == "succeeded"} == with_end
    assert {attempt.status for attempt in attempts} <= {"succeeded", "running"}
    assert [attempt.number for attempt in attempts] == [1] * len(tried)
