"""Reinforcement learning on a plain dataset, with the built-in single-turn agent."""

from __future__ import annotations

import argparse
from pathlib import Path

import agentlightning as agl


def main() -> None:
    arguments = parse_arguments()
    run_dir, seed = arguments.run_dir, arguments.seed
    store = f"sqlite:///{run_dir}/run.db"

    import policy  # here and not above: torch takes a second, and --help needs none
    import task

    examples = policy.traces(seed=seed)
    warm_start = agl.Trainer(
        algorithm="sft",
        model=str(policy.build(run_dir / "base", examples, seed=seed)),
        seed=seed,
        run_name="basic_rl_warm_start",
        run_dir=str(run_dir / "warm_start"),
        store=store,
        **policy.WARM_START,
    ).train(examples)

    train, val = task.tasks(seed=seed)
    trainer = agl.Trainer(
        algorithm="grpo",
        model=arguments.model or warm_start.resources.llm().model,
        reward_function=task.reward,
        batch_size=128,
        group_size=16,
        steps=arguments.steps,
        learning_rate=3e-4,
        max_new_tokens=8,
        runners={"count": 64},
        engine={"name": "transformers", "max_batch": 128, "max_new_tokens": 8},
        seed=seed,
        run_name="basic_rl",
        run_dir=str(run_dir),
        store=store,
    )
    result = trainer.train(train, val)
    print(f"validation reward {result.reward_before:.3f} → {result.reward_after:.3f}; see {run_dir}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a local directory or hub id; not given: the tiny policy")
    parser.add_argument("--steps", type=int, default=60, help="GRPO steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/basic_rl"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
