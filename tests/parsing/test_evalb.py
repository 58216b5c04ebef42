"""EVALB's rules on cases worked by hand, and its own results on its own sample."""

import itertools
import random

import pytest

from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb import (
    COLLINS,
    Parameters,
    SentenceScore,
    Status,
    parse_parameters,
    score_sentence,
)
from jax_transformer.parsing.evalb_report import report, total


def counts(gold, test, parameters=COLLINS):
    """(matched, gold, test, crossing) of a sentence that is valid."""
    score = score_sentence(gold, test, parameters)
    assert score.status == Status.VALID, score
    return score.matched, score.gold, score.test, score.crossing


def read_parameters(path):
    return parse_parameters(read_lines(path), str(path))


def scored(folder, parameters):
    pairs = [read_lines(folder / "sample" / f"sample.{side}") for side in ("gld", "tst")]
    return [score_sentence(gold, test, parameters) for gold, test in zip(*pairs, strict=True)]


def test_the_report_of_the_sample_is_evalbs_to_the_byte(evalb_data):
    theirs = (evalb_data / "sample" / "sample.collins.rsl").read_text(encoding="utf-8")
    read = read_parameters(evalb_data / "COLLINS.prm")
    for parameters in (read, COLLINS):
        assert report(scored(evalb_data, parameters), parameters) == theirs


def test_with_the_samples_settings_only_the_layout_of_an_older_evalb_differs(evalb_data):
    """sample.rsl was written by a release without F, and with another column among the totals."""
    parameters = read_parameters(evalb_data / "sample" / "sample.prm")
    ours = [line.split() for line in report(scored(evalb_data, parameters), parameters).split("\n")]
    path = evalb_data / "sample" / "sample.rsl"
    theirs = [line.split() for line in path.read_text(encoding="utf-8").split("\n")]
    f_measures = [line for line in ours if "FMeasure" in line]
    assert [line[-1] for line in f_measures] == ["89.12", "83.20"]
    for recall, precision, f in ((86 / 98, 86 / 95, 89.12), (52 / 64, 52 / 61, 83.20)):
        assert 200 * recall * precision / (recall + precision) == pytest.approx(f, abs=0.005)
    ours = [line for line in ours if line not in f_measures]
    assert [len(line) for line in ours] == [len(line) for line in theirs]
    differing = {
        (number, column): (one, other)
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True), start=1)
        for column, (one, other) in enumerate(zip(our, their, strict=True))
        if one != other
    }
    # In rows of sentences left out it prints gold's words (sentence n is line n + 3), and
    # under crossing brackets the number of sentences without any.
    without = {(n + 3, 9): ("0", "4") for n in (11, 12, 13, 14, 16, 17, 20)}
    assert differing == without | {(29, 5): ("1", "16")}


def test_punctuation_counts_neither_as_word_nor_as_boundary():
    gold = "(S (NP (DT the) (NN cat)) (VP (VBZ sat)) (. .))"
    test = "(S (NP (DT the) (NN cat)) (VP (VBZ sat) (. .)))"
    score = score_sentence(gold, test)
    assert (score.matched, score.gold, score.test) == (3, 3, 3)
    assert (score.words, score.tags, score.length) == (3, 3, 4)
    # A comma more or less leaves the words equal too; a constituent of nothing else is gone.
    comma = gold.replace("(VP", "(PRN (, ,) (: --)) (VP")
    assert counts(gold, comma) == (3, 3, 3, 0)
    # Other settings: the full stop is a word, and VP ends after it on one side only.
    assert counts(gold, test, Parameters()) == (2, 3, 3, 0)


def test_a_word_whose_tag_is_kept_on_one_side_only_makes_an_error():
    score = score_sentence("(S (NN a) (. .))", "(S (NN a) (NN .))")
    assert score == SentenceScore(2, Status.ERROR, problem="Length unmatch (1|2)")


def test_equality_is_not_chained():
    pairs = Parameters(equal_labels=frozenset({("A", "B"), ("B", "C")}))
    matched = {
        (one, other): counts(f"({one} (x a))", f"({other} (x a))", pairs)[0]
        for one, other in itertools.product("ABC", repeat=2)
    }
    assert {pair for pair, found in matched.items() if not found} == {("A", "C"), ("C", "A")}


def test_equal_labels_hold_for_tags_and_for_deleted_constituents_too():
    pairs = Parameters(
        deleted=frozenset({"TOP"}), equal_labels=frozenset({("NN", "NNS"), ("ROOT", "TOP")})
    )
    score = score_sentence("(ROOT (NP (NN fish)))", "(TOP (NP (NNS fish)))", pairs)
    assert (score.matched, score.gold, score.test, score.tags) == (1, 1, 1, 1)


def test_brackets_without_labels_match_by_span_alone():
    gold, test = "(S (A (x a) (x b)) (x c))", "(T (B (x a) (x b)) (C (x c)))"
    assert counts(gold, test) == (0, 2, 3, 0)
    assert counts(gold, test, Parameters(labelled=False)) == (2, 2, 3, 0)


def test_functions_are_removed_from_constituents_but_not_from_tags():
    gold, test = "(S (NP-SBJ-1 (NN-X a)) (PP=2 (IN b)))", "(S (NP (NN a)) (PP-LOC (IN b)))"
    score = score_sentence(gold, test)
    assert (score.matched, score.gold, score.test) == (3, 3, 3)
    assert (score.tags, score.words, score.tagging) == (1, 2, 50.0)


def test_empty_elements_and_constituents_of_nothing_else_do_not_count():
    gold = "(S (NP-SBJ (-NONE- *)) (VP (TO to) (VP (VB go))))"
    assert score_sentence(gold, "(S (VP (TO to) (VP (VB go))))").length == 2
    assert counts(gold, "(S (NP) (VP (TO to) (VP (VB go))))") == (3, 3, 3, 0)


def test_an_outer_bracket_without_label_counts_as_in_evalb():
    assert counts("( (S (NN a)) )", "(TOP (S (NN a)))") == (1, 2, 1, 0)


def test_only_ascii_white_space_separates():
    gold = "(NP\t(NN  10\u00a0m)\x0b(NN b\u2009c))"
    score = score_sentence(gold, "(NP (NN 10\u00a0m) (NN b\u2009c))\r")
    assert (score.status, score.words, score.matched) == (Status.VALID, 2, 1)


def test_a_blank_parse_is_skipped_even_where_gold_has_other_words():
    for blank in ("", "  ", "(S (. .))"):
        score = score_sentence("(S (NN a) (. .))", blank)
        assert score == SentenceScore(2, Status.SKIPPED)
    assert score_sentence("", "(S (NN a))").status == Status.ERROR


def test_totals_leave_out_errors_and_skipped_sentences():
    scores = [
        SentenceScore(5, matched=4, gold=4, test=4, words=5, tags=5),
        SentenceScore(40, matched=10, gold=20, test=30, crossing=3, words=35, tags=30),
        SentenceScore(41, matched=1, gold=10, test=5, crossing=2, words=41, tags=41),
        SentenceScore(6, Status.ERROR, problem="Words unmatch (a|b)"),
        SentenceScore(60, Status.SKIPPED),
    ]
    everything, short = total(scores), total(scores, 40)
    assert everything[:6] == (5, 1, 1, 1, 1, 2)
    assert (everything.valid, everything.average_crossing) == (3, pytest.approx(5 / 3))
    assert everything.counts.f1 == pytest.approx(100 * 2 * 15 / (34 + 39))
    assert everything.counts.tagging == pytest.approx(100 * 76 / 81)
    assert (short.valid, short.counts.f1) == (2, pytest.approx(100 * 2 * 14 / (24 + 34)))


def test_no_valid_sentence_scores_zero_and_not_nan():
    nothing = total([])
    assert (nothing.counts.f1, nothing.counts.tagging, nothing.average_crossing) == (0, 0, 0)
    last = report([SentenceScore(3, Status.SKIPPED)], COLLINS).split("\n")[5]
    assert last.split() == ["0", "0", "0.00"]


def random_tree(choose, words):
    """A tree with chains and repeated labels over the words, as (label, children)."""
    label = choose.choice(["A", "B", "A-X", "PRT", "ADVP"])
    if len(words) == 1 and choose.random() < 0.6:
        return ("," if words[0] == "," else choose.choice("xy"), words[0])
    cut = choose.randint(1, len(words))
    if cut == len(words):
        return (label, [random_tree(choose, words)])
    return (label, [random_tree(choose, words[:cut]), random_tree(choose, words[cut:])])


def bracketed(tree):
    label, inside = tree
    held = inside if isinstance(inside, str) else " ".join(map(bracketed, inside))
    return f"({label} {held})"


def brute_force(tree):
    """(label, the set of word positions) of each constituent, worked out from leaves to root."""
    tags, found = [], []

    def walk(node):
        label, inside = node
        if isinstance(inside, str):
            if label in (",", "."):
                return set()
            tags.append(label)
            return {len(tags) - 1}
        covered = set().union(*[walk(child) for child in inside])
        if covered:
            found.append((label.split("-")[0].replace("PRT", "ADVP"), frozenset(covered)))
        return covered

    walk(tree)
    return tags, found


def test_random_trees_score_as_by_brute_force_over_sets_of_positions():
    choose, valid, crossed = random.Random(4), 0, 0
    for _ in range(400):
        words = choose.choices(["a", "b", "c", ","], k=choose.randint(1, 7))
        gold, test = (random_tree(choose, words) for _ in range(2))
        score = score_sentence(bracketed(gold), bracketed(test))
        (tags, ours), (test_tags, theirs) = brute_force(gold), brute_force(test)
        assert score.status == (Status.VALID if tags else Status.SKIPPED)
        valid += score.status == Status.VALID
        matched = sum(min(ours.count(each), theirs.count(each)) for each in set(ours))
        crossing = sum(
            any(one & other and one - other and other - one for _, one in ours)
            for _, other in theirs
        )
        crossed += crossing > 0
        right = sum(one == other for one, other in zip(tags, test_tags, strict=True))
        assert (score.matched, score.gold, score.test) == (matched, len(ours), len(theirs))
        assert (score.crossing, score.tags, score.words) == (crossing, right, len(tags))
    assert valid > 300
    assert crossed > 60


def test_a_malformed_line_is_refused_with_its_column():
    cases = {"(S (NP (NN a))": 15, "(S (NN a)))": 11, "(S (NP the cat))": 8, "(NP x (NN a))": 5}
    for line, column in cases.items():
        for pair in ((line, "(S (NN a))"), ("(S (NN a))", line)):
            with pytest.raises(InputError, match=f"here, column {column}:"):
                score_sentence(*pair, COLLINS, ("here", "here"))


def test_settings_are_read_with_comments_and_odd_spaces():
    lines = ["# DELETE_LABEL A", "", "EQ", "DELETE_LABEL \t #  ", "LABELED 0   ", "CUTOFF_LEN 10"]
    lines += ["EQ_WORD a b", "EQ_LABEL C  D", "MAX_ERROR 3", "DEBUG 0"]
    lines += ["DELETE_LABEL_FOR_LENGTH E"]
    assert parse_parameters(lines, "folder/my.prm") == Parameters(
        name="my.prm",
        deleted=frozenset("#"),
        deleted_for_length=frozenset("E"),
        equal_labels=frozenset({("C", "D")}),
        equal_words=frozenset({("a", "b")}),
        labelled=False,
        cutoff=10,
        max_errors=3,
    )


@pytest.mark.parametrize(
    "line", ["DELETE_LABLE TOP", "DELETE_LABEL A B", "CUTOFF_LEN -1", "LABELED 2", "DEBUG"]
)
def test_a_line_that_is_not_a_setting_is_refused_with_its_number(line):
    with pytest.raises(InputError, match=rf"my\.prm, line 2: .*'{line}'"):
        parse_parameters(["DEBUG 0", f" {line} "], "my.prm")
