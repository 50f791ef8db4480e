"""The limits of the house: sizes of files, folders, functions and signatures; unique class names.

What is over a limit today is listed here. The lists only get shorter: what is new keeps the limits,
and what has come within them is taken off its list.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "unmask"
FILES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}

FILE_LINES, FOLDER_ENTRIES, FUNCTION_LINES, PARAMETERS = 500, 12, 60, 7

LONG_FILES = {
    "adapters/translate.py", "checkpoints/huggingface.py", "cli.py", "finetuning/job.py",
    "finetuning/plan.py", "hiding/choose.py", "hiding/conceal.py", "hiding/loader.py",
    "model/positions.py", "serving/pipeline.py", "serving/pretrain.py", "tasks/readers/tables.py",
    "tokens/files.py", "tokens/shards.py", "tokens/tokenizer.py", "tokens/vocabulary.py",
    "training/loop.py", "training/optimize.py", "vectors/kernels.py",
}  # fmt: skip
LARGE_FOLDERS = {
    ".": 24, "finetuning": 38, "heads": 18, "hiding": 20, "model": 24, "published": 55,
    "serving": 37, "tokens": 22, "vectors": 23,
}  # fmt: skip
"""Entries of each, at most."""
LONG_FUNCTIONS = {
    "cli.py:align", "cli.py:convert", "cli.py:evaluate", "cli.py:finetune", "cli.py:generate",
    "cli.py:neighbors", "cli.py:prepare", "cli.py:pretrain", "cli.py:study",
    "finetuning/job.py:prepare", "hiding/collate.py:arrange", "serving/align.py:align",
    "serving/finetune.py:finetune", "serving/pretrain.py:pretrain", "studies/show.py:markdown",
}  # fmt: skip
MANY_PARAMETERS = {
    "batch.py:Visibility.among", "cli.py:align", "cli.py:convert", "cli.py:embed",
    "cli.py:evaluate", "cli.py:fill", "cli.py:finetune", "cli.py:generate", "cli.py:neighbors",
    "cli.py:picture", "cli.py:predict", "cli.py:prepare", "cli.py:pretrain", "cli.py:study",
    "evaluation/continuations.py:likelihoods", "evaluation/likelihood.py:evaluate",
    "finetuning/batches.py:batches", "finetuning/begin.py:begin", "finetuning/score.py:score_file",
    "finetuning/suite.py:_all", "finetuning/suite.py:finetune_suite", "finetuning/tune.py:run",
    "model/attention.py:Sight.of", "model/attention.py:_banded", "model/attention.py:_plain",
    "model/attention.py:attend", "model/evolved_layers.py:EvolvedDecoderLayer.forward",
    "model/evolved_layers.py:EvolvedEncoderLayer.forward", "model/transformer.py:Block.forward",
    "published/gpt3.py:_sized", "published/word_vectors.py:_card", "serving/align.py:align",
    "serving/evaluating.py:evaluate_tasks", "serving/finetune.py:finetune",
    "serving/folders.py:write_facts", "serving/prepare.py:prepare",
    "serving/pretrain.py:_write_facts", "serving/pretrain.py:pretrain",
    "serving/sentences.py:evaluate_similarity", "serving/sentences.py:nearest_sentences",
    "serving/word_map.py:picture", "studies/run.py:run_study", "vectors/align.py:align",
    "vectors/kernels.py:_ask", "vectors/kernels.py:_gathered", "vectors/kernels.py:_ngrams_of",
    "vectors/kernels.py:_questions", "vectors/kernels.py:cbow", "vectors/kernels.py:count_pairs",
    "vectors/kernels.py:gather", "vectors/kernels.py:glove", "vectors/kernels.py:read_blocks",
    "vectors/kernels.py:skipgram", "vectors/word2vec.py:train",
}  # fmt: skip
REPEATED_CLASS_NAMES = {
    "Adafactor", "AdamW", "Asked", "Calibration", "Cell", "Choice", "Choose", "Costly", "Data",
    "Factors", "Figure", "Found", "Gathered", "Generate", "Group", "Item", "Job", "Lamb", "Memory",
    "Mix", "Mixture", "Model", "Muon", "Neighbors", "Pair", "Part", "Plan", "Prompt", "Report",
    "Said", "Sentences", "Sgd", "Spans", "State", "Step", "Telling", "Texts", "Trial", "Words",
    "Written",
}  # fmt: skip


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Give every function and method with its place; not those inside of functions."""

    def visit(body: list[ast.stmt], place: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{place}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                yield place + node.name, node

    for name, tree in FILES.items():
        yield from visit(tree.body, f"{name}:")


def lines_of_code(function: ast.FunctionDef) -> int:
    """Count a function's lines, its docstring apart."""
    first = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def parameters(function: ast.FunctionDef) -> int:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in every)


def test_files_are_short() -> None:
    long = {f for f in FILES if len((ROOT / f).read_text().splitlines()) > FILE_LINES}
    assert long == LONG_FILES


def test_folders_have_few_entries() -> None:
    large = {}
    for folder in {(ROOT / name).parent for name in FILES}:
        inside = {p.name for p in folder.iterdir()} - {"__pycache__", "__init__.py"}
        if len(inside) > FOLDER_ENTRIES:
            large[str(folder.relative_to(ROOT))] = len(inside)
    assert large.keys() == LARGE_FOLDERS.keys()
    assert [name for name, n in large.items() if n > LARGE_FOLDERS[name]] == []


def test_functions_fit_on_a_screen() -> None:
    assert {n for n, f in functions() if lines_of_code(f) > FUNCTION_LINES} == LONG_FUNCTIONS


def test_functions_take_few_parameters() -> None:
    assert {n for n, f in functions() if parameters(f) > PARAMETERS} == MANY_PARAMETERS


def test_no_public_class_name_is_new_twice() -> None:
    places = defaultdict(list)
    for name, tree in FILES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {c for c, where in places.items() if len(where) > 1} == REPEATED_CLASS_NAMES
