"""The embedded corpus of the demo: English-German sentence pairs from a synchronous grammar.

One derivation yields three things: the English sentence, its German translation and the English
Penn-Treebank-style tree. The file reads from small to large: noun phrases, what stands beside a
verb, clauses, sentences; then the sampler that chooses among them, then the splits.

The English decides the German: where German has a choice (word order, "du" or "Sie") a rule makes
it, so that every sentence has exactly one reference.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from jax_transformer import demo_lexicon as lexicon
from jax_transformer.demo_lexicon import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, Verb

# -------------------------------------------------------------------------------------- examples


@dataclass(frozen=True)
class Example:
    """A sentence pair, the tree of its English side, and what went into it."""

    english: str
    german: str
    tree: str  # one-line Penn bracketing
    combinations: frozenset[str]  # "construction:word"


@dataclass(frozen=True)
class Splits:
    """Disjoint sets; half of dev and of test hold a combination that train never shows."""

    train: tuple[Example, ...]
    dev: tuple[Example, ...]
    test: tuple[Example, ...]


def node(label: str, *children: str) -> str:
    """The bracketing of one constituent; empty children vanish."""
    return f"({label} {' '.join(child for child in children if child)})"


def leaves(tree: str) -> list[str]:
    """The words of a bracketing."""
    return re.findall(r"\([^\s()]+ ([^\s()]+)\)", tree)


def detokenise(tokens: Sequence[str]) -> str:
    """Words and punctuation marks as running text."""
    return re.sub(r" ([,.?!])", r"\1", " ".join(tokens))


def words(sentence: str) -> list[str]:
    """The surface forms of a sentence."""
    return re.findall(r"\w+", sentence)


def tidy(german: str) -> str:
    """German running text: every clause brings its own commas, and this keeps one of each."""
    german = re.sub(r"\s*,[\s,]*", ", ", german)
    return re.sub(r",? *([.?])$", r"\1", " ".join(german.split()))


def finish(tree: str, german: str, mark: str, uses: tuple[str, ...]) -> Example:
    """A whole sentence: capital letters, the final mark, the outer bracket."""
    first = leaves(tree)[0]
    tree = tree.replace(f" {first})", f" {first[0].upper()}{first[1:]})", 1)
    tree = node("TOP", f"{tree[:-1]} (. {mark}))")
    german = tidy(f"{german} {mark}")
    return Example(detokenise(leaves(tree)), german[0].upper() + german[1:], tree, frozenset(uses))


# ---------------------------------------------------------------------------------- noun phrases


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase in both languages, with the features its surroundings agree with."""

    english: str  # tree
    german: tuple[str, ...]  # by case
    person: int = 3
    plural: bool = False
    gender: str = "m"
    kind: str = "person"
    heads: tuple[str, ...] = ()  # German nouns that combinations name
    uses: tuple[str, ...] = ()
    definite: bool = True  # definite objects stand further left in German
    english_object: str = ""  # tree, where it differs: "I", "me"
    negative: bool = False  # "kein" already says what "nicht" would
    relative: str = ""  # German relative clause, which can move away

    @property
    def is_pronoun(self) -> bool:
        return bool(self.english_object)

    @property
    def as_object(self) -> str:
        return self.english_object or self.english

    def used_as(self, construction: str) -> tuple[str, ...]:
        """The combinations of a construction with this phrase's nouns, and its own."""
        return self.uses + tuple(f"{construction}:{head}" for head in self.heads)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _row(gender: str, plural: bool) -> int:
    return lexicon.GENDERS["p" if plural else gender]


def _endings(declension: str, row: int) -> tuple[list[str], list[str]]:
    """The endings of determiner and adjective in the four cases."""
    determiner = {"weak": lexicon.STRONG, "mixed": lexicon.MIXED, "ended": lexicon.STRONG}
    adjective = {"weak": lexicon.WEAK_ADJECTIVE, "mixed": lexicon.MIXED_ADJECTIVE}
    endings = determiner[declension][row].split() if declension in determiner else ["0"] * 4
    return endings, adjective.get(declension, lexicon.STRONG_ADJECTIVE)[row].split()


@cache
def noun_phrase(
    determiner: str, noun: str, adjective: str = "", plural: bool = False
) -> NounPhrase:
    """Determiner, adjective and noun: "the old dog", "der alte Hund"."""
    entry = lexicon.NOUNS[noun]
    tag, stem, declension, number, definite = lexicon.DETERMINERS[determiner]
    assert number in ("both", "plural" if plural else "singular"), (determiner, noun)
    english_noun = entry.english_plural if plural else entry.english
    word = {"not a": "a", "not any": "any"}.get(determiner, determiner)
    if word == "a":
        word = _article(adjective or english_noun)
    *modifiers, head = english_noun.split()
    tree = node(
        "NP",
        node(tag, word) if word else "",
        node("JJ", adjective) if adjective else "",
        *(node("NN", modifier) for modifier in modifiers),
        node("NNS" if plural else "NN", head),
    )
    row = _row(entry.gender, plural)
    endings, adjective_endings = _endings(declension, row)
    german = []
    for case, form in enumerate(entry.decline(plural)):
        ending = endings[case].replace("0", "")
        article = lexicon.THE[row].split()[case] if stem == "the" else stem + ending
        described = (
            lexicon.ADJECTIVES[adjective].stem + adjective_endings[case] if adjective else ""
        )
        german.append(" ".join(part for part in (article, described, form) if part))
    uses = (f"plural:{entry.german}",) if plural else ()
    if adjective:
        uses += (f"attributive:{adjective}",)
    return NounPhrase(
        tree, tuple(german), 3, plural, entry.gender, entry.kind, (entry.german,), uses, definite,
        negative=stem == "kein",
    )  # fmt: skip


@cache
def name(word: str) -> NounPhrase:
    """A person or a city."""
    german = lexicon.CITIES.get(word, word)
    return NounPhrase(node("NP", node("NNP", word)), (german,) * 4)


@cache
def pronoun(word: str) -> NounPhrase:
    """I, you, he, she, we, they; "you" is always "du"."""
    subject, object_, german, person, plural = lexicon.PRONOUNS[word]
    tree, other = (node("NP", node("PRP", form)) for form in (subject, object_))
    return NounPhrase(tree, tuple(german.split()), person, plural, english_object=other)


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """ "the man and the woman": a plural."""
    heads = first.heads + second.heads
    return NounPhrase(
        node("NP", first.english, node("CC", "and"), second.english),
        tuple(f"{a} und {b}" for a, b in zip(first.german, second.german, strict=True)),
        plural=True, kind=first.kind, heads=heads, definite=first.definite,
        uses=first.uses + second.uses + tuple(f"coordinated-noun:{head}" for head in heads),
    )  # fmt: skip


def _extended(phrase: NounPhrase, tree: str, german: str, uses: tuple[str, ...]) -> NounPhrase:
    return replace(
        phrase,
        english=node("NP", phrase.english, tree),
        german=tuple(f"{form} {german}" for form in phrase.german),
        uses=phrase.uses + uses,
    )


def of(phrase: NounPhrase, owner: NounPhrase) -> NounPhrase:
    """ "the book of the teacher": a German genitive."""
    tree = node("PP", node("IN", "of"), owner.as_object)
    return _extended(phrase, tree, owner.german[GENITIVE], owner.used_as("genitive"))


def with_(phrase: NounPhrase, companion: NounPhrase) -> NounPhrase:
    """ "the man with the dog"."""
    tree = node("PP", node("IN", "with"), companion.as_object)
    return _extended(phrase, tree, f"mit {companion.german[DATIVE]}", companion.used_as("with"))


def at(phrase: NounPhrase, place: "Constituent") -> NounPhrase:
    """ "the cat under the table"."""
    return _extended(phrase, place.english, place.german, place.uses)


# ------------------------------------------------------------------------ what stands with a verb

# The order of the German middle field, from left to right. Pronouns lead, what is definite and
# known comes before "nicht", what is new or belongs closely to the verb follows it.
(
    SUBJECT, ACCUSATIVE_PRONOUN, DATIVE_PRONOUN, TIME, DEFINITE_DATIVE, DEFINITE_ACCUSATIVE,
    NEGATION, FREQUENCY, INDEFINITE_DATIVE, INDEFINITE_ACCUSATIVE, MANNER, PLACE,
    PREPOSITIONAL_OBJECT, DIRECTION, PREDICATE,
) = range(15)  # fmt: skip


@dataclass(frozen=True)
class Constituent:
    """An object, adverbial or complement clause: English tree and German words with their rank."""

    english: str
    german: str
    rank: int
    uses: tuple[str, ...] = ()
    after: str = ""  # German words that move behind the closing verb
    preverbal: bool = False  # English "often sleeps", against "sleeps today"
    negative: bool = False
    is_pronoun: bool = False


def _contract(preposition: str, phrase: str) -> str:
    """ "in dem Garten" -> "im Garten"."""
    article, _, rest = phrase.partition(" ")
    short = lexicon.CONTRACTIONS.get(f"{preposition} {article}")
    return f"{short} {rest}" if short and rest else f"{preposition} {phrase}"


def _governed(preposition: str, phrase: NounPhrase, case: int) -> str:
    # A relative clause needs the full article: "in dem Haus, das ...".
    german = phrase.german[case]
    return f"{preposition} {german}" if phrase.relative else _contract(preposition, german)


def prepositional(
    english: str, german: str, case: int, phrase: NounPhrase, rank: int = PLACE
) -> Constituent:
    """A prepositional phrase: "under the table", "unter dem Tisch"."""
    tree = node("PP", node("TO" if english == "to" else "IN", english), phrase.as_object)
    return Constituent(
        tree, _governed(german, phrase, case), rank, phrase.used_as(f"preposition-{english}"),
        after=phrase.relative,
    )  # fmt: skip


def _object_rank(phrase: NounPhrase, case: int) -> int:
    dative = case == DATIVE
    if phrase.is_pronoun:
        return DATIVE_PRONOUN if dative else ACCUSATIVE_PRONOUN
    if phrase.definite:
        return DEFINITE_DATIVE if dative else DEFINITE_ACCUSATIVE
    return INDEFINITE_DATIVE if dative else INDEFINITE_ACCUSATIVE


def object_(verb: Verb, phrase: NounPhrase) -> Constituent:
    """The object as the verb governs it: "waits for the bus", "auf den Bus"."""
    if verb.german_preposition:
        german = _governed(verb.german_preposition, phrase, verb.case)
        rank, use = PREPOSITIONAL_OBJECT, "prepositional-object"
    else:
        german, rank = phrase.german[verb.case], _object_rank(phrase, verb.case)
        use = "dative-object" if verb.case == DATIVE else "accusative-object"
    tree = phrase.as_object
    if verb.english_preposition:
        tag = "TO" if verb.english_preposition == "to" else "IN"
        tree = node("PP", node(tag, verb.english_preposition), tree)
    return Constituent(
        tree, german, rank, phrase.used_as(use), phrase.relative, negative=phrase.negative,
        is_pronoun=phrase.is_pronoun,
    )  # fmt: skip


def receiver(phrase: NounPhrase, to: bool = False) -> Constituent:
    """The one who gets something, in the dative; English "him the book" or "the book to him"."""
    tree = node("PP", node("TO", "to"), phrase.as_object) if to else phrase.as_object
    rank, uses = _object_rank(phrase, DATIVE), phrase.used_as("receiver")
    return Constituent(
        tree, phrase.german[DATIVE], rank, uses, phrase.relative, is_pronoun=phrase.is_pronoun
    )


@cache
def frequency(word: str) -> Constituent:
    """often, never ...: before the English verb."""
    tree, uses = node("ADVP", node("RB", word)), (f"frequency:{word}",)
    return Constituent(tree, lexicon.FREQUENCIES[word], FREQUENCY, uses, preverbal=True)


@cache
def adverb(word: str) -> Constituent:
    """slowly (manner), here (place) or perhaps (stance, only ever in front)."""
    tree = node("ADVP", node("RB", word))
    if word in lexicon.MANNERS:
        return Constituent(tree, lexicon.MANNERS[word], MANNER, (f"manner:{word}",))
    if word in lexicon.SPOTS:
        return Constituent(tree, lexicon.SPOTS[word], PLACE, (f"spot:{word}",))
    return Constituent(tree, lexicon.STANCES[word], TIME, (f"stance:{word}",))


@cache
def _times() -> dict[str, tuple[Constituent, tuple[str, ...]]]:
    table = {}
    for row in lexicon.rows(lexicon.TIMES):
        tree, german, tenses = row.split(" | ")
        english = detokenise(leaves(tree))
        part = Constituent(tree, german, TIME, (f"time:{english}",))
        table[english] = (part, tuple(tenses.split()))
    return table


def time(english: str) -> Constituent:
    """today, last week, in the evening ..."""
    return _times()[english][0]


def predicative(adjective: str, than: NounPhrase | None = None) -> Constituent:
    """ "is old", "is older than the house"."""
    entry = lexicon.ADJECTIVES[adjective]
    if than is None:
        tree, german = node("ADJP", node("JJ", adjective)), entry.german
        return Constituent(tree, german, PREDICATE, (f"predicative:{adjective}",))
    regular = entry.comparative != "-"
    words = (
        [node("JJR", entry.comparative)]
        if regular
        else [node("RBR", "more"), node("JJ", adjective)]
    )
    tree = node("ADJP", *words, node("PP", node("IN", "than"), than.as_object))
    uses = (f"comparative:{adjective}", *than.used_as("comparative"))
    after = f"als {than.german[NOMINATIVE]}"
    return Constituent(tree, entry.german_comparative, PREDICATE, uses, after)


def identity(phrase: NounPhrase) -> Constituent:
    """ "is a good teacher"."""
    uses = phrase.used_as("predicate-noun")
    return Constituent(phrase.english, phrase.german[NOMINATIVE], PREDICATE, uses)


def agent(phrase: NounPhrase) -> Constituent:
    """The doer of a passive: "by the teacher", "vom Lehrer"."""
    part = prepositional("by", "von", DATIVE, phrase, PREPOSITIONAL_OBJECT)
    return replace(part, uses=phrase.used_as("agent"))


# --------------------------------------------------------------------------------------- clauses


@dataclass(frozen=True)
class Clause:
    """A clause before anyone decides whether it is a statement, a question or subordinate.

    `tense` is present, past, perfect, passive, past passive, a modal verb, want or wanted.
    """

    subject: NounPhrase
    verb: Verb
    parts: tuple[Constituent, ...] = ()  # in English order
    tense: str = "present"
    negated: bool = False

    @property
    def passive(self) -> bool:
        return "passive" in self.tense

    @property
    def past(self) -> bool:
        return self.tense in ("past", "past passive", "wanted")

    def uses(self, construction: str) -> tuple[str, ...]:
        """The combinations of the clause, given the construction it stands in."""
        role = "passive-subject" if self.passive else "subject"
        uses = self.subject.used_as(role) + tuple(use for part in self.parts for use in part.uses)
        separable = "separable-" if self.verb.prefix else ""
        uses += (f"{separable}{construction}:{self.verb.name}", f"{self.tense}:{self.verb.name}")
        if self.negated:
            uses += (f"negation:{self.verb.name}",)
        return uses


def clause(
    subject: NounPhrase,
    verb: str,
    *objects: NounPhrase,
    extras: tuple[Constituent, ...] = (),
    tense: str = "present",
    negated: bool = False,
    to: bool = False,
) -> Clause:
    """A clause from words: one object, or receiver and thing; `to` as in "gives it to him"."""
    entry = lexicon.BE if verb == "be" else lexicon.VERBS[verb]
    if len(objects) == 2:
        parts = (receiver(objects[0], to), object_(entry, objects[1]))
        parts = parts[::-1] if to else parts
    else:
        parts = tuple(object_(entry, phrase) for phrase in objects)
    return Clause(subject, entry, parts + extras, tense, negated)


def gap(plural: bool = False, person: int = 3) -> NounPhrase:
    """A subject that is not spoken because it stands elsewhere: in relatives, after "and"."""
    return NounPhrase("", ("",) * 4, person, plural)


# English, from the inside out: the verbs of a clause, then the bracket around them.


def _be(past: bool, subject: NounPhrase) -> tuple[str, str]:
    several = subject.plural or subject.person == 2
    if past:
        return ("VBD", "were" if several else "was")
    if subject.person == 1 and not subject.plural:
        return ("VBP", "am")
    return ("VBP", "are") if several else ("VBZ", "is")


def _finite(verb: Verb, past: bool, subject: NounPhrase) -> tuple[str, str]:
    """The tagged English finite form."""
    if verb.english[0] == "be":
        return _be(past, subject)
    if past:
        # "they read" would leave the tense, and so the German, open.
        assert verb.english[0] != verb.english[1], verb.name
        return ("VBD", verb.english[1])
    third = subject.person == 3 and not subject.plural
    return ("VBZ", verb.third_person()) if third else ("VBP", verb.english[0])


def _verbs(c: Clause, inverted: bool) -> tuple[list[tuple[str, str]], bool]:
    """The tagged English verbs, finite first, and whether that one is an auxiliary."""
    base, _, participle = c.verb.english
    third = c.subject.person == 3 and not c.subject.plural
    if c.tense == "perfect":
        return [("VBZ", "has") if third else ("VBP", "have"), ("VBN", participle)], True
    if c.tense in lexicon.MODALS:
        return [("MD", c.tense), ("VB", base)], True
    if c.passive:
        return [_be(c.past, c.subject), ("VBN", participle)], True
    wanting = c.tense in ("want", "wanted")
    head = lexicon.WANT if wanting else c.verb
    rest = [("TO", "to"), ("VB", base)] if wanting else []
    if head.english[0] == "be":
        return [_be(c.past, c.subject), *rest], True
    if not (inverted or c.negated):
        return [_finite(head, c.past, c.subject), *rest], False
    does = ("VBD", "did") if c.past else ("VBZ", "does") if third else ("VBP", "do")
    return [does, ("VB", head.english[0]), *rest], True


def _complements(c: Clause) -> list[str]:
    """What follows the English verb, its particle included: "calls up the man", "calls him up"."""
    trees = [part.english for part in c.parts if not part.preverbal]
    if c.verb.particle:
        first = next((part for part in c.parts if not part.preverbal), None)
        place = 1 if first is not None and first.is_pronoun else 0
        trees.insert(place, node("PRT", node("RP", c.verb.particle)))
    return trees


def _nest(verbs: list[tuple[str, str]], inner: list[str]) -> str:
    """(VP (VBZ has) (VP (VBN seen) ...)); "to" opens a clause of its own."""
    (tag, word), *rest = verbs
    if not rest:
        return node("VP", node(tag, word), *inner)
    deeper = _nest(rest, inner)
    if rest[0][0] == "TO" and tag != "TO":
        deeper = node("S", deeper)
    return node("VP", node(tag, word), deeper)


def _english(c: Clause) -> list[str]:
    """Subject and verb phrase, and an adverb between them where English puts it."""
    verbs, auxiliary = _verbs(c, inverted=False)
    adverbs = [part.english for part in c.parts if part.preverbal]
    if not auxiliary:
        return [c.subject.english, *adverbs, _nest(verbs, _complements(c))]
    (tag, word), *rest = verbs
    middle = [node("RB", "not")] * c.negated + adverbs
    inner = [_nest(rest, _complements(c))] if rest else _complements(c)
    return [c.subject.english, node("VP", node(tag, word), *middle, *inner)]


def _inverted(c: Clause) -> str:
    """ "Does the man not often sleep": the finite verb before the subject."""
    (tag, word), *rest = _verbs(c, inverted=True)[0]
    middle = [node("RB", "not")] * c.negated + [p.english for p in c.parts if p.preverbal]
    inner = [_nest(rest, _complements(c))] if rest else _complements(c)
    return node("SQ", node(tag, word), c.subject.english, *middle, *inner)


# German: a left bracket (the finite verb), the middle field, a right bracket (the other verb
# parts), and what moves behind it. Subordinate clauses close with the finite verb.


def _brackets(c: Clause) -> tuple[str, str]:
    """The German finite verb without prefix, and the non-finite parts that close the clause."""
    person, plural, verb = c.subject.person, c.subject.plural, c.verb
    if c.tense in ("present", "past"):
        return verb.conjugate(c.past, person, plural), verb.prefix
    if c.tense == "perfect":
        helper = lexicon.BE if verb.auxiliary == "sein" else lexicon.HAVE
        return helper.conjugate(False, person, plural), verb.participle
    if c.passive:
        return lexicon.BECOME.conjugate(c.past, person, plural), verb.participle
    if c.tense in ("want", "wanted"):
        return lexicon.WANT.conjugate(c.past, person, plural), verb.infinitive
    infinitive, past = lexicon.MODALS[c.tense]
    return lexicon.modal(infinitive).conjugate(past, person, plural), verb.infinitive


def _middle(c: Clause, subject: str = "") -> str:
    """The German middle field in its order."""
    field = [(SUBJECT, subject)] + [(part.rank, part.german) for part in c.parts]
    if c.verb.reflexive:
        key = (c.subject.person, c.subject.plural)
        field.append((ACCUSATIVE_PRONOUN, lexicon.REFLEXIVES.get(key, "sich")))
    if c.negated and not any(part.negative for part in c.parts):
        field.append((NEGATION, "nicht"))
    return " ".join(words for _, words in sorted(field, key=lambda item: item[0]) if words)


def _after(c: Clause) -> str:
    return " ".join(part.after for part in c.parts)


def _german_subject(subject: NounPhrase) -> str:
    return f"{subject.german[NOMINATIVE]} {subject.relative}"


def _verb_second(c: Clause, front: str | None = None) -> str:
    """Main clause; what stands in front of the verb is the subject unless something else does."""
    subject = _german_subject(c.subject)
    finite, closing = _brackets(c)
    middle = _middle(c) if front is None else _middle(c, subject)
    return f"{subject if front is None else front} {finite} {middle} {closing} {_after(c)}"


def _verb_final(c: Clause, opener: str) -> str:
    """Subordinate clause, between commas; a separable prefix rejoins its verb."""
    finite, closing = _brackets(c)
    joint = "" if c.tense in ("present", "past") else " "
    middle = _middle(c, _german_subject(c.subject))
    return f", {opener} {middle} {closing}{joint}{finite} {_after(c)} ,"


# ------------------------------------------------------------------------------ inside a sentence


def with_relative(head: NounPhrase, role: str, inner: Clause, noun: str = "") -> NounPhrase:
    """Attach a relative clause to `head`, whose role in it is subject, object or owner ("whose").

    `inner` lacks what the relative pronoun stands for; `noun` is what the head owns.
    """
    row = _row(head.gender, head.plural)
    pronouns, verb = lexicon.RELATIVE[row].split(), inner.verb
    wh = node("WHNP", node("WP", "who") if head.kind == "person" else node("WDT", "that"))
    german = pronouns[NOMINATIVE]
    if role == "object":
        german = pronouns[verb.case]
        if verb.german_preposition:
            german = f"{verb.german_preposition} {german}"
        if verb.english_preposition:
            which = node("WP", "whom") if head.kind == "person" else node("WDT", "which")
            tag = "TO" if verb.english_preposition == "to" else "IN"
            wh = node("WHPP", node(tag, verb.english_preposition), node("WHNP", which))
    elif role == "owner":
        owned = lexicon.NOUNS[noun]
        wh = node("WHNP", node("WP$", "whose"), node("NN", owned.english))
        german = f"{pronouns[GENITIVE]} {owned.german}"
    uses = tuple(f"relative-{role}:{noun}" for noun in head.heads) + inner.uses(f"relative-{role}")
    return replace(
        head,
        english=node("NP", head.english, node("SBAR", wh, node("S", *_english(inner)))),
        relative=_verb_final(inner, german),
        uses=head.uses + uses,
    )


def place_relative(head: NounPhrase, english: str, german: str, inner: Clause) -> NounPhrase:
    """ "the house in which the man lives"."""
    wh = node("WHPP", node("IN", english), node("WHNP", node("WDT", "which")))
    relative = lexicon.RELATIVE[_row(head.gender, head.plural)].split()[DATIVE]
    uses = tuple(f"relative-place:{noun}" for noun in head.heads) + inner.uses("relative-place")
    return replace(
        head,
        english=node("NP", head.english, node("SBAR", wh, node("S", *_english(inner)))),
        relative=_verb_final(inner, f"{german} {relative}"),
        uses=head.uses + uses,
    )


def _conjunction(word: str, inner: Clause) -> tuple[str, str]:
    """English tree and German clause of "because the dog sleeps"."""
    if word == "when":  # once in the past: als; otherwise wenn
        head, german = node("WHADVP", node("WRB", word)), "als" if inner.past else "wenn"
    else:
        head, german = node("IN", word), lexicon.CONJUNCTIONS[word]
    return node("SBAR", head, node("S", *_english(inner))), _verb_final(inner, german)


def subordinate(word: str, inner: Clause) -> Constituent:
    """A clause after "that", "whether", "because" ... as part of another one."""
    tree, german = _conjunction(word, inner)
    return Constituent(tree, "", PREDICATE, inner.uses(f"{word}-clause"), after=german)


def indirect_question(word: str, inner: Clause) -> Constituent:
    """ "where he lives", "warum er schläft"."""
    german = lexicon.QUESTION_WORDS[word]
    tree = node("SBAR", node("WHADVP", node("WRB", word)), node("S", *_english(inner)))
    uses = inner.uses("indirect-question")
    return Constituent(tree, "", PREDICATE, uses, after=_verb_final(inner, german))


def _infinitive_words(inner: Clause, opener: str) -> str:
    return f", {opener} {_middle(inner)} {inner.verb.zu_infinitive} {_after(inner)} ,"


def infinitive(inner: Clause) -> Constituent:
    """ "to open the door", ", die Tür zu öffnen"; the subject of `inner` goes unspoken."""
    tree = node("S", _nest([("TO", "to"), ("VB", inner.verb.english[0])], _complements(inner)))
    german = _infinitive_words(inner, "")
    return Constituent(tree, "", PREDICATE, inner.uses("infinitive"), after=german)


def purpose(inner: Clause) -> Constituent:
    """ "in order to open the door", ", um die Tür zu öffnen"."""
    tree = _nest([("TO", "to"), ("VB", inner.verb.english[0])], _complements(inner))
    tree = node("SBAR", node("IN", "in"), node("NN", "order"), node("S", tree))
    german = _infinitive_words(inner, "um")
    return Constituent(tree, "", PREDICATE, inner.uses("purpose"), after=german)


# ------------------------------------------------------------------------------------- sentences


def statement(c: Clause, front: Constituent | None = None) -> Example:
    """A main clause; with `front` an adverbial opens it and the German subject follows the verb."""
    if front is None:
        return finish(node("S", *_english(c)), _verb_second(c), ".", c.uses("statement"))
    comma = "" if front.german == "vielleicht" else "(, ,)"
    tree = node("S", front.english, comma, *_english(c))
    german = _verb_second(c, front.german)
    return finish(tree, german, ".", c.uses("inversion") + front.uses)


def complex_statement(word: str, inner: Clause, c: Clause) -> Example:
    """A subordinate clause first: "Because it rains, ..." counts as the German front position."""
    tree, german = _conjunction(word, inner)
    uses = c.uses("inversion") + inner.uses(f"initial-{word}-clause")
    words = _verb_second(c, german.removeprefix(","))
    return finish(node("S", tree, "(, ,)", *_english(c)), words, ".", uses)


def coordination(word: str, first: Clause, second: Clause) -> Example:
    """Two main clauses joined by "and", "but" or "or"."""
    german, comma = {"and": ("und", ""), "but": ("aber", ","), "or": ("oder", "")}[word]
    trees = (node("S", *_english(first)), "(, ,)", node("CC", word), node("S", *_english(second)))
    uses = first.uses(f"coordination-{word}") + second.uses(f"coordination-{word}")
    words = f"{_verb_second(first)} {comma} {german} {_verb_second(second)}"
    return finish(node("S", *trees), words, ".", uses)


def shared_subject(first: Clause, second: Clause) -> Example:
    """ "The man opens the door and greets the guest"; `second` has a gap for its subject."""
    phrases = [_english(part)[-1] for part in (first, second)]
    tree = node("S", first.subject.english, node("VP", phrases[0], node("CC", "and"), phrases[1]))
    uses = first.uses("shared-subject") + second.uses("shared-subject")
    words = f"{_verb_second(first)} und {_verb_second(second)}"
    return finish(tree, words, ".", uses)


def yes_no_question(c: Clause) -> Example:
    """ "Does the dog sleep?" """
    return finish(_inverted(c), _verb_second(c, ""), "?", c.uses("question"))


def subject_question(c: Clause, which: NounPhrase | None = None) -> Example:
    """ "Who sleeps?", "Which dog sleeps?"; the subject of `c` is a gap."""
    wh = node("NP", node("WP", "who")) if which is None else which.english
    tree = node("SBARQ", node("WH" + wh[1:3], wh[4:-1]), node("SQ", *_english(c)))
    german = "wer" if which is None else which.german[NOMINATIVE]
    uses = c.uses("subject-question") + (which.used_as("which-subject") if which else ())
    return finish(tree, _verb_second(c, german), "?", uses)


def object_question(c: Clause, asked: NounPhrase | str) -> Example:
    """ "Who does he help?" (by case "wen" or "wem"), "What ...?", "Which book ...?"."""
    if isinstance(asked, str):
        wh = node("WHNP", node("WP", asked))
        german = {"who": ("wer", "wen", "wem"), "what": ("was", "was", "was")}[asked][c.verb.case]
        uses = c.uses(f"{asked}-question")
    else:
        wh, german = node("WHNP", asked.english[4:-1]), asked.german[c.verb.case]
        uses = c.uses("which-question") + asked.used_as("which-object")
    return finish(node("SBARQ", wh, _inverted(c)), _verb_second(c, german), "?", uses)


def adverbial_question(word: str, c: Clause) -> Example:
    """ "Where does the man live?"; "where" asks for a direction with verbs of motion: wohin."""
    going = word == "where" and c.verb.name in lexicon.FRAMES["motion"]
    german = "wohin" if going else lexicon.QUESTION_WORDS[word]
    tree = node("SBARQ", node("WHADVP", node("WRB", word)), _inverted(c))
    return finish(tree, _verb_second(c, german), "?", c.uses(f"{word}-question"))


def existential(phrase: NounPhrase, place: Constituent, past: bool, front: bool = False) -> Example:
    """ "There is a dog in the garden", "Im Garten gibt es einen Hund"."""
    tree = [
        node("NP", node("EX", "there")),
        node("VP", node(*_be(past, phrase)), phrase.as_object, place.english),
    ]
    verb, thing = ("gab" if past else "gibt"), phrase.german[ACCUSATIVE]
    uses = phrase.used_as("existential") + place.uses
    if front:
        tree[1] = node("VP", node(*_be(past, phrase)), phrase.as_object)
        return finish(
            node("S", place.english, "(, ,)", *tree), f"{place.german} {verb} es {thing}", ".", uses
        )
    return finish(node("S", *tree), f"es {verb} {thing} {place.german}", ".", uses)


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
               "wanted": "past", "passive": "present", "past passive": "past"}  # fmt: skip
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


class Sampler:
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
    sampler = Sampler(seed)
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
    sampler = Sampler(seed)
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
