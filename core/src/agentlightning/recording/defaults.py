"""What ``agl.init()`` sets: the model, where it is asked, and the store, for code outside a run."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentlightning.recording.stand_in import VARIABLE, real_key
from agentlightning.store import Store
from agentlightning.store.opening import default_url, open_store

MODEL_VARIABLES: Final = ("AGENTLIGHTNING_MODEL", "OPENAI_MODEL")
"""The variables that name a model, the first that is set counts."""

_OPENAI: Final = "https://api.openai.com/v1"


@dataclass(frozen=True)
class Defaults:
    """The settings given to ``init``; None = the environment decides when it is needed.

    Attributes:
        model: else ``AGENTLIGHTNING_MODEL``, else ``OPENAI_MODEL``.
        base_url: else ``OPENAI_BASE_URL``, else OpenAI's.
        store: URL of the store; else ``AGENTLIGHTNING_STORE``, else a file in the working directory.
    """

    model: str | None = None
    base_url: str | None = None
    store: str | None = None


class _Current:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.defaults = Defaults()
        self.stores: dict[tuple[str, Path], Store] = {}


_current: Final = _Current()


def configure(
    model: str | None = None, base_url: str | None = None, store: str | None = None
) -> Defaults:
    """Set the defaults of this process, replacing earlier ones."""
    _current.defaults = Defaults(model=model, base_url=base_url, store=store)
    return _current.defaults


def default_model() -> str | None:
    """The model ``emit`` asks; None if none was named anywhere."""
    return _current.defaults.model or environment_model()


def environment_model() -> str | None:
    """The model that the environment names; None if it names none."""
    return next((name for it in MODEL_VARIABLES if (name := os.environ.get(it))), None)


def no_model() -> str:
    """What to tell whoever needs a model where none was named."""
    return f"no model to ask: call agl.init(model=…) or set {' or '.join(MODEL_VARIABLES)}"


def default_base_url() -> str:
    """Where that model is asked."""
    return _current.defaults.base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI


def default_api_key() -> str | None:
    """The key to ask it with; None if none is set."""
    return real_key(os.environ.get(VARIABLE))


def default_store(url: str | None = None) -> Store:
    """The store at ``url``, else ``init``'s, else the one at :func:`default_url`; opened once.

    A relative path is one of the current folder, which a program may change.
    """
    url = url or _current.defaults.store or default_url()
    place = (url, Path.cwd())
    with _current.lock:
        if place not in _current.stores:
            _current.stores[place] = opened = open_store(url)
            atexit.register(opened.close)
        return _current.stores[place]
