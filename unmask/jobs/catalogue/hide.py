"""The inputs and targets of a model's objective for a text."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, SENTENCE_START, Example, Tokens
from unmask.bundled.demo import bundled_path
from unmask.bundled.models import BUNDLED_MODELS
from unmask.config import from_dict, parse_change, to_dict
from unmask.files import atomic_path
from unmask.heads.model import InputCorrupter, Model
from unmask.jobs.options.hide import HideOptions
from unmask.objectives.explain import AboutModel, ObjectiveExplanation, explain_example
from unmask.objectives.mixtures import ObjectiveMixture
from unmask.objectives.published import ObjectiveSpec
from unmask.options import takes_options
from unmask.shards.translation_pairs import special_ids_of_source
from unmask.text.documents import read_documents
from unmask.text.mixtures import pair_languages
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.tokenizers.vocabulary import ByteLevel, CodePoints, WordPiece
from unmask.training.config import Recipe, merge
from unmask.training.data.sources import resolve_tokenizer_spec
from unmask.word_vectors.train.corpus import is_punctuation
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.word_vectors.train.windows import WindowMethod
from unmask.zoo.catalogue import get_preset, is_preset_name
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.objectives.presets import describe_objective
from unmask.zoo.preset import Published

if TYPE_CHECKING:  # what opens models takes a second, and presets do without
    from unmask.inference.pipeline import Pipeline
    from unmask.jobs.catalogue.picture_explanation import PictureExplanation

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
def hide(options: HideOptions) -> "ObjectiveExplanation | PictureExplanation":
    """Corrupt a text or a picture by a model's objective; another seed selects other targets.

    The text of two languages (`de+en`) is a line and its translation. Of a model that reads
    pictures alone, the text is the name of a picture; `made` is what weights make of it.
    Presets have no tokenizer: theirs is `tokenizer`, or else that of the bundled model if it is of
    their kind, or one of their kind that is learned once from the bundled text.

    The fields of `HideOptions` are its keywords.

    Raises:
        ValueError: the text is empty or longer than `MAX_CHARACTERS`, or the model, the setting or
            the objective is unknown or unsupported; or the picture cannot be read.
        FileNotFoundError: there is no such picture or model.
    """
    pipeline = None
    if not is_preset_name(str(options.model)):
        from unmask.inference.open_model import load

        pipeline = load(str(options.model))
    found = hide_picture_of(options, pipeline)
    return hide_text(options, pipeline).explain() if found is None else found


def hide_picture_of(
    options: HideOptions, pipeline: "Pipeline | None", number: int = 0
) -> "PictureExplanation | None":
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
    from unmask.images.formats.picture_files import is_picture_name
    from unmask.jobs.catalogue.hide_picture import hide_picture

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
    seed: int = 0
    model: Model | None = None
    """The model with its weights. None: it has none."""
    tokenizer_name: str = ""
    """Whose tokenizer it is, in words."""

    @cached_property
    def about(self) -> AboutModel:
        """What the model is, and how it reads."""
        return _about(self)

    def explain(self) -> ObjectiveExplanation:
        """Return it for a person's eyes."""
        objective = self.preset.objective
        explained = explain_example(self.example, self.tokenizer, objective, self.about)
        if not self.preset.reads_pictures or (self.example.targets != IGNORE_INDEX).any():
            return explained
        return replace(explained, label="its picture, among those of the batch")


def _about(hidden: HiddenText) -> AboutModel:
    """Say what decides, besides its objective, what a model sees and is asked."""
    preset, example, a = hidden.preset, hidden.example, hidden.preset.architecture
    terms = preset.objective.loss_terms
    heads = [head for head in preset.heads.values() if head.objective_term in terms]
    paper = preset.paper
    facts = [
        ("model", f"{preset.name} ({paper.authors.split(',')[0]} {paper.year})"),
        ("task", describe_objective(preset.objective, preset.heads) + _drawn_component(hidden)),
        ("tokenizer", hidden.tokenizer_name),
    ]
    drawn, drawn_from = None, ""
    if any(head.draws_inputs for head in heads):
        drawn, drawn_from = _draw_masked(hidden)
    also = list[str]()
    if preset.reads_pictures and (example.targets != IGNORE_INDEX).any():
        also.append(a.picture_description)
    if hidden.tokenizer.special_tokens.backward:
        also.append("texts are read from their end: what is before a token here follows it there")
    if length := preset.training_options.get("memory_length"):
        what = f"the states of {length} tokens" if length > 1 else "the state"
        also.append(f"in training also {what} of the row before")
    return AboutModel(
        facts=tuple(fact for fact in facts if fact[1]),
        heads=heads,
        reaches=a.decoder_stack.reaches,
        source_reaches=a.encoder_stack.reaches if a.is_encoder_decoder else (),
        drawn=drawn,
        drawn_from=drawn_from,
        also=tuple(also),
        remark=preset.note or None,
    )


def _drawn_component(hidden: HiddenText) -> str:
    """Say which part of a mixture was drawn for the text, as the end of a sentence."""
    objective = hidden.preset.objective
    if not isinstance(objective, ObjectiveMixture):
        return ""
    i = objective.draw_component(np.random.default_rng(hidden.seed))
    name = objective.component_names[i] if objective.component_names else f"part {i + 1}"
    return f"; drawn for this text: {name} ({describe_objective(objective.components[i][1], ())})"


def _draw_masked(hidden: HiddenText) -> tuple[Int[np.ndarray, "t"], str]:
    """Draw the tokens that a generator puts in the place of masks, and say by what."""
    example, special = hidden.example, hidden.tokenizer.special_ids
    heads = [] if hidden.model is None else hidden.model.heads.values()
    generator = next((head for head in heads if isinstance(head, InputCorrupter)), None)
    if generator is None or hidden.model is None:
        rng = np.random.default_rng([hidden.seed, 1])
        ordinary = np.setdiff1d(np.arange(special.vocab_size), [*special.all_ids])
        random = rng.choice(ordinary, len(example.targets))
        drawn = np.where(example.targets == IGNORE_INDEX, example.inputs, random)
        return drawn, "drawn at random, for want of a trained generator"
    return _draw_from(generator, hidden, hidden.model), "drawn from the generator"


def _draw_from(generator: InputCorrupter, hidden: HiddenText, model: Model) -> Int[np.ndarray, "t"]:
    import torch

    from unmask.batching.collate import pad_examples
    from unmask.generation.text_batches import evaluation_mode

    batch = pad_examples([hidden.example], hidden.tokenizer.special_ids)
    with evaluation_mode(model), torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(hidden.seed)
        corrupted, _ = generator.corrupt(model.pad_for_network(batch).to(model.device))
    return corrupted.inputs[0, : len(hidden.example.inputs)].cpu().numpy()


def hide_text(
    options: HideOptions,
    pipeline: "Pipeline | None",
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
    tokenizer, name = _resolve_tokenizer(options, preset, pipeline, tokenizer_of)
    example = _make_example(options, preset.objective, tokenizer)
    return HiddenText(
        preset=preset,
        tokenizer=tokenizer,
        example=example,
        seed=options.seed,
        model=None if pipeline is None or not pipeline.has_weights else pipeline.model,
        tokenizer_name=name,
    )


def _make_example(
    options: HideOptions, objective: ObjectiveSpec | WordVectorMethod, tokenizer: Tokenizer
) -> Example:
    """Corrupt the text.

    Raises:
        ValueError: it is empty, or of a language that the model is not told.
    """
    tokens = tokenizer.encode(options.text)
    if not len(tokens):
        raise ValueError("the text is empty: there is nothing to hide")
    if objective.needs_second_text:
        tokens = replace(tokens, other_text=_second_text(tokenizer))
    if isinstance(objective, WindowMethod):
        tokens = _without_punctuation(tokens, tokenizer)
    special: SpecialTokenIds = tokenizer.special_ids
    if options.language is not None:
        if not special.languages and pair_languages(options.language) is None:
            raise ValueError(
                f"language {options.language!r}: {options.model} is not told languages"
            )
        special = special_ids_of_source(special, options.language)
    example = objective(tokens, special, np.random.default_rng(options.seed))
    return special.with_text_languages(example)


def _check_seed(options: HideOptions) -> None:
    if options.seed < 0:
        raise ValueError(f"seed must be at least 0, got {options.seed}")


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


def _resolve_tokenizer(
    options: HideOptions,
    preset: Published,
    pipeline: "Pipeline | None",
    tokenizer_of: Callable[[Published], Tokenizer] | None,
) -> tuple[Tokenizer, str]:
    """Return the tokenizer of a model, and whose it is, in words.

    Raises:
        ValueError: a model that has its own is given another.
    """
    if pipeline is not None:
        if options.tokenizer is not None:
            raise ValueError(f"tokenizer: {options.model} has its own; leave it out")
        return pipeline.tokenizer, f"its own, {pipeline.tokenizer.vocab_size:,} pieces"
    if options.tokenizer is not None:
        path = BUNDLED_MODELS.get(str(options.tokenizer), Path(options.tokenizer))
        tokenizer = load_tokenizer(path)
        return tokenizer, f"that of {options.tokenizer}, {tokenizer.vocab_size:,} pieces"
    if tokenizer_of is not None:
        tokenizer = tokenizer_of(preset)
        return tokenizer, f"learned from the files, {tokenizer.vocab_size:,} pieces"
    tokenizer = sample_tokenizer(preset)
    return tokenizer, _sample_tokenizer_name(preset, tokenizer)


def _sample_tokenizer_name(preset: Published, tokenizer: Tokenizer) -> str:
    """Say which tokenizer `sample_tokenizer` took for a preset."""
    kind = preset.tokenizer.vocabulary
    if isinstance(kind, ByteLevel | CodePoints):
        return f"{type(kind).__name__}, as published"
    published = getattr(kind, "vocab_size", None)
    is_bundled = _is_bundled_kind(preset)
    size = tokenizer.vocab_size if is_bundled else MAX_SAMPLE_VOCAB_SIZE
    is_larger = published is not None and published > size
    larger = f" (the preset has {published:,})" if is_larger else ""
    if is_bundled:
        return f"that of {_BUNDLED}, {size:,} pieces{larger}"
    size = min(published or size, size)
    return f"{type(kind).__name__} of {size:,}, learned from the English in this package{larger}"


_BUNDLED = next(iter(BUNDLED_MODELS))


def _is_bundled_kind(preset: Published) -> bool:
    """Whether the bundled model's tokenizer is one that a preset's text would give."""
    kind = preset.tokenizer.vocabulary
    of_bundled = get_preset("bert-mini").tokenizer.special_tokens
    return (
        isinstance(kind, WordPiece)
        and kind.lowercase
        and preset.tokenizer.special_tokens == of_bundled
    )


def sample_tokenizer(preset: Published) -> Tokenizer:
    """Load the bundled model's tokenizer if it is of the preset's kind, or one that is cached.

    Else one is trained; the cache has one for each specification of a tokenizer.
    """
    if _is_bundled_kind(preset):
        return load_tokenizer(BUNDLED_MODELS[_BUNDLED])
    size = getattr(preset.tokenizer.vocabulary, "vocab_size", MAX_SAMPLE_VOCAB_SIZE)
    recipe = Recipe(model=preset.name, vocab_size=min(size, MAX_SAMPLE_VOCAB_SIZE))
    spec = resolve_tokenizer_spec(recipe, preset)
    key = json.dumps([to_dict(spec), TOKENIZER_SAMPLE_CHARACTERS, _SAMPLE_VERSION], sort_keys=True)
    digest = hashlib.blake2b(key.encode(), digest_size=10).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "unmask" / "tokenizers" / f"{type(spec.vocabulary).__name__}-{digest}"
    if (folder / "tokenizer_config.json").is_file():
        return load_tokenizer(folder)
    from unmask.tokenizers.learn.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(spec, _tokenizer_sample())
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder) as beside:
            tokenizer.save(beside)
    except OSError:  # without a writable home the next call trains again
        pass
    return tokenizer


_SAMPLE_VERSION = 2
"""Of `_tokenizer_sample`, which the cache is keyed by."""


def _tokenizer_sample() -> list[str]:
    """Return the bundled English: novels, and words of newer texts, the more frequent more often.

    The latter are the whole words of the bundled model's tokenizer, which was learned from an
    encyclopedia too; they are in the order of their frequency.
    """
    pieces = load_tokenizer(BUNDLED_MODELS[_BUNDLED])
    words = [
        word for word in pieces.pieces(range(pieces.vocab_size)) if word.isalnum() and len(word) > 1
    ]
    numbers = [str(n) for n in range(1900, 2030)]
    text = list[str]()
    for i, word in enumerate([*words, *numbers]):
        times = max(2, 20_000 // (i + 500))
        text += [word] * times + [word.capitalize()] * (times // 2)
    np.random.default_rng(0).shuffle(text)
    lines = [" ".join(text[i : i + 20]) for i in range(0, len(text), 20)]
    texts, left = ["\n".join(lines)], TOKENIZER_SAMPLE_CHARACTERS
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
