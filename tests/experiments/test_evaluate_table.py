"""The table that evaluate prints."""

import re

from experiments.tables import aligned, score_table
from jax_transformer.evaluation.score import Score
from jax_transformer.presets import find_experiment

SCORES = [
    Score("bleu", 27.518, "nrefs:1|tok:13a", "60.1/33.2"),
    Score("bleu_paper", 29.019, "paper|tok:moses-de", mean=29.0, interval=0.61),
    Score("perplexity", 4.9251, "exp(nll)"),
]


def rows(scores, published):
    return score_table(scores, published).split("\n")


def test_ours_the_papers_and_the_signature_stand_side_by_side():
    table = rows(SCORES, {"bleu_paper": 26.0, "perplexity": 4.92})
    assert table[0].split() == ["score", "ours", "the", "paper's", "signature"]
    assert table[1].split() == ["bleu", "27.52", "-", "nrefs:1|tok:13a"]
    assert table[2].split() == ["60.1/33.2"]
    assert table[3].split() == ["bleu_paper", "29.02", "26.0", "paper|tok:moses-de"]
    assert "29.00 +- 0.61" in table[4]
    (perplexity,) = [row for row in table if row.startswith("perplexity")]
    assert perplexity.split() == ["perplexity", "4.925", "4.92", "exp(nll)"]
    starts = {table[0].index("signature"), table[1].index("nrefs"), table[2].index("60")}
    assert len(starts) == 1


def test_on_a_narrow_terminal_the_signature_is_wrapped_under_itself():
    table = score_table(SCORES, {"perplexity": 4.92}, 66).split("\n")
    wide = score_table(SCORES, {"perplexity": 4.92})
    assert max(map(len, table)) <= 66 < max(map(len, wide.split("\n")))
    assert "the paper's" in table[0]
    start = table[0].index("signature")
    assert all(row[start - 1] == " " != row[start] for row in table)
    words = re.findall(r"[^ |\n]+", wide)
    assert sorted(words) == sorted(re.findall(r"[^ |\n]+", "\n".join(table)))


def test_on_a_terminal_columns_that_do_not_fit_or_have_no_number_are_left_out():
    assert "the paper's" not in score_table(SCORES, {}, 200)
    assert "the paper's" in score_table(SCORES, {})
    table = aligned([["", "one", "two", "last"], ["row", "1", "2", "x " * 30]], 42)
    assert "1" in table
    assert "2" not in table.split("\n")[1]
    assert table.endswith("Left out in 42 columns: two.")


def test_the_papers_number_stands_only_by_the_papers_text():
    for experiment, split, expected in [
        ("wmt14-en-de-base", "test", {"bleu_paper": 27.3}),
        ("wmt14-en-de-base", "wmt14/full.en-de", {"bleu_paper": 27.3}),
        ("wmt14-en-de-base", "dev", {}),
        ("wmt14-en-de-base", "news.en", {}),
        ("table3-base", "wmt13.en-de", {"bleu_paper": 25.8, "perplexity": 4.92}),
        ("table3-base", "wmt14.en-de", {}),
        ("base", "test", {}),
        ("wsj", "test", {"f1": 91.3}),
    ]:
        found = find_experiment(experiment).published_on(split)
        found = {name: number for name, number in found.items() if number}
        assert found == expected, (experiment, split)
