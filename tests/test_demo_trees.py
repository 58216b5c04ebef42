"""The demo's treebank: against Penn's sets and rules, and against trees drawn by hand."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from jax_transformer import demo_corpus, demo_trees
from jax_transformer.bracketing import parse_tree
from jax_transformer.demo_grammar import (
    Example,
    at,
    clause,
    coordination,
    detokenise,
    existential,
    gap,
    infinitive,
    name,
    object_question,
    of,
    predicative,
    prepositional,
    pronoun,
    purpose,
    shared_subject,
    statement,
    subject_question,
    subordinate,
    time,
    with_relative,
    yes_no_question,
)
from jax_transformer.demo_grammar import noun_phrase as np
from jax_transformer.demo_lexicon import DATIVE
from jax_transformer.parsing import linearise, rebuild
from jax_transformer.trees import Tree, leaves, normalise, without_root, write_tree

# The Penn Treebank's tagset and its constituents without function tags.
PENN_TAGS = """
CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH
VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB , . : $ # `` '' -LRB- -RRB-
"""
PENN_LABELS = """
S SBAR SBARQ SINV SQ ADJP ADVP CONJP FRAG INTJ LST NAC NP NX PP PRN PRT QP RRC UCP VP WHADJP
WHADVP WHNP WHPP X
"""
VERB_TAGS = {"VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD"}


@cache
def treebank() -> demo_trees.TreeSplits:
    return demo_trees.splits()


def everything() -> list[Tree]:
    return treebank().train + treebank().dev + treebank().test


def sentence(tree: Tree) -> str:
    return detokenise([word for _, word in leaves(tree)])


def constituents(tree: Tree) -> Iterator[tuple[str, tuple[Tree, ...]]]:
    label, children = tree
    if not isinstance(children, str):
        yield label, children
        for child in children:
            yield from constituents(child)


# ------------------------------------------------------------------------------- the translations


def test_the_translation_corpus_is_the_same_to_the_byte():
    # Taken before the trees had a file of their own: scores in the notes rest on this text.
    corpus = demo_corpus.splits()
    lines = [f"{e.english}\t{e.german}\n" for e in corpus.train + corpus.dev + corpus.test]
    found = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert found == "f55f78999516e8e221605014b951c761009183551d9cefd800d6b7c45a328ae7"


def test_each_tree_spells_the_corpus_sentence_of_its_place():
    corpus = demo_corpus.splits()
    for part in ("train", "dev", "test"):
        examples, trees = getattr(corpus, part), getattr(treebank(), part)
        for example, tree in zip(examples, trees[: len(examples)], strict=True):
            assert sentence(tree) == example.english


# ------------------------------------------------------------------------------------- the splits


def test_no_sentence_comes_twice_in_or_between_the_splits():
    sentences = [tuple(word for _, word in leaves(tree)) for tree in everything()]
    assert len(set(sentences)) == len(sentences)


def test_train_shows_every_word_and_symbol_of_dev_and_test():
    evaluated = treebank().dev + treebank().test
    for items in (lambda tree: {word for _, word in leaves(tree)}, lambda tree: {*linearise(tree)}):
        shown = set().union(*map(items, treebank().train))
        assert set().union(*map(items, evaluated)) <= shown


def digest() -> str:
    found = demo_trees.splits()
    lines = [write_tree(tree) for tree in found.train + found.dev + found.test]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_the_treebank_is_the_same_whatever_the_hash_seed():
    program = "from tests.test_demo_trees import digest; print(digest())"
    environment = dict(os.environ, PYTHONHASHSEED="123", PYTHONPATH=os.pathsep.join(sys.path))
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == digest()


# -------------------------------------------------------------------------------------- all trees


def test_every_tree_comes_back_from_its_symbols_and_from_its_bracketing():
    for tree in everything():
        assert rebuild(linearise(tree), [word for _, word in leaves(tree)]) == tree
        assert parse_tree(write_tree(tree)) == tree


def test_every_tree_is_one_that_parsers_are_trained_on_already():
    for tree in everything():
        assert normalise(tree) == tree
        assert tree[0] in {"S", "SQ", "SBARQ"}


def test_every_tag_and_label_is_of_the_penn_treebank():
    labels = {label for tree in everything() for label, _ in constituents(tree)}
    tags = {tag for tree in everything() for tag, _ in leaves(tree)}
    assert labels <= set(PENN_LABELS.split())
    assert tags <= set(PENN_TAGS.split())


def test_words_have_neither_spaces_nor_brackets():
    for tree in everything():
        for _, word in leaves(tree):
            assert re.fullmatch(r"[A-Za-z]+|[,.?]", word), word


def test_the_final_mark_ends_the_sentence_and_stands_beside_its_largest_parts():
    for tree in everything():
        *_, (tag, mark) = tree[1]
        assert (tag, mark) == (".", "." if tree[0] == "S" else "?")
        assert [word for _, word in leaves(tree)].count(mark) == 1


# What the verb form after each auxiliary is tagged, by Penn's rules.
AFTER = {
    "do": {"VB"}, "does": {"VB"}, "did": {"VB"}, "have": {"VBN"}, "has": {"VBN"}, "had": {"VBN"},
    "am": {"VBN", "VBG"}, "are": {"VBN", "VBG"}, "is": {"VBN", "VBG"}, "was": {"VBN", "VBG"},
    "were": {"VBN", "VBG"}, "to": {"VB"},
}  # fmt: skip


def test_the_form_of_a_verb_is_what_the_auxiliary_before_it_asks_for():
    checked = set()
    for tree in everything():
        for label, children in constituents(tree):
            nested = [child for child in children if child[0] == "VP"]
            heads = [child for child in children if child[0] in VERB_TAGS | {"TO"}]
            if label not in ("VP", "SQ") or not (heads and nested):
                continue
            tag, word = heads[0]
            allowed = {"VB"} if tag == "MD" else AFTER[str(word).lower()]
            checked.add(tag)
            for verb in verbs_of(nested[0]):
                assert verb[0] in allowed, write_tree(tree)
    assert checked >= {"MD", "TO", "VBZ", "VBP", "VBD"}


def verbs_of(phrase: Tree) -> list[Tree]:
    """The first verb of a verb phrase, or those of its conjuncts."""
    children = phrase[1]
    assert not isinstance(children, str)
    conjuncts = [child for child in children if child[0] == "VP"]
    if any(child[0] == "CC" for child in children) and conjuncts:
        return [verb for conjunct in conjuncts for verb in verbs_of(conjunct)]
    return [next(child for child in children if child[0] in VERB_TAGS)]


def number(subject: Tree) -> str:
    """The tag of a present-tense verb with this subject."""
    children = subject[1]
    assert not isinstance(children, str)
    if any(child[0] == "CC" for child in children):
        return "VBP"
    if children[0][0] == "NP" and children[-1][0] != "NN" and children[-1][0] != "NNS":
        return number(children[0])
    tag, word = [child for child in children if child[0] != "POS"][-1]
    several = tag == "NNS" or str(word).lower() in ("i", "you", "we", "they")
    return "VBP" if several else "VBZ"


def test_verbs_agree_with_their_subjects():
    checked = 0
    for tree in everything():
        for label, children in constituents(tree):
            labels = [child[0] for child in children]
            if label == "S" and "NP" in labels and "VP" in labels:
                # The last noun phrase before the verb: "Today, the man ..." has two.
                before = children[: labels.index("VP")]
                subject = [child for child in before if child[0] == "NP"][-1]
                verbs = verbs_of(children[labels.index("VP")])
            elif label == "SQ" and labels[0] in VERB_TAGS:
                subject = next(child for child in children if child[0] == "NP")
                verbs = [children[0]]
            else:
                continue
            if subject[1] == (("EX", "There"),) or subject[1] == (("EX", "there"),):
                continue
            for tag, _ in verbs:
                if tag in ("VBZ", "VBP"):
                    assert tag == number(subject), write_tree(tree)
                    checked += 1
    assert checked > 10_000


def test_verb_tags_fit_how_the_verbs_are_spelled():
    forms: dict[str, set[str]] = {}
    for tree in everything():
        for tag, word in leaves(tree):
            forms.setdefault(tag, set()).add(word.lower())
    irregular = {"is", "are", "am", "was", "were", "has", "have", "does", "do", "did"}
    bases = forms["VB"] | forms["VBP"]
    for word in forms["VBZ"] - irregular:
        assert word.endswith("s")
        assert bases & {word[:-1], word.removesuffix("es"), word[:-3] + "y"}, word
    assert all(word.endswith("ing") for word in forms.get("VBG", ()))
    assert not (forms["VBZ"] | forms["VBD"]) & (bases - irregular)
    assert forms["MD"] <= {"can", "could", "must", "should", "may", "will", "ca", "wo"}


# ---------------------------------------------------------------------------------------- by hand

DOG, MAN, WOMAN, BOOK = (np("the", word) for word in ("dog", "man", "woman", "book"))
HE, SHE, THEY = (pronoun(word) for word in ("he", "she", "they"))
IN_GARDEN = prepositional("in", "in", DATIVE, np("the", "garden"))

# Drawn by hand after the bracketing guidelines, and the derivation that must yield each.
BY_HAND = [
    ("(S (NP (PRP She)) (VP (MD will) (RB not) (VP (VB give) (NP (DT the) (NN man))"
     " (NP (DT an) (JJ old) (NN book)))) (. .))",
     lambda: statement(clause(SHE, "give", MAN, np("a", "book", "old"), tense="will",
                              negated=True))),
    ("(S (NP (NP (DT The) (NN cat)) (PP (IN in) (NP (DT the) (NN garden)))) (VP (VBZ has)"
     " (VP (VBN called) (PRT (RP up)) (NP (DT the) (NN man)) (NP (NN today)))) (. .))",
     lambda: statement(clause(at(np("the", "cat"), IN_GARDEN), "call up", MAN, tense="perfect",
                              extras=(time("today"),)))),
    ("(S (NP (PRP He)) (VP (VBZ calls) (NP (PRP her)) (PRT (RP up))) (. .))",
     lambda: statement(clause(HE, "call up", SHE))),
    ("(S (NP (PRP They)) (VP (VBP go) (ADVP (RB away))) (. .))",
     lambda: statement(clause(THEY, "go away"))),
    ("(S (NP (PRP They)) (VP (VBP throw) (PRT (RP away)) (NP (DT the) (NN book))) (. .))",
     lambda: statement(clause(THEY, "throw away", BOOK))),
    ("(S (NP (PRP They)) (VP (VBP bring) (ADVP (RB back)) (NP (DT the) (NN book))) (. .))",
     lambda: statement(clause(THEY, "bring back", BOOK))),
    ("(S (PP (IN On) (NP (NNP Monday))) (, ,) (NP (DT the) (NN book)) (VP (VBD was)"
     " (VP (VBN found) (PP (IN by) (NP (NNP Anna))))) (. .))",
     lambda: statement(clause(BOOK, "find", tense="past passive", extras=(
         prepositional("by", "von", DATIVE, name("Anna")),)), time("on Monday"))),
    ("(S (NP (NNP Anna)) (VP (VBZ is) (ADJP (RBR more) (JJ curious) (PP (IN than)"
     " (NP (NP (DT the) (NN daughter)) (PP (IN of) (NP (DT the) (NN king))))))) (. .))",
     lambda: statement(clause(name("Anna"), "be", extras=(
         predicative("curious", of(np("the", "daughter"), np("the", "king"))),)))),
    ("(S (NP (PRP He)) (VP (VBZ says) (SBAR (IN that) (S (NP (DT the) (NN man)) (VP (VBD wanted)"
     " (S (VP (TO to) (VP (VB swim)))))))) (. .))",
     lambda: statement(clause(HE, "say that", extras=(
         subordinate("that", clause(MAN, "swim", tense="wanted")),)))),
    ("(S (NP (PRP He)) (VP (VBZ tries) (S (VP (TO to) (VP (VB open) (NP (DT the) (NN door)))))"
     " (SBAR (IN in) (NN order) (S (VP (TO to) (VP (VB help) (NP (PRP her))))))) (. .))",
     lambda: statement(clause(HE, "try to", extras=(
         infinitive(clause(gap(), "open", np("the", "door"))),
         purpose(clause(gap(), "help", SHE)))))),
    ("(S (NP (DT The) (NN man)) (VP (VBD slept) (SBAR (WHADVP (WRB when)) (S (NP (NP (DT the)"
     " (NN dog)) (SBAR (WHPP (IN for) (WHNP (WDT which))) (S (NP (PRP they)) (VP (VBP wait)))))"
     " (VP (VBD ran) (ADVP (RB away)))))) (. .))",
     lambda: statement(clause(MAN, "sleep", tense="past", extras=(subordinate("when", clause(
         with_relative(DOG, "object", clause(THEY, "wait for")), "run away", tense="past")),)))),
    ("(S (NP (DT The) (NN man)) (VP (VBZ works) (CC and) (VBZ sings)) (. .))",
     lambda: shared_subject(clause(MAN, "work"), clause(gap(), "sing"))),
    ("(S (NP (DT The) (NN man)) (VP (VP (VBZ works)) (CC and) (VP (VBZ reads) (NP (DT the)"
     " (NN book)))) (. .))",
     lambda: shared_subject(clause(MAN, "work"), clause(gap(), "read", BOOK))),
    ("(S (S (NP (PRP She)) (VP (VBZ works))) (, ,) (CC but) (S (NP (DT the) (NN dog))"
     " (VP (VBZ sleeps))) (. .))",
     lambda: coordination("but", clause(SHE, "work"), clause(DOG, "sleep"))),
    ("(S (NP (EX There)) (VP (VBP are) (NP (CD two) (NNS dogs)) (PP (IN in) (NP (DT the)"
     " (NN garden)))) (. .))",
     lambda: existential(np("two", "dog", "", True), IN_GARDEN, past=False)),
    ("(SQ (VBP Are) (NP (PRP they)) (RB not) (ADJP (JJ tired)) (. ?))",
     lambda: yes_no_question(clause(THEY, "be", extras=(predicative("tired"),), negated=True))),
    ("(SBARQ (WHNP (WDT Which) (NNS dogs)) (SQ (VP (VBP sleep) (PP (IN in) (NP (DT the)"
     " (NN garden))))) (. ?))",
     lambda: subject_question(clause(gap(True), "sleep", extras=(IN_GARDEN,)),
                              np("which", "dog", "", True))),
    ("(SBARQ (WHNP (WP Who)) (SQ (VBZ does) (NP (DT the) (NN woman)) (VP (VB help))) (. ?))",
     lambda: object_question(clause(WOMAN, "help"), "who")),
]  # fmt: skip


def drawn(example: Example) -> str:
    return write_tree(without_root(parse_tree(example.tree)))


@pytest.mark.parametrize(("tree", "derive"), BY_HAND, ids=[row[0] for row in BY_HAND])
def test_the_grammar_derives_the_tree_drawn_by_hand(tree, derive):
    assert drawn(derive()) == tree
