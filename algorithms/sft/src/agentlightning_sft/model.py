"""The model that is trained: opening it, and saving it so that plain ``transformers`` reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from agentlightning.errors import ConfigError
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

_LORA: Final[dict[str, Any]] = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}


def check_model(source: str) -> None:
    """Make sure that there is a model, without reading its weights.

    Raises:
        ConfigError: ``source`` is no model that can be opened.
    """
    if (Path(source) / "adapter_config.json").is_file():
        raise ConfigError(
            f"model: {source!r} is a LoRA; expected a whole model. Merge it into its base first "
            "(peft: merge_and_unload, then save_pretrained)"
        )
    with _explained(source):
        AutoConfig.from_pretrained(source)


def open_model(source: str) -> tuple[Any, Any]:
    """The model in float32, and its tokenizer.

    Raises:
        ConfigError: ``source`` is no model that can be opened.
    """
    check_model(source)
    with _explained(source):
        tokenizer = AutoTokenizer.from_pretrained(source)
        module = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    if tokenizer.pad_token_id is None:  # only ever masked, so any token will do
        tokenizer.pad_token = tokenizer.eos_token
    return module, tokenizer


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """Turn what transformers raises, often several lines, into one that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"model: {source!r} cannot be opened ({reason}); expected a local directory written by "
            "save_pretrained, or a hub id that can be reached"
        ) from error


def lora_config(keys: Mapping[str, Any] | None) -> LoraConfig | None:
    """Peft's configuration for the key ``lora``; None where all weights are trained.

    Raises:
        ConfigError: peft does not know a key.
    """
    if keys is None:
        return None
    try:
        return LoraConfig(task_type="CAUSAL_LM", **{**_LORA, **keys})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"lora: {error}; expected keys of peft.LoraConfig, such as r: 16") from error


def save_model(module: Any, tokenizer: Any, directory: Path, *, lora: bool) -> None:
    """Write the trained model; a LoRA goes to ``<directory>-lora`` and is merged for ``directory``."""
    if lora:
        module.save_pretrained(directory.with_name(f"{directory.name}-lora"))
        module = module.merge_and_unload()
    module.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def length_limit(module: Any, asked: int | None) -> int | None:
    """The most tokens a row may have: what was asked for, and never more than the model can take."""
    own = getattr(module.config.get_text_config(), "max_position_embeddings", None)
    limits = [limit for limit in (asked, own) if limit is not None]
    return min(limits, default=None)
