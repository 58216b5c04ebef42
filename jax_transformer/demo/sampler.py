"""Random phrases and clauses of the demo grammar: which words stand in which construction."""

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from jax_transformer.demo import phrases
from jax_transformer.demo.clauses import MODALS, Clause, relative_clause
from jax_transformer.demo.lexicon import (
    ADJECTIVES,
    DATA,
    NAMES,
    NOUNS,
    VERBS,
    Case,
    Verb,
    kinds_of,
)
from jax_transformer.demo.phrases import Constituent, Field, NounPhrase, gap
from jax_transformer.parsing.ptb import parse_tree

T = TypeVar("T")

# Weights.
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
DEFINITE = {"the": 1}
SINGULAR = {"the": 63, "a": 25, "this": 7, "every": 2, "no": 3}
PLURAL = {"the": 45, "": 22, "these": 9, "all": 7, "many": 7, "two": 4, "three": 3, "no": 3}
SUBSTANCE = {"the": 55, "": 45}
TENSES = {"present": 36, "past": 22, "perfect": 12, "progressive": 8, "will": 7, "can": 5,
          "must": 5, "want": 5}  # fmt: skip
# Frames of verbs that say what happens, and of those that say how things are.
ACTIONS = {"intransitive": 16, "transitive": 40, "ditransitive": 10, "motion": 8, "position": 7}
FRAMES = {**ACTIONS, "stative": 12, "copula": 20}

PERSON, LIVING, POSSESSED = (kinds_of(name) for name in ("person", "living", "possessed"))
PLACES = frozenset(DATA["places"])


@cache
def nouns_of(kinds: frozenset[str]) -> list[str]:
    """The nouns of these kinds, and those that are named themselves."""
    return [noun.english for noun in NOUNS.values() if {noun.kind, noun.english} & kinds]


@cache
def adjectives_of(kind: str) -> list[str]:
    """The adjectives that describe a kind of noun."""
    return [word for word, entry in ADJECTIVES.items() if kind in entry.kinds]


@cache
def verbs_of(frame: str, tense: str = "", subject: str = "") -> list[Verb]:
    """The verbs of a frame that take a tense and a kind of subject (empty: any)."""
    return [
        verb
        for verb in VERBS[frame].values()
        if (not subject or subject in verb.subjects)
        # "They put it on": now or then?
        and not (tense == "past" and verb.english[0] == verb.english[1])
        and not (tense == "want" and not verb.subjects <= LIVING)
        and not (frame in ("stative", "copula") and tense not in ("", "present", "past"))
    ]


@cache
def verbs_with_object(kinds: frozenset[str]) -> list[Verb]:
    """The verbs that take an object of one of these kinds, without a preposition."""
    transitive = VERBS["transitive"].values()
    return [verb for verb in transitive if verb.objects & kinds and not verb.preposition]


class Sampler:
    """Draws words and constructions; the same for the same seed everywhere."""

    def __init__(self, seed: int) -> None:
        # random() is the one method that draws the same in all versions of Python.
        self._random = Random(seed).random
        # (construction, word) of what was drawn.
        self.combinations: set[tuple[str, str]] = set()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, all as probable."""
        return items[int(self._random() * len(items))]

    def weighted(self, weights: Mapping[T, int]) -> T:
        """One of the keys, in proportion to its weight."""
        return self.pick([item for item, weight in weights.items() for _ in range(weight)])

    def use(self, construction: str, word: str) -> None:
        """Note that a word stands in a construction."""
        self.combinations.add((construction, word))

    # ---------------------------------------------------------------------------- noun phrases

    def nominal(self, role: str, kinds: frozenset[str], definite: bool = False) -> NounPhrase:
        """A noun with determiner or owner, and perhaps an adjective."""
        noun = NOUNS[self.pick(nouns_of(kinds))]
        self.use(role, noun.english)
        plural = bool(noun.plural) and self.chance(0.25)
        adjective = ""
        if adjectives_of(noun.kind) and self.chance(0.3):
            adjective = self.pick(adjectives_of(noun.kind))
            self.use("attributive adjective", adjective)
        determiners = SUBSTANCE if not noun.plural else PLURAL if plural else SINGULAR
        determiner = self.weighted(DEFINITE if definite else determiners)
        if {noun.kind, noun.english} & POSSESSED:
            if self.chance(0.08):
                return phrases.possessive(self.owner(), noun.english, adjective, plural)
            if self.chance(0.3):
                determiner = self.pick(POSSESSIVES)
        return phrases.noun_phrase(determiner, noun.english, adjective, plural)

    def owner(self) -> NounPhrase:
        """ "Anna", "the king", before "'s"."""
        if self.chance(0.5):
            return phrases.proper_name(self.pick(NAMES))
        return self.nominal("owner", PERSON, definite=True)

    def person(self, subject: NounPhrase | None = None) -> NounPhrase:
        """A pronoun or a name; as an object not "me" after the subject "I"."""
        if self.chance(0.45):
            return phrases.proper_name(self.pick(NAMES))
        while True:
            found = phrases.pronoun(self.pick(list(DATA["pronouns"])))
            if not subject or found.person == 3 or found.person != subject.person:
                return found

    def subject(
        self, kinds: frozenset[str], definite: bool = False, relative: bool = False
    ) -> NounPhrase:
        """A subject, perhaps with a relative clause."""
        if "person" in kinds and self.chance(0.42):
            return self.person()
        phrase = self.nominal("subject", kinds, definite)
        return self.maybe_relative(phrase) if relative else phrase

    def maybe_relative(self, head: NounPhrase) -> NounPhrase:
        """The phrase or "the man who sleeps", "the book that he reads"."""
        if not head.definite or not self.chance(0.2):
            return head
        if head.kind in LIVING and self.chance(0.5):
            c = self.clause("subject relative", gap(head.kind, head.plural))
            return relative_clause(head, c, "subject")
        verbs = verbs_with_object(frozenset({head.kind}))
        if not verbs:
            return head
        c = self.clause_without_object("object relative", verbs)
        return relative_clause(head, c, "object")

    # -------------------------------------------------------------- adverbials and complements

    def adverbial(self, group: str, field: Field) -> Constituent:
        """How or when, of a table of adverbials."""
        tree, german = self.pick(list(DATA["adverbials"][group].items()))
        return Constituent(parse_tree(tree), german, field)

    def time(self, tense: str) -> Constituent:
        """When, in words that go with the tense."""
        group = "future" if tense in MODALS else tense
        return self.adverbial(group if group in DATA["adverbials"] else "present", Field.TIME)

    def place(self, kinds: frozenset[str] = PLACES, direction: bool = False) -> Constituent:
        """ "in the garden" with a German dative; a direction, "into ...", with an accusative."""
        role = "direction" if direction else "location"
        phrase = self.nominal(role, kinds & PLACES, definite=True)
        where, whither, german = self.pick(DATA["places"][phrase.kind].split(", ")).split()
        if direction:
            return phrases.prepositional(whither, german, Case.ACCUSATIVE, phrase, Field.PREDICATE)
        return phrases.prepositional(where, german, Case.DATIVE, phrase, Field.PLACE)

    def adverbials(self, verb: Verb, tense: str) -> list[Constituent]:
        """How, where and when, at the end of the English clause."""
        found = []
        if verb.frame in ("intransitive", "transitive") and not verb.preposition:
            found += [self.adverbial("manner", Field.MANNER)] if self.chance(0.12) else []
            found += [self.place()] if self.chance(0.15) else []
        if verb.frame in ACTIONS and self.chance(0.15):
            found += [self.time(tense)]
        return found

    def complements(
        self, verb: Verb, subject: NounPhrase, negated: bool, relative: bool
    ) -> list[Constituent]:
        """What the verb's frame demands; with "nicht", objects are definite."""
        if verb.frame == "motion":
            return [self.place(direction=True)]
        if verb.frame == "position":
            return [self.place(verb.objects)]
        if verb.frame == "copula":
            adjective = self.pick(adjectives_of(subject.kind))
            self.use("predicative adjective", adjective)
            return [phrases.predicate_adjective(adjective)]
        if verb.frame == "ditransitive":
            thing = phrases.direct_object(verb, self.nominal("object", verb.objects, negated))
            known = self.chance(0.4)
            one = self.person(subject) if known else self.nominal("receiver", PERSON, True)
            if self.chance(0.3):
                return [thing, phrases.receiver(one, "to")]
            return [phrases.receiver(one), thing]
        if not verb.objects:
            return []
        if "person" in verb.objects and self.chance(0.35):
            return [phrases.direct_object(verb, self.person(subject))]
        phrase = self.nominal(f"{verb.case.name.lower()} object", verb.objects, negated)
        return [phrases.direct_object(verb, self.maybe_relative(phrase) if relative else phrase)]

    # --------------------------------------------------------------------------------- clauses

    def clause(
        self,
        construction: str,
        subject: NounPhrase | None = None,
        tenses: Mapping[str, int] = TENSES,
        frames: Mapping[str, int] = FRAMES,
        relative: bool = False,
    ) -> Clause:
        """A clause whose verb stands in a construction; with a given subject it is positive."""
        verbs: list[Verb] = []
        while not verbs:
            tense = self.weighted(tenses)
            verbs = verbs_of(self.weighted(frames), tense, subject.kind if subject else "")
        verb = self.pick(verbs)
        # "Must not" is "darf nicht", and "cannot" is one word.
        negated = not subject and tense not in ("must", "can") and self.chance(0.12)
        subject = subject or self.subject(verb.subjects, negated, relative)
        self.use(construction, verb.name)
        if negated or tense in MODALS:
            self.use("negation" if negated else tense, verb.name)
        adverbials = self.adverbials(verb, tense)
        parts = self.complements(verb, subject, negated, relative and not adverbials)
        return Clause(subject, verb, (*parts, *adverbials), tense, negated)

    def clause_without_object(self, construction: str, verbs: Sequence[Verb]) -> Clause:
        """ "he reads", of a book that is named elsewhere."""
        verb, tense = self.pick(verbs), self.weighted(TENSES)
        if verb not in verbs_of("transitive", tense):
            tense = "present"
        self.use(construction, verb.name)
        return Clause(self.subject(verb.subjects), verb, (), tense)
