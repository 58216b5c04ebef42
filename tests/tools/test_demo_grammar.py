"""The demo grammar against sentences that were translated and aligned by hand.

What else it makes is compared with the shipped corpora, to the byte, by test_demo_splits.
"""

import pytest

from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import leaves
from tools.demo.clauses import (
    Clause,
    adverb_question,
    coordination,
    infinitive_clause,
    object_question,
    relative_clause,
    statement,
    subordinate_clause,
)
from tools.demo.lexicon import AUXILIARIES, VERBS, Case
from tools.demo.links import bare, link_phrase, links
from tools.demo.phrases import (
    WHO,
    Field,
    coordinated,
    direct_object,
    gap,
    negated_phrase,
    possessive,
    predicate_adjective,
    predicate_noun,
    prepositional,
    profession,
    proper_name,
    receiver,
)
from tools.demo.phrases import noun_phrase as np
from tools.demo.phrases import pronoun as pro

VERB = {name: verb for table in VERBS.values() for name, verb in table.items()}
BE = AUXILIARIES["sein"]
DOG, MAN, WOMAN, BOOK, DOOR = (np("the", word) for word in ["dog", "man", "woman", "book", "door"])
ME, HE, SHE, WE, THEY = map(pro, ("I", "he", "she", "we", "they"))
TEACHER = np("the", "teacher", "old")


def clause(subject, verb, *objects, extras=(), tense="present", negated=False, contracted=False):
    verb = VERB[verb]
    parts = tuple(direct_object(verb, phrase) for phrase in objects)
    return Clause(subject, verb, parts + tuple(extras), tense, negated, contracted)


def being(subject, *parts, tense="present", negated=False, contracted=False):
    return Clause(subject, BE, parts, tense, negated, contracted)


GIVING = (direct_object(VERB["give"], BOOK), receiver(ME, "to"))
IN_THE_GARDEN = prepositional("in", "in", Case.DATIVE, np("the", "garden"), Field.PLACE)

# Sure links with -, possible ones with p.
TABLE = [
    (statement(clause(possessive(np("the", "king"), "dog", "big"), "sleep")),
     "The king's big dog sleeps.", "Der große Hund des Königs schläft.", "0-3 1p0 1-4 2-1 3-2 4-5"),
    (statement(Clause(WOMAN, VERB["give"], GIVING)),
     "The woman gives the book to me.", "Die Frau gibt mir das Buch.",
     "0-0 1-1 2-2 3-4 4-5 5p3 6-3"),
    (statement(clause(WE, "sleep", extras=(IN_THE_GARDEN,))),
     "We sleep in the garden.", "Wir schlafen im Garten.", "0-0 1-1 2-2 3-2 4-3"),
    (statement(clause(SHE, "call up", HE)), "She calls him up.", "Sie ruft ihn an.",
     "0-0 1-1 1p3 2-2 3p1 3p3"),
    (statement(clause(TEACHER, "open", DOOR, tense="want", negated=True)),
     "The old teacher does not want to open the door.",
     "Der alte Lehrer will die Tür nicht öffnen.", "0-0 1-1 2-2 3p3 4-6 5-3 6p7 7-7 8-4 9-5"),
    (statement(clause(ME, "run away", tense="progressive")),
     "I am running away.", "Ich laufe weg.", "0-0 1p1 2-1 2p2 3p1 3p2"),
    (statement(clause(SHE, "sleep", tense="past"),
               subordinate_clause("when", clause(HE, "come back", tense="past"))),
     "When he came back, she slept.", "Als er zurückkam, schlief sie.", "0-0 1-1 2-2 3p2 4-4 5-3"),
    (statement(Clause(HE, VERBS["infinitive"]["try"], (
        infinitive_clause(clause(gap(), "call up", WOMAN)),))),
     "He tries to call up the woman.", "Er versucht, die Frau anzurufen.",
     "0-0 1-1 2p4 3-4 4p4 5-2 6-3"),
    (statement(clause(SHE, "read", relative_clause(BOOK, clause(MAN, "write"), "object"),
                      tense="perfect")),
     "She has read the book that the man writes.",
     "Sie hat das Buch, das der Mann schreibt, gelesen.", "0-0 1-1 2-8 3-2 4-3 5-4 6-5 7-6 8-7"),
    (object_question(clause(DOG, "help"), WHO), "Who does the dog help?", "Wem hilft der Hund?",
     "0-0 1p1 2-2 3-3 4-1"),
    (adverb_question(clause(SHE, "call up", MAN, tense="past"), "when", "wann"),
     "When did she call up the man?", "Wann rief sie den Mann an?",
     "0-0 1p1 2-2 3-1 3p5 4p1 4p5 5-3 6-4"),
    (statement(clause(ME, "help", coordinated(np("the", "dog"), proper_name("Anna")))),
     "I help the dog and Anna.", "Ich helfe dem Hund und Anna.", "0-0 1-1 2-2 3-3 4-4 5-5"),
    (statement(being(BOOK, predicate_adjective("old", "beautiful"))),
     "The book is old and beautiful.", "Das Buch ist alt und schön.", "0-0 1-1 2-2 3-3 4-4 5-5"),
    (coordination(clause(THEY, "sing"), clause(gap(plural=True), "go away")),
     "They sing and go away.", "Sie singen und gehen weg.", "0-0 1-1 2-2 3-3 3p4 4p3 4p4"),
    (statement(being(HE, predicate_noun(profession("doctor", False)))),
     "He is a doctor.", "Er ist Arzt.", "0-0 1-1 2p2 3-2"),
    (statement(clause(ME, "have", negated_phrase("car", "old"), negated=True, contracted=True)),
     "I don't have an old car.", "Ich habe kein altes Auto.", "0-0 1p1 1-2 2-1 3-2 4-3 5-4"),
    (statement(clause(ME, "open", DOOR, tense="can", negated=True)),
     "I cannot open the door.", "Ich kann die Tür nicht öffnen.", "0-0 1-1 1-4 2-5 3-2 4-3"),
    (statement(clause(ME, "sleep", tense="can", negated=True, contracted=True)),
     "I can't sleep.", "Ich kann nicht schlafen.", "0-0 1-1 1-2 2-3"),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "english", "german", "pairs"), TABLE)
def test_the_grammar_translates_and_links_words_as_a_person_did(sentence, english, german, pairs):
    assert (sentence.english, sentence.german) == (english, german)
    found = [f"{i}{'-' if sure else 'p'}{j}" for i, j, sure in sentence.links]
    assert found == pairs.split()


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        ("(NP (DT this) (NN week))", "diese Woche", [(0, 0), (1, 1)]),
        ("(PP (IN in) (NP (DT the) (NN evening)))", "am Abend", [(0, 0), (1, 0), (2, 1)]),
        ("(PP (IN at) (NP (NN night)))", "in der Nacht", [(0, 0), (0, 1), (1, 2)]),
    ],
)
def test_the_words_of_a_fixed_phrase_are_linked_in_order_or_the_last_ones(
    english, german, expected
):
    tree, theirs = link_phrase(parse_tree(english), german)
    tokens = [word for _, word in leaves(tree)]
    found = links(" ".join(map(bare, tokens)), tokens, theirs.split())
    assert found == [(*pair, True) for pair in expected]
