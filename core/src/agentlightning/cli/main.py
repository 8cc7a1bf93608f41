"""The command ``agl``: a group whose commands come from the plug-ins, each imported when typed."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from agentlightning.errors import (
    EXIT_INTERRUPTED,
    AgentLightningError,
    PluginError,
    RunInterrupted,
)
from agentlightning.plugins import plugins

TRACEBACK = "AGENTLIGHTNING_TRACEBACK"


class PluginGroup(click.Group):
    """A group that lists the registered commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(entry.name.replace("_", "-") for entry in plugins().commands.entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported now."""
        command = plugins().commands.get(cmd_name)
        if isinstance(command, click.Command):
            return command
        entry = plugins().commands.entry(cmd_name)
        raise PluginError(
            f'the command "{cmd_name}" of {entry.source} is a {type(command).__name__}; '
            "expected a click command"
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl+C is nobody's fault, and ends it as shells expect."""
        try:
            return super().invoke(ctx)
        except RunInterrupted:  # the trainer has said how to go on
            ctx.exit(EXIT_INTERRUPTED)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of ``agl --help``, from the summaries given when they were registered."""
        entries = sorted(plugins().commands.entries(), key=lambda entry: entry.name)
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name.replace("_", "-"), entry.summary) for entry in entries])


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="agentlightning", prog_name="agl")
def agl() -> None:
    """Train the AI agent you already have, in any framework."""


def main() -> None:
    """Run ``agl``; an error raised on purpose is one line, with its traceback only when asked for."""
    try:
        agl(prog_name="agl")
    except AgentLightningError as error:
        if os.environ.get(TRACEBACK):
            raise
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
