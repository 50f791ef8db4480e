"""`evaluate`: models on text, labeled rows or prompted tasks; word and sentence vectors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.inputs import is_finetuned, is_word_vectors, load_network, with_ensemble
from unmask.jobs.options.shell.evaluate import EvaluateOptions
from unmask.jobs.options.shell.from_dataclass import command
from unmask.output import ProgressLine, print_json, print_line

if TYPE_CHECKING:
    from unmask.evaluation.perplexity import HeldOutEvaluation
    from unmask.images.records import ImageColumns
    from unmask.inference.pipeline import Pipeline
    from unmask.text.mixtures import NamedSource

_OF_TASKS = ("shots", "rows", "stride")
_OF_TEXT = ("sequence_length", "memory_length")
_OF_ROWS = ("label", "choices", "columns", "by")
_OF_CAPTIONS = ("where", "page")
_OF_FINETUNED = ("ensemble", "mixture_task", *_OF_ROWS)


@command(EvaluateOptions)
def evaluate(given: Mapping[str, Any]) -> None:
    """Evaluate a model on held-out text, on labeled data, or on tasks by prompting.

    A pretrained model is evaluated on its own objective; a fine-tuned one on a file of labeled rows
    with the columns of its training file. With --task, either answers prompts by generation or by
    comparing likelihoods; with --task similarity, cosine similarities of its sentence vectors are
    compared with human scores. Word vectors are evaluated on word pairs with human similarity
    scores, and on analogies (in the format of questions-words.txt).
    """
    options = EvaluateOptions(**given)
    model = options.model
    if options.task == ("similarity",):
        _evaluate_similarity(options)
        return
    options.refuse(("pooling", "layer"), "", " needs --task similarity")
    if is_word_vectors(model) and not is_finetuned(model):
        _evaluate_word_vectors(options)
        return
    options.refuse(("case", "limit"), f"{model}: ", " applies to word vectors only")
    if options.task:
        options.refuse(_OF_FINETUNED, "", " applies to fine-tuned models, not to --task")
        _evaluate_tasks(options)
        return
    options.refuse(_OF_TASKS, "", " needs --task")
    if not options.sources:
        raise ValueError("no data: give held-out text or labeled rows with --data")
    pipeline = load_network(options)
    if options.mixture_task is not None:
        pipeline = pipeline.mixture_task(options.mixture_task)
    if pipeline.describes_pictures:
        _evaluate_captions(options, pipeline)
        return
    if pipeline.compares_pictures:
        _evaluate_comparison(options, pipeline)
        return
    options.refuse(_OF_CAPTIONS, "", " applies to models that describe pictures")
    if options.ensemble or (pipeline.can_predict and not _is_text_of_writer(options, pipeline)):
        _evaluate_rows(options, pipeline)
    else:
        _evaluate_text(options, pipeline)


def _is_text_of_writer(options: EvaluateOptions, pipeline: Pipeline) -> bool:
    """Return whether a model that answers instructions is given plain text, which has no rows."""
    from unmask.tasks.readers.tables import is_plain_text

    writes = pipeline.task is not None and pipeline.task.task_kind == "instruct"
    return writes and all(is_plain_text(Path(source)) for source in options.sources)


def _evaluate_rows(options: EvaluateOptions, pipeline: Pipeline) -> None:
    """Evaluate a fine-tuned model on labeled rows."""
    from unmask.finetuning.data.task_mixture import is_mixture
    from unmask.text.mixtures import parse_source

    model, sources = options.model, [parse_source(one) for one in options.sources]
    options.refuse(_OF_TEXT, f"{model}: fine-tuned model: ", " applies to held-out text only")
    if is_mixture(options.sources[0]):
        _evaluate_mixture(options, pipeline)
        return
    if options.by is not None or len(sources) > 1 or sources[0].name is not None:
        options.refuse(("ensemble",), f"{model}: groups: ", " scores one file, without a language")
        _evaluate_groups(options, pipeline, sources)
        return
    scores = with_ensemble(pipeline, options.ensemble, options.device, options.precision).score(
        options.sources[0],
        text=options.text,
        choices=options.choices,
        columns=options.columns,
        label=options.label,
        encoding_errors=options.encoding_errors,
    )
    lines = (f"{name:20} {value:.4f}" for name, value in scores.items())
    _print_scores(lines, scores, options.as_json)


def _evaluate_groups(
    options: EvaluateOptions, pipeline: Pipeline, sources: Sequence[NamedSource]
) -> None:
    """Evaluate a fine-tuned model on labeled rows of several languages, and print one table."""
    from unmask.finetuning.results.score import FileOptions
    from unmask.finetuning.results.score_groups import format_group_scores, score_groups

    places = [(one.name or one.places[0], "+".join(one.places)) for one in sources]
    if len({name for name, _ in places}) < len(places):
        raise ValueError(f"--data: each file needs a name of its own, got {[n for n, _ in places]}")
    task = pipeline.required_task()
    scores = score_groups(
        pipeline.loaded_model,
        dict(places),
        by=options.by,
        task=task,
        options=FileOptions(
            text=options.text,
            choices=options.choices,
            columns=options.columns,
            label=options.label,
            encoding_errors=options.encoding_errors,
        ),
        in_languages=options.language is None
        and (options.by is not None or any(one.name for one in sources)),
    )
    as_data = {"groups": [asdict(one) for one in scores]}
    _print_scores(format_group_scores(scores, task.metric), as_data, options.as_json)


def _evaluate_mixture(options: EvaluateOptions, pipeline: Pipeline) -> None:
    """Evaluate a model that answers instructions on the tasks of a mixture, each by its metric."""
    from unmask.finetuning.results.score_mixture import format_mixture_scores, score_mixture

    path, *others = options.sources
    options.refuse((*_OF_ROWS, "text", "ensemble"), f"{path}: a mixture: ", " is said by its file")
    if others:
        raise ValueError(f"{path}: a mixture is scored alone, got {others[0]} beside it")
    scores = score_mixture(
        pipeline.loaded_model, path, pipeline.required_task(), options.encoding_errors
    )
    as_data = {"tasks": [asdict(one) for one in scores]}
    _print_scores(format_mixture_scores(scores), as_data, options.as_json)


def _evaluate_captions(options: EvaluateOptions, pipeline: Pipeline) -> None:
    """Compare captions of pictures with those of people."""
    from unmask.jobs.evaluate import write_captions_page

    excluded = ("ensemble", "mixture_task", *_OF_ROWS, *_OF_TEXT)
    options.refuse(excluded, f"{options.model}: captions: ", " applies to models that read texts")
    progress = ProgressLine(sys.stderr)

    def show(n: int) -> None:
        progress.show(lambda: f"{n:,} pictures{progress.rate(n)}")

    columns = _picture_columns(options)
    result = pipeline.evaluate_captions(options.sources, columns, on_progress=show)
    progress.clear()
    if options.page is not None:
        write_captions_page(pipeline, result, options.page)
    lines = [f"{len(result.pictures):,} pictures"]
    lines += [f"{name:20} {value:.4f}" for name, value in result.metrics.items()]
    _print_scores(lines, result.to_dict(), options.as_json)


def _picture_columns(options: EvaluateOptions) -> ImageColumns:
    """Return the columns and rows of a table of pictures."""
    from unmask.images.records import ImageColumns

    where = {name: value for name, _, value in (one.partition("=") for one in options.where)}
    if bad := next((one for one in options.where if "=" not in one), None):
        raise ValueError(f"--where must be COLUMN=VALUE, got {bad!r}")
    return ImageColumns(captions=tuple(options.text), label=options.label, where=where)


def _evaluate_comparison(options: EvaluateOptions, pipeline: Pipeline) -> None:
    """Find captions for pictures and the reverse; or classes by the names of labels."""
    from unmask.images.sources import read_images

    excluded = ("ensemble", "mixture_task", "choices", "columns", "page", *_OF_TEXT)
    options.refuse(excluded, f"{options.model}: pictures with texts: leave out ")
    columns = _picture_columns(options)
    first = next(iter(read_images(options.sources, columns)), None)
    if options.label is not None or (first is not None and not first.captions):
        scores = pipeline.evaluate_by_names(options.sources, columns)
        _print_scores((f"{n:20} {x:.4f}" for n, x in scores.items()), scores, options.as_json)
        return
    result = pipeline.evaluate_retrieval(options.sources, columns, seed=options.seed)
    both = result.scores.image_to_caption, result.scores.caption_to_image
    lines = [f"{both[0].n_queries:,} pictures, {both[1].n_queries:,} captions"]
    for name, found in zip(("picture to caption", "caption to picture"), both, strict=True):
        recalls = (f"R@{k} {x.value:.1%}" for k, x in found.recall_at.items())
        lines.append(f"{name}: {'  '.join(recalls)}  median rank {found.median_rank.value:,.0f}")
    _print_scores(lines, result.to_dict(), options.as_json)


def _evaluate_text(options: EvaluateOptions, pipeline: Pipeline) -> None:
    """Evaluate a model's objective on held-out text."""
    options.refuse(_OF_ROWS, "", " applies to labeled rows, but this model is not fine-tuned")
    if len(options.text) > 1:
        raise ValueError(f"--text: held-out text needs one column, got {len(options.text)}")
    progress = ProgressLine(sys.stderr)

    def show(n_tokens: int) -> None:
        progress.show(lambda: f"{n_tokens:,} tokens{progress.rate(n_tokens)}")

    result = pipeline.evaluate(
        options.sources,
        sequence_length=options.sequence_length,
        seed=options.seed,
        memory_length=options.memory_length,
        document_separator=options.document_separator,
        text_column=options.text[0] if options.text else None,
        encoding_errors=options.encoding_errors,
        on_progress=show,
    )
    progress.clear()
    _print_scores(_evaluation_lines(result), result.to_dict(), options.as_json)


def _evaluation_lines(result: HeldOutEvaluation) -> Iterator[str]:
    yield f"{result.documents:,} documents, {result.words:,} words, {result.tokens:,} tokens"
    for name, loss in result.loss.items():
        line = f"{name.replace('_', ' '):14} loss {loss:.4f}"
        if name in result.perplexity:
            line += f"  perplexity {result.perplexity[name]:,.2f}"
        if name in result.accuracy:
            line += f"  accuracy {result.accuracy[name]:.2%}"
        yield line + f"  over {result.n_targets[name]:,} predictions"
    if result.word_perplexity is not None:
        yield f"perplexity per word {result.word_perplexity:,.2f}"
    if result.bits_per_byte is not None:
        yield f"bits per byte {result.bits_per_byte:.4f}"


def _evaluate_word_vectors(options: EvaluateOptions) -> None:
    """Evaluate word vectors on word pairs and analogies, and print tables."""
    import unmask
    from unmask.inference.vectors.load_word_vectors import format_word_vector_scores, score_to_dict

    excluded = ("precision", "rows", "stride", *_OF_TEXT, "text", "task", *_OF_FINETUNED)
    options.refuse(("shots", *excluded), f"{options.model}: word vectors: leave out ")
    if not options.sources:
        raise ValueError("no data: give files of word pairs or analogies with --data")
    scores = unmask.evaluate_word_vectors(
        options.model,
        options.sources,
        case=options.case,
        limit=options.limit,
        encoding_errors=options.encoding_errors,
        terminal=sys.stderr,
    )
    as_data = {"scores": [score_to_dict(row) for row in scores]}
    _print_scores(format_word_vector_scores(scores), as_data, options.as_json)


def _evaluate_similarity(options: EvaluateOptions) -> None:
    """Evaluate sentence vectors on pairs, and print one table."""
    import unmask
    from unmask.inference.vectors.sentence_similarity import (
        format_similarity_scores,
        similarity_score_to_dict,
    )

    options.refuse(("shots", "rows", "stride", *_OF_TEXT, "text"), "--task similarity; leave out ")
    if not options.sources:
        raise ValueError("no data: give files of sentence pairs with scores with --data")
    model = options.model
    if is_word_vectors(model):
        options.refuse(("precision",), f"{model}: ", " applies to networks only")
    encoder = model if is_word_vectors(model) else load_network(options)
    scores = [
        unmask.evaluate_sentence_similarity(
            encoder,
            path,
            encoding_errors=options.encoding_errors,
            label=options.label,
            pooling=options.pooling,
            layer=options.layer,
            limit=options.limit,
        )
        for path in options.sources
    ]
    as_data = {"scores": [similarity_score_to_dict(score) for score in scores]}
    _print_scores(format_similarity_scores(scores), as_data, options.as_json)


def _evaluate_tasks(options: EvaluateOptions) -> None:
    """Evaluate tasks by prompting, and print one table."""
    import unmask
    from unmask.jobs.evaluate import format_task_scores, task_score_to_dict

    pipeline, sources = load_network(options), options.sources
    if len(sources) > 1:
        raise ValueError(f"--data must be one folder with --task, got {len(sources)}")
    try:
        shots = [int(n) for n in options.shots.split(",")]
    except ValueError:
        raise ValueError(
            f"--shots must be integers separated by commas, got {options.shots!r}"
        ) from None
    scores = unmask.evaluate_tasks(
        pipeline,
        options.task,
        data=sources[0] if sources else None,
        shots=shots,
        seed=options.seed,
        rows=options.rows,
        sequence_length=options.sequence_length,
        stride=options.stride,
        memory_length=options.memory_length,
        pll_masking=options.pll_masking,
        terminal=sys.stderr,
    )
    as_data = {"scores": [task_score_to_dict(one) for one in scores]}
    _print_scores(format_task_scores(scores), as_data, options.as_json)


def _print_scores(lines: Iterable[str], data: Mapping[str, Any], as_json: bool) -> None:
    """Print scores."""
    if as_json:
        print_json(data)
        return
    for line in lines:
        print_line(line)
