"""The embedded corpus of the demo: English-German sentence pairs from a synchronous grammar.

One derivation yields three things: the English sentence, its German translation and the English
Penn-Treebank-style tree. The file reads from small to large: noun phrases, what stands beside a
verb, clauses, sentences. `demo_corpus` chooses among them.

The English decides the German: where German has a choice (word order, "du" or "Sie") a rule makes
it, so that every sentence has exactly one reference.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from jax_transformer.demo import lexicon
from jax_transformer.demo.lexicon import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, Verb

# -------------------------------------------------------------------------------------- examples


@dataclass(frozen=True)
class Example:
    """A sentence pair, the tree of its English side, and what went into it."""

    english: str
    german: str
    tree: str  # one-line Penn bracketing
    combinations: frozenset[str]  # "construction:word"


def node(label: str, *children: str) -> str:
    """The bracketing of one constituent; empty children vanish."""
    return f"({label} {' '.join(child for child in children if child)})"


def leaves(tree: str) -> list[str]:
    """The words of a bracketing."""
    return re.findall(r"\([^\s()]+ ([^\s()]+)\)", tree)


def detokenise(tokens: Sequence[str]) -> str:
    """Words and punctuation marks as running text; Penn's "do n't" and "Anna 's" are one word."""
    return re.sub(r" ([,.?!]|n't\b|'s\b)", r"\1", " ".join(tokens))


def words(sentence: str) -> list[str]:
    """The surface forms of a sentence."""
    return re.findall(r"\w+", sentence)


def tidy(german: str) -> str:
    """German running text: every clause brings its own commas, and this keeps one of each."""
    german = re.sub(r"\s*,[\s,]*", ", ", german)
    return re.sub(r",? *([.?])$", r"\1", " ".join(german.split()))


def whole(tree: str, mark: str) -> str:
    """The bracketing of a whole sentence: a capital letter, the final mark, the outer bracket."""
    first = leaves(tree)[0]
    tree = tree.replace(f" {first})", f" {first[0].upper()}{first[1:]})", 1)
    return node("TOP", f"{tree[:-1]} (. {mark}))")


def finish(tree: str, german: str, mark: str, uses: tuple[str, ...]) -> Example:
    """A whole sentence in both languages."""
    tree = whole(tree, mark)
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
        """Whether the English has a form of its own for objects: he, him."""
        return bool(self.english_object)

    @property
    def as_object(self) -> str:
        """The English bracketing where the phrase is an object."""
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

    `tense` is present, past, perfect, passive, past passive, progressive, past progressive, a
    modal verb, want or wanted. German has no progressive and says present and past.
    """

    subject: NounPhrase
    verb: Verb
    parts: tuple[Constituent, ...] = ()  # in English order
    tense: str = "present"
    negated: bool = False
    contracted: bool = False  # "does n't" for "does not"

    @property
    def single(self) -> bool:
        """Whether the German has no verb beside the finite one."""
        return self.tense.removeprefix("past ") in ("present", "past", "progressive")

    @property
    def passive(self) -> bool:
        """Whether the subject is what is acted on."""
        return "passive" in self.tense

    @property
    def past(self) -> bool:
        """Whether the finite verb is in the past tense."""
        return self.tense in ("past", "past passive", "past progressive", "wanted")

    def uses(self, construction: str) -> tuple[str, ...]:
        """The combinations of the clause, given the construction it stands in."""
        role = "passive-subject" if self.passive else "subject"
        uses = self.subject.used_as(role) + tuple(use for part in self.parts for use in part.uses)
        separable = "separable-" if self.verb.prefix else ""
        uses += (f"{separable}{construction}:{self.verb.name}", f"{self.tense}:{self.verb.name}")
        if self.negated:
            uses += (f"negation:{self.verb.name}",)
        if self.contracted:
            uses += (f"contraction:{self.verb.name}",)
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
    if c.tense.endswith("progressive"):
        return [_be(c.past, c.subject), ("VBG", c.verb.gerund)], True
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
        trees.insert(place, _particle(c.verb))
    return trees


def _particle(verb: Verb) -> str:
    """Penn's particles can stand on both sides of an object; "back" and "go away" are adverbs."""
    word = verb.particle
    if word == "back" or (word == "away" and not verb.objects):
        return node("ADVP", node("RB", word))
    return node("PRT", node("RP", word))


def verb_phrase(tag: str, word: str, c: Clause) -> str:
    """A verb phrase without a finite verb: "written by the king", "sleeping in the garden"."""
    return _nest([(tag, word)], _complements(c))


def _nest(verbs: list[tuple[str, str]], inner: list[str]) -> str:
    """(VP (VBZ has) (VP (VBN seen) ...)); "to" opens a clause of its own."""
    (tag, word), *rest = verbs
    if not rest:
        return node("VP", node(tag, word), *inner)
    deeper = _nest(rest, inner)
    if rest[0][0] == "TO" and tag != "TO":
        deeper = node("S", deeper)
    return node("VP", node(tag, word), deeper)


def _negated(c: Clause, word: str) -> tuple[str, str]:
    """The finite verb of a negated clause and its negation; "am" and "may" never contract."""
    if not c.negated:
        return word, ""
    if not c.contracted or word in ("am", "may"):
        return word, node("RB", "not")
    return {"will": "wo", "can": "ca"}.get(word, word), node("RB", "n't")


def english_clause(c: Clause) -> list[str]:
    """Subject and verb phrase, and an adverb between them where English puts it."""
    verbs, auxiliary = _verbs(c, inverted=False)
    adverbs = [part.english for part in c.parts if part.preverbal]
    if not auxiliary:
        return [c.subject.english, *adverbs, _nest(verbs, _complements(c))]
    (tag, word), *rest = verbs
    word, negation = _negated(c, word)
    middle = [negation, *adverbs]
    inner = [_nest(rest, _complements(c))] if rest else _complements(c)
    return [c.subject.english, node("VP", node(tag, word), *middle, *inner)]


def _inverted(c: Clause) -> str:
    """ "Does the man not often sleep": the finite verb before the subject."""
    (tag, word), *rest = _verbs(c, inverted=True)[0]
    word, negation = _negated(c, word)
    opening = [node(tag, word), c.subject.english, negation]
    if "n't" in negation:  # "Does n't the man sleep": it never parts from its verb
        opening = [opening[0], negation, c.subject.english]
    adverbs = [part.english for part in c.parts if part.preverbal]
    inner = [_nest(rest, _complements(c))] if rest else _complements(c)
    return node("SQ", *opening, *adverbs, *inner)


# German: a left bracket (the finite verb), the middle field, a right bracket (the other verb
# parts), and what moves behind it. Subordinate clauses close with the finite verb.


def _brackets(c: Clause) -> tuple[str, str]:
    """The German finite verb without prefix, and the non-finite parts that close the clause."""
    person, plural, verb = c.subject.person, c.subject.plural, c.verb
    if c.single:
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
    joint = "" if c.single else " "
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
        english=node("NP", head.english, node("SBAR", wh, node("S", *english_clause(inner)))),
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
        english=node("NP", head.english, node("SBAR", wh, node("S", *english_clause(inner)))),
        relative=_verb_final(inner, f"{german} {relative}"),
        uses=head.uses + uses,
    )


def _conjunction(word: str, inner: Clause) -> tuple[str, str]:
    """English tree and German clause of "because the dog sleeps"."""
    if word == "when":  # once in the past: als; otherwise wenn
        head, german = node("WHADVP", node("WRB", word)), "als" if inner.past else "wenn"
    else:
        head, german = node("IN", word), lexicon.CONJUNCTIONS[word]
    return node("SBAR", head, node("S", *english_clause(inner))), _verb_final(inner, german)


def subordinate(word: str, inner: Clause) -> Constituent:
    """A clause after "that", "whether", "because" ... as part of another one."""
    tree, german = _conjunction(word, inner)
    return Constituent(tree, "", PREDICATE, inner.uses(f"{word}-clause"), after=german)


def indirect_question(word: str, inner: Clause) -> Constituent:
    """ "where he lives", "warum er schläft"."""
    german = lexicon.QUESTION_WORDS[word]
    tree = node("SBAR", node("WHADVP", node("WRB", word)), node("S", *english_clause(inner)))
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
        return finish(node("S", *english_clause(c)), _verb_second(c), ".", c.uses("statement"))
    comma = "" if front.german == "vielleicht" else "(, ,)"
    tree = node("S", front.english, comma, *english_clause(c))
    german = _verb_second(c, front.german)
    return finish(tree, german, ".", c.uses("inversion") + front.uses)


def complex_statement(word: str, inner: Clause, c: Clause) -> Example:
    """A subordinate clause first: "Because it rains, ..." counts as the German front position."""
    tree, german = _conjunction(word, inner)
    uses = c.uses("inversion") + inner.uses(f"initial-{word}-clause")
    words = _verb_second(c, german.removeprefix(","))
    return finish(node("S", tree, "(, ,)", *english_clause(c)), words, ".", uses)


def coordination(word: str, first: Clause, second: Clause) -> Example:
    """Two main clauses joined by "and", "but" or "or"."""
    german, comma = {"and": ("und", ""), "but": ("aber", ","), "or": ("oder", "")}[word]
    trees = (
        node("S", *english_clause(first)),
        "(, ,)",
        node("CC", word),
        node("S", *english_clause(second)),
    )
    uses = first.uses(f"coordination-{word}") + second.uses(f"coordination-{word}")
    words = f"{_verb_second(first)} {comma} {german} {_verb_second(second)}"
    return finish(node("S", *trees), words, ".", uses)


def shared_subject(first: Clause, second: Clause) -> Example:
    """ "The man opens the door and greets the guest"; `second` has a gap for its subject."""
    phrases = [english_clause(part)[-1] for part in (first, second)]
    if all(len(leaves(phrase)) == 1 for phrase in phrases):  # Penn joins single words as words
        phrases = [phrase.removeprefix("(VP ").removesuffix(")") for phrase in phrases]
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
    tree = node("SBARQ", node("WH" + wh[1:3], wh[4:-1]), node("SQ", *english_clause(c)))
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
