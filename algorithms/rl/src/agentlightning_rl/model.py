"""The policy's module and tokenizer: loading, LoRA, saving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from agentlightning.errors import ConfigError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

LORA_DEFAULTS: dict[str, Any] = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}


@dataclass(frozen=True)
class Model:
    """A policy under training.

    Attributes:
        source: the directory or hub id it started from.
        module: the causal language model; wrapped by peft when a LoRA is trained.
        tokenizer: its tokenizer.
        lora: whether only a LoRA is trained.
    """

    source: str
    module: Any
    tokenizer: Any
    lora: bool

    def save(self, directory: Path) -> None:
        """Write what plain ``from_pretrained`` reads; a LoRA is merged, and also kept beside it.

        The LoRA itself goes to ``<directory>-lora``, where peft reads it. It is merged into a fresh
        copy of the starting model, so that the module under training stays as it is.
        """
        module = self.module
        if self.lora:
            adapter = directory.with_name(f"{directory.name}-lora")
            module.save_pretrained(adapter)
            module = _merged(self.source, adapter)
        module.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)


def check_model(source: str) -> None:
    """Make sure that there is a model, without reading its weights.

    Raises:
        ConfigError: there is none, or it is no whole model.
    """
    if (Path(source) / "adapter_config.json").is_file():
        raise ConfigError(
            f"model: {source!r} is a LoRA; expected a whole model. Merge it first "
            "(peft: AutoPeftModelForCausalLM.from_pretrained(…).merge_and_unload().save_pretrained(…))"
        )
    with _explained(source):
        AutoConfig.from_pretrained(source)


def load_model(source: str, *, lora: Mapping[str, Any] | None, seed: int) -> Model:
    """Open a model for training, in float32.

    Args:
        source: a directory that ``from_pretrained`` reads, or a hub id.
        lora: keys of ``peft.LoraConfig`` laid over :data:`LORA_DEFAULTS`; None trains all weights.
        seed: of a LoRA's first weights.

    Raises:
        ConfigError: the model or the LoRA's keys cannot be used.
    """
    check_model(source)
    with _explained(source):
        tokenizer = AutoTokenizer.from_pretrained(source)
        module = _read(source)
    if lora is not None:
        torch.manual_seed(seed)
        module = _with_lora(module, lora)
    return Model(source, module, tokenizer, lora is not None)


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """Turn what transformers raises, often several lines, into one that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"model: {source!r} cannot be opened for training ({reason}); expected a local directory "
            "written by save_pretrained, or a hub id that can be reached"
        ) from error


def _read(source: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)


def lora_config(keys: Mapping[str, Any]) -> Any:
    """Peft's configuration for the key ``lora``.

    Raises:
        ConfigError: peft does not know a key, or cannot use its value.
    """
    from peft import LoraConfig

    with _explained_lora():
        return LoraConfig(task_type="CAUSAL_LM", **{**LORA_DEFAULTS, **keys})


def _with_lora(module: Any, keys: Mapping[str, Any]) -> Any:
    from peft import get_peft_model

    with _explained_lora():
        return get_peft_model(module, lora_config(keys))


@contextmanager
def _explained_lora() -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"lora: {error}; expected keys of peft.LoraConfig, such as r: 16") from error


def _merged(source: str, adapter: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(_read(source), adapter).merge_and_unload()
