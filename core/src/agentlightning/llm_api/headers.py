"""The headers in which the seam tells our endpoint which span a call is.

Agent names may hold any character, headers only ASCII: values are percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from agentlightning import semconv

_SPAN_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_SEQ: Final = re.compile(r"[0-9]{1,9}")
_LONGEST_NAME: Final = 200


class CallHeaders(NamedTuple):
    """What a client with the seam says about its call; all None for one without.

    ``seq`` is the call's place within the attempt. The seam counts calls that go elsewhere too, so its
    count is the one that holds.
    """

    span_id: str | None = None
    parent_id: str | None = None
    agent: str | None = None
    seq: int | None = None


def write_call_headers(span: CallHeaders) -> dict[str, str]:
    """The headers to send along to our endpoint."""
    named = {
        semconv.HEADER_SPAN: span.span_id,
        semconv.HEADER_PARENT: span.parent_id,
        semconv.HEADER_AGENT: span.agent,
        semconv.HEADER_SEQ: None if span.seq is None else str(span.seq),
    }
    return {name: quote(value, safe=" ") for name, value in named.items() if value is not None}


def read_call_headers(headers: Mapping[str, str]) -> CallHeaders:
    """Read what :func:`write_call_headers` wrote; ``headers`` has lower-case names.

    Anybody may send these: what could not be one of ours is left out.
    """

    def value(name: str) -> str | None:
        given = headers.get(name)
        return unquote(given) if given else None

    def span_id(name: str) -> str | None:
        given = value(name)
        return given if given and _SPAN_ID.fullmatch(given) else None

    agent, seq = value(semconv.HEADER_AGENT), value(semconv.HEADER_SEQ) or ""
    return CallHeaders(
        span_id=span_id(semconv.HEADER_SPAN),
        parent_id=span_id(semconv.HEADER_PARENT),
        agent=agent.replace("\0", "")[:_LONGEST_NAME] if agent else None,
        seq=int(seq) if _SEQ.fullmatch(seq) else None,
    )
