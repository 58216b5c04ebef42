"""The warning about lines that a model does not know, and the statistic behind it."""

import logging

import pytest

from jax_transformer.data.vocabulary import train_vocabulary
from jax_transformer.decoding.translator import Translation
from jax_transformer.evaluation.familiarity import (
    FEWEST,
    UnfamiliarLine,
    familiarity,
    usual_familiarity,
)

KNOWN, UNKNOWN = "aaaa bbbb", "abab baba"  # two pieces, and many


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    return train_vocabulary([KNOWN] * 1000, 60, path, up_to=True)


def outputs(per_token, tokens=5):
    """The best translation of a line, and a worse one."""
    return [Translation("x", 0.0, per_token * tokens, tokens), Translation("y", -9.0, -90.0, 3)]


def test_log_p_a_token_is_multiplied_by_the_square_of_pieces_a_character(vocabulary):
    assert len(vocabulary.encode(KNOWN)) == 2
    assert familiarity(KNOWN, outputs(-0.4)[0], vocabulary) == pytest.approx(-0.4 * (2 / 8) ** 2)
    assert len(vocabulary.encode(UNKNOWN)) >= 6
    assert familiarity(UNKNOWN, outputs(-0.4)[0], vocabulary) <= -0.4 * (6 / 8) ** 2


def test_two_of_a_thousand_lines_are_less_familiar_than_usual(vocabulary):
    found = [outputs(-0.1)] * 997 + [outputs(-n, tokens=n) for n in (2, 3, 4)] + [[]]
    usual = usual_familiarity([*[KNOWN] * 1000, ""], found, vocabulary)
    assert usual is not None
    values = [familiarity(KNOWN, line[0], vocabulary) for line in found if line]
    assert sum(value < usual for value in values) == 2


def test_a_few_lines_do_not_show_what_is_usual(vocabulary):
    found = [outputs(-0.1)] * (FEWEST - 1)
    lines = [KNOWN] * len(found)
    assert usual_familiarity([*lines, ""], [*found, []], vocabulary) is None
    usual = usual_familiarity([*lines, KNOWN], [*found, outputs(-0.1)], vocabulary)
    assert usual == familiarity(KNOWN, outputs(-0.1)[0], vocabulary)


def test_the_first_unfamiliar_line_is_warned_of_and_no_other(vocabulary, caplog):
    caplog.set_level(logging.WARNING)
    check = UnfamiliarLine(-0.4 * (2 / 8) ** 2, vocabulary).check
    lines = [(KNOWN, -0.3), ("", None), (KNOWN, -0.5), (UNKNOWN, -0.9)]
    for number, (line, log_prob) in enumerate(lines, start=1):
        check(number, line, [] if log_prob is None else outputs(log_prob))
    (message,) = [record.getMessage() for record in caplog.records]
    assert all(part in message for part in ("line 3 ", "-0.50", "2 pieces"))


def test_a_line_of_many_pieces_is_unfamiliar_where_others_are_not(vocabulary, caplog):
    UnfamiliarLine(-0.1, vocabulary).check(1, UNKNOWN, outputs(-0.3))
    assert "line 1 " in caplog.text


def test_a_run_of_which_nothing_is_known_warns_of_nothing(vocabulary, caplog):
    UnfamiliarLine(None, vocabulary).check(1, KNOWN, outputs(-90))
    assert not caplog.records
