"""A training as a user's script starts it, for tests that stop it; and agents that misbehave."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import agentlightning as agl


def agent(task):
    """Ask the model for an answer, after some work that leaves time to be stopped in."""
    from openai import OpenAI

    time.sleep(float(os.environ.get("WORK_S") or 0))
    reply = OpenAI().chat.completions.create(
        model="policy", messages=[{"role": "user", "content": task["prompt"]}], max_tokens=4
    )
    return reply.choices[0].message.content


def score(task, output):
    """The share of digits: an untrained policy gets different numbers, so there is something to learn."""
    return sum(letter.isdigit() for letter in output) / max(1, len(output))


def hanging(task):
    """Never return from tasks that say so."""
    if task["hangs"]:
        time.sleep(3600)
    return "done"


def killed(task):
    """Take this process along, the first time a task is tried that says so."""
    marker = Path(task["marker"]) if task["marker"] else None
    if marker and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


if __name__ == "__main__":
    trainer = agl.Trainer(json.loads(sys.argv[1]))
    if trainer.config.algorithm == "rl":
        trainer.fit(agent)
    else:
        trainer.train()
