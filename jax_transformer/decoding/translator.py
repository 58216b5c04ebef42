"""§6.1 Translation of lines of text, and log P of given translations, over all devices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from unicodedata import normalize

import numpy as np

from jax_transformer.data.scripts import ends_in_word
from jax_transformer.decoding.batches import Prefix, Program
from jax_transformer.decoding.constraints import CONSTRAINTS
from jax_transformer.decoding.line_search import (
    Hypothesis,
    Line,
    LineSearch,
    Sentence,
    Translation,
    distinct,
    not_finite,
    places,
    warn,
)
from jax_transformer.decoding.request import Request
from jax_transformer.errors import InputError


@dataclass(frozen=True)
class PairScore:
    """log P(target | source) in nats, and the number of target tokens, EOS included."""

    log_prob: float
    num_tokens: int

    @property
    def per_token(self) -> float:
        """Nats per token."""
        return self.log_prob / self.num_tokens


class Translator(LineSearch):
    """A trained model with its vocabularies, to translate lines and to score pairs of lines."""

    usual_ratio = 1.5

    def program(self, request: Request) -> Program:
        """Return what the search of a request is compiled for."""
        common = {name: getattr(request, name) for name in CONSTRAINTS if name != "without"}
        values = {n: v for n, v in common.items() if v and not CONSTRAINTS[n].each_line}
        # Some may have the same text, so of several outputs all of the beam are found.
        most = self.decoding.beam_size if request.several else 1
        counts = (count for count in self.sample_counts if count >= request.samples > 0)
        samples = next(counts, request.samples)
        return Program(most, samples, request.inside_word, tuple(values.items()))

    def read(self, lines: Sequence[Line]) -> list[Sentence]:
        """Return the tokens of each line and its prefix.

        A line that is too long is cut, with a warning in the log. Raises InputError for a prefix
        that does not fit.
        """
        encoded = self.vocabulary.encode_batch([line.text for line in lines])
        prefixes = self.encoded_prefixes(lines) or [None] * len(lines)
        most = self.max_source - 1
        both = list(zip(lines, encoded, strict=True))
        long = [line.place for line, tokens in both if len(tokens) > most]
        warn(long, f"expected at most {most:,} tokens; translated the first {most:,} only")
        strange = [line.place for line, tokens in both if self._unknown(tokens)]
        warn(strange, "expected text that the vocabulary has pieces for, found none")
        each = zip(lines, encoded, prefixes, strict=True)
        return [Sentence(line, tokens[:most], prefix) for line, tokens, prefix in each]

    def written(self, sentence: Sentence, found: Sequence[Hypothesis]) -> list[Translation]:
        """Return the translations of a line, best first, or its samples as they were drawn.

        Their texts are distinct, except those of samples, and at most `n_best`, or all of the beam
        to choose from by minimum Bayes risk. Log P counts the prefix.
        """
        outputs, request = self._translations(found), sentence.line.request
        if request.samples:
            return outputs[: request.samples]
        return distinct(outputs)[: None if request.mbr else request.n_best]

    def with_token_log_probs(self, items: Sequence[tuple[str, Translation]]) -> list[Translation]:
        """Return the translations, each given with its line, with log P of each of their tokens."""
        sources = self.vocabulary.encode_batch([line for line, _ in items])
        sources = [tokens[: self.max_source - 1] for tokens in sources]
        targets = [list(translation.tokens[:-1]) for _, translation in items]
        scored = [translation for _, translation in items]
        for rows, log_probs in self.map_batches(
            self.token_log_probs_of, self.batches.of(sources, targets)
        ):
            for i, own in zip(rows, log_probs, strict=False):
                count = scored[i].num_tokens
                scored[i] = replace(scored[i], token_log_probs=tuple(own[:count].tolist()))
        return scored

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], first: int | None = 1, each: int = 1
    ) -> list[PairScore | None]:
        """Return log P(target | source) of each pair; None if a side is blank or target too long.

        A source that is too long is cut, as in translation; a warning names it, and long targets.
        first: the number of the first pair in its files, for messages; None for lists. each: how
          many pairs in a row have the same line of the source's file.
        Raises InputError if the model's scores are not finite.
        """
        sources = self.vocabulary.encode_batch([source for source, _ in pairs])
        targets = self.target_vocabulary.encode_batch([target for _, target in pairs])
        most_source, most_target = self.max_source - 1, self.max_target - 1
        of_source = places("sources", "source line", len(pairs), first)
        if first is not None:
            numbers = range(first - 1, first - 1 + len(pairs))
            of_source = [f"source line {number // each + 1}" for number in numbers]
        both = zip(of_source, sources, strict=True)
        long = dict.fromkeys(place for place, ids in both if len(ids) > most_source)
        used = f"used the first {most_source:,} only"
        warn([*long], f"expected at most {most_source:,} tokens; {used}")
        named = places("targets", "target line", len(pairs), first)
        long = [place for place, ids in zip(named, targets, strict=True) if len(ids) > most_target]
        warn(long, f"expected at most {most_target:,} tokens; gave no score")
        both = [
            (source[:most_source], target)
            if source and 0 < len(target) <= most_target
            else ([], [])
            for source, target in zip(sources, targets, strict=True)
        ]
        results: list[PairScore | None] = [None] * len(pairs)
        failed: list[int] = []
        self.advance(both.count(([], [])))
        sides = [source for source, _ in both], [target for _, target in both]
        for rows, totals in self.map_batches(self.score_of, self.batches.of(*sides)):
            self.advance(len(rows))
            for row, total in zip(rows, totals, strict=False):
                results[row] = PairScore(float(total), len(both[row][1]) + 1)
                if not np.isfinite(total):
                    failed.append(row)
        if failed:
            raise not_finite(of_source[min(failed)], "a score")
        return results

    def _unknown(self, tokens: list[int]) -> bool:
        """Return True if the pieces of a line are UNK and spaces alone."""
        unk_id, texts = self.vocabulary.unk_id, self.vocabulary.piece_texts
        return unk_id in tokens and all(i == unk_id or texts[i] == " " for i in tokens)

    def encoded_prefixes(self, lines: Sequence[Line]) -> list[Prefix] | None:
        """Return each line's prefix, or None if all are blank; refuse those that do not fit."""
        if not any(line.prefix for line in lines):
            return None
        most, vocabulary = self.max_target - 1, self.target_vocabulary
        if any(line.request.inside_word for line in lines) and vocabulary.continuations is None:
            raise InputError(
                "inside_word: expected a vocabulary of sentencepiece, found one in which the last "
                "piece of a word ends it, so that no output can continue it; remove inside_word"
            )
        encoded = vocabulary.encode_batch([line.prefix for line in lines])
        for line, tokens in zip(lines, encoded, strict=True):
            text = f"expected at most {most:,} tokens, found {len(tokens):,}; make it shorter"
            if vocabulary.unk_id in tokens:
                letters = dict.fromkeys(normalize("NFC", line.prefix))
                letters = [each for each in letters if not each.isspace()]
                unknown = "".join(each for each in letters if not vocabulary.knows(each))
                text = f"expected letters of the vocabulary, found the unknown letters {unknown}"
                if not unknown:  # the tokens are whole words
                    words = line.prefix.split()
                    words = [word for word in words if vocabulary.unk_id in vocabulary.encode(word)]
                    shown = " ".join(words) or line.prefix
                    text = f"expected words of the vocabulary, found {shown}"
            elif len(tokens) <= most:
                continue
            raise InputError(f"prefix of {line.place}: {text}")
        ends = map(ends_in_word, vocabulary.decode_batch(encoded))
        both = zip(encoded, ends, strict=True)
        return [Prefix(*each) for each in both] if any(encoded) else None

    def _translations(self, found: Sequence[Hypothesis]) -> list[Translation]:
        """Return the translations of one line."""
        vocabulary = self.target_vocabulary
        tokens = [ids[: ids.index(vocabulary.eos_id) + 1] for ids, _, _ in found]
        texts = vocabulary.decode_batch(tokens)
        return [
            Translation(text, each.score, each.log_prob, len(own), tuple(own))
            for text, each, own in zip(texts, found, tokens, strict=True)
        ]
