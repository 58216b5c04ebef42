"""The outputs that a person is shown, beside their sources and references."""

from jax_transformer.evaluation.evaluate import samples
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import label_vocabulary


def test_samples_are_spread_over_the_text_and_each_once():
    texts = [f"line {i}" for i in range(23)]
    shown = samples(texts, texts, texts)
    assert [text.splitlines()[0].split()[-1] for text in shown] == ["0", "4", "9", "13", "18"]
    assert len(samples(texts[:3], texts[:3], texts[:3])) == 3
    assert samples([], [], []) == []


def test_outputs_that_are_all_blank_are_one_line_that_says_so():
    (line,) = samples(["a", "b", "c"], ["", " ", ""], ["a", "b", "c"])
    assert "blank" in line
    assert len(samples(["a", "b"], ["", "b"], ["a", "b"])) == 2


def test_rubbish_is_cut_on_a_screen_alone():
    rubbish = "the " * 500
    (cut,) = samples(["a"], [rubbish], ["b"], longest=100)
    assert f"{'the ' * 25} ... (2,000 characters)\n" in cut
    assert rubbish in samples(["a"], [rubbish], ["b"])[0]


def test_the_references_of_a_parser_are_in_the_form_that_it_writes():
    gold = "( (S (NP-SBJ-1 (PRP She)) (VP (VBZ sleeps) (NP (-NONE- *-1)))) )"
    labels = label_vocabulary([parse_tree(gold)])
    parse = "( (S (NP (PRP She)) (VP (VBZ sleeps))))"
    (shown,) = samples(["She sleeps"], [parse], [gold], labels)
    model, reference = (line.split(maxsplit=1)[1] for line in shown.splitlines()[1:])
    assert reference.replace(" ", "") == model.replace(" ", "")
    assert samples(["x"], ["y"], [""], labels)[0].endswith("reference ")
