"""One run of supervised fine-tuning: examples in, a directory with a better model out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from agentlightning.algorithm import AlgorithmContext
from agentlightning.engine import FullDir
from agentlightning.errors import (
    AlgorithmError,
    BudgetExhausted,
    Interrupted,
    NoSamples,
)
from agentlightning.records import JSON, LLM, Resources
from transformers.utils import logging as transformers_logging

from agentlightning_sft.chats import are_chats, chat_examples
from agentlightning_sft.config import RESOURCE, SFTConfig
from agentlightning_sft.events import StepEvents
from agentlightning_sft.examples import Example, Examples, reasons
from agentlightning_sft.model import length_limit, lora_config, open_model
from agentlightning_sft.recorded import RecordedRun
from agentlightning_sft.tokenising import ChatTokeniser
from agentlightning_sft.training import ExampleTrainer, mean_loss, trl_arguments

logger = logging.getLogger("agentlightning.sft")

CHECKPOINTS: Final = "checkpoints"
MODEL: Final = "model"
"""The folder of ``run_dir`` that the trained model goes to."""


def fine_tune(config: SFTConfig, ctx: AlgorithmContext) -> Resources:
    """Run it, with the context's progress bar as the only one."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return FineTuning(config, ctx).run()
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


class FineTuning:
    """Everything one run holds."""

    def __init__(self, config: SFTConfig, ctx: AlgorithmContext) -> None:
        self._config = config
        self._ctx = ctx
        self._restored = ctx.restore() or {}
        self._is_trained = bool(self._restored.get("is_trained"))
        model = str(ctx.run_dir / MODEL if self._is_trained else ctx.config.model)
        module, self._tokenizer = open_model(model)
        self._tokenise = ChatTokeniser(
            self._tokenizer, assistant_only=config.assistant_only, model=model
        )
        limit = length_limit(module, config.max_length)
        examples = self._gathered().within(limit)
        self._chats, self._tasks = self._validation(limit)
        self._announce(examples)
        self._steps = config.total_steps(len(examples))
        self._trainer = self._trainer_for(module, examples)

    def run(self) -> Resources:
        """Validate, train, save, publish; validate again."""
        ctx = self._ctx
        if self._tasks:
            ctx.serve(ctx.engine(), name=RESOURCE)
        if not self._restored:
            self._validate(0)
        done = self._earlier() if self._is_trained else self._train()
        directory = ctx.run_dir / MODEL
        version = 1
        if self._tasks:
            served = ctx.publish({}, weights={RESOURCE: FullDir(directory)}, note="trained weights")
            version = served.llm(RESOURCE).version
        try:
            self._validate(done)
        finally:  # whatever becomes of the validation, the model is trained
            best = LLM(model=str(directory), version=version)
            published = ctx.publish({RESOURCE: best}, note=f"fine-tuned for {done} steps")
        return published.resources

    # --- data -------------------------------------------------------------------------------

    def _gathered(self) -> Examples:
        """Examples of the recorded run, if one is named, and of the given rows."""
        ctx, config = self._ctx, self._config
        examples = Examples()
        if config.source_run is not None:
            recorded = RecordedRun(
                ctx.store,
                config,
                self._tokenizer,
                self._tokenise,
                ctx.config.trained_agents,
                ctx.config.reward_version,
            )
            examples.add(recorded.examples(config.source_run))
        examples.add(chat_examples(ctx.train, self._tokenise, "train_dataset"))
        return examples

    def _validation(self, limit: int | None) -> tuple[list[Example], list[JSON]]:
        """Chats whose loss is measured, or tasks that the agent is run on."""
        rows = list(self._ctx.val)
        if not are_chats(rows, "eval_dataset"):
            return [], rows
        examples = chat_examples(rows, self._tokenise, "eval_dataset").within(limit)
        if examples.dropped:
            logger.warning("eval_dataset: left out: %s", reasons(examples.dropped))
        return examples.items, []

    def _announce(self, examples: Examples) -> None:
        """Say what there is to train on, and refuse to train on nothing."""
        if not examples.items:
            why = reasons(examples.dropped) or "no row in train_dataset and no source_run"
            raise NoSamples(f"there is nothing to train on: {why}")
        level = logging.WARNING if examples.dropped or examples.retokenised else logging.INFO
        logger.log(level, "training on %s", examples)
        self._ctx.log(examples.numbers(), 0)

    # --- training ---------------------------------------------------------------------------

    def _trainer_for(self, module: object, examples: Examples) -> ExampleTrainer:
        ctx, config = self._ctx, self._config
        report_to = ctx.config.report_to
        arguments = trl_arguments(
            config,
            directory=ctx.run_dir / CHECKPOINTS,
            steps=self._steps,
            seed=ctx.seed,
            report_to=(report_to,) if isinstance(report_to, str) else report_to,
        )
        return ExampleTrainer(
            module,
            self._tokenizer,
            examples.items,
            arguments,
            lora=lora_config(config.lora),
            callbacks=[StepEvents(ctx, self._steps)],
        )

    def _earlier(self) -> int:
        """The updates of a training that an earlier start of the run has finished."""
        done = int(self._restored["step"])
        if done < self._steps:
            raise AlgorithmError(
                f"the run is trained, {done} steps were asked for when it was started and now "
                f"{self._steps}; expected as many. To go further, start a new run on its model"
            )
        return done

    def _train(self) -> int:
        """Train and save the model; returns the updates made in all.

        Raises:
            Interrupted: the run was interrupted; a checkpoint was kept.
        """
        done = self._update()
        self._trainer.save(self._ctx.run_dir / MODEL)
        if done >= self._steps:
            self._ctx.checkpoint({"step": done, "is_trained": True})
        return done

    def _update(self) -> int:
        """Update the weights to the end, or as far as the budget goes."""
        checkpoint = self._checkpoint()
        if checkpoint is not None and self._restored["step"] >= self._steps:
            self._trainer.load(checkpoint)
            return int(self._restored["step"])
        self._trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        done = int(self._trainer.state.global_step)
        if done < self._steps:
            if self._ctx.interrupted():
                raise Interrupted(
                    f"run {self._ctx.run.run_id} was interrupted after {done} of {self._steps} steps"
                )
            logger.warning(
                "training ends after %d of %d steps: the budget is used up", done, self._steps
            )
        return done

    def _checkpoint(self) -> Path | None:
        if not self._restored:
            return None
        directory = self._ctx.run_dir / CHECKPOINTS / f"checkpoint-{self._restored['step']}"
        if not directory.is_dir():
            raise AlgorithmError(
                f"the checkpoint {directory} is gone, so the run cannot go on from step "
                f"{self._restored['step']}; expected the run_dir of the stopped run. Give that, or "
                "start a new run"
            )
        return directory

    def _validate(self, step: int) -> None:
        """The loss on held-out chats, or the agent's reward on validation tasks."""
        if self._chats:
            loss = mean_loss(
                self._trainer.model, self._tokenizer, self._chats, batch_size=self._config.rows_at_once
            )
            self._ctx.log({"val/loss": loss}, step)
        if self._tasks:
            try:
                self._ctx.evaluate(step=step)
            except BudgetExhausted as error:
                logger.warning("the model was not validated at step %d: %s", step, error)
