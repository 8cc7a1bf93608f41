"""The command line, ``agl``."""

from agentlightning.cli.main import main

__all__ = ["main"]
