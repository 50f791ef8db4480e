"""What a model would see of a text, and what it would be asked."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.batch import SENTENCE, Tokens
from unmask.config import from_dict, to_dict
from unmask.demo import bundled
from unmask.files import whole
from unmask.hiding.objectives import Objective
from unmask.hiding.show import Explanation, explain
from unmask.published.card import Published
from unmask.published.catalogue import published
from unmask.published.fit import fit
from unmask.serving.folders import is_card
from unmask.serving.pipeline import load
from unmask.text.corpus import documents
from unmask.tokens.tokenizer import Tokenizer, learn
from unmask.training.data import tokenizer_spec
from unmask.training.recipe import Recipe, merge, parse
from unmask.vectors.corpus import is_punctuation
from unmask.vectors.learning import Method
from unmask.vectors.windows import Windowed

SAMPLE_CHARACTERS = 1_500_000
"""Of the bundled text, from which a card's tokenizer is learned to show what the card would see."""
SAMPLE_VOCABULARY = 8192


@dataclass(frozen=True)
class _Held:
    """An objective by kind, as plain data has it."""

    objective: Objective | Method | str


def hidden(
    model: str | Path,
    text: str,
    *,
    objective: str | None = None,
    seed: int = 0,
    changes: Sequence[str] = (),
) -> Explanation:
    """Hide a text as a model's objective does; another seed hides other places.

    A card has no tokenizer of its own: one of its kind is learned from the bundled text, once.

    Args:
        model: a card's name, or the folder of a model.
        text: paragraphs parted by newlines.
        objective: another than the model's own, by name, as `pretrain` takes it.
        seed: of what is drawn.
        changes: `key=value` of the objective, for instance `choose.rate=0.3`; where it holds
            another one, as a pair does, what is no key of its own is one of that.

    Raises:
        ValueError: the text is empty, there is no such model, it has no such setting, or cannot be
            asked that.
    """
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    card, tokenizer = _open(str(model), objective, changes)
    asked = card.objective
    tokens = tokenizer.encode(text)
    if not len(tokens):
        raise ValueError("the text is empty: there is nothing to hide")
    if asked.pairs:
        tokens = replace(tokens, other=_elsewhere(tokenizer))
    if isinstance(asked, Windowed):
        tokens = _words(tokens, tokenizer)
    example = asked(tokens, tokenizer.special, np.random.default_rng(seed))
    return explain(example, tokenizer, asked)


def _asked(card: Published, objective: str | None, changes: Sequence[str]) -> Published:
    """Return a card as it is asked, by name or with changes."""
    if objective is not None:
        card = fit(card, objective)
    return fit(card, _changed(card.objective, changes)) if changes else card


def _changed(objective: Objective | Method, changes: Sequence[str]) -> Objective | Method | str:
    found: Objective | Method | str = objective
    for change in changes:
        try:
            key = change if re.match(r"objective\s*[.=]", change) else f"objective.{change}"
            recipe = {"kind": Recipe.__name__, "objective": to_dict(found)}
            held = {"objective": merge(recipe, parse(key))["objective"]}
            found = from_dict(_Held, held).objective
        except ValueError as error:
            raise ValueError(f"--set {change}: {error}") from None
    return found


def _open(model: str, objective: str | None, changes: Sequence[str]) -> tuple[Published, Tokenizer]:
    if is_card(model):
        card = _asked(published(model), objective, changes)
        return card, _tokenizer(card)
    pipeline = load(model)
    return _asked(pipeline.card, objective, changes), pipeline.tokenizer


def _tokenizer(card: Published) -> Tokenizer:
    """Learn the card's kind of tokenizer, or load the one that was learned before."""
    kind = card.tokenizer.vocabulary
    size = min(getattr(kind, "size", SAMPLE_VOCABULARY), SAMPLE_VOCABULARY)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    case = "uncased" if getattr(kind, "lowercase", False) else "cased"
    home = cache / "unmask" / "tokenizers"
    modes = "-modes" if card.tokenizer.frame.modes else ""
    if card.tokenizer.frame != published(card.name).tokenizer.frame:  # it has tokens more
        told = json.dumps(to_dict(card.tokenizer.frame), sort_keys=True)
        modes += f"-{hashlib.blake2b(told.encode(), digest_size=6).hexdigest()}"
    folder = home / f"{card.family}-{type(kind).__name__}-{size}-{case}{modes}"
    if (folder / "tokenizer_config.json").is_file():
        return Tokenizer.load(folder)
    tokenizer = learn(tokenizer_spec(Recipe(model=card.name, vocab_size=size), card), _sample())
    try:
        home.mkdir(parents=True, exist_ok=True)
        with whole(folder) as beside:
            tokenizer.save(beside)
    except OSError:  # a home that cannot be written costs some seconds at the next call, no more
        pass
    return tokenizer


def _sample() -> list[str]:
    texts, left = list[str](), SAMPLE_CHARACTERS
    for document in documents(bundled("novels")):
        texts.append(document.text[:left])
        left -= len(texts[-1])
        if left <= 0:
            break
    return texts


def _elsewhere(tokenizer: Tokenizer) -> Tokens:
    document = next(iter(documents(bundled("novels"))))
    return tokenizer.encode(document.text[:2000])


def _words(tokens: Tokens, tokenizer: Tokenizer) -> Tokens:
    """Leave out punctuation, which has no vector; what began with it begins after it."""
    kept = np.array([not is_punctuation(piece) for piece in tokenizer.pieces(tokens.ids)], bool)
    sentence = np.cumsum(tokens.marks & SENTENCE > 0)[kept]
    begins = np.diff(sentence, prepend=0) > 0
    return Tokens(tokens.ids[kept], tokens.marks[kept] | SENTENCE * begins)
