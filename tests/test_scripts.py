"""Every script of `benchmarks`, `scripts` and `examples` runs, at toy size."""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import documented
import numpy as np
import pytest
from toy_text import corpus

import unmask
from unmask.bundled.models import BUNDLED_MODELS

ROOT = Path(__file__).parents[1]
SCRIPTS = {
    f"{path.parent.name}/{path.name}"
    for name in ("benchmarks", "scripts", "examples")
    for path in (ROOT / name).glob("*.py")
}
NOT_RUN = {
    "scripts/transformer_xl_reference.py": "runs with transformers 4.36 alone, in an environment "
    "of its own",
    "scripts/emoji_data.py": "reads packages of npm and draws with resvg; what it made is compared "
    "in test_bundled_pictures.py",
    "benchmarks/glove.py": "needs the released C program, compiled",
    "benchmarks/dirty_text.py": "is what cleaning_effect.py makes its text with",
    "scripts/fuzz_readers.py": "runs for minutes in a process that atheris changes",
    "examples/inverse.py": "is what the other examples share",
    "scripts/docs_site.py": "is a hook of mkdocs, which `make docs` calls",
    "scripts/processors.py": "runs the suite itself (`make test-processors`)",
    "scripts/house.py": "its figures are held in architecture/test_ceilings.py",
    "scripts/models_page.py": "its page is compared in test_readme.py",
}
TINY = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Path]:
    """A workspace, with the shared data's layout in `shared`."""
    home, here = tmp_path_factory.mktemp("home"), Path.cwd()
    documented.workspace(home)
    shared = home / "shared"
    for split in ("train", "valid", "test"):
        for name in ("wikipedia-en", "books"):
            documented.put(shared / name / f"{split}.txt.xz", corpus(6))
    rows = [(t, y) for t, y in documented.ROWS]
    for name in ("glue/SST-2/train.tsv.xz", "glue/SST-2/dev.tsv"):
        documented.table(shared / name, ("sentence", "label"), rows)
    documented.zero_shot(shared)
    pairs = [("he sees it .", "he see it .", "agreement")] * 4
    documented.table(shared / "zero_shot/blimp.jsonl", ("good", "bad", "term"), pairs)
    article = {"paragraphs": [{"context": corpus(1)}]}
    documented.put(shared / "xquad/xquad.de.json.xz", json.dumps({"data": [article] * 10}))
    lines = "".join(f"{t}\n" for t in documented.TEXTS)
    documented.put(shared / "multi30k/train.de.xz", lines)
    documented.put(shared / "multi30k/test_2016_flickr.de", lines)
    for split in ("train", "test"):
        mail = [(t[:9], t) for t in documented.TEXTS]
        documented.table(shared / f"aeslc/{split}.jsonl.xz", ("subject", "body"), mail)
    books(shared / "novels")
    os.chdir(home)
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(ROOT))  # of the processes that some scripts begin
    documented.scale(patch)
    unmask.pretrain("bert-tiny", data="corpus.txt", out="runs/bert", quiet=True)
    yield home
    patch.undo()
    os.chdir(here)


def books(folder: Path) -> None:
    """Write books of the titles that the bundled task is drawn from."""
    script = load("scripts/demo_data.py")
    titles = [*script.NOVELS, *(title for names, _ in script.TASK.values() for title in names)]
    splits = {title: "train" for title in titles} | {titles[-2]: "valid", titles[-1]: "test"}
    rows = "".join(f"{s}\tSomeone\t{title}\t1\t100\tx/y\n" for title, s in splits.items())
    documented.put(
        folder / "index.tsv", "split\tauthor\ttitle\tchapters\twords\trepository\n" + rows
    )
    output = "\u201cThe old king saw the silver gate at night in spring.\u201d"
    result = "The old brother followed the long road after the great war."
    for split in ("train", "valid", "test"):
        n = list(splits.values()).count(split)
        text = "\n\n\n".join([f"Chapter\n{result}\n{output}"] * n) + "\n"
        documented.put(folder / f"{split}.txt.xz", text)


def load(script: str) -> Any:
    """Import a script as its own folder sees it."""
    path = ROOT / script
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run(script: str, words: str, patch: pytest.MonkeyPatch, **constants: object) -> Any:
    """Run a script in this process, with some of its constants made small."""
    module = load(script)
    for name, value in constants.items():
        assert hasattr(module, name), f"{script} has no {name}"
        patch.setattr(module, name, value)
    patch.setattr(sys, "argv", [script, *words.split()])
    return module.main()


def _finetuning(patch: pytest.MonkeyPatch) -> None:
    few = "--rounds 1 --steps 1 --no-memory --folder bench-finetuning"
    run(
        "benchmarks/finetuning.py",
        few,
        patch,
        TEXTS=64,
        SST=Path("none"),
        MRPC=Path("none"),
        BATCH=4,
    )


def _reading(patch: pytest.MonkeyPatch) -> None:
    module = load("benchmarks/reading.py")
    patch.setattr(module.finetuning, "TEXTS", 64)
    patch.setattr(module.finetuning, "SST", Path("none"))
    small = {"VOCAB_SIZE": 300, "BLIMP": Path("none"), "CHOICES": Path("none")}
    run("benchmarks/reading.py", "--rounds 1 --texts 6 --folder bench-reading", patch, **small)


def _pretraining(patch: pytest.MonkeyPatch) -> None:
    module = load("benchmarks/pretraining.py")
    small = {
        name: module.Workload(one.card, 300, 32, one.unit) for name, one in module.WORKLOADS.items()
    }
    few = "--rounds 1 --steps 1 --no-memory --folder bench-pretraining"
    documented.put(Path("bench-pretraining/corpus.txt"), corpus(40))
    run("benchmarks/pretraining.py", few, patch, WORKLOADS=small, TOKENS=128)


def _run_all(patch: pytest.MonkeyPatch) -> None:
    few = {"interrupted": "interrupted_runs.py --help", "wrong": "window.py --no-such-option"}
    run("benchmarks/run_all.py", "--out bench-reports", patch, COMMANDS=few)
    (report,) = Path("bench-reports").iterdir()
    text = report.read_text(encoding="utf-8")
    assert "GFLOP/s" in text
    assert "## Interrupted" in text
    assert "It ended with status 2: window.py: error: unrecognized arguments" in text


def _families(patch: pytest.MonkeyPatch) -> None:
    module = load("benchmarks/families.py")
    small = {
        name: dataclasses.replace(one, vocab_size=400, length=32, architecture={})
        for name, one in module.CASES.items()
    }
    documented.put(Path("bench-families/corpus.txt"), corpus(40))
    few = "--rounds 1 --steps 1 --folder bench-families"
    run("benchmarks/families.py", few, patch, CASES=small, TOKENS=128)


def _generation(patch: pytest.MonkeyPatch) -> None:
    run("benchmarks/generation.py", "--rounds 1 --new-tokens 2", patch, SIZE=200)


def _planned_costs(patch: pytest.MonkeyPatch) -> None:
    documented.put(Path("bench-planned/corpus.txt"), corpus(60))
    few = "--presets bert-tiny:batch_tokens=256 --steps 4 --out bench-planned/table.md"
    run("benchmarks/planned_costs.py", f"--data bench-planned/corpus.txt {few}", patch)
    assert "bert-tiny:batch_tokens=256" in Path("bench-planned/table.md").read_text()


def _window(patch: pytest.MonkeyPatch) -> None:
    run("benchmarks/window.py", "--rounds 1 --lengths 64 --sizes longformer-mini", patch)


def _web_runs(patch: pytest.MonkeyPatch) -> None:
    words = "--rounds 1 --runs 3 --lines 5 --curves 2 --points 20"
    run("benchmarks/web_runs.py", words, patch)


def _onnx(patch: pytest.MonkeyPatch) -> None:
    words = "runs/bert --rounds 1 --threads 1 --texts 2"
    run("benchmarks/onnx_export.py", words, patch, DATA=Path("shared").resolve(), LENGTH=16)


def _pictures(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    words = "--pictures 12 --rounds 1 --steps 1 --batch 4 --size 16 --stored 24"
    run("benchmarks/pictures.py", words, patch)


def _cleaning(patch: pytest.MonkeyPatch) -> None:
    run("benchmarks/cleaning.py", "corpus.txt --megabytes 0.1", patch, COPIES=2)


def _preparation(patch: pytest.MonkeyPatch) -> None:
    few = "--megabytes 0.02 --rounds 1 --memory 0.02 --formats txt --shapes documents"
    one = {"byte-level BPE": "gpt2-mini"}
    run("benchmarks/preparation.py", f"corpus.txt {few}", patch, MODELS=one)


def _growth(patch: pytest.MonkeyPatch) -> None:
    load("benchmarks/preparation.py")
    few = "--megabytes 0.02 --words 20 --jobs tokenize"
    run("benchmarks/growth.py", f"corpus.txt {few}", patch, MODEL="bert-tiny")


def _cleaning_effect(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("py3langid")
    load("benchmarks/dirty_text.py")
    shared = Path("shared").resolve()
    arms = {"dirty": ("dirty", (), ()), "dirty, rules": ("dirty", ("unicode",), ("exact",))}
    words = "--out effect --megabytes 0.01 --seeds 1 --steps 2"
    shape = ("sequence_length=32", "batch_tokens=64", "dev_fraction=0")
    run("benchmarks/cleaning_effect.py", words, patch, DATA=shared, ARMS=arms, VOCAB_SIZE=400,
        TOKENIZER_ARM="dirty, rules", SHAPE=shape, DEV_ARTICLES=2)  # fmt: skip


def _neighbor(patch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("/proc is Linux's")
    run("benchmarks/neighbor.py", "--phases 0,1 --rounds 1 --seconds 0.3 --curve 1", patch)


def _before_after(patch: pytest.MonkeyPatch) -> None:
    module = load("benchmarks/before_after.py")
    patch.setattr(module.finetuning, "TEXTS", 64)
    patch.setattr(module.finetuning, "SST", Path("none"))
    patch.setattr(module.finetuning, "MRPC", Path("none"))
    for name, value in {"VOCAB_SIZE": 300, "BLIMP": Path("none")}.items():
        patch.setattr(module.reading, name, value)
    documented.put(Path("before-corpus.txt"), corpus(40))
    words = "HEAD --rounds 1 --corpus before-corpus.txt --only start embed masked"
    small = module.JOBS | {"masked": "pretrain bert-tiny {masked} --steps 1 --out {out}"}
    here = nullcontext(module.HERE.parent)
    run("benchmarks/before_after.py", words, patch, JOBS=small, VOCABULARY_SIZE=300,
        checked_out=lambda *_: here)  # fmt: skip


def _start(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    run("benchmarks/start.py", "--rounds 1", patch)


def _remote_shards(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    unmask.prepare("corpus.txt", out="served", model="bert-tiny", quiet=True)
    run("benchmarks/remote_shards.py", "served --latency 0.001 --steps 2", patch, BATCH_TOKENS=512)


def _interrupted_runs(patch: pytest.MonkeyPatch) -> None:
    words = "--processes 8 --rows 2000 --epochs 1 --runs 2"
    run("benchmarks/interrupted_runs.py", words, patch, FACTORS=(1.0,))


def _few_labels(patch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 16, 16), np.uint8)
    np.savez("labeled-noise.npz", images=noise, labels=np.arange(40) % 2)
    words = "--train labeled-noise.npz --test labeled-noise.npz --rows 20 --seeds 2 --steps 2"
    run("benchmarks/few_labels.py", f"{words} --batch 4 --size 16", patch)
    run("benchmarks/few_labels.py", f"{words} --size 16 --features pixels", patch)


def _forgetting(patch: pytest.MonkeyPatch) -> None:
    words = "--rounds 1 --rows 1 --models mistral-mini --lengths 8"
    run("benchmarks/forgetting.py", words, patch, SIZE=200)


def _word2vec(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    run("benchmarks/word2vec.py", "corpus.txt --words 200 --epochs 1 --rounds 1", patch)


def _word_vectors(patch: pytest.MonkeyPatch) -> None:
    words = "--data corpus.txt --tests word_similarity/WS-353.tsv --out wv --widths 8 --only "
    run("benchmarks/word_vectors.py", words + "svd --threads 1", patch)


def _alignment(patch: pytest.MonkeyPatch) -> None:
    words = "--source corpus.txt --target corpus.txt --dictionary pairs.tsv --test pairs.tsv"
    run("benchmarks/alignment.py", f"{words} --out al --widths 4 --shares 1", patch,
        SEEDS=("25", "numerals"), LEARNING=("none",), RECIPE=("objective.epochs=1",))  # fmt: skip


def _methods(patch: pytest.MonkeyPatch) -> None:
    words = "runs/bert --out methods --tasks sst2 --methods bitfit --rows 8 --seeds 1 --epochs 1"
    run("benchmarks/methods.py", words, patch, DATA=Path("shared").resolve())
    assert len(Path("methods/runs.jsonl").read_text().splitlines()) == 1
    run("benchmarks/methods.py", "--out methods --table", patch)


def _static_vectors(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    load("benchmarks/methods.py")
    shared = Path("shared").resolve()
    words = "corpus.txt --out static --tasks sst2 --rows 12"
    run("benchmarks/static_vectors.py", words, patch, DATA=shared, STRENGTHS=(1.0,), FOLDS=2)


def _encoders(patch: pytest.MonkeyPatch) -> None:
    shared = Path("shared/wikipedia-en").resolve()
    words = "--out encoders --models bert-mini"
    tiny = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    assert (
        run("benchmarks/encoders.py", f"{words} --tokens 4096", patch, DATA=shared, TINY=tiny) == 0
    )
    assert run("benchmarks/encoders.py", f"{words} --table", patch) == 0


def _decoders(patch: pytest.MonkeyPatch) -> None:
    encoders = load("benchmarks/encoders.py")
    shared = Path("shared/wikipedia-en").resolve()
    patch.setattr(encoders, "DATA", shared)
    patch.setattr(encoders, "TINY", TINY)
    words = "--out decoders --models transformer-xl-mini"
    assert run("benchmarks/decoders.py", f"{words} --tokens 4096", patch, DATA=shared) == 0
    few = "--table --minimal-pairs 2 --documents 1"
    assert run("benchmarks/decoders.py", f"{words} {few}", patch, DATA=shared) == 0
    words = "--out decoders --memory 0,8 --documents 1"
    assert run("benchmarks/decoders.py", words, patch, DATA=shared) == 0


def _own_text(patch: pytest.MonkeyPatch) -> None:
    assert run("benchmarks/own_text.py", "text shared own", patch) == 0
    words = "score runs/bert --texts own/captions-test.de.jsonl --rows 2"
    assert run("benchmarks/own_text.py", words, patch) == 0


def _harness(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness")
    run("benchmarks/harness.py", "runs/gpt --rows 20", patch, DATA=Path("shared").resolve())


def _objective_table(patch: pytest.MonkeyPatch) -> None:
    words = "--out objectives --strict --docs objectives.md --only bert-tiny bert-mini"
    run("scripts/objective_table.py", words, patch, OBJECTIVES=("mlm",))
    assert Path("objectives/tried.jsonl").read_text().count('"mlm"') == 1


def _reliability(patch: pytest.MonkeyPatch) -> None:
    own = ROOT / "tests" / "test_options.py", ROOT / "tests" / "training" / "test_stopwatch.py"
    words = f"--out reliability.md --select trials --tests {own[0]} {own[1]}"
    assert run("scripts/reliability.py", words, patch) == 0
    page = Path("reliability.md").read_text()
    assert "| [Mistakes of users](#mistakes-of-users) | 1 | " in page
    assert "| Steps backwards count as none | `tests/training/test_stopwatch.py::" in page


def _demo_data(patch: pytest.MonkeyPatch) -> None:
    run("scripts/demo_data.py", "shared/novels demo", patch)
    assert Path("demo/spoken/test.tsv").is_file()


def _mini_en(patch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    run("scripts/mini_en.py", "text shared/wikipedia-en shared/books mini", patch)
    run("scripts/mini_en.py", "finish runs/bert mini-final", patch)
    unmask.prepare(
        "corpus.txt", out="mini-tokens", tokenizer=BUNDLED_MODELS["unmask-mini-en"], quiet=True
    )
    run(
        "scripts/mini_en.py",
        f"blend mini-tokens {BUNDLED_MODELS['unmask-mini-en']} mini-blended",
        patch,
    )


def _preferences(patch: pytest.MonkeyPatch) -> None:
    unmask.pretrain("gpt2-mini", data="corpus.txt", out="runs/lm", quiet=True)
    unmask.finetune(
        "runs/bert", task="classify", train="sms.tsv", out="runs/judge", labels=("ham", "spam")
    )
    prompts = "".join(json.dumps({"prompt": f"the {w}"}) + "\n" for w in ["cat", "dog", "king"])
    documented.put(Path("prompts-of-judge.jsonl"), prompts)
    words = "--model runs/lm --reward runs/judge:ham --judge runs/judge:spam --length 4 --seeds 0"
    files = "--train prompts-of-judge.jsonl --dev prompts-of-judge.jsonl --text texts.txt"
    arms = "--arms dpo=dpo ppo=ppo:epochs=1"
    run(
        "benchmarks/preferences.py", f"{words} {files} --out frontier {arms}", patch, BEST_OF=(1, 2)
    )
    assert "| ppo |" in Path("frontier/table.md").read_text()


def _deblurring(patch: pytest.MonkeyPatch) -> None:
    run("examples/deblurring.py", "--steps 2 --pictures 10 --out deblurring", patch)
    assert Path("deblurring/shapes.png").is_file()


def _example(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def run_it(patch: pytest.MonkeyPatch) -> None:  # its processes open it by its name
        path = ROOT / "examples" / f"{name}.py"
        words = f"all --out examples-{name} --pairs 60 --held-out 8 --processes 1 --epochs 1"
        command = [sys.executable, str(path), *f"{words} --beams 2 --rows 3".split()]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]

    return run_it


RUNS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "benchmarks/alignment.py": _alignment, "benchmarks/decoders.py": _decoders,
    "benchmarks/before_after.py": _before_after,
    "benchmarks/cleaning.py": _cleaning, "benchmarks/cleaning_effect.py": _cleaning_effect,
    "benchmarks/growth.py": _growth, "benchmarks/preparation.py": _preparation,
    "benchmarks/encoders.py": _encoders, "benchmarks/families.py": _families,
    "benchmarks/finetuning.py": _finetuning, "benchmarks/reading.py": _reading,
    "benchmarks/few_labels.py": _few_labels, "benchmarks/pictures.py": _pictures,
    "benchmarks/forgetting.py": _forgetting, "benchmarks/generation.py": _generation,
    "benchmarks/interrupted_runs.py": _interrupted_runs,
    "benchmarks/remote_shards.py": _remote_shards, "benchmarks/run_all.py": _run_all,
    "benchmarks/harness.py": _harness, "benchmarks/methods.py": _methods,
    "benchmarks/onnx_export.py": _onnx,
    "benchmarks/neighbor.py": _neighbor, "benchmarks/start.py": _start,
    "benchmarks/own_text.py": _own_text, "benchmarks/planned_costs.py": _planned_costs,
    "benchmarks/preferences.py": _preferences,
    "benchmarks/pretraining.py": _pretraining,
    "benchmarks/static_vectors.py": _static_vectors, "benchmarks/window.py": _window,
    "benchmarks/web_runs.py": _web_runs,
    "benchmarks/word2vec.py": _word2vec, "benchmarks/word_vectors.py": _word_vectors,
    "scripts/demo_data.py": _demo_data, "scripts/objective_table.py": _objective_table,
    "scripts/mini_en.py": _mini_en, "scripts/reliability.py": _reliability,
    "examples/bytecode.py": _example("bytecode"), "examples/counts.py": _example("counts"),
    "examples/integration.py": _example("integration"), "examples/deblurring.py": _deblurring,
}  # fmt: skip
QUICK = ("benchmarks/interrupted_runs.py",
         "benchmarks/window.py", "benchmarks/forgetting.py", "benchmarks/generation.py",
         "benchmarks/own_text.py", "scripts/demo_data.py")  # fmt: skip


def test_every_script_is_run_or_excluded_with_reason() -> None:
    assert {*RUNS, *NOT_RUN} == SCRIPTS


def test_make_bench_names_existing_scripts() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"(\w+/\w+\.py)", makefile)) <= SCRIPTS


@pytest.mark.parametrize(
    "script", [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in sorted(RUNS)]
)
@pytest.mark.filterwarnings("default")
def test_script_runs(script: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    RUNS[script](monkeypatch)
