"""Random phrases and clauses of the demo grammar, and the words used in each construction."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from jax_transformer.parsing.ptb import parse_tree
from tools.demo import phrases
from tools.demo.clauses import MODALS, Clause, relative_clause
from tools.demo.lexicon import (
    ADJECTIVES,
    DATA,
    NAMES,
    NOUNS,
    VERBS,
    Case,
    Noun,
    Verb,
    kinds_of,
)
from tools.demo.links import link_phrase
from tools.demo.phrases import Constituent, Field, NounPhrase, gap

T = TypeVar("T")

# Weights.
PRONOUNS = {"I": 3, "you": 2, "he": 2, "she": 2, "we": 2, "they": 2}
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
SINGULAR = {"the": 63, "a": 25, "this": 7, "every": 2, "no": 3}
PLURAL = {"the": 45, "": 22, "these": 9, "all": 7, "many": 7, "two": 4, "three": 3, "no": 3}
SUBSTANCE = {"the": 55, "": 45}
TENSES = {"present": 36, "past": 22, "perfect": 12, "progressive": 8, "will": 7, "can": 5,
          "must": 5, "want": 5}  # fmt: skip
# The frames of verbs for events, and of those for states.
ACTIONS = {"intransitive": 16, "transitive": 40, "ditransitive": 10, "motion": 8, "position": 7}
FRAMES = {**ACTIONS, "stative": 12, "copula": 17, "presence": 4}
STATES = ("stative", "copula", "presence")

PERSON, LIVING, POSSESSED = (kinds_of(name) for name in ("person", "living", "possessed"))
PLACES = kinds_of("place ground furniture shore")
LOCATIONS, DIRECTIONS = (
    {prepositions: kinds_of(kinds) for prepositions, kinds in DATA[table].items()}
    for table in ("locations", "directions")
)


@cache
def nouns_of(kinds: frozenset[str], compounds: bool = True) -> list[str]:
    """Return the nouns of these kinds, and those that are named themselves."""
    found = [noun.english for noun in NOUNS.values() if {noun.kind, noun.english} & kinds]
    return [noun for noun in found if compounds or " " not in noun]


@cache
def adjectives_of(kind: str, noun: str = "") -> list[str]:
    """Return the adjectives that describe a kind of noun, or this noun of it."""
    return [word for word, entry in ADJECTIVES.items() if {kind, noun} & entry.kinds]


@cache
def verbs_of(frame: str, tense: str = "", subject: str = "") -> list[Verb]:
    """Return the verbs of a frame that take a tense and a kind of subject (empty: any)."""
    return [
        verb
        for verb in VERBS[frame].values()
        if (not subject or subject in verb.subjects)
        # "They put it on" may be present or past.
        and not (tense == "past" and verb.english[0] == verb.english[1])
        and not (tense == "want" and not verb.subjects <= LIVING)
        and not (frame in STATES and tense in ("perfect", "progressive"))
        and not (frame == "stative" and tense in MODALS and verb.english[0] != "have")
    ]


@cache
def verbs_with_object(kinds: frozenset[str], *frames: str) -> list[Verb]:
    """Return the verbs of these frames with an object of these kinds and no preposition."""
    verbs = [verb for frame in frames for verb in VERBS[frame].values()]
    return [verb for verb in verbs if verb.objects & kinds and not verb.preposition]


class Sampler:
    """A sampler of words and constructions; the same seed gives the same ones everywhere."""

    def __init__(self, seed: int) -> None:
        # random() is the one method that draws the same in all versions of Python.
        self._random = Random(seed).random
        # (construction, word) of each word that was drawn.
        self.combinations: set[tuple[str, str]] = set()
        self.simple = False  # True for sentences with few adjectives, adverbials and the like
        self._drawn: Counter[tuple[str, str]] = Counter()

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def extra(self, probability: float) -> bool:
        """Return True with this probability, with a quarter of it in simple sentences."""
        return self.chance(probability / 4 if self.simple else probability)

    def pick(self, items: Sequence[T]) -> T:
        """Draw one of the items, all with the same probability."""
        return items[int(self._random() * len(items))]

    def rare(self, words: Sequence[str], context: str = "") -> str:
        """Draw one of the words, rather one that was rarely drawn in the same context.

        Many verbs take the same few nouns; and a pronoun decides which form its verb has.
        """
        drawn = [(context, self.pick(words)) for _ in range(3)]
        found = min(drawn, key=lambda each: self._drawn[each])
        self._drawn[found] += 1
        return found[1]

    def weighted(self, weights: Mapping[T, int]) -> T:
        """Draw one of the keys, in proportion to its weight."""
        return self.pick([item for item, weight in weights.items() for _ in range(weight)])

    def use(self, construction: str, word: str) -> None:
        """Note that a word stands in a construction."""
        self.combinations.add((construction, word))

    # ---------------------------------------------------------------------------- noun phrases

    def noun(self, kinds: frozenset[str]) -> Noun:
        """Draw a noun of these kinds; few are compounds in simple sentences."""
        return NOUNS[self.rare(nouns_of(kinds, compounds=self.extra(1)))]

    def nominal(self, role: str, kinds: frozenset[str], article: str = "") -> NounPhrase:
        """Draw a noun with a determiner or an owner, and perhaps an adjective.

        article: "the" or "a" for a definite or an indefinite phrase; "no" for an indefinite one
          that is the object of a negated verb.
        """
        noun = self.noun(kinds)
        self.use(role, noun.english)
        plural = bool(noun.plural) and self.chance(0.35 if self.simple else 0.25)
        adjective, fitting = "", adjectives_of(noun.kind, noun.english)
        if fitting and self.extra(0.3):
            adjective = self.rare(fitting)
            self.use("attributive adjective", adjective)
        if article == "no":
            return phrases.negated_phrase(noun.english, adjective, plural)
        if article == "a":
            bare = plural or not noun.plural
            return phrases.noun_phrase("" if bare else "a", noun.english, adjective, plural)
        determiners = SUBSTANCE if not noun.plural else PLURAL if plural else SINGULAR
        determiner = article or self.weighted(determiners)
        if {noun.kind, noun.english} & POSSESSED:
            if self.extra(0.08):
                return phrases.possessive(self.owner(), noun.english, adjective, plural)
            if self.chance(0.3):
                determiner = self.pick(POSSESSIVES)
        return phrases.noun_phrase(determiner, noun.english, adjective, plural)

    def owner(self) -> NounPhrase:
        """Draw an owner: "Anna", "the king", before "'s"."""
        return self.name() if self.chance(0.5) else self.nominal("owner", PERSON, "the")

    def name(self) -> NounPhrase:
        """Draw a name: "Anna"."""
        return phrases.proper_name(self.pick(list(NAMES)))

    def pair(self, role: str, kinds: frozenset[str]) -> NounPhrase:
        """Draw "the man and my friend", "Anna and Peter", "apples and a pear": two of one kind."""
        if "person" in kinds and self.chance(0.3):
            return phrases.coordinated(self.name(), self.name())
        article = "a" if self.chance(0.3) else "the"
        first = self.nominal(role, kinds, article)
        second = self.nominal(role, frozenset({first.kind}), article)
        return phrases.coordinated(first, second)

    def person(self, subject: NounPhrase | None = None, verb: str = "") -> NounPhrase:
        """Draw a pronoun or a name; after the subject "I" the object is not "me".

        verb: the verb and its tense, if the person is its subject.
        """
        if self.chance(0.25 if self.simple else 0.45):
            return self.name()
        pronouns = [word for word, weight in PRONOUNS.items() for _ in range(weight)]
        while True:
            found = phrases.pronoun(self.rare(pronouns, verb))
            if not subject or found.person == 3 or found.person != subject.person:
                return found

    def subject(
        self, kinds: frozenset[str], article: str = "", relative: bool = False, verb: str = ""
    ) -> NounPhrase:
        """Draw a subject of a verb in a tense, perhaps with a relative clause."""
        if "person" in kinds and self.chance(0.55 if self.simple else 0.42):
            return self.person(verb=verb)
        if self.chance(0.08 if self.simple else 0.04):
            return self.pair("subject", kinds)
        phrase = self.nominal("subject", kinds, article)
        return self.maybe_relative(phrase) if relative else phrase

    def maybe_relative(self, head: NounPhrase) -> NounPhrase:
        """Perhaps add a relative clause: "the man who sleeps", "the book that he reads"."""
        if not head.definite or not self.chance(0.2):
            return head
        if head.kind in LIVING and self.chance(0.5):
            c = self.clause("subject relative", gap(head.kind, head.plural))
            return relative_clause(head, c, "subject")
        verbs = verbs_with_object(frozenset({head.kind}), "transitive")
        if not verbs:
            return head
        c = self.clause_without_object("object relative", verbs)
        return relative_clause(head, c, "object")

    # -------------------------------------------------------------- adverbials and complements

    def adverbial(self, group: str, field: Field) -> Constituent:
        """Draw an adverbial of manner or time from a table."""
        tree, german = self.pick(list(DATA["adverbials"][group].items()))
        return Constituent(*link_phrase(parse_tree(tree), german), field)

    def time(self, tense: str) -> Constituent:
        """Draw an adverbial of time that fits the tense."""
        group = "future" if tense in MODALS else tense
        return self.adverbial(group if group in DATA["adverbials"] else "present", Field.TIME)

    def place(self, kinds: frozenset[str] = PLACES) -> Constituent:
        """Draw "in the garden", with a German dative."""
        fitting = {each: kinds & among for each, among in LOCATIONS.items() if kinds & among}
        english, german, phrase = self._at_place("location", fitting)
        return phrases.prepositional(english, german, Case.DATIVE, phrase, Field.PLACE)

    def direction(self) -> Constituent:
        """Draw "into the garden", with a German accusative, but a dative after "zu"."""
        english, german, phrase = self._at_place("direction", DIRECTIONS)
        case = Case.DATIVE if german == "zu" else Case.ACCUSATIVE
        return phrases.prepositional(english, german, case, phrase, Field.PREDICATE)

    def _at_place(
        self, role: str, places: Mapping[str, frozenset[str]]
    ) -> tuple[str, str, NounPhrase]:
        """Draw an English and a German preposition and a noun.

        A preposition is drawn in proportion to the number of its nouns.
        """
        weights = {each: len(nouns_of(kinds)) for each, kinds in places.items()}
        prepositions = self.weighted(weights)
        english, german = prepositions.split()
        return english, german, self.nominal(role, places[prepositions], "the")

    def adverbials(self, verb: Verb, tense: str) -> list[Constituent]:
        """Draw adverbials of manner, place and time for the end of the English clause."""
        found = []
        if verb.frame in ("intransitive", "transitive") and not verb.preposition:
            found += [self.adverbial("manner", Field.MANNER)] if self.extra(0.12) else []
            found += [self.place()] if self.extra(0.15) else []
        if verb.frame in ACTIONS and self.extra(0.15):
            found += [self.time(tense)]
        return found

    def complements(
        self, verb: Verb, subject: NounPhrase, negated: bool, relative: bool
    ) -> list[Constituent]:
        """Draw the complements of the verb's frame; with "nicht", objects are definite."""
        if verb.frame == "motion":
            return [self.direction()] if self.chance(0.75) else []
        if verb.frame in ("position", "presence"):
            return [self.place(verb.objects)]
        if verb.frame == "copula":
            return [self.adjectives(subject)]
        article = ("no" if self.chance(0.3) else "the") if negated else ""
        if verb.frame == "ditransitive":
            thing = phrases.direct_object(verb, self.nominal("object", verb.objects, article))
            if self.chance(0.12):
                return [thing]
            known = self.chance(0.4)
            one = self.person(subject) if known else self.nominal("receiver", PERSON, "the")
            if self.chance(0.3):
                return [thing, phrases.receiver(one, "to")]
            return [phrases.receiver(one), thing]
        if not verb.objects:
            return []
        if "person" in verb.objects and self.chance(0.35):
            return [phrases.direct_object(verb, self.person(subject))]
        role = f"{verb.case.name.lower()} object"
        plain = not (negated or verb.german_preposition or verb.case == Case.DATIVE)
        if plain and self.chance(0.08 if self.simple else 0.04):
            return [phrases.direct_object(verb, self.pair(role, verb.objects))]
        if verb.preposition or verb.case == Case.DATIVE:
            article = article and "the"
        phrase = self.nominal(role, verb.objects, article)
        return [phrases.direct_object(verb, self.maybe_relative(phrase) if relative else phrase)]

    def adjectives(self, subject: NounPhrase) -> Constituent:
        """Draw "old", "old and beautiful"."""
        fitting = adjectives_of(subject.kind, subject.noun)
        chosen = [self.rare(fitting) for _ in range(2 if self.chance(0.06) else 1)]
        for adjective in chosen:
            self.use("predicative adjective", adjective)
        return phrases.predicate_adjective(*chosen)

    # --------------------------------------------------------------------------------- clauses

    def clause(
        self,
        construction: str,
        subject: NounPhrase | None = None,
        tenses: Mapping[str, int] = TENSES,
        frames: Mapping[str, int] = FRAMES,
        relative: bool = False,
    ) -> Clause:
        """Draw a clause with a verb in a construction; with a given subject it is positive."""
        verbs: list[Verb] = []
        while not verbs:
            tense = self.weighted(tenses)
            verbs = verbs_of(self.weighted(frames), tense, subject.kind if subject else "")
        by_name = {verb.name: verb for verb in verbs}
        verb = by_name[self.rare(list(by_name), tense)]
        # "Must not" is "darf nicht".
        negated = not subject and tense != "must" and self.chance(0.2 if self.simple else 0.12)
        article = "the" if negated else ""
        subject = subject or self.subject(
            verb.subjects, article, relative, verb=f"{verb.name} {tense}"
        )
        self.use(construction, verb.name)
        if negated or tense in MODALS:
            self.use("negation" if negated else tense, verb.name)
        adverbials = self.adverbials(verb, tense)
        parts = self.complements(verb, subject, negated, relative and not adverbials)
        contracted = negated and self.chance(0.25)
        return Clause(subject, verb, (*parts, *adverbials), tense, negated, contracted)

    def clause_without_object(self, construction: str, verbs: Sequence[Verb]) -> Clause:
        """Draw "he reads", for a book that is named elsewhere."""
        verb, tense = self.pick(verbs), self.weighted(TENSES)
        if verb not in verbs_of(verb.frame, tense):
            tense = "present"
        self.use(construction, verb.name)
        return Clause(self.subject(verb.subjects), verb, (), tense)
