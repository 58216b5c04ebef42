"""One vocabulary for all."""

import pytest
from tiny_translator import TEXT

from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    return train_vocabulary(TEXT, 50, tmp_path_factory.mktemp("vocabulary") / "v.model", up_to=True)
