"""What the demo trains on: sentences sampled from the demo grammar, and their splits.

Deterministic from a seed on every version of Python.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from jax_transformer.demo import lexicon
from jax_transformer.demo.grammar import (
    DIRECTION,
    MANNER,
    TIME,
    Clause,
    Constituent,
    Example,
    NounPhrase,
    _times,
    adverb,
    adverbial_question,
    agent,
    at,
    both,
    complex_statement,
    coordination,
    existential,
    frequency,
    gap,
    identity,
    indirect_question,
    infinitive,
    leaves,
    name,
    noun_phrase,
    object_,
    object_question,
    of,
    place_relative,
    predicative,
    prepositional,
    pronoun,
    purpose,
    receiver,
    shared_subject,
    statement,
    subject_question,
    subordinate,
    time,
    with_,
    with_relative,
    words,
    yes_no_question,
)
from jax_transformer.demo.lexicon import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, Verb


@dataclass(frozen=True)
class Splits:
    """Disjoint sets; half of dev and of test hold a combination that train never shows."""

    train: tuple[Example, ...]
    dev: tuple[Example, ...]
    test: tuple[Example, ...]


# ------------------------------------------------------------------------------------- the sampler

# What is drawn, with weights; `random()` alone is drawn from, as it is the same on every Python.
SINGULAR = {"the": 44, "a": 20, "this": 6, "my": 7, "your": 5, "his": 5, "her": 5, "our": 4,
            "their": 3, "every": 2, "no": 2}  # fmt: skip
PLURAL = {"the": 30, "": 16, "these": 7, "my": 6, "his": 4, "her": 4, "our": 4, "their": 4,
          "all": 5, "many": 6, "some": 5, "several": 4, "two": 4, "three": 3, "four": 2, "five": 2,
          "no": 3}  # fmt: skip
MASS = {"the": 50, "": 35, "my": 5, "his": 4, "her": 4, "no": 3}
# A negated clause turns its indefinite objects into these; other quantifiers would be ambiguous.
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
PLAIN = ("the", "this", "these", *POSSESSIVES)
TENSES = {"present": 38, "past": 22, "perfect": 12, "will": 5, "can": 5, "must": 4, "should": 3,
          "may": 2, "could": 3, "want": 4, "wanted": 2}  # fmt: skip
TENSE_CLASS = {"present": "present", "past": "past", "perfect": "perfect", "could": "past",
               "wanted": "past", "passive": "present", "past passive": "past",
               "progressive": "present", "past progressive": "past"}  # fmt: skip
FRAME_WEIGHTS = {"plain": 58, "ditransitive": 13, "motion": 6, "position": 6, "placing": 4,
                 "predicative": 8, "comparative": 3, "identity": 5}  # fmt: skip
PLACES = ("room", "building", "land", "ground", "shore")
KIN = ("brother", "sister", "mother", "father", "son", "daughter", "uncle", "aunt", "dog", "cat",
       "friend", "horse", "neighbour", "boss")  # fmt: skip
# Frames with a full verb, for where a state would be odd: "while the dog is old".
DOING = {frame: weight for frame, weight in FRAME_WEIGHTS.items() if frame in lexicon.FRAMES}
# Direction: share of the draws up to here, English, German, case, where to or where from.
DIRECTIONS = (
    (0.50, "to", "zu", DATIVE, ("building", "land", "shore")),
    (0.70, "into", "in", ACCUSATIVE, ("room", "building", "land")),
    (0.80, "from", "aus", DATIVE, ("room", "building", "land")),
    (0.90, "through", "durch", ACCUSATIVE, ("land",)),
    (1.00, "over", "über", ACCUSATIVE, ("ground",)),
)
EVENT_PREPOSITIONS = {
    "after": ("after", "nach", DATIVE),
    "before": ("before", "vor", DATIVE),
    "during": ("during", "während", GENITIVE),
}


@cache
def _nouns_of(kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        word for word, noun in lexicon.NOUNS.items() if noun.kind in kinds or word in kinds
    )


def _ownable(noun: lexicon.Noun) -> bool:
    """Whether "my" goes with a noun: my dog, but neither my king nor my lake."""
    return noun.kind not in lexicon.PUBLIC and noun.english not in lexicon.PUBLIC


@cache
def _verbs_for(frame: str, subject: str = "", object_: str = "") -> tuple[str, ...]:
    """The verbs of a frame that accept these kinds of subject and object (empty: any)."""
    return tuple(
        name
        for name, verb in lexicon.FRAMES[frame].items()
        if (not subject or subject in verb.subjects) and (not object_ or object_ in verb.objects)
    )


@cache
def _adjectives_for(kind: str, comparable: bool = False) -> tuple[str, ...]:
    return tuple(
        word
        for word, entry in lexicon.ADJECTIVES.items()
        if kind in entry.kinds and (not comparable or entry.german_comparative != "-")
    )


def _direct(verb: Verb) -> bool:
    return bool(verb.objects) and not (verb.english_preposition or verb.german_preposition)


# Verbs whose object a question can ask for, that a passive can be made of, that happen somewhere.
ASKABLE = tuple(name for name, verb in lexicon.FRAMES["plain"].items() if _direct(verb))
PASSIVE = tuple(
    name
    for name in ASKABLE
    if lexicon.VERBS[name].case == ACCUSATIVE and name not in lexicon.STATES
)
LOCATABLE = tuple(name for name in lexicon.FRAMES["plain"] if name in lexicon.ACTIONS)


def _repetitive(c: Clause) -> bool:
    """Whether a clause says "I see me" or "the old dog is old"."""
    own = {(1, False): "me", (2, False): "you", (1, True): "us"}
    word = own.get((c.subject.person, c.subject.plural))
    if c.verb is lexicon.BE:
        described = set(re.findall(r"\(JJR? (\w+)\)", c.subject.english))
        return bool(described & set(leaves(c.parts[0].english)))
    return any(f"(PRP {word})" in part.english for part in c.parts)


class _Sampler:
    """Draws derivations; each method chooses one kind of constituent."""

    def __init__(self, seed: int):
        self.random = Random(seed).random

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, items: Sequence[str]) -> str:
        return items[int(self.random() * len(items))]

    def weighted(self, weights: dict[str, int]) -> str:
        point = self.random() * sum(weights.values())
        for item, weight in weights.items():
            point -= weight
            if point < 0:
                return item
        return item  # pyright: ignore[reportPossiblyUnboundVariable]

    # Noun phrases

    def nominal(self, kinds: tuple[str, ...], negated: bool = False) -> NounPhrase:
        """Determiner, perhaps an adjective, and a noun of one of these kinds.

        Under a negated verb an indefinite becomes "kein".
        """
        noun = self.pick(_nouns_of(kinds))
        entry = lexicon.NOUNS[noun]
        plural = not entry.mass and self.chance(0.3)
        determiner = self.weighted(MASS if entry.mass else PLURAL if plural else SINGULAR)
        if determiner in POSSESSIVES and not _ownable(entry):
            determiner = "the"
        if negated and determiner not in PLAIN:
            determiner = "not any" if plural or entry.mass else "not a"
        adjectives = _adjectives_for(entry.kind)
        adjective = self.pick(adjectives) if adjectives and self.chance(0.28) else ""
        return noun_phrase(determiner, noun, adjective, plural)

    def definite(self, kinds: tuple[str, ...]) -> NounPhrase:
        """A noun phrase that refers to something known."""
        noun = self.pick(_nouns_of(kinds))
        plural = not lexicon.NOUNS[noun].mass and self.chance(0.15)
        determiner = self.weighted({"the": 62, "my": 10, "his": 8, "her": 8, "our": 7, "their": 5})
        ownable = _ownable(lexicon.NOUNS[noun])
        return noun_phrase(determiner if ownable else "the", noun, "", plural)

    def person(self) -> NounPhrase:
        """A pronoun or a name."""
        return (
            name(self.pick(lexicon.NAMES))
            if self.chance(0.4)
            else pronoun(self.pick(tuple(lexicon.PRONOUNS)))
        )

    def subject(self, kinds: tuple[str, ...], negated: bool, simple: bool) -> NounPhrase:
        """A subject; not `simple` ones may carry a second noun, a phrase or a relative clause."""
        if "person" in kinds and self.chance(0.42):
            return self.person()
        phrase = self.definite(kinds) if negated else self.nominal(kinds)
        if simple or not phrase.definite or phrase.negative:
            return phrase
        point = self.random()
        if point < 0.06:
            return both(phrase, self.definite((phrase.kind,)))
        if point < 0.10:
            return at(phrase, self.usual_place(PLACES))
        if point < 0.15 and phrase.kind == "person":
            return with_(
                phrase, noun_phrase("the", *self.described(("animal", "clothing", "thing")))
            )
        if point < 0.19 and phrase.english.startswith("(NP (DT the)"):
            return of(phrase, self.definite(("person",)))
        return self.with_relative(phrase) if point < 0.34 else phrase

    def described(self, kinds: tuple[str, ...]) -> tuple[str, str]:
        """A noun and an adjective (or none) that fits it."""
        noun = self.pick(_nouns_of(kinds))
        return noun, self.pick(_adjectives_for(lexicon.NOUNS[noun].kind))

    def object_(self, kinds: tuple[str, ...], negated: bool, last: bool) -> NounPhrase:
        """An object; the `last` word group of a sentence may grow a genitive or a relative."""
        if "person" in kinds and self.chance(0.35):
            return self.person()
        phrase = self.nominal(kinds, negated)
        if not last or phrase.negative:
            return phrase
        point = self.random()
        if point < 0.08 and phrase.english.startswith("(NP (DT the)"):
            return of(phrase, self.definite(("person",)))
        return self.with_relative(phrase) if point < 0.26 else phrase

    def with_relative(self, head: NounPhrase) -> NounPhrase:
        """Attach a relative clause of a role that the head's kind can play."""
        role = self.weighted({"subject": 40, "object": 40, "owner": 10, "place": 10})
        if head.kind in ("room", "building", "land"):
            role = "place"
        if role == "owner" and head.kind == "person":
            inner = self.clause(gap(), simple=True, kind="person")
            return with_relative(head, role, inner, self.pick(KIN))
        if role == "place" and head.kind in ("room", "building", "land"):
            verb = self.pick(("live in", "work", "sleep", "wait", "play"))
            inner = self.bare(self.relative_subject(), verb)
            return place_relative(head, "in", "in", inner)
        verbs = _verbs_for("plain", object_=head.kind)
        if role == "object" and verbs:
            return with_relative(head, role, self.bare(self.relative_subject(), self.pick(verbs)))
        if head.kind in ("person", "animal"):
            inner = self.clause(gap(head.plural), simple=True, kind=head.kind)
            return with_relative(head, "subject", inner)
        return head

    def relative_subject(self) -> NounPhrase:
        return self.person() if self.chance(0.5) else self.definite(("person",))

    # Adverbials

    def place(self) -> Constituent:
        """Where: "in the garden", "under the table", "in Berlin"."""
        point = self.random()
        if point < 0.12:
            return prepositional("in", "in", DATIVE, name(self.pick(tuple(lexicon.CITIES))))
        if point < 0.22:
            return adverb(self.pick(tuple(lexicon.SPOTS)))
        if point < 0.42:
            english = self.pick(tuple(lexicon.PLACE_PREPOSITIONS))
            german = lexicon.PLACE_PREPOSITIONS[english]
            return prepositional(
                english, german, DATIVE, self.definite(("furniture", "building", "vehicle"))
            )
        return self.usual_place(PLACES)

    def usual_place(self, kinds: tuple[str, ...]) -> Constituent:
        """A place with the preposition it usually takes: "on the bridge", "at the lake"."""
        phrase = self.definite(kinds)
        english, german = lexicon.PLACE_KINDS[phrase.kind]
        return prepositional(english, german, DATIVE, phrase)

    def direction(self) -> Constituent:
        """Where to or where from."""
        point = self.random()
        if point < 0.2:
            city = name(self.pick(tuple(lexicon.CITIES)))
            return prepositional("to", "nach", DATIVE, city, DIRECTION)
        for limit, english, german, case, kinds in DIRECTIONS:
            if point < limit:
                return prepositional(english, german, case, self.definite(kinds), DIRECTION)
        raise AssertionError(point)

    def goal(self) -> Constituent:
        """Where something is put, in the accusative."""
        english, german = {
            "onto": ("onto", "auf"), "under": ("under", "unter"), "behind": ("behind", "hinter"),
            "beside": ("beside", "neben"),
        }[self.weighted({"onto": 55, "under": 15, "behind": 15, "beside": 15})]  # fmt: skip
        return prepositional(english, german, ACCUSATIVE, self.definite(("furniture",)), DIRECTION)

    def time(self, tense: str) -> Constituent:
        """When, in words that go with the tense."""
        group = TENSE_CLASS.get(tense, "modal")
        if group in ("present", "past") and self.chance(0.2):
            english, german, case = EVENT_PREPOSITIONS[self.pick(tuple(EVENT_PREPOSITIONS))]
            return prepositional(english, german, case, self.definite(("event",)), TIME)
        fitting = tuple(word for word, (_, tenses) in _times().items() if group in tenses)
        return time(self.pick(fitting))

    def companion(self, verb: Verb) -> Constituent:
        """ "with my brother", "without the teacher", "for the child"."""
        person = self.definite(("person",))
        if verb.name in lexicon.ACTIONS and verb.objects:
            return prepositional("for", "für", ACCUSATIVE, person, MANNER)
        if self.chance(0.25):
            return prepositional("without", "ohne", ACCUSATIVE, person, MANNER)
        return prepositional("with", "mit", DATIVE, person, MANNER)

    def extras(self, verb: Verb, tense: str, simple: bool, timed: bool) -> tuple[Constituent, ...]:
        """Adverbials at the end of the English clause; states take none."""
        extras = []
        if verb.name in lexicon.STATES:
            return ()
        plain = verb.name in lexicon.FRAMES["plain"]
        if verb.name in lexicon.ACTIONS and self.chance(0.15):
            extras.append(adverb(self.pick(tuple(lexicon.MANNERS))))
        elif (
            plain
            and not simple
            and (verb.name in lexicon.ACTIONS or not verb.objects)
            and self.chance(0.2)
        ):
            extras.append(self.companion(verb))
        if plain and self.chance(0.08 if simple else 0.22):
            extras.append(self.place())
        if timed and self.chance(0.05 if simple else 0.22):
            extras.append(self.time(tense))
        return tuple(extras)

    # Clauses

    def allowed(self, tense: str, verb: Verb, subject: NounPhrase, kind: str) -> bool:
        """Whether neither language makes the tense ambiguous or odd."""
        if tense == "past" and subject.german[NOMINATIVE] == "du":
            return False
        if tense == "past" and verb.english[0] == verb.english[1]:  # "they read": now or then?
            return False
        if tense not in ("present", "past") and verb.name in lexicon.STATES:
            return False
        return kind == "person" or tense not in ("want", "wanted")

    def tense(self, verb: Verb, subject: NounPhrase, kind: str) -> str:
        while not self.allowed(tense := self.weighted(TENSES), verb, subject, kind):
            pass
        return tense

    def bare(self, subject: NounPhrase, verb: str) -> Clause:
        """A clause without its object, for relatives and questions about the object."""
        entry = lexicon.VERBS[verb]
        return Clause(subject, entry, (), self.tense(entry, subject, subject.kind))

    def clause(
        self,
        subject: NounPhrase | None = None,
        simple: bool = False,
        kind: str = "",
        timed: bool = True,
        tense: str = "",
        positive: bool = False,
        frames: dict[str, int] = FRAME_WEIGHTS,
    ) -> Clause:
        """Any clause; `simple` ones stay short, to stand inside or beside others."""
        while True:
            frame = self.weighted(frames)
            if frame in lexicon.FRAMES:
                c = self.verbal(frame, subject, simple, kind, timed, positive, tense)
            else:
                c = self.copula(frame, subject, simple, kind, positive, tense)
            denials = sum(part.negative for part in c.parts) + c.subject.negative
            denials += any("frequency:" in use for part in c.parts for use in part.uses)
            fits = self.allowed(c.tense, c.verb, c.subject, kind or c.subject.kind)
            if fits and denials < 2 and not _repetitive(c):
                return c

    def verbal(
        self,
        frame: str,
        subject: NounPhrase | None,
        simple: bool,
        kind: str,
        timed: bool,
        positive: bool,
        tense: str,
    ) -> Clause:
        """A clause around a full verb."""
        verbs = _verbs_for(frame, kind) or _verbs_for("plain", kind)
        verb = lexicon.VERBS[self.pick(verbs)]
        negated = not positive and self.chance(0.12)
        subject = subject or self.subject((kind,) if kind else verb.subjects, negated, simple)
        tense = tense or self.tense(verb, subject, kind or subject.kind)
        # "must not" is "darf nicht", "cannot" is one word: the tables leave them out.
        negated = negated and tense not in ("must", "can")
        extras = self.extras(verb, tense, simple, timed)
        if not (negated or simple or positive) and self.chance(0.08):
            extras += (frequency(self.pick(tuple(lexicon.FREQUENCIES))),)
        parts = self.complements(verb, negated, not extras and not simple)
        return Clause(subject, verb, parts + extras, tense, negated)

    def complements(self, verb: Verb, negated: bool, last: bool) -> tuple[Constituent, ...]:
        """What the verb's frame demands."""
        if verb.name in lexicon.FRAMES["motion"]:
            return (self.direction(),)
        if verb.name in lexicon.FRAMES["position"]:
            return (self.usual_place(verb.objects),)
        if not verb.objects:
            return ()
        if verb.name in lexicon.FRAMES["placing"]:
            return (object_(verb, self.object_(verb.objects, negated, False)), self.goal())
        if verb.name in lexicon.FRAMES["ditransitive"]:
            to = verb.name not in lexicon.DOUBLE_OBJECT or self.chance(0.35)
            one = self.person() if self.chance(0.3) else self.definite(("person",))
            thing = object_(verb, self.nominal(verb.objects, negated))
            return (thing, receiver(one, to)) if to else (receiver(one), thing)
        return (object_(verb, self.object_(verb.objects, negated, last)),)

    def copula(
        self,
        frame: str,
        subject: NounPhrase | None,
        simple: bool,
        kind: str,
        positive: bool,
        tense: str,
    ) -> Clause:
        """ "is old", "is older than the house", "is a good teacher"."""
        negated = frame == "predicative" and not positive and self.chance(0.12)
        subject = subject or self.subject(
            (kind,) if kind else tuple(lexicon.NOUN_TABLES), negated, simple
        )
        kind = kind or subject.kind
        tense = tense or ("past" if self.chance(0.3) else "present")
        comparable = _adjectives_for(kind, True)
        if frame == "identity" and kind == "person" and subject.heads and not subject.plural:
            # "Die Königin ist eine gute Ärztin": the two nouns should agree in gender.
            people = (noun for noun in _nouns_of(("person",)))
            same = [noun for noun in people if lexicon.NOUNS[noun].gender == subject.gender]
            adjective = self.pick(_adjectives_for("person"))
            part = identity(noun_phrase("a", self.pick(same), adjective))
        elif frame == "comparative" and comparable:
            other = self.definite((kind,))
            while set(other.heads) & set(subject.heads):  # "the island is older than the island"
                other = self.definite((kind,))
            part = predicative(self.pick(comparable), other)
        else:
            part = predicative(self.pick(_adjectives_for(kind)))
        return Clause(subject, lexicon.BE, (part,), tense, negated)

    def core(self, subject: NounPhrase, verb: str, tense: str = "") -> Clause:
        """A clause with only what its verb demands."""
        entry = lexicon.VERBS[verb]
        parts = self.complements(entry, negated=False, last=False)
        return Clause(subject, entry, parts, tense or self.tense(entry, subject, subject.kind))

    def inner_infinitive(self, subject: NounPhrase) -> Clause:
        """The infinitive clause whose unspoken subject is this one."""
        while True:
            unspoken = gap(subject.plural, subject.person)
            c = self.clause(unspoken, True, "person", positive=True, frames=DOING, timed=False)
            if c.verb.name not in lexicon.STATES:
                return replace(c, tense="infinitive")

    # Sentences

    def sentence(self) -> Example:
        """A sentence of any construction, of 3 to 25 words."""
        while True:
            example: Example = getattr(self, self.weighted(SENTENCES))()
            if 3 <= len(words(example.english)) <= 25:
                return example

    def plain_statement(self) -> Example:
        return statement(self.clause())

    def timed_statement(self) -> Example:
        c = self.clause(timed=False, frames=DOING)
        while c.verb.name in lexicon.STATES:
            c = self.clause(timed=False, frames=DOING)
        return statement(c, self.time(c.tense))

    def stance_statement(self) -> Example:
        return statement(self.clause(timed=False), adverb(self.pick(tuple(lexicon.STANCES))))

    def question(self) -> Example:
        return yes_no_question(self.clause(simple=self.chance(0.5)))

    def who_question(self) -> Example:
        if self.chance(0.6):
            return subject_question(self.clause(gap(), kind="person"))
        noun, adjective = self.described(("person", "animal"))
        plural, kind = self.chance(0.3), lexicon.NOUNS[noun].kind
        asked = noun_phrase("which", noun, adjective if self.chance(0.3) else "", plural)
        return subject_question(self.clause(gap(plural), kind=kind), asked)

    def whom_question(self) -> Example:
        verb = self.pick(ASKABLE)
        entry = lexicon.VERBS[verb]
        c = self.bare(self.subject(entry.subjects, False, True), verb)
        if self.chance(0.45):
            noun = self.pick(_nouns_of(entry.objects))
            plural = not lexicon.NOUNS[noun].mass and self.chance(0.3)
            return object_question(c, noun_phrase("which", noun, "", plural))
        return object_question(c, "who" if "person" in entry.objects else "what")

    def where_question(self) -> Example:
        word = self.weighted({"where": 50, "when": 25, "why": 25})
        if word != "where":
            return adverbial_question(word, self.asked(word))
        if self.chance(0.5):
            verb = self.pick((*lexicon.FRAMES["motion"], "live in", "sit in", "stay in"))
            return adverbial_question(word, self.bare(self.subject(("person",), False, True), verb))
        verb = self.pick(LOCATABLE)
        subject = self.subject(lexicon.VERBS[verb].subjects, False, True)
        return adverbial_question(word, self.core(subject, verb))

    def asked(self, word: str) -> Clause:
        """What "when" or "why" asks about; English has no "when has he ..."."""
        c = self.clause(simple=True, timed=False, frames=DOING)
        while word == "when" and c.tense == "perfect":
            c = self.clause(simple=True, timed=False, frames=DOING)
        return c

    def reporting(self, frame: str, part: Constituent) -> Example:
        """A main clause that ends in a complement clause."""
        verb = lexicon.VERBS[self.pick(tuple(lexicon.FRAMES[frame]))]
        subject = self.subject(("person",), False, True)
        tense = self.weighted({"present": 55, "past": 30, "perfect": 15})
        while not self.allowed(tense, verb, subject, "person"):
            tense = "present"
        negated = not subject.negative and subject.definite and self.chance(0.15)
        negated = negated and not subject.german[NOMINATIVE].startswith(("jed", "all"))
        return statement(Clause(subject, verb, (part,), tense, negated))

    def that_statement(self) -> Example:
        return self.reporting("that", subordinate("that", self.clause(simple=self.chance(0.7))))

    def whether_statement(self) -> Example:
        return self.reporting("whether", subordinate("whether", self.clause(simple=True)))

    def indirect_statement(self) -> Example:
        word = self.pick(("where", "when", "why"))
        subject = self.subject(("person",), False, True)
        if word == "where":
            inner = self.bare(subject, self.pick(("live in", "sit in", "work", "wait", "sleep")))
        else:
            inner = self.asked(word)
        return self.reporting("whether", indirect_question(word, inner))

    def two_clauses(self, simple: bool) -> tuple[str, Clause, Clause]:
        """A conjunction with the clause it opens and the main clause."""
        word = self.weighted(
            {"because": 28, "although": 18, "if": 14, "when": 16, "while": 12, "before": 12}
        )
        free = word in ("because", "although")
        tense = "" if free else "present" if word == "if" or self.chance(0.5) else "past"
        frames = FRAME_WEIGHTS if free else DOING
        inner = self.clause(simple=True, tense=tense, timed=False, frames=frames)
        return word, inner, self.clause(simple=simple, tense=tense, timed=False)

    def adverbial_clause(self) -> Example:
        word, inner, c = self.two_clauses(simple=True)
        return statement(replace(c, parts=(*c.parts, subordinate(word, inner))))

    def initial_clause(self) -> Example:
        return complex_statement(*self.two_clauses(simple=True))

    def infinitive_statement(self) -> Example:
        subject = self.subject(("person",), False, True)
        return self.reporting_infinitive(subject, infinitive(self.inner_infinitive(subject)))

    def reporting_infinitive(self, subject: NounPhrase, part: Constituent) -> Example:
        verb = lexicon.VERBS[self.pick(tuple(lexicon.FRAMES["infinitive"]))]
        tense = self.weighted({"present": 55, "past": 30, "perfect": 15})
        if not self.allowed(tense, verb, subject, "person"):
            tense = "present"
        return statement(Clause(subject, verb, (part,), tense))

    def purpose_statement(self) -> Example:
        c = self.clause(None, True, "person", positive=True, frames=DOING, timed=False)
        while c.verb.name in lexicon.STATES or c.subject.negative:
            c = self.clause(None, True, "person", positive=True, frames=DOING, timed=False)
        part = purpose(self.inner_infinitive(c.subject))
        return statement(replace(c, parts=(*c.parts, part)))

    def coordinated(self) -> Example:
        word = self.weighted({"and": 45, "but": 40, "or": 15})
        return coordination(word, self.clause(simple=True), self.clause(simple=True))

    def shared(self) -> Example:
        kind = "person" if self.chance(0.8) else "animal"
        tense = "present" if self.chance(0.5) else "past"
        first = self.clause(None, True, kind, False, tense, positive=True, frames=DOING)
        unspoken = gap(first.subject.plural, first.subject.person)
        second = self.clause(unspoken, True, kind, False, tense, positive=True, frames=DOING)
        return shared_subject(first, second)

    def there_is(self) -> Example:
        noun, adjective = self.described(("person", "animal", "thing", "tableware", "furniture"))
        plural = self.chance(0.4)
        determiner = self.pick(("", "two", "three", "many", "several", "no") if plural else ("a",))
        phrase = noun_phrase(determiner, noun, adjective if self.chance(0.35) else "", plural)
        past, front = self.chance(0.35), self.chance(0.25)
        return existential(phrase, self.usual_place(("room", "building", "land")), past, front)

    def passive(self) -> Example:
        verb = lexicon.VERBS[self.pick(PASSIVE)]
        negated = self.chance(0.1)
        subject = self.subject(verb.objects, negated, self.chance(0.6))
        tense = "passive" if self.chance(0.5) else "past passive"
        parts: tuple[Constituent, ...] = ()
        if self.chance(0.5):
            parts = (agent(self.doer()),)
        elif self.chance(0.5):
            parts = (self.time(tense),)
        c = Clause(subject, verb, parts, tense, negated and not subject.negative)
        return self.passive() if _repetitive(c) else statement(c)

    def doer(self) -> NounPhrase:
        return self.person() if self.chance(0.3) else self.definite(("person",))


SENTENCES = {
    "plain_statement": 30, "timed_statement": 11, "stance_statement": 4, "question": 8,
    "who_question": 4, "whom_question": 4, "where_question": 4, "that_statement": 8,
    "whether_statement": 4, "indirect_statement": 2, "adverbial_clause": 8, "initial_clause": 7,
    "infinitive_statement": 5, "purpose_statement": 3, "coordinated": 5, "shared": 4,
    "there_is": 3, "passive": 6,
}  # fmt: skip


def generate(seed: int, count: int) -> Iterator[Example]:
    """`count` examples, the same for the same seed everywhere; a sentence may come twice."""
    sampler = _Sampler(seed)
    for _ in range(count):
        yield sampler.sentence()


# ---------------------------------------------------------------------------------------- splits

# Constructions of which single words are held out: learnable from the other words in them.
HELD_OUT_CONSTRUCTIONS = frozenset(
    lexicon.rows("""
relative-subject; relative-object; that-clause; because-clause; whether-clause; when-clause
initial-because-clause; initial-when-clause; question; inversion; infinitive; purpose; perfect
will; can; must; passive-subject; agent; genitive; receiver; dative-object; prepositional-object
which-object; comparative; predicative; shared-subject; preposition-with; preposition-under
preposition-behind; negation; separable-that-clause; separable-question; separable-inversion
separable-infinitive; separable-shared-subject; separable-because-clause
""")
)
WORDS_PER_CONSTRUCTION = 3


def _distinct(seed: int) -> Iterator[Example]:
    """Examples without end, none of whose English or German came before."""
    sampler = _Sampler(seed)
    english: set[str] = set()
    german: set[str] = set()
    while True:
        example = sampler.sentence()
        if example.english not in english and example.german not in german:
            english.add(example.english)
            german.add(example.german)
            yield example


def _held_out(pool: Sequence[Example], wanted: int, seed: int) -> frozenset[str]:
    """Combinations, at most one per word, that some `wanted` examples of the pool hold.

    Neither so rare that they would yield nothing nor so common that train would lose its variety.
    """
    counts = Counter(use for example in pool for use in example.combinations)
    rare, common = max(3, len(pool) // 5000), max(12, len(pool) // 600)
    draw = Random(f"held out {seed}").random
    candidates = sorted(use for use, count in counts.items() if rare <= count <= common)
    candidates = [use for _, use in sorted((draw(), use) for use in candidates)]
    chosen: list[str] = []
    taken: set[str] = set()
    per_construction: Counter[str] = Counter()
    total = 0
    for use in candidates:
        construction, word = use.split(":")
        full = per_construction[construction] >= WORDS_PER_CONSTRUCTION
        if construction not in HELD_OUT_CONSTRUCTIONS or full or word in taken or total >= wanted:
            continue
        chosen.append(use)
        taken.add(word)
        per_construction[construction] += 1
        total += counts[use]
    return frozenset(chosen)


def _interleave(first: Sequence[Example], second: Sequence[Example]) -> tuple[Example, ...]:
    return tuple(example for pair in zip(first, second, strict=True) for example in pair)


def splits(seed: int = 2017, train: int = 30_000, dev: int = 500, test: int = 500) -> Splits:
    """Train, dev and test, with all sentences distinct.

    Every second example of dev and of test holds one combination of a construction and a word
    that train never shows, though it shows the construction with other words and the word in other
    constructions. The rest of dev and test, and every surface form in them, train does show.

    Raises:
      ValueError: if dev or test is odd, or train too small to show all that they need.
    """
    if dev % 2 or test % 2:
        raise ValueError(f"dev and test are halved, so need even sizes; found {dev} and {test}")
    half = (dev + test) // 2
    stream = _distinct(seed)
    pool = [next(stream) for _ in range(train + 2 * half)]
    held_out = _held_out(pool, 2 * half, seed)
    trained: list[Example] = []
    rest: list[Example] = []
    for example in pool:
        free = held_out.isdisjoint(example.combinations) and len(trained) < train
        (trained if free else rest).append(example)
    while len(trained) < train:
        example = next(stream)
        (trained if held_out.isdisjoint(example.combinations) else rest).append(example)
    novel, familiar = _evaluation(trained, rest, stream, held_out, half)
    middle = dev // 2
    return Splits(
        tuple(trained),
        _interleave(novel[:middle], familiar[:middle]),
        _interleave(novel[middle:], familiar[middle:]),
    )


def _evaluation(
    trained: list[Example],
    rest: list[Example],
    stream: Iterator[Example],
    held_out: frozenset[str],
    half: int,
) -> tuple[list[Example], list[Example]]:
    """`half` examples with a combination held out, and `half` with none, fair to `trained`."""
    seen = {use for example in trained for use in example.combinations}
    forms = {word for e in trained for word in words(f"{e.english} {e.german}")}
    # Fair: the construction is known from other words, the word from other constructions.
    known = {part for use in seen for part in use.split(":")}
    fair = {use for use in held_out if known.issuperset(use.split(":"))}
    novel: list[Example] = []
    familiar: list[Example] = []
    waiting, draws = iter(rest), 0
    while len(novel) < half or len(familiar) < half:
        example = next(waiting, None) or next(stream)
        draws += 1
        if draws > 20_000 + 20 * len(trained):
            raise ValueError(f"train of {len(trained)} sentences is too small for dev and test")
        new = example.combinations - seen
        if not forms.issuperset(words(f"{example.english} {example.german}")):
            continue
        if not new and len(familiar) < half:
            familiar.append(example)
        elif len(new) == 1 and new <= fair and len(novel) < half:
            novel.append(example)
    return novel, familiar
