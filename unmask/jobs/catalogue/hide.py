"""The inputs and targets of a model's objective for a text."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.batch import SENTENCE_START, Example, Tokens
from unmask.bundled.demo import bundled_path
from unmask.config import from_dict, parse_change, to_dict
from unmask.files import atomic_path
from unmask.images.formats.picture_files import is_picture_name
from unmask.inference.export import is_preset_name
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.catalogue.hide_picture import hide_picture
from unmask.jobs.catalogue.picture_explanation import PictureExplanation
from unmask.jobs.options.hide import HideOptions
from unmask.objectives.explain import ObjectiveExplanation, explain_example
from unmask.objectives.published import ObjectiveSpec
from unmask.options import takes_options
from unmask.shards.translation_pairs import special_ids_of_source
from unmask.text.documents import read_documents
from unmask.text.mixtures import pair_languages
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.training.config import Recipe, merge
from unmask.training.data.sources import resolve_tokenizer_spec
from unmask.word_vectors.train.corpus import is_punctuation
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.word_vectors.train.windows import WindowMethod
from unmask.zoo.catalogue import get_preset
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.preset import Published

MAX_CHARACTERS = 2**20
"""Maximum length of a text; the result is a table with a line for each few tokens."""
TOKENIZER_SAMPLE_CHARACTERS = 1_500_000
"""Size of the bundled text on which a preset's tokenizer is trained for display."""
MAX_SAMPLE_VOCAB_SIZE = 8192


@dataclass(frozen=True)
class _ObjectiveHolder:
    """An objective in plain data, by kind."""

    objective: ObjectiveSpec | WordVectorMethod | str


@takes_options(HideOptions)
def hide(options: HideOptions) -> ObjectiveExplanation | PictureExplanation:
    """Corrupt a text or a picture by a model's objective; another seed selects other targets.

    The text of two languages (`de+en`) is a line and its translation. Of a model that reads
    pictures alone, the text is the name of a picture; `made` is what weights make of it.
    Presets have no tokenizer: one of their kind is trained once on the bundled text.

    The fields of `HideOptions` are its keywords.

    Raises:
        ValueError: the text is empty or longer than `MAX_CHARACTERS`, or the model, the setting or
            the objective is unknown or unsupported; or the picture cannot be read.
        FileNotFoundError: there is no such picture or model.
    """
    model = str(options.model)
    pipeline = None if is_preset_name(model) else load(model)
    found = hide_picture_of(options, pipeline)
    return hide_text(options, pipeline).explain() if found is None else found


def hide_picture_of(
    options: HideOptions, pipeline: Pipeline | None, number: int = 0
) -> PictureExplanation | None:
    """Corrupt a picture, of several that with this number; None: the model reads texts.

    Raises:
        ValueError: as of `hide`.
        FileNotFoundError: there is no such picture.
    """
    _check_seed(options)
    model = str(options.model)
    preset = get_preset(model) if pipeline is None else pipeline.preset
    if not preset.reads_pictures:
        return None
    if preset.reads_texts:
        if is_picture_name(options.text) and Path(options.text).is_file():
            raise ValueError(
                f"{options.text}: {model} learns from captions, and nothing of a picture is "
                "hidden; give a caption"
            )
        return None
    if options.language is not None:
        raise ValueError(f"language {options.language!r}: {model} reads pictures, not texts")
    preset = _adapt_preset(preset, options.objective, options.changes)
    loaded = None if pipeline is None else pipeline.loaded_model
    return hide_picture(preset, options.text, options.seed, loaded, number=number)


@dataclass(frozen=True, kw_only=True)
class HiddenText:
    """A text as an objective makes it."""

    preset: Published
    """The model, with this objective."""
    tokenizer: Tokenizer
    example: Example

    def explain(self) -> ObjectiveExplanation:
        """Return it for a person's eyes."""
        explained = explain_example(self.example, self.tokenizer, self.preset.objective)
        return _beside_picture(explained) if self.preset.reads_pictures else explained


def hide_text(
    options: HideOptions,
    pipeline: Pipeline | None,
    tokenizer_of: Callable[[Published], Tokenizer] | None = None,
) -> HiddenText:
    """Corrupt a text by the objective of a model, or of a preset where there is no `pipeline`.

    `tokenizer_of` makes a preset's tokenizer. None: `sample_tokenizer`.

    Raises:
        ValueError: as of `hide`.
    """
    _check_seed(options)
    if len(options.text) > MAX_CHARACTERS:
        raise ValueError(
            f"the text has {len(options.text):,} characters; at most {MAX_CHARACTERS:,} are shown: "
            "give a part of it"
        )
    preset = get_preset(str(options.model)) if pipeline is None else pipeline.preset
    preset = _adapt_preset(preset, options.objective, options.changes)
    make = tokenizer_of or sample_tokenizer
    tokenizer = make(preset) if pipeline is None else pipeline.tokenizer
    objective = preset.objective
    tokens = tokenizer.encode(options.text)
    if not len(tokens):
        raise ValueError("the text is empty: there is nothing to hide")
    if objective.needs_second_text:
        tokens = replace(tokens, other_text=_second_text(tokenizer))
    if isinstance(objective, WindowMethod):
        tokens = _without_punctuation(tokens, tokenizer)
    special = tokenizer.special_ids
    if options.language is not None:
        if not special.languages and pair_languages(options.language) is None:
            raise ValueError(
                f"language {options.language!r}: {options.model} is not told languages"
            )
        special = special_ids_of_source(special, options.language)
    example = objective(tokens, special, np.random.default_rng(options.seed))
    example = special.with_text_languages(example)
    return HiddenText(preset=preset, tokenizer=tokenizer, example=example)


def _check_seed(options: HideOptions) -> None:
    if options.seed < 0:
        raise ValueError(f"seed must be at least 0, got {options.seed}")


def _beside_picture(explained: ObjectiveExplanation) -> ObjectiveExplanation:
    """Say what a picture is for a text: what its words attend to, or what is to be found."""
    if any(token.target is not None for token in explained.inputs):
        visibility = f"{explained.visibility}, and to the patches of a picture"
        return replace(explained, visibility=visibility)
    return replace(explained, label="its picture, among those of the batch")


def _adapt_preset(preset: Published, objective: str | None, changes: Sequence[str]) -> Published:
    """Return a preset with another objective or changes."""
    if objective is not None:
        preset = adapt_to_objective(preset, objective)
    return (
        adapt_to_objective(preset, _apply_objective_changes(preset.objective, changes))
        if changes
        else preset
    )


def _apply_objective_changes(
    objective: ObjectiveSpec | WordVectorMethod, changes: Sequence[str]
) -> ObjectiveSpec | WordVectorMethod | str:
    holder: ObjectiveSpec | WordVectorMethod | str = objective
    for change in changes:
        try:
            key = change if re.match(r"objective\s*[.=]", change) else f"objective.{change}"
            recipe = {"kind": Recipe.__name__, "objective": to_dict(holder)}
            fields = {"objective": merge(recipe, parse_change(key))["objective"]}
            holder = from_dict(_ObjectiveHolder, fields).objective
        except ValueError as error:
            raise ValueError(f"--set {change}: {error}") from None
    return holder


def sample_tokenizer(preset: Published) -> Tokenizer:
    """Train the preset's kind of tokenizer, or load a cached one."""
    kind = preset.tokenizer.vocabulary
    size = min(getattr(kind, "vocab_size", MAX_SAMPLE_VOCAB_SIZE), MAX_SAMPLE_VOCAB_SIZE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    case_name = "uncased" if getattr(kind, "lowercase", False) else "cased"
    cache_folder = cache / "unmask" / "tokenizers"
    modes = "-modes" if preset.tokenizer.special_tokens.modes else ""
    if (
        preset.tokenizer.special_tokens != get_preset(preset.name).tokenizer.special_tokens
    ):  # it has further tokens
        plain = json.dumps(to_dict(preset.tokenizer.special_tokens), sort_keys=True)
        modes += f"-{hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()}"
    folder = cache_folder / f"{preset.family}-{type(kind).__name__}-{size}-{case_name}{modes}"
    if (folder / "tokenizer_config.json").is_file():
        return load_tokenizer(folder)
    tokenizer = train_tokenizer(
        resolve_tokenizer_spec(Recipe(model=preset.name, vocab_size=size), preset),
        _tokenizer_sample(),
    )
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder) as beside:
            tokenizer.save(beside)
    except OSError:  # without a writable home the next call trains again
        pass
    return tokenizer


def _tokenizer_sample() -> list[str]:
    texts, left = list[str](), TOKENIZER_SAMPLE_CHARACTERS
    for document in read_documents(bundled_path("novels")):
        texts.append(document.text[:left])
        left -= len(texts[-1])
        if left <= 0:
            break
    return texts


def _second_text(tokenizer: Tokenizer) -> Tokens:
    document = next(iter(read_documents(bundled_path("novels"))))
    return tokenizer.encode(document.text[:2000])


def _without_punctuation(tokens: Tokens, tokenizer: Tokenizer) -> Tokens:
    """Drop punctuation, which has no vector; boundaries move to the next token."""
    is_kept = np.array([not is_punctuation(piece) for piece in tokenizer.pieces(tokens.ids)], bool)
    sentence = np.cumsum(tokens.boundaries & SENTENCE_START > 0)[is_kept]
    begins = np.diff(sentence, prepend=0) > 0
    return Tokens(tokens.ids[is_kept], tokens.boundaries[is_kept] | SENTENCE_START * begins)
