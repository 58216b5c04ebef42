"""Decode a text with a trained model and score it.

python -m experiments.evaluate --workdir W [--split test | --source F --reference G]
                               [--checkpoint averaged|last|STEP] [--beam_size 4] [--alpha 0.6]

Writes the translations into the run folder, prints the score with its signature and
appends it to results.json.
"""

import dataclasses
import os

from absl import flags

from experiments.flags import FLAGS, define_checkpoint, define_workdir, open_door, run_folder, warn
from jax_transformer.errors import InputError


def define_flags() -> None:
    """This door's flags."""
    define_workdir()
    flags.DEFINE_enum("split", "test", ["dev", "test"], "Which text of the run folder to decode.")
    flags.DEFINE_string("source", None, "Decode this file instead of a split.")
    flags.DEFINE_string("reference", None, "The reference translations of --source.")
    define_checkpoint()
    flags.DEFINE_integer("beam_size", None, "Hypotheses kept; 1 is greedy.", lower_bound=1)
    flags.DEFINE_float("alpha", None, "Exponent of the length penalty.", lower_bound=0.0)


def main() -> None:
    """Check the text before the model is loaded, then decode."""
    from experiments.restore import restore
    from experiments.scoring import keep_scores, translate_and_score
    from jax_transformer.corpus import ParallelFiles
    from jax_transformer.devices import keep_freed_memory
    from jax_transformer.preparation import text_lines
    from jax_transformer.translator import Translator

    keep_freed_memory()
    folder = run_folder()
    run = folder.need_run()
    if bool(FLAGS.source) != bool(FLAGS.reference):
        raise InputError("expected --source and --reference together, found only one; give both")
    if FLAGS.source:
        pairs = list(ParallelFiles(FLAGS.source, FLAGS.reference).pairs())
        sources, references = [p[1] for p in pairs], [p[2] for p in pairs]
        split = os.path.basename(FLAGS.source)
    else:
        split = FLAGS.split
        sources = text_lines(folder, split, "source")
        references = text_lines(folder, split, "target")
    trained = restore(folder, FLAGS.checkpoint, warn)
    given = {"beam_size": FLAGS.beam_size, "alpha": FLAGS.alpha}
    changes = {name: value for name, value in given.items() if value is not None}
    decoding = dataclasses.replace(run.config.decoding, **changes)
    translator = Translator(
        trained.model,
        trained.params,
        trained.vocabulary,
        decoding,
        max_length=run.config.data.max_length,
    )
    texts, entry = translate_and_score(translator, sources, references, run.config.data)
    name = f"{split}.{trained.checkpoint}.beam{decoding.beam_size}"
    facts = {"split": split, "checkpoint": trained.checkpoint, "steps": trained.steps}
    print(keep_scores(folder, name, texts, entry, **facts))
    print(f"      written to {folder.translations(name)}")


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
