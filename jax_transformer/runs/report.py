"""The end of a run: the averaged model, its score, and examples of its output (§6.1)."""

import logging

from jax_transformer.data.prepare import text_lines
from jax_transformer.data.sources import Sources
from jax_transformer.evaluation.corpus_scores import decode, main_score
from jax_transformer.evaluation.perplexity import loss_scores
from jax_transformer.runs.best_step import average_run
from jax_transformer.runs.results import describe_decoding, save_scores
from jax_transformer.runs.run_dir import step_range
from jax_transformer.runs.samples import LONGEST, samples
from jax_transformer.runs.trainer import Trainer

logger = logging.getLogger(__name__)

# A hint for the user of a model of the built-in grammar, by corpus.
HINT = (
    "It knows about 450 words: people, animals, food, clothes, things of the house, places and "
    'vehicles; try "{}"'
)
HINTS = {
    "demo": HINT.format("Where is the key?"),
    "demo-trees": HINT.format("Where is the key ?"),
}


def final_report(trainer: Trainer, split: str = "test") -> str:
    """Average the last checkpoints, score the mean, and return a report for the user.

    split: the split to score on; dev if the run does not have it.

    Every process averages and decodes its share; process 0 scores and writes, and it alone returns
    the report, the others "".
    """
    run, folder = trainer.run, trainer.folder
    best = trainer.best if trainer.best and trainer.best.step else None
    with folder.in_turn(trainer.devices):
        steps, params = average_run(folder, run, best, trainer.abstract_params, trainer.origin)
    split = split if split in trainer.stores else "dev"
    sources, references = text_lines(folder, split)
    model = trainer.trained_model(params, "averaged", steps)
    translator = model.translator(devices=trainer.devices)
    logger.info(f"scoring     {split}, {len(sources):,} sentences")
    decoded = decode(translator, sources)
    losses, counts = [], {}
    if run.scored_on == "dev":  # Table 3 has the perplexity of the development text
        losses, counts = loss_scores(translator, run.config, sources, references)
    if not trainer.devices.is_first:
        return ""
    score = main_score(decoded.texts, references, run.config.data)
    facts = {**decoded.facts, "split": split, "checkpoint": "averaged", "steps": steps}
    if best:
        facts["ends_at"] = str(best)
    model_facts = {name: facts[name] for name in ("split", "checkpoint", "steps")}
    others = [{**loss.as_dict(), **counts, **model_facts} for loss in losses]
    save_scores(folder, decoded.texts, [score], facts, others)
    counted = f" ({score.counted})" if score.counted else ""
    lines = [
        f"\naverage     of {len(steps)} checkpoints, {step_range(steps)}"
        + (f", up to {best}" if best else ""),
        f"{score.metric.upper()} {score.score:.2f}{counted}  {describe_decoding(facts)}",
        f"      {score.signature}\n      {score.detail}\n",
    ]
    lines += samples(sources, decoded.texts, references, trainer.labels, LONGEST)
    what = "Parse sentences" if trainer.parses else "Translate sentences"
    command = f"python -m experiments.translate --workdir {folder.quoted}"
    lines.append(f"\n{what} of your own, typed in or from a file (< FILE):\n  {command}")
    if run.corpus in HINTS and run.sources == Sources():
        lines.append(HINTS[run.corpus])
    return "\n".join(lines)
