"""The kinds of sentence of the demo grammar, how often each comes, and random ones of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from jax_transformer.demo import clauses
from jax_transformer.demo.clauses import Clause, Sentence
from jax_transformer.demo.lexicon import kinds_of
from jax_transformer.demo.phrases import WHAT, WHO, Constituent, Field, NounPhrase, gap
from jax_transformer.demo.sampler import (
    ACTIONS,
    FRAMES,
    PERSON,
    TENSES,
    Sampler,
    verbs_of,
    verbs_with_object,
)
from jax_transformer.parsing.trees import leaves

THINGS = kinds_of("portable snack drink opening")
LONGEST = 18  # words
CONJUNCTIONS = {"because": 30, "although": 20, "when": 25, "while": 15, "before": 10}


def random_sentences(seed: int) -> Iterator[Sentence]:
    """Sentences without end, in each of which no noun or adjective comes twice."""
    sampler = Sampler(seed)
    while True:
        sampler.combinations = set()
        sentence = sampler.weighted(SENTENCES)(sampler)
        tagged = leaves(sentence.tree)
        content = [word for tag, word in tagged if tag[:2] in ("NN", "JJ")]
        if len(content) == len(set(content)) and len(tagged) <= LONGEST:
            yield replace(sentence, combinations=frozenset(sampler.combinations))


def statement(s: Sampler) -> Sentence:
    """ "The old dog sleeps in the garden."."""
    return clauses.statement(s.clause("statement", relative=True))


def fronted_time(s: Sampler) -> Sentence:
    """ "Today, the dog sleeps.", with the German subject after the verb."""
    c = s.clause("inversion", frames=ACTIONS)
    others = tuple(part for part in c.constituents if part.field != Field.TIME)
    return clauses.statement(replace(c, constituents=others), s.time(c.tense))


def yes_no_question(s: Sampler) -> Sentence:
    """ "Does the dog sleep?"."""
    return clauses.yes_no_question(s.clause("question"))


def object_question(s: Sampler) -> Sentence:
    """ "Who does the man help?", "What does he open?"."""
    questioned, kinds = s.pick([(WHO, PERSON), (WHAT, THINGS)])
    c = s.clause_without_object("object question", verbs_with_object(kinds))
    return clauses.object_question(c, questioned)


def complement_clause(s: Sampler) -> Sentence:
    """ "We know that the old teacher will open the door.", "She asks whether he sleeps."."""
    conjunction = s.weighted({"that": 75, "whether": 25})
    part = clauses.subordinate_clause(conjunction, s.clause(f"{conjunction} clause"))
    return _governing(s, conjunction, s.subject(PERSON), part)


def infinitive_clause(s: Sampler) -> Sentence:
    """ "The man tries to open the door."."""
    subject = s.subject(PERSON)
    unspoken = gap("person", subject.plural, subject.person)
    c = s.clause("infinitive clause", unspoken, {"infinitive": 1}, ACTIONS)
    return _governing(s, "infinitive", subject, clauses.infinitive_clause(c))


def _governing(s: Sampler, frame: str, subject: NounPhrase, part: Constituent) -> Sentence:
    """A main clause whose verb takes another clause."""
    tense = s.weighted({"present": 55, "past": 30, "perfect": 15})
    negated = subject.definite and s.chance(0.12)
    return clauses.statement(Clause(subject, s.pick(verbs_of(frame)), (part,), tense, negated))


def adverbial_clause(s: Sampler) -> Sentence:
    """ "We laugh because the dog sleeps.", "When the train arrived, she slept."."""
    conjunction = s.weighted(CONJUNCTIONS)
    tenses, frames = TENSES, FRAMES
    if conjunction not in ("because", "although"):
        tenses, frames = {s.pick(["present", "past"]): 1}, ACTIONS
    c = s.clause(f"{conjunction} clause", None, tenses, frames)
    main = s.clause("main clause", None, tenses, frames)
    part = clauses.subordinate_clause(conjunction, c)
    if s.chance(0.5):
        return clauses.statement(main, part)
    return clauses.statement(replace(main, constituents=(*main.constituents, part)))


SENTENCES: dict[Callable[[Sampler], Sentence], int] = {
    statement: 35,
    fronted_time: 10,
    yes_no_question: 8,
    object_question: 6,
    complement_clause: 18,
    infinitive_clause: 8,
    adverbial_clause: 15,
}
