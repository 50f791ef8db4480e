"""Minimal pairs of negation and of roles, made from templates.

The two sentences of a pair differ in one word, which is the good one of other pairs as often as the
bad one, or only in the order of their words: neither length nor the frequency of words decides.
They are of the kind of Ettinger 2020, arXiv:1907.13528, with sentences of our own.
"""

from collections.abc import Iterator

from unmask.analysis.behavior.minimal_pairs import MinimalPair

BUILT_IN_NAME = "built-in pairs"

# A category and its members. Member k is compared with the category k + 1 places on, of which it
# must be no member (a crane is a bird and a tool).
_CATEGORIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("a bird", ("a robin", "a sparrow", "a pigeon", "an eagle", "a swallow", "a goose")),
    ("a fish", ("a salmon", "a trout", "a shark", "a carp", "a herring", "a cod")),
    ("an insect", ("a fly", "a mosquito", "an ant", "a wasp", "a moth", "a bee")),
    ("a tree", ("an oak", "a pine", "a birch", "a willow", "a poplar", "an elm")),
    ("a flower", ("a daisy", "a tulip", "a lily", "a daffodil", "a poppy", "a buttercup")),
    ("a fruit", ("a pear", "a banana", "a grape", "a cherry", "a strawberry", "an apple")),
    ("a vehicle", ("a bus", "a truck", "a car", "a van", "a tractor", "a bicycle")),
    ("a color", ("green", "blue", "yellow", "red", "brown", "purple")),
    ("a metal", ("iron", "zinc", "lead", "tin", "steel", "aluminum")),
    ("a city", ("Paris", "London", "Rome", "Berlin", "Madrid", "Vienna")),
    ("a country", ("France", "Spain", "Russia", "England", "Germany", "Italy")),
    ("a tool", ("a hammer", "a saw", "a chisel", "a shovel", "an axe", "a screwdriver")),
)
# What can be one or the other, and both.
_OPPOSITES: tuple[tuple[str, str, str], ...] = (
    ("the door", "open", "closed"),
    ("the glass", "full", "empty"),
    ("the water", "hot", "cold"),
    ("the coat", "wet", "dry"),
    ("the bird", "alive", "dead"),
    ("the road", "long", "short"),
    ("the room", "dark", "light"),
    ("the answer", "right", "wrong"),
    ("the bread", "fresh", "stale"),
    ("the house", "large", "small"),
    ("the work", "easy", "difficult"),
    ("the floor", "clean", "dirty"),
    ("the box", "heavy", "light"),
    ("the story", "true", "false"),
    ("the horse", "young", "old"),
    ("the river", "deep", "shallow"),
    ("the wall", "high", "low"),
    ("the street", "narrow", "wide"),
    ("the train", "early", "late"),
    ("the shirt", "cheap", "expensive"),
)
# Who does what to whom: agent, past tense, participle, patient.
_ANIMATE: tuple[tuple[str, str, str, str], ...] = (
    ("doctor", "cured", "cured", "patient"),
    ("teacher", "taught", "taught", "pupil"),
    ("cat", "chased", "chased", "mouse"),
    ("policeman", "arrested", "arrested", "thief"),
    ("hunter", "shot", "shot", "deer"),
    ("waiter", "served", "served", "guest"),
    ("mother", "fed", "fed", "baby"),
    ("judge", "sentenced", "sentenced", "murderer"),
    ("wolf", "ate", "eaten", "lamb"),
    ("fisherman", "caught", "caught", "fish"),
    ("barber", "shaved", "shaved", "customer"),
    ("lawyer", "defended", "defended", "prisoner"),
    ("general", "commanded", "commanded", "soldier"),
    ("farmer", "milked", "milked", "cow"),
    ("rider", "rode", "ridden", "horse"),
    ("nurse", "bathed", "bathed", "child"),
    ("spider", "caught", "caught", "fly"),
    ("shepherd", "guarded", "guarded", "sheep"),
    ("captain", "commanded", "commanded", "sailor"),
    ("butcher", "killed", "killed", "pig"),
    ("king", "knighted", "knighted", "soldier"),
    ("tiger", "ate", "eaten", "goat"),
    ("priest", "blessed", "blessed", "bride"),
    ("owner", "fed", "fed", "dog"),
    ("jailer", "locked up", "locked up", "prisoner"),
    ("boss", "hired", "hired", "secretary"),
    ("robber", "robbed", "robbed", "banker"),
    ("bird", "ate", "eaten", "worm"),
    ("trainer", "tamed", "tamed", "lion"),
    ("dentist", "treated", "treated", "boy"),
)
_INANIMATE: tuple[tuple[str, str, str, str], ...] = (
    ("boy", "ate", "eaten", "apple"),
    ("girl", "read", "read", "letter"),
    ("woman", "opened", "opened", "door"),
    ("man", "drank", "drunk", "wine"),
    ("baker", "baked", "baked", "bread"),
    ("driver", "parked", "parked", "car"),
    ("servant", "cleaned", "cleaned", "floor"),
    ("child", "broke", "broken", "cup"),
    ("writer", "wrote", "written", "book"),
    ("maid", "lit", "lit", "lamp"),
    ("thief", "stole", "stolen", "money"),
    ("farmer", "bought", "bought", "field"),
    ("gardener", "watered", "watered", "flower"),
    ("guest", "tasted", "tasted", "soup"),
    ("soldier", "carried", "carried", "gun"),
    ("student", "learned", "learned", "poem"),
    ("sailor", "pulled", "pulled", "rope"),
    ("tailor", "sewed", "sewn", "shirt"),
    ("painter", "painted", "painted", "wall"),
    ("lady", "wore", "worn", "hat"),
    ("cook", "peeled", "peeled", "potato"),
    ("king", "built", "built", "castle"),
    ("uncle", "sold", "sold", "house"),
    ("boy", "threw", "thrown", "stone"),
    ("girl", "picked", "picked", "rose"),
    ("widow", "locked", "locked", "gate"),
    ("doctor", "signed", "signed", "paper"),
    ("singer", "sang", "sung", "song"),
    ("workman", "repaired", "repaired", "roof"),
    ("captain", "steered", "steered", "ship"),
)


def built_in_pairs() -> list[MinimalPair]:
    """Return the pairs: negation in four paradigms and roles in six.

    Example:
        >>> pair = built_in_pairs()[0]
        >>> pair.good, pair.bad
        ('A robin is a bird.', 'A robin is a fish.')
    """
    return [*_category_pairs(), *_opposite_pairs(), *_role_pairs()]


def _category_pairs() -> Iterator[MinimalPair]:
    """Yield "A robin is (not) a bird": who ignores the negation has one right, the other wrong."""
    n = len(_CATEGORIES)
    for paradigm, verb in (("category", "is"), ("negated_category", "is not")):
        for i, (true, members) in enumerate(_CATEGORIES):
            for k, member in enumerate(members):
                false = _CATEGORIES[(i + 1 + k) % n][0]
                texts = [_sentence(f"{member} {verb} {one}") for one in (true, false)]
                good, bad = texts if verb == "is" else reversed(texts)
                yield MinimalPair(good, bad, paradigm, "negation")


def _opposite_pairs() -> Iterator[MinimalPair]:
    """Yield "The door was not open, so it was closed", with each opposite as the first."""
    for paradigm, first, second in (
        ("opposite", "was not", "was"),
        ("negated_opposite", "was", "was not"),
    ):
        for what, *ends in _OPPOSITES:
            for a, b in (ends, ends[::-1]):
                good, bad = (
                    _sentence(f"{what} {first} {a}, so it {second} {one}") for one in (b, a)
                )
                yield MinimalPair(good, bad, paradigm, "negation")


def _role_pairs() -> Iterator[MinimalPair]:
    """Yield sentences and the same ones with agent and patient exchanged."""
    for kind, events in (("animate", _ANIMATE), ("inanimate", _INANIMATE)):
        for form in ("active", "passive", "relative"):
            for agent, past, participle, patient in events:
                good, bad = (
                    _sentence(
                        {
                            "active": f"the {a} {past} the {p}",
                            "passive": f"the {p} was {participle} by the {a}",
                            "relative": f"this is the {p} that the {a} {past}",
                        }[form]
                    )
                    for a, p in ((agent, patient), (patient, agent))
                )
                yield MinimalPair(good, bad, f"{kind}_patient_{form}", "roles")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
