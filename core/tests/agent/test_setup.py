import subprocess
import sys
import textwrap

import pytest
from agentlightning.agent import init
from agentlightning.errors import UnknownName
from agentlightning.recording import defaults
from agentlightning.store.opening import open_store

PROGRAM = """
import sys
import agentlightning as agl
from openai import OpenAI
from agentlightning.recording import seam

url, store = sys.argv[1:]
agl.init(model="tiny", base_url=url, store=store)
agl.init(model="small", base_url=url, store=store)
assert seam._seam._installs == 1
print(agl.emit("[[say:hello]]").text)
with agl.Tracer().trace("mine") as trace:
    client = OpenAI(base_url=url, api_key="none")
    client.chat.completions.create(model="own", messages=[{"role": "user", "content": "hi"}])
"""


def test_init_is_all_a_program_needs_to_be_recorded(model_server, tmp_path):
    url = f"sqlite:///{tmp_path}/records.db"
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), model_server.url, url]

    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
    assert [request.body["model"] for request in model_server.requests] == ["small", "own"]
    with open_store(url) as store:
        (run,) = store.runs()
        assert run.name == "local"
        assert store.statistics(run.run_id).rollouts["succeeded"] == 2


def test_a_store_that_nobody_opens_is_refused_and_leaves_the_defaults_alone(monkeypatch):
    monkeypatch.setattr(defaults, "_current", defaults._Current())
    defaults.configure(model="tiny")
    with pytest.raises(UnknownName, match='did you mean "memory"'):
        init(model="other", store="memry://")
    assert defaults.default_model() == "tiny"
