"""The demo grammar: its German against a hand-written table, its splits against their promises."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from jax_transformer.demo import lexicon as demo_lexicon
from jax_transformer.demo.grammar import (
    Example,
    adverb,
    adverbial_question,
    agent,
    at,
    both,
    clause,
    complex_statement,
    coordination,
    detokenise,
    existential,
    frequency,
    gap,
    identity,
    indirect_question,
    infinitive,
    leaves,
    name,
    object_question,
    of,
    place_relative,
    predicative,
    prepositional,
    pronoun,
    purpose,
    shared_subject,
    statement,
    subject_question,
    subordinate,
    time,
    with_,
    with_relative,
    yes_no_question,
)
from jax_transformer.demo.grammar import noun_phrase as np
from jax_transformer.demo.lexicon import ACCUSATIVE, DATIVE
from jax_transformer.demo.sentences import Splits, generate, splits

ME, YOU, HE, SHE, WE, THEY = (pronoun(word) for word in ("I", "you", "he", "she", "we", "they"))
DOG, WOMAN, MAN, BOOK = (np("the", word) for word in ("dog", "woman", "man", "book"))
IN_GARDEN = prepositional("in", "in", DATIVE, np("the", "garden"))
SLEEPS = clause(DOG, "sleep")

# English and German by hand, and the derivation that must yield both.
TABLE = [
    # Gender, case, adjective endings.
    ("The old dog sees a black cat.", "Der alte Hund sieht eine schwarze Katze.",
     lambda: statement(clause(np("the", "dog", "old"), "see", np("a", "cat", "black")))),
    ("An old man finds a red hat.", "Ein alter Mann findet einen roten Hut.",
     lambda: statement(clause(np("a", "man", "old"), "find", np("a", "hat", "red")))),
    ("A small child drinks cold milk.", "Ein kleines Kind trinkt kalte Milch.",
     lambda: statement(clause(np("a", "child", "small"), "drink", np("", "milk", "cold")))),
    ("Many young boys help my old neighbours.", "Viele junge Jungen helfen meinen alten Nachbarn.",
     lambda: statement(clause(np("many", "boy", "young", True), "help",
                              np("my", "neighbour", "old", True)))),
    ("The boy watches the bear.", "Der Junge beobachtet den Bären.",
     lambda: statement(clause(np("the", "boy"), "watch", np("the", "bear")))),
    ("The expensive car belongs to the doctor.", "Das teure Auto gehört dem Arzt.",
     lambda: statement(clause(np("the", "car", "expensive"), "belong to", np("the", "doctor")))),
    ("All children follow these dark horses.", "Alle Kinder folgen diesen dunklen Pferden.",
     lambda: statement(clause(np("all", "child", "", True), "follow",
                              np("these", "horse", "dark", True)))),
    ("She knows the daughter of the king.", "Sie kennt die Tochter des Königs.",
     lambda: statement(clause(SHE, "know", of(np("the", "daughter"), np("the", "king"))))),
    # Two objects, pronouns, the middle field.
    ("The woman gives the man a book.", "Die Frau gibt dem Mann ein Buch.",
     lambda: statement(clause(WOMAN, "give", MAN, np("a", "book")))),
    ("The woman gives the book to the man.", "Die Frau gibt dem Mann das Buch.",
     lambda: statement(clause(WOMAN, "give", MAN, BOOK, to=True))),
    ("The woman gives the book to a man.", "Die Frau gibt das Buch einem Mann.",
     lambda: statement(clause(WOMAN, "give", np("a", "man"), BOOK, to=True))),
    ("I remember him today.", "Ich erinnere mich heute an ihn.",
     lambda: statement(clause(ME, "remember", HE, extras=(time("today"),)))),
    ("They wait for the bus.", "Sie warten auf den Bus.",
     lambda: statement(clause(THEY, "wait for", np("the", "bus")))),
    # Prepositions, compounds.
    ("My sister puts the wine glass onto the kitchen table.",
     "Meine Schwester stellt das Weinglas auf den Küchentisch.",
     lambda: statement(clause(np("my", "sister"), "put", np("the", "wine glass"), extras=(
         prepositional("onto", "auf", ACCUSATIVE, np("the", "kitchen table")),)))),
    ("We sleep in the garden.", "Wir schlafen im Garten.",
     lambda: statement(clause(WE, "sleep", extras=(IN_GARDEN,)))),
    ("The cat under the bed is tired.", "Die Katze unter dem Bett ist müde.",
     lambda: statement(clause(at(np("the", "cat"), prepositional(
         "under", "unter", DATIVE, np("the", "bed"))), "be", extras=(predicative("tired"),)))),
    ("The tower is older than the church.", "Der Turm ist älter als die Kirche.",
     lambda: statement(clause(np("the", "tower"), "be", extras=(
         predicative("old", np("the", "church")),)))),
    ("My brother is a clever cook.", "Mein Bruder ist ein kluger Koch.",
     lambda: statement(clause(np("my", "brother"), "be", extras=(
         identity(np("a", "cook", "clever")),)))),
    # Verb second, separable verbs, tenses.
    ("Today, the dog sleeps.", "Heute schläft der Hund.",
     lambda: statement(SLEEPS, time("today"))),
    ("In the morning, the man gets up.", "Am Morgen steht der Mann auf.",
     lambda: statement(clause(MAN, "get up"), time("in the morning"))),
    ("Unfortunately, the train has not arrived.", "Leider ist der Zug nicht angekommen.",
     lambda: statement(clause(np("the", "train"), "arrive", tense="perfect", negated=True),
                       adverb("unfortunately"))),
    ("She calls up the teacher.", "Sie ruft den Lehrer an.",
     lambda: statement(clause(SHE, "call up", np("the", "teacher")))),
    ("She calls him up.", "Sie ruft ihn an.", lambda: statement(clause(SHE, "call up", HE))),
    ("You must call me up.", "Du musst mich anrufen.",
     lambda: statement(clause(YOU, "call up", ME, tense="must"))),
    ("The man and the woman wanted to swim.", "Der Mann und die Frau wollten schwimmen.",
     lambda: statement(clause(both(MAN, WOMAN), "swim", tense="wanted"))),
    ("The book was read by the teacher.", "Das Buch wurde vom Lehrer gelesen.",
     lambda: statement(clause(BOOK, "read", extras=(agent(np("the", "teacher")),),
                              tense="past passive"))),
    # Negation and frequency.
    ("The dog does not see the man.", "Der Hund sieht den Mann nicht.",
     lambda: statement(clause(DOG, "see", MAN, negated=True))),
    ("The dog does not see a man.", "Der Hund sieht keinen Mann.",
     lambda: statement(clause(DOG, "see", np("not a", "man"), negated=True))),
    ("Anna never reads the newspaper.", "Anna liest die Zeitung nie.",
     lambda: statement(clause(name("Anna"), "read", np("the", "newspaper"),
                              extras=(frequency("never"),)))),
    ("Anna often reads newspapers.", "Anna liest oft Zeitungen.",
     lambda: statement(clause(name("Anna"), "read", np("", "newspaper", "", True),
                              extras=(frequency("often"),)))),
    # Subordinate clauses, infinitives.
    ("He says that the man gets up.", "Er sagt, dass der Mann aufsteht.",
     lambda: statement(clause(HE, "say that", extras=(
         subordinate("that", clause(MAN, "get up")),)))),
    ("Because the dog has slept, we can work.",
     "Weil der Hund geschlafen hat, können wir arbeiten.",
     lambda: complex_statement("because", clause(DOG, "sleep", tense="perfect"),
                               clause(WE, "work", tense="can"))),
    ("When he came back, she slept.", "Als er zurückkam, schlief sie.",
     lambda: complex_statement("when", clause(HE, "come back", tense="past"),
                               clause(SHE, "sleep", tense="past"))),
    ("I ask where she lives.", "Ich frage, wo sie wohnt.",
     lambda: statement(clause(ME, "ask whether", extras=(
         indirect_question("where", clause(SHE, "live in")),)))),
    ("He tries to call up the woman.", "Er versucht, die Frau anzurufen.",
     lambda: statement(clause(HE, "try to", extras=(
         infinitive(clause(gap(), "call up", WOMAN)),)))),
    ("We get up in order to help him.", "Wir stehen auf, um ihm zu helfen.",
     lambda: statement(clause(WE, "get up", extras=(
         purpose(clause(gap(True, 1), "help", HE)),)))),
    # Relative clauses.
    ("The dog that sleeps is old.", "Der Hund, der schläft, ist alt.",
     lambda: statement(clause(with_relative(DOG, "subject", clause(gap(), "sleep")), "be",
                              extras=(predicative("old"),)))),
    ("She has read the book that the man writes.",
     "Sie hat das Buch gelesen, das der Mann schreibt.",
     lambda: statement(clause(SHE, "read", with_relative(BOOK, "object", clause(MAN, "write")),
                              tense="perfect"))),
    ("The women who he helps laugh.", "Die Frauen, denen er hilft, lachen.",
     lambda: statement(clause(with_relative(np("the", "woman", "", True), "object",
                                            clause(HE, "help")), "laugh"))),
    ("The bus for which we wait arrives.", "Der Bus, auf den wir warten, kommt an.",
     lambda: statement(clause(with_relative(np("the", "bus"), "object", clause(WE, "wait for")),
                              "arrive"))),
    ("The woman whose brother sings works.", "Die Frau, deren Bruder singt, arbeitet.",
     lambda: statement(clause(with_relative(WOMAN, "owner", clause(gap(), "sing"), "brother"),
                              "work"))),
    ("The house in which he lives is big.", "Das Haus, in dem er wohnt, ist groß.",
     lambda: statement(clause(place_relative(np("the", "house"), "in", "in",
                                             clause(HE, "live in")), "be",
                              extras=(predicative("big"),)))),
    ("The man with the dog laughs.", "Der Mann mit dem Hund lacht.",
     lambda: statement(clause(with_(MAN, DOG), "laugh"))),
    # Questions.
    ("Does the dog sleep?", "Schläft der Hund?", lambda: yes_no_question(SLEEPS)),
    ("Are you tired?", "Bist du müde?",
     lambda: yes_no_question(clause(YOU, "be", extras=(predicative("tired"),)))),
    ("Who helps the child?", "Wer hilft dem Kind?",
     lambda: subject_question(clause(gap(), "help", np("the", "child")))),
    ("Who does the child help?", "Wem hilft das Kind?",
     lambda: object_question(clause(np("the", "child"), "help"), "who")),
    ("Who did they call up?", "Wen riefen sie an?",
     lambda: object_question(clause(THEY, "call up", tense="past"), "who")),
    ("Which apple does the horse eat?", "Welchen Apfel isst das Pferd?",
     lambda: object_question(clause(np("the", "horse"), "eat"), np("which", "apple"))),
    ("Where does she go?", "Wohin geht sie?",
     lambda: adverbial_question("where", clause(SHE, "go to"))),
    # Coordination, existence.
    ("The dog sleeps, but the man works.", "Der Hund schläft, aber der Mann arbeitet.",
     lambda: coordination("but", SLEEPS, clause(MAN, "work"))),
    ("The man opens the door and greets the guests.",
     "Der Mann öffnet die Tür und grüßt die Gäste.",
     lambda: shared_subject(clause(MAN, "open", np("the", "door")),
                            clause(gap(), "greet", np("the", "guest", "", True)))),
    ("There is a horse in the garden.", "Es gibt ein Pferd im Garten.",
     lambda: existential(np("a", "horse"), IN_GARDEN, past=False)),
]  # fmt: skip


@pytest.mark.parametrize(("english", "german", "derive"), TABLE, ids=[row[0] for row in TABLE])
def test_the_grammar_translates_as_a_person_did(english, german, derive):
    example = derive()
    assert (example.english, example.german) == (english, german)


def test_trees_are_what_a_treebank_would_hold():
    relative = with_relative(np("the", "house"), "object", clause(MAN, "visit", tense="can"))
    example = statement(clause(SHE, "see", relative, negated=True))
    assert example.tree == (
        "(TOP (S (NP (PRP She)) (VP (VBZ does) (RB not) (VP (VB see) (NP (NP (DT the) (NN house)) "
        "(SBAR (WHNP (WDT that)) (S (NP (DT the) (NN man)) "
        "(VP (MD can) (VP (VB visit)))))))) (. .)))"
    )
    question = object_question(clause(YOU, "call up", tense="past"), "who")
    assert question.tree == (
        "(TOP (SBARQ (WHNP (WP Who)) (SQ (VBD did) (NP (PRP you)) "
        "(VP (VB call) (PRT (RP up)))) (. ?)))"
    )


# Inflected by hand, against the rules of the lexicon.
VERBS = {
    "get up": "stehe stehst steht stehen stand standen",
    "read": "lese liest liest lesen las lasen",
    "work": "arbeite arbeitest arbeitet arbeiten arbeitete arbeiteten",
    "invite": "lade lädst lädt laden lud luden",
    "feed": "füttere fütterst füttert füttern fütterte fütterten",
    "know that": "weiß weißt weiß wissen wusste wussten",
    "kiss": "küsse küsst küsst küssen küsste küssten",
}
NOUNS = {
    "dog": ("Hund Hund Hund Hundes", "Hunde Hunde Hunden Hunde"),
    "neighbour": ("Nachbar Nachbarn Nachbarn Nachbarn", "Nachbarn Nachbarn Nachbarn Nachbarn"),
    "boss": ("Chef Chef Chef Chefs", "Chefs Chefs Chefs Chefs"),
    "brother": ("Bruder Bruder Bruder Bruders", "Brüder Brüder Brüdern Brüder"),
    "flower shop": ("Blumenladen Blumenladen Blumenladen Blumenladens",
                    "Blumenläden Blumenläden Blumenläden Blumenläden"),
}  # fmt: skip


@pytest.mark.parametrize("word", VERBS)
def test_verbs_conjugate_as_in_a_hand_written_table(word):
    verb = demo_lexicon.VERBS[word]
    present = [verb.conjugate(False, person, False) for person in (1, 2, 3)]
    forms = [*present, verb.conjugate(False, 3, True)]
    forms += [verb.conjugate(True, 3, plural) for plural in (False, True)]
    assert forms == VERBS[word].split()


@pytest.mark.parametrize("word", NOUNS)
def test_nouns_decline_as_in_a_hand_written_table(word):
    noun = demo_lexicon.NOUNS[word]
    assert tuple(" ".join(noun.decline(plural)) for plural in (False, True)) == NOUNS[word]


# Nominative, accusative, dative, genitive, as a school grammar prints them.
PHRASES = {
    ("the", "dog", "old", False):
        "der alte Hund, den alten Hund, dem alten Hund, des alten Hundes",
    ("the", "woman", "old", False):
        "die alte Frau, die alte Frau, der alten Frau, der alten Frau",
    ("the", "child", "old", False):
        "das alte Kind, das alte Kind, dem alten Kind, des alten Kindes",
    ("the", "dog", "old", True):
        "die alten Hunde, die alten Hunde, den alten Hunden, der alten Hunde",
    ("this", "boy", "young", False):
        "dieser junge Junge, diesen jungen Jungen, diesem jungen Jungen, dieses jungen Jungen",
    ("a", "table", "dark", False):
        "ein dunkler Tisch, einen dunklen Tisch, einem dunklen Tisch, eines dunklen Tisches",
    ("my", "sister", "tired", False):
        "meine müde Schwester, meine müde Schwester, meiner müden Schwester, "
        "meiner müden Schwester",
    ("no", "book", "old", False):
        "kein altes Buch, kein altes Buch, keinem alten Buch, keines alten Buches",
    ("our", "child", "small", True):
        "unsere kleinen Kinder, unsere kleinen Kinder, unseren kleinen Kindern, "
        "unserer kleinen Kinder",
    ("", "wine", "good", False):
        "guter Wein, guten Wein, gutem Wein, guten Weins",
    ("", "milk", "fresh", False):
        "frische Milch, frische Milch, frischer Milch, frischer Milch",
    ("", "bread", "fresh", False):
        "frisches Brot, frisches Brot, frischem Brot, frischen Brotes",
    ("many", "house", "old", True):
        "viele alte Häuser, viele alte Häuser, vielen alten Häusern, vieler alter Häuser",
    ("two", "car", "expensive", True):
        "zwei teure Autos, zwei teure Autos, zwei teuren Autos, zwei teurer Autos",
    ("all", "pupil", "lazy", True):
        "alle faulen Schüler, alle faulen Schüler, allen faulen Schülern, aller faulen Schüler",
}  # fmt: skip


@pytest.mark.parametrize("key", PHRASES, ids=str)
def test_noun_phrases_decline_as_in_a_hand_written_table(key):
    assert ", ".join(np(*key).german) == PHRASES[key]


# ----------------------------------------------------------------------------------- the lexicon


def test_the_lexicon_has_hundreds_of_words_in_each_language():
    words = [*demo_lexicon.NOUNS.values(), *demo_lexicon.ADJECTIVES.values()]
    assert len({word.english for word in words}) >= 300
    assert len({word.german for word in words}) >= 300
    assert len({verb.infinitive for verb in demo_lexicon.VERBS.values()}) >= 100
    assert sum(bool(verb.prefix) for verb in demo_lexicon.VERBS.values()) >= 20


def test_every_kind_that_a_word_selects_exists():
    kinds = set(demo_lexicon.NOUN_TABLES)
    for word in kinds & set(demo_lexicon.NOUNS):  # a name for two things must mean the same
        assert demo_lexicon.NOUNS[word].kind == word
    for verb in demo_lexicon.VERBS.values():
        assert set(verb.subjects) <= kinds, verb.name
        assert set(verb.objects) <= kinds | set(demo_lexicon.NOUNS), verb.name
    for adjective in demo_lexicon.ADJECTIVES.values():
        assert adjective.kinds <= kinds, adjective.english


# ------------------------------------------------------------------------------------ the corpus


@cache
def corpus() -> Splits:
    return splits()


@cache
def everything() -> tuple[Example, ...]:
    return corpus().train + corpus().dev + corpus().test


def constructions(examples: tuple[Example, ...]) -> Counter[str]:
    return Counter(use.split(":")[0] for example in examples for use in example.combinations)


def test_the_splits_have_the_sizes_asked_for():
    assert [len(part) for part in (corpus().train, corpus().dev, corpus().test)] == [
        30_000, 500, 500,
    ]  # fmt: skip


def test_no_sentence_comes_twice_in_either_language():
    assert len({example.english for example in everything()}) == len(everything())
    assert len({example.german for example in everything()}) == len(everything())


def test_one_english_sentence_has_one_german_translation():
    translations: dict[str, tuple[str, str]] = {}
    for example in generate(5, 20_000):
        found = (example.german, example.tree)
        assert translations.setdefault(example.english, found) == found


@pytest.mark.parametrize("part", ["dev", "test"])
def test_exactly_half_holds_a_combination_that_train_never_shows(part):
    seen = {use for example in corpus().train for use in example.combinations}
    examples = getattr(corpus(), part)
    assert sum(not example.combinations <= seen for example in examples) == len(examples) / 2


@pytest.mark.parametrize("part", ["dev", "test"])
def test_train_shows_each_word_and_each_construction_of_what_is_held_out(part):
    seen = {use for example in corpus().train for use in example.combinations}
    halves = [{use.split(":")[i] for use in seen} for i in (0, 1)]
    for example in getattr(corpus(), part):
        for use in example.combinations - seen:
            construction, word = use.split(":")
            assert construction in halves[0]
            assert word in halves[1]


def surface(examples: tuple[Example, ...], language: str) -> set[str]:
    return {form for e in examples for form in re.findall(r"\w+", getattr(e, language))}


@pytest.mark.parametrize("language", ["english", "german"])
def test_train_shows_every_surface_form_of_dev_and_test(language):
    evaluated = surface(corpus().dev + corpus().test, language)
    assert evaluated <= surface(corpus().train, language)


def test_the_leaves_of_every_tree_are_the_english_sentence():
    for example in everything():
        assert detokenise(leaves(example.tree)) == example.english


def test_every_tree_is_balanced_and_has_one_root():
    for example in everything():
        depth, closed = 0, 0
        for mark in re.findall(r"[()]", example.tree):
            depth += 1 if mark == "(" else -1
            closed += depth == 0
        assert (depth, closed) == (0, 1), example.tree
        assert example.tree.startswith("(TOP (S")
        assert "()" not in example.tree
        assert "  " not in example.tree


def test_sentences_look_like_running_text():
    for example in everything():
        for text in (example.english, example.german):
            assert text[0].isupper()
            assert text[-1] in ".?"
            assert not re.search(r" [,.?]|,,|  |,[.?]|,\S", text), text
        assert 3 <= len(re.findall(r"\w+", example.english)) <= 25


def test_sentences_average_nine_to_eleven_words():
    lengths = [len(re.findall(r"\w+", example.english)) for example in corpus().train]
    assert 9 <= sum(lengths) / len(lengths) <= 11


def test_every_construction_is_frequent_enough_to_learn():
    counts = constructions(corpus().train)
    wanted = demo_lexicon.rows("""
relative-subject; relative-object; relative-owner; relative-place; that-clause; because-clause
although-clause; if-clause; whether-clause; when-clause; while-clause; before-clause; infinitive
purpose; question; subject-question; who-question; what-question; which-question; where-question
passive; perfect; past; will; can; must; should; may; want; inversion; negation; receiver
dative-object; prepositional-object; genitive; comparative; coordination-and; coordination-but
shared-subject; existential; separable-statement; separable-that-clause; predicate-noun
""")
    assert {word: counts[word] for word in wanted if counts[word] < 50} == {}


# Facts about German that any two words side by side must obey, whatever the derivation.
WRONG = (
    r"\b(in|an|von|bei|zu) dem \w+[.?]",  # uncontracted, with no relative clause to follow
    r"\b(ohne|für|durch) (dem|einem|einer|der)\b",
    r"\b(mit|aus|nach|zu) (die|das|einen|eine|ein)\b",
    r"\bnicht (kein\w*|eine[nmr]?)\b",
)


@pytest.mark.parametrize("pattern", WRONG)
def test_no_sentence_breaks_a_rule_of_government(pattern):
    assert [e.german for e in everything() if re.search(pattern, e.german)][:3] == []


def digest(seed: int) -> str:
    found = splits(seed, train=1000, dev=10, test=10)
    lines = [
        f"{e.english}|{e.german}|{e.tree}|{sorted(e.combinations)}"
        for e in found.train + found.dev + found.test
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_the_same_seed_gives_the_same_splits_whatever_the_hash_seed():
    program = "from tests.test_demo_grammar import digest; print(digest(7))"
    environment = dict(os.environ, PYTHONHASHSEED="123", PYTHONPATH=os.pathsep.join(sys.path))
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == digest(7)
    assert digest(7) != digest(8)


def test_odd_sizes_and_too_small_a_train_are_refused():
    with pytest.raises(ValueError, match="even sizes"):
        splits(train=100, dev=3, test=2)
    with pytest.raises(ValueError, match="too small"):
        splits(train=3, dev=40, test=40)
