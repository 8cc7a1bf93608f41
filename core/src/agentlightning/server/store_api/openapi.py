"""The OpenAPI document of the store's API, made from the list of operations and their types."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

import agentlightning
from agentlightning.records import JSON, Floats, Tokens, to_json
from agentlightning.server.store_api.limits import Limits
from agentlightning.server.store_api.rights import AnyOperation
from agentlightning.store.http import operations as ops
from agentlightning.store.http.messages import Refusal

Schema: TypeAlias = dict[str, JSON]

_REF: Final = "#/components/schemas/{name}"
_WHO: Final = {
    "owner": "For the owner's token.",
    "runner": "For the owner's token, or a runner's within its run.",
    "attempts": "For the owner's token, a runner's with the token of each attempt in `tokens`, or the "
    "token of the one attempt it is about.",
}
_REFUSALS: Final = {
    "400": "The body is not what is expected; the message has the place.",
    "401": "There is no token, or none that is known.",
    "403": "The token is known, and not good for this.",
    "404": "There is no such run, rollout, attempt or version.",
    "409": "It contradicts what happened before.",
    "413": "The body is larger than the server takes.",
    "415": "The body is of another type, or packed with something else than gzip.",
    "500": "The server failed; its log says why.",
    "503": "The store behind the server cannot be reached at the moment; ask again.",
}


def openapi(limits: Limits) -> bytes:
    """The document (OpenAPI 3.1) as JSON."""
    return to_json(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "agentlightning store",
                "version": agentlightning.__version__,
                "description": (
                    "Runs, rollouts, attempts, spans and resources. Each operation is a POST with a "
                    f"JSON body of at most {limits.body_bytes} bytes, gzip or not. Writes that "
                    "take a `key` happen once however often they are sent with it; all others may be "
                    "repeated as they are."
                ),
            },
            "security": [{"token": []}],
            "paths": _paths(),
            "components": {
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
                "schemas": _schemas(),
                "responses": {
                    status: _answer(text, Refusal, _HEADERS.get(status))
                    for status, text in _REFUSALS.items()
                },
            },
        }
    )


_HEADERS: Final[dict[str, Schema]] = {
    "401": {"WWW-Authenticate": {"schema": {"type": "string"}}},
    "503": {"Retry-After": {"schema": {"type": "string"}}},
}


def _operation(operation: AnyOperation) -> Schema:
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": _WHO[operation.who],
        "requestBody": {"required": True, "content": _content(operation.request)},
        "responses": {
            "200": _answer("It was carried out.", operation.reply),
            **{status: {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS},
        },
    }


def _paths() -> Schema:
    paths: Schema = {operation.path: {"post": _operation(operation)} for operation in ops.OPERATIONS}
    return {**paths, **_other_paths()}


def _other_paths() -> Schema:
    binary = {"application/x-protobuf": {"schema": {"type": "string", "format": "binary"}}}
    facts = {"type": "object", "required": ["status", "instance", "version"]}
    return {
        "/health": {
            "get": {
                "operationId": "health",
                "summary": "Whether the server is up, which one it is, and of which version",
                "security": [],
                "responses": {
                    "200": {"description": "It is.", "content": {"application/json": {"schema": facts}}}
                },
            }
        },
        "/v1/traces": {
            "post": {
                "operationId": "export_traces",
                "summary": "Take spans of OpenTelemetry (OTLP/HTTP, protobuf)",
                "description": (
                    "Spans name their attempt by the attributes agentlightning.rollout_id and "
                    "agentlightning.attempt, on the resource or the span. For the owner's token or "
                    "that of the attempt. The answer counts the spans that were refused."
                ),
                "requestBody": {"required": True, "content": binary},
                "responses": {
                    "200": {"description": "Taken, wholly or in part.", "content": binary},
                    **{status: {"description": text} for status, text in _REFUSALS.items()},
                },
            }
        },
    }


def _answer(text: str, body: type[msgspec.Struct], headers: Schema | None = None) -> Schema:
    answer: Schema = {"description": text, "content": _content(body)}
    return answer if headers is None else {**answer, "headers": headers}


def _content(body: type[msgspec.Struct]) -> Schema:
    return {"application/json": {"schema": {"$ref": _REF.format(name=body.__name__)}}}


def _schemas() -> Schema:
    types: list[Any] = [Refusal]
    for operation in ops.OPERATIONS:
        types += (operation.request, operation.reply)
    _refs, schemas = msgspec.json.schema_components(types, schema_hook=_packed, ref_template=_REF)
    return schemas


def _packed(kind: type) -> Schema:
    """The schema of packed numbers."""
    if kind is Tokens:
        number, text = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}, "uint32"
    elif kind is Floats:
        number, text = {"type": "number"}, "float32"
    else:
        raise NotImplementedError(f"no schema is known for {kind.__name__}")
    packed = {
        "type": "string",
        "contentEncoding": "base64",
        "description": f"Little-endian {text}, four bytes each, in Base64. What the server sends.",
    }
    return {"anyOf": [packed, {"type": "array", "items": number}]}
