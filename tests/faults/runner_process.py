"""A runner in a process of its own, which notes what its store has answered it."""

from __future__ import annotations

from pathlib import Path

from agentlightning.executors.threads import ThreadExecutor
from agentlightning.runner import RunnerSpec
from agentlightning.store import Store
from agentlightning.store.opening import open_store
from journal import Journal


def main(url: str, run_id: str, agent: str, journal: str, threads: str) -> None:
    with open_store(url) as store:
        note_answers(store, Journal(Path(journal)))
        spec = RunnerSpec(store=url, run_id=run_id, agent=agent).using(store)
        ThreadExecutor().run(spec, int(threads))


def note_answers(store: Store, journal: Journal) -> None:
    """Note the spans and results that ``store`` takes from now on, as soon as it has."""
    add_spans, finish, turn_over = store.add_spans, store.finish, store.finish_and_claim

    def noted_spans(spans):
        new = add_spans(spans)
        journal.note({"spans": [_names(span) for span in spans], "results": []})
        return new

    def noted_results(results):
        rollouts = finish(results)
        journal.note(_taken(results))
        return rollouts

    def noted_turnover(results, *more, **options):
        turnover = turn_over(results, *more, **options)
        journal.note(_taken([result for result in results if result.key not in turnover.late]))
        return turnover

    store.add_spans, store.finish, store.finish_and_claim = noted_spans, noted_results, noted_turnover


def _names(span):
    return [span.rollout_id, span.attempt, span.span_id]


def _taken(results):
    return {
        "spans": [_names(span) for result in results for span in result.spans],
        "results": [[*result.key, result.outcome.status] for result in results],
    }
