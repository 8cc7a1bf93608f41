"""What the documents show works: commands exist, code runs, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
import yaml
from agentlightning.cli.main import agl
from agentlightning.config.schema import Settings

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = {".git", ".nox", ".venv", "build", "dist", "runs", "node_modules"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S.*-->\s*\Z")


def documents():
    """Every Markdown file of the repository."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and not name.startswith(".")]
        yield from (Path(folder) / name for name in sorted(names) if name.endswith(".md"))


DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in documents()
}


def blocks(text, language):
    """The fenced blocks of a language, each with the text before it."""
    return [(text[: found.start()], found[2]) for found in FENCE.finditer(text) if found[1] == language]


def prose(text):
    """A document without its fenced blocks."""
    return FENCE.sub("", text)


def words(text):
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


# --- commands ---------------------------------------------------------------------------------


def commands():
    """Each use of ``agl``: the document, its words, and whether it is complete, as in a script."""
    for name, text in DOCUMENTS.items():
        for _, script in blocks(text, "bash"):
            for line in script.replace("\\\n", " ").splitlines():
                if line.startswith("agl "):
                    yield name, line, True
        yield from ((name, word, False) for word in words(prose(text)) if word.startswith("agl "))


COMMANDS = sorted(set(commands()))


def test_there_are_commands_to_check():
    assert {"README.md", "docs/store.md"} <= {name for name, _, _ in COMMANDS}


@pytest.mark.parametrize(("document", "line", "is_complete"), COMMANDS)
def test_a_command_exists_and_takes_what_it_is_given(document, line, is_complete):
    command, context = agl, click.Context(agl, info_name="agl")
    given = shlex.split(re.sub(r"[\[\]…]", "", line), comments=True)[1:]
    while isinstance(command, click.Group) and given and not given[0].startswith("-"):
        name, given = given[0], given[1:]
        command = command.get_command(context, name)
        assert command is not None, f"{document}: {line}: there is no {name}"
        context = click.Context(command, info_name=name, parent=context)
    values, too_many, _ = command.make_parser(context).parse_args(given)
    assert not too_many, f"{document}: {line}: takes no {too_many}"
    if is_complete:
        missing = [
            param.name for param in command.params if param.required and values.get(param.name) is None
        ]
        assert not missing, f"{document}: {line}: {missing} left out"


# --- code -------------------------------------------------------------------------------------


CODE = [
    pytest.param(name, before, code, id=f"{name}-{number}")
    for name, text in DOCUMENTS.items()
    for number, (before, code) in enumerate(blocks(text, "python"))
]


@pytest.mark.parametrize(("document", "before", "code"), CODE)
def test_code_is_python_and_in_the_manual_runs(document, before, code, tmp_path):
    compile(code, document, "exec")
    if not document.startswith("docs/") or NOT_RUN.search(before):
        return
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code", [code for text in DOCUMENTS.values() for _, code in blocks(text, "yaml")]
)
def test_a_piece_of_a_configuration_is_one(code):
    given = {"algorithm": "any", **yaml.safe_load(code)}
    if isinstance(given.get("runners"), int):  # the short form
        given["runners"] = {"count": given["runners"]}
    msgspec.convert(given, Settings)


# --- links ------------------------------------------------------------------------------------


def anchors(text):
    """The names GitHub gives to headings."""
    titles = re.findall(r"^#+ +(.+?)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links():
    for name, text in DOCUMENTS.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
            if not re.match(r"[a-z]+:", target):
                yield name, target


@pytest.mark.parametrize(("document", "target"), sorted(set(links())))
def test_a_link_leads_somewhere(document, target):
    path, _, anchor = target.partition("#")
    found = (ROOT / document).parent / path if path else ROOT / document
    assert found.exists()
    if anchor:
        assert anchor in anchors(found.read_text(encoding="utf-8"))


def test_the_index_names_every_page_of_the_manual():
    pages = {name.removeprefix("docs/") for name in DOCUMENTS if name.startswith("docs/")}
    assert pages - {"README.md"} <= set(re.findall(r"\]\(([^)#]+)\)", DOCUMENTS["docs/README.md"]))
