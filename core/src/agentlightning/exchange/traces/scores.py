"""Rewards out of the attributes that an evaluation left on spans."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from agentlightning import semconv
from agentlightning.records import AGENT_VERSION, JSON, Span

_WORDS: Final = {"true": 1.0, "false": 0.0}


def reward_spans(
    spans: Sequence[Span], names: Mapping[str, str], skipped: Counter[str]
) -> Iterator[Span]:
    """A reward of the whole rollout for each named attribute of a span, or of one of its events.

    Args:
        spans: of one attempt.
        names: the reward's name by the attribute's.
        skipped: counts values that are no numbers.
    """
    for span in spans:
        held = [(span.end_ns, span.attributes)]
        held += [(event.time_ns, event.attributes) for event in span.events]
        for place, (time_ns, attributes) in enumerate(held):
            for attribute, name in names.items():
                if attribute not in attributes:
                    continue
                value = _number(attributes[attribute])
                if value is None:
                    skipped[f"values of {attribute} that are no finite number"] += 1
                else:
                    yield _reward(span, f"{place}/{attribute}", name, value, time_ns)


def _reward(span: Span, place: str, name: str, value: float, time_ns: int) -> Span:
    named = f"{span.span_id}/{place}/{name}"
    return Span(
        rollout_id=span.rollout_id,
        attempt=span.attempt,
        span_id=hashlib.blake2b(named.encode(), digest_size=8).hexdigest(),
        trace_id=span.trace_id,
        parent_id=span.span_id,
        kind="reward",
        name=name,
        start_ns=time_ns,
        end_ns=time_ns,
        status="ok",
        attributes={
            semconv.REWARD_NAME: name,
            semconv.REWARD_VALUE: value,
            semconv.REWARD_VERSION: AGENT_VERSION,
            semconv.REWARD_SOURCE: "emitted",
        },
    )


def _number(value: JSON) -> float | None:
    if isinstance(value, str):
        try:
            value = _WORDS.get(value.strip().lower(), value)
            value = float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
