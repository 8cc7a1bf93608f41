"""Small agents: no model, some work, and spans that tell afterwards whether all of them are there."""

from __future__ import annotations

import time

import agentlightning as agl


def stepping(task, rollout):
    """Take as many steps as the task says, each with a pause and a message, and return their number."""
    for step in range(task["steps"]):
        agl.emit_message({"attempt": rollout.attempt, "step": step})
        time.sleep(task["pause_s"])
    agl.emit_reward(1.0)
    return {"steps": task["steps"], "attempt": rollout.attempt}


def telling(task, rollout, told):
    """Say whose rollout this is and what it was told by the run's resources."""
    agl.emit_message({"run": rollout.run_id, "told": told})
    return {"run": rollout.run_id, "told": told, "task": task}
