"""``@agl.algorithm("name")``: a function as an algorithm, beside the module of the same name."""

import subprocess
import sys
from typing import TYPE_CHECKING

import agentlightning as agl
import msgspec
import pytest
from agentlightning.errors import AlgorithmError, PluginError
from agentlightning.plugins import plugins

if TYPE_CHECKING:
    from agentlightning import AlgorithmContext


def test_a_decorated_function_is_offered_by_name_with_its_options_as_configuration():
    @agl.algorithm("best-of-rounds")
    def best_of(ctx: "AlgorithmContext", rounds: int = 3, *, seed: int):
        """Keep the best of some rounds.

        More text.
        """
        return {"rounds": rounds, "seed": seed, "ctx": ctx}

    entry = plugins().algorithms.entry("best_of_rounds")
    assert entry.summary == "Keep the best of some rounds."
    made = plugins().algorithms.get("best-of-rounds")
    config = msgspec.convert({"seed": 7}, plugins().algorithms.config_type("best_of_rounds"))
    assert made(config).run("the context") == {"rounds": 3, "seed": 7, "ctx": "the context"}
    assert issubclass(made, agl.Algorithm)
    with pytest.raises(msgspec.ValidationError, match="rounds"):
        msgspec.convert({"seed": 7, "rounds": "many"}, made.Config)
    with pytest.raises(msgspec.ValidationError, match="seed"):
        msgspec.convert({}, made.Config)


def test_an_algorithm_that_returns_nothing_is_told_what_is_expected():
    @agl.algorithm("forgetful")
    def forgetful(ctx):
        """Forgets to return."""

    with pytest.raises(
        AlgorithmError, match="forgetful returned NoneType; expected the best resources"
    ):
        forgetful(forgetful.Config()).run(None)


@pytest.mark.parametrize("function", [lambda ctx, **rest: {}, lambda ctx, *rest: {}])
def test_options_without_names_are_refused_since_they_cannot_be_checked(function):
    with pytest.raises(AlgorithmError, match="expected named options"):
        agl.algorithm("loose")(function)


def test_a_name_that_cannot_be_typed_is_refused_where_it_is_given():
    with pytest.raises(PluginError, match='"best of" is no valid algorithm name'):
        agl.algorithm("best of")


ORDERS = [
    "import agentlightning as agl; agl.algorithm",
    "import agentlightning.algorithm; import agentlightning as agl",
    "import agentlightning as agl; agl.Algorithm",
    "import agentlightning.algorithm as _; from agentlightning import algorithm; import agentlightning as agl",
]


@pytest.mark.parametrize("imports", ORDERS)
def test_the_module_and_the_decorator_share_a_name_whatever_is_imported_first(imports):
    program = f"""{imports}
from agentlightning.algorithm import Algorithm
@agl.algorithm("x")
def x(ctx): return {{}}
assert agl.algorithm.Algorithm is Algorithm and issubclass(x, Algorithm)
import sys; assert "agentlightning.plugins.loader" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
