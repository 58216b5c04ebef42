"""The kinds of sentence of the demo grammar, their frequencies, and random sentences of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from jax_transformer.parsing.trees import leaves
from tools.demo import clauses
from tools.demo.clauses import Clause, Sentence
from tools.demo.lexicon import AUXILIARIES, VERBS, kinds_of
from tools.demo.phrases import (
    WHAT,
    WHO,
    Constituent,
    Field,
    NounPhrase,
    gap,
    negated_phrase,
    noun_phrase,
    predicate_noun,
    profession,
)
from tools.demo.sampler import (
    ACTIONS,
    FRAMES,
    PERSON,
    POSSESSIVES,
    TENSES,
    Sampler,
    verbs_of,
    verbs_with_object,
)

THINGS = kinds_of("portable snack drink opening")
RELATION, PROFESSION = kinds_of("relation"), kinds_of("profession")
EVERYTHING = kinds_of("concrete snack dish drink furniture opening place ground shore")
BE = AUXILIARIES["sein"]
LONGEST = 18  # words
SIMPLE_SHARE = 0.4  # of all sentences
# Tenses and frames of simple sentences.
SIMPLE_TENSES = {**TENSES, "present": 150}
SIMPLE_FRAMES = {**FRAMES, "intransitive": 30, "copula": 22, "presence": 10}
CONJUNCTIONS = {"because": 30, "although": 20, "when": 25, "while": 15, "before": 10}


def random_sentences(seed: int) -> Iterator[Sentence]:
    """Yield sentences without end, in each of which no noun or adjective comes twice."""
    sampler = Sampler(seed)
    while True:
        sampler.combinations = set()
        sampler.simple = sampler.chance(SIMPLE_SHARE)
        sentence = sampler.weighted(SIMPLE if sampler.simple else SENTENCES)(sampler)
        if sampler.chance(0.3):  # "cannot" is more frequent
            sentence = replace(sentence, english=sentence.english.replace("cannot", "can not"))
        tagged = leaves(sentence.tree)
        content = [word for tag, word in tagged if tag[:2] in ("NN", "JJ")]
        if len(content) == len(set(content)) and len(tagged) <= LONGEST:
            yield replace(sentence, combinations=frozenset(sampler.combinations))


def statement(s: Sampler) -> Sentence:
    """Draw a sentence such as "The old dog sleeps in the garden."."""
    return clauses.statement(s.clause("statement", relative=True))


def fronted_time(s: Sampler) -> Sentence:
    """Draw a sentence such as "Today, the dog sleeps.", with the German subject after the verb."""
    c = s.clause("inversion", frames=ACTIONS)
    others = tuple(part for part in c.constituents if part.field != Field.TIME)
    comma = "," if s.chance(0.6) else ""
    return clauses.statement(replace(c, constituents=others), s.time(c.tense), comma)


def yes_no_question(s: Sampler) -> Sentence:
    """Draw a sentence such as "Does the dog sleep?"."""
    return clauses.yes_no_question(s.clause("question"))


def object_question(s: Sampler) -> Sentence:
    """Draw a sentence such as "Who does the man help?", "What does he open?"."""
    questioned, kinds = s.pick([(WHO, PERSON), (WHAT, THINGS)])
    verbs = verbs_with_object(kinds, "transitive", "stative")
    c = s.clause_without_object("object question", verbs)
    return clauses.object_question(c, questioned)


def complement_clause(s: Sampler) -> Sentence:
    """Draw a sentence such as "We know that he sings.", "She asks whether he sleeps."."""
    conjunction = s.weighted({"that": 75, "whether": 25})
    part = clauses.subordinate_clause(conjunction, s.clause(f"{conjunction} clause"))
    return _governing(s, conjunction, s.subject(PERSON), part)


def infinitive_clause(s: Sampler) -> Sentence:
    """Draw a sentence such as "The man tries to open the door."."""
    subject = s.subject(PERSON)
    unspoken = gap("person", subject.plural, subject.person)
    c = s.clause("infinitive clause", unspoken, {"infinitive": 1}, ACTIONS)
    return _governing(s, "infinitive", subject, clauses.infinitive_clause(c))


def _governing(s: Sampler, frame: str, subject: NounPhrase, part: Constituent) -> Sentence:
    """Draw a main clause whose verb takes another clause."""
    tense = s.weighted({"present": 55, "past": 30, "perfect": 15})
    negated = subject.definite and s.chance(0.12)
    return clauses.statement(Clause(subject, s.pick(verbs_of(frame)), (part,), tense, negated))


def adverbial_clause(s: Sampler) -> Sentence:
    """Draw a sentence such as "We laugh because he sleeps.", "When the train came, she slept."."""
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


def simple_statement(s: Sampler) -> Sentence:
    """Draw a sentence such as "The cat sleeps.", "I cannot open the door."."""
    return clauses.statement(s.clause("statement", None, SIMPLE_TENSES, SIMPLE_FRAMES))


def simple_question(s: Sampler) -> Sentence:
    """Draw a sentence such as "Do you see the dog?"."""
    return clauses.yes_no_question(s.clause("question", None, SIMPLE_TENSES, SIMPLE_FRAMES))


def subject_question(s: Sampler) -> Sentence:
    """Draw a sentence such as "Who opens the door?"."""
    c = s.clause("subject question", WHO, SIMPLE_TENSES, SIMPLE_FRAMES)
    return clauses.subject_question(c)


def where_question(s: Sampler) -> Sentence:
    """Draw a sentence such as "Where is the key?"."""
    tense = s.weighted({"present": 80, "past": 20})
    c = Clause(s.subject(EVERYTHING, "the"), VERBS["presence"]["be"], (), tense)
    return clauses.adverb_question(c, "where", "wo")


def adverb_question(s: Sampler) -> Sentence:
    """Draw a sentence such as "Where do you live?", "When does the train arrive?"."""
    c = s.clause("adverb question", None, SIMPLE_TENSES, ACTIONS)
    questions = {"when": ("wann", Field.TIME), "why": ("warum", None)}
    if c.verb.frame == "motion":
        questions["where"] = ("wohin", Field.PREDICATE)
    elif c.verb.frame in ("intransitive", "position") and c.verb.auxiliary == "haben":
        questions["where"] = ("wo", Field.PLACE)
    english = s.pick([*questions, "where"] if "where" in questions else list(questions))
    german, left_out = questions[english]
    rest = tuple(part for part in c.constituents if part.field != left_out)
    return clauses.adverb_question(replace(c, constituents=rest), english, german)


def imperative(s: Sampler) -> Sentence:
    """Draw a sentence such as "Open the door!"."""
    c = s.clause("imperative", gap("person", person=2), {"imperative": 1}, ACTIONS)
    return clauses.imperative(c, "!" if s.chance(0.7) else ".")


def identity(s: Sampler) -> Sentence:
    """Draw a sentence such as "I am a student.", "Is he your brother?", "Who are you?"."""
    tense = s.weighted({"present": 80, "past": 20})
    subject = s.subject(PERSON, "the")
    if s.chance(0.2):
        return clauses.object_question(Clause(subject, BE, (), tense), WHO)
    negated = s.chance(0.2)
    related = s.chance(0.3)
    noun = s.noun(RELATION if related else PROFESSION)
    if subject.person == 3 and not subject.plural and subject.gender != noun.gender:
        return identity(s)
    s.use("predicative noun", noun.english)
    if related:
        phrase = noun_phrase(s.pick(POSSESSIVES), noun.english, plural=subject.plural)
    elif negated:
        phrase = negated_phrase(noun.english, plural=subject.plural)
    else:
        phrase = profession(noun.english, subject.plural)
    c = Clause(subject, BE, (predicate_noun(phrase),), tense, negated)
    return clauses.yes_no_question(c) if s.chance(0.25) else clauses.statement(c)


def coordination(s: Sampler) -> Sentence:
    """Draw a sentence such as "The cat sleeps and the dog plays.", "They sing and dance."."""
    tenses = {s.pick(["present", "past"]): 1}
    first = s.clause("main clause", None, tenses, ACTIONS)
    subject = first.subject
    same = gap(subject.kind, subject.plural, subject.person)
    other = None if first.negated or s.chance(0.5) else same
    return clauses.coordination(first, s.clause("main clause", other, tenses, ACTIONS))


SENTENCES: dict[Callable[[Sampler], Sentence], int] = {
    statement: 35,
    fronted_time: 10,
    yes_no_question: 8,
    object_question: 6,
    complement_clause: 18,
    infinitive_clause: 8,
    adverbial_clause: 15,
}
SIMPLE: dict[Callable[[Sampler], Sentence], int] = {
    simple_statement: 44,
    simple_question: 13,
    object_question: 7,
    subject_question: 7,
    where_question: 6,
    adverb_question: 5,
    imperative: 5,
    identity: 5,
    coordination: 4,
    fronted_time: 4,
}
