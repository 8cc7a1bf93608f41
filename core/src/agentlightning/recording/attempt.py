"""One attempt from its start to its end: what the runner and the Tracer share."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentlightning import semconv
from agentlightning.errors import RewardError
from agentlightning.llm_api import as_name, origin_of, scrub
from agentlightning.recording import seam
from agentlightning.recording.context import RolloutContext, entered
from agentlightning.recording.guard import report_fault
from agentlightning.recording.ids import new_span_id, root_span_id_of, trace_id_of
from agentlightning.recording.recorder import exception_event
from agentlightning.recording.sink import Sink
from agentlightning.records import (
    AGENT_VERSION,
    JSON,
    AttemptKey,
    Resolver,
    RewardSource,
    Span,
)
from agentlightning.store import Claim


@contextmanager
def attempt(
    claim: Claim, sink: Sink, *, resolve: Resolver, strict: bool = False, name: str = "agent"
) -> Iterator[RolloutContext]:
    """Run the body as the claimed attempt and record the attempt's root span when it ends.

    The body's exception marks the root span as failed and goes on unchanged. Spans still open are
    ended and marked; what comes later is refused and counted. ``Store.finish`` is the caller's.

    Raises:
        SeamError: the imported SDK has changed so that its LLM calls can't be recorded.
    """
    context = RolloutContext(
        key=claim.key,
        run_id=claim.run.run_id,
        trace_id=trace_id_of(claim.key),
        root_span_id=root_span_id_of(claim.key),
        resolve=resolve,
        sink=sink,
        strict=strict,
        endpoint_origin=origin_of(claim.endpoint_url) if claim.endpoint_url else None,
    )
    start_ns, failure = time.time_ns(), None
    try:
        seam.require_working()
        with entered(context):
            yield context
    except BaseException as error:
        failure = error
        raise
    finally:
        _close(context, name, start_ns, failure)


def _close(context: RolloutContext, name: str, start_ns: int, failure: BaseException | None) -> None:
    try:
        context.life.phase = "over"
        for call in list(context.life.open_calls.values()):
            call.abandon()
        for handle in list(context.life.open_spans.values()):
            handle.abandon()
        attributes: dict[str, JSON] = {semconv.AGENT_NAME: name}
        if context.life.refused:
            attributes[semconv.REFUSED_CALLS] = context.life.refused
        context.sink.add(
            Span(
                rollout_id=context.key.rollout_id,
                attempt=context.key.number,
                span_id=context.root_span_id,
                trace_id=context.trace_id,
                kind="agent",
                name=name,
                start_ns=start_ns,
                end_ns=time.time_ns(),
                status="error" if failure else "ok",
                attributes=attributes,
                events=(exception_event(failure),) if failure else (),
            )
        )
    except Exception as error:  # noqa: BLE001 - the agent's own result or exception must get through
        report_fault("the end of an attempt", error)


def reward_span(
    where: RolloutContext | AttemptKey,
    value: object,
    *,
    name: str = "reward",
    source: RewardSource,
    agent: str | None = None,
    span_id: str | None = None,
    version: str = AGENT_VERSION,
    failure: Exception | None = None,
) -> Span:
    """The span of a reward: ``True`` is 1.0, ``False`` 0.0.

    Args:
        where: the attempt that is rewarded.
        value: a finite number or a bool, of Python, numpy or torch. None, from a reward function only,
            says that it was asked and gave none: the outcome is unscored, whatever the agent said.
        name: the reward dimension.
        source: who gave it: the reward function, the agent's return value, or an emitter.
        agent: the agent it belongs to, for rewards of one of several.
        span_id: the step the reward belongs to; None = the rollout's outcome.
        version: tells a later re-score apart from what the agent gave.
        failure: why a reward function gave no value.

    Raises:
        RewardError: the value is not a finite number; the message names the rollout.
    """
    name = as_name(name)
    key = where.key if isinstance(where, RolloutContext) else where
    unscored = value is None and source == "function"
    number = None if unscored else _finite(value, key, name)
    now = time.time_ns()
    named: dict[str, JSON] = {
        semconv.REWARD_NAME: name,
        semconv.REWARD_VALUE: number,
        semconv.REWARD_AGENT: None if agent is None else as_name(agent),
        semconv.REWARD_SPAN: span_id,
        semconv.REWARD_VERSION: version,
        semconv.REWARD_SOURCE: source,
    }
    return Span(
        rollout_id=key.rollout_id,
        attempt=key.number,
        span_id=new_span_id(),
        trace_id=trace_id_of(key),
        parent_id=root_span_id_of(key),
        kind="reward",
        name=name,
        start_ns=now,
        end_ns=now,
        status="error" if failure else "ok",
        attributes={key: item for key, item in named.items() if item is not None},
        events=(exception_event(failure),) if failure else (),
    )


def _finite(value: object, key: AttemptKey, name: str) -> float:
    number = _number(value)
    if number is not None and math.isfinite(number):
        return number
    shown = scrub(value) if number is None else number
    raise RewardError(
        f"the {name} of rollout {key.rollout_id} (attempt {key.number}) is {shown!r}; expected "
        "a finite number, True or False. Use None, or give no reward, for a rollout that has no score"
    )


def _number(value: object) -> float | None:
    """A number of Python, numpy or torch as a plain one; None for anything else."""
    try:
        item = None if isinstance(value, type) else getattr(value, "item", None)
        plain = item() if callable(item) else value
        return float(plain) if isinstance(plain, int | float) else None
    except Exception:  # noqa: BLE001 - whatever it is that raises when asked, it is no number
        return None
