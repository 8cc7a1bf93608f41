"""Variables of the process, set for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the body; one that somebody changes meanwhile stays as it is."""
    earlier = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, before in earlier.items():
            if os.environ.get(name) != variables[name]:
                continue
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
