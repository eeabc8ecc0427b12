"""The words of the grammar, in plain tables.

"_" joins the words of one entry, "a/b" are the shapes of a French word before a consonant and before a
vowel, "*" marks an h aspiré and what else forbids elision ("onze"). No English form has two French
translations; no English entry begins with a letter that misleads about its sound ("hour", "useful"), because
"a" and "an" go by the letter.
"""

from collections.abc import Sequence
from typing import NamedTuple

from seq2seq_lab.data.grammar.phrase import Phenomenon

Forms = tuple[str, ...]
"""The words of one form of an entry: ("pomme", "de", "terre")."""

PERSONS = FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)
SINGULAR, PLURAL = range(2)
MASCULINE, FEMININE = range(2)
NUMBER = (SINGULAR, SINGULAR, PLURAL, PLURAL)
"""Of each person."""


class Noun(NamedTuple):
    """A common noun; forms by number."""

    english: tuple[Forms, Forms]
    french: tuple[Forms, Forms]
    gender: int


class Adjective(NamedTuple):
    """An adjective; French forms by number, then gender."""

    english: Forms
    french: tuple[tuple[Forms, Forms], tuple[Forms, Forms]]


class Verb(NamedTuple):
    """A verb; present, past and auxiliary by person, participle by number, then gender.

    An English past of two words ("was born") holds an auxiliary of its own and needs no "did".
    """

    english_present: tuple[Forms, ...]
    english_past: tuple[Forms, ...]
    french_present: tuple[Forms, ...]
    auxiliary: tuple[str, ...]
    participle: tuple[tuple[str, str], tuple[str, str]]


class Entry(NamedTuple):
    """A word or a set phrase that never changes."""

    english: Forms
    french: Forms


class Nominal(NamedTuple):
    """A name or a pronoun, and what its verb agrees with."""

    english: Forms
    french: Forms
    person: int
    gender: int


class Clitic(NamedTuple):
    """A pronoun that French puts before the verb, as direct and as indirect object."""

    english: Forms
    direct: Forms
    indirect: Forms
    person: int
    gender: int


class Determiner(NamedTuple):
    """An article, a quantity or a possessive of one number; French forms by gender."""

    english: Forms
    french: tuple[Forms, Forms]
    phenomena: tuple[Phenomenon, ...]


ByNumber = tuple[Sequence[Determiner], Sequence[Determiner]]


class Determiners(NamedTuple):
    """What may stand before a noun, without and with the possessives."""

    articles: ByNumber
    all: ByNumber


# By person.
AVOIR = ("ai", "a", "avons", "ont")
ETRE = ("suis", "est", "sommes", "sont")


def _rows(table: str, columns: int) -> list[list[Forms]]:
    rows = [[tuple(cell.split("_")) for cell in line.split()] for line in table.strip().splitlines()]
    assert all(len(row) == columns for row in rows), [row for row in rows if len(row) != columns]
    return rows


def _nouns(table: str) -> list[Noun]:
    return [
        Noun((one, more), (un, des), MASCULINE if gender == ("m",) else FEMININE)
        for one, more, un, des, gender in _rows(table, 5)
    ]


def _adjectives(table: str) -> list[Adjective]:
    return [Adjective(english, ((ms, fs), (mp, fp))) for english, ms, fs, mp, fp in _rows(table, 5)]


def _agreeing(participle: str) -> tuple[tuple[str, str], tuple[str, str]]:
    plural = participle if participle.endswith("s") else participle + "s"
    return (participle, participle + "e"), (plural, participle + "es")


def _verbs(table: str, auxiliary: tuple[str, ...] = AVOIR) -> list[Verb]:
    return [
        Verb((base, third, base, base), (past,) * 4, (je, il, nous, ils), auxiliary, _agreeing(participle[0]))
        for base, third, past, je, il, nous, ils, participle in _rows(table, 8)
    ]


def _entries(table: str) -> list[Entry]:
    return [Entry(english, french) for english, french in _rows(table, 2)]


def _determiners(table: str, *phenomena: Phenomenon) -> list[Determiner]:
    return [Determiner(english, (m, f), phenomena) for english, m, f in _rows(table, 3)]


NAMES = [
    Nominal(english, french, THIRD_SINGULAR, MASCULINE if gender == ("m",) else FEMININE)
    for english, french, gender in _rows(
        """
        John     Jean     m
        Mary     Marie    f
        Peter    Pierre   m
        Paul     Paul     m
        Lucy     Lucie    f
        Henry    Henri    m
        Helen    Hélène   f
        Andrew   André    m
        Stephen  Étienne  m
        Alice    Alice    f
        Julia    Julie    f
        James    Jacques  m
        """,
        3,
    )
]
CITIES = _entries("""
    Paris     Paris
    London    Londres
    Vienna    Vienne
    Brussels  Bruxelles
    Geneva    Genève
    Athens    Athènes
""")

PEOPLE = _nouns("""
    man                 men                  homme           hommes           m
    woman               women                femme           femmes           f
    child               children             enfant          enfants          m
    boy                 boys                 garçon          garçons          m
    girl                girls                fille           filles           f
    king                kings                roi             rois             m
    queen               queens               reine           reines           f
    doctor              doctors              médecin         médecins         m
    teacher             teachers             professeur      professeurs      m
    student             students             étudiant        étudiants        m
    lawyer              lawyers              avocat          avocats          m
    actress             actresses            actrice         actrices         f
    nurse               nurses               infirmière      infirmières      f
    singer              singers              chanteuse       chanteuses       f
    baker               bakers               boulanger       boulangers       m
    thief               thieves              voleur          voleurs          m
    hero                heroes               *héros          *héros           m
    computer_scientist  computer_scientists  informaticien   informaticiens   m
    civil_servant       civil_servants       fonctionnaire   fonctionnaires   m
""")
KIN = _nouns("""
    brother  brothers  frère  frères  m
    sister   sisters   sœur   sœurs   f
    friend   friends   ami    amis    m
""")
ANIMALS = _nouns("""
    dog       dogs       chien      chiens      m
    cat       cats       chat       chats       m
    horse     horses     cheval     chevaux     m
    cow       cows       vache      vaches      f
    bird      birds      oiseau     oiseaux     m
    owl       owls       *hibou     *hiboux     m
    swallow   swallows   hirondelle hirondelles f
    hedgehog  hedgehogs  *hérisson  *hérissons  m
""")
THINGS = _nouns("""
    car             cars             voiture            voitures            f
    key             keys             clé                clés                f
    hat             hats             chapeau            chapeaux            m
    umbrella        umbrellas        parapluie          parapluies          m
    harp            harps            *harpe             *harpes             f
    axe             axes             *hache             *haches             f
    clock           clocks           horloge            horloges            f
    alarm_clock     alarm_clocks     réveil             réveils             m
    vacuum_cleaner  vacuum_cleaners  aspirateur         aspirateurs         m
    light_bulb      light_bulbs      ampoule            ampoules            f
    typewriter      typewriters      machine_à_écrire   machines_à_écrire   f
    toothbrush      toothbrushes     brosse_à_dents     brosses_à_dents     f
    sewing_machine  sewing_machines  machine_à_coudre   machines_à_coudre   f
""")
FURNITURE = _nouns("""
    table     tables     table     tables     f
    chair     chairs     chaise    chaises    f
    bed       beds       lit       lits       m
    wardrobe  wardrobes  armoire   armoires   f
""")
FOOD = _nouns("""
    apple      apples      pomme           pommes           f
    potato     potatoes    pomme_de_terre  pommes_de_terre  f
    egg        eggs        œuf             œufs             m
    cake       cakes       gâteau          gâteaux          m
    oyster     oysters     huître          huîtres          f
    ice_cream  ice_creams  glace           glaces           f
""")
STORIES = _nouns("""
    story   stories  histoire  histoires  f
    legend  legends  légende   légendes   f
    joke    jokes    blague    blagues    f
""")
WRITINGS = _nouns("""
    letter  letters  lettre  lettres  f
    poem    poems    poème   poèmes   m
    book    books    livre   livres   m
""")
PLACES = _nouns("""
    garden       gardens       jardin          jardins          m
    house        houses        maison          maisons          f
    forest       forests       forêt           forêts           f
    castle       castles       château         châteaux         m
    church       churches      église          églises          f
    hamlet       hamlets       *hameau         *hameaux         m
    living_room  living_rooms  salon           salons           m
    classroom    classrooms    salle_de_classe salles_de_classe f
""")
INSTITUTIONS = _nouns("""
    school           schools           école    écoles    f
    hotel            hotels            hôtel    hôtels    m
    hospital         hospitals         hôpital  hôpitaux  m
    museum           museums           musée    musées    m
    market           markets           marché   marchés   m
    railway_station  railway_stations  gare     gares     f
    high_school      high_schools      lycée    lycées    m
    town_hall        town_halls        mairie   mairies   f
    swimming_pool    swimming_pools    piscine  piscines  f
""")
WATERS = _nouns("""
    lake   lakes   lac      lacs      m
    river  rivers  rivière  rivières  f
    pond   ponds   étang    étangs    m
""")
GROUNDS = _nouns("""
    bridge  bridges  pont   ponts   m
    street  streets  rue    rues    f
    field   fields   champ  champs  m
""")

# Before the French noun.
ANY_BEFORE = _adjectives("""
    small      petit        petite    petits    petites
    big        grand        grande    grands    grandes
    beautiful  beau/bel     belle     beaux     belles
    old        vieux/vieil  vieille   vieux     vieilles
""")
NEW = _adjectives("""
    new        nouveau/nouvel  nouvelle  nouveaux  nouvelles
""")
YOUNG = _adjectives("""
    young      jeune      jeune      jeunes     jeunes
""")
FORMER = _adjectives("""
    former     ancien     ancienne   anciens    anciennes
""")
# After the French noun.
CHARACTERS = _adjectives("""
    happy        heureux      heureuse      heureux      heureuses
    sad          triste       triste        tristes      tristes
    famous       célèbre      célèbre       célèbres     célèbres
    intelligent  intelligent  intelligente  intelligents intelligentes
""")
COLOURS = _adjectives("""
    black  noir   noire    noirs   noires
    white  blanc  blanche  blancs  blanches
    red    rouge  rouge    rouges  rouges
""")
CONDITIONS = _adjectives("""
    broken     cassé     cassée    cassés    cassées
""")
WOODEN = _adjectives("""
    wooden     en_bois   en_bois   en_bois   en_bois
""")
STRANGE = _adjectives("""
    strange    étrange   étrange   étranges  étranges
    forgotten  oublié    oubliée   oubliés   oubliées
""")
CLOSED = _adjectives("""
    closed     fermé     fermée    fermés    fermées
""")

NUMBERS = _determiners(
    """
    two        deux       deux
    three      trois      trois
    four       quatre     quatre
    five       cinq       cinq
    six        six        six
    seven      sept       sept
    eight      *huit      *huit
    nine       neuf       neuf
    ten        dix        dix
    eleven     *onze      *onze
    twelve     douze      douze
    thirteen   treize     treize
    fourteen   quatorze   quatorze
    fifteen    quinze     quinze
    sixteen    seize      seize
    seventeen  dix-sept   dix-sept
    eighteen   dix-huit   dix-huit
    nineteen   dix-neuf   dix-neuf
    twenty     vingt      vingt
    """,
    "number",
)
HOURS = NUMBERS[:10]
"""From two to eleven: after one, "heure" is singular, and twelve is "midi" or "minuit"."""

# By number. A row that stands several times comes up so much more often.
_ARTICLES = (
    _determiners("""
    the    le/l'   la/l'
    the    le/l'   la/l'
    the    le/l'   la/l'
    a/an   un      une
    a/an   un      une
    a/an   un      une
    this   ce/cet  cette
    every  chaque  chaque
    """),
    12
    * _determiners("""
    the    les             les
    the    les             les
    some   des             des
    some   des             des
    these  ces             ces
    many   beaucoup_de/d'  beaucoup_de/d'
    """)
    + NUMBERS,
)
# "Some boys did not sleep" and "every boy did not sleep" have several readings.
_ARTICLES_BESIDE_NEGATION = (
    _determiners("""
    the    le/l'   la/l'
    the    le/l'   la/l'
    a/an   un      une
    this   ce/cet  cette
    """),
    _determiners("""
    the    les     les
    these  ces     ces
    """),
)
_ARTICLES_OF_NEGATED_OBJECT = (
    _determiners("""
    the    le/l'   la/l'
    a/an   de/d'   de/d'
    a/an   de/d'   de/d'
    this   ce/cet  cette
    """),
    _determiners("""
    the    les             les
    any    de/d'           de/d'
    any    de/d'           de/d'
    these  ces             ces
    many   beaucoup_de/d'  beaucoup_de/d'
    """),
)
_POSSESSIVES = (
    _determiners("""
    my   mon    ma/mon
    our  notre  notre
    his  son    sa/son
    her  son    sa/son
    """),
    _determiners("""
    my   mes  mes
    our  nos  nos
    his  ses  ses
    her  ses  ses
    """),
)
ANY = Determiners(_ARTICLES, (_ARTICLES[0] + _POSSESSIVES[0], _ARTICLES[1] + 12 * _POSSESSIVES[1]))
BESIDE_NEGATION, OF_NEGATED_OBJECT = (
    Determiners(articles, (articles[0] + _POSSESSIVES[0], articles[1] + _POSSESSIVES[1]))
    for articles in (_ARTICLES_BESIDE_NEGATION, _ARTICLES_OF_NEGATED_OBJECT)
)

# By convention masculine where English does not show the gender: I, we, me, us, them.
PRONOUNS = [
    Nominal(("I",), ("je/j'",), FIRST_SINGULAR, MASCULINE),
    Nominal(("I",), ("je/j'",), FIRST_SINGULAR, MASCULINE),
    Nominal(("he",), ("il",), THIRD_SINGULAR, MASCULINE),
    Nominal(("she",), ("elle",), THIRD_SINGULAR, FEMININE),
    Nominal(("we",), ("nous",), FIRST_PLURAL, MASCULINE),
    Nominal(("we",), ("nous",), FIRST_PLURAL, MASCULINE),
]
WHO = Nominal(("who",), ("qui",), THIRD_SINGULAR, MASCULINE)
CLITICS_OF_THIRD_PERSON = [
    Clitic(("him",), ("le/l'",), ("lui",), THIRD_SINGULAR, MASCULINE),
    Clitic(("her",), ("la/l'",), ("lui",), THIRD_SINGULAR, FEMININE),
    Clitic(("them",), ("les",), ("leur",), THIRD_PLURAL, MASCULINE),
]
CLITICS = [
    *CLITICS_OF_THIRD_PERSON,
    Clitic(("me",), ("me/m'",), ("me/m'",), FIRST_SINGULAR, MASCULINE),
    Clitic(("us",), ("nous",), ("nous",), FIRST_PLURAL, MASCULINE),
]
# What English uses where the verb cannot be negated or asked with by itself: by person.
DO = ("do", "does", "do", "do")

INTRANSITIVE = _verbs("""
    sleep   sleeps   slept    dors       dort       dormons     dorment     dormi
    sing    sings    sang     chante     chante     chantons    chantent    chanté
    dance   dances   danced   danse      danse      dansons     dansent     dansé
    work    works    worked   travaille  travaille  travaillons travaillent travaillé
    smile   smiles   smiled   souris     sourit     sourions    sourient    souri
""")
ANIMAL_INTRANSITIVE = _verbs("""
    sleep   sleeps   slept    dors       dort       dormons     dorment     dormi
    eat     eats     ate      mange      mange      mangeons    mangent     mangé
""")
MEETING = _verbs("""
    see     sees     saw      vois       voit       voyons      voient      vu
    love    loves    loved    aime       aime       aimons      aiment      aimé
    meet    meets    met      rencontre  rencontre  rencontrons rencontrent rencontré
    follow  follows  followed suis       suit       suivons     suivent     suivi
    hear    hears    heard    entends    entend     entendons   entendent   entendu
""")
HANDLING = _verbs("""
    buy     buys     bought   achète     achète     achetons    achètent    acheté
    find    finds    found    trouve     trouve     trouvons    trouvent    trouvé
    lose    loses    lost     perds      perd       perdons     perdent     perdu
    hide    hides    hid      cache      cache      cachons     cachent     caché
    draw    draws    drew     dessine    dessine    dessinons   dessinent   dessiné
""")
WRITING = _verbs("""
    write       writes       wrote       écris      écrit     écrivons    écrivent    écrit
    understand  understands  understood  comprends  comprend  comprenons  comprennent compris
""")
EATING = _verbs("""
    eat      eats      ate       mange    mange    mangeons   mangent   mangé
    prepare  prepares  prepared  prépare  prépare  préparons  préparent préparé
""")
TELLING = _verbs("""
    tell  tells  told  raconte  raconte  racontons  racontent  raconté
""")
GIVING = _verbs("""
    give  gives  gave    donne   donne   donnons   donnent   donné
    show  shows  showed  montre  montre  montrons  montrent  montré
    send  sends  sent    envoie  envoie  envoyons  envoient  envoyé
    sell  sells  sold    vends   vend    vendons   vendent   vendu
""")
SAYING = _verbs("""
    say      says      said      dis       dit       disons      disent      dit
    think    thinks    thought   pense     pense     pensons     pensent     pensé
    explain  explains  explained explique  explique  expliquons  expliquent  expliqué
""")
_TRAVERSE = "traverse traverse traversons traversent traversé"
# The French verb says the path and the French adverbial the manner.
SWIMMING = [(verb, ("à", "la", "nage")) for verb in _verbs(f"swim swims swam {_TRAVERSE}")]
RUNNING = [
    *[(verb, ("en", "courant")) for verb in _verbs(f"run runs ran {_TRAVERSE}")],
    *[(verb, ("à", "pied")) for verb in _verbs(f"walk walks walked {_TRAVERSE}")],
]

# Verbs of the passé composé with "être": to a place, to a place or nowhere, at a place, without a place.
GOING = _verbs(
    """
    go      goes     went      vais     va       allons    vont       allé
    """,
    ETRE,
)
COMING = _verbs(
    """
    come    comes    came      viens    vient    venons    viennent   venu
    return  returns  returned  reviens  revient  revenons  reviennent revenu
    """,
    ETRE,
)
STAYING = _verbs(
    """
    arrive  arrives  arrived   arrive   arrive   arrivons  arrivent   arrivé
    stay    stays    stayed    reste    reste    restons   restent    resté
    fall    falls    fell      tombe    tombe    tombons   tombent    tombé
    """,
    ETRE,
)
LEAVING = _verbs(
    """
    leave   leaves   left      pars     part     partons   partent    parti
    """,
    ETRE,
)
# What happens once; only of the past.
BIRTH = Verb(
    (("born",),) * 4,
    (("was", "born"), ("was", "born"), ("were", "born"), ("were", "born")),
    (("nais",), ("naît",), ("naissons",), ("naissent",)),
    ETRE,
    _agreeing("né"),
)
(DEATH,) = _verbs(
    """
    die     dies     died      meurs    meurt    mourons   meurent    mort
    """,
    ETRE,
)

FREQUENCY = _entries("""
    often      souvent
    sometimes  parfois
    always     toujours
    rarely     rarement
""")
MANNER = _entries("""
    slowly     lentement
    quickly    rapidement
    quietly    discrètement
""")
PAST_TIMES = _entries("""
    yesterday  hier
""")
LAST = [
    (Entry(english, french), Entry(("last",), last))
    for english, french, last in _rows(
        """
        week    la/l'_semaine  dernière
        month   le/l'_mois     dernier
        year    la/l'_année    dernière
        summer  le/l'_été      dernier
        """,
        3,
    )
]
PRESENT_TIMES = _entries("""
    now        maintenant
    every_day  tous_les_jours
""")
DAYS = _entries("""
    on_Monday    lundi
    on_Saturday  samedi
    in_the_morning  le_matin
    in_the_evening  le_soir
""")
NEARBY = _entries("""
    near         près_de/d'
    behind       derrière
    in_front_of  devant
""")
SURFACES = _entries("""
    on     sur
    under  sous
""")
COORDINATORS = _entries("""
    and  et
    but  mais
""")
