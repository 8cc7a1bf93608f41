"""What ``import agentlightning`` costs, and what it leaves alone."""

import subprocess
import sys

import pytest

FRAMEWORKS = [
    "agents",
    "autogen_agentchat",
    "crewai",
    "agentscope",
    "agent_framework",
    "anthropic",
    "datasets",
    "langchain",
    "langchain_core",
    "langgraph",
    "matplotlib",
    "numpy",
    "openai",
    "pandas",
    "peft",
    "sqlite_utils",
    "torch",
    "transformers",
    "trl",
]

MEASURE = """
import sys, time, psutil
started = time.perf_counter()
{program}
print(time.perf_counter() - started, psutil.Process().memory_info().rss / 2**20)
"""

NO_SCAN = """
import importlib.metadata
def scan(*args, **kwargs):
    raise AssertionError("entry points were read")
importlib.metadata.entry_points = scan
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cost(program):
    """Seconds and MB of the best of five fresh processes."""
    pairs = [tuple(map(float, run(MEASURE.format(program=program)).split())) for _ in range(5)]
    return min(seconds for seconds, _ in pairs), min(memory for _, memory in pairs)


@pytest.mark.parametrize("program", ["import agentlightning", "import agentlightning.records"])
def test_importing_is_quick_and_small(program):
    _, bare = cost("pass")
    seconds, memory = cost(program)
    assert seconds < 0.3
    assert memory - bare < 40


def test_using_every_public_name_brings_in_no_framework():
    program = (
        "import sys, agentlightning as agl\n"
        "for name in agl.__all__: getattr(agl, name)\n"
        f"print(sorted(set({FRAMEWORKS}) & set(sys.modules)))"
    )
    assert run(program).strip() == "[]"


def test_importing_and_using_public_names_reads_no_entry_point():
    run(NO_SCAN + "import agentlightning as agl\nfor name in agl.__all__: getattr(agl, name)")


def test_decorating_an_algorithm_reads_no_entry_point():
    run(NO_SCAN + "import agentlightning as agl\n@agl.algorithm('mine')\ndef mine(ctx): return {}")


def test_every_public_name_is_listed_and_an_unknown_one_is_an_attribute_error():
    program = (
        "import agentlightning as agl\n"
        "assert set(agl.__all__) <= set(dir(agl))\n"
        "assert agl.__version__.startswith('2.')\n"
        "try: agl.no_such_name\n"
        "except AttributeError as error: print(error)"
    )
    assert "no_such_name" in run(program)
