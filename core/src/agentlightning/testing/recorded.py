"""Attempts in this process, recorded into a store in memory as a worker would record them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from agentlightning.recording import seam, threads
from agentlightning.recording.attempt import attempt
from agentlightning.recording.context import RolloutContext
from agentlightning.recording.sink import Sink
from agentlightning.records import (
    CallInfo,
    Decision,
    Passthrough,
    Resolver,
    RolloutRequest,
    Span,
    SpanKind,
)
from agentlightning.store.memory import MemoryStore


def leave_alone(_: CallInfo) -> Decision:
    """A resolver that lets every call go where the agent sends it."""
    return Passthrough(reason="test")


class RecordedAttempts:
    """Runs attempts with the seam installed and reads back what was recorded.

    Example:
        >>> with RecordedAttempts() as recorded:
        ...     with recorded.attempt() as context:
        ...         agent("a task")
        ...     recorded.spans(context, "llm")
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._sink = Sink(self.store)
        self._run = self.store.create_run("test", {})

    def __enter__(self) -> Self:
        seam.install()
        threads.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        threads.uninstall()
        seam.uninstall()
        self._sink.close()
        self.store.close()

    @contextmanager
    def attempt(
        self, resolve: Resolver = leave_alone, *, strict: bool = False
    ) -> Iterator[RolloutContext]:
        """Run the body as the attempt of a new rollout."""
        self.store.enqueue(self._run.run_id, [RolloutRequest(input="task")])
        (claim,) = self.store.claim(self._run.run_id, "worker")
        with attempt(claim, self._sink, resolve=resolve, strict=strict) as context:
            yield context

    def spans(self, context: RolloutContext, kind: SpanKind | None = None) -> list[Span]:
        """The spans of an attempt, in the order they came; of one kind if named."""
        self._sink.flush()
        kinds = None if kind is None else [kind]
        return list(self.store.spans([context.key.rollout_id], kinds=kinds))
