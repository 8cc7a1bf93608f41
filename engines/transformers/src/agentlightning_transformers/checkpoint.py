"""What can be known of a model before its weights are loaded."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentlightning.errors import EngineError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True)
class Checkpoint:
    """A model that can be served.

    Attributes:
        source: a directory, or the name of a model on the hub.
        tokenizer: with a chat template.
        stop_ids: tokens that end a reply.
        max_model_len: prompt and reply together, in tokens.
    """

    source: str
    tokenizer: Any
    stop_ids: frozenset[int]
    max_model_len: int


def read_checkpoint(source: str, *, max_model_len: int | None) -> Checkpoint:
    """Look at everything but the weights.

    Raises:
        EngineError: the model cannot be served; the message says what is missing.
    """
    _check_directory(source)
    config = _load(AutoConfig, source, "configuration (config.json)")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise EngineError(
            f"{source} is of type {config.model_type!r}, which does not generate text from text alone; "
            "expected a causal language model, such as Qwen3 or Llama"
        )
    tokenizer = private_tokenizer(_load(AutoTokenizer, source, "tokenizer"), source)
    if not tokenizer("text", add_special_tokens=False)["input_ids"]:
        # Without any file of a tokenizer, transformers makes an empty one of the model's usual class.
        raise EngineError(
            f"the tokenizer of {source} is empty: its files are missing; save the tokenizer beside the "
            "weights with tokenizer.save_pretrained"
        )
    return Checkpoint(
        source, tokenizer, _stop_ids(source, config, tokenizer), _length(source, config, max_model_len)
    )


def private_tokenizer(tokenizer: Any, source: str) -> Any:
    """A copy that nobody else pads or truncates with, which a tokenizer cannot take while it encodes.

    Raises:
        EngineError: it has no chat template.
    """
    if not tokenizer.chat_template:
        raise EngineError(
            f"the tokenizer of {source} has no chat template, so messages cannot become a prompt; "
            "use a chat (instruct) model, or put a chat_template.jinja beside its tokenizer"
        )
    return copy.deepcopy(tokenizer)


def _check_directory(source: str) -> None:
    path = Path(source).expanduser()
    looks_local = path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1
    if not path.exists():
        if looks_local:
            raise EngineError(
                f"model: there is no directory {path}; expected one written by save_pretrained"
            )
        return  # a name on the hub; transformers knows
    if not path.is_dir() or not (path / "config.json").is_file():
        raise EngineError(
            f"model: {path} has no config.json; expected a directory written by save_pretrained"
        )
    if not any(any(path.glob(pattern)) for pattern in _WEIGHTS):
        raise EngineError(f"model: {path} has a config.json but no weights ({' or '.join(_WEIGHTS)})")


def _load(loader: Any, source: str, what: str) -> Any:
    try:
        return loader.from_pretrained(source)
    except Exception as error:  # transformers raises a different class for every way this fails
        raise EngineError(
            f"model: the {what} of {source} cannot be read ({type(error).__name__}: {error}); expected "
            "a directory written by save_pretrained, or the name of a model on the hub"
        ) from error


def _stop_ids(source: str, config: Any, tokenizer: Any) -> frozenset[int]:
    try:
        generation = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:  # the file is optional
        generation = None
    found: set[int] = set()
    for ids in (generation, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update([ids] if isinstance(ids, int) else ids or [])
    if not found:
        raise EngineError(
            f"neither the configuration nor the tokenizer of {source} names an end-of-sequence token: "
            "no reply would ever end; set eos_token_id in its config.json"
        )
    return frozenset(found)


def _length(source: str, config: Any, asked: int | None) -> int:
    limit = getattr(config, "max_position_embeddings", None)
    if asked is None and limit is None:
        raise EngineError(
            f"the configuration of {source} has no max_position_embeddings; give max_model_len"
        )
    if asked is not None and limit is not None and asked > limit:
        raise EngineError(f"max_model_len={asked}, but {source} was made for {limit} tokens at most")
    return int(asked or limit or 0)
