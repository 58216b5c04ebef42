"""The alignment error rate against values by hand."""

import pytest
from refusals import refusal

from jax_transformer.evaluation.alignment_error_rate import alignment_error_rate, parse_gold


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([[(0, 0), (1, 1)], [(0, 0)]], 0.0),  # all sure ones
        ([[(0, 0), (1, 1), (1, 2)], [(0, 0)]], 0.0),  # a possible one costs nothing
        ([[(0, 0), (1, 1), (1, 2), (5, 5)], [(0, 0)]], 1 - (3 + 4) / (5 + 3)),
        ([[(0, 0)], []], 1 - (1 + 1) / (1 + 3)),
        ([[(1, 2)], []], 1 - (0 + 1) / (1 + 3)),
        ([[(1, 0)], [(1, 1)]], 1.0),
        ([[], [(1, 1), (0, 0), (0, 0)]], 1 - (1 + 1) / (2 + 3)),  # the pairs are not mixed up
    ],
)
def test_the_rate_is_that_of_och_and_ney(found, expected):
    gold = [parse_gold("0-0 1-1 1p2"), parse_gold(" 0-0 ")]
    assert alignment_error_rate(found, gold) == pytest.approx(expected)


@pytest.mark.parametrize("line", ["0", "0-0 1", "0-0-0", "0x1", "-1-0", "0-\u0661"])
def test_a_line_of_something_else_is_refused(line):
    assert repr(line.split()[-1]) in refusal(parse_gold, line)


def test_gold_links_of_other_pairs_and_no_links_are_refused():
    assert "found 1 pairs and 2 with gold links" in refusal(
        alignment_error_rate, [[]], [([], [])] * 2
    )
    assert "found none" in refusal(alignment_error_rate, [[]], [([], [(0, 0)])])
