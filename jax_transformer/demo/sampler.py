"""Random sentences of the demo grammar: which words stand in which construction, and how often."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import TypeVar

from jax_transformer.demo import clauses, lexicon, phrases
from jax_transformer.demo.clauses import Clause, Sentence
from jax_transformer.demo.lexicon import DATA, NOUNS, Case, Verb, kinds_of
from jax_transformer.demo.phrases import Constituent, Field, NounPhrase, gap
from jax_transformer.parsing.trees import leaves

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
CONJUNCTIONS = {"because": 30, "although": 20, "when": 25, "while": 15, "before": 10}
# Frames of verbs that say what happens, and of those that say how things are.
ACTIONS = {"intransitive": 16, "transitive": 40, "ditransitive": 10, "motion": 8, "position": 7}
FRAMES = {**ACTIONS, "stative": 12, "copula": 20}

PERSON, LIVING, POSSESSED = (kinds_of(name) for name in ("person", "living", "possessed"))
LONGEST = 18  # words


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
    """Draws sentences; the same for the same seed everywhere."""

    def __init__(self, seed: int) -> None:
        # random() is the one method that draws the same in all versions of Python.
        self._random = Random(seed).random
        self._combinations: set[tuple[str, str]] = set()

    def sentence(self) -> Sentence:
        """A sentence in which no noun or adjective comes twice."""
        while True:
            self._combinations = set()
            sentence = self.weighted(SENTENCES)(self)
            tagged = leaves(sentence.tree)
            content = [word for tag, word in tagged if tag[:2] in ("NN", "JJ")]
            if len(content) == len(set(content)) and len(tagged) <= LONGEST:
                return replace(sentence, combinations=frozenset(self._combinations))

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
        """Remember that the sentence has this word in this construction."""
        self._combinations.add((construction, word))

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

    # ------------------------------------------------------------------------------- sentences

    def statement(self) -> Sentence:
        """ "The old dog sleeps in the garden."."""
        return clauses.statement(self.clause("statement", heavy=True))

    def fronted_time(self) -> Sentence:
        """ "Today, the dog sleeps.", with the German subject after the verb."""
        c = self.clause("inversion", frames=ACTIONS)
        return clauses.statement(c, self.time(c.tense))

    def passive(self) -> Sentence:
        """ "The door was opened by the teacher.", "The door is opened today."."""
        verb = self.pick([verb for verb in verbs_of("transitive") if verb.direct])
        tense, negated = self.pick(["passive", "past passive"]), self.chance(0.1)
        subject = self.subject(verb.objects, negated, heavy=True)
        self.use(tense, verb.name)
        part = self.time(tense)
        if self.chance(0.7):
            doer = self.person() if self.chance(0.3) else self.nominal("agent", PERSON, True)
            field = Field.PREPOSITIONAL_OBJECT
            part = phrases.prepositional("by", "von", Case.DATIVE, doer, field)
        return clauses.statement(Clause(subject, verb, (part,), tense, negated))

    def yes_no_question(self) -> Sentence:
        """ "Does the dog sleep?"."""
        return clauses.yes_no_question(self.clause("question", heavy=self.chance(0.5)))

    def asked(self, kinds: frozenset[str]) -> NounPhrase:
        """ "who", "what", "which old dog"."""
        if self.chance(0.5):
            return phrases.WHO if "person" in kinds else phrases.WHAT
        noun = NOUNS[self.pick(nouns_of(kinds))]
        self.use("which", noun.english)
        plural = bool(noun.plural) and self.chance(0.3)
        return phrases.noun_phrase("which", noun.english, self.maybe_adjective(noun.kind), plural)

    def subject_question(self) -> Sentence:
        """ "Who sleeps?", "Which dog sleeps?"."""
        asked = self.asked(LIVING)
        c = self.clause("subject question", gap(asked.kind, asked.plural))
        return clauses.subject_question(c, asked)

    def object_question(self) -> Sentence:
        """ "Who does the man help?", "Which door does he open?"."""
        verbs = [verb for verb in verbs_of("transitive") if not verb.preposition]
        c = self.clause_without_object("object question", verbs)
        return clauses.object_question(c, self.asked(c.verb.objects))

    def matrix(self, frame: str, subject: NounPhrase, part: Constituent) -> Sentence:
        """A main clause whose verb takes another clause."""
        verb = self.pick(verbs_of(frame))
        tense = self.weighted({"present": 55, "past": 30, "perfect": 15})
        negated = subject.definite and self.chance(0.12)
        return clauses.statement(Clause(subject, verb, (part,), tense, negated))

    def that_clause(self) -> Sentence:
        """ "We know that the old teacher will open the door."."""
        c = self.clause("that clause", heavy=self.chance(0.3))
        part = clauses.subordinate_clause("that", c, spoken=self.chance(0.8))
        return self.matrix("that", self.subject(PERSON), part)

    def whether_clause(self) -> Sentence:
        """ "She asks whether the train arrives."."""
        part = clauses.subordinate_clause("whether", self.clause("whether clause"))
        return self.matrix("whether", self.subject(PERSON), part)

    def infinitive_clause(self) -> Sentence:
        """ "The man tries to open the door."."""
        subject = self.subject(PERSON)
        unspoken = gap("person", subject.plural, subject.person)
        c = self.clause("infinitive clause", unspoken, {"infinitive": 1}, ACTIONS)
        return self.matrix("infinitive", subject, clauses.infinitive_clause(c))

    def adverbial_clause(self) -> Sentence:
        """ "We laugh because the dog sleeps.", "When the train arrived, she slept."."""
        conjunction = self.weighted(CONJUNCTIONS)
        tenses, frames = TENSES, FRAMES
        if conjunction not in ("because", "although"):
            tenses, frames = {self.pick(["present", "past"]): 1}, ACTIONS
        c = self.clause(f"{conjunction} clause", None, tenses, frames)
        main = self.clause("main clause", None, tenses, frames)
        part = clauses.subordinate_clause(conjunction, c)
        if self.chance(0.5):
            return clauses.statement(main, part)
        return clauses.statement(replace(main, constituents=(*main.constituents, part)))

    def coordination(self) -> Sentence:
        """ "The dog sleeps, but the man works."."""
        conjunction = self.weighted({"and": 45, "but": 40, "or": 15})
        first, second = self.clause("coordination"), self.clause("coordination")
        return clauses.coordination(conjunction, first, second)


SENTENCES: dict[Callable[[Sampler], Sentence], int] = {
    Sampler.statement: 30, Sampler.fronted_time: 10, Sampler.passive: 7,
    Sampler.yes_no_question: 8, Sampler.subject_question: 5, Sampler.object_question: 5,
    Sampler.that_clause: 12, Sampler.whether_clause: 4, Sampler.infinitive_clause: 6,
    Sampler.adverbial_clause: 12, Sampler.coordination: 5,
}  # fmt: skip
