"""`convert`: models and word vectors between formats."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.inputs import is_word_vectors, load_pipeline
from unmask.jobs.options.compress import CompressOptions
from unmask.jobs.options.shell.convert import ConvertOptions
from unmask.jobs.options.shell.from_dataclass import command, refuse_options
from unmask.jobs.options.shell.shared_options import JsonOption
from unmask.output import print_data, print_json, print_line

if TYPE_CHECKING:
    from unmask.inference.pipeline import Pipeline


_MODEL_FORMATS = ("huggingface", "unmask", "onnx", "gguf")
"""Those in which a folder that has word vectors, too, is a model."""


@command(ConvertOptions, JsonOption)
def convert(given: Mapping[str, Any], output: JsonOption) -> None:
    """Convert a model between formats, average its last checkpoints, or expand its vocabulary.

    Word vectors (.vec, .bin, .txt) are written for word2vec, gensim and fastText (word2vec-text),
    for word2vec and gensim (word2vec-binary), or in the format of GloVe (glove); a fastText run
    also as a fastText model with its n-grams (fasttext).
    """
    options = ConvertOptions(**given)
    source = options.model
    as_model = Path(source).is_dir() and options.to in _MODEL_FORMATS
    if options.to != "onnx":
        refuse_options(ConvertOptions, "", " applies to --to onnx only", int8=options.int8)
    if options.to != "gguf":
        refuse_options(ConvertOptions, "", " applies to --to gguf only", dtype=options.dtype)
    if is_word_vectors(source) and not as_model:
        before = f"{source}: word vectors: "
        refuse_options(
            ConvertOptions, before, " applies to pretraining runs only", average=options.average
        )
        refuse_options(ConvertOptions, f"{before}leave out ", vectors=options.vectors)
        _convert_word_vectors(options, output.as_json)
        return
    other_options = {
        "limit": options.limit if options.vectors is None else None,
        "white_space": options.white_space,
    }
    refuse_options(ConvertOptions, f"{source}: ", " applies to word vectors only", **other_options)
    _convert_model(options, output.as_json)


def _convert_model(options: ConvertOptions, as_json: bool) -> None:
    """Write a model in another format."""
    from unmask.checkpoints.huggingface.differences import opening_note
    from unmask.checkpoints.tensors import large_weights_on_disk
    from unmask.compression.structure.whole import WHOLE_NOTE, is_divided
    from unmask.inference.export import check_new_folder, resolve_model_format

    source, target = options.model, options.target
    model_format = resolve_model_format(options.to)
    check_new_folder(target)
    with large_weights_on_disk(next(p for p in target.resolve().parents if p.is_dir())):
        pipeline = _changed_model(options)
        dtype = options.dtype or "float32"
        pipeline.save(target, format=model_format, int8=options.int8, dtype=dtype)
    opened = pipeline.loaded_model
    if opened.tokenizer is None:
        print_line(f"{source}: has no tokenizer, so {target} has none either", sys.stderr)
    divided = model_format == "huggingface" and is_divided(opened.model.architecture)
    note = WHOLE_NOTE if divided else opening_note(opened.preset, opened.model.head_specs)
    if note is not None and model_format in ("huggingface", "unmask"):
        print_line(f"{target}: {note}", sys.stderr)
    if options.int8:
        from unmask.inference.onnx.quantize import uses_reduced_range

        bits = "7, for a processor without VNNI" if uses_reduced_range() else "8"
        print_line(f"{target}: bits of weights: {bits}", sys.stderr)
    if as_json:
        facts = {"folder": target, "tokenizer": opened.tokenizer is not None}
        print_json(facts | {"missing": opened.missing, "extra": opened.unexpected})
    else:
        print_data(target)


def _changed_model(options: ConvertOptions) -> Pipeline:
    """Load a model, optionally with averaged weights or a larger vocabulary."""
    import unmask
    from unmask.inference.export import average_checkpoints, check_average_count

    if options.average is not None:
        check_average_count(options.average)
    pipeline = load_pipeline(options.model, "cpu")
    if options.average is not None:
        average_checkpoints(pipeline.model, Path(options.model), options.average)
    if options.vectors is None:
        return pipeline
    expanded = unmask.expand_vocabulary(pipeline, options.vectors, limit=options.limit)
    print_line(
        f"{expanded.n_added:,} words added through a linear map fitted on "
        f"{expanded.n_shared:,} shared words",
        sys.stderr,
    )
    return expanded.pipeline


def _convert_word_vectors(options: ConvertOptions, as_json: bool) -> None:
    """Write word vectors in another format."""
    import unmask
    from unmask.inference.vectors.load_word_vectors import resolve_word_vector_format

    format_name = resolve_word_vector_format(options.to)
    try:
        space = unmask.convert_word_vectors(
            options.model,
            options.target,
            format_name=format_name,
            limit=options.limit,
            white_space=options.white_space,
        )
    except ValueError as error:
        hint = " (--white-space _)" if "white space cannot be" in str(error) else ""
        hint = " (--to)" if "name the format" in str(error) else hint
        raise ValueError(f"{error}{hint}") from None
    facts = {"file": str(options.target), "words": len(space), "width": space.vector_size}
    if as_json:
        print_json(facts)
    else:
        print_line(f"{options.target}: {len(space):,} words, {space.vector_size:,} dimensions")


@command(CompressOptions, JsonOption)
def compress(given: Mapping[str, Any], output: JsonOption) -> None:
    """Make a model smaller: weights of few bits, or fewer weights.

    The new folder is opened by every other command; convert writes its weights as floating-point
    numbers for other libraries.
    """
    import unmask

    result = unmask.compress(**given)
    if output.as_json:
        print_json(vars(result))
        return
    print_line(
        f"{result.folder}: weights {result.bytes_before / 1e6:,.1f} MB as float32, "
        f"{result.bytes_after / 1e6:,.1f} MB now, {result.bytes_before / result.bytes_after:.1f} "
        f"times smaller; {result.zero_fraction:.0%} of them are zero"
    )
