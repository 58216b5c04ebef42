"""Measure the alignment error rate of each layer and head on the demo's test text.

python -m tools.alignment_errors --workdir=runs/demo [--checkpoint=last] [--split=test]

The text and its German side are the demo's; nothing is translated. The links are those that its
grammar knows: see tools/demo/gold_alignments.py.
"""

import argparse

import jax_transformer as jt
from jax_transformer.demo import SPLITS, sentence_pairs
from jax_transformer.errors import InputError
from jax_transformer.evaluation.alignment_error_rate import alignment_error_rate, parse_gold
from tools.demo.gold_alignments import gold_lines


def main() -> None:
    """Print a line for each layer: its heads, and their mean."""
    parser = argparse.ArgumentParser(
        description="Measure the alignment error rate of layers and heads."
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--checkpoint")
    parser.add_argument("--split", choices=SPLITS, default="test")
    flags = parser.parse_args()
    try:
        model = jt.load(flags.workdir, flags.checkpoint)
        model.run.task.require("translates", "align")
    except InputError as mistake:
        parser.error(str(mistake))
    sources, targets = zip(*sentence_pairs(flags.split), strict=True)
    print(f"{model.description}; AER in % on {len(sources):,} pairs", flush=True)
    gold = list(map(parse_gold, gold_lines(flags.split)))  # takes a while

    def error(layer: int, head: int | None = None) -> str:
        found = model.align(sources, targets, layer=layer, head=head)
        return f"{100 * alignment_error_rate(found, gold):.1f}"

    settings = model.config.model
    for layer in range(settings.num_decoder_layers):
        print(f"layer {layer}: mean of the heads {error(layer)}; heads", end=" ", flush=True)
        for head in range(settings.num_heads):
            print(", " * (head > 0) + error(layer, head), end="", flush=True)  # each takes a while
        print()


if __name__ == "__main__":
    main()
