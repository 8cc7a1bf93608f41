"""The exporter of a process, for rollouts outside any run: where the environment asks for one."""

from __future__ import annotations

import atexit
import logging
import threading

from agentlightning.errors import ConfigError
from agentlightning.otlp.exporter import Exporter
from agentlightning.otlp.target import VARIABLE, Target, target_of, told_by_environment

logger = logging.getLogger("agentlightning.otlp")

_lock = threading.Lock()
_exporters: list[tuple[Target, Exporter]] = []
_refused: set[str] = set()


def shared_exporter() -> Exporter | None:
    """The exporter to where ``AGENTLIGHTNING_OTLP`` says, flushed when the process ends.

    None where it says nothing. What it says and cannot be used is told once, and raises nothing: what
    would be sent is recorded by then.
    """
    told = told_by_environment()
    try:
        target = target_of(told)
    except ConfigError as error:
        with _lock:
            is_new = str(error) not in _refused
            _refused.add(str(error))
        if is_new:
            logger.warning("%s: %s; no spans are sent", VARIABLE, error)
        return None
    return None if target is None else _exporter(target)


def _exporter(target: Target) -> Exporter:
    with _lock:
        for known, exporter in _exporters:
            if known == target:
                return exporter
        exporter = Exporter(target)
        _exporters.append((target, exporter))
        atexit.register(exporter.close)
        return exporter
