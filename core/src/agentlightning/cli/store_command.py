"""``agl store``: a store for other machines, and the tokens that let runners in."""

from __future__ import annotations

import json
import signal
import socket
from types import FrameType
from typing import Final

import click

from agentlightning.cli.common import json_option, open_existing, store_option
from agentlightning.errors import ConfigError
from agentlightning.store.http import TOKEN_VARIABLE
from agentlightning.store.opening import open_store, without_password

_MB: Final = 1024 * 1024


@click.group("store")
def store() -> None:
    """Serve a store to other machines, and let runners in."""


@store.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=0,
    show_default="a free one",
    type=click.IntRange(0, 65535),
    help="Port to listen on.",
)
@click.option(
    "--max-body-mb",
    default=64,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="Largest request taken, in MB.",
)
@json_option
@store_option
def serve(host: str, port: int, max_body_mb: int, store_url: str, *, as_json: bool) -> None:
    """Serve a store over HTTP until Ctrl+C.

    Prints the address, the owner's token and how to start a runner elsewhere. Tokens stay the same as
    long as the store does.
    """
    from agentlightning.server import Limits, Server, build_app

    signal.signal(signal.SIGTERM, _terminate)
    with open_store(store_url) as opened:
        app = build_app(store=opened, limits=Limits(body_bytes=max_body_mb * _MB))
        with Server(app, host, port) as server:
            facts = {
                "url": server.url,
                "runner_url": _from_elsewhere(server.url, host),
                "store": without_password(store_url),
                "owner_token": opened.access_token("owner"),
                "runner_token": opened.access_token("runner"),
                "instance": app.state.instance_id,
            }
            click.echo(json.dumps(facts) if as_json else _announcement(facts))
            server.wait()


@store.command("token")
@click.option("--run", "run_id", metavar="RUN", help="Good for this run only.")
@json_option
@store_option
def token(run_id: str | None, store_url: str, *, as_json: bool) -> None:
    """Print a token for runners, of one run or of all."""
    if store_url.startswith("memory:"):
        raise ConfigError(
            "a store in memory ends with its process and its tokens with it; `agl store serve` prints "
            "one when it serves such a store"
        )
    with open_existing(store_url) as opened:
        made = opened.access_token("runner", run_id)
    click.echo(json.dumps({"token": made, "run_id": run_id}) if as_json else made)


def _from_elsewhere(url: str, host: str) -> str:
    """The address as other machines know it, where the server listens on all addresses."""
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound
        return url
    return f"http://{socket.gethostname()}:{url.rpartition(':')[2]}"


def _announcement(facts: dict[str, str]) -> str:
    return (
        f"serving {facts['store']} at {facts['url']}\n"
        f"\n"
        f"owner token (may do everything; keep it secret):\n"
        f"  export {TOKEN_VARIABLE}={facts['owner_token']}\n"
        f"a runner, with a token that is good for its own attempts only:\n"
        f"  {TOKEN_VARIABLE}={facts['runner_token']} agl run --store {facts['runner_url']} "
        f"--agent module:name\n"
        f"\n"
        f"Ctrl+C stops the server; the store and its tokens stay as they are."
    )


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)  # what `kill` and service managers ask for: the `with` blocks end everything
