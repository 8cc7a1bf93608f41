"""``init``: what a program calls first when it records or asks a model outside a training run."""

from __future__ import annotations

import threading

from agentlightning.plugins import plugins
from agentlightning.recording import defaults
from agentlightning.recording.instruments import instruments

_lock = threading.Lock()
_done: list[bool] = []


def init(model: str | None = None, base_url: str | None = None, store: str | None = None) -> None:
    """Load the plug-ins, install recording in this process, and set its defaults.

    A second call replaces the defaults and installs nothing twice.

    Args:
        model: the model :func:`~agentlightning.emit` asks; else ``AGENTLIGHTNING_MODEL``, else
            ``OPENAI_MODEL``.
        base_url: where it is asked; else ``OPENAI_BASE_URL``, else OpenAI's own address. The key is
            ``OPENAI_API_KEY``.
        store: the URL of the store that records are kept in; else ``AGENTLIGHTNING_STORE``, else
            ``sqlite:///agentlightning.db``.

    Raises:
        UnknownName: no plug-in opens such a store; the message lists what is known.
    """
    installed = plugins()
    if store is not None:
        installed.store_backend_for(store)
    defaults.configure(model=model, base_url=base_url, store=store)
    with _lock:
        if not _done:
            instruments.install()
            _done.append(True)
