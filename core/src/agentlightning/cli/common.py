"""What several commands share: the store option and short texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console

from agentlightning.errors import StoreUnavailable
from agentlightning.records import JSON, Rollout, to_builtins
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.opening import DEFAULT_URL, STORE_VARIABLE, default_url, open_existing_store

F = TypeVar("F", bound=Callable[..., Any])

PIPE_WIDTH = 200
"""Columns of a table that is written to a pipe or file, which have no width to fit into."""


def store_option(command: F) -> F:
    """Add ``--store URL``, by default the store that runs are kept in where they name none."""
    return click.option(
        "--store",
        "store_url",
        default=default_url,
        show_default=f"{STORE_VARIABLE}, else {DEFAULT_URL}",
        help="URL of the store.",
    )(command)


def json_option(command: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)


def open_existing(url: str) -> Store:
    """Open a store for reading; what is not there is an error, not a new empty store."""
    try:
        return open_existing_store(url)
    except StoreUnavailable as error:
        raise type(error)(
            f"{error}. Name the store of your run with --store or {STORE_VARIABLE}"
        ) from error


def output(*, wrap: bool = True) -> Console:
    """Standard output. What is printed is taken as it is: ``[/INST]`` and ``:key:`` are data here.

    Args:
        wrap: fold lines to the width of the terminal, as tables need; otherwise that is left to it.
    """
    plain = Console(highlight=False, markup=False, emoji=False, soft_wrap=not wrap)
    if not plain.is_terminal:
        plain.width = PIPE_WIDTH
    return plain


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
