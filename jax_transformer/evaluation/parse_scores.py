"""Every score of parses against gold trees: EVALB's, and how often a tree came without help."""

from collections.abc import Sequence
from dataclasses import replace

from jax_transformer.errors import InputError
from jax_transformer.evaluation.bleu import Score
from jax_transformer.parsing.evalb import (
    COLLINS,
    SentenceScore,
    Total,
    f1_of,
    percent,
    score_sentence,
    total,
)
from jax_transformer.parsing.linearize import linearize
from jax_transformer.parsing.parser import flat_tree, words_of
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import (
    escaped,
    leaves,
    normalize,
    with_root,
    with_tags,
    write_tree,
)


def parse_scores(
    sources: Sequence[str], texts: Sequence[str], constrained: Sequence[bool], golds: Sequence[str]
) -> list[Score]:
    """F1 of all sentences and of those up to 40 words, complete match, tagging, valid trees.

    constrained: whether the grammar had to step in for the tree of that line. Without it that
    line would have no tree; `f1_unconstrained` counts such a one as a tree without brackets,
    where EVALB would leave the sentence out. `f1_gold_tags` is of all sentences: EVALB leaves
    out those where a word is tagged as punctuation, or the other way, and with them what is hard.
    """
    scores = _sentences(golds, texts)
    # With gold's tags, or EVALB would leave it out for a full stop that is not tagged as one.
    alone = [
        _tagged(flat_tree(words_of(source)), gold) if helped else text
        for source, text, helped, gold in zip(sources, texts, constrained, golds, strict=True)
    ]
    everything, short = total(scores), total(scores, COLLINS.cutoff)
    return [
        _f1("f1", everything),
        _f1(f"f1_{COLLINS.cutoff}", short, f"|words<={COLLINS.cutoff}"),
        gold_tags_f1(golds, texts),
        _f1("f1_unconstrained", total(_sentences(golds, alone)), "|constraint:no"),
        _share("complete_match", everything.complete, everything),
        Score("tagging", everything.counts.tagging, f1_of(everything).signature),
        *_valid_trees(sources, texts, constrained),
    ]


def tree_f1(golds: Sequence[str], texts: Sequence[str]) -> Score:
    """F1 alone, as in `parse_scores`."""
    return _f1("f1", total(_sentences(golds, texts)))


def gold_tags_f1(golds: Sequence[str], texts: Sequence[str]) -> Score:
    """F1 of all sentences, gold's tags in place of ours."""
    tagged = [_tagged(text, gold) for text, gold in zip(texts, golds, strict=True)]
    return _f1("f1_gold_tags", total(_sentences(golds, tagged)), "|tags:gold")


def symbol_lines(golds: Sequence[str]) -> list[str]:
    """The symbols that would write each gold tree, with spaces between; blank for no words."""
    trees = [normalize(parse_tree(gold)) for gold in golds]
    return [" ".join(linearize(tree)) if tree else "" for tree in trees]


def _sentences(golds: Sequence[str], texts: Sequence[str]) -> list[SentenceScore]:
    # To EVALB an outer bracket without a name is a constituent like any other, which every parse
    # would get right: each tree stands in TOP, which does not count.
    pairs = enumerate(zip(map(_in_top, golds), map(_in_top, texts), strict=True), start=1)
    return [
        score_sentence(gold, text, COLLINS, (f"gold, line {n}", f"parse, line {n}"))
        for n, (gold, text) in pairs
    ]


def _tagged(text: str, gold: str) -> str:
    """The parse with gold's tags, where it is over as many words."""
    tree = normalize(parse_tree(gold))
    tags = [tag for tag, _ in leaves(tree)] if tree else []
    ours = parse_tree(text) if text else None
    fits = ours is not None and len(leaves(ours)) == len(tags)
    return write_tree(with_tags(ours, tags)) if ours and fits else text


def _in_top(text: str) -> str:
    return write_tree(with_root(parse_tree(text))) if text else ""


def _f1(metric: str, result: Total, more: str = "") -> Score:
    score = f1_of(result)
    return replace(score, metric=metric, signature=score.signature + more)


def _share(metric: str, part: int, result: Total) -> Score:
    return Score(metric, percent(part, result.valid), f1_of(result).signature)


def _valid_trees(
    sources: Sequence[str], texts: Sequence[str], constrained: Sequence[bool]
) -> list[Score]:
    """How many of the sentences that are not blank have a tree over exactly their words."""
    asked = [i for i, source in enumerate(sources) if words_of(source)]
    valid = [i for i in asked if _is_tree_over(texts[i], words_of(sources[i]))]
    alone = [i for i in valid if not constrained[i]]
    of = f"percent|sentences:{len(asked)}"
    return [
        Score("valid_trees", percent(len(valid), len(asked)), f"{of}|constraint:yes"),
        Score("valid_trees_unconstrained", percent(len(alone), len(asked)), f"{of}|constraint:no"),
    ]


def _is_tree_over(text: str, words: Sequence[str]) -> bool:
    try:
        tree = parse_tree(text)
    except InputError:
        return False
    return [word for _, word in leaves(tree)] == [escaped(word) for word in words]
