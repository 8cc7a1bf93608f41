"""The weights being served: where they come from, and who may use them just now."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from agentlightning.engine import FullDir, Live, LoraDir, Weights
from agentlightning.errors import EngineError
from transformers import AutoModelForCausalLM


class Policy:
    """One module at a time, used by one party at a time: a batch of requests, or the trainer.

    Args:
        source: where the weights are until others are loaded.
        device: ``auto`` takes an accelerator if there is one.
        dtype: ``auto`` takes what the weights were saved in.

    Raises:
        EngineError: there is no such device or type.
    """

    def __init__(self, source: str, *, device: str = "auto", dtype: str = "auto") -> None:
        self._source = source
        self._device = None if device == "auto" else _device(device)
        self._dtype = None if dtype == "auto" else _dtype(dtype)
        self._module: Any = None
        self._own_lora: str | None = None  # set while the module is a base of ours with that LoRA on it
        self._lock = threading.RLock()
        self._trainers = 0
        self._no_trainer = threading.Condition()
        self._closed = False

    @contextmanager
    def for_trainer(self) -> Iterator[None]:
        """Nobody else uses the module inside; enters before any batch that has not begun."""
        with self._no_trainer:
            self._trainers += 1
        try:
            with self._lock:
                yield
        finally:
            with self._no_trainer:
                self._trainers -= 1
                self._no_trainer.notify_all()

    @contextmanager
    def for_batch(self) -> Iterator[Any]:
        """The module, for one batch; waits while the trainer has it or asks for it."""
        # A bare lock would let a busy batcher take it again and again ahead of the trainer.
        with self._no_trainer:
            self._no_trainer.wait_for(lambda: self._trainers == 0 or self._closed)
        if self._closed:
            raise RuntimeError("the engine has been stopped; it answers no more requests")
        with self._lock:
            if self._module is None:
                self._module = self._read(self._source)
            yield self._module

    def load(self, weights: Weights) -> None:
        """Use these weights from now on; the old ones stay if the new cannot be loaded.

        Raises:
            EngineError: they cannot be loaded; live ones, where they lie elsewhere, or are of another
                type, than was asked for.
        """
        with self.for_trainer():
            match weights:
                case Live(module=module):
                    self._check_live(module)
                    self._module, self._own_lora = module, None
                case FullDir(path=path):
                    self._module, self._own_lora, self._source = self._read(str(path)), None, str(path)
                case LoraDir(path=path):
                    self._load_lora(path)

    def close(self) -> None:
        """Let go of the module, and of a batch that waits for the trainer; one under way goes on."""
        with self._no_trainer:
            self._closed, self._module = True, None
            self._no_trainer.notify_all()

    def _check_live(self, module: Any) -> None:
        """Refuse the trainer's module where it is not as asked; it is not ours to change."""
        asked = {}
        if self._device is not None and not _is_on(self._device, module.device):
            asked["device"] = f"{self._device}, and it is on {module.device}"
        if self._dtype is not None and self._dtype != module.dtype:
            asked["dtype"] = f"{_name(self._dtype)}, and it is in {_name(module.dtype)}"
        if asked:
            raise EngineError(
                "the trainer's own module cannot be served as the engine's options say ("
                + "; ".join(f"{option}: {problem}" for option, problem in asked.items())
                + "); expected weights in a directory, or the options left at auto"
            )

    def _read(self, source: str) -> Any:
        try:
            module: Any = AutoModelForCausalLM.from_pretrained(source, dtype=self._dtype or "auto")
        except Exception as error:  # transformers raises a different class for every way this fails
            raise EngineError(
                f"the weights in {source} cannot be loaded ({type(error).__name__}: {error}); expected "
                "what save_pretrained writes"
            ) from error
        return module.eval().to(self._device or _best_device())

    def _load_lora(self, path: Path) -> None:
        try:
            from peft import PeftModel
        except ImportError as error:
            raise EngineError(f"the LoRA in {path} needs peft; install it: pip install peft") from error
        old, new = self._own_lora, f"lora-{uuid.uuid4().hex}"
        # Onto a base of our own: peft writes into the module it gets, and a live one is the trainer's.
        base = self._module if old is not None else self._read(self._source)
        try:
            if old is None:
                base = PeftModel.from_pretrained(base, path, adapter_name=new)
            else:
                base.load_adapter(path, new)
                base.set_adapter(new)
                base.delete_adapter(old)
        except Exception as error:  # peft raises a different class for every way this fails
            raise EngineError(
                f"the LoRA in {path} does not fit {self._source} ({type(error).__name__}: {error})"
            ) from error
        self._module, self._own_lora = base.eval(), new


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise EngineError(
            f"device: {name!r} is none; expected auto, cpu, cuda or one such as cuda:1"
        ) from error


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise EngineError(f"dtype: {name!r} is none; expected auto, float32, bfloat16 or float16")
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_on(asked: torch.device, held: torch.device) -> bool:
    return asked.type == held.type and asked.index in {None, held.index}


def _best_device() -> torch.device:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found if found is not None else torch.device("cpu")
