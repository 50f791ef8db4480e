"""Every reader of files, by what it reads: the name of its file, and a function of the path."""

import functools
from collections.abc import Callable
from pathlib import Path

from unmask.adapters.folder import open_adapter
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints import elmo, llama2c, tensors
from unmask.checkpoints.folder import find_damage, read_progress
from unmask.checkpoints.huggingface.read import load_folder
from unmask.config import read_toml
from unmask.conversations.messages import Message
from unmask.conversations.template_files import load_chat_template
from unmask.evaluation import prompting
from unmask.files import read_json, read_json_object
from unmask.finetuning import search, suite
from unmask.finetuning.data.task_mixture import read_mixture
from unmask.finetuning.job.record import read_run_record
from unmask.finetuning.results.predict import read_task
from unmask.images.decode import decode_image
from unmask.images.preprocessor_config import read_preprocessor_config
from unmask.images.sources import read_images
from unmask.images.store import ImageStore
from unmask.inference.export import read_run_file
from unmask.preferences.data.rows import read_pairs
from unmask.reports.report_data import read_report_data
from unmask.shards.manifest import read_manifest
from unmask.shards.read import TokenShards
from unmask.studies.read_study import read_study
from unmask.tasks.readers import tables
from unmask.tasks.suites import benchmark
from unmask.text.documents import read_documents
from unmask.tokenizers.load import load_tokenizer
from unmask.training import config
from unmask.training.log import read_log_lines
from unmask.web.runs.series import read_series
from unmask.web.security.limits import UploadLimits
from unmask.web.worker.calls.tables.spreadsheets import read_spreadsheet
from unmask.word_vectors.alignment.dictionary import read_dictionary
from unmask.word_vectors.evaluation.similarity import read_word_vector_test
from unmask.word_vectors.formats.files import read_vectors
from unmask.word_vectors.formats.npy import open_npy


def whole_text(path: Path) -> None:
    for _ in read_documents(path):
        pass


def whole_pictures(path: Path) -> None:
    for record in read_images(path):
        decode_image(record.load(), record.location)


def in_folder(name: str, read: Callable[[Path], object]) -> tuple[str, Callable[[Path], object]]:
    return name, lambda path: read(path.parent)


def of_elmo(path: Path) -> object:
    found = elmo.read_config(path.parent / "weights.hdf5")
    return tensors.read_tensors(path) if found is None else found


TEXTS = ("", "a" * 500, "a" * 60 + "!", "The old king, 1606.\n", "  \n\n", "é中😀", "([{" * 40)
"""What a hostile tokenizer is asked for: also what regular expressions try in many ways."""
BASE = str(BUNDLED_MODELS["unmask-mini-en"])


def _tokenizer(folder: Path) -> object:
    tokenizer = load_tokenizer(folder)
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert len(ids) < 100_000
        assert all(0 <= i < tokenizer.vocab_size for i in ids.tolist())
        tokenizer.decode(ids)
    return tokenizer


def _shards(folder: Path) -> object:
    found = TokenShards.open(folder)
    for start, end in found.document_spans[:10].tolist():
        found.read_tokens(start, end)
    found.row_spans(4, "sentences")
    return found.tokenizer


def _template(folder: Path) -> object:
    template = load_chat_template(folder)
    if template is None:
        raise FileNotFoundError(f"{folder / 'chat_template.jinja'}: no such file")
    try:
        return template.render([Message("user", "the king"), Message("assistant", "the sea")])
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None  # as those who render say which


def _spreadsheet(path: Path) -> object:
    UploadLimits(file_bytes=2**31).check_archive(path)
    return read_spreadsheet(path)


BY_READER: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{f"rows of .{e}": (f"a.{e}", tables.read_table) for e in
       ("tsv", "csv", "json", "jsonl", "ndjson", "parquet", "txt", "conll", "conllu", "tsv.gz",
        "csv.xz", "jsonl.zst", "parquet.gz")},
    "tagged rows": ("a.txt", functools.partial(tables.read_table, word_per_line=True)),
    **{f"documents of .{e}": (f"a.{e}", whole_text) for e in
       ("tsv", "csv", "jsonl", "parquet", "txt", "txt.gz", "txt.xz", "txt.zst", "parquet.gz")},
    **{f"pictures of {e}": (f"a{e}", whole_pictures) for e in
       (".png", ".jpg", ".tif", ".zip", ".csv", ".jsonl", ".parquet", ".npz",
        "-images-idx3-ubyte", "-images-idx3-ubyte.gz")},
    "stored pictures": in_folder("images.json", ImageStore.open),
    "preprocessing": ("preprocessor_config.json", read_preprocessor_config),
    "JSON": ("a.json", read_json),
    "object": ("a.json", read_json_object),
    "TOML": ("a.toml", read_toml),
    "suite": ("a.toml", benchmark.read_suite),
    "study": ("a.toml", read_study),
    "mixture": ("a.toml", read_mixture),
    "prompts": ("a.toml", prompting.read_prompt_task),
    "recipe": ("a.toml", config.read_recipe),
    "facts": in_folder("unmask.json", read_run_file),
    "task": in_folder("unmask.json", read_task),
    "run": in_folder("unmask.json", read_run_record),
    "record": in_folder("unmask.json", read_report_data),
    "trials": in_folder(search.TRIALS_FILE, search.read_trials),
    "suite's record": in_folder(suite.SUITE_FILE, suite._previous_results),
    "manifest": ("shards.json", read_manifest),
    "checkpoint": in_folder("manifest.json", find_damage),
    "progress": in_folder("progress.json", read_progress),
    "tensors": ("model.safetensors", tensors.read_tensors),
    "pickled tensors": ("pytorch_model.bin", tensors.read_tensors),
    "array": ("a.npy", open_npy),
    "vectors": ("a.vec", read_vectors),
    "packed vectors": ("a.vec.gz", read_vectors),
    "fastText": ("a.bin", read_vectors),
    "dictionary": ("a.txt", read_dictionary),
    "word pairs": ("a.txt", read_word_vector_test),
    "ELMo's options": ("options.json", of_elmo),
    "ELMo": in_folder("options.json", load_folder),
    "llama2.c": ("a.bin", llama2c.read_config),
    "llama2.c weights": ("a.bin", llama2c.read_weights),
    "tokenizer": in_folder("tokenizer.json", _tokenizer),
    "vocabulary": in_folder("vocab.txt", _tokenizer),
    "merges": in_folder("merges.txt", _tokenizer),
    "SentencePiece": in_folder("spiece.model", _tokenizer),
    "model": in_folder("config.json", load_folder),
    "weights index": in_folder("model.safetensors.index.json", tensors.read_model_tensors),
    "packed weights": in_folder("packed.json", tensors.read_model_tensors),
    "adapter": in_folder("adapter_config.json", lambda folder: open_adapter(folder, base=BASE)),
    "shards": in_folder("shards.json", _shards),
    "chat template": in_folder("chat_template.jinja", _template),
    "spreadsheet of .xlsx": ("a.xlsx", _spreadsheet),
    "spreadsheet of .ods": ("a.ods", _spreadsheet),
    "preferences": ("a.jsonl", read_pairs),
    "log": ("log.jsonl", read_log_lines),
    "series": ("log.jsonl", read_series),
}  # fmt: skip
