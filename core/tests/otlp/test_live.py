"""A run, a Tracer and ``emit`` send what they record to the collector they are told of."""

from __future__ import annotations

import agentlightning as agl
import openai
from agentlightning.otlp import shared_exporter


@agl.algorithm("send_traces")
def once(ctx):
    """Runs the agent on every task, once."""
    ctx.rollouts(ctx.train).wait()
    return ctx.resources.resources


def test_a_run_sends_its_rollouts_and_stays_as_it_is(model_server, collector, tmp_path):
    def agent(task):
        client = openai.OpenAI(base_url=model_server.url, api_key="sk-never-stored-anywhere")
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": task}])
        return 0.5

    trainer = agl.Trainer(
        algorithm="send_traces", model="gpt-4o-mini", store=f"sqlite:///{tmp_path}/run.db",
        otlp=collector.url, run_dir=str(tmp_path / "run"), runners=2,
    )  # fmt: skip
    trainer.fit(agent, ["[[say:one]]", "[[say:two]]"])
    sent = [span for export in collector.exports for span in export]
    names = sorted(span.name.rpartition(".")[2] for span in sent)
    assert names == sorted(2 * ["agent", "chat m", "reward"])
    assert "[[say:one]]" in str(sent)
    assert "sk-never" not in str(sent)


def test_a_tracer_sends_where_the_environment_says(collector, store, monkeypatch):
    monkeypatch.setenv("AGENTLIGHTNING_OTLP", collector.url)
    with agl.Tracer(store).trace("mine", input="task") as trace:
        agl.emit_message("hello")
        trace.output = "done"
    shared_exporter().close()
    (spans,) = collector.exports
    assert {span.name for span in spans} == {"mine", "message"}
    assert "done" in str(spans)
