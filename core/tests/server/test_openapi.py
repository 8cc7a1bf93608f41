"""The OpenAPI document says what the server does: schemathesis asks as it says, and as it does not."""

from __future__ import annotations

import json

import pytest
import schemathesis
from agentlightning.store.http.operations import OPERATIONS
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from schemathesis.core.errors import UnsupportedSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES = 8
# A request that fits the schema may still contradict what is stored.
ANYHOW = [positive_data_acceptance]


@pytest.fixture(scope="module")
def document(fast):
    return schemathesis.openapi.from_url(f"{fast.url}/openapi.json")


@pytest.fixture(scope="module")
def plain(fast) -> dict:
    status, reply, _ = fast.client(token=None).send("/openapi.json", b"", method="GET")
    assert status == 200
    return json.loads(reply)


def test_every_operation_is_in_the_document_with_what_it_takes_and_gives(plain):
    assert plain["openapi"].startswith("3.1")
    for operation in OPERATIONS:
        entry = plain["paths"][operation.path]["post"]
        assert entry["operationId"] == operation.name
        assert entry["summary"] == operation.summary
        assert {"200", "400", "401", "403", "404", "409", "413", "415", "503"} <= entry[
            "responses"
        ].keys()
    assert plain["security"] == [{"token": []}]
    assert plain["paths"]["/health"]["get"]["security"] == []


def test_packed_numbers_are_described(plain):
    choice = plain["components"]["schemas"]["Choice"]["properties"]
    packed, listed = choice["response_ids"]["anyOf"][0]["anyOf"]
    assert (packed["type"], packed["contentEncoding"]) == ("string", "base64")
    assert "uint32" in packed["description"]
    assert listed["items"]["type"] == "integer"
    assert "float32" in choice["logprobs"]["anyOf"][0]["anyOf"][0]["description"]


@st.composite
def drawable(draw, cases):
    """Cases without those that schemathesis finds it cannot make; hypothesis fails if few are left."""
    try:
        return draw(cases)
    except UnsupportedSchema:
        reject()


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("path", [*(operation.path for operation in OPERATIONS), "/health"])
def test_the_server_keeps_to_its_document(fast, document, path, mode):
    operation = document[path]["GET" if path == "/health" else "POST"]
    if mode == schemathesis.GenerationMode.NEGATIVE and path == "/health":
        return  # it takes nothing that could be wrong
    headers = {"Authorization": f"Bearer {fast.owner}"}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(case=drawable(operation.as_strategy(generation_mode=mode)))
    def ask(case):
        if isinstance(case.body, dict) and type(case.body.get("wait_s")) in (int, float):
            case.body["wait_s"] = min(case.body["wait_s"], 0)  # else it would be held back
        case.call_and_validate(headers=headers, excluded_checks=ANYHOW, timeout=30)

    ask()
