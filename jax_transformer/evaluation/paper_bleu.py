"""§6.1 The paper's BLEU: Moses tokens with compounds split, counted as multi-bleu.perl counts.

Do not compare it with sacreBLEU's BLEU. The paper used a chain of Perl scripts (tensor2tensor's
get_ende_bleu.sh); each function here is one of them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

from sacrebleu.metrics.bleu import BLEU

from jax_transformer.data.moses import normalizer, tokenizer
from jax_transformer.evaluation.bleu import score_with
from jax_transformer.evaluation.score import Score

# Perl deletes these; Python's \s matches them as spaces.
_SEPARATORS = str.maketrans("", "", "\x1c\x1d\x1e\x1f")
_HYPHEN = re.compile(rb"(\S)-(\S)")


def paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
) -> Score:
    """Return the corpus BLEU, 0 to 100, cased and unsmoothed, of plain text in `language`.

    It counts `paper_tokens`; other arguments are those of `bleu`. The signature names each step.
    Tokenized text does not have this score, because Moses would tokenize it again.
    """
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    ours, theirs, *more = (
        [paper_tokens(line, language) for line in lines]
        for lines in (hypotheses, references, *others)
    )
    score = score_with("bleu_paper", metric, ours, theirs, bootstrap, more)
    steps = f"punct:replaced|tok:moses-{language}|compounds:split"
    signature = score.signature.replace("tok:none", steps)
    signature = signature.replace("version:", f"sacremoses:{version('sacremoses')}|version:")
    return replace(score, signature=f"paper|{signature}")


def paper_tokens(line: str, language: str) -> str:
    """Return the tokens that the paper's BLEU counts, separated by spaces."""
    return split_compounds(moses_tokens(replace_punctuation(line), language))


def replace_punctuation(line: str) -> str:
    """Replace typographic quotes, apostrophes, ellipses and full-width signs by ASCII.

    Like replace-unicode-punctuation.perl. Differs: a full-width 1 becomes 1; that script
    writes a quotation mark.
    """
    return normalizer("en").replace_unicode_punct(line)


def moses_tokens(line: str, language: str) -> str:
    """Tokenize a line as tokenizer.perl -l LANGUAGE does, with special characters escaped.

    Like Moses until November 2018: a full stop stays with an abbreviation or a number that ends
    the line. Differs: Chinese characters are tokens of one character each.
    """
    return str(tokenizer(language).tokenize(line.translate(_SEPARATORS), return_str=True))


def split_compounds(line: str) -> str:
    """Write `rich-text` as `rich ##AT##-##AT## text`.

    One pass whose matches do not overlap, as in the paper's script: in `a-b-c` the
    second hyphen stays, because `b` belongs to the first match. The script reads bytes,
    so an umlaut in b's place serves both matches, one byte each.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()
