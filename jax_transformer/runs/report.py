"""What a person sees: lines, a progress bar, and the end of a run."""

import logging
import shutil
import sys
import time
from typing import TYPE_CHECKING

from tqdm import tqdm

from jax_transformer.data.prepare import text_lines
from jax_transformer.evaluation.scoring import keep_scores, translate_and_score
from jax_transformer.runs.checkpoints import average, save_average
from jax_transformer.runs.loading import open_translator

if TYPE_CHECKING:
    from jax_transformer.runs.trainer import Trainer

logger = logging.getLogger(__name__)


class Progress:
    """A bar on a terminal; elsewhere a line now and then."""

    def __init__(self, step: int, steps: int) -> None:
        """From `step` of `steps`."""
        size = shutil.get_terminal_size()
        self._bar = tqdm(
            total=steps,
            initial=step,
            unit="step",
            disable=not sys.stderr.isatty(),
            leave=False,
            # On a terminal that does not tell its size tqdm would draw nothing.
            ncols=size.columns,
            nrows=size.lines,
        )
        self._steps, self._first, self._start = steps, step, time.monotonic()
        self._said = 0.0

    def update(self, step: int, loss: float, tokens_per_second: float) -> None:
        """Show where training stands."""
        if not self._bar.disable:
            self._bar.update(step - self._bar.n)
            self._bar.set_postfix_str(f"loss {loss:.3f}, {tokens_per_second:,.0f} tokens/s")
        elif time.monotonic() - self._said > 10 or step == self._steps:
            self._said = time.monotonic()
            elapsed = self._said - self._start
            left = elapsed / max(step - self._first, 1) * (self._steps - step)
            logger.info(
                f"step {step:>7,} of {self._steps:,}  loss {loss:.3f}  "
                f"{tokens_per_second:,.0f} tokens/s  {left / 60:.1f} min left"
            )

    def close(self) -> None:
        """Take the bar off the screen."""
        self._bar.close()


def final_report(trainer: "Trainer", split: str = "test") -> None:
    """Average, score on a split (dev where there is no other), show samples, say what is next."""
    run, folder, model = trainer.run, trainer.folder, trainer.model
    logger.info("")
    last = run.config.training.average_last
    steps, params = average(folder.checkpoints, trainer.abstract_params, last)
    save_average(folder.averaged, params, steps)
    logger.info(f"average     of {len(steps)} checkpoints, steps {steps[0]:,} to {steps[-1]:,}")
    split = split if folder.text(split, "source").exists() else "dev"
    sources = text_lines(folder, split, "source")
    references = text_lines(folder, split, "target")
    translator = open_translator(
        run.config,
        model,
        params,
        trainer.vocabulary,
        trainer.symbols,
        run.config.decoding,
        devices=trainer.devices,
        scores=False,
    )
    texts, entry = translate_and_score(translator, sources, references, run.config.data)
    name = f"{split}.averaged.beam{run.config.decoding.beam_size}"
    facts = {"split": split, "checkpoint": "averaged", "steps": steps}
    logger.info(keep_scores(folder, name, texts, entry, **facts))
    logger.info("")
    for i in _spread(len(sources), 5):
        logger.info(
            f"source      {sources[i]}\n  model     {texts[i]}\n  reference {references[i]}"
        )
    what = "Translate a text of your own, a sentence a line"
    if trainer.symbols:
        what = "Parse sentences of your own, a line each with spaces between words"
    logger.info(f"\n{what}:\n  python -m experiments.translate --workdir {folder.quoted} < text")


def _spread(count: int, wanted: int) -> list[int]:
    """Indices evenly over `count` items."""
    return sorted({i * count // wanted for i in range(wanted)}) if count else []
