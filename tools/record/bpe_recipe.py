"""What subword-nmt, fairseq and Hugging Face's FSMTTokenizer make of text."""

# ruff: noqa: RUF001

import io
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastBPE  # pyright: ignore[reportMissingImports]
from fairseq.data import Dictionary  # pyright: ignore[reportMissingImports]
from fairseq.data.encoders.moses_tokenizer import (  # pyright: ignore[reportMissingImports]
    MosesTokenizer,
    MosesTokenizerConfig,
)
from subword_nmt.apply_bpe import BPE  # pyright: ignore[reportMissingImports]
from subword_nmt.learn_bpe import learn_bpe  # pyright: ignore[reportMissingImports]
from transformers import FSMTTokenizer  # pyright: ignore[reportMissingImports]

from jax_transformer.demo import sentence_pairs

MERGES = 400
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
FSMT_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL)))

# Text that shows the rules: each line has something that one of the programs treats in its own way.
ODD_LINES = [
    "",
    " ",
    "a",
    "A b.",
    "He said: “It's the dogs' home – isn't it?”",
    "Mr. Smith paid $1,234.56 (about 1 100 €) on Jan. 5, at 10:30 a.m. in St. Ives.",
    "It is No. 7 of p. 12, e.g. the U.S. version, i.e. ours.",
    "Well-known co-operation: twenty-one state-of-the-art e-mails...",
    "wait... what?! no.... yes..",
    "Write to jo.doe@example.com or see https://example.com/a-b?c=d&e=f#g.",
    "Fish & chips | <b>bold</b> [1] {2} `code` ''quoted'' \"double\"",
    "&amp; &lt;s&gt; &apos; &#124; stay as they are",
    "</s> <s> <pad> <unk> are only text here",
    "@-@ and @@ and lo@@ w</w> and low</w>",
    "DOTMULTI THISISPROTECTED000 .DOT",
    "L'école, c'est l'affaire de tous : « aujourd'hui » ; n'est-ce pas ?",
    "Il ya 20 % d'élèves et 1 000 000 de raisons…",
    "Die Straße „Unter den Linden“ – schön, nicht wahr?",
    "Das ist z. B. am 3. Okt. d. J. um 8.15 Uhr, ca. 3,5 km weit.",
    "Größe: 180 cm, Gewicht: 80 kg; Preis 12.345,67 €.",
    "Он сказал: «Это — не то». Г-н Иванов и т. д.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy, je-li to tak.",
    "Máš-li čas, pošli e-mail; 3 , 14 je pí.",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία.",
    "中文没有空格，对吗？「是的」。１２３％",
    "日本語のテキスト、そして３．５パーセント。",
    "한국어 문장입니다.",
    "हिन्दी का एक वाक्य।",
    "مرحبا بالعالم، كيف حالك؟",
    "עברית מימין לשמאל.",
    "Tiếng Việt có nhiều dấu.",
    "emoji 🙂👍🏽 and 👩‍👩‍👧 with joiners",
    "no-break\u00a0space, thin\u2009space, wide\u3000space, narrow\u202f%",
    "zero\u200bwidth and soft\u00adhyphen and \ufeffmark and \u200eleft\u200f",
    "tab\there, line\u2028separator, next\u0085line, unit\u001fseparator, bell\u0007",
    "combining e\u0301 and composed é, ligature ﬁne, İstanbul ıI, ŒUVRE ǅ",
    "𝒎𝒂𝒕𝒉 letters and \U0010fffd and \ue000 private",
    "x" * 60,
    "aaaa aaaaa abababab cccccccc",
    "lowlowlow newest widest slower sloooow",
    "1234567890 12345,678 1,2,3 1.2.3 -5 +5 5- 5%",
    "#hashtag @handle 50/50 and/or C++ C# .NET a_b",
    "¿Qué? ¡No! 'single' ‘curly’ ‚low‘ ´accent´ `grave`",
    "James' book, James's book, rock 'n' roll, the '90s, o'clock, 5'",
    'She answered "yes," and "no". Then: "maybe..."',
    "ALL CAPS HEADLINE, Title Case Words, mIxEd cAsE",
    "Dr. med. Prof. Ing. usw. bzw. etc. vs. approx.",
    "(a) first; (b) second: [c] third / fourth",
    "end with apostrophe'",
    "end with dots..'",
    'end with quote."',
    "' starts",
    '"starts',
    "a - b – c — d -- e --- f",
    "  two  spaces   inside  ",
]
OUTPUTS = [
    "It is n@@ &apos;t the dog &apos;s home , is it ? &quot; yes &quot;",
    "a well @-@ known fact @-@ b &lt; c &amp; d &#124; e &#91; 1 &#93;",
    "lo@@ lo@@",
    "<unk> lo@@ <unk> w",
    "$ 5 and € 3 ( see &quot; this &quot; ) ; 20 %",
    "l &apos; ami d &apos; ecole ? oui !",
    "je-li ten &apos; – li nebo b&apos; - mail",
    "中 文 text 中文",
]


def lines() -> list[str]:
    """Return the lines that are recorded: odd ones, and sentences of the demo."""
    return ODD_LINES + [side for pair in sentence_pairs("test")[:60] for side in pair]


def learned_codes(text: Sequence[str]) -> str:
    """Return the merges that subword-nmt learns from text, as a file of version 0.2."""
    out = io.StringIO()
    learn_bpe(io.StringIO("\n".join(text) + "\n"), out, MERGES)
    return out.getvalue()


def training_text() -> list[str]:
    """Return tokens of the demo and of the odd lines, so that all scripts have merges."""
    tokenizer = MosesTokenizer(MosesTokenizerConfig())
    demo = [side for pair in sentence_pairs("train")[:1500] for side in pair]
    return [tokenizer.encode(line) for line in demo + ODD_LINES * 3]


def subword_nmt(codes: str, text: Sequence[str]) -> list[str]:
    """Return what subword-nmt makes of words between spaces."""
    bpe = BPE(io.StringIO(codes))
    return [bpe.process_line(line) for line in text]


def counted(codes: str) -> str:
    """Return the merges of a file of version 0.2 as fastBPE writes them, with counts."""
    merges = codes.splitlines()[1:]
    return "".join(f"{merge} {len(merges) - i}\n" for i, merge in enumerate(merges))


def fast_bpe(codes: str, text: Sequence[str]) -> list[str]:
    """Return what fastBPE makes of words between spaces; codes: with counts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bpecodes"
        path.write_text(codes, encoding="utf-8")
        return fastBPE.fastBPE(str(path)).apply(list(text))


def fairseq_moses(text: Sequence[str], language: str) -> list[str]:
    """Return what fairseq's --tokenizer moses makes of text."""
    tokenizer = MosesTokenizer(MosesTokenizerConfig(source_lang=language))
    return [tokenizer.encode(line) for line in text]


def fairseq_text(pieces: Sequence[str], language: str) -> list[str]:
    """Return the text that fairseq makes of output pieces, with its sign for UNK replaced."""
    tokenizer = MosesTokenizer(MosesTokenizerConfig(target_lang=language))
    words = [(line + " ").replace("@@ ", "").rstrip() for line in pieces]
    return [tokenizer.decode(line.replace("<unk>", "\u2047")) for line in words]


def fairseq_ids(codes: str, pieces: Sequence[str], tokens: Sequence[str]) -> list[list[int]]:
    """Return the ids that fairseq gives to tokenized lines, without EOS."""
    dictionary = Dictionary()
    for piece in pieces:
        dictionary.add_symbol(piece)
    lines = subword_nmt(codes, tokens)
    options = {"add_if_not_exist": False, "append_eos": False}
    return [dictionary.encode_line(line, **options).tolist() for line in lines]


def fsmt_tokenizer(codes: str, pieces: dict[str, int], languages: list[str], **options: Any) -> Any:
    """Return Hugging Face's tokenizer of these merges and pieces."""
    with tempfile.TemporaryDirectory() as folder:
        merges, vocabulary = Path(folder) / "merges.txt", Path(folder) / "vocab.json"
        merges.write_text(codes, encoding="utf-8")
        vocabulary.write_text(json.dumps(pieces), encoding="utf-8")
        files = {"src_vocab_file": str(vocabulary), "tgt_vocab_file": str(vocabulary)}
        return FSMTTokenizer(langs=languages, merges_file=str(merges), **files, **options)


def fsmt_pieces(codes: str) -> dict[str, int]:
    """Return pieces as Hugging Face spells them, those that text of the merges gives first."""
    names = list(SPECIAL)
    for text in training_text():
        for piece in subword_nmt(codes, [text])[0].split():
            spelled = piece[:-2] if piece.endswith("@@") else piece + "</w>"
            names.append(spelled)
    return {name: index for index, name in enumerate(dict.fromkeys(names))}


def fsmt_ids(tokenizer: Any, text: Sequence[str]) -> list[list[int]]:
    """Return ids as the model gets them, with text that spells a special piece kept as text."""
    return [tokenizer.convert_tokens_to_ids(tokenizer._tokenize(line)) for line in text]


def fsmt_text(tokenizer: Any, ids: Sequence[Sequence[int]]) -> list[str]:
    """Return the text of ids without special pieces."""
    return [tokenizer.decode(row, skip_special_tokens=True) for row in ids]


def record() -> dict[str, Any]:
    """Return text, codes and pieces, and what each program makes of them."""
    text, codes = lines(), learned_codes(training_text())
    merges = codes.split("\n", 1)[1]
    found: dict[str, Any] = {"lines": text, "codes": codes, "outputs": OUTPUTS}
    tokens = {language: fairseq_moses(text, language) for language in ("en", "de", "fr", "ru")}
    found["tokens"] = tokens
    found["text"] = {language: fairseq_text(OUTPUTS, language) for language in ("en", "de", "fr")}
    found["subword_nmt"] = {
        "0.2": subword_nmt(codes, tokens["en"]),
        "0.1": subword_nmt(codes.replace("0.2", "0.1", 1), tokens["en"]),
        "none": subword_nmt(merges, tokens["en"]),
        "words": subword_nmt(codes, [line.replace("\n", " ") for line in text]),
    }
    dictionary = list(dict.fromkeys(" ".join(found["subword_nmt"]["0.2"][60:]).split()))
    found["dictionary"] = dictionary
    found["fairseq_ids"] = fairseq_ids(codes, dictionary, tokens["en"])
    found["fastbpe"] = fast_bpe(counted(codes), tokens["en"])
    pieces = fsmt_pieces(codes)
    found["pieces"] = list(pieces)
    for name, languages, lower in (("ende", ["en", "de"], False), ("fren", ["fr", "en"], True)):
        tokenizer = fsmt_tokenizer(merges, pieces, languages, do_lower_case=lower)
        ids = fsmt_ids(tokenizer, text)
        found[f"fsmt_{name}"] = {"ids": ids, "text": fsmt_text(tokenizer, ids)}
    return found
