"""Listings that come a page at a time, cut by number and by size."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from agentlightning.errors import BadValue
from agentlightning.records import Span, from_json, to_json
from agentlightning.server.store_api.limits import Limits, check_amount
from agentlightning.store import RolloutQuery, Store
from agentlightning.store.http import messages as m
from agentlightning.store.http.operations import MAX_PAGE

_NO_CURSOR: Final = (
    "the cursor is not one of this query; expected the `cursor` of the last page, with the other "
    "fields as they were, or none to begin again"
)


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a page of spans ended: in which rollout and attempt, after which span."""

    query: str
    rollout: int
    attempt: int
    index: int


def spans_page(store: Store, ask: m.SpansOf, limits: Limits) -> bytes:
    """The next page of spans, as the JSON of :class:`~agentlightning.store.http.messages.Spans`."""
    ask = replace(ask, rollout_ids=list(dict.fromkeys(ask.rollout_ids)))
    query = _fingerprint(ask)
    found: list[msgspec.Raw] = []
    size, place, cursor = 0, None, None
    for number, span in _from(store, ask, _read(ask, query)):
        encoded = to_json(span)
        if found and (size + len(encoded) > limits.page_bytes or len(found) == limits.page_spans):
            cursor = place
            break
        found.append(msgspec.Raw(encoded))
        size += len(encoded)
        place = _Place(query, number, span.attempt, span.index)
    return to_json({"spans": found, "cursor": None if cursor is None else _written(cursor)})


def rollouts_page(store: Store, ask: RolloutQuery, limits: Limits) -> bytes:
    """The next page of rollouts, with fewer than were asked for if they are very large."""
    check_amount(ask.limit, MAX_PAGE, "rollouts a page", "go on with the page's cursor")
    while True:
        page = store.rollouts(ask)
        encoded = to_json(m.Rollouts(rollouts=page.items, cursor=page.cursor))
        if len(encoded) <= limits.page_bytes or len(page.items) <= 1:
            return encoded
        ask = replace(ask, limit=max(1, len(page.items) * limits.page_bytes // (2 * len(encoded))))


def _from(store: Store, ask: m.SpansOf, place: _Place | None) -> Iterator[tuple[int, Span]]:
    """Spans with the position of their rollout in the query, from a place on."""
    if place is None:
        start = 0
    else:
        start = place.rollout + 1
        # The last attempt may be another one by now; the page goes on in that which it began.
        attempt = place.attempt if ask.attempt == "last" else ask.attempt
        rollout_id = ask.rollout_ids[place.rollout]
        for span in store.spans([rollout_id], attempt=attempt, kinds=ask.kinds):
            if span.index > place.index:
                yield place.rollout, span
    rest = ask.rollout_ids[start:]
    positions = {rollout_id: start + number for number, rollout_id in enumerate(rest)}
    for span in store.spans(rest, attempt=ask.attempt, kinds=ask.kinds):
        yield positions[span.rollout_id], span


def _fingerprint(ask: m.SpansOf) -> str:
    asked = to_json([ask.rollout_ids, ask.attempt, ask.kinds])
    return hashlib.blake2b(asked, digest_size=8).hexdigest()


def _written(place: _Place) -> str:
    return base64.urlsafe_b64encode(to_json(place)).decode()


def _read(ask: m.SpansOf, query: str) -> _Place | None:
    if ask.cursor is None:
        return None
    try:
        place = from_json(base64.b64decode(ask.cursor.encode(), b"-_", validate=True), _Place)
    except (binascii.Error, msgspec.DecodeError, RecursionError) as error:
        raise BadValue(_NO_CURSOR) from error
    if place.query != query or not 0 <= place.rollout < len(ask.rollout_ids):
        raise BadValue(_NO_CURSOR)
    return place
