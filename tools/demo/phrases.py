"""Phrases of the demo grammar: noun phrases and a verb's complements, in English and German.

Each function is a construction. It makes the English tree, in Penn Treebank style, and the German
words at once, with the features that other constructions agree with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from jax_transformer.parsing.trees import Tree
from tools.demo.lexicon import ADJECTIVES, DATA, NAMES, NOUNS, Case, Verb, ending
from tools.demo.links import WHO_OR_WHAT, bare, mark_first, marked, maybe, new_mark


def node(label: str, *children: Tree) -> Tree:
    """Make a constituent; empty children and empty words are left out."""
    return (label, tuple(child for child in children if child[1]))


def children(tree: Tree) -> tuple[Tree, ...]:
    """Return the children of a constituent."""
    return tree[1]  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase in both languages, with gender, number, person and kind of noun."""

    english: Tree
    german: tuple[str, ...]  # by Case
    gender: str = "m"
    plural: bool = False
    person: int = 3
    kind: str = "person"
    noun: str = ""  # English; empty for pronouns and names
    definite: bool = True
    object_form: Tree | None = None  # of English pronouns: "him"

    @property
    def spoken(self) -> bool:
        """Return False for a gap."""
        return bool(self.english[1])

    @property
    def agreement(self) -> str:
        """The feature that German words agree with: m, f, n or plural."""
        return "plural" if self.plural else self.gender


def noun_phrase(
    determiner: str,
    noun: str,
    adjective: str = "",
    plural: bool = False,
    marks: Sequence[str] | None = None,
) -> NounPhrase:
    """Make "the old dog", "der alte Hund".

    marks: those of the determiner, the adjective and the noun, by default new ones.
    """
    entry = NOUNS[noun]
    the, old, dog = marks or [new_mark() for _ in range(3)]
    tag, stem, paradigm, adjective_paradigm = DATA["determiners"][determiner].split()
    *modifiers, head = (entry.english_plural if plural else entry.english).split()
    vowel = (adjective or noun)[0] in "aeiou"
    tree = node(
        "NP",
        (tag, marked("an" if determiner == "a" and vowel else determiner, the)),
        ("JJ", marked(adjective, old)),
        *(("NN", marked(modifier, dog)) for modifier in modifiers),
        ("NNS" if plural else "NN", marked(head, dog)),
    )
    agreement = "plural" if plural else entry.gender
    german = []
    for case, form in enumerate(entry.decline(plural)):
        inflected = stem.replace("0", "") + ending(paradigm, agreement, case)
        words = [marked(inflected, the), marked(form, dog)]
        if adjective:
            inflected = ending(adjective_paradigm, agreement, case)
            words.insert(1, marked(ADJECTIVES[adjective].stem + inflected, old))
        german.append(" ".join(words).strip())
    definite = determiner not in ("a", "no", "many", "two", "three", "")
    return NounPhrase(tree, tuple(german), entry.gender, plural, 3, entry.kind, noun, definite)


def pronoun(word: str) -> NounPhrase:
    """Make a pronoun: I, you, he, she, we or they; "you" is always one friend: du."""
    other, german, features = DATA["pronouns"][word].split("; ")
    person, number = features.split()
    mark = new_mark()
    return NounPhrase(
        node("NP", ("PRP", marked(word, mark))),
        tuple(marked(form, mark) for form in german.split()),
        gender="f" if word == "she" else "m",
        plural=number == "plural",
        person=int(person),
        object_form=node("NP", ("PRP", marked(other, mark))),
    )


def proper_name(word: str) -> NounPhrase:
    """Make the name of a person; its genitive has "von"."""
    name, of = marked(word, new_mark()), new_mark()
    german = (name, name, name, f"{marked('von', of)} {name}")
    return NounPhrase(node("NP", ("NNP", name + of)), german, gender=NAMES[word])


def _questioned(english: str, *german: str) -> NounPhrase:
    tree = node("NP", ("WP", marked(english, WHO_OR_WHAT)))
    return NounPhrase(tree, tuple(marked(form, WHO_OR_WHAT) for form in german))


WHO = _questioned("who", "wer", "wen", "wem")
WHAT = _questioned("what", "was", "was", "was")


def gap(kind: str = "person", plural: bool = False, person: int = 3) -> NounPhrase:
    """Make a subject that is not spoken, as in relative clauses and infinitives."""
    return NounPhrase(node("NP"), ("",), plural=plural, person=person, kind=kind)


def possessive(
    owner: NounPhrase, noun: str, adjective: str = "", plural: bool = False
) -> NounPhrase:
    """Make "the king's old dog", "der alte Hund des Königs"."""
    owned = noun_phrase("the", noun, adjective, plural)
    ends_in_s = owner.plural and bare(str(children(owner.english)[-1][1]))[-1] == "s"
    mark = new_mark()  # of the German article, which English lacks
    sign = marked("'" if ends_in_s else "'s", maybe(mark))
    genitive = node("NP", *children(owner.english), ("POS", sign))
    german = tuple(
        f"{mark_first(form, mark)} {owner.german[Case.GENITIVE]}" for form in owned.german
    )
    return replace(owned, english=node("NP", genitive, *children(owned.english)[1:]), german=german)


def coordinated(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Make "the man and the woman", "der Mann und die Frau"."""
    mark = new_mark()
    tree = node("NP", first.english, ("CC", marked("and", mark)), second.english)
    pairs = zip(first.german, second.german, strict=True)
    german = tuple(f"{one} {marked('und', mark)} {other}" for one, other in pairs)
    definite = first.definite and second.definite
    return replace(first, english=tree, german=german, plural=True, definite=definite)


def negated_phrase(noun: str, adjective: str = "", plural: bool = False) -> NounPhrase:
    """Make "a dog" after "not", where German has "kein Hund"."""
    determiner = "" if plural or not NOUNS[noun].plural else "a"
    marks = [new_mark() for _ in range(3)]
    german = noun_phrase("no", noun, adjective, plural, marks).german
    return replace(noun_phrase(determiner, noun, adjective, plural, marks), german=german)


def profession(noun: str, plural: bool) -> NounPhrase:
    """Make "a doctor" after "is", where German has no article: "Arzt"."""
    marks = article, *_ = [new_mark() for _ in range(3)]
    phrase = noun_phrase("" if plural else "a", noun, plural=plural, marks=marks)
    german = noun_phrase("", noun, plural=plural, marks=marks).german
    return replace(phrase, german=tuple(marked(form, maybe(article)) for form in german))


class Field(IntEnum):
    """The order of German constituents after the finite verb.

    Pronouns come first; definite objects precede "nicht", and indefinite ones follow it.
    """

    SUBJECT = 0
    ACCUSATIVE_PRONOUN = 1
    DATIVE_PRONOUN = 2
    TIME = 3
    DATIVE = 4
    DEFINITE_ACCUSATIVE = 5
    NEGATION = 6
    INDEFINITE_ACCUSATIVE = 7
    MANNER = 8
    PLACE = 9
    PREPOSITIONAL_OBJECT = 10
    PREDICATE = 11
    POSTFIELD = 12  # after the closing verb: subordinate clauses


@dataclass(frozen=True)
class Constituent:
    """An object, an adverbial or a complement clause."""

    english: Tree
    german: str
    field: Field


def prepositional(
    english: str, german: str, case: Case, phrase: NounPhrase, field: Field
) -> Constituent:
    """Make "in the garden", "im Garten"; prepositions may be empty."""
    tree, mark = phrase.object_form or phrase.english, new_mark()
    if english:
        tag = "TO" if english == "to" else "IN"
        tree = node("PP", (tag, marked(english, mark)), tree)
    article, *rest = phrase.german[case].split(" ", 1)
    plain = bare(article)
    fused = DATA["fused"].get(f"{german} {plain}")
    if fused:
        article = article.replace(plain, marked(fused, mark), 1)
    elif german:
        article = f"{marked(german, mark)} {article}"
    else:  # "to him", "ihm"
        article = marked(article, maybe(mark))
    return Constituent(tree, " ".join([article, *rest]).strip(), field)


def direct_object(verb: Verb, phrase: NounPhrase) -> Constituent:
    """Make an object in the case, or with the preposition, that the verb governs."""
    if verb.german_preposition:
        field = Field.PREPOSITIONAL_OBJECT
    elif verb.case == Case.DATIVE:
        return receiver(phrase, verb.preposition)
    elif phrase.object_form:
        field = Field.ACCUSATIVE_PRONOUN
    else:
        field = Field.DEFINITE_ACCUSATIVE if phrase.definite else Field.INDEFINITE_ACCUSATIVE
    return prepositional(verb.preposition, verb.german_preposition, verb.case, phrase, field)


def receiver(phrase: NounPhrase, preposition: str = "") -> Constituent:
    """Make a dative: "gives the man a book", "gives a book to him", "gibt dem Mann ein Buch"."""
    field = Field.DATIVE_PRONOUN if phrase.object_form else Field.DATIVE
    return prepositional(preposition, "", Case.DATIVE, phrase, field)


def predicate_adjective(word: str, other: str = "") -> Constituent:
    """Make "is old", "is old and beautiful"."""
    old, mark, new = (new_mark() for _ in range(3))
    both = [("CC", marked("and", mark)), ("JJ", marked(other, new))] if other else []
    german = marked(ADJECTIVES[word].german, old)
    if other:
        german += f" {marked('und', mark)} {marked(ADJECTIVES[other].german, new)}"
    return Constituent(node("ADJP", ("JJ", marked(word, old)), *both), german, Field.PREDICATE)


def predicate_noun(phrase: NounPhrase) -> Constituent:
    """Make "is a doctor", "is my friend"."""
    return Constituent(phrase.english, phrase.german[Case.NOMINATIVE], Field.PREDICATE)
