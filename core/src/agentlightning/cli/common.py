"""What several commands share: the store option and short texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from agentlightning.errors import StoreUnavailable
from agentlightning.records import JSON, Rollout, to_builtins
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.opening import open_store

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STORE = "sqlite:///agentlightning.db"


def store_option(command: F) -> F:
    """Add ``--store URL``, with the variable AGENTLIGHTNING_STORE and the usual file as defaults."""
    return click.option(
        "--store",
        "store_url",
        default=DEFAULT_STORE,
        envvar="AGENTLIGHTNING_STORE",
        show_default=True,
        show_envvar=True,
        help="URL of the store.",
    )(command)


def json_option(command: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)


def open_existing(url: str) -> Store:
    """Open a store for reading; a SQLite file that is not there is an error, not a new empty store."""
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and not Path(path).is_file():
        raise StoreUnavailable(
            f"there is no store at {url}; name the one of your run with --store or AGENTLIGHTNING_STORE"
        )
    return open_store(url)


def find_rollout(store: Store, rollout_id: str) -> Rollout:
    """The rollout of that id."""
    return store.rollouts(RolloutQuery(rollout_ids=(rollout_id,))).items[0]


def print_json(value: Any) -> None:
    """Write a value or record as indented JSON to standard output."""
    json.dump(to_builtins(value), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def short(value: JSON, width: int = 60) -> str:
    """A value on one line, cut to ``width`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


def number(value: float | None) -> str:
    """A reward as people read it; unscored is not zero."""
    return "unscored" if value is None else f"{value:.3g}"
