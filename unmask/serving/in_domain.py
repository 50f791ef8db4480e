"""The stage between pretraining and a task: pretraining goes on, on the text of the task."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from unmask.adapters.folder import is_adapter
from unmask.checkpoints.huggingface import configuration, locate
from unmask.files import whole, write_whole
from unmask.finetuning.in_domain import FOLDER, InDomain
from unmask.finetuning.job import Job
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.plan import Tuning, customary_rate
from unmask.published.catalogue import family, published
from unmask.serving.earlier import recipe_of
from unmask.serving.expand import with_words
from unmask.serving.folders import is_card, read_facts, write_model
from unmask.serving.pipeline import load
from unmask.serving.prepare import check_sources, prepare
from unmask.serving.pretrain import AT_ONCE, card_recipe, changed, pretrain
from unmask.serving.record import FACTS
from unmask.text.corpus import documents
from unmask.tokens.shards import Shards
from unmask.training import recipe as recipes
from unmask.training.layers import layers_that_speak, spread
from unmask.training.recipe import Recipe
from unmask.training.schedule import SlantedTriangle

TEXT = "in-domain-text"
"""The folder of the text of the task, within that of the run of fine-tuning."""


def check_domain(tuning: Tuning, *, given: bool = False) -> None:
    """Find what is wrong with the stage that a recipe asks for, before anything is written.

    Args:
        tuning: the recipe.
        given: the model is given open, in place of what the recipe names.

    Raises:
        FileNotFoundError: there is no such model, or a file of text is not there.
        ValueError: the model was not pretrained, or what is changed of its recipe cannot be.
    """
    if given:
        raise ValueError(
            "in_domain goes on with the model of a folder: name that folder rather than give the "
            "model open"
        )
    recipe = recipe_for(tuning)
    changed(published(recipe.model), recipe)
    if more := _wanted(tuning).unlabeled:
        check_sources(more)


def adapt(job: Job) -> Path:
    """Go on with a model's pretraining on the text of a job, or with that; return its folder.

    Raises:
        ValueError: the text cannot be read, or there is too little of it.
        FloatingPointError: the loss stays non-finite.
        KeyboardInterrupt: someone stopped it.
    """
    out, recipe = job.folder / FOLDER, recipe_for(job.tuning)
    begun = (out / FACTS).is_file()
    if begun and read_facts(out).get("finished"):
        return out
    sources = _sources(job, recipe)
    recipe = replace(recipe, begin=_with_its_words(job, recipe, sources))
    text = _text(job, recipe, sources)
    epochs, said = _wanted(job.tuning).epochs, _said(job.tuning)
    tokens = math.ceil(epochs * text.n_tokens * (1 - recipe.dev))
    job.say(f"first, {text.n_tokens:,} tokens of its domain are read, as in pretraining")
    pretrain(
        recipe,
        data=text.folder,
        out=out,
        tokens=None if "steps" in said else tokens,
        resume=begun,
        device=str(job.world.device),
        threads=job.facts["environment"]["threads"],
        quiet=job.terminal is None,
    )
    return out


def recipe_for(tuning: Tuning) -> Recipe:
    """Return the recipe by which a model goes on with its pretraining; how long, it does not say.

    It is that of the run that made the model. Of other models it is their card's, with the rate
    that is customary in fine-tuning for a model of this size.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it was not pretrained, or a change cannot be.
    """
    if is_card(tuning.base):
        raise ValueError(
            f"in_domain: {tuning.base} is a card, without weights; pretrain it first (unmask "
            f"pretrain {tuning.base} ...) and name the run's folder"
        )
    folder = locate(tuning.base)
    if is_adapter(folder):
        raise ValueError(
            f"in_domain: {tuning.base} is a part of a model; write both as one first (unmask "
            f"convert {tuning.base} FOLDER)"
        )
    pipeline = load(tuning.base)
    was = recipe_of(folder)
    if was is None:
        usual = card_recipe(family(configuration(folder)).name)
        length = pipeline.card.length
        was = replace(
            usual,
            objective=pipeline.card.objective,
            length=length,
            batch_tokens=max(length, min(usual.batch_tokens, AT_ONCE)),
            micro_tokens=None,
            rate=customary_rate(pipeline.model.parameter_count(), words=False),
        )
    usual = Recipe(model=was.model)
    recipe = replace(
        was,
        begin=tuning.base,
        data=(),
        **{name: getattr(usual, name) for name in _ITS_OWN},
        schedule=SlantedTriangle(),
        layer_decay=spread(len(layers_that_speak(pipeline.model))),
        encoding_errors=tuning.encoding_errors,
        precision=tuning.precision,
        seed=tuning.seed,
    )
    return recipes.changed(recipe, _wanted(tuning).changes, said="--in-domain-set")


_ITS_OWN = (
    "document", "text", "sampling", "tokenizer", "vocab_size", "character_coverage",
    "look_beside", "frozen", "steps",
    "dev",
)  # fmt: skip
"""What the run that made a model had for its own text, or only at its beginning."""


def _wanted(tuning: Tuning) -> InDomain:
    assert tuning.in_domain is not None
    return tuning.in_domain


def _said(tuning: Tuning) -> set[str]:
    """Name the keys of the recipe that are changed."""
    return {change.partition("=")[0].strip() for change in _wanted(tuning).changes}


def _sources(job: Job, recipe: Recipe) -> list[str | Path]:
    """Write down the text of the task, unless it is there; name it and what is to be read beside.

    Records have it in the column that the rows have it in.
    """
    rows = job.folder / TEXT / "rows.jsonl"
    rows.parent.mkdir(exist_ok=True)
    if not rows.is_file():
        column = _column(job, recipe)
        lines = (json.dumps({column: text}, ensure_ascii=False) + "\n" for text in _texts(job))
        write_whole(rows, "".join(lines))
    return [rows, *_wanted(job.tuning).unlabeled]


def _column(job: Job, recipe: Recipe) -> str:
    return recipe.text or job.task.columns.texts[0]


def _with_its_words(job: Job, recipe: Recipe, sources: Sequence[str | Path]) -> str:
    """Name the model to begin with: where words are its tokens, one that knows those of the text.

    It is made once, in the folder of the text.
    """
    wanted, made = _wanted(job.tuning), job.folder / TEXT / "model"
    if (made / "config.json").is_file():
        return str(made)
    opened = load(job.tuning.base).opened
    tokenizer = opened.tokenizer
    if wanted.least is None or tokenizer is None or not tokenizer.reads_words:
        return job.tuning.base
    texts = documents(
        sources,
        document=recipe.document,
        text=_column(job, recipe),
        encoding_errors=recipe.encoding_errors,
    )
    counts, known = tokenizer.count_words(one.text for one in texts), tokenizer.words()
    new = [word for word, n in counts.items() if n >= wanted.least and word not in known]
    new = sorted(new, key=lambda word: (-counts[word], word))
    new = new[: max(0, wanted.most - tokenizer.size)]
    if not new:
        return job.tuning.base
    said = f"{len(new):,} words of its domain are new to the model, {new[0]!r} the most frequent"
    try:
        opened = with_words(opened, new)
    except ValueError as error:
        job.say(f"{said}; they stay unknown: {error}")
        return job.tuning.base
    job.say(said)
    with whole(made) as beside:
        write_model(beside, opened, {"words added": len(new)})
    return str(made)


def _text(job: Job, recipe: Recipe, sources: Sequence[str | Path]) -> Shards:
    """Make tokens of the text of the task, unless they are there."""
    assert recipe.begin is not None
    return prepare(
        sources,
        out=job.folder / TEXT / "tokens",
        model=recipe.model,
        tokenizer=locate(recipe.begin),
        document=recipe.document,
        text=_column(job, recipe),
        encoding_errors=recipe.encoding_errors,
        sampling=recipe.sampling,
        quiet=job.terminal is None,
    )


def _texts(job: Job) -> Iterator[str]:
    """Give the texts of the rows that are learned from, the texts of a pair as paragraphs."""
    between = " " if TASK_KINDS[job.task.does].files.tagged else "\n"
    return (between.join(item.texts) for item in job.data.train)
