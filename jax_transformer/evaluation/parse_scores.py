"""§6.3 Scores of parses against gold trees: EVALB's, and the share of valid trees."""

from collections.abc import Sequence

from jax_transformer.errors import InputError
from jax_transformer.evaluation.score import Score
from jax_transformer.parsing.evalb import COLLINS, SentenceScore, percent, score_sentence
from jax_transformer.parsing.evalb_report import Total, total
from jax_transformer.parsing.parser import flat_tree, words_of
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import (
    EMPTY,
    Tree,
    category,
    escaped,
    leaves,
    map_tree,
    normalize,
    with_root,
    without_root,
    write_tree,
)


def parse_scores(
    sources: Sequence[str], texts: Sequence[str], constrained: Sequence[bool], golds: Sequence[str]
) -> list[Score]:
    """Return F1 of all sentences and of those up to 40 words, complete match, tagging, validity.

    constrained: for each line, True if its tree comes from the constrained search. Without that
    search the line would not have a tree: `f1_unconstrained` counts a flat tree instead, because
    EVALB would leave the sentence out. `f1_gold_tags` takes the gold tags: EVALB leaves out a
    sentence in which a word is wrongly tagged as punctuation, or punctuation as a word, and these
    are the hard ones.
    """
    scores = _sentence_scores(golds, texts)
    # A flat tree has the gold tags too, or EVALB would leave it out for its punctuation.
    unconstrained = [
        _tagged(flat_tree(words_of(source)), gold) if needed else text
        for source, text, needed, gold in zip(sources, texts, constrained, golds, strict=True)
    ]
    everything, short = total(scores), total(scores, COLLINS.cutoff)
    signature = _f1("f1", everything).signature
    complete = percent(everything.complete, everything.valid)
    return [
        _f1("f1", everything),
        _f1(f"f1_{COLLINS.cutoff}", short, f"|words<={COLLINS.cutoff}"),
        gold_tags_f1(golds, texts),
        _f1("f1_unconstrained", total(_sentence_scores(golds, unconstrained)), "|constraint:no"),
        Score("complete_match", complete, signature),
        Score("tagging", everything.counts.tagging, signature),
        *_valid_trees(sources, texts, constrained),
    ]


def tree_f1(golds: Sequence[str], texts: Sequence[str]) -> Score:
    """Return the labelled F1, in percent, of the tree on each line against the gold tree on it.

    The signature counts the sentences that EVALB leaves out. That can only raise a score, so
    compare scores with equally few. Raises InputError if counts differ or a line is not a tree.
    """
    return _f1("f1", total(_sentence_scores(golds, texts)))


def gold_tags_f1(golds: Sequence[str], texts: Sequence[str]) -> Score:
    """Return F1 with the gold tags in place of the parser's, so that no sentence is left out."""
    tagged = [_tagged(text, gold) for text, gold in zip(texts, golds, strict=True)]
    return _f1("f1_gold_tags", total(_sentence_scores(golds, tagged)), "|tags:gold")


def check_words(sources: Sequence[str], golds: Sequence[str]) -> None:
    """Raise InputError unless each gold tree is over the words of its source.

    EVALB would leave the sentence out.
    """
    for number, (source, gold) in enumerate(zip(sources, golds, strict=True)):
        if not gold.strip():
            raise InputError(
                f"references[{number}]: expected a tree, found a blank; leave the sentence out"
            )
        try:
            tree = normalize(parse_tree(gold))
        except InputError as error:
            raise InputError(f"references[{number}]: {error}") from error
        words = " ".join(escaped(word) for _, word in leaves(tree)) if tree else ""
        if " ".join(map(escaped, words_of(source))) != words:
            raise InputError(
                f"sources[{number}]: expected the words of references[{number}] without traces, "
                f"{words!r}, found {source!r}; give these words"
            )


def _sentence_scores(golds: Sequence[str], texts: Sequence[str]) -> list[SentenceScore]:
    if len(golds) != len(texts) or not golds:
        raise InputError(
            f"expected one parse for each gold tree, and at least one, found {len(texts):,} "
            f"parses and {len(golds):,} gold trees; score parses of exactly the gold sentences"
        )
    # EVALB counts an outer bracket without a label, which every parse would get right, so
    # each tree is put in TOP, which does not count. It compares tags whole, but a parser is
    # trained to write them without functions, so each tag becomes its category.
    pairs = enumerate(zip(map(_in_top, golds), map(_in_top, texts), strict=True), start=1)
    return [
        score_sentence(gold, text, COLLINS, (f"gold, line {n}", f"parse, line {n}"))
        for n, (gold, text) in pairs
    ]


def _tagged(text: str, gold: str) -> str:
    """Return the parse, with the gold tags if it has the same number of words."""
    tree, ours = normalize(parse_tree(gold)), parse_tree(text) if text else None
    tags = [tag for tag, _ in leaves(tree)] if tree else []
    if ours is None or len(leaves(ours)) != len(tags):
        return text
    remaining = iter(tags)
    tagged = map_tree(ours, lambda _, word: (next(remaining), word))
    return write_tree(tagged) if tagged else text


def _in_top(text: str) -> str:
    def leaf(tag: str, word: str) -> Tree:  # EVALB's parameters delete -NONE- alone
        return EMPTY if tag.startswith(EMPTY) else category(tag), word

    if not text:
        return ""
    # Of a constituent's label EVALB removes the function, but not the features.
    tree = map_tree(
        parse_tree(text), leaf, lambda label, rest: (label.partition("##")[0] or label, rest)
    )
    return write_tree(with_root(without_root(tree))) if tree else ""


def _f1(metric: str, result: Total, more: str = "") -> Score:
    counts, left_out, counted = result.counts, "", None
    if result.errors:
        counted = f"{result.sentences - result.errors:,} of {result.sentences:,} sentences counted"
        left_out = (
            f"; {result.errors:,} of {result.sentences:,} left out as EVALB does: trees over the "
            "right words, with a word tagged as punctuation, or punctuation as a word"
        )
    return Score(
        metric,
        counts.f1,
        f"evalb|prm:{COLLINS.name}|sentences:{result.sentences}"
        f"|errors:{result.errors}|skipped:{result.skipped}{more}",
        f"recall {counts.recall:.2f}, precision {counts.precision:.2f}, complete match "
        f"{percent(result.complete, result.valid):.2f}, tagging {counts.tagging:.2f}{left_out}",
        counted=counted,
    )


def _valid_trees(
    sources: Sequence[str], texts: Sequence[str], constrained: Sequence[bool]
) -> list[Score]:
    """Return the percentages of sentences with words that have a tree over exactly these words."""
    rows = [i for i, source in enumerate(sources) if words_of(source)]
    valid = [i for i in rows if _is_tree_over(texts[i], words_of(sources[i]))]
    signature = f"percent|sentences:{len(rows)}"
    share = percent(len(valid), len(rows))
    free = percent(sum(not constrained[i] for i in valid), len(rows))
    return [
        Score("valid_trees", share, f"{signature}|constraint:yes"),
        Score("valid_trees_unconstrained", free, f"{signature}|constraint:no"),
    ]


def _is_tree_over(text: str, words: Sequence[str]) -> bool:
    try:
        tree = parse_tree(text)
    except InputError:
        return False
    return [word for _, word in leaves(tree)] == [escaped(word) for word in words]
