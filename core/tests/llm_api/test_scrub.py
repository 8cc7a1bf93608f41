import base64
import dataclasses
import datetime as dt
import enum
import json

import pytest
from agentlightning.llm_api import error_line, scrub, scrub_text
from agentlightning.records import to_json
from hypothesis import given
from hypothesis import strategies as st

SECRET = "sk-very-secret-0123456789"
PAYLOAD = base64.b64encode(bytes(9000)).decode()


def strict(value):
    """Parse as a strict reader does: no bare NaN."""
    return json.loads(to_json(value), parse_constant=pytest.fail)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    api_key: str


class Explodes:
    def __init__(self):
        raise AssertionError("classes are never called")

    def __repr__(self):
        raise RuntimeError


def test_anything_becomes_strict_json():
    loop = []
    loop.append(loop)
    given_ = {1: "x", None: [float("nan")], "inf": float("-inf"), "big": 2**70, "e": Colour.RED,
              "p": Point(1, SECRET), "t": (1, {2}), "when": dt.date(2026, 1, 2), "cls": Explodes,
              "odd": object.__new__(Explodes), "loop": loop, "bad": "\ud800", "b": b"\xff"}  # fmt: skip
    cleaned = strict(scrub(given_))
    assert cleaned["1"] == "x"
    assert cleaned["None"] == ["nan"]
    assert cleaned["inf"] == "-inf"
    assert cleaned["big"] == str(2**70)
    assert cleaned["e"] == "red"
    assert cleaned["p"] == {"x": 1, "api_key": "[removed: secret]"}
    assert cleaned["t"] == [1, [2]]
    assert "2026" in cleaned["when"]
    assert "Explodes" in cleaned["cls"]
    assert cleaned["loop"] == ["<itself>"]
    assert cleaned["bad"] == "\\ud800"
    assert "1 bytes" in cleaned["b"]


# No name with a meaning: hypothesis tries the constants it finds in the code, "authorization" among them.
NAMES = st.text().map("x".__add__)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner),
    max_leaves=20,
)


@given(JSON)
def test_plain_json_without_secrets_or_media_is_kept_as_it_is(value):
    assert scrub(value) == value


def test_secrets_are_removed_by_name_wherever_they_stand():
    body = {
        "extra_headers": {"X-Token": SECRET},
        "Authorization": f"Bearer {SECRET}",
        "tools": [
            {"type": "mcp", "headers": {"X-Whatever": SECRET}, "authorization": SECRET},
            {"type": "function", "function": {"parameters": {"properties": {"api_key": {"type": "string"}, "headers": {"type": "object"}}}}},
        ],
    }  # fmt: skip
    before = json.dumps(body)
    cleaned = scrub(body)
    assert SECRET not in json.dumps(cleaned)
    assert cleaned["tools"][1] == body["tools"][1]
    assert json.dumps(body) == before


def test_a_secret_is_removed_in_whatever_type_it_comes():
    body = {
        "api_key": SECRET.encode(),
        "Set-Cookie": [SECRET],
        "X-Goog-Api-Key": SECRET,
        "default_headers": [("X-Token", SECRET)],
        "extra_headers": None,
    }
    cleaned = scrub(body)
    assert set(cleaned.values()) == {"[removed: secret]"}
    assert scrub({"api_key": None, "cookie": {"type": "string"}}) == {
        "api_key": None,
        "cookie": {"type": "string"},
    }


def test_what_is_nested_too_deeply_is_cut_off_there_and_still_written():
    deep = innermost = []
    for _ in range(5000):
        innermost.append([])
        (innermost,) = innermost
    assert "nested too deeply" in to_json(scrub({"deep": deep})).decode()


def test_secrets_are_removed_from_text():
    assert SECRET not in scrub_text(f"Incorrect API key {SECRET} (Bearer abcdefgh)")
    assert "abcdefgh" not in scrub_text("Authorization: Bearer abcdefgh")
    assert (
        scrub_text("the key is hunter22", secrets=["hunter22", None]) == "the key is [removed: secret]"
    )
    assert (
        scrub_text("ask-me-anything about task-scheduling") == "ask-me-anything about task-scheduling"
    )


def test_text_that_no_store_takes_is_made_fit():
    assert scrub_text("caf\u00e9 \udc80") == "caf\u00e9 \\udc80"
    assert error_line(ValueError(f"bad \udc80 {SECRET}")) == "ValueError: bad \\udc80 [removed: secret]"
    assert error_line(KeyError("hunter22"), secrets=["hunter22"]) == "KeyError: '[removed: secret]'"


@pytest.mark.parametrize(
    "content",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PAYLOAD}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PAYLOAD}"},
        {"type": "input_audio", "input_audio": {"data": PAYLOAD, "format": "wav"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;name=a.pdf;base64,{PAYLOAD}"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PAYLOAD}},
        {"type": "image_generation_call", "result": PAYLOAD},
        {"b64_json": PAYLOAD},
    ],
)
def test_a_large_payload_is_replaced_by_size_and_hash(content):
    text = json.dumps(scrub({"content": [{"type": "text", "text": "what is this"}, content]}))
    assert "what is this" in text
    assert "9000 bytes" in text
    assert "sha256 " in text
    assert len(text) < 500


def test_small_payloads_urls_and_long_text_are_kept():
    kept = {
        "small": "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
        "url": "https://example.org/" + "a" * 9000,
        "text": "word " * 9000,
        "result": "a long answer. " * 900,
    }
    assert scrub(kept) == kept
