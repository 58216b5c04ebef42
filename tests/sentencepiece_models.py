"""Models that sentencepiece itself trains."""

import io

import sentencepiece


def trained(lines, **options) -> bytes:
    """The content of a model of at most `vocab_size` pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
        **options,
    )
    return model.getvalue()
