"""Every reader of files, by what it reads: the name of its file, and a function of the path."""

import functools
from collections.abc import Callable
from pathlib import Path

from unmask.checkpoints import elmo, llama2c, tensors
from unmask.checkpoints.folder import find_damage, read_progress
from unmask.config import read_toml
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
from unmask.reports.report_data import read_report_data
from unmask.shards.manifest import read_manifest
from unmask.studies.read_study import read_study
from unmask.tasks.readers import tables
from unmask.tasks.suites import benchmark
from unmask.text.documents import read_documents
from unmask.training import config
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
    "llama2.c": ("a.bin", llama2c.read_config),
}  # fmt: skip
