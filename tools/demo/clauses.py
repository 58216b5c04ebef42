"""Clauses and sentences of the demo grammar, in English and German.

German is described by its fields: a main clause is front field, finite verb, middle field, closing
verb, postfield; a subordinate clause has its conjunction first and its finite verb last.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jax_transformer.parsing.trees import Tree, leaves
from tools.demo.lexicon import AUXILIARIES, DATA, Case, Verb, ending
from tools.demo.links import bare, bare_tree, links, mark_first, marked, maybe, new_mark
from tools.demo.phrases import Constituent, Field, NounPhrase, children, node

Word = tuple[str, str]  # tag and word


@dataclass(frozen=True)
class Clause:
    """A clause that can become a statement, a question or a subordinate clause.

    tense: present, past, perfect, progressive, a modal verb (will, can, must, want), infinitive,
      imperative.
    contracted: True for "does n't" instead of "does not".
    """

    subject: NounPhrase
    verb: Verb
    constituents: tuple[Constituent, ...] = ()  # in English order
    tense: str = "present"
    negated: bool = False
    contracted: bool = False
    # Links of the clause's verb, the verb before it ("does", "has", "can"), "not" and "to".
    main: str = field(default_factory=new_mark, compare=False)
    first: str = field(default_factory=new_mark, compare=False)
    negation: str = field(default_factory=new_mark, compare=False)
    to: str = field(default_factory=new_mark, compare=False)

    @property
    def one_verb(self) -> bool:
        """Return True if German has one verb; it does not have a progressive."""
        return self.tense in ("present", "past", "progressive", "imperative")


@dataclass(frozen=True)
class Sentence:
    """A sentence pair and the tree of its English side."""

    english: str
    german: str
    tree: Tree
    combinations: frozenset[tuple[str, str]] = frozenset()  # (construction, word)
    marked: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # English tokens, German words

    @property
    def links(self) -> list[tuple[int, int, bool]]:
        """Return (English word, German word, True if surely linked); words are between spaces."""
        return links(self.english, *self.marked)


# --------------------------------------------------------------------------------------- English

MODALS = {"will": "werden", "can": "können", "must": "müssen", "want": "wollen"}


def _agreeing(subject: NounPhrase, first: Word, third: Word, plural: Word) -> Word:
    """Return the form for "I", "he", or "we"; "you" takes the plural."""
    if subject.plural or subject.person == 2:
        return plural
    return first if subject.person == 1 else third


def _finite(verb: Verb, subject: NounPhrase, past: bool = False) -> Word:
    base, past_form, _ = verb.english
    if base == "be" and past:
        return _agreeing(subject, ("VBD", "was"), ("VBD", "was"), ("VBD", "were"))
    if base == "be":
        return _agreeing(subject, ("VBP", "am"), ("VBZ", "is"), ("VBP", "are"))
    third = "has" if base == "have" else verb.third_person
    present = _agreeing(subject, ("VBP", base), ("VBZ", third), ("VBP", base))
    return ("VBD", past_form) if past else present


def _marked_verbs(c: Clause, verbs: Sequence[Word]) -> list[Word]:
    """Mark the verbs of `_english_verbs`."""
    marks = [c.first, c.main]
    if c.tense == "infinitive":
        marks = [c.to, c.main]
    if c.tense == "want":  # does want to sing, will singen
        marks = [maybe(c.first), c.first, maybe(c.main), c.main]
    pairs = zip(verbs, marks[-len(verbs) :], strict=True)
    return [(tag, marked(word, mark)) for (tag, word), mark in pairs]


def _english_verbs(c: Clause, do_support: bool) -> list[Word]:
    """Return the verbs, finite first; questions and negations need "do" if no other is finite."""
    base, _, participle = c.verb.english
    past = c.tense == "past"
    if c.tense == "infinitive":
        return [("TO", "to"), ("VB", base)]
    if c.tense == "imperative":
        return [("VB", base)]
    if c.tense == "perfect":
        return [_finite(AUXILIARIES["haben"], c.subject), ("VBN", participle)]
    if c.tense == "progressive":
        return [_finite(AUXILIARIES["sein"], c.subject), ("VBG", c.verb.gerund)]
    if c.tense in MODALS and c.tense != "want":
        return [("MD", c.tense), ("VB", base)]
    head, rest = c.verb, []
    if c.tense == "want":  # a verb like others
        head, rest = AUXILIARIES["wollen"], [("TO", "to"), ("VB", base)]
    if do_support and base != "be":
        do = _agreeing(c.subject, ("VBP", "do"), ("VBZ", "does"), ("VBP", "do"))
        return [("VBD", "did") if past else do, ("VB", head.english[0]), *rest]
    return [_finite(head, c.subject, past), *rest]


def _verb_phrase(verbs: Sequence[Word], complements: Sequence[Tree], negation: str = "") -> Tree:
    """Make (VP (VBZ has) (VP (VBN seen) ...)); "to" after a verb opens a clause of its own."""
    verb, *rest = verbs
    if not rest:
        return node("VP", verb, ("RB", negation), *complements)
    inner = _verb_phrase(rest, complements)
    opens = rest[0][0] == "TO"
    return node("VP", verb, ("RB", negation), node("S", inner) if opens else inner)


def _complements(c: Clause) -> list[Tree]:
    """Return the trees after the verb; a particle stands after a pronoun: "calls him up"."""
    found = [part.english for part in c.constituents]
    particle = marked(c.verb.particle, maybe(c.main))
    place = sum(part.field == Field.ACCUSATIVE_PRONOUN for part in c.constituents)
    return [*found[:place], node("PRT", ("RP", particle)), *found[place:]]


def english_clause(c: Clause) -> Tree:
    """Make a clause of the subject, if it is spoken, and the verb phrase."""
    (tag, finite), *rest = _english_verbs(c, do_support=c.negated)
    negation = "not" if c.negated else ""
    if negation and c.contracted and finite != "am":
        finite, negation = {"can": "ca", "will": "wo"}.get(finite, finite), "n't"
    verbs = _marked_verbs(c, [(tag, finite), *rest])
    phrase = _verb_phrase(verbs, _complements(c), marked(negation, c.negation))
    return node("S", c.subject.english, phrase)


def _inverted(c: Clause) -> Tree:
    """Make "Does the man not sleep": the finite verb before the subject."""
    finite, *rest = _marked_verbs(c, _english_verbs(c, do_support=True))
    inner = [_verb_phrase(rest, _complements(c))] if rest else _complements(c)
    negation = ("RB", marked("not" if c.negated else "", c.negation))
    return node("SQ", finite, c.subject.english, negation, *inner)


# ---------------------------------------------------------------------------------------- German


def _german_verbs(c: Clause) -> tuple[str, str]:
    """Return the finite verb and the end of the clause: a prefix, participle or infinitive."""
    person, plural = c.subject.person, c.subject.plural
    if c.one_verb:
        finite = c.verb.conjugate(person, plural, c.tense == "past")
        finite = c.verb.imperative if c.tense == "imperative" else finite
        return marked(finite, c.main, maybe(c.first)), marked(c.verb.prefix, maybe(c.main))
    perfect = c.tense == "perfect"
    auxiliary = AUXILIARIES[c.verb.auxiliary if perfect else MODALS[c.tense]]
    closing = c.verb.participle if perfect else c.verb.infinitive
    return marked(auxiliary.conjugate(person, plural), c.first), marked(closing, c.main)


def _middle_field(c: Clause, with_subject: bool) -> str:
    words = [(part.field, part.german) for part in c.constituents if part.field < Field.POSTFIELD]
    if with_subject:
        words.append((Field.SUBJECT, c.subject.german[Case.NOMINATIVE]))
    if c.negated and not any(german.startswith("kein") for _, german in words):
        words.append((Field.NEGATION, marked("nicht", c.negation)))
    elif c.negated:
        words = [
            (field, mark_first(german, c.negation) if german.startswith("kein") else german)
            for field, german in words
        ]
    return " ".join(german for _, german in sorted(words, key=lambda item: item[0]))


def _postfield(c: Clause) -> str:
    return " ".join(part.german for part in c.constituents if part.field == Field.POSTFIELD)


def verb_second(c: Clause, front: str | None = None) -> str:
    """Make a main clause: the subject comes first or, if there is a `front`, after the verb.

    An empty `front` puts the verb first, as in questions.
    """
    finite, closing = _german_verbs(c)
    first = c.subject.german[Case.NOMINATIVE] if front is None else front
    middle = _middle_field(c, with_subject=front is not None)
    return f"{first} {finite} {middle} {closing} {_postfield(c)}"


def verb_final(c: Clause, opener: str) -> str:
    """Make a subordinate clause between commas; a separable prefix rejoins its verb."""
    finite, closing = _german_verbs(c)
    verbs = closing + finite if c.one_verb else f"{closing} {finite}"
    return f", {opener} {_middle_field(c, with_subject=True)} {verbs} {_postfield(c)} ,"


# --------------------------------------------------------------------------- subordinate clauses


def relative_clause(head: NounPhrase, c: Clause, role: str) -> NounPhrase:
    """Give a noun phrase a relative clause, in which it is the "subject" or the "object".

    `c` lacks that constituent: "the dog that he helps", "der Hund, dem er hilft".
    """
    case = Case.NOMINATIVE if role == "subject" else c.verb.case
    mark = new_mark()
    tag, pronoun = ("WP", "who") if head.kind == "person" else ("WDT", "that")
    wh = node("WHNP", (tag, marked(pronoun, mark)))
    tree = node("NP", head.english, node("SBAR", wh, english_clause(c)))
    german = verb_final(c, marked("d" + ending("relative", head.agreement, case), mark))
    return replace(head, english=tree, german=tuple(f"{form} {german}" for form in head.german))


def subordinate_clause(conjunction: str, c: Clause) -> Constituent:
    """Make "that the dog sleeps", "dass der Hund schläft"."""
    past_when = conjunction == "when" and c.tense == "past"
    german = "als" if past_when else DATA["conjunctions"][conjunction]
    mark = new_mark()
    word = marked(conjunction, mark)
    opener = node("WHADVP", ("WRB", word)) if conjunction == "when" else ("IN", word)
    tree = node("SBAR", opener, english_clause(c))
    return Constituent(tree, verb_final(c, marked(german, mark)), Field.POSTFIELD)


def infinitive_clause(c: Clause) -> Constituent:
    """Make "to open the door", "die Tür zu öffnen"; the subject of `c` is a gap."""
    tree = english_clause(replace(c, tense="infinitive"))
    if c.verb.prefix:  # one word: "aufzustehen"
        verb = marked(c.verb.zu_infinitive, c.main, maybe(c.to))
    else:
        verb = f"{marked('zu', c.to)} {marked(c.verb.infinitive, c.main)}"
    german = f", {_middle_field(c, with_subject=False)} {verb} ,"
    return Constituent(tree, german, Field.POSTFIELD)


# ------------------------------------------------------------------------------------- sentences


def detokenize(tokens: Sequence[str]) -> str:
    """Join tokens to text: no space before a mark, a possessive or "n't"; "cannot"."""
    return re.sub(r" (?=[,.?!']|n't )|(?<=\b[Cc]an) (?=not )", "", " ".join(tokens))


def _capitalized(tree: Tree) -> Tree:
    label, inside = tree
    if isinstance(inside, str):
        return (label, inside[0].upper() + inside[1:])
    return (label, (_capitalized(inside[0]), *inside[1:]))


def _sentence(tree: Tree, german: str, mark: str = ".") -> Sentence:
    """Put the final mark on both sides, and leave one comma where clauses have several."""
    tree = _capitalized(node(tree[0], *children(tree), (".", mark)))
    german = re.sub(r"[\s,]*,[\s,]*", ", ", " ".join(german.split())).strip(", ") + mark
    german = german[0].upper() + german[1:]
    tokens, plain = tuple(word for _, word in leaves(tree)), bare_tree(tree)
    english = detokenize([word for _, word in leaves(plain)])
    return Sentence(english, bare(german), plain, marked=(tokens, tuple(german.split(" "))))


def statement(c: Clause, front: Constituent | None = None, comma: str = ",") -> Sentence:
    """Make a main clause; an adverbial at its start puts the German subject after the verb."""
    if front is None:
        return _sentence(english_clause(c), verb_second(c))
    tree = node("S", front.english, (",", comma), *children(english_clause(c)))
    return _sentence(tree, verb_second(c, front.german))


def yes_no_question(c: Clause) -> Sentence:
    """Make "Does the dog sleep?", "Schläft der Hund?"."""
    return _sentence(_inverted(c), verb_second(c, ""), "?")


def imperative(c: Clause, mark: str = "!") -> Sentence:
    """Make "Open the door!", "Öffne die Tür!"; the subject of `c` is a gap."""
    return _sentence(english_clause(c), verb_second(c, ""), mark)


def coordination(first: Clause, second: Clause) -> Sentence:
    """Make "He sings and she dances."; with a gap as its second subject, "He sings and dances."."""
    mark = new_mark()
    conjunction = ("CC", marked("and", mark))
    german = f"{verb_second(first)} {marked('und', mark)} {verb_second(second)}"
    trees = english_clause(first), english_clause(second)
    if second.subject.spoken:
        return _sentence(node("S", trees[0], conjunction, trees[1]), german)
    (subject, phrase), (other,) = map(children, trees)
    return _sentence(
        node("S", subject, node("VP", phrase, ("CC", marked("and", mark)), other)), german
    )


def subject_question(c: Clause) -> Sentence:
    """Make "Who opens the door?", "Wer öffnet die Tür?"; the subject of `c` is WHO."""
    subject, phrase = children(english_clause(c))
    tree = node("SBARQ", node("WHNP", *children(subject)), node("SQ", phrase))
    return _sentence(tree, verb_second(c), "?")


def adverb_question(c: Clause, english: str, german: str) -> Sentence:
    """Make "Where does she live?", "Wo wohnt sie?"."""
    mark = new_mark()
    tree = node("SBARQ", node("WHADVP", ("WRB", marked(english, mark))), _inverted(c))
    return _sentence(tree, verb_second(c, marked(german, mark)), "?")


def object_question(c: Clause, questioned: NounPhrase) -> Sentence:
    """Make "Who does he help?", "Wem hilft er?"; German has the case that the verb governs."""
    tree = node("SBARQ", node("WHNP", *children(questioned.english)), _inverted(c))
    return _sentence(tree, verb_second(c, questioned.german[c.verb.case]), "?")
