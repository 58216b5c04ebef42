"""The paper's BLEU against Perl: its scripts where they are at hand, else their known answers."""

# Typographic signs are what is tested.
# ruff: noqa: RUF001

import os
import random
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from papineni import bleu_by_hand

from jax_transformer.evaluation.bleu import bleu
from jax_transformer.evaluation.paper_bleu import (
    moses_tokens,
    paper_bleu,
    paper_tokens,
    replace_punctuation,
    split_compounds,
)

# Lines that Perl writes as these, tried with tokenizer.perl of before November 2018.
TOKENIZED = {
    "de": {
        "Hallo, Welt.": "Hallo , Welt .",
        "z.B. 5,300 Mark, 3.5 %": "z.B. 5,300 Mark , 3.5 %",
        "Dr. Ruiz sagt: 'Nein'...": "Dr. Ruiz sagt : &apos; Nein &apos; ...",
        "Er kam am 26. Mai um 12.": "Er kam am 26. Mai um 12.",
        'Das "Ü"-Wort (R&D) [1] <b> a|b': (
            "Das &quot; Ü &quot; -Wort ( R &amp; D ) &#91; 1 &#93; &lt; b &gt; a &#124; b"
        ),
        "E-Mail-Adresse": "E-Mail-Adresse",
        "a\u00a0b\u2009c\x1cd": "a b cd",
        "": "",
        "  ": "",
    },
    "en": {
        "It's 1990's, isn't it?": "It &apos;s 1990 &apos;s , isn &apos;t it ?",
        "Mr. Smith vs. Ms. No. 5": "Mr. Smith vs. Ms. No. 5",
        "the dogs' end.": "the dogs &apos; end .",
    },
    "fr": {"L'homme n'est qu'un roseau.": "L&apos; homme n&apos; est qu&apos; un roseau ."},
}


@pytest.mark.parametrize("language", TOKENIZED)
def test_moses_tokens_equal_those_of_the_perl_script(language):
    for line, expected in TOKENIZED[language].items():
        assert moses_tokens(line, language) == expected


def test_typographic_punctuation_becomes_ascii():
    assert replace_punctuation("“Ja”, ’s… ，（１０％）") == '"Ja", \'s... ,(10%)'
    assert replace_punctuation("„Grüße“ – «so» 5‘") == '„Grüße" – «so» 5‘'


def test_compounds_are_split_at_matches_that_do_not_overlap():
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    # As Perl's s{(\S)-(\S)}{...}g: the b of a-b-c is used up by the first match.
    assert split_compounds("a-b-c-d") == "a ##AT##-##AT## b-c ##AT##-##AT## d"
    assert split_compounds("ab-cd-ef") == "ab ##AT##-##AT## cd ##AT##-##AT## ef"
    assert split_compounds("a--b - -c d-") == "a ##AT##-##AT## -b - -c d-"
    # To Perl the umlaut is two bytes, the first for one match and the second for the other.
    assert split_compounds("a-ü-c") == "a ##AT##-##AT## ü ##AT##-##AT## c"


def test_compounds_are_split_as_by_perl():
    perl = shutil.which("perl")
    if not perl:
        pytest.skip("no perl on this machine")
    choose = random.Random(0)
    lines = ["".join(choose.choices("aé1-- .", k=choose.randint(0, 12))) for _ in range(500)]
    given = "".join(f"{line}\n" for line in lines).encode()
    script = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"
    done = subprocess.run([perl, "-ple", script], input=given, capture_output=True, check=True)
    assert list(map(split_compounds, lines)) == done.stdout.decode().split("\n")[:-1]


REFERENCES = [
    "Der E-Mail-Verkehr, sagte er, sei “sehr schnell” gewesen.",
    "Am 26. Mai kamen z.B. 5,300 Leute ins Rathaus’s Haus…",
    "Die Katze saß den ganzen Tag auf der roten Matte.",
]
HYPOTHESES = [
    'Der E-Mail-Verkehr, sagte er, sei "sehr schnell".',
    "Am 26. Mai kamen z.B. 5,300 Leute in das Haus...",
    "Die Katze saß den Tag auf der Matte!",
]


def test_the_score_equals_the_formula_of_papineni_without_smoothing():
    tokens = [[paper_tokens(x, "de") for x in lines] for lines in (HYPOTHESES, REFERENCES)]
    score = paper_bleu(HYPOTHESES, REFERENCES, "de")
    assert score.score == pytest.approx(bleu_by_hand(*tokens), rel=1e-12)
    assert tokens[0][0].startswith("Der E ##AT##-##AT## Mail ##AT##-##AT## Verkehr , sagte")
    assert paper_bleu(["a b c"], ["a b x"], "de").score == 0  # smoothing would give it some


def test_case_matters_and_typographic_quotes_do_not():
    assert paper_bleu([REFERENCES[2].upper()], [REFERENCES[2]], "de").score == 0
    plain = [line.replace("“", '"').replace("”", '"') for line in REFERENCES]
    assert paper_bleu(plain, REFERENCES, "de").score == pytest.approx(100)
    assert bleu(plain, REFERENCES).score < 99


def test_the_signature_differs_from_that_of_sacrebleu():
    signature = paper_bleu(HYPOTHESES, REFERENCES, "de", bootstrap=20).signature
    assert signature == (
        "paper|nrefs:1|bs:20|seed:12345|case:mixed|eff:no|punct:replaced|tok:moses-de|"
        f"compounds:split|smooth:none|sacremoses:{version('sacremoses')}|"
        f"version:{version('sacrebleu')}"
    )
    assert paper_bleu(HYPOTHESES, REFERENCES, "de").metric != bleu(HYPOTHESES, REFERENCES).metric


@pytest.fixture
def moses() -> Path:
    """The scripts folder of a Moses checkout, named by MOSES_SCRIPTS."""
    folder = os.environ.get("MOSES_SCRIPTS")
    if not folder or not shutil.which("perl"):
        pytest.skip("set MOSES_SCRIPTS to the scripts folder of Moses to compare with its Perl")
    return Path(folder)


def perl(script: Path, text: str, *arguments: str) -> str:
    command = ["perl", str(script), *arguments]
    return subprocess.run(
        command, input=text.encode(), capture_output=True, check=True
    ).stdout.decode()


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("replaced", [False, True])
def test_every_line_of_newstest2014_is_tokenised_as_moses_does(
    moses, newstest2014, language, replaced
):
    lines = lines_of(newstest2014 / f"newstest2014.{language}")
    text = "".join(f"{line}\n" for line in lines)
    if replaced:
        text = perl(moses / "tokenizer" / "replace-unicode-punctuation.perl", text)
        lines = list(map(replace_punctuation, lines))
        assert text.split("\n")[:-1] == lines
    theirs = perl(moses / "tokenizer" / "tokenizer.perl", text, "-l", language, "-q").split("\n")
    # Moses of November 2018 and later splits off every last full stop.
    ours = [moses_tokens(line, language) for line in lines]
    known = [line.removesuffix(".") + " ." if line.endswith(".") else line for line in ours]
    pairs = zip(ours, known, theirs[:-1], strict=True)
    assert [pair for pair in pairs if pair[2] not in pair[:2]] == []


def test_the_score_is_what_the_perl_scripts_print(moses, newstest2014, tmp_path):
    references, choose = lines_of(newstest2014 / "newstest2014.de"), random.Random(1)
    hypotheses = []
    for line in references:
        words = [word for word in line.split() if choose.random() > 0.12]
        words[2:4] = words[2:4][::-1]
        hypotheses.append(" ".join(words).replace("“", '"'))
    paths = []
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        text = "".join(f"{line}\n" for line in lines)
        text = perl(moses / "tokenizer" / "replace-unicode-punctuation.perl", text)
        text = perl(moses / "tokenizer" / "tokenizer.perl", text, "-l", "de", "-q")
        (tmp_path / "split.perl").write_text(
            r"while (<STDIN>) { s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g; print }", encoding="utf-8"
        )
        text = perl(tmp_path / "split.perl", text)
        paths.append(tmp_path / name)
        paths[-1].write_text(text, encoding="utf-8")
    given = paths[0].read_text(encoding="utf-8")
    printed = perl(moses / "generic" / "multi-bleu.perl", given, str(paths[1]))
    score = paper_bleu(hypotheses, references, "de")
    assert printed.startswith(f"BLEU = {score.score:.2f}, {score.detail.split(' ')[0]} ")
    assert abs(score.score - bleu(hypotheses, references).score) > 0.1
