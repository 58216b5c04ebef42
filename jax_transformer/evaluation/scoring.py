"""Decode a text, score it, and keep both: what train and evaluate share."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from jax_transformer.config import DataConfig
from jax_transformer.decoding.translator import Translator
from jax_transformer.evaluation.bleu import Score, bleu, chrf, length_ratio
from jax_transformer.evaluation.paper_bleu import paper_bleu
from jax_transformer.evaluation.parse_scores import gold_tags_f1, tree_f1
from jax_transformer.files import write_text
from jax_transformer.runs.run_dir import RunFolder


@dataclasses.dataclass(frozen=True)
class Decoded:
    """The best translation of each line, blank for blank, and how it came about."""

    texts: list[str]
    constrained: list[bool]  # of parses: whether the grammar had to help
    pieces: int  # over all translations, without their end marks
    facts: dict[str, Any]


def decode(translator: Translator, sources: Sequence[str]) -> Decoded:
    """Translate, and note how."""
    start = time.perf_counter()
    found = translator.translate_lines(sources)
    seconds = time.perf_counter() - start
    best = [hypotheses[0] for hypotheses in found if hypotheses]
    return Decoded(
        [hypotheses[0].text if hypotheses else "" for hypotheses in found],
        [bool(hypotheses) and hypotheses[0].constrained for hypotheses in found],
        sum(translation.tokens - 1 for translation in best),
        {
            "sentences": len(sources),
            "seconds": round(seconds, 2),
            "beam_size": translator.decoding.beam_size,
            "alpha": translator.decoding.alpha,
            "patience": translator.decoding.patience,
        },
    )


def translate_and_score(
    translator: Translator, sources: Sequence[str], references: Sequence[str], data: DataConfig
) -> tuple[list[str], dict[str, Any]]:
    """(translations, an entry of results.json). A blank source has a blank translation."""
    decoded = decode(translator, sources)
    score = _main_score(decoded.texts, references, data)
    return decoded.texts, {**score.as_dict(), **decoded.facts}


def _main_score(texts: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    if data.task == "parsing":
        return tree_f1(references, texts)
    return _bleu(texts, references, data)


def monitored_score(texts: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    """What training looks at now and then: BLEU, or of a parser F1 of all sentences.

    Early in training EVALB would leave out most of them: see `parse_scores`.
    """
    if data.task == "parsing":
        return gold_tags_f1(references, texts)
    return _bleu(texts, references, data)


def _bleu(
    texts: Sequence[str], references: Sequence[str], data: DataConfig, bootstrap: int = 0
) -> Score:
    score = bleu(
        texts,
        references,
        tokenize=data.bleu_tokenize,
        lowercase=data.bleu_lowercase,
        bootstrap=bootstrap,
    )
    return dataclasses.replace(score, metric="bleu")


def text_scores(
    decoded: Decoded,
    references: Sequence[str],
    reference_pieces: int,
    data: DataConfig,
    bootstrap: int = 0,
) -> list[Score]:
    """Every score of translations against references: BLEU twice, chrF, length ratios.

    The paper's BLEU is left out of text that is tokenised already.
    """
    texts = decoded.texts
    options = {"lowercase": data.bleu_lowercase, "bootstrap": bootstrap}
    scores = [_bleu(texts, references, data, bootstrap)]
    if data.bleu_tokenize != "none":
        score = paper_bleu(texts, references, data.target_language, bootstrap=bootstrap)
        scores.append(dataclasses.replace(score, metric="bleu_paper"))
    scores.append(dataclasses.replace(chrf(texts, references, **options), metric="chrf"))
    scores.append(length_ratio(texts, references, tokenize=data.bleu_tokenize))
    if reference_pieces:
        counts = f"hyp_len = {decoded.pieces} ref_len = {reference_pieces}"
        ratio = decoded.pieces / reference_pieces
        signature = "hypothesis/reference pieces|eos:no"
        scores.append(Score("length_ratio_pieces", ratio, signature, counts))
    return scores


def keep_translations(folder: RunFolder, name: str, texts: Sequence[str]) -> str:
    """Write them into the run folder; the path inside of it."""
    path = folder.translations(name)
    write_text(path, "".join(f"{text}\n" for text in texts))
    return str(path.relative_to(folder.path))


def keep_scores(
    folder: RunFolder, name: str, texts: Sequence[str], entry: dict[str, Any], **facts: Any
) -> str:
    """Write the translations, append the entry, and return the line to print."""
    kept = {**entry, **facts, "translations": keep_translations(folder, name, texts)}
    folder.append_results([kept])
    return (
        f"{kept['metric'].upper()} {kept['score']:.2f}  {describe(kept)}\n"
        f"      {kept['signature']}\n      {kept['detail']}"
    )


def describe(facts: dict[str, Any]) -> str:
    """Of what a score is, and how it was decoded."""
    how = f"beam {facts['beam_size']}" if facts["beam_size"] > 1 else "greedy"
    if facts.get("patience"):
        how += f", patience {facts['patience']:g}"
    return (
        f"{facts['split']}, {facts['checkpoint']} checkpoint, {how}, {facts['sentences']:,} "
        f"sentences in {facts['seconds']:.1f} s"
    )


def greedy(decoding: Any) -> Any:
    """The same decoding with one hypothesis."""
    return dataclasses.replace(decoding, beam_size=1)
