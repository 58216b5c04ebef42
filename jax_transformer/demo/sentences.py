"""The kinds of sentence of the demo grammar, how often each comes, and random ones of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from jax_transformer.demo import clauses, phrases
from jax_transformer.demo.clauses import Clause, Sentence
from jax_transformer.demo.lexicon import NOUNS, Case
from jax_transformer.demo.phrases import Constituent, Field, NounPhrase, gap
from jax_transformer.demo.sampler import (
    ACTIONS,
    FRAMES,
    LIVING,
    PERSON,
    TENSES,
    Sampler,
    nouns_of,
    verbs_of,
)
from jax_transformer.parsing.trees import leaves

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
    return clauses.statement(s.clause("statement", heavy=True))


def fronted_time(s: Sampler) -> Sentence:
    """ "Today, the dog sleeps.", with the German subject after the verb."""
    c = s.clause("inversion", frames=ACTIONS)
    return clauses.statement(c, s.time(c.tense))


def passive(s: Sampler) -> Sentence:
    """ "The door was opened by the teacher.", "The door is opened today."."""
    verb = s.pick([verb for verb in verbs_of("transitive") if verb.direct])
    tense, negated = s.pick(["passive", "past passive"]), s.chance(0.1)
    subject = s.subject(verb.objects, negated, heavy=True)
    s.use(tense, verb.name)
    part = s.time(tense)
    if s.chance(0.7):
        doer = s.person() if s.chance(0.3) else s.nominal("agent", PERSON, True)
        field = Field.PREPOSITIONAL_OBJECT
        part = phrases.prepositional("by", "von", Case.DATIVE, doer, field)
    return clauses.statement(Clause(subject, verb, (part,), tense, negated))


def yes_no_question(s: Sampler) -> Sentence:
    """ "Does the dog sleep?"."""
    return clauses.yes_no_question(s.clause("question", heavy=s.chance(0.5)))


def _questioned(s: Sampler, kinds: frozenset[str]) -> NounPhrase:
    """ "who", "what", "which old dog"."""
    if s.chance(0.5):
        return phrases.WHO if "person" in kinds else phrases.WHAT
    noun = NOUNS[s.pick(nouns_of(kinds))]
    s.use("which", noun.english)
    plural = bool(noun.plural) and s.chance(0.3)
    return phrases.noun_phrase("which", noun.english, s.maybe_adjective(noun.kind), plural)


def subject_question(s: Sampler) -> Sentence:
    """ "Who sleeps?", "Which dog sleeps?"."""
    questioned = _questioned(s, LIVING)
    c = s.clause("subject question", gap(questioned.kind, questioned.plural))
    return clauses.subject_question(c, questioned)


def object_question(s: Sampler) -> Sentence:
    """ "Who does the man help?", "Which door does he open?"."""
    verbs = [verb for verb in verbs_of("transitive") if not verb.preposition]
    c = s.clause_without_object("object question", verbs)
    return clauses.object_question(c, _questioned(s, c.verb.objects))


def _matrix(s: Sampler, frame: str, subject: NounPhrase, part: Constituent) -> Sentence:
    """A main clause whose verb takes another clause."""
    verb = s.pick(verbs_of(frame))
    tense = s.weighted({"present": 55, "past": 30, "perfect": 15})
    negated = subject.definite and s.chance(0.12)
    return clauses.statement(Clause(subject, verb, (part,), tense, negated))


def that_clause(s: Sampler) -> Sentence:
    """ "We know that the old teacher will open the door."."""
    c = s.clause("that clause", heavy=s.chance(0.3))
    part = clauses.subordinate_clause("that", c, spoken=s.chance(0.8))
    return _matrix(s, "that", s.subject(PERSON), part)


def whether_clause(s: Sampler) -> Sentence:
    """ "She asks whether the train arrives."."""
    part = clauses.subordinate_clause("whether", s.clause("whether clause"))
    return _matrix(s, "whether", s.subject(PERSON), part)


def infinitive_clause(s: Sampler) -> Sentence:
    """ "The man tries to open the door."."""
    subject = s.subject(PERSON)
    unspoken = gap("person", subject.plural, subject.person)
    c = s.clause("infinitive clause", unspoken, {"infinitive": 1}, ACTIONS)
    return _matrix(s, "infinitive", subject, clauses.infinitive_clause(c))


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


def coordination(s: Sampler) -> Sentence:
    """ "The dog sleeps, but the man works."."""
    conjunction = s.weighted({"and": 45, "but": 40, "or": 15})
    first, second = s.clause("coordination"), s.clause("coordination")
    return clauses.coordination(conjunction, first, second)


SENTENCES: dict[Callable[[Sampler], Sentence], int] = {
    statement: 30, fronted_time: 10, passive: 7, yes_no_question: 8, subject_question: 5,
    object_question: 5, that_clause: 12, whether_clause: 4, infinitive_clause: 6,
    adverbial_clause: 12, coordination: 5,
}  # fmt: skip
