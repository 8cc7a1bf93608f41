"""What package metadata says about frameworks and extras."""

from importlib import metadata

import pytest
from agentlightning.plugins.requirements import (
    core_extras,
    core_need,
    framework_needs,
    install_command,
    unmet,
)


class Written(metadata.Distribution):
    """A distribution whose metadata is written in the test."""

    def __init__(self, *requires):
        lines = ["Metadata-Version: 2.1", "Name: demo", "Version: 1.0"]
        self.text = "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires), ""])

    def read_text(self, filename):
        return self.text if filename == "METADATA" else None

    def locate_file(self, path):
        raise NotImplementedError


PYTEST = metadata.version("pytest")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("pytest>=1 ; extra == 'framework'", None),
        (f"pytest<{PYTEST},>=1 ; extra == 'framework'", f"needs pytest>=1,<{PYTEST}, found {PYTEST}"),
        ("no-such-thing>=2 ; extra == 'framework'", "needs no-such-thing>=2, which is not installed"),
        ("no-such-thing>=2", None),
        ("no-such-thing ; extra == 'testing'", None),
        ("no-such-thing ; python_version < '3' and extra == 'framework'", None),
    ],
)
def test_the_framework_extra_alone_says_what_is_needed(line, reason):
    assert unmet(framework_needs(Written(line))) == reason


def test_several_unmet_needs_are_all_named():
    needs = framework_needs(
        Written(
            "no-a>=1 ; extra == 'framework'",
            "pytest>=1 ; extra == 'framework'",
            "no-b ; extra == 'framework'",
        )
    )
    assert [need.met for need in needs] == [False, True, False]
    assert unmet(needs) == "needs no-a>=1, which is not installed; needs no-b, which is not installed"


def test_a_plugin_says_which_core_it_needs():
    assert core_need(Written("agentlightning>=2.0,<3")).met
    too_new = core_need(Written("agentlightning>=99"))
    assert not too_new.met
    assert str(too_new).startswith("needs agentlightning>=99, found 2.")
    assert core_need(Written("pytest>=1")) is None


def test_extras_of_the_core_are_followed_to_the_distributions_they_bring():
    extras = core_extras()
    assert extras["grpo"] == extras["rl"] >= {"agentlightning-rl", "agentlightning-transformers"}
    assert extras["langchain"] == {"agentlightning-langchain"}


def test_the_install_command_is_exact_or_absent():
    assert install_command("LangChain") == 'pip install "agentlightning[langchain]"'
    assert install_command("nonsense") is None
    assert install_command("echo", "acme-echo") == 'pip install "acme-echo[framework]"'
