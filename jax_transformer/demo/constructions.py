"""English constructions that the demo's treebank has beyond its translations (§6.3).

They are what makes parsing hard: where a phrase attaches and a clause ends shows only in the
words. What decides is always in the derivation: a garment belongs to its wearer and a tool to
what is done with it; who knows a man in the garden knows the man there.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from jax_transformer.demo import lexicon
from jax_transformer.demo.grammar import (
    MANNER,
    PREDICATE,
    Clause,
    Constituent,
    Example,
    NounPhrase,
    agent,
    at,
    both,
    english_clause,
    finish,
    gap,
    leaves,
    name,
    node,
    noun_phrase,
    object_,
    object_question,
    prepositional,
    statement,
    time,
    verb_phrase,
    with_,
)
from jax_transformer.demo.lexicon import DATIVE, Verb
from jax_transformer.demo.sentences import (
    DOING,
    PASSIVE,
    PLACES,
    _nouns_of,
    _ownable,
    _Sampler,
    _verbs_for,
)

CONSTRUCTIONS = frozenset(
    lexicon.rows("""
possessive; object-with; object-place; instrument; reduced-passive; reduced-progressive
zero-relative; apposition; comma-relative; noun-list; contraction; progressive; past progressive
bare-complement; plain-coordination; stranded; gerund; participle
""")
)
SENTENCES = {
    "plain_statement": 26, "timed_statement": 6, "question": 8, "who_question": 4, "passive": 5,
    "opinion": 12, "stranded_question": 4, "plain_coordination": 10, "gerund": 5, "participle": 6,
    "adverbial_clause": 6, "initial_clause": 6, "infinitive_statement": 4, "purpose_statement": 4,
    "shared": 4,
}  # fmt: skip
TOOLS = {
    "repair": ("hammer", "knife"), "open": ("key", "house key", "knife"), "close": ("key", "rope"),
    "write": ("pencil",), "eat": ("spoon", "knife"), "feed": ("spoon",), "pull": ("rope",),
    "catch": ("rope", "basket"), "break": ("hammer",), "carry": ("basket", "rope"),
}  # fmt: skip
# Verbs that happen nowhere: a place after their object is where the object is.
SETTLED = ("know", "like", "love", "admire", "need")
OPINIONS = ("say that", "think that", "know that", "believe that", "hope that", "claim that")
ENJOYED = ("like", "love", "remember")
# Kinds of noun, and what they have or wear.
PROPERTIES = {
    "person": ("clothing", "animal", "thing"),
    "room": ("opening", "furniture"),
    "building": ("opening", "tower"),
}
STRANDING = tuple(
    verb for verb, entry in lexicon.FRAMES["plain"].items() if entry.english_preposition
)
LONGEST = 30


def grown(phrase: NounPhrase, construction: str, *trees: str) -> NounPhrase:
    """A noun phrase with more behind it, in English alone."""
    uses = tuple(f"{construction}:{head}" for head in phrase.heads or ("name",))
    return replace(
        phrase, english=node("NP", phrase.english, *trees), uses=phrase.uses + uses, relative=""
    )


def stranded(verb: Verb) -> tuple[Constituent, ...]:
    """The preposition that stays with its verb: "the bus that he waits for"."""
    if not verb.english_preposition:
        return ()
    tag = "TO" if verb.english_preposition == "to" else "IN"
    tree = node("PP", node(tag, verb.english_preposition))
    return (Constituent(tree, "", PREDICATE, (f"stranded:{verb.name}",)),)


class _TreebankSampler(_Sampler):
    """Draws as the corpus does, with heavier noun phrases and more kinds of clause.

    The German of what it makes is incomplete, and nobody reads it.
    """

    def sentence(self) -> Example:
        """A sentence with one of the constructions, at least."""
        while True:
            example: Example = getattr(self, self.weighted(SENTENCES))()
            found = {use.split(":")[0] for use in example.combinations}
            if found & CONSTRUCTIONS and len(leaves(example.tree)) <= LONGEST:
                return example

    # Noun phrases

    def subject(self, kinds: tuple[str, ...], negated: bool, simple: bool) -> NounPhrase:
        phrase = super().subject(kinds, negated, simple)
        if simple or not self.chance(0.6):
            return phrase
        if not phrase.heads and not phrase.is_pronoun:
            return self.between_commas(phrase)
        return self.heavy(phrase) if self.bare_noun(phrase) else phrase

    def object_(self, kinds: tuple[str, ...], negated: bool, last: bool) -> NounPhrase:
        phrase = super().object_(kinds, negated, last)
        if not self.bare_noun(phrase) or not self.chance(0.55):
            return phrase
        if not negated and self.chance(0.25):
            return self.listed(phrase, kinds)
        if last:
            return self.heavy(phrase)
        # More would be taken for what follows: "the man who sleeps in the garden".
        has = phrase.kind in PROPERTIES and self.chance(0.5)
        return self.having(phrase) if has else self.owned((phrase.kind,))

    def bare_noun(self, phrase: NounPhrase) -> bool:
        """Whether a phrase is a noun with its determiner and adjective, and so can grow."""
        return bool(phrase.heads) and phrase.english.count("(NP") == 1 and not phrase.negative

    def heavy(self, phrase: NounPhrase) -> NounPhrase:
        """The phrase with what Penn attaches to a noun phrase, or another one with an owner."""
        ways: dict[Callable[[NounPhrase], NounPhrase], int] = {
            self.having: 24, self.done: 20, self.doing: 20, self.zero_relative: 24,
        }  # fmt: skip
        point = self.random() * 100
        for way, weight in ways.items():
            point -= weight
            if point < 0:
                return way(phrase)
        return self.owned((phrase.kind,))

    def owned(self, kinds: tuple[str, ...], levels: int = 2) -> NounPhrase:
        """ "Anna's old dog", "my brother's friend's book"."""
        noun = self.pick([each for each in _nouns_of(kinds) if lexicon.NOUNS[each].kind in kinds])
        entry = lexicon.NOUNS[noun]
        if not _ownable(entry):
            return self.definite(kinds)
        phrase = noun_phrase("", *self.maybe_described(noun), not entry.mass and self.chance(0.25))
        owner = self.owner(levels)
        tree = f"(NP {owner.english[:-1]} (POS 's)) {phrase.english.removeprefix('(NP ')}"
        uses = (*phrase.uses, f"possessive:{entry.german}")
        return replace(phrase, english=tree, definite=True, uses=uses)

    def owner(self, levels: int) -> NounPhrase:
        if levels and self.chance(0.15):
            return self.owned(("person",), levels - 1)
        if self.chance(0.5):
            return name(self.pick(lexicon.NAMES))
        noun = self.pick(_nouns_of(("person",)))
        return noun_phrase("my" if _ownable(lexicon.NOUNS[noun]) else "the", noun)

    def maybe_described(self, noun: str) -> tuple[str, str]:
        adjective = self.described((lexicon.NOUNS[noun].kind,))[1] if self.chance(0.3) else ""
        return noun, adjective

    def having(self, phrase: NounPhrase) -> NounPhrase:
        """ "the man with the red coat", "the house with the old door"."""
        if phrase.kind not in PROPERTIES:
            return self.zero_relative(phrase)
        noun = self.pick(_nouns_of(PROPERTIES[phrase.kind]))
        companion = noun_phrase(self.pick(("the", "a")), *self.maybe_described(noun))
        found = with_(phrase, companion)
        return replace(found, uses=(*found.uses, *companion.used_as("object-with")))

    def done(self, phrase: NounPhrase) -> NounPhrase:
        """ "the letter written by the king", "the door closed yesterday"."""
        verbs = [verb for verb in PASSIVE if phrase.kind in lexicon.VERBS[verb].objects]
        if not verbs:
            return self.owned((phrase.kind,))
        verb = lexicon.VERBS[self.pick(verbs)]
        part = agent(self.doer()) if self.chance(0.7) else time("yesterday")
        c = Clause(gap(phrase.plural), verb, (part,))
        return grown(phrase, "reduced-passive", verb_phrase("VBN", verb.english[2], c))

    def doing(self, phrase: NounPhrase) -> NounPhrase:
        """ "the man sleeping in the garden"."""
        if phrase.kind not in ("person", "animal"):
            return self.zero_relative(phrase)
        return grown(phrase, "reduced-progressive", self.ongoing(phrase.kind))

    def ongoing(self, kind: str) -> str:
        """ "sleeping in the garden"."""
        while True:
            c = self.clause(gap(), True, kind, positive=True, frames=DOING, timed=False)
            if c.verb.name not in lexicon.STATES:
                return verb_phrase("VBG", c.verb.gerund, c)

    def zero_relative(self, phrase: NounPhrase) -> NounPhrase:
        """ "the book the man reads", "the bus she waits for"."""
        verbs = _verbs_for("plain", object_=phrase.kind)
        if not verbs:
            return self.owned((phrase.kind,))
        verb = lexicon.VERBS[self.pick(verbs)]
        c = replace(self.bare(self.relative_subject(), verb.name), parts=stranded(verb))
        return grown(phrase, "zero-relative", node("SBAR", node("S", *english_clause(c))))

    def between_commas(self, phrase: NounPhrase) -> NounPhrase:
        """ "Anna, the baker," or "Anna, who sleeps,"."""
        if self.chance(0.5):
            inner = self.definite(("person",))
            while inner.plural:
                inner = self.definite(("person",))
            return grown(phrase, "apposition", "(, ,)", inner.english, "(, ,)")
        clause = english_clause(self.clause(gap(), simple=True, kind="person"))
        tree = node("SBAR", node("WHNP", node("WP", "who")), node("S", *clause))
        return grown(phrase, "comma-relative", "(, ,)", tree, "(, ,)")

    def listed(self, phrase: NounPhrase, kinds: tuple[str, ...]) -> NounPhrase:
        """ "the apples and the bread", "the man, the woman and the dog"."""
        second = self.definite(kinds)
        found = both(phrase, second)
        if self.chance(0.4):
            third = node("CC", "and"), self.definite(kinds).english
            tree = node("NP", phrase.english, "(, ,)", second.english, *third)
            found = replace(found, english=tree)
        return replace(found, uses=(*found.uses, f"noun-list:{phrase.heads[0]}"))

    # Clauses

    def tense(self, verb: Verb, subject: NounPhrase, kind: str) -> str:
        tense = self.weighted({"progressive": 8, "past progressive": 5, "": 87})
        return (
            tense
            if tense and self.allowed(tense, verb, subject, kind)
            else super().tense(verb, subject, kind)
        )

    def extras(self, verb: Verb, tense: str, simple: bool, timed: bool) -> tuple[Constituent, ...]:
        if verb.name not in TOOLS or not self.chance(0.45):
            return super().extras(verb, tense, simple, timed)
        tool = noun_phrase(self.pick(("the", "a")), self.pick(TOOLS[verb.name]))
        part = prepositional("with", "mit", DATIVE, tool, MANNER)
        return (replace(part, uses=(f"instrument:{verb.name}",)),)

    def complements(self, verb: Verb, negated: bool, last: bool) -> tuple[Constituent, ...]:
        if verb.name not in SETTLED or not self.chance(0.3):
            return super().complements(verb, negated, last)
        head = self.definite(verb.objects)
        phrase = at(head, self.usual_place(PLACES))
        return (object_(verb, replace(phrase, uses=head.used_as("object-place"))),)

    def clause(self, *args: Any, **settings: Any) -> Clause:
        c = super().clause(*args, **settings)
        return replace(c, contracted=c.negated and self.chance(0.5))

    # Sentences

    def opinion(self) -> Example:
        """ "He says she believes the dog sleeps", with "that" or without."""
        return statement(self.reported(1 + self.chance(0.35)))

    def reported(self, levels: int) -> Clause:
        """A clause about a clause about ... as many as there are levels."""
        inner = self.reported(levels - 1) if levels > 1 else self.clause(simple=self.chance(0.5))
        word, uses = self.weighted({"": 65, "that": 35}), inner.uses("that-clause")
        verb = lexicon.VERBS[self.pick(OPINIONS)]
        opener = node("IN", word) if word else ""
        tree = node("SBAR", opener, node("S", *english_clause(inner)))
        uses += () if word else (f"bare-complement:{verb.name}",)
        subject, tense = self.subject(("person",), False, True), "present"
        if self.chance(0.4) and self.allowed("past", verb, subject, "person"):
            tense = "past"
        return Clause(subject, verb, (Constituent(tree, "", PREDICATE, uses),), tense)

    def stranded_question(self) -> Example:
        """ "Who does he wait for?", "Which bus does he wait for?"."""
        verb = lexicon.VERBS[self.pick(STRANDING)]
        c = self.bare(self.subject(verb.subjects, False, True), verb.name)
        asked: NounPhrase | str = "who" if "person" in verb.objects else "what"
        if self.chance(0.5):
            noun = self.pick(_nouns_of(verb.objects))
            plural = not lexicon.NOUNS[noun].mass and self.chance(0.3)
            asked = noun_phrase("which", noun, "", plural)
        return object_question(replace(c, parts=stranded(verb)), asked)

    def plain_coordination(self) -> Example:
        """ "The man sees the dog and the cat sleeps", without a comma."""
        verb = lexicon.VERBS[self.pick(PASSIVE)]
        first = self.core(self.subject(verb.subjects, False, True), verb.name)
        second = self.clause(simple=True)
        trees = [node("S", *english_clause(c)) for c in (first, second)]
        word = self.pick(("and", "or", "but"))
        uses = first.uses("plain-coordination") + second.uses("plain-coordination")
        return finish(node("S", trees[0], node("CC", word), trees[1]), "", ".", uses)

    def gerund(self) -> Example:
        """ "Anna likes swimming in the lake"."""
        verb = lexicon.VERBS[self.pick(ENJOYED)]
        tree = node("S", self.ongoing("person"))
        part = Constituent(tree, "", PREDICATE, (f"gerund:{verb.name}",))
        subject = self.subject(("person",), False, self.chance(0.5))
        return statement(Clause(subject, verb, (part,)))

    def participle(self) -> Example:
        """ "Closing the door, the man laughs"."""
        c = self.clause(None, False, "person", positive=True, timed=False)
        tree = node("S", self.ongoing("person"))
        front = Constituent(tree, "", PREDICATE, (f"participle:{c.verb.name}",))
        return statement(c, front)


def bracketings(seed: int) -> Iterator[str]:
    """Bracketings without end, the same for the same seed everywhere; one may come twice."""
    sampler = _TreebankSampler(seed)
    while True:
        yield sampler.sentence().tree
