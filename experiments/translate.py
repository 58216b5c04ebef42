"""Translate standard input to standard output with a trained model; or parse, with a parser.

python -m experiments.translate --workdir W [--n_best 1] [--scores] [--token_scores] < source > out
python -m experiments.translate --workdir W --samples 5 --temperature 0.8 --seed 1 < source > out
python -m experiments.translate --workdir W --mbr chrf --set decoding.beam_size=12 < source > out
python -m experiments.translate --workdir W --split_sentences < paragraphs > out

The output has one line for each line of input (or n with --n_best n or --samples n), in order; a
blank line gives blank ones. Lines are sorted by length inside a window, so the length of the input
does not change the memory that is needed.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from absl import app, flags

from experiments import cli, output_flags
from experiments.cli import FLAGS
from experiments.flag_types import define_integer
from jax_transformer.data.sentences import join_sentences, map_sentences, sentence_splitter
from jax_transformer.progress import Progress
from jax_transformer.runtime import prepare_process

if TYPE_CHECKING:
    from jax_transformer.decoding.translator import Translation, Translator

    Found = Iterator[list[tuple[str, list[Translation]]]]  # the sentences of each line

cli.define_model_flags()
output_flags.define_output_flags()
most = "Translations of each line, all different; if they are fewer, blank lines follow."
define_integer("n_best", 1, most, lower_bound=1)
flags.DEFINE_bool(
    "scores", False, "Write the score, log P over the length penalty, and a tab before each."
)
flags.DEFINE_bool(
    "token_scores",
    False,
    "Write a tab and, with spaces between, each token and its log P in nats, the end mark's too.",
)
flags.DEFINE_bool(
    "alignments",
    False,
    "Write a tab and the word alignment after each translation, as Moses does: 0-0 1-2, a word of "
    "the source and one of the translation, from 0.",
)
define_integer(
    "alignment_layer",
    None,
    "Layer of the decoder that aligns, from 0 (default: the last but one, of two the last).",
    lower_bound=0,
)
define_integer(
    "alignment_head", None, "Head of it, from 0 (default: the mean of the heads).", lower_bound=0
)
flags.DEFINE_bool(
    "split_sentences",
    False,
    "Translate each line sentence by sentence, and join the translations with spaces.",
)
flags.DEFINE_enum(
    "mbr",
    None,
    ["chrf", "bleu"],
    "Write the translation, of the beam or of the samples, with the best mean chrF or BLEU beside "
    "the others (minimum Bayes risk).",
)
define_integer(
    "window",
    None,
    "Lines read, sorted by length and translated together (default: 2000; 1 on a terminal).",
    lower_bound=1,
)

logger = logging.getLogger(__name__)


@cli.command
def main() -> None:
    """Read, translate and write one window of lines after another."""
    folder = cli.run_folder()
    run = folder.load_run()
    config, lines = cli.run_config(run), cli.input_lines()
    splits = FLAGS.split_sentences
    split = sentence_splitter(config.data.source_language) if splits else lambda line: [line]
    prepare_process()
    output_flags.check_flags(run, config.decoding.beam_size)
    options = output_flags.output_options()
    model = output_flags.load_models(folder)
    n_best = config.decoding.beam_size if FLAGS.mbr else FLAGS.n_best
    translator = model.translator(config.decoding, n_best=n_best)
    typed = sys.stdin.isatty()
    window = FLAGS.window or (1 if typed else 2000)
    choose = output_flags.chooser(config.data.bleu_tokenize)

    def outputs(sentences: Iterable[str]) -> "Iterator[list[Translation]]":
        found = translator.stream(sentences, window, output_flags.prefixes(), options)
        return map(choose, found) if choose else found

    if typed:
        logger.info("type a sentence, then Enter; Ctrl-D ends")
    translator.unit = "sentence" if splits else "line"
    total = None if splits else cli.count_input_lines()
    fewer = 0
    with Progress("translate", total, f"{translator.unit}s") as progress:
        if not typed:
            translator.advance = progress.update
        found = map_sentences(lines, split, outputs)
        if FLAGS.alignments:
            found = _with_alignments(translator, found, window)
        if FLAGS.token_scores:
            found = _with_token_scores(translator, found, window)
        for number, sentences in enumerate(found, start=1):
            if (number - 1) % window == 0:
                progress.clear()
            rows = _rows(sentences)
            cli.write("".join(f"{row}\n" for row in rows), flush=number % window == 0)
            fewer += 0 < len(sentences[0][1]) < FLAGS.n_best and not FLAGS.mbr
    if fewer:
        rest = f"fewer than {FLAGS.n_best} different translations; blank lines follow them"
        logger.warning(f"{fewer:,} lines have {rest}")


def _with_token_scores(translator: "Translator", found: "Found", window: int) -> "Found":
    """Write a tab and each token with its log P after the text of each translation."""
    pieces = translator.target_vocabulary.pieces

    def written(each: "Translation") -> "Translation":
        both = zip(pieces(list(each.tokens)), each.token_log_probs, strict=True)
        scores = " ".join(f"{piece} {log_prob:.6f}" for piece, log_prob in both)
        return replace(each, text=f"{each.text}\t{scores}")

    lines = (line for sentences in found for line in sentences)
    while part := list(islice(lines, window)):
        each = [line for line, _ in part], [translations for _, translations in part]
        for line, scored in zip(each[0], translator.with_token_log_probs(*each), strict=True):
            yield [(line, [written(translation) for translation in scored])]


def _with_alignments(translator: "Translator", found: "Found", window: int) -> "Found":
    """Write a tab and the word alignment after the text of each translation."""
    from jax_transformer.decoding.aligner import stream_alignments
    from jax_transformer.decoding.alignments import moses

    lines = (line for sentences in found for line in sentences)
    chosen = {"layer": FLAGS.alignment_layer, "head": FLAGS.alignment_head}
    for line, translations, alignments in stream_alignments(translator, lines, window, **chosen):
        pairs = zip(translations, alignments, strict=True)
        yield [(line, [replace(each, text=f"{each.text}\t{moses(own)}") for each, own in pairs])]


def _rows(sentences: Sequence[tuple[str, list["Translation"]]]) -> list[str]:
    """Return what is written for one line of input, given its sentences with their translations."""
    if FLAGS.split_sentences:
        return [join_sentences((each, found[0].text if found else "") for each, found in sentences)]
    ((_, translations),) = sentences
    rows = [f"{t.score:.6f}\t{t.text}" if FLAGS.scores else t.text for t in translations]
    count = 1 if FLAGS.mbr else FLAGS.samples or FLAGS.n_best
    return rows + [""] * (count - len(rows))


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
