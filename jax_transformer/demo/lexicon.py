"""The word lists of the demo grammar, with the inflections of English and German as data and rules.

The tables give what cannot be derived (gender, genitive, plural, principal parts); the classes
below derive the rest. Case is an index into four forms: nominative, accusative, dative, genitive.
"""

from dataclasses import dataclass
from functools import cache

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
CASES = {"acc": ACCUSATIVE, "dat": DATIVE, "gen": GENITIVE}


def rows(table: str) -> list[str]:
    """The entries of a table, which newlines or semicolons separate."""
    return [row.strip() for row in table.replace("\n", ";").split(";") if row.strip()]


# --------------------------------------------------------------------------------- word classes


@dataclass(frozen=True)
class Noun:
    """An English noun and its German translation; `kind` is what verbs and adjectives select."""

    english: str
    english_plural: str
    german: str
    genitive: str
    german_plural: str
    gender: str  # m, f, n
    kind: str

    @property
    def mass(self) -> bool:
        """Whether the noun is a substance, which has no plural and needs no article."""
        return self.kind in ("dish", "drink")

    def decline(self, plural: bool) -> tuple[str, str, str, str]:
        """The four German case forms."""
        if plural:
            form = self.german_plural
            return (form, form, form if form[-1] in "ns" else form + "n", form)
        # Weak masculines (der Junge, den Jungen) carry -n everywhere but in the nominative.
        weak = (
            self.gender == "m" and self.genitive == self.german_plural and self.genitive[-1] == "n"
        )
        oblique = self.genitive if weak else self.german
        return (self.german, oblique, oblique, self.genitive)


@dataclass(frozen=True)
class Adjective:
    """An adjective, its two comparatives, and the kinds of noun it describes."""

    english: str
    german: str
    comparative: str
    german_comparative: str
    kinds: frozenset[str]

    @property
    def stem(self) -> str:
        """What the German endings attach to: teuer -> teur-, müde -> müd-."""
        irregular = {"teuer": "teur", "dunkel": "dunkl", "müde": "müd", "leise": "leis"}
        return irregular.get(self.german, self.german)


@dataclass(frozen=True)
class Verb:
    """A verb with its principal parts in both languages and what it demands of its neighbours."""

    name: str  # as combinations name it: "call up", "wait for", "know that"
    english: tuple[str, str, str]  # base, past, past participle
    particle: str  # English "up" in "get up"
    german: tuple[str, str, str, str]  # infinitive, third person present, past, participle
    prefix: str  # German separable "auf" in "aufstehen"
    auxiliary: str  # haben or sein
    reflexive: bool
    subjects: tuple[str, ...]  # noun kinds
    objects: tuple[str, ...]  # noun kinds; empty for intransitive verbs
    english_preposition: str
    german_preposition: str
    case: int  # German case of the object

    @property
    def infinitive(self) -> str:
        """German, the prefix joined: "aufstehen"."""
        return self.prefix + self.german[0]

    @property
    def participle(self) -> str:
        """German, the prefix joined: "aufgestanden"."""
        return self.prefix + self.german[3]

    @property
    def zu_infinitive(self) -> str:
        """ "aufzustehen" for separable verbs, "zu gehen" for the others."""
        return f"{self.prefix}zu{self.german[0]}" if self.prefix else f"zu {self.german[0]}"

    def conjugate(self, past: bool, person: int, plural: bool) -> str:
        """The German finite form, without its separable prefix."""
        infinitive, third, preterite, _ = self.german
        if past:
            if plural:
                return preterite + ("n" if preterite.endswith("e") else "en")
            return preterite if person != 2 else preterite + "st"
        if infinitive in IRREGULAR_PRESENT:
            return IRREGULAR_PRESENT[infinitive][3 if plural else person - 1]
        if plural:
            return infinitive
        if person == 1:
            return infinitive.removesuffix("n").removesuffix("e") + "e"
        if person == 2:
            root = third.removesuffix("t")
            return root + ("t" if root[-1] in "sßzx" else "st")
        return third

    @property
    def gerund(self) -> str:
        """English "going", "coming", "running"."""
        base = self.english[0]
        if base in DOUBLED:
            return base + base[-1] + "ing"
        return (base[:-1] if base.endswith("e") and base[-2] not in "eo" else base) + "ing"

    def third_person(self) -> str:
        """English "goes", "carries", "sees"."""
        base = self.english[0]
        if base.endswith("y") and base[-2] not in "aeou":
            return base[:-1] + "ies"
        return base + ("es" if base.endswith(("s", "x", "z", "sh", "ch", "o")) else "s")


# ------------------------------------------------------------------------- function-word tables

# Present forms that no rule gives: first, second, third person singular; first and third plural.
IRREGULAR_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind"),
    "haben": ("habe", "hast", "hat", "haben"),
    "werden": ("werde", "wirst", "wird", "werden"),
    "können": ("kann", "kannst", "kann", "können"),
    "müssen": ("muss", "musst", "muss", "müssen"),
    "dürfen": ("darf", "darfst", "darf", "dürfen"),
    "wollen": ("will", "willst", "will", "wollen"),
    "mögen": ("mag", "magst", "mag", "mögen"),
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
}

# English verbs that double their last letter before -ing.
DOUBLED = frozenset(rows("begin; forget; get; plan; put; run; sit; swim; travel"))

# Rows: masculine, feminine, neuter, plural; columns: the four cases.
GENDERS = {"m": 0, "f": 1, "n": 2, "p": 3}
THE = ("der den dem des", "die die der der", "das das dem des", "die die den der")
RELATIVE = ("der den dem dessen", "die die der deren", "das das dem dessen", "die die denen deren")
# Endings of dieser, jeder, welcher, and of an adjective that no determiner announces.
STRONG = ("er en em es", "e e er er", "es es em es", "e e en er")
# ein, kein, mein lack the ending in three places, marked 0; the adjective then shows it.
MIXED = ("0 en em es", "e e er er", "0 0 em es", "e e en er")
WEAK_ADJECTIVE = ("e en en en", "e e en en", "e e en en", "en en en en")
MIXED_ADJECTIVE = ("er en en en", "e e en en", "es es en en", "en en en en")
STRONG_ADJECTIVE = ("er en em en", "e e er er", "es es em en", "e e en er")

# English determiner -> (tag, German stem, declension, number it allows, definite for word order).
# "a" and "any" under a negated verb are kein in German: the determiners "not a" and "not any".
DETERMINERS = {
    "the": ("DT", "the", "weak", "both", True),
    "this": ("DT", "dies", "weak", "singular", True),
    "these": ("DT", "dies", "weak", "plural", True),
    "every": ("DT", "jed", "weak", "singular", True),
    "all": ("DT", "all", "weak", "plural", True),
    "which": ("WDT", "welch", "weak", "both", True),
    "a": ("DT", "ein", "mixed", "singular", False),
    "no": ("DT", "kein", "mixed", "both", False),
    "not a": ("DT", "kein", "mixed", "singular", False),
    "not any": ("DT", "kein", "mixed", "both", False),
    "my": ("PRP$", "mein", "mixed", "both", True),
    "your": ("PRP$", "dein", "mixed", "both", True),
    "his": ("PRP$", "sein", "mixed", "both", True),
    "her": ("PRP$", "ihr", "mixed", "both", True),
    "our": ("PRP$", "unser", "mixed", "both", True),
    "their": ("PRP$", "ihr", "mixed", "both", True),
    "": ("", "", "strong", "both", False),
    "some": ("DT", "einig", "ended", "plural", False),
    "many": ("JJ", "viel", "ended", "plural", False),
    "several": ("JJ", "mehrer", "ended", "plural", False),
    "two": ("CD", "zwei", "strong", "plural", False),
    "three": ("CD", "drei", "strong", "plural", False),
    "four": ("CD", "vier", "strong", "plural", False),
    "five": ("CD", "fünf", "strong", "plural", False),
}

# English subject and object form, German nominative, accusative, dative; person; plural.
PRONOUNS = {
    "I": ("I", "me", "ich mich mir", 1, False),
    "you": ("you", "you", "du dich dir", 2, False),
    "he": ("he", "him", "er ihn ihm", 3, False),
    "she": ("she", "her", "sie sie ihr", 3, False),
    "we": ("we", "us", "wir uns uns", 1, True),
    "they": ("they", "them", "sie sie ihnen", 3, True),
}
REFLEXIVES = {(1, False): "mich", (2, False): "dich", (1, True): "uns"}

CONTRACTIONS = {
    "in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum",
    "zu der": "zur", "von dem": "vom", "bei dem": "beim",
}  # fmt: skip

# Modal verbs: English word -> German infinitive, and whether the German form is the past one.
MODALS = {
    "can": ("können", False), "could": ("können", True), "must": ("müssen", False),
    "should": ("sollen", True), "may": ("dürfen", False), "will": ("werden", False),
}  # fmt: skip

# Conjunctions that put the German verb last. "when" depends on tense, which is visible.
CONJUNCTIONS = {
    "that": "dass", "whether": "ob", "because": "weil", "although": "obwohl", "if": "wenn",
    "while": "während", "before": "bevor",
}  # fmt: skip

QUESTION_WORDS = {"where": "wo", "when": "wann", "why": "warum", "how": "wie"}

NAMES = rows("""
Anna; Peter; Maria; Paul; Emma; Max; Lena; Felix; Sophie; Jonas; Julia; Lukas; Clara; Martin
Laura; Thomas; Eva; David; Nina; Simon
""")
CITIES = {
    "Berlin": "Berlin", "Munich": "München", "Vienna": "Wien", "Cologne": "Köln",
    "Hamburg": "Hamburg", "Paris": "Paris", "London": "London", "Rome": "Rom", "Zurich": "Zürich",
    "Prague": "Prag", "Geneva": "Genf", "Warsaw": "Warschau",
}  # fmt: skip

# ------------------------------------------------------------------------------------- adverbials

# Tree of the English phrase | German | tenses it goes with.
TIMES = """
(NP (NN today)) | heute | present past perfect modal
(NP (NN yesterday)) | gestern | past
(NP (NN tomorrow)) | morgen | modal
(ADVP (RB now)) | jetzt | present modal
(ADVP (RB soon)) | bald | modal
(NP (JJ last) (NN week)) | letzte Woche | past
(NP (JJ last) (NN year)) | letztes Jahr | past
(NP (JJ next) (NN week)) | nächste Woche | modal
(NP (JJ next) (NN year)) | nächstes Jahr | modal
(NP (DT every) (NN day)) | jeden Tag | present past
(NP (DT this) (NN week)) | diese Woche | present perfect modal
(PP (IN in) (NP (DT the) (NN morning))) | am Morgen | present past modal
(PP (IN in) (NP (DT the) (NN evening))) | am Abend | present past modal
(PP (IN at) (NP (NN night))) | in der Nacht | present past modal
(PP (IN in) (NP (NN summer))) | im Sommer | present past modal
(PP (IN in) (NP (NN winter))) | im Winter | present past modal
(PP (IN on) (NP (NNP Monday))) | am Montag | past modal
(PP (IN on) (NP (NNP Tuesday))) | am Dienstag | past modal
(PP (IN on) (NP (NNP Wednesday))) | am Mittwoch | past modal
(PP (IN on) (NP (NNP Thursday))) | am Donnerstag | past modal
(PP (IN on) (NP (NNP Friday))) | am Freitag | past modal
(PP (IN on) (NP (NNP Saturday))) | am Samstag | past modal
(PP (IN on) (NP (NNP Sunday))) | am Sonntag | past modal
"""
FREQUENCIES = {
    "often": "oft", "always": "immer", "never": "nie", "sometimes": "manchmal",
    "rarely": "selten", "usually": "meistens",
}  # fmt: skip
MANNERS = {
    "slowly": "langsam", "quickly": "schnell", "quietly": "leise", "carefully": "vorsichtig",
    "together": "zusammen", "alone": "allein", "patiently": "geduldig", "secretly": "heimlich",
}  # fmt: skip
STANCES = {"perhaps": "vielleicht", "unfortunately": "leider", "fortunately": "zum Glück"}
SPOTS = {"here": "hier", "there": "dort", "outside": "draußen", "upstairs": "oben"}

# Prepositions of place between any two things; the German case says location or direction.
PLACE_PREPOSITIONS = {"under": "unter", "behind": "hinter", "beside": "neben"}
# The preposition each kind of place takes of itself, in English and German.
PLACE_KINDS = {
    "room": ("in", "in"), "building": ("in", "in"), "land": ("in", "in"),
    "ground": ("on", "auf"), "shore": ("at", "an"), "furniture": ("on", "auf"),
}  # fmt: skip

# ----------------------------------------------------------------------------------------- nouns

# Per kind: English, German, genitive, plural, gender. English plurals follow the rules below.
NOUN_TABLES = {
    "person": """
teacher Lehrer Lehrers Lehrer m; woman Frau Frau Frauen f; man Mann Mannes Männer m
child Kind Kindes Kinder n; girl Mädchen Mädchens Mädchen n; boy Junge Jungen Jungen m
doctor Arzt Arztes Ärzte m; nurse Krankenschwester Krankenschwester Krankenschwestern f
neighbour Nachbar Nachbarn Nachbarn m; student Student Studenten Studenten m
pupil Schüler Schülers Schüler m; farmer Bauer Bauern Bauern m; baker Bäcker Bäckers Bäcker m
cook Koch Kochs Köche m; judge Richter Richters Richter m; lawyer Anwalt Anwalts Anwälte m
king König Königs Könige m; queen Königin Königin Königinnen f; friend Freund Freundes Freunde m
colleague Kollege Kollegen Kollegen m; brother Bruder Bruders Brüder m
sister Schwester Schwester Schwestern f; mother Mutter Mutter Mütter f; father Vater Vaters Väter m
son Sohn Sohnes Söhne m; daughter Tochter Tochter Töchter f; uncle Onkel Onkels Onkel m
aunt Tante Tante Tanten f; grandmother Großmutter Großmutter Großmütter f
grandfather Großvater Großvaters Großväter m; guest Gast Gastes Gäste m
singer Sänger Sängers Sänger m; painter Maler Malers Maler m; driver Fahrer Fahrers Fahrer m
writer Schriftsteller Schriftstellers Schriftsteller m; baby Baby Babys Babys n
policeman Polizist Polizisten Polizisten m; mayor Bürgermeister Bürgermeisters Bürgermeister m
boss Chef Chefs Chefs m; customer Kunde Kunden Kunden m; tourist Tourist Touristen Touristen m
prince Prinz Prinzen Prinzen m; princess Prinzessin Prinzessin Prinzessinnen f
engineer Ingenieur Ingenieurs Ingenieure m; soldier Soldat Soldaten Soldaten m
""",
    "animal": """
dog Hund Hundes Hunde m; cat Katze Katze Katzen f; horse Pferd Pferdes Pferde n
cow Kuh Kuh Kühe f; bird Vogel Vogels Vögel m; mouse Maus Maus Mäuse f; bear Bär Bären Bären m
lion Löwe Löwen Löwen m; elephant Elefant Elefanten Elefanten m; monkey Affe Affen Affen m
goat Ziege Ziege Ziegen f; pig Schwein Schweins Schweine n; duck Ente Ente Enten f
rabbit Kaninchen Kaninchens Kaninchen n; fox Fuchs Fuchses Füchse m; wolf Wolf Wolfes Wölfe m
frog Frosch Frosches Frösche m; snake Schlange Schlange Schlangen f; chicken Huhn Huhns Hühner n
""",
    "snack": """
apple Apfel Apfels Äpfel m; egg Ei Eis Eier n; cake Kuchen Kuchens Kuchen m
potato Kartoffel Kartoffel Kartoffeln f; tomato Tomate Tomate Tomaten f
pear Birne Birne Birnen f; carrot Karotte Karotte Karotten f; roll Brötchen Brötchens Brötchen n
sausage Wurst Wurst Würste f; banana Banane Banane Bananen f; cherry Kirsche Kirsche Kirschen f
biscuit Keks Kekses Kekse m
""",
    "dish": """
bread Brot Brotes - n; cheese Käse Käses - m; rice Reis Reises - m; soup Suppe Suppe - f
meat Fleisch Fleisches - n; honey Honig Honigs - m; fruit Obst Obstes - n
chocolate Schokolade Schokolade - f; salad Salat Salats - m
""",
    "drink": """
water Wasser Wassers - n; milk Milch Milch - f; coffee Kaffee Kaffees - m; tea Tee Tees - m
juice Saft Saftes - m; wine Wein Weins - m; beer Bier Biers - n
""",
    "text": """
book Buch Buches Bücher n; letter Brief Briefes Briefe m; newspaper Zeitung Zeitung Zeitungen f
magazine Zeitschrift Zeitschrift Zeitschriften f; novel Roman Romans Romane m
poem Gedicht Gedichts Gedichte n; story Geschichte Geschichte Geschichten f
report Bericht Berichts Berichte m; message Nachricht Nachricht Nachrichten f
diary Tagebuch Tagebuchs Tagebücher n; list Liste Liste Listen f
postcard Postkarte Postkarte Postkarten f; text Text Textes Texte m
""",
    "clothing": """
coat Mantel Mantels Mäntel m; hat Hut Hutes Hüte m; dress Kleid Kleides Kleider n
shirt Hemd Hemdes Hemden n; skirt Rock Rocks Röcke m; jacket Jacke Jacke Jacken f
shoe Schuh Schuhs Schuhe m; scarf Schal Schals Schals m; sweater Pullover Pullovers Pullover m
glove Handschuh Handschuhs Handschuhe m; sock Socke Socke Socken f
""",
    "tableware": """
bottle Flasche Flasche Flaschen f; cup Tasse Tasse Tassen f; plate Teller Tellers Teller m
glass Glas Glases Gläser n; vase Vase Vase Vasen f; jug Krug Krugs Krüge m
bowl Schüssel Schüssel Schüsseln f
""",
    "thing": """
key Schlüssel Schlüssels Schlüssel m; bag Tasche Tasche Taschen f; box Kiste Kiste Kisten f
knife Messer Messers Messer n; spoon Löffel Löffels Löffel m; picture Bild Bildes Bilder n
umbrella Regenschirm Regenschirms Regenschirme m; ball Ball Balls Bälle m
guitar Gitarre Gitarre Gitarren f; violin Geige Geige Geigen f; suitcase Koffer Koffers Koffer m
present Geschenk Geschenks Geschenke n; flower Blume Blume Blumen f
mirror Spiegel Spiegels Spiegel m; blanket Decke Decke Decken f; ring Ring Rings Ringe m
pencil Bleistift Bleistifts Bleistifte m; candle Kerze Kerze Kerzen f; basket Korb Korbs Körbe m
hammer Hammer Hammers Hämmer m; rope Seil Seils Seile n; doll Puppe Puppe Puppen f
carpet Teppich Teppichs Teppiche m
""",
    "device": """
lamp Lampe Lampe Lampen f; clock Uhr Uhr Uhren f; computer Computer Computers Computer m
camera Kamera Kamera Kameras f; radio Radio Radios Radios n; machine Maschine Maschine Maschinen f
""",
    "furniture": """
table Tisch Tisches Tische m; chair Stuhl Stuhls Stühle m; bed Bett Bettes Betten n
sofa Sofa Sofas Sofas n; shelf Regal Regals Regale n; cupboard Schrank Schranks Schränke m
bench Bank Bank Bänke f; desk Schreibtisch Schreibtischs Schreibtische m
""",
    "opening": """
door Tür Tür Türen f; window Fenster Fensters Fenster n; gate Tor Tors Tore n
drawer Schublade Schublade Schubladen f
""",
    "room": """
kitchen Küche Küche Küchen f; room Zimmer Zimmers Zimmer n; office Büro Büros Büros n
cellar Keller Kellers Keller m; bathroom Badezimmer Badezimmers Badezimmer n
flat Wohnung Wohnung Wohnungen f
""",
    "building": """
house Haus Hauses Häuser n; school Schule Schule Schulen f; church Kirche Kirche Kirchen f
hospital Krankenhaus Krankenhauses Krankenhäuser n; museum Museum Museums Museen n
hotel Hotel Hotels Hotels n; restaurant Restaurant Restaurants Restaurants n
library Bibliothek Bibliothek Bibliotheken f; shop Laden Ladens Läden m
bakery Bäckerei Bäckerei Bäckereien f; theatre Theater Theaters Theater n
castle Schloss Schlosses Schlösser n; factory Fabrik Fabrik Fabriken f; tower Turm Turms Türme m
""",
    "land": """
garden Garten Gartens Gärten m; forest Wald Waldes Wälder m; park Park Parks Parks m
city Stadt Stadt Städte f; village Dorf Dorfes Dörfer n; valley Tal Tals Täler n
""",
    "ground": """
street Straße Straße Straßen f; bridge Brücke Brücke Brücken f; meadow Wiese Wiese Wiesen f
island Insel Insel Inseln f; hill Hügel Hügels Hügel m; field Feld Feldes Felder n
""",
    "shore": """
lake See Sees Seen m; river Fluss Flusses Flüsse m; station Bahnhof Bahnhofs Bahnhöfe m
""",
    "vehicle": """
car Auto Autos Autos n; bus Bus Busses Busse m; train Zug Zuges Züge m
bicycle Fahrrad Fahrrads Fahrräder n; ship Schiff Schiffs Schiffe n; boat Boot Boots Boote n
lorry Lastwagen Lastwagens Lastwagen m; tram Straßenbahn Straßenbahn Straßenbahnen f
""",
    "event": """
concert Konzert Konzerts Konzerte n; film Film Films Filme m; game Spiel Spiels Spiele n
journey Reise Reise Reisen f; exam Prüfung Prüfung Prüfungen f; party Feier Feier Feiern f
meeting Besprechung Besprechung Besprechungen f; wedding Hochzeit Hochzeit Hochzeiten f
""",
    "topic": """
question Frage Frage Fragen f; problem Problem Problems Probleme n; mistake Fehler Fehlers Fehler m
plan Plan Plans Pläne m; idea Idee Idee Ideen f; dream Traum Traums Träume m
secret Geheimnis Geheimnisses Geheimnisse n; accident Unfall Unfalls Unfälle m
song Lied Liedes Lieder n; war Krieg Kriegs Kriege m; answer Antwort Antwort Antworten f
""",
}

IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "wolf": "wolves", "mouse": "mice",
    "knife": "knives", "shelf": "shelves", "policeman": "policemen", "scarf": "scarves",
    "potato": "potatoes", "tomato": "tomatoes",
}  # fmt: skip

# English modifier, German modifier with its linking element, and the heads it combines with.
COMPOUND_TABLE = """
kitchen Küchen table chair window door cupboard clock lamp knife
garden Garten door gate bench house chair; house Haus door key; school Schul book bag bus
coffee Kaffee cup machine; wine Wein bottle glass; water Wasser bottle glass; milk Milch bottle jug
apple Apfel cake juice; chocolate Schokoladen cake; winter Winter coat jacket shoe
hotel Hotel room guest; newspaper Zeitungs report; travel Reise bag report; car Auto key door
birthday Geburtstags cake present party; police Polizei car dog report; office Büro chair lamp key
church Kirchen door tower window; summer Sommer dress; leather Leder shoe bag jacket glove
wool Woll sweater scarf sock blanket; potato Kartoffel soup salad; tomato Tomaten soup salad
love Liebes letter story poem song film; pocket Taschen lamp; flower Blumen vase shop meadow
family Familien picture party; dream Traum house; holiday Ferien house flat; work Arbeits room plan
night Nacht train; village Dorf school church street; city Stadt library park; bus Bus driver
taxi Taxi driver; art Kunst museum teacher; music Musik teacher school; opera Opern singer
"""


def pluralise(word: str) -> str:
    """The English plural."""
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def _nouns() -> dict[str, Noun]:
    nouns: dict[str, Noun] = {}
    for kind, table in NOUN_TABLES.items():
        for row in rows(table):
            english, german, genitive, plural, gender = row.split()
            nouns[english] = Noun(
                english, pluralise(english), german, genitive, plural, gender, kind
            )
    for row in rows(COMPOUND_TABLE):
        modifier, linked, *heads = row.split()
        for head in (nouns[head] for head in heads):
            german, genitive, plural = (
                linked + form.lower() for form in (head.german, head.genitive, head.german_plural)
            )
            english, many = f"{modifier} {head.english}", f"{modifier} {head.english_plural}"
            nouns[english] = Noun(english, many, german, genitive, plural, head.gender, head.kind)
    return nouns


# ------------------------------------------------------------------------------------ adjectives

LIVING = "person animal"
PORTABLE = "text clothing tableware thing device"
PLACES = "room building land"
# English, its comparative, German, its comparative | kinds of noun.
ADJECTIVE_TABLE = f"""
old older alt älter | {LIVING} {PORTABLE} furniture opening {PLACES} vehicle ground
new newer neu neuer | {PORTABLE} furniture opening room building vehicle
big bigger groß größer | {LIVING} snack tableware thing device furniture opening {PLACES} vehicle
small smaller klein kleiner | {LIVING} snack tableware thing device furniture opening {PLACES} \
ground
beautiful - schön schöner | {LIVING} {PORTABLE} furniture {PLACES} ground shore vehicle event topic
young younger jung jünger | {LIVING}
good better gut besser | person {PORTABLE} snack dish drink event
bad worse schlecht schlechter | person text dish drink event; long longer lang länger | text event
short shorter kurz kürzer | text event
expensive - teuer teurer | {PORTABLE} furniture vehicle snack
cheap cheaper billig billiger | {PORTABLE} furniture vehicle snack dish drink
heavy heavier schwer schwerer | tableware thing device furniture
light lighter leicht leichter | thing
strong stronger stark stärker | {LIVING}; weak weaker schwach schwächer | {LIVING}
clever cleverer klug klüger | {LIVING}; friendly friendlier freundlich freundlicher | person
happy happier glücklich glücklicher | person; sad sadder traurig trauriger | person text
tired - müde müder | {LIVING}; hungry hungrier hungrig hungriger | {LIVING}
thirsty thirstier durstig durstiger | {LIVING}; rich richer reich reicher | person
poor poorer arm ärmer | person; famous - berühmt berühmter | person building text
brave braver mutig mutiger | {LIVING}; lazy lazier faul fauler | {LIVING}
polite - höflich höflicher | person; curious - neugierig neugieriger | {LIVING}
dangerous - gefährlich gefährlicher | animal event; wild wilder wild wilder | animal
white - weiß - | animal clothing tableware furniture opening building vehicle
black - schwarz - | animal clothing thing furniture vehicle
red - rot - | clothing tableware thing furniture opening vehicle; yellow - gelb - | clothing vehicle
green - grün - | clothing tableware thing opening vehicle
blue - blau - | clothing tableware vehicle
brown - braun - | animal clothing furniture; warm warmer warm wärmer | clothing dish drink room
cold colder kalt kälter | dish drink room; hot hotter heiß heißer | drink
fresh fresher frisch frischer | snack dish drink; sweet sweeter süß süßer | snack drink
empty - leer - | tableware furniture room building
dirty dirtier schmutzig schmutziger | clothing tableware
dark darker dunkel dunkler | clothing furniture {PLACES}; bright brighter hell heller | room
interesting - interessant interessanter | text event topic building
boring - langweilig langweiliger | text event; exciting - spannend spannender | text event
important - wichtig wichtiger | text event topic; difficult - schwierig schwieriger | text topic
easy easier einfach einfacher | text topic; modern - modern moderner | device building vehicle
loud louder laut lauter | person animal device; sick sicker krank kränker | {LIVING}
healthy healthier gesund gesünder | {LIVING}; fast faster schnell schneller | animal vehicle
quiet quieter ruhig ruhiger | person room land; strict stricter streng strenger | person
"""


def _adjectives() -> dict[str, Adjective]:
    adjectives = {}
    for row in rows(ADJECTIVE_TABLE):
        words, kinds = row.split("|")
        english, comparative, german, german_comparative = words.split()
        adjectives[english] = Adjective(
            english, german, comparative, german_comparative, frozenset(kinds.split())
        )
    return adjectives


# ----------------------------------------------------------------------------------------- verbs

CONCRETE = f"{LIVING} {PORTABLE} vehicle building"
# English: base past participle [+particle] | German: [sich] [prefix+]infinitive, third person,
# past, participle [sein] | kinds of subject | kinds of object | government: English preposition,
# German preposition, German case (when it is not a plain accusative).
VERB_TABLE = f"""
sleep slept slept | schlafen schläft schlief geschlafen | {LIVING}
work worked worked | arbeiten arbeitet arbeitete gearbeitet | person
laugh laughed laughed | lachen lacht lachte gelacht | person
cry cried cried | weinen weint weinte geweint | person
sing sang sung | singen singt sang gesungen | person
dance danced danced | tanzen tanzt tanzte getanzt | person
swim swam swum | schwimmen schwimmt schwamm geschwommen sein | {LIVING}
play played played | spielen spielt spielte gespielt | {LIVING}
jump jumped jumped | springen springt sprang gesprungen sein | {LIVING}
rest rested rested | ruhen ruht ruhte geruht | {LIVING}
wait waited waited | warten wartet wartete gewartet | person
get got got +up | auf+stehen steht stand gestanden sein | {LIVING}
wake woke woken +up | auf+wachen wacht wachte gewacht sein | {LIVING}
arrive arrived arrived | an+kommen kommt kam gekommen sein | person vehicle
come came come +back | zurück+kommen kommt kam gekommen sein | {LIVING} vehicle
run ran run +away | weg+laufen läuft lief gelaufen sein | {LIVING}
go went gone +out | aus+gehen geht ging gegangen sein | person
go went gone +away | weg+gehen geht ging gegangen sein | {LIVING}
give gave given +up | auf+geben gibt gab gegeben | person
get got got +in | ein+steigen steigt stieg gestiegen sein | person
get got got +out | aus+steigen steigt stieg gestiegen sein | person
hurry hurried hurried | sich beeilen beeilt beeilte beeilt | person
see saw seen | sehen sieht sah gesehen | {LIVING} | {CONCRETE}
hear heard heard | hören hört hörte gehört | {LIVING} | {LIVING} device
know knew known | kennen kennt kannte gekannt | person | person text building
love loved loved | lieben liebt liebte geliebt | person | {LIVING}
like liked liked | mögen mag mochte gemocht | person | {LIVING} snack dish drink text
find found found | finden findet fand gefunden | {LIVING} | animal {PORTABLE}
visit visited visited | besuchen besucht besuchte besucht | person | person building
buy bought bought | kaufen kauft kaufte gekauft | person | {PORTABLE} snack dish drink vehicle
sell sold sold | verkaufen verkauft verkaufte verkauft | person | {PORTABLE} snack vehicle
read read read | lesen liest las gelesen | person | text
write wrote written | schreiben schreibt schrieb geschrieben | person | text
eat ate eaten | essen isst aß gegessen | {LIVING} | snack dish
drink drank drunk | trinken trinkt trank getrunken | {LIVING} | drink
open opened opened | öffnen öffnet öffnete geöffnet | person | opening
close closed closed | schließen schließt schloss geschlossen | person | opening
wash washed washed | waschen wäscht wusch gewaschen | person | clothing tableware vehicle
repair repaired repaired | reparieren repariert reparierte repariert | person \
| device vehicle furniture
draw drew drawn | zeichnen zeichnet zeichnete gezeichnet | person | {LIVING} building vehicle
carry carried carried | tragen trägt trug getragen | person | tableware thing furniture
pull pulled pulled | ziehen zieht zog gezogen | {LIVING} | vehicle
push pushed pushed | schieben schiebt schob geschoben | person | vehicle furniture
break broke broken | zerbrechen zerbricht zerbrach zerbrochen | person | tableware
lose lost lost | verlieren verliert verlor verloren | person | clothing thing
forget forgot forgotten | vergessen vergisst vergaß vergessen | person | {PORTABLE} topic
understand understood understood | verstehen versteht verstand verstanden | person \
| person text topic
catch caught caught | fangen fängt fing gefangen | {LIVING} | animal
hunt hunted hunted | jagen jagt jagte gejagt | {LIVING} | animal
feed fed fed | füttern füttert fütterte gefüttert | person | animal
kiss kissed kissed | küssen küsst küsste geküsst | person | person
greet greeted greeted | grüßen grüßt grüßte gegrüßt | person | person
meet met met | treffen trifft traf getroffen | person | person
praise praised praised | loben lobt lobte gelobt | person | person text
ask asked asked | fragen fragt fragte gefragt | person | person
admire admired admired | bewundern bewundert bewunderte bewundert | person | person building
need needed needed | brauchen braucht brauchte gebraucht | person | {PORTABLE} vehicle
hide hid hidden | verstecken versteckt versteckte versteckt | person | {PORTABLE}
steal stole stolen | stehlen stiehlt stahl gestohlen | person | {PORTABLE} vehicle snack
build built built | bauen baut baute gebaut | person | building vehicle furniture
clean cleaned cleaned | putzen putzt putzte geputzt | person | opening room furniture
solve solved solved | lösen löst löste gelöst | person | problem
plan planned planned | planen plant plante geplant | person | event
discover discovered discovered | entdecken entdeckt entdeckte entdeckt | person | topic animal
watch watched watched | beobachten beobachtet beobachtete beobachtet | {LIVING} | {LIVING}
bite bit bitten | beißen beißt biss gebissen | animal | {LIVING}
look looked looked | suchen sucht suchte gesucht | {LIVING} | {LIVING} {PORTABLE} | for - acc
look looked looked | an+schauen schaut schaute geschaut | person \
| {LIVING} text clothing building | at - acc
call called called +up | an+rufen ruft rief gerufen | person | person
invite invited invited | ein+laden lädt lud geladen | person | person
pick picked picked +up | ab+holen holt holte geholt | person | person
turn turned turned +on | ein+schalten schaltet schaltete geschaltet | person | device
turn turned turned +off | aus+schalten schaltet schaltete geschaltet | person | device
throw threw thrown +away | weg+werfen wirft warf geworfen | person | {PORTABLE} snack
write wrote written +down | auf+schreiben schreibt schrieb geschrieben | person | topic
tidy tidied tidied +up | auf+räumen räumt räumte geräumt | person | room
put put put +on | an+ziehen zieht zog gezogen | person | clothing
take took taken +off | aus+ziehen zieht zog gezogen | person | clothing
bring brought brought +along | mit+bringen bringt brachte gebracht | person | {PORTABLE} snack drink
bring brought brought +back | zurück+bringen bringt brachte gebracht | person | {PORTABLE}
prepare prepared prepared | vor+bereiten bereitet bereitete bereitet | person | event
help helped helped | helfen hilft half geholfen | person | {LIVING} | - - dat
thank thanked thanked | danken dankt dankte gedankt | person | person | - - dat
follow followed followed | folgen folgt folgte gefolgt sein | {LIVING} | {LIVING} vehicle | - - dat
trust trusted trusted | vertrauen vertraut vertraute vertraut | person | person | - - dat
listen listened listened | zu+hören hört hörte gehört | person | person | to - dat
congratulate congratulated congratulated | gratulieren gratuliert gratulierte gratuliert \
| person | person | - - dat
forgive forgave forgiven | verzeihen verzeiht verzieh verziehen | person | person | - - dat
serve served served | dienen dient diente gedient | person | person | - - dat
belong belonged belonged | gehören gehört gehörte gehört | {PORTABLE} vehicle | person | to - dat
wait waited waited | warten wartet wartete gewartet | {LIVING} | person vehicle | for auf acc
think thought thought | denken denkt dachte gedacht | person | person event topic | of an acc
believe believed believed | glauben glaubt glaubte geglaubt | person | idea plan | in an acc
speak spoke spoken | sprechen spricht sprach gesprochen | person | person | with mit dat
talk talked talked | reden redet redete geredet | person | {LIVING} text event topic \
| about über acc
laugh laughed laughed | lachen lacht lachte gelacht | person | person text topic | about über acc
dream dreamed dreamed | träumen träumt träumte geträumt | person | {LIVING} event building \
| of von dat
ask asked asked | bitten bittet bat gebeten | person | {PORTABLE} drink | for um acc
participate participated participated | teil+nehmen nimmt nahm genommen | person | event | in an dat
remember remembered remembered | sich erinnern erinnert erinnerte erinnert \
| person | person event text topic | - an acc
complain complained complained | sich beschweren beschwert beschwerte beschwert \
| person | person dish topic | about über acc
care cared cared | sich kümmern kümmert kümmerte gekümmert | person | {LIVING} | for um acc
warn warned warned | warnen warnt warnte gewarnt | person | animal accident | of vor dat
play played played | spielen spielt spielte gespielt | {LIVING} | {LIVING} | with mit dat
"""

# Two objects, the German receiver in the dative. "double" verbs also allow "gives him the book".
DITRANSITIVE_TABLE = f"""
give gave given | geben gibt gab gegeben | person | {PORTABLE} snack | double
send sent sent | schicken schickt schickte geschickt | person | text thing clothing | double
show showed shown | zeigen zeigt zeigte gezeigt | person | {PORTABLE} animal building | double
bring brought brought | bringen bringt brachte gebracht | person | {PORTABLE} drink | double
lend lent lent | leihen leiht lieh geliehen | person | {PORTABLE} vehicle | double
tell told told | erzählen erzählt erzählte erzählt | person | story dream secret | double
offer offered offered | an+bieten bietet bot geboten | person | snack dish drink | double
explain explained explained | erklären erklärt erklärte erklärt | person | text topic | to
recommend recommended recommended | empfehlen empfiehlt empfahl empfohlen | person \
| text dish building | to
return returned returned | zurück+geben gibt gab gegeben | person | {PORTABLE} | to
describe described described | beschreiben beschreibt beschrieb beschrieben | person \
| building event person | to
introduce introduced introduced | vor+stellen stellt stellte gestellt | person | person | to
"""

# Verbs whose complement says where from or where to.
MOTION_TABLE = f"""
go went gone | gehen geht ging gegangen sein | {LIVING}
drive drove driven | fahren fährt fuhr gefahren sein | person
walk walked walked | laufen läuft lief gelaufen sein | {LIVING}
run ran run | rennen rennt rannte gerannt sein | {LIVING}
come came come | kommen kommt kam gekommen sein | {LIVING}
travel travelled travelled | reisen reist reiste gereist sein | person
return returned returned | zurück+kehren kehrt kehrte gekehrt sein | person
"""
# Verbs whose complement says where.
POSITION_TABLE = f"""
live lived lived | wohnen wohnt wohnte gewohnt | person | {PLACES}
sit sat sat | sitzen sitzt saß gesessen | {LIVING} | furniture {PLACES} ground shore
stand stood stood | stehen steht stand gestanden | {LIVING} vehicle furniture \
| {PLACES} ground shore
stay stayed stayed | bleiben bleibt blieb geblieben sein | {LIVING} | {PLACES} ground
"""
# Verbs that move their object to a place.
PLACING_TABLE = """
put put put | stellen stellt stellte gestellt | person | tableware device
lay laid laid | legen legt legte gelegt | person | text clothing
throw threw thrown | werfen wirft warf geworfen | person | thing snack
"""
THAT_TABLE = """
say said said | sagen sagt sagte gesagt | person
think thought thought | denken denkt dachte gedacht | person
know knew known | wissen weiß wusste gewusst | person
believe believed believed | glauben glaubt glaubte geglaubt | person
hope hoped hoped | hoffen hofft hoffte gehofft | person
notice noticed noticed | merken merkt merkte gemerkt | person
claim claimed claimed | behaupten behauptet behauptete behauptet | person
write wrote written | schreiben schreibt schrieb geschrieben | person
"""
WHETHER_TABLE = """
ask asked asked | fragen fragt fragte gefragt | person
know knew known | wissen weiß wusste gewusst | person
wonder wondered wondered | sich fragen fragt fragte gefragt | person
check checked checked | prüfen prüft prüfte geprüft | person
"""
# Verbs with an infinitive clause: "versucht, die Tür zu öffnen".
INFINITIVE_TABLE = """
try tried tried | versuchen versucht versuchte versucht | person
forget forgot forgotten | vergessen vergisst vergaß vergessen | person
promise promised promised | versprechen verspricht versprach versprochen | person
begin began begun | beginnen beginnt begann begonnen | person
decide decided decided | beschließen beschließt beschloss beschlossen | person
hope hoped hoped | hoffen hofft hoffte gehofft | person
plan planned planned | planen plant plante geplant | person
"""

# What nobody calls his own, as kinds and as single nouns.
PUBLIC = frozenset(
    rows("""
shore; ground; land; man; woman; king; queen; prince; princess; mayor; tourist; soldier; policeman
judge; museum; castle; church; hospital; library; theatre; tower; bus; train; tram; restaurant
""")
)
# States: no manner, no modal, no perfect; neither do they happen at a place.
STATES = frozenset(rows("know;like;love;need;belong to;trust;admire;believe in;know that"))
# What one can do slowly, quickly, quietly ...
ACTIONS = frozenset(
    rows("""
work; sing; dance; swim; play; eat; drink; read; write; open; close; wash; repair; draw; carry
pull; push; clean; build; go to; walk to; drive to; run to; tidy up; write down; put on; take off
come back; get in; get out; lay; hide
""")
)


def _parse_verb(row: str, suffix: str) -> Verb:
    english, german, subjects, *rest = (field.strip() for field in row.split("|"))
    *base, last = english.split()
    particle = last.removeprefix("+") if last.startswith("+") else ""
    forms = base if particle else [*base, last]
    words = german.split()
    auxiliary = words.pop() if words[-1] == "sein" else "haben"
    reflexive = words[0] == "sich"
    infinitive, *parts = words[1:] if reflexive else words
    *prefix, bare = infinitive.split("+")
    government = (rest[1] if len(rest) > 1 else "- - acc").split()
    preposition, governed, case = government if len(government) == 3 else ("-", "-", "acc")
    name = " ".join(word for word in (forms[0], particle, preposition.strip("-"), suffix) if word)
    return Verb(
        name,
        (forms[0], forms[1], forms[2]),
        particle,
        (bare, parts[0], parts[1], parts[2]),
        "".join(prefix),
        auxiliary,
        reflexive,
        tuple(subjects.split()),
        tuple(rest[0].split()) if rest else (),
        preposition.strip("-"),
        governed.strip("-"),
        CASES[case],
    )


def _verbs(table: str, suffix: str = "") -> dict[str, Verb]:
    parsed = [_parse_verb(row, suffix) for row in rows(table)]
    return {verb.name: verb for verb in parsed}


NOUNS = _nouns()
ADJECTIVES = _adjectives()
# Frames say which complements a verb takes.
FRAMES = {
    "plain": _verbs(VERB_TABLE),
    "ditransitive": _verbs(DITRANSITIVE_TABLE),
    "motion": _verbs(MOTION_TABLE, "to"),
    "position": _verbs(POSITION_TABLE, "in"),
    "placing": _verbs(PLACING_TABLE),
    "that": _verbs(THAT_TABLE, "that"),
    "whether": _verbs(WHETHER_TABLE, "whether"),
    "infinitive": _verbs(INFINITIVE_TABLE, "to"),
}
VERBS = {name: verb for frame in FRAMES.values() for name, verb in frame.items()}
DOUBLE_OBJECT = frozenset(
    row.split()[0] for row in rows(DITRANSITIVE_TABLE) if row.endswith("double")
)
BE = _parse_verb("be was been | sein ist war gewesen sein | person", "")
BECOME = _parse_verb("become became become | werden wird wurde geworden sein | person", "")
WANT = _parse_verb("want wanted wanted | wollen will wollte gewollt | person", "")
HAVE = _parse_verb("have had had | haben hat hatte gehabt | person", "")
_MODALS = {
    "können": "kann konnte gekonnt", "müssen": "muss musste gemusst",
    "sollen": "soll sollte gesollt",
    "dürfen": "darf durfte gedurft", "werden": "wird wurde worden",
}  # fmt: skip


@cache
def modal(infinitive: str) -> Verb:
    """A German modal verb (or "werden", for the future) as a verb that conjugates."""
    return _parse_verb(f"- - - | {infinitive} {_MODALS[infinitive]} | person", "")
