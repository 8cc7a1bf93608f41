"""Prompts whose braces are text, and values that are never read as templates."""

import pytest
from agentlightning.errors import BadValue
from agentlightning.records import PromptTemplate


def test_braces_of_a_json_example_are_text():
    prompt = PromptTemplate(template='Answer as {"a": 1}. Q: {q}')
    assert prompt.variables == {"q"}
    assert prompt.format(q="{x}") == 'Answer as {"a": 1}. Q: {x}'


@pytest.mark.parametrize("template", ["{q.__class__}", "{q[0]}", "{q.a}{q}", "{q[__globals__]}"])
def test_reaching_into_a_value_is_refused(template):
    with pytest.raises(BadValue, match=r"only plain names.*\{q\}"):
        PromptTemplate(template=template).format(q="text")


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{0}", "{ q }", "{{}}", "{q!r}", "{q:>10}", "{a-b}", "{é"]
)
def test_every_other_brace_is_text(template):
    prompt = PromptTemplate(template=template)
    assert prompt.variables == frozenset()
    assert prompt.format(q="value") == template


def test_a_doubled_brace_around_a_name_still_fills_the_name():
    assert PromptTemplate(template="{{q}}").format(q="x") == "{x}"


def test_a_value_is_filled_in_once_and_never_read_as_a_template():
    prompt = PromptTemplate(template="{a} {b}")
    assert prompt.format(a="{b}", b="{a}") == "{b} {a}"
    assert prompt.format(a=r"\1 \g<0>", b="$x %s") == r"\1 \g<0> $x %s"
    assert prompt.format(a=None, b=3) == "None 3"


def test_a_missing_value_is_named():
    with pytest.raises(BadValue, match=r"needs context, question; given: answer"):
        PromptTemplate(template="{question} {context}").format(answer=1)


def test_jinja_fills_in_and_is_sandboxed():
    prompt = PromptTemplate(template="{% for x in items %}{{ x }};{% endfor %} {{ q }}", engine="jinja")
    assert prompt.variables == {"items", "q"}
    assert prompt.format(items=[1, 2], q="{{ 7 * 7 }}") == "1;2; {{ 7 * 7 }}"


def test_jinja_refuses_what_reaches_into_python():
    prompt = PromptTemplate(template="{{ q.__class__.__mro__ }}", engine="jinja")
    with pytest.raises(BadValue, match="__class__"):
        prompt.format(q="text")


@pytest.mark.parametrize("template", ["{% if %}", "{{ q"])
def test_a_broken_jinja_template_is_a_bad_value(template):
    prompt = PromptTemplate(template=template, engine="jinja")
    with pytest.raises(BadValue, match="jinja"):
        prompt.variables  # noqa: B018
    with pytest.raises(BadValue, match="jinja"):
        prompt.format(q=1)


def test_an_engine_that_is_not_there_yet_says_so():
    with pytest.raises(BadValue, match="poml"):
        PromptTemplate(template="<poml/>", engine="poml").format()
