"""The table that evaluate prints."""

from experiments.tables import score_table
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
