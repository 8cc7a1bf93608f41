"""The models an endpoint serves, by run and name."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentlightning.endpoint.replies import Refused
from agentlightning.endpoint.upstream import InProcess, OverHttp
from agentlightning.engine import EngineInfo
from agentlightning.errors import ConfigError
from agentlightning.records import JSON, LLM, Mode


class ModelVersion(NamedTuple):
    """What an engine serves at one moment: the name it has for it, and its version."""

    name: str
    version: int


@dataclass
class ServedModel:
    """One model of a run and where it is served.

    Attributes:
        names: every name it can be asked for; a name of earlier weights leads to the newest.
        current: replaced as a whole, so that name and version always belong together.
        forced: sampling that beats the agent's on training rollouts.
    """

    llm: LLM
    engine: EngineInfo
    upstream: InProcess | OverHttp
    forced: Mapping[str, JSON]
    current: ModelVersion
    names: set[str] = field(default_factory=set)

    def forced_in(self, mode: Mode) -> Mapping[str, JSON]:
        """The sampling forced on a rollout of that mode."""
        return self.forced if mode == "train" else {}


class ServedModels:
    """Written by the trainer's threads, read on the server's event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[ServedModel, ...]] = {}
        self._replaced: list[ServedModel] = []

    def add(self, run_id: str, served: ServedModel) -> None:
        """Serve a model; one of that name is replaced."""
        served.names |= {served.llm.model, served.current.name}
        with self._lock:
            before = self._runs.get(run_id, ())
            kept = tuple(other for other in before if served.llm.model not in other.names)
            self._replaced += [other for other in before if other not in kept]
            self._runs[run_id] = (*kept, served)

    def find(self, run_id: str, asked: JSON) -> ServedModel:
        """The model asked for, else the only one there is.

        Raises:
            Refused: none fits; the message names what is served.
        """
        models = self._runs.get(run_id, ())
        for served in models:
            if isinstance(asked, str) and asked in served.names:
                return served
        if len(models) == 1:
            return models[0]
        names = ", ".join(served.current.name for served in models) or "no model"
        raise Refused(404, f"the run {run_id} serves {names}; asked for {asked!r}", "model_not_found")

    def of_run(self, run_id: str) -> tuple[ServedModel, ...]:
        """All models of a run."""
        return self._runs.get(run_id, ())

    def stamp(self, model: str, version: int, new_model: str | None) -> None:
        """Say what an engine serves from now on.

        Raises:
            ConfigError: no run serves a model of that name.
        """
        with self._lock:
            found = [
                served for models in self._runs.values() for served in models if model in served.names
            ]
            if not found:
                known = sorted(
                    {name for models in self._runs.values() for s in models for name in s.names}
                )
                raise ConfigError(f"no model {model!r} is served; served: {', '.join(known) or 'none'}")
            for served in found:
                served.current = ModelVersion(new_model or served.current.name, version)
                # A new set: `find` may be looking into the old one.
                served.names = served.names | {served.current.name}

    def __iter__(self) -> Iterator[ServedModel]:
        """Every model, replaced ones included: their connections may still be open."""
        with self._lock:
            current = [served for models in self._runs.values() for served in models]
            return iter([*self._replaced, *current])
