"""Random phrases and clauses of the demo grammar: which words stand in which construction."""

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from jax_transformer.demo import clauses, lexicon, phrases
from jax_transformer.demo.clauses import Clause
from jax_transformer.demo.lexicon import DATA, NOUNS, Case, Verb, kinds_of
from jax_transformer.demo.phrases import Constituent, Field, NounPhrase, gap

T = TypeVar("T")

# Weights.
POSSESSIVES = {"my": 7, "your": 4, "his": 5, "her": 5, "our": 4, "their": 4}
DEFINITE = {"the": 60, **POSSESSIVES}
SINGULAR = {"the": 44, "a": 20, "this": 6, "every": 2, "no": 2, **POSSESSIVES}
PLURAL = {"the": 32, "": 18, "these": 8, "all": 6, "many": 6, "two": 5, "three": 4, "no": 3,
          **POSSESSIVES}  # fmt: skip
SUBSTANCE = {"the": 50, "": 40, "my": 5}
TENSES = {"present": 36, "past": 22, "perfect": 12, "progressive": 8, "will": 7, "can": 5,
          "must": 5, "want": 5}  # fmt: skip
# Frames of verbs that say what happens, and of those that say how things are.
ACTIONS = {"intransitive": 16, "transitive": 40, "ditransitive": 10, "motion": 8, "position": 7}
FRAMES = {**ACTIONS, "stative": 12, "copula": 20}

PERSON, LIVING, POSSESSED = (kinds_of(name) for name in ("person", "living", "possessed"))


@cache
def nouns_of(kinds: frozenset[str]) -> list[str]:
    """The nouns of these kinds, and those that are named themselves."""
    return [noun.english for noun in NOUNS.values() if {noun.kind, noun.english} & kinds]


@cache
def adjectives_of(kind: str) -> list[str]:
    """The adjectives that describe a kind of noun."""
    return [word for word, entry in lexicon.ADJECTIVES.items() if kind in entry.kinds]


@cache
def verbs_of(frame: str, subject: str = "", object_: str = "", tense: str = "") -> list[Verb]:
    """The verbs of a frame that take these kinds of subject and object (empty: any) and a tense."""
    return [
        verb
        for verb in lexicon.VERBS[frame].values()
        if (not subject or subject in verb.subjects)
        and (not object_ or object_ in verb.objects)
        # "They put it on": now or then?
        and not (tense == "past" and verb.english[0] == verb.english[1])
        and not (tense == "want" and not verb.subjects <= LIVING)
        and not (frame in ("stative", "copula") and tense not in ("", "present", "past"))
    ]


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
        point = self._random() * sum(weights.values())
        for item, weight in weights.items():
            point -= weight
            if point < 0:
                return item
        raise AssertionError(point)

    def use(self, construction: str, word: str) -> None:
        """Note that a word stands in a construction."""
        self.combinations.add((construction, word))

    # ---------------------------------------------------------------------------- noun phrases

    def nominal(
        self, role: str, kinds: frozenset[str], definite: bool = False, negated: bool = False
    ) -> NounPhrase:
        """A noun with determiner or owner, and perhaps an adjective.

        Beside "not" an indefinite is "kein".
        """
        noun = NOUNS[self.pick(nouns_of(kinds))]
        plural = bool(noun.plural) and self.chance(0.25)
        adjective = self.maybe_adjective(noun.kind)
        self.use(role, noun.english)
        possessed = bool({noun.kind, noun.english} & POSSESSED)
        if possessed and self.chance(0.08):
            return phrases.possessive(self.owner(), noun.english, adjective, plural)
        indefinite = SUBSTANCE if not noun.plural else PLURAL if plural else SINGULAR
        determiner = self.weighted(DEFINITE if definite else indefinite)
        denied = negated and determiner in ("a", "")
        if (negated and not denied) or (determiner in POSSESSIVES and not possessed):
            determiner = "the"
        return phrases.noun_phrase(determiner, noun.english, adjective, plural, denied)

    def owner(self) -> NounPhrase:
        """ "Anna", "the king", before "'s"."""
        if self.chance(0.5):
            return phrases.proper_name(self.pick(lexicon.NAMES))
        return self.nominal("owner", PERSON, definite=True)

    def maybe_adjective(self, kind: str) -> str:
        """An adjective that fits, or none."""
        adjectives = adjectives_of(kind)
        if not adjectives or not self.chance(0.3):
            return ""
        adjective = self.pick(adjectives)
        self.use("attributive adjective", adjective)
        return adjective

    def person(self, beside: NounPhrase | None = None) -> NounPhrase:
        """A pronoun or a name; as an object not "me" beside "I"."""
        if self.chance(0.45):
            return phrases.proper_name(self.pick(lexicon.NAMES))
        while True:
            found = phrases.pronoun(self.pick(list(DATA["pronouns"])))
            if not beside or found.person == 3 or found.person != beside.person:
                return found

    def subject(
        self, kinds: frozenset[str], definite: bool = False, heavy: bool = False
    ) -> NounPhrase:
        """A subject; a heavy one may have modifiers."""
        if "person" in kinds and self.chance(0.42):
            return self.person()
        phrase = self.nominal("subject", kinds, definite)
        if not heavy or not phrase.definite:
            return phrase
        return self.modified(phrase) if self.chance(0.35) else phrase

    def modified(self, head: NounPhrase) -> NounPhrase:
        """The phrase with a prepositional phrase or a relative clause after it, if one fits."""
        way = self.weighted({"with": 25, "place": 15, "relative": 60})
        if way == "with" and head.kind == "person":
            garment = self.nominal("with", kinds_of("clothing"), definite=True)
            part = phrases.prepositional("with", "mit", Case.DATIVE, garment, Field.MANNER)
            return phrases.modified(head, part.english, part.german)
        if way == "place" and head.kind in LIVING:
            part = self.location()
            return phrases.modified(head, part.english, part.german)
        return self.relative(head)

    def relative(self, head: NounPhrase) -> NounPhrase:
        """ "the man who sleeps", "the bus that he waits for", "the book he reads"."""
        verbs = verbs_of("transitive", object_=head.kind)
        if head.kind in LIVING and self.chance(0.5):
            c = self.clause("subject relative", gap(head.kind, head.plural))
            return clauses.relative_clause(head, c, "subject")
        if not verbs:
            return head
        c = self.clause_without_object("object relative", verbs)
        return clauses.relative_clause(head, c, "object", spoken=self.chance(0.8))

    # -------------------------------------------------------------- adverbials and complements

    def location(self, kinds: frozenset[str] = frozenset(DATA["places"])) -> Constituent:
        """ "in the garden", "under the table", with a dative."""
        phrase = self.nominal("location", kinds & frozenset(DATA["places"]), definite=True)
        english, _, german = self.pick(DATA["places"][phrase.kind].split(", ")).split()
        return phrases.prepositional(english, german, Case.DATIVE, phrase, Field.PLACE)

    def direction(self) -> Constituent:
        """ "into the garden", "under the table", with an accusative."""
        phrase = self.nominal("direction", frozenset(DATA["places"]), definite=True)
        _, english, german = self.pick(DATA["places"][phrase.kind].split(", ")).split()
        return phrases.prepositional(english, german, Case.ACCUSATIVE, phrase, Field.PREDICATE)

    def time(self, tense: str) -> Constituent:
        """When, in words that go with the tense."""
        group = next((word for word in ("past", "perfect") if tense.startswith(word)), "present")
        group = "future" if tense in ("will", "can", "must", "want") else group
        return phrases.time(*self.pick(list(DATA["times"][group].items())))

    def adverbials(self, verb: Verb, tense: str, heavy: bool) -> list[Constituent]:
        """With what, how, where and when, at the end of the English clause."""
        found = []
        if verb.name in DATA["instruments"] and self.chance(0.4):
            self.use("instrument", verb.name)
            tool = self.pick(DATA["instruments"][verb.name].split())
            phrase = phrases.noun_phrase(self.pick(("the", "a")), tool)
            found += [phrases.prepositional("with", "mit", Case.DATIVE, phrase, Field.MANNER)]
        elif verb.frame in ("intransitive", "transitive"):
            if not verb.preposition and self.chance(0.12):
                found += [phrases.manner(self.pick(list(DATA["manners"])))]
            if self.chance(0.2 if heavy else 0.08):
                found += [self.location()]
        if heavy and verb.frame in ACTIONS and self.chance(0.2):
            found += [self.time(tense)]
        return found

    def complements(
        self, verb: Verb, subject: NounPhrase, negated: bool, heavy: bool
    ) -> list[Constituent]:
        """What the verb's frame demands."""
        if verb.frame == "motion":
            return [self.direction()]
        if verb.frame == "position":
            return [self.location(verb.objects)]
        if verb.frame == "copula":
            adjective = self.pick(adjectives_of(subject.kind))
            self.use("predicative adjective", adjective)
            return [phrases.predicate_adjective(adjective)]
        if not verb.objects:
            return []
        if verb.frame == "ditransitive":
            thing = self.nominal("object", verb.objects, negated=negated)
            known = self.chance(0.4)
            one = self.person(subject) if known else self.nominal("receiver", PERSON, True)
            object_ = phrases.direct_object(verb, thing)
            to = self.chance(0.3)
            return (
                [object_, phrases.receiver(one, "to")] if to else [phrases.receiver(one), object_]
            )
        if "person" in verb.objects and self.chance(0.35):
            return [phrases.direct_object(verb, self.person(subject))]
        phrase = self.nominal(f"{verb.case.name.lower()} object", verb.objects, negated=negated)
        if heavy and phrase.definite and self.chance(0.35):
            phrase = self.modified(phrase)
        return [phrases.direct_object(verb, phrase)]

    # --------------------------------------------------------------------------------- clauses

    def clause(
        self,
        construction: str,
        subject: NounPhrase | None = None,
        tenses: Mapping[str, int] = TENSES,
        frames: Mapping[str, int] = FRAMES,
        heavy: bool = False,
    ) -> Clause:
        """A clause whose verb stands in a construction; with a given subject it is positive."""
        verbs: list[Verb] = []
        while not verbs:
            tense = self.weighted(tenses)
            verbs = verbs_of(self.weighted(frames), subject.kind if subject else "", "", tense)
        verb = self.pick(verbs)
        # "Must not" is "darf nicht", and "cannot" is one word.
        negated = not subject and tense not in ("must", "can") and self.chance(0.12)
        subject = subject or self.subject(verb.subjects, negated, heavy)
        self.use(construction, verb.name)
        if tense != "infinitive":
            self.use("negation" if negated else tense, verb.name)
        adverbials = self.adverbials(verb, tense, heavy)
        parts = self.complements(verb, subject, negated, heavy and not adverbials)
        return Clause(subject, verb, (*parts, *adverbials), tense, negated)

    def clause_without_object(self, construction: str, verbs: Sequence[Verb]) -> Clause:
        """ "he reads", of a book that is named elsewhere."""
        verb, tense = self.pick(verbs), self.weighted(TENSES)
        if verb not in verbs_of("transitive", tense=tense):
            tense = "present"
        self.use(construction, verb.name)
        return Clause(self.subject(verb.subjects), verb, (), tense)
