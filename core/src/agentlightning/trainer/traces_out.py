"""Sending finished rollouts to a collector of OpenTelemetry, where a configuration asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from agentlightning.algorithm import RolloutResult
from agentlightning.otlp import Exporter, target_of
from agentlightning.records import Run
from agentlightning.trainer.trouble import TROUBLE

Send: TypeAlias = Callable[[RolloutResult], None]
"""Takes a finished rollout; returns at once."""


@contextmanager
def traces_out(
    told: bool | str | None, run: Run, log: Callable[[Mapping[str, float]], None]
) -> Iterator[Send]:
    """What sends a rollout of the run; at the end, what could not be sent is told as metrics.

    Args:
        told: the configuration's ``otlp``.
        run: whose rollouts are sent.
        log: keeps metrics with the run.

    Raises:
        ConfigError: there is no such collector.
    """
    target = target_of(told)
    if target is None:
        yield lambda _result: None
        return
    exporter = Exporter(target)
    try:
        yield lambda result: exporter.add(run, result.rollout, result.spans)
    finally:
        exporter.close()
        if trouble := exporter.trouble():
            log({f"{TROUBLE}otlp_spans_{name}": float(count) for name, count in trouble.items()})
