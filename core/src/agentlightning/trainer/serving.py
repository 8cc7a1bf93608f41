"""The run's endpoint: engines behind it, weight updates through it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from agentlightning.config import EndpointConfig
from agentlightning.endpoint import Endpoint
from agentlightning.engine import Engine, EngineInfo, Weights
from agentlightning.errors import AlgorithmError
from agentlightning.recording.sink import Sink
from agentlightning.records import JSON, LLM
from agentlightning.server import Server, build_app
from agentlightning.store import Store

DRAIN_S = 120.0
"""How long a weight update waits for the requests under way, in seconds."""


@dataclass
class Served:
    """An engine behind the endpoint and the resource that leads to it."""

    engine: Engine
    info: EngineInfo
    llm: LLM


class Serving:
    """Starts the endpoint when the first engine is served, and owns the engines until the end.

    Args:
        store: where runners learn of the endpoint.
        sink: where calls are recorded.
        run_id: the run whose model is served.
        at: where the endpoint listens, and how runners reach it.
    """

    def __init__(self, store: Store, sink: Sink, run_id: str, at: EndpointConfig) -> None:
        self._store = store
        self._run_id = run_id
        self._at = at
        self.endpoint = Endpoint(store, sink)
        self._server: Server | None = None
        self.served: dict[str, Served] = {}

    def serve(self, name: str, engine: Engine, sampling: Mapping[str, JSON], version: int) -> LLM:
        """Start ``engine`` and put it behind the endpoint under the resource ``name``."""
        if name in self.served:
            raise AlgorithmError(
                f"the resource {name!r} is served already; publish new weights instead"
            )
        info = engine.start()
        llm = LLM(model=info.model, version=version)
        self.endpoint.serve(self._run_id, llm, info, sampling=sampling)
        self.served[name] = Served(engine, info, llm)
        if self._server is None:
            self._server = Server(build_app(self.endpoint), self._at.host, self._at.port)
            url = self._server.start()
            self._store.set_endpoint(self._run_id, self._at.url or url)
        return llm

    def load(self, name: str, weights: Weights) -> LLM:
        """Pause, drain, load and stamp; returns the resource as it is from now on."""
        served = self.served.get(name)
        if served is None:
            raise AlgorithmError(
                f"weights for {name!r}, which is not served; "
                f"served: {', '.join(self.served) or 'nothing'}"
            )
        version = served.llm.version + 1
        with self.endpoint.paused(drain_s=DRAIN_S):
            model = served.engine.load(weights, version)
            self.endpoint.stamp(served.llm.model, version, new_model=model)
        served.llm = LLM(model=model, version=version)
        return served.llm

    def stop(self) -> None:
        """Take the endpoint down, then the engines."""
        with ExitStack() as stopping:  # whatever fails, the rest is stopped too
            for served in self.served.values():
                stopping.callback(served.engine.stop)
            self.served.clear()
            if self._server is not None:
                stopping.callback(self._server.stop)
                self._server = None
                self._store.set_endpoint(self._run_id, None)
