"""Train an ordinary LangChain agent on a CPU: warm start by SFT, then GRPO on its own rollouts."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import agentlightning as agl
import yaml

HERE = Path(__file__).parent


def main() -> None:
    arguments = parse_arguments()
    started = time.monotonic()
    run_dir = arguments.run_dir
    store = arguments.store or f"sqlite:///{run_dir}/run.db"
    model = arguments.model or warm_start(run_dir, store, arguments.seed)

    import shop

    train, val = shop.tasks(seed=arguments.seed)
    trainer = agl.Trainer(
        configuration(arguments.steps, arguments.runners),
        model=model,
        seed=arguments.seed,
        run_dir=str(run_dir),
        store=store,
    )
    result = trainer.fit(train=train, val=val)
    finish_summary(run_dir, started)
    print(f"validation reward {result.reward_before:.3f} → {result.reward_after:.3f}; see {run_dir}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a local directory or hub id; not given: build a tiny one")
    parser.add_argument("--steps", type=int, help="GRPO steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="the store's URL; not given: a file in the run's folder")
    parser.add_argument(
        "--runners", type=int, help="rollouts at once; 0: somebody else runs the agent, by agl run"
    )
    parser.add_argument("--run-dir", type=Path, default=Path("runs/langchain_tool_agent"))
    return parser.parse_args()


def configuration(steps: int | None, runners: int | None) -> dict:
    """The configuration in config.yaml, with what the command line changes."""
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    if steps is not None:
        config["steps"] = steps
    if runners is not None:
        config["runners"]["count"] = runners
    return config


def warm_start(run_dir: Path, store: str, seed: int) -> str:
    """Build a tiny policy and teach it by SFT what half-good behaviour looks like."""
    import policy
    import traces

    examples = traces.traces(seed=seed)
    base = policy.build(run_dir / "base", examples, seed=seed)
    result = agl.Trainer(
        algorithm="sft",
        model=str(base),
        seed=seed,
        run_name="langchain_tool_agent_warm_start",
        run_dir=str(run_dir / "warm_start"),
        store=store,
        **policy.WARM_START,
    ).train(examples)
    return result.resources.llm().model


def finish_summary(run_dir: Path, started: float) -> None:
    """Make the run's summary one of the whole script, warm start included."""
    path = run_dir / "summary.json"
    summary = json.loads(path.read_text())
    warm = run_dir / "warm_start" / "summary.json"
    if warm.exists():
        memory = json.loads(warm.read_text())["peak_memory_mb"]
        summary["peak_memory_mb"] = max(summary["peak_memory_mb"], memory)
    summary["seconds"] = round(time.monotonic() - started, 1)
    path.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
