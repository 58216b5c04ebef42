"""The words of the demo grammar, read from lexicon.toml, and their inflection.

The file has what rules cannot derive (gender, plural, principal parts); the classes derive the
rest.
"""

import tomllib
from dataclasses import dataclass
from enum import IntEnum
from importlib.resources import files

DATA = tomllib.loads(files(__package__ or "").joinpath("lexicon.toml").read_text("utf-8"))
NAMES: dict[str, str] = {
    name: gender for gender, names in DATA["names"].items() for name in names.split()
}


class Case(IntEnum):
    """An index into German forms."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


def ending(paradigm: str, agreement: str, case: int) -> str:
    """Return the German ending of a determiner or an adjective.

    agreement: m, f, n or plural.
    """
    return DATA["endings"][paradigm][agreement].split()[case].replace("0", "")


def kinds_of(text: str) -> frozenset[str]:
    """Return kinds of noun, with the groups among them resolved."""
    groups = DATA["groups"]
    parts = (kinds_of(groups[word]) if word in groups else {word} for word in text.split())
    return frozenset().union(*parts)


@dataclass(frozen=True)
class Noun:
    """A noun; its kind is what verbs and adjectives select."""

    english: str
    german: str
    genitive: str
    plural: str  # German; empty for substances
    gender: str  # m, f, n
    kind: str

    @property
    def english_plural(self) -> str:
        """The English plural: "dogs", "kitchen knives"."""
        *modifiers, head = self.english.split()
        return " ".join([*modifiers, DATA["irregular_plurals"].get(head) or _with_s(head)])

    def decline(self, plural: bool) -> tuple[str, str, str, str]:
        """Return the German forms by case."""
        if plural:
            dative = self.plural if self.plural[-1] in "ns" else self.plural + "n"
            return (self.plural, self.plural, dative, self.plural)
        # Weak masculines (der Junge, den Jungen) end in -n everywhere but in the nominative.
        weak = self.gender == "m" and self.genitive == self.plural and self.genitive[-1] == "n"
        oblique = self.genitive if weak else self.german
        return (self.german, oblique, oblique, self.genitive)


@dataclass(frozen=True)
class Adjective:
    """An adjective, its German stem (ein teures Auto), and the kinds of noun it describes."""

    german: str
    stem: str
    kinds: frozenset[str]


@dataclass(frozen=True)
class Verb:
    """A verb with its principal parts, the kinds of noun around it, and its government."""

    name: str  # "see", "call up", "wait for"
    frame: str  # the table it stands in: transitive, motion ...
    english: tuple[str, ...]  # base, past, participle
    particle: str  # "up" in "call up"
    preposition: str  # "for" in "wait for"
    german: tuple[str, ...]  # infinitive, third person present and past; without prefix
    prefix: str  # separable: "auf" in "aufstehen"
    participle: str  # "aufgestanden"
    auxiliary: str  # of the perfect: "haben" or "sein"
    subjects: frozenset[str]
    objects: frozenset[str]
    german_preposition: str  # "auf" in "auf den Bus warten"
    case: Case  # of the object

    @property
    def infinitive(self) -> str:
        """The German infinitive: "aufstehen"."""
        return self.prefix + self.german[0]

    @property
    def zu_infinitive(self) -> str:
        """The German infinitive with "zu": "aufzustehen", "zu gehen"."""
        return f"{self.prefix}zu{self.german[0]}" if self.prefix else f"zu {self.german[0]}"

    def conjugate(self, person: int, plural: bool, past: bool = False) -> str:
        """Return the German finite form without its separable prefix; "ihr" is not supported."""
        infinitive, third, preterite = self.german
        if past and plural:
            return preterite + ("n" if preterite.endswith("e") else "en")
        if past:
            return _with_st(preterite) if person == 2 else preterite
        if infinitive in DATA["irregular_present"]:
            return DATA["irregular_present"][infinitive].split()[3 if plural else person - 1]
        if plural:
            return infinitive
        if person == 1:
            return infinitive.removesuffix("n").removesuffix("e") + "e"
        return _with_st(third.removesuffix("t")) if person == 2 else third

    @property
    def imperative(self) -> str:
        """The German imperative to one friend, without its separable prefix: "öffne", "gib"."""
        infinitive, third, _ = self.german
        if "i" in third and "i" not in infinitive:  # essen, isst
            return third.removesuffix("t")
        return self.conjugate(1, plural=False)

    @property
    def third_person(self) -> str:
        """The English third person: "goes", "carries", "sees"."""
        return _with_s(self.english[0])

    @property
    def gerund(self) -> str:
        """The English gerund: "going", "coming", "running"."""
        base = self.english[0]
        stem = base[:-1] if base.endswith("e") and base[-2] != "e" else base
        return DATA["gerunds"].get(base, stem + "ing")


def _with_s(word: str) -> str:
    """Make an English plural or third person: dogs, buses, goes, stories."""
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "sh", "ch", "go")) else "s")


def _with_st(stem: str) -> str:
    """Make a German second person: du gehst, du liest, du sitzt."""
    return stem + ("t" if stem[-1] in "sßz" else "st")


def _nouns() -> dict[str, Noun]:
    nouns: dict[str, Noun] = {}
    for kind, table in DATA["nouns"].items():
        for english, entry in table.items():
            singular, genitive, plural = [*entry.split(", "), ""][:3]
            article, german = singular.split()
            gender = {"der": "m", "die": "f", "das": "n"}[article]
            nouns[english] = Noun(english, german, genitive, plural, gender, kind)
    for modifier, entry in DATA["compounds"].items():
        linked, heads = entry.split(": ")
        for head in (nouns[word] for word in heads.split()):
            german, genitive = linked + head.german.lower(), linked + head.genitive.lower()
            plural = linked + head.plural.lower() if head.plural else ""
            english = f"{modifier} {head.english}"
            nouns[english] = Noun(english, german, genitive, plural, head.gender, head.kind)
    return nouns


def _adjective(entry: str) -> Adjective:
    forms, kinds = entry.split("; ")
    german, _, stem = forms.partition(", ")
    return Adjective(german, stem.rstrip("-") or german, kinds_of(kinds))


def _verb(frame: str, key: str, entry: str) -> Verb:
    *english, word = [*key.split(", "), ""][:4]
    forms, subjects, objects, government = [*entry.split("; "), "", ""][:4]
    infinitive, present, preterite, perfect = forms.split(", ")
    prefix, _, bare = infinitive.rpartition("|")
    auxiliary, participle = perfect.split()
    *preposition, case = (government or "accusative").split()
    return Verb(
        name=f"{english[0]} {word}".strip(),
        frame=frame,
        english=tuple(english),
        particle="" if government else word,
        preposition=word if government else "",
        german=(bare, present.split()[0], preterite.split()[0]),
        prefix=prefix,
        participle=participle,
        auxiliary={"hat": "haben", "ist": "sein"}[auxiliary],
        subjects=kinds_of(subjects),
        objects=kinds_of(objects),
        german_preposition="".join(preposition),
        case=Case[case.upper()],
    )


NOUNS = _nouns()
ADJECTIVES = {english: _adjective(entry) for english, entry in DATA["adjectives"].items()}
VERBS: dict[str, dict[str, Verb]] = {
    frame: {verb.name: verb for verb in (_verb(frame, *row) for row in table.items())}
    for frame, table in DATA["verbs"].items()
}
AUXILIARIES = {v.infinitive: v for v in (VERBS["auxiliary"] | VERBS["copula"]).values()}
