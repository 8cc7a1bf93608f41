import pytest
from agentlightning.llm_api import messages_of_row, text_of_row

HI = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("plain", "plain"),
        ({"prompt": "a", "question": "b", "input": "c"}, "a"),
        ({"prompt": None, "question": "b"}, "b"),
        ({"prompt": ["not text"], "input": "c"}, "c"),
        ({"text": "x"}, None),
        (3, None),
    ],
)
def test_the_first_field_that_holds_text_is_the_rows(row, text):
    assert text_of_row(row) == text


@pytest.mark.parametrize("held", [None, [], "hi", 3, ["hi"]])
def test_a_row_without_a_conversation_has_none(held):
    assert messages_of_row({"messages": held}) is None


def test_a_rows_conversation_is_a_copy():
    messages_of_row({"messages": HI})[0]["content"] = "changed"
    assert messages_of_row({"messages": HI}) == HI
    assert messages_of_row("hi") is None
