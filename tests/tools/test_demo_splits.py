"""The splits that the demo's grammar makes, and the files that the package ships."""

import pytest

from jax_transformer.data.text import read_lines
from jax_transformer.demo import FOLDER
from tools.demo.__main__ import corpora
from tools.demo.splits import sentences


@pytest.mark.release
def test_the_package_ships_what_the_grammar_makes_and_half_of_it_is_new():
    """Python draws another hash seed for each process, so an order that follows it shows here."""
    files = corpora()
    assert {path.name for path in FOLDER.glob("*.bz2")} == {f"{name}.bz2" for name in files}
    for name, lines in files.items():
        assert list(read_lines(FOLDER / f"{name}.bz2")) == list(lines), name
    # Half of dev and test has a combination that train never shows.
    seen = {use for each in sentences("train") for use in each.combinations}
    constructions, words = ({use[i] for use in seen} for i in (0, 1))
    for split in ("dev", "test"):
        unseen = [each.combinations - seen for each in sentences(split)]
        assert [bool(uses) for uses in unseen] == [True, False] * 250
        for construction, word in set().union(*unseen):
            assert construction in constructions
            assert word in words
