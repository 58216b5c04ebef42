"""The vocabularies of a trained model as other programs take them."""

from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.runs.loading import TrainedModel


def text_vocabularies(trained: TrainedModel) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target, each with a model of sentencepiece.

    Raises InputError for vocabularies without one.
    """
    source, target = trained.vocabulary, trained.target_vocabulary
    assert isinstance(target, Vocabulary)  # the label vocabulary of a parser is refused before
    if not (source.sentencepiece and target.sentencepiece):
        raise InputError(
            "expected vocabularies of sentencepiece, found others, which the folder cannot hold; "
            "no format can express them"
        )
    return source, target


def shared_vocabulary(trained: TrainedModel) -> Vocabulary:
    """Return the vocabulary that serves both sides, with a model of sentencepiece.

    Raises InputError if there are two, or one without such a model.
    """
    source, target = text_vocabularies(trained)
    if source is not target:
        raise InputError(
            "expected one vocabulary for both sides, found separate ones, which the folder cannot "
            "hold; export with --format=marian"
        )
    return source
