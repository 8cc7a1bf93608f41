"""``agl train``: a run from a configuration file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from agentlightning.cli.common import json_option, print_json
from agentlightning.errors import ConfigError


@click.command("train")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Override a key (YAML value)."
)
@click.option("--resume", metavar="RUN", help="Go on with a stopped run.")
@json_option
def train(config: Path, changes: tuple[str, ...], resume: str | None, *, as_json: bool) -> None:
    """Train as the YAML file CONFIG says.

    Agents and reward functions named in it are looked for beside it, then in the current folder.
    """
    from agentlightning.trainer import Trainer

    sys.path[:0] = [str(config.resolve().parent), str(Path.cwd())]
    keys = dict(_change(text) for text in changes)
    if resume is not None:
        keys["resume"] = resume
    trainer = Trainer(config, **keys)
    result = trainer.train()
    if as_json:
        print_json(
            {
                "run_id": result.run_id,
                "resources_version": result.resources.version,
                "reward_before": result.reward_before,
                "reward_after": result.reward_after,
                "run_dir": str(result.run_dir),
            }
        )


def _change(text: str) -> tuple[str, Any]:
    import yaml

    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ConfigError(f"--set {text!r}: expected KEY=VALUE")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"--set {text!r}: the value is no YAML: {reason}") from error
