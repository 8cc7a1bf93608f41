"""What earlier calls of an attempt left for later ones to refer to."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from agentlightning.endpoint.replies import Refused

_RESPONSES: Final = 256
_ARGUMENTS: Final = 4096

Item = dict[str, Any]


class StoredResponse(NamedTuple):
    """A reply of the Responses API, what it answered, and what came before; a chain, not copies."""

    body: Mapping[str, Any]
    items: tuple[Item, ...]
    before: StoredResponse | None


class Memory:
    """The responses an attempt may continue, and how the model wrote the arguments of its tool calls.

    Attempts share nothing here: an id of one is unknown to every other.
    """

    def __init__(self) -> None:
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._arguments: OrderedDict[str, str] = OrderedDict()

    def response(self, response_id: str) -> StoredResponse:
        """A stored response.

        Raises:
            Refused: there is none of that id, or it was made with ``store=false``.
        """
        found = self._responses.get(response_id)
        if found is None:
            raise Refused(
                404,
                f"there is no response {response_id!r:.80} in this attempt: responses are kept for the "
                f"attempt that got them, the last {_RESPONSES} of them, unless made with store=false",
                "previous_response_not_found",
            )
        return found

    def history(self, response_id: str) -> list[Item]:
        """All items up to and including a response, oldest first."""
        parts: list[tuple[Item, ...]] = []
        at: StoredResponse | None = self.response(response_id)
        while at is not None:
            parts.append(at.items)
            at = at.before
        return [item for part in reversed(parts) for item in part]

    def item(self, item_id: object) -> Item:
        """The item of any stored response that an ``item_reference`` means.

        Raises:
            Refused: there is none of that id.
        """
        for stored in reversed(self._responses.values()):
            for item in stored.items:
                if item_id is not None and item.get("id") == item_id:
                    return item
        raise Refused(400, f"there is no item {item_id!r:.80} in this attempt", "item_not_found")

    def keep_response(
        self, body: Mapping[str, Any], items: Sequence[Item], previous_id: str | None
    ) -> None:
        """Keep a response, with the items that were sent for it and those it holds."""
        before = self._responses.get(previous_id) if previous_id else None
        self._responses[body["id"]] = StoredResponse(body, tuple(items), before)
        if len(self._responses) > _RESPONSES:
            self._responses.popitem(last=False)

    def forget_response(self, response_id: str) -> None:
        """Drop a response; those that continue it keep what it said."""
        self.response(response_id)
        del self._responses[response_id]

    def keep_arguments(self, call_id: str, arguments: str) -> None:
        """Keep the arguments of a tool call as the model wrote them."""
        self._arguments[call_id] = arguments
        if len(self._arguments) > _ARGUMENTS:
            self._arguments.popitem(last=False)

    def arguments(self, call_id: object, value: object) -> str:
        """Arguments as text: the model's own where it meant ``value``, so that its tokens come again.

        A protocol that carries them as an object loses how they were written; written anew, the next
        prompt would not continue the last one token for token.
        """
        said = self._arguments.get(call_id) if isinstance(call_id, str) else None
        if said is not None and json.loads(said) == value:
            return said
        return json.dumps(value, ensure_ascii=False)
