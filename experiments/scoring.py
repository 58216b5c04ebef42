"""Decode a text, score it, and keep both: what train and evaluate share."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from experiments.flags import warn
from jax_transformer.config import DataConfig
from jax_transformer.metrics import bleu
from jax_transformer.run_folder import RunFolder, write_text
from jax_transformer.translator import Translator


def translate_and_score(
    translator: Translator, sources: Sequence[str], references: Sequence[str], data: DataConfig
) -> tuple[list[str], dict[str, Any]]:
    """(translations, an entry of results.json). A blank source has a blank translation."""
    start = time.perf_counter()
    cut: list[str] = []
    found = translator.translate_lines(sources, cut.append)
    seconds = time.perf_counter() - start
    if cut:
        warn(f"{len(cut):,} of {len(sources):,} sentences to score were cut, such as {cut[0]}")
    texts = [hypotheses[0].text if hypotheses else "" for hypotheses in found]
    score = bleu(texts, references, tokenize=data.bleu_tokenize, lowercase=data.bleu_lowercase)
    entry = {
        **score.as_dict(),
        "metric": score.metric.lower(),
        "sentences": len(texts),
        "seconds": round(seconds, 2),
        "beam_size": translator.decoding.beam_size,
        "alpha": translator.decoding.alpha,
    }
    return texts, entry


def keep_scores(
    folder: RunFolder, name: str, texts: Sequence[str], entry: dict[str, Any], **facts: Any
) -> str:
    """Write the translations, append the entry, and return the line to print."""
    path = folder.translations(name)
    write_text(path, "".join(f"{text}\n" for text in texts))
    kept = {**entry, **facts, "translations": str(path.relative_to(folder.path))}
    folder.append_results([kept])
    how = f"beam {kept['beam_size']}" if kept["beam_size"] > 1 else "greedy"
    return (
        f"{kept['metric'].upper()} {kept['score']:.2f}  {facts['split']}, {facts['checkpoint']} "
        f"checkpoint, {how}, {kept['sentences']:,} sentences in {kept['seconds']:.1f} s\n"
        f"      {kept['signature']}\n      {kept['detail']}"
    )


def greedy(decoding: Any) -> Any:
    """The same decoding with one hypothesis."""
    return dataclasses.replace(decoding, beam_size=1)
