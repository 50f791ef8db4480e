"""One run, asked by lm-evaluation-harness through our class and, its copy, through transformers.

    python benchmarks/harness.py RUN [--rows 500]

RUN is a folder of a decoder of ours that transformers has, too. Four tasks of local files, of the
four kinds of questions that the harness asks: which of two sentences (BLiMP), the last word of a
passage (LAMBADA: its likelihood, and written), whole articles (WikiText-2's counting, on the
held-out text of Wikipedia). Says both numbers of each metric, and how far apart they are.

Needs `pip install '.[lm-eval]' transformers`. Data: ../shared/data/zero_shot, wikipedia-en.
"""

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.models.huggingface import HFLM

from unmask.inference.lm_eval import UnmaskLM
from unmask.text.documents import read_documents

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the lines of a compressed file."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def articles() -> Iterator[dict[str, Any]]:
    """Read articles that no run has seen."""
    for document in read_documents([DATA / "wikipedia-en" / "valid.txt.xz"]):
        yield {"page": document.text}


def task(folder: Path, name: str, lines: Iterator[dict[str, Any]], n: int, **more: Any) -> Any:
    """Write a task's file; return what the harness is to do with it."""
    path = folder / f"{name}.jsonl"
    some = list(islice(lines, n))
    path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        **more,
    }


def tasks(folder: Path, n: int) -> list[Any]:
    """Write all tasks."""
    pairs = list(rows(DATA / "zero_shot" / "blimp.jsonl.xz"))
    spread = iter(pairs[:: max(1, len(pairs) // n)])
    passages = list(rows(DATA / "zero_shot" / "lambada" / "test.jsonl.xz"))
    word = {"doc_to_text": "{{context}}", "doc_to_target": "{{' ' + continuation}}"}
    return [
        task(
            folder, "blimp", spread, n, output_type="multiple_choice", doc_to_text="",
            doc_to_target=0, doc_to_choice="{{[good, bad]}}",
        ),
        task(
            folder, "lambada", iter(passages), n, output_type="loglikelihood", **word,
            metric_list=[{"metric": "perplexity"}, {"metric": "acc"}],
        ),
        task(
            folder, "lambada_written", iter(passages), n // 5, output_type="generate_until", **word,
            generation_kwargs={"until": [" ", "\n"], "max_gen_toks": 8},
            metric_list=[{"metric": "exact_match"}],
        ),
        task(
            folder, "articles", articles(), n // 20, output_type="loglikelihood_rolling",
            doc_to_text="", doc_to_target="{{page}}",
            metric_list=[{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
        ),
    ]  # fmt: skip


def main() -> int:
    """Ask both and print what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = [sys.executable, "-m", "unmask.cli", "convert", str(args.run), str(folder / "copy")]
        subprocess.run(copy, check=True)
        output = list[dict[str, Any]]()
        ours, theirs = UnmaskLM(str(args.run)), HFLM(pretrained=str(folder / "copy"), device="cpu")
        for model in (ours, theirs):
            ask: Any = lm_eval.simple_evaluate
            output.append(ask(model, tasks=tasks(folder, args.rows), bootstrap_iters=0)["results"])
    print("\n| task | metric | Unmask | transformers | apart |\n| --- | --- | ---: | ---: | ---: |")
    for one, metrics in output[0].items():
        for metric, value in metrics.items():
            other = output[1][one][metric]
            if isinstance(value, float) and "stderr" not in metric:
                name = metric.partition(",")[0]
                print(f"| {one} | {name} | {value:.6f} | {other:.6f} | {abs(value - other):.1e} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
