"""Two files of vectors -> one space: what a map reaches, and which words moved."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from unmask.channels import Stream, clear, markdown_table, over, tell
from unmask.channels import markdown as text_of
from unmask.config import check
from unmask.files import utf8, whole
from unmask.serving.spaces import open_space
from unmask.text.lines import blank, lines
from unmask.training.stopping import interruptible
from unmask.vectors.align import (
    STOCHASTIC,
    USUAL,
    LeastSquares,
    Map,
    Preparation,
    Procrustes,
    Refine,
    Round,
    SelfLearning,
    UnitLength,
    mapped,
    prepared,
    rounds,
)
from unmask.vectors.dictionary import (
    LONGEST,
    Dictionary,
    Pairs,
    Scores,
    known,
    read_dictionary,
    score,
)
from unmask.vectors.dictionary import identical as identical_words
from unmask.vectors.dictionary import numerals as numerals_of
from unmask.vectors.moved import Moved
from unmask.vectors.moved import moved as moved_words
from unmask.vectors.retrieval import CSLS, Nearest
from unmask.vectors.space import Space

MapName = Literal["procrustes", "least-squares"]
Preparing = Literal["usual", "unit", "none"]
Learning = Literal["none", "nearest", "csls", "stochastic"]

MAPS: Mapping[MapName, Map] = {"procrustes": Procrustes(), "least-squares": LeastSquares()}
PREPARATIONS: Mapping[Preparing, tuple[Preparation, ...]] = {
    "usual": USUAL,
    "unit": (UnitLength(),),
    "none": (),
}
LISTED = 10_000
"""Words among which those are looked for that moved: the most frequent."""
LEARNED = 20_000
"""Words of each space that take part in self-learning, as in Artetxe et al. 2018."""
HELD_OUT = 1_000
"""Words in common, at most, that a first map does not see and is scored on."""
_WHITE = re.compile(r"[ \t\r\n]")
_LIVE = 70  # columns of the live line
_SECONDS = 10.0  # between two lines of progress where there is no terminal


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """Two spaces in one, and what was reached."""

    source: Space
    """Prepared and mapped."""
    target: Space
    """Prepared."""
    weights: Float[np.ndarray, "d e"]
    """What a prepared source vector is multiplied by."""
    rounds: tuple[Round, ...]
    scores: Mapping[str, Scores]
    """By `nearest` and by `csls`, on the test dictionary; none where nothing was left to test."""
    held_out: Scores | None
    """Of words in common, which a first map did not see: whether they are found, by cosine."""
    moved: tuple[Moved, ...]
    facts: Mapping[str, Any]
    """All of it in plain data: what `align.json` holds."""

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and rows of the table of scores."""
        names = ["nearest by", "P@1", "P@5", "mean reciprocal rank", "P@1 by chance", "asked"]
        measured = {"cosine": self.scores.get("nearest"), "CSLS": self.scores.get("csls")}
        measured["cosine, words held out"] = self.held_out
        return names, [
            [
                name,
                f"{one.p_at_1:.1%}",
                f"{one.p_at_5:.1%}",
                f"{one.mean_reciprocal_rank:.3f}",
                f"{one.chance:.2%}",
                f"{one.asked:,} of {one.words:,}",
            ]
            for name, one in measured.items()
            if one is not None
        ]

    def moved_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and rows of the table of words that moved."""
        return ["word", "cosine", "then", "now"], [
            [
                one.word,
                f"{one.cosine:.3f}",
                " ".join(n.word for n in one.then),
                " ".join(n.word for n in one.now),
            ]
            for one in self.moved
        ]

    def told(self) -> list[str]:
        """Say in lines what there was to learn from, and how far the scores can be believed."""
        facts = self.facts
        rounds = "1 round" if facts["rounds"] == 1 else f"{facts['rounds']:,} rounds"
        said = [
            f"{facts['seeds']:,} pairs to begin with, {rounds}, the last on "
            f"{facts['pairs']:,} pairs"
        ]
        if facts["seeds"] < len(self.weights):
            said.append(
                f"{facts['seeds']:,} pairs do not settle a map of {len(self.weights)} dimensions"
            )
        first = next(iter(self.scores.values()), None)
        if first is not None:
            said += _coverage(first)
        if not self.scores and self.held_out is None:
            said.append("not tested: give --test, or fewer --seeds than the dictionary has pairs")
        measured = [s for s in (*self.scores.values(), self.held_out) if s is not None]
        if measured and not any(one.above_chance for one in measured):
            what = "; which words moved says nothing" if self.moved else ""
            said.append(f"no more words are found than by chance: the spaces do not align{what}")
        return said


@interruptible()
def align(
    source: str | Path | Space,
    target: str | Path | Space,
    *,
    dictionary: str | Path | None = None,
    seeds: int | None = None,
    numerals: bool = False,
    identical: bool = False,
    anchors: str | Path | None = None,
    lowercase: bool = False,
    test: str | Path | None = None,
    map: MapName = "procrustes",
    prepare: Preparing = "usual",
    self_learning: Learning | None = None,
    refine: int = 0,
    frequent: int | None = None,
    neighbors: int = 10,
    moved: int | None = None,
    least: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    terminal: Stream | None = None,
) -> Aligned:
    """Map the space of one file of vectors into that of another, and score it by a dictionary.

    Args:
        source: a file of vectors, or a Space; with `moved`, the older one.
        target: the other.
        dictionary: pairs of words to learn from.
        seeds: only so many of its known pairs, the first; without `test` the others are it.
        numerals: learn from the numerals that both have, instead.
        identical: learn from the words that both have, instead; what `moved` does by itself.
        anchors: learn from those of these words, one a line, that both have, instead.
        lowercase: read dictionaries in lower case.
        test: pairs of words to score by; a source word may have several translations.
        map: "procrustes" or "least-squares".
        prepare: "usual": unit length, mean zero, unit length; "unit"; or "none".
        self_learning: how pairs are found by the map itself: "nearest" (Artetxe et al. 2017),
            "csls" (in both directions, by CSLS), "stochastic" (Artetxe et al. 2018), "none". None:
            "csls" for numerals or fewer pairs than dimensions, else "none".
        refine: how often the map is fitted anew on words that are each other's nearest.
        frequent: how many of the most frequent words of each space learn by themselves, refine,
            and are listed as moved. None: 20,000; 15,000; 10,000.
        neighbors: the k of CSLS.
        moved: list so many words that moved most.
        least: how often words that moved were seen, where the files say it.
        limit: read only so many words of each file, the first.
        seed: of what is drawn in stochastic self-learning.
        out: a new folder for the vectors and tables. None: nothing is written.
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file or a line of it is not what it should be, there is nothing to learn from,
            the spaces do not fit the map, or options exclude each other.
        FileExistsError: `out` has files in it.
    """
    _check_choices(map=map, prepare=prepare, self_learning=self_learning)
    _check_numbers(
        seeds=seeds, frequent=frequent, neighbors=neighbors, moved=moved, least=least, limit=limit
    )
    check(int, refine, "refine")
    check(int, seed, "seed")
    if refine < 0 or seed < 0:
        name, number = ("refine", refine) if refine < 0 else ("seed", seed)
        raise ValueError(f"--{name} must be 0 or more, got {number}")
    ways = {
        "dictionary": dictionary is not None, "numerals": numerals, "identical": identical,
        "anchors": anchors is not None,
    }  # fmt: skip
    _check_ways([name for name, given in ways.items() if given], seeds, moved, least)
    began = time.monotonic()
    folder = None if out is None else Path(out)
    old, new = (open_space(given, limit=limit) for given in (source, target))
    if folder is not None:
        _check_out(folder, old, new)
    fit, learn, again = _how(map, self_learning, refine, frequent, neighbors)
    pairs, rest = _seeds(
        old, new, dictionary=dictionary, seeds=seeds, numerals=numerals, anchors=anchors,
        lowercase=lowercase,
    )  # fmt: skip
    asked = rest if test is None else read_dictionary(Path(test), lowercase)
    if test is not None:
        _known(Path(test), asked, old, new)
    if self_learning is None and moved is None:
        few = numerals or len(pairs) < old.vectors.shape[1]
        enough = min(len(old), len(new), frequent or LEARNED) >= neighbors
        learn = _learning("csls" if few and enough else "none", frequent, neighbors)
    x, z = (prepared(space, PREPARATIONS[prepare]) for space in (old, new))
    done = _run(rounds(x, z, pairs, fit=fit, learn=learn, refine=again, seed=seed), terminal)
    found = mapped(x, done[-1].weights)
    if not (np.isfinite(found.vectors).all() and np.isfinite(z.vectors).all()):
        raise FloatingPointError("the mapped vectors are not finite: nothing can be said of them")
    scores = dict[str, Scores]()
    if asked:
        _say(terminal, f"scoring {len(asked):,} pairs")
        ways = {"nearest": Nearest(), "csls": CSLS(neighbors)}
        scores = {name: score(found, z, asked, way, pairs) for name, way in ways.items()}
    held, listed = None, list[Moved]()
    if moved is not None:
        held = _held_out(x, z, pairs, fit, frequent or LISTED)
        listed = _listed(found, z, moved, least, frequent or LISTED)
    similar = [one.similarity for one in done if one.similarity is not None]
    facts: dict[str, Any] = {
        "source": _named(source, old),
        "target": _named(target, new),
        "map": map,
        "prepare": prepare,
        "self_learning": "none" if learn is None else (self_learning or "csls"),
        "refine": refine,
        "seeds": len(pairs),
        "rounds": len(done),
        "pairs": done[-1].pairs,
        "similarity": similar[-1] if similar else None,
        "scores": {name: _plain(one) for name, one in scores.items()},
        "held_out": None if held is None else _plain(held),
        "moved": [_moved_plain(one) for one in listed],
        "seconds": round(time.monotonic() - began, 1),
    }
    made = Aligned(
        source=found, target=z, weights=done[-1].weights, rounds=tuple(done), scores=scores,
        held_out=held, moved=tuple(listed), facts=facts,
    )  # fmt: skip
    if folder is not None:
        _say(terminal, f"writing {folder}")
        _write(made, folder)
    return made


# What is asked for


def _check_ways(
    ways: Sequence[str], seeds: int | None, moved: int | None, least: int | None
) -> None:
    """Check all that can be known to be wrong before a file is read."""
    if len(ways) > 1:
        raise ValueError(f"learn from one of them: got --{ways[0]} and --{ways[1]}")
    if not ways and moved is None:
        raise ValueError(
            "nothing to learn from: give --dictionary, --numerals, --identical or --anchors"
        )
    if seeds is not None and "dictionary" not in ways:
        raise ValueError("--seeds is how many pairs of --dictionary are learned from; give it, too")
    if least is not None and moved is None:
        raise ValueError("--least is of the words that --moved lists; give it, too")


def _check_numbers(**given: int | None) -> None:
    for name, number in given.items():
        check(int | None, number, name)
        if number is not None and number < 1:
            raise ValueError(f"--{name} must be 1 or more, got {number}")


def _check_choices(**given: str | None) -> None:
    known_ones = {
        "map": get_args(MapName),
        "prepare": get_args(Preparing),
        "self_learning": (*get_args(Learning), None),
    }
    for name, choice in given.items():
        if choice not in known_ones[name]:
            allowed = ", ".join(filter(None, known_ones[name]))
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be one of {allowed}, got {choice!r}")


def _check_out(folder: Path, *spaces: Space) -> None:
    """Check before the work that its result can be written."""
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder}: there is no folder {folder.parent}")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is there already, a file")
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is there already, a folder with files in it")
    if not folder.is_dir():
        folder.mkdir()  # where that fails, it fails before the work
        folder.rmdir()
    for space in spaces:
        written = {_WHITE.sub("_", word) for word in space.words}
        if len(written) < len(space.words):
            raise ValueError("two words differ only in white space and _, and would be one written")


def _how(
    map: MapName, learning: Learning | None, refine: int, frequent: int | None, k: int
) -> tuple[Map, SelfLearning | None, Refine | None]:
    csls = Refine(refine, k=k) if frequent is None else Refine(refine, frequent, k)
    return MAPS[map], _learning(learning or "none", frequent, k), csls


def _learning(name: Learning, frequent: int | None, k: int) -> SelfLearning | None:
    many = frequent or LEARNED
    made: dict[str, SelfLearning | None] = {
        "none": None,
        "nearest": SelfLearning(frequent=many),
        "csls": SelfLearning(frequent=many, retrieval=CSLS(k), union=True),
        "stochastic": replace(STOCHASTIC, frequent=many, retrieval=CSLS(k)),
    }
    return made[name]


def _seeds(
    source: Space,
    target: Space,
    *,
    dictionary: str | Path | None,
    seeds: int | None,
    numerals: bool,
    anchors: str | Path | None,
    lowercase: bool,
) -> tuple[Pairs, Dictionary]:
    """Find what is learned from, and what of a dictionary is left to score by."""
    if numerals:
        return numerals_of(source, target), ()
    if dictionary is None:
        words = None if anchors is None else _words(Path(anchors))
        try:
            return identical_words(source, target, words), ()
        except ValueError as error:
            raise ValueError(f"{anchors}: {error}" if anchors is not None else str(error)) from None
    pairs = read_dictionary(Path(dictionary), lowercase)
    kept, rows = _known(Path(dictionary), pairs, source, target)
    if seeds is None or seeds >= len(kept):
        return rows, ()
    learned = {one for one, _ in kept[:seeds]}
    return rows[:seeds], tuple(pair for pair in kept[seeds:] if pair[0] not in learned)


def _known(path: Path, pairs: Dictionary, source: Space, target: Space) -> tuple[Dictionary, Pairs]:
    try:
        return known(pairs, source, target)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _words(path: Path) -> list[str]:
    """Read words, one a line."""
    found = list[str]()
    for number, line, cut in lines(path, LONGEST):
        if cut:
            raise ValueError(f"{path}:{number}: a line of more than {LONGEST:,} characters")
        if not blank(line):
            found.append(line.strip())
    if not found:
        raise ValueError(f"{path}: no word in it")
    return found


# The work


def _run(made: Iterator[Round], terminal: Stream | None) -> list[Round]:
    """Take the rounds one after the other, and show where they are."""
    done, shown = list[Round](), time.monotonic()
    for one in made:
        done.append(one)
        live = terminal is not None and terminal.isatty()
        if terminal is not None and time.monotonic() - shown > (0.1 if live else _SECONDS):
            shown = time.monotonic()
            near = "" if one.similarity is None else f", mean cosine {one.similarity:.4f}"
            line = f"round {one.number}: {one.pairs:,} pairs{near}, {one.keep:.0%} looked at"
            over(line, terminal, _LIVE) if live else tell(line, terminal)
    if terminal is not None and terminal.isatty() and len(done) > 1:
        clear(terminal, _LIVE)
    return done


def _held_out(source: Space, target: Space, pairs: Pairs, fit: Map, frequent: int) -> Scores | None:
    """Score a map on every tenth of the pairs, which it was not fitted on."""
    out = np.arange(len(pairs)) % 10 == 9
    both = (pairs < frequent).all(1)
    some = pairs[out & both][:HELD_OUT]
    if not len(some):
        return None
    (first,) = rounds(source, target, pairs[~out], fit=fit)
    words = tuple((source.words[one], target.words[other]) for one, other in some.tolist())
    found = mapped(source.first(frequent), first.weights)
    return score(found, target.first(frequent), words, Nearest())


def _listed(source: Space, target: Space, n: int, least: int | None, frequent: int) -> list[Moved]:
    try:
        return moved_words(source.first(frequent), target.first(frequent), n, least=least)
    except ValueError as error:
        raise ValueError(f"of the first {frequent:,} words of each: {error}") from None


# What is told and written


def _say(terminal: Stream | None, text: str) -> None:
    if terminal is not None:
        tell(text, terminal)


def _coverage(one: Scores) -> list[str]:
    said = list[str]()
    if one.asked < one.words:
        said.append(
            f"{one.words - one.asked:,} of {one.words:,} words were not asked: the source space "
            f"lacks {one.source_unknown:,}, the target space the translations of "
            f"{one.target_unknown:,}"
        )
    if one.seen:
        said.append(f"{one.seen:,} of the words asked were learned from, too")
    return said


def _named(given: str | Path | Space, space: Space) -> dict[str, Any]:
    file = None if isinstance(given, Space) else str(given)
    return {"file": file, "words": len(space.words), "width": space.vectors.shape[1]}


def _plain(one: Scores) -> dict[str, Any]:
    return asdict(one) | {"above_chance": one.above_chance, "coverage": one.coverage}


def _moved_plain(one: Moved) -> dict[str, Any]:
    near = {name: [list(n) for n in getattr(one, name)] for name in ("then", "now")}
    counts = {"count_then": one.count_then, "count_now": one.count_now}
    return {"word": one.word, "cosine": one.cosine, **counts, **near}


def _write(made: Aligned, folder: Path) -> None:
    from unmask.vectors.files import write_vectors

    with whole(folder) as beside:
        beside.mkdir()
        write_vectors(made.source, beside / "source.vec", white="_")
        write_vectors(made.target, beside / "target.vec", white="_")
        np.save(beside / "map.npy", made.weights, allow_pickle=False)
        text = json.dumps(made.facts, ensure_ascii=False, indent=1) + "\n"
        (beside / "align.json").write_bytes(utf8(text))
        (beside / "README.md").write_bytes(utf8(markdown(made)))


def markdown(made: Aligned) -> str:
    """Write what was reached as a page: tables, and what there is to know of them."""
    names = [_title(made.facts[name]) for name in ("source", "target")]
    parts = [f"# {text_of(' -> '.join(names))}", *map(text_of, made.told())]
    for names, rows in (made.rows(), made.moved_rows()):
        if rows:
            parts.append("\n".join(markdown_table(names, rows)))
    return "\n\n".join(parts) + "\n"


def _title(facts: Mapping[str, Any]) -> str:
    name = "space" if facts["file"] is None else Path(facts["file"]).name
    return f"{name} ({facts['words']:,} words, {facts['width']} wide)"
