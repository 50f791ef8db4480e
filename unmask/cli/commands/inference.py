"""`predict`, `fill`, `embed`: inference on texts."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from unmask.cli.inputs import (
    answer_in_batches,
    is_word_vectors,
    load_network,
    read_texts,
    refuse_texts_and_input,
    with_ensemble,
)
from unmask.jobs.options.shell.from_dataclass import command, refuse_options
from unmask.jobs.options.shell.inference import EmbedOptions, FillOptions, PredictOptions
from unmask.jobs.options.shell.shared_options import (
    JsonOption,
)
from unmask.output import print_json, print_line

if TYPE_CHECKING:
    from unmask.images.records import ImageRecord
    from unmask.inference.ensemble import Ensemble
    from unmask.inference.pipeline import Pipeline


@command(PredictOptions)
def predict(given: Mapping[str, Any]) -> None:
    """Predict labels, tags, numbers or answers with a fine-tuned model.

    Prints one line of JSON per text. A text pair is one line with a tab in between, as is a
    question and its passage, or a text and its answer choices; words to be tagged are separated by
    spaces. In a file, a pair is two columns: --text premise --text hypothesis.
    """
    options = PredictOptions(**given)
    names = {name: given[name] for name in ("text", "choices", "columns")}
    if options.input is None:
        refuse_options(PredictOptions, "", " needs --input", **names)
    pipeline = load_network(options)
    if options.mixture_task is not None:
        pipeline = pipeline.mixture_task(options.mixture_task)
    if pipeline.compares_pictures:
        _predict_by_names(options, pipeline)
        return
    refuse_options(
        PredictOptions, f"{options.model}: ", " needs a model that compares pictures with texts",
        labels=options.labels, template=options.template,
    )  # fmt: skip
    predictor = with_ensemble(pipeline, options.ensemble, options.device, options.precision)
    inputs: Iterable[Any]
    if not pipeline.preset.reads_texts:
        _predict_pictures(options, pipeline)
        return
    if options.input is None:
        inputs = map(
            _line_reader(predictor), read_texts(options.texts, None, None, options.encoding_errors)
        )
    else:
        refuse_texts_and_input(options.texts, options.input)
        inputs = predictor.read_inputs(
            options.input, **names, encoding_errors=options.encoding_errors
        )
    for text, answer in answer_in_batches(inputs, predictor.predict):
        print_json({"text": text} | (answer if isinstance(answer, dict) else {"number": answer}))


def _predict_pictures(options: PredictOptions, pipeline: Pipeline) -> None:
    """Print one line of JSON for each picture of the files and folders that are named."""
    for record, answer in answer_in_batches(_pictures_of(options), pipeline.predict):
        print_json({"image": record.location} | cast("dict[str, Any]", answer))


def _predict_by_names(options: PredictOptions, pipeline: Pipeline) -> None:
    """Print the same, with classes of which the names are given."""
    from unmask.evaluation.picture_vectors import DEFAULT_TEMPLATE

    if not options.labels:
        raise ValueError(
            f"{options.model} compares pictures with texts: name two or more classes with --labels"
        )
    templates = options.template or (DEFAULT_TEMPLATE,)

    def classify(records: list[ImageRecord]) -> list[dict[str, Any]]:
        return pipeline.classify_by_names(records, options.labels, templates)

    for record, answer in answer_in_batches(_pictures_of(options), classify):
        print_json({"image": record.location} | answer)


def _pictures_of(options: PredictOptions) -> Iterator[ImageRecord]:
    """Return the records of the pictures that are named."""
    from unmask.images.reading import picture_records

    refuse_options(
        PredictOptions, f"{options.model} reads pictures: ", " is of texts",
        ensemble=options.ensemble, text=options.text, choices=options.choices,
        columns=options.columns,
    )  # fmt: skip
    sources = [*options.texts, *([] if options.input is None else [options.input])]
    if not sources:
        raise ValueError("no pictures: name files, folders or archives")
    return picture_records(sources)


def _line_reader(pipeline: Pipeline | Ensemble) -> Callable[[str], Any]:
    """Return the function that parses a line as a model's input."""
    from unmask.finetuning.results.predict import infer_task
    from unmask.tasks.all_kinds import TASK_KINDS

    task = pipeline.task or infer_task(pipeline.loaded_model)
    return partial(TASK_KINDS[task.task_kind].reader.parse_line, task)


@command(FillOptions, JsonOption)
def fill(given: Mapping[str, Any], output: JsonOption) -> None:
    """Predict the tokens at each [MASK] of a text."""
    options = FillOptions(**given)
    pipeline = load_network(options)
    texts = read_texts(options.texts, options.input, options.text_column, options.encoding_errors)
    for text, filled in answer_in_batches(
        texts, lambda some: pipeline.fill(some, top_k=options.top_k)
    ):
        if output.as_json:
            blanks = [[vars(c) for c in blank] for blank in filled.blanks]
            print_json({"text": text, "filled": filled.text, "blanks": blanks})
            continue
        print_line(filled.text)
        for i, blank in enumerate(filled.blanks, 1):
            number = f"{i}: " if len(filled.blanks) > 1 else ""
            print_line(
                f"  {number}" + "   ".join(_format_candidate(c.text, c.probability) for c in blank)
            )


def _format_candidate(text: str, probability: float | None) -> str:
    return (text or "(empty)") if probability is None else f"{text} {probability:.1%}"


@command(EmbedOptions)
def embed(given: Mapping[str, Any]) -> None:
    """Embed texts as vectors.

    Prints one line of JSON per text, or writes a .npy file. With word vectors, a text's vector is
    the mean of its words' vectors. With a model of pictures, TEXT names a file or folder of
    pictures; with CLIP, whatever names no file is a text.
    """
    options = EmbedOptions(**given)
    out = options.out
    if out is not None and options.pooling == "none":
        raise ValueError("--out needs one vector per text; --pooling none gives one per token")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: there is no folder {out.parent}")
    vectors = _vectors(options)
    if out is not None:
        _write_array(out, [vector for _, vector in vectors])
        return
    for name, vector in vectors:
        print_json({**name, "vector": vector.tolist()})


def _vectors(options: EmbedOptions) -> Iterator[tuple[dict[str, str], Any]]:
    """Yield what is embedded, by its kind, and its vector."""
    pipeline = None
    if not is_word_vectors(options.model):
        refuse_options(
            EmbedOptions, f"{options.model}: ", " applies to word vectors only",
            limit=options.limit,
        )  # fmt: skip
        pipeline = load_network(options)
    else:
        refuse_options(
            EmbedOptions, f"{options.model}: ", " applies to networks only",
            precision=options.precision != "float32",
        )  # fmt: skip
    pictures = _named_pictures(options, pipeline)
    if pipeline is not None and pictures:
        yield from _picture_vectors(options, pipeline, pictures)
    texts = [text for text in options.texts if text not in pictures]
    if pictures and not texts and options.input is None:
        return
    read = read_texts(
        texts, options.input, options.text_column, options.encoding_errors, keep_blank=True
    )
    for text, vector in answer_in_batches(read, _text_encoder(options, pipeline)):
        yield {"text": text}, vector


def _named_pictures(options: EmbedOptions, pipeline: Pipeline | None) -> list[str]:
    """List the arguments that are pictures: those that name files, or all of a network of these.

    Raises:
        ValueError: a network of pictures alone is given texts.
    """
    if pipeline is None or not pipeline.preset.reads_pictures:
        return []
    if pipeline.preset.reads_texts and not pipeline.describes_pictures:
        return [text for text in options.texts if Path(text).exists()]
    refuse_options(
        EmbedOptions, f"{options.model} reads pictures: ", " is of texts",
        input=options.input, text_column=options.text_column,
    )  # fmt: skip
    if not options.texts:
        raise ValueError("no pictures: name files, folders or archives")
    return list(options.texts)


def _picture_vectors(
    options: EmbedOptions, pipeline: Pipeline, pictures: list[str]
) -> Iterator[tuple[dict[str, str], Any]]:
    from unmask.images.reading import picture_records

    refuse_options(EmbedOptions, "", " applies to texts, not to pictures", layer=options.layer)
    if options.pooling == "none":
        raise ValueError("pooling of pictures must be first, mean, last or projection, got 'none'")

    def embed_some(records: list[ImageRecord]) -> Any:
        return pipeline.embed_pictures(records, pooling=cast("Any", options.pooling))

    for record, vector in answer_in_batches(picture_records(pictures), embed_some):
        yield {"image": record.location}, vector


def _text_encoder(
    options: EmbedOptions, pipeline: Pipeline | None
) -> Callable[[list[str]], Iterable[Any]]:
    """Return the embedding function of a model, or of word vectors where there is none."""
    model, layer, pooling = options.model, options.layer, options.pooling
    if pipeline is None:
        from unmask.inference.vectors.sentence_similarity import sentence_encoder

        settings: dict[str, Any] = {"pooling": pooling, "layer": layer, "limit": options.limit}
        encode = sentence_encoder(model, **settings)
        return lambda texts: _warn_of_zero_vectors(encode(texts))
    return partial(pipeline.embed, layer=-1 if layer is None else layer, pooling=pooling)


def _warn_of_zero_vectors(vectors: Any) -> Any:
    """Return vectors of texts, with a warning if some have no known word."""
    if not vectors.any(1).all():
        logging.getLogger("unmask").warning(
            "a text contains no word with a vector: its vector is zero"
        )
    return vectors


def _write_array(path: Path, rows: Sequence[Any]) -> None:
    import numpy as np

    from unmask.files import write_atomically

    buffer = io.BytesIO()
    np.save(buffer, np.stack(rows), allow_pickle=False)
    write_atomically(path, buffer.getvalue())
    print_line(f"{path}: {len(rows):,} vectors of dimension {len(rows[0]):,}", sys.stderr)
