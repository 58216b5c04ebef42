"""The warning about lines that a model does not know, and the statistic behind it."""

import logging

from jax_transformer.decoding.translator import Translation
from jax_transformer.evaluation.familiarity import FEWEST, UnfamiliarLine, usual_log_prob


def outputs(per_token, tokens=5):
    """The best translation of a line, and a worse one."""
    return [Translation("x", 0.0, per_token * tokens, tokens), Translation("y", -9.0, -90.0, 3)]


def test_two_of_a_thousand_lines_are_less_probable_than_usual():
    found = [outputs(-0.1)] * 997 + [outputs(-n, tokens=n) for n in (2, 3, 4)] + [[]]
    usual = usual_log_prob(found)
    assert usual is not None
    assert sum(bool(line) and line[0].log_prob / line[0].num_tokens < usual for line in found) == 2


def test_a_few_lines_do_not_show_what_is_usual():
    assert usual_log_prob([outputs(-0.1)] * (FEWEST - 1) + [[]] * 5) is None
    assert usual_log_prob([outputs(-0.1)] * FEWEST) == -0.1


def test_the_first_unfamiliar_line_is_warned_of_and_no_other(caplog):
    caplog.set_level(logging.WARNING)
    check = UnfamiliarLine(-0.4).check
    for number, line in enumerate([outputs(-0.3), [], outputs(-0.5), outputs(-0.9)], start=1):
        check(number, line)
    (message,) = [record.getMessage() for record in caplog.records]
    assert all(part in message for part in ("line 3 ", "-0.50", "-0.40"))


def test_a_run_of_which_nothing_is_known_warns_of_nothing(caplog):
    UnfamiliarLine(None).check(1, outputs(-90))
    assert not caplog.records
