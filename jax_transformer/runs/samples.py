"""A few outputs of a model with their sources and references, for a person to look at."""

from collections.abc import Sequence

from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.parsing.parser import normalized

COUNT = 5
LONGEST = 400  # characters of a text on a screen; a model that is hardly trained may write more


def samples(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    labels: LabelVocabulary | None = None,
    longest: int | None = None,
) -> list[str]:
    """Return texts of three lines for sentences that are spread evenly over a corpus.

    If all outputs are blank, the only text says so.
    labels: those of a parser, whose references are normalized as its training trees were.
    longest: the number of characters to cut each line to; None for whole lines.
    """
    if sources and not any(output.strip() for output in outputs):
        return ["Every output is blank: the model has not learned enough yet; train more steps."]
    shown = []
    for i in sorted({i * len(sources) // COUNT for i in range(COUNT)}) if sources else []:
        reference = normalized(references[i], labels.root) if labels else references[i]
        texts = [_cut(text, longest) for text in (sources[i], outputs[i], reference)]
        shown.append("source      {}\n  model     {}\n  reference {}".format(*texts))
    return shown


def _cut(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]} ... ({len(text):,} characters)"
