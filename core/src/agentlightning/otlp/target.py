"""Where spans are sent: what a user said, and the variables that OpenTelemetry's exporters read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from agentlightning.errors import ConfigError

VARIABLE: Final = "AGENTLIGHTNING_OTLP"
"""Set to ``1`` or to a URL, it switches sending on where no configuration says anything."""

_PATH: Final = "/v1/traces"
_DEFAULT: Final = "http://localhost:4318"
_WORDS: Final = {"": False, "0": False, "false": False, "1": True, "true": True}


@dataclass(frozen=True)
class Target:
    """A collector. The headers often hold a key, and are never shown."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def told_by_environment() -> bool | str | None:
    """What :data:`VARIABLE` says: nothing, off, on, or a URL."""
    told = os.environ.get(VARIABLE, "").strip()
    return _WORDS.get(told.lower(), told) or None


def target_of(told: bool | str | None) -> Target | None:
    """Where to send; None for nowhere.

    Args:
        told: False or None for nowhere; the URL of a collector, with or without ``/v1/traces``; True
            for where ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT`` say, by
            default this machine. Headers are those of ``OTEL_EXPORTER_OTLP_TRACES_HEADERS`` or
            ``OTEL_EXPORTER_OTLP_HEADERS`` in each case.

    Raises:
        ConfigError: it is no such URL, or a variable cannot be followed.
    """
    if not told:
        return None
    if told is not True:
        return Target(_checked(_with_path(told), "otlp"), _headers())
    _check_protocol()
    if (whole := os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()) != "":
        return Target(_checked(whole, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), _headers())
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or _DEFAULT
    return Target(_checked(_with_path(base), "OTEL_EXPORTER_OTLP_ENDPOINT"), _headers())


def _with_path(url: str) -> str:
    return url if url.rstrip("/").endswith(_PATH) else url.rstrip("/") + _PATH


def _checked(url: str, source: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"{source}: {url!r} is no address of a collector; expected one such as {_DEFAULT}"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{source}: the address holds a name or a password, which would be kept with the run; "
            "expected them as a header in OTEL_EXPORTER_OTLP_HEADERS"
        )
    return url


def _check_protocol() -> None:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(name, "").strip()
        if protocol not in {"", "http/protobuf"}:
            raise ConfigError(
                f"{name} is {protocol!r}, and spans are sent as http/protobuf only; name the "
                f"collector's HTTP port as otlp, such as {_DEFAULT}"
            )


def _headers() -> dict[str, str]:
    told = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or os.environ.get(
        "OTEL_EXPORTER_OTLP_HEADERS", ""
    )
    pairs = (item.partition("=") for item in told.split(",") if "=" in item)
    return {unquote(name).strip(): unquote(value).strip() for name, _, value in pairs}
