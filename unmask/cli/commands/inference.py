"""`predict`, `fill`, `embed`: inference on texts."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from unmask.cli.from_dataclass import command, refuse_options
from unmask.cli.inputs import (
    answer_in_batches,
    is_word_vectors,
    load_pipeline,
    read_texts,
    refuse_texts_and_input,
    with_ensemble,
)
from unmask.cli.shared_options import (
    ColumnOptions,
    EnsembleOptions,
    JsonLinesOption,
    JsonOption,
    LanguageOption,
    LimitOption,
    ModelArgument,
    TextArguments,
    TextFile,
)
from unmask.options import DeviceOptions, EncodingOptions, flag
from unmask.output import print_json, print_line

_POOLING = "unmask.cli.shared_options:TextPoolingOptions"

if TYPE_CHECKING:
    from unmask.inference.ensemble import Ensemble
    from unmask.inference.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class _PredictOptions(
    ModelArgument,
    LanguageOption,
    TextArguments,
    ColumnOptions,
    EnsembleOptions,
    EncodingOptions,
    DeviceOptions,
    JsonLinesOption,
):
    input: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Input file: rows with the columns of the training data; or .txt, each line as for TEXT."""


@command(_PredictOptions)
def predict(given: Mapping[str, Any]) -> None:
    """Predict labels, tags, numbers or answers with a fine-tuned model.

    Prints one line of JSON per text. A text pair is one line with a tab in between, as is a
    question and its passage, or a text and its answer choices; words to be tagged are separated by
    spaces. In a file, a pair is two columns: --text premise --text hypothesis.
    """
    options = _PredictOptions(**given)
    names = {name: given[name] for name in ("text", "choices", "columns")}
    if options.input is None:
        refuse_options(_PredictOptions, "", " needs --input", **names)
    pipeline = load_pipeline(options.model, options.device, options.language)
    if options.mixture_task is not None:
        pipeline = pipeline.mixture_task(options.mixture_task)
    predictor = with_ensemble(pipeline, options.ensemble, options.device)
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


def _predict_pictures(options: _PredictOptions, pipeline: Pipeline) -> None:
    """Print one line of JSON for each picture of the files and folders that are named."""
    from unmask.finetuning.results.predict_pictures import picture_records

    refuse_options(
        _PredictOptions, f"{options.model} reads pictures: ", " is of texts",
        ensemble=options.ensemble, text=options.text, choices=options.choices,
        columns=options.columns,
    )  # fmt: skip
    sources = [*options.texts, *([] if options.input is None else [options.input])]
    if not sources:
        raise ValueError("no pictures: name files, folders or archives")
    for record, answer in answer_in_batches(picture_records(sources), pipeline.predict):
        print_json({"image": record.location} | cast("dict[str, Any]", answer))


def _line_reader(pipeline: Pipeline | Ensemble) -> Callable[[str], Any]:
    """Return the function that parses a line as a model's input."""
    from unmask.finetuning.results.predict import infer_task
    from unmask.tasks.all_kinds import TASK_KINDS

    task = pipeline.task or infer_task(pipeline.loaded_model)
    return partial(TASK_KINDS[task.task_kind].reader.parse_line, task)


@dataclass(frozen=True, kw_only=True)
class _FillOptions(
    ModelArgument, LanguageOption, TextArguments, TextFile, EncodingOptions, DeviceOptions
):
    top_k: int = field(default=5, metadata=flag(metavar="K"))
    """Number of candidates for each [MASK]."""


@command(_FillOptions, JsonOption)
def fill(given: Mapping[str, Any], output: JsonOption) -> None:
    """Predict the tokens at each [MASK] of a text."""
    options = _FillOptions(**given)
    pipeline = load_pipeline(options.model, options.device, options.language)
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


@dataclass(frozen=True, kw_only=True)
class _EmbedOptions(
    ModelArgument,
    LanguageOption,
    TextArguments,
    TextFile,
    LimitOption,
    EncodingOptions,
    DeviceOptions,
    JsonLinesOption,
):
    pooling: Literal["mean", "first", "last", "ends", "none"] | None = field(
        default=None,
        metadata=flag(
            shown_default="that of the model: mean, or last for skip-thoughts and quick-thoughts"
        ),
    )
    """Pooling of token vectors into a text vector; ends: the final state of each direction; none:
    one vector per token."""
    layer: int | None = field(
        default=None,
        metadata=flag(
            shown_default="-1", documented_in="unmask.cli.shared_options:TextPoolingOptions"
        ),
    )
    out: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Output file: a NumPy array [n d] instead of JSON."""


@command(_EmbedOptions)
def embed(given: Mapping[str, Any]) -> None:
    """Embed texts as vectors.

    Prints one line of JSON per text, or writes a .npy file. With word vectors, a text's vector is
    the mean of its words' vectors.
    """
    options = _EmbedOptions(**given)
    out = options.out
    if out is not None and options.pooling == "none":
        raise ValueError("--out needs one vector per text; --pooling none gives one per token")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: there is no folder {out.parent}")
    texts = read_texts(
        options.texts, options.input, options.text_column, options.encoding_errors, keep_blank=True
    )
    text_vectors = answer_in_batches(texts, _text_encoder(options))
    if out is not None:
        _write_array(out, [vector for _, vector in text_vectors])
        return
    for text, vector in text_vectors:
        print_json({"text": text, "vector": vector.tolist()})


def _text_encoder(options: _EmbedOptions) -> Callable[[list[str]], Iterable[Any]]:
    """Return the embedding function of a model or of word vectors."""
    model, layer, pooling = options.model, options.layer, options.pooling
    if is_word_vectors(model):
        from unmask.inference.sentence_similarity import sentence_encoder

        settings: dict[str, Any] = {"pooling": pooling, "layer": layer, "limit": options.limit}
        encode = sentence_encoder(model, **settings)
        return lambda texts: _warn_of_zero_vectors(encode(texts))
    refuse_options(
        _EmbedOptions, f"{model}: ", " applies to word vectors only", limit=options.limit
    )
    pipeline = load_pipeline(model, options.device, options.language)
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
