"""Who has the weights: the trainer while it computes, the engine while agents run."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agentlightning.algorithm import AlgorithmContext
from agentlightning.engine import Engine, FullDir, Live, Weights
from agentlightning.errors import EngineError

from agentlightning_rl.model import Model

logger = logging.getLogger("agentlightning.rl")


class Lending:
    """The module, held by the trainer and lent to the engine while agents run.

    An engine that generates on the trainer's own module must never see a half-done update, nor the
    reference pass of a LoRA. So inside :meth:`training` the trainer has the engine to itself, but for
    the stretches inside :meth:`serving`, where the module is set to answer.
    """

    def __init__(self, engine: Engine, model: Model) -> None:
        self._engine = engine
        self._module = model.module
        self._held = ExitStack()

    @contextmanager
    def training(self) -> Iterator[None]:
        """The trainer has the module inside."""
        self._hold()
        try:
            yield
        finally:
            self._held.close()
            self._module.eval()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The engine has the module inside; the trainer takes it back after."""
        self._module.eval()
        self._held.close()
        try:
            yield
        finally:
            self._hold()
            self._module.train()

    def _hold(self) -> None:
        self._held.enter_context(self._engine.exclusive())


class Publisher:
    """Gives the engine the current weights: the live module, or a directory where that is refused."""

    def __init__(self, ctx: AlgorithmContext, model: Model, name: str) -> None:
        self._ctx = ctx
        self._model = model
        self._name = name
        self._shares_memory: bool | None = None  # unknown until the engine was asked

    def publish(self, step: int) -> int:
        """Serve the weights as they are after ``step`` updates.

        Returns:
            Their version, which calls from now on are stamped with.
        """
        live = Live(self._model.module, self._model.tokenizer)
        if self._shares_memory:
            return self._send(live, step)
        if self._shares_memory is None:
            try:
                version = self._send(live, step)
            except EngineError as refusal:
                logger.info("the engine takes weights as a directory, not live (%s)", refusal)
                self._shares_memory = False
            else:
                self._shares_memory = True
                return version
        return self._send_directory(step)

    def _send_directory(self, step: int) -> int:
        parent = self._ctx.run_dir / "weights"
        directory = parent / f"step-{step}"
        self._model.save(directory)
        version = self._send(FullDir(directory), step)
        _keep_only(parent, directory)
        return version

    def _send(self, weights: Weights, step: int) -> int:
        note = f"weights after {step} steps"
        published = self._ctx.publish({}, weights={self._name: weights}, note=note)
        return published.llm(self._name).version


def _keep_only(parent: Path, newest: Path) -> None:
    """Drop the directories of older weights, which the engine has let go of."""
    for path in parent.iterdir():
        if not path.name.startswith(newest.name):
            shutil.rmtree(path)
