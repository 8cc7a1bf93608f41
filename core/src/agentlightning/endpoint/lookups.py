"""What agents look up besides asking a model: the models, and the responses they got."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentlightning.endpoint.calls import AttemptState
from agentlightning.endpoint.dialects.errors import error_response
from agentlightning.endpoint.ledger import Ledger
from agentlightning.endpoint.replies import Refused, json_response
from agentlightning.endpoint.served import ServedModel, ServedModels
from agentlightning.records import JSON, Api

_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_BEGINNING: Final = "1970-01-01T00:00:00Z"

Handler = Callable[[Request], Awaitable[JSON]]


class Lookups:
    """Answers without a model.

    Args:
        admit: finds the attempt that a request belongs to.
        models: what is served.
        ledger: counts refusals.
    """

    def __init__(
        self,
        admit: Callable[[Request], Awaitable[AttemptState]],
        models: ServedModels,
        ledger: Ledger,
    ) -> None:
        self._admit = admit
        self._models = models
        self._ledger = ledger

    def routes(self, base: str) -> Sequence[BaseRoute]:
        """The routes below ``base``; the last one takes whatever no other takes."""
        return [
            Route(f"{base}/models", self._answering(self._list_models)),
            Route(f"{base}/models/{{model:path}}", self._answering(self._model)),
            Route(f"{base}/responses/{{response_id}}", self._answering(self._response)),
            Route(
                f"{base}/responses/{{response_id}}",
                self._answering(self._forget_response),
                methods=["DELETE"],
            ),
            Route(f"{base}/responses/{{response_id}}/input_items", self._answering(self._input_items)),
            Route(f"{base}/{{path:path}}", self._answering(self._unknown), methods=_METHODS),
        ]

    def _answering(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return json_response(await handler(request))
            except Refused as refused:
                self._ledger.counts[refused.code] += 1
                return error_response(protocol_of(request), refused.answer)

        return answer

    async def _list_models(self, request: Request) -> JSON:
        attempt = await self._admit(request)
        api = protocol_of(request)
        listed = [_shown(api, served) for served in self._models.of_run(attempt.run_id)]
        if api != "messages":
            return {"object": "list", "data": listed}
        ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
        return {"data": listed, "has_more": False, "first_id": None, "last_id": None, **ends}

    async def _model(self, request: Request) -> JSON:
        attempt = await self._admit(request)
        asked = request.path_params["model"]
        return _shown(protocol_of(request), self._models.find(attempt.run_id, asked))

    async def _response(self, request: Request) -> JSON:
        attempt = await self._admit(request)
        return dict(attempt.memory.response(request.path_params["response_id"]).body)

    async def _forget_response(self, request: Request) -> JSON:
        attempt = await self._admit(request)
        response_id = request.path_params["response_id"]
        attempt.memory.forget_response(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def _input_items(self, request: Request) -> JSON:
        attempt = await self._admit(request)
        stored = attempt.memory.response(request.path_params["response_id"])
        count = len(stored.items) - len(stored.body["output"])
        return {"object": "list", "data": list(stored.items[:count]), "has_more": False}

    async def _unknown(self, request: Request) -> JSON:
        what = f"{request.method} {request.path_params['path']!r:.100}"
        raise Refused(
            404,
            "this endpoint answers chat/completions, completions, responses, messages and models; "
            f"not {what}",
            "unknown_path",
        )


def protocol_of(request: Request) -> Api:
    """Whose words to use where a path alone does not tell."""
    anthropic = "anthropic-version" in request.headers or "/messages" in request.url.path
    return "messages" if anthropic else "chat"


def _shown(api: Api, served: ServedModel) -> dict[str, JSON]:
    name = served.current.name
    if api == "messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": _BEGINNING}
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "agentlightning",
        "max_model_len": served.engine.max_model_len,
    }
