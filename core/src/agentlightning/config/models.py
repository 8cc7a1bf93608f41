"""What a configuration's ``model`` names: weights we can open, or a model somebody else hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from agentlightning.errors import ConfigError
from agentlightning.recording.defaults import MODEL_VARIABLES, environment_model

ModelKind = Literal["directory", "hub", "hosted"]


def model_kind(model: str) -> ModelKind:
    """Tell by its form what ``model`` is.

    A directory that exists is one; ``owner/name`` is a hub id; a bare name such as ``gpt-4`` is a
    hosted model.

    Raises:
        ConfigError: a path (absolute, or starting with ``.`` or ``~``, or with several slashes) where
            no model lies.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(
                f"model: the directory {model!r} has no config.json; expected one that "
                "from_pretrained reads (save_pretrained writes it)"
            )
        return "directory"
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ConfigError(f"model: there is no directory {model!r}; check the path")
    return "hub" if "/" in model else "hosted"


def require_open_weights(model: str, algorithm: str, instead: str) -> None:
    """Refuse a hosted model for an algorithm that trains weights here.

    Args:
        model: the configuration's ``model``.
        algorithm: how the message names what was asked for.
        instead: what can be done with a hosted model.
    """
    if model_kind(model) == "hosted":
        raise ConfigError(
            f"model: {model!r} is no directory and no hub id (owner/name), so it is taken for a "
            f"hosted model, whose weights cannot be trained here by {algorithm}. What can be done: "
            f"name a local directory or a hub id, or {instead}"
        )


def default_model() -> str:
    """The model named by the environment when the configuration names none."""
    if model := environment_model():
        return model
    raise ConfigError(
        f"model: none given; set the key `model` or the variable {' or '.join(MODEL_VARIABLES)} "
        "to a local directory, a hub id (owner/name) or a hosted model's name"
    )
