"""Write the word alignments of the demo's test text, as its grammar knows them.

python -m tools.demo.gold_alignments [--split=test] > test.gold

A line for each sentence pair: 0-0 for a sure link of English and German words, 1p2 for a possible
one, such as "does" of "does not sleep" with "schläft".
"""

import argparse

from jax_transformer.demo import SPLITS
from tools.demo.splits import sentence_pairs, sentences


def gold_lines(split: str) -> list[str]:
    """Return the line of each sentence pair."""
    pairs = sentences(split)[: len(sentence_pairs(split))]
    return [" ".join(f"{i}{'-' if sure else 'p'}{j}" for i, j, sure in s.links) for s in pairs]


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description="Write the word alignments of the demo.")
    parser.add_argument("--split", choices=SPLITS, default="test")
    print("\n".join(gold_lines(parser.parse_args().split)))


if __name__ == "__main__":
    main()
