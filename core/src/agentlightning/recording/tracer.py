"""``Tracer``: records one rollout of any agent, outside a training run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentlightning import semconv
from agentlightning.recording.attempt import reward_span
from agentlightning.recording.context import RolloutContext, current_rollout
from agentlightning.recording.defaults import default_store
from agentlightning.recording.instruments import instruments
from agentlightning.recording.own_rollout import keep_outcome, own_rollout
from agentlightning.recording.recorder import Recorder, SpanHandle
from agentlightning.records import Span
from agentlightning.store import RolloutQuery, Store


class Trace:
    """A rollout that is being recorded, or was.

    Attributes:
        rollout_id: its id in the store; ``agl trace show`` takes it.
        output: set it inside the body to store it as the rollout's output; inside another rollout, as
            the output of the span that the body is there.
    """

    def __init__(self, store: Store, context: RolloutContext) -> None:
        self.rollout_id = context.key.rollout_id
        self.output: Any = None
        self._store = store
        self._context = context

    def reward(self, value: float, *, name: str = "reward") -> None:
        """Say how well the rollout went, while it runs or afterwards.

        Raises:
            RewardError: the value is not a finite number.
        """
        span = reward_span(self._context, value, name=name, source="emitted")
        if self._context.life.phase != "over":
            self._context.sink.add(span)
            return
        self._store.add_spans([span])
        query = RolloutQuery(rollout_ids=(self.rollout_id,))
        keep_outcome(self._store, self._store.rollouts(query).items[0])

    def spans(self) -> list[Span]:
        """What was recorded so far, in the order it came."""
        self._context.sink.flush()
        return list(self._store.spans([self.rollout_id]))


class Tracer:
    """Records agents as they are, of any framework.

    Args:
        store: a store or its URL; by default ``init``'s, else ``AGENTLIGHTNING_STORE``, else
            ``sqlite:///agentlightning.db``.

    Example:
        >>> with Tracer().trace(agent) as trace:
        ...     agent.run("the task")
    """

    def __init__(self, store: Store | str | None = None) -> None:
        self._store = store

    @contextmanager
    def trace(self, agent: object, input: Any = None) -> Iterator[Trace]:  # noqa: A002 - the record's own word
        """Record what the body does as one rollout of ``agent``, which the body itself runs.

        Inside a rollout that is recorded already, the body becomes a span of it, in that rollout's
        store.

        Args:
            agent: the agent, or its name; only its name is used.
            input: the task, kept with the rollout.

        Raises:
            StoreError: the store cannot be opened or written. An exception of the body marks the
                rollout as failed and goes on unchanged.
        """
        name = _name_of(agent)
        outer = current_rollout()
        if outer is not None:
            with _as_span(name, input) as handle:
                trace = Trace(outer.sink.store, outer)
                yield trace
                if trace.output is not None:
                    handle.set({semconv.OPERATION_OUTPUT: trace.output})
            return
        store = self._store if isinstance(self._store, Store) else default_store(self._store)
        instruments.install()
        try:
            with own_rollout(
                store, name=name, input=input, why="recorded by a Tracer, outside a run"
            ) as mine:
                trace = Trace(store, mine.context)
                yield trace
                mine.output = trace.output
        finally:
            instruments.uninstall()


@contextmanager
def _as_span(name: str, task: Any) -> Iterator[SpanHandle]:
    recorder = Recorder()
    given = None if task is None else {semconv.OPERATION_INPUT: task}
    handle = recorder.start("agent", name, attributes=given)
    try:
        with recorder.agent(name):
            yield handle
    except BaseException as error:
        handle.error(error)
        raise
    finally:
        handle.end()


def _name_of(agent: object) -> str:
    if isinstance(agent, str):
        return agent
    for attribute in ("name", "__name__"):
        name = getattr(agent, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(agent).__name__
