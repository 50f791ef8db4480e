"""One table of word vectors: each method on the same words, beside gensim at equal settings.

    python benchmarks/word_vectors.py --data TEXT... --tests PAIRS... --out FOLDER

The text is tokenized once (`unmask prepare`), so that all have the same vocabulary. Each method is
a process of its own, `unmask pretrain` with all cores; its seconds are those of the process, pairs
counted, and its memory the most that it held; words a second are those of the text, once, however
many epochs there are. gensim reads the same sentences from a file, one a
line, which is its fastest way, with as many threads; its seconds are those of building the
vocabulary and learning. What is finished is not done again.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from unmask.inference.vectors.load_word_vectors import evaluate_word_vectors, load_word_vectors
from unmask.shards.read import TokenShards
from unmask.text.documents import list_files
from unmask.word_vectors.evaluation.similarity import WordSimilarityScore
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.word_vectors.train.corpus import corpus_from_shards, count_ids, lexicon_from_tokenizer

OURS = {
    "svd-ppmi-mini": (), "word2vec-cbow-mini": (), "word2vec-skipgram-mini": (),
    "fasttext-mini": (), "glove-mini": (),
}  # fmt: skip
THEIRS = {"gensim-cbow": (0, 0.05), "gensim-skipgram": (1, 0.025)}
SHOWN = ("WS-353-ALL", "SIMLEX-999", "MEN-TR-3k", "RW-STANFORD")


def learn(name: str, width: int, shards: Path, out: Path, threads: int) -> dict[str, float]:
    """Learn vectors by the command, and give what it cost."""
    command = [
        sys.executable, "-m", "unmask.cli", "pretrain", name, "--data", str(shards), "--out",
        str(out), "--threads", str(threads), "--quiet", "--set", f"architecture.d_model={width}",
    ]  # fmt: skip
    shutil.rmtree(out, ignore_errors=True)  # of a process that was killed: its time is not known
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    memory = json.loads((out / "timing.jsonl").read_text().splitlines()[-1])["memory_bytes"]
    return {"seconds": seconds, "memory": memory}


def gensim(
    kind: str, width: int, sentences: Path, threads: int
) -> tuple[KeyedVectors, dict[str, float]]:
    """Learn with gensim at the settings of the cards."""
    from gensim.models import Word2Vec

    skipgram, rate = THEIRS[kind]
    began = time.perf_counter()
    model = Word2Vec(
        corpus_file=str(sentences), vector_size=width, window=5, negative=5, sample=1e-3,
        sg=skipgram, alpha=rate, min_alpha=1e-4, min_count=1, workers=threads, epochs=5,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return KeyedVectors.from_gensim(model.wv), {"seconds": seconds, "memory": memory}


def write_sentences(shards: TokenShards, out: Path) -> int:
    """Write the words that get a vector, a sentence a line; give how many there are."""
    corpus = corpus_from_shards(shards)
    words = lexicon_from_tokenizer(shards.tokenizer, count_ids(corpus), min_count=1)
    with out.open("w", encoding="utf-8") as file:
        for chunk in corpus.iter_chunks(2**20):
            for start, end in chunk.sentences.tolist():
                rows = words.row_of[chunk.part.ids[start:end]]
                file.write(" ".join(words.words[i] for i in rows[rows >= 0].tolist()) + "\n")
    return words.n_words


def scores(space: KeyedVectors, tests: list[str]) -> dict[str, float]:
    """Give Spearman's rank correlation of each file of pairs (with unknown ones), and analogies."""
    found: dict[str, float] = {}
    for one in evaluate_word_vectors(space, tests, terminal=None):
        if isinstance(one, WordSimilarityScore):
            found[one.name] = one.spearman_all or 0.0
        else:
            found[one.name] = one.total.accuracy_add or 0.0
    return found


def main() -> None:
    """Do what is not done, then print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--widths", default="100,300")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    list_files(given.tests)  # said before hours are spent
    given.out.mkdir(parents=True, exist_ok=True)
    shards, sentences = given.out / "shards", given.out / "sentences.txt"
    if not (shards / "shards.json").is_file():
        prepare = [sys.executable, "-m", "unmask.cli", "prepare", *given.data, "--out", str(shards)]
        subprocess.run([*prepare, "--model", "word2vec-skipgram-mini"], check=True)
    n_words = write_sentences(TokenShards.open(shards), sentences)
    for width in map(int, given.widths.split(",")):
        for name in [*OURS, *THEIRS]:
            result = given.out / f"{name}-{width}.json"
            if result.exists() or given.only not in name:
                continue
            if name in OURS:
                run = given.out / f"{name}-{width}"
                cost = learn(name, width, shards, run, given.threads)
                space = load_word_vectors(run)
            else:
                # In a child, so that its memory is its own.
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
                    asked = child.submit(gensim, name, width, sentences, given.threads)
                    space, cost = asked.result()
            result.write_text(json.dumps(cost | {"scores": scores(space, given.tests)}))
            print(result, flush=True)
    table(given.out, n_words)


def table(out: Path, n_words: int) -> None:
    """Print all results, and GloVe's loss at the end of each epoch."""
    print(f"{n_words:,} words of text")
    print("| | seconds | words/s | memory, GB |", " | ".join(SHOWN), "| all sets | analogies |")
    print("| --- |" + " ---: |" * (5 + len(SHOWN)))
    for path in sorted(out.glob("*.json")):
        found = json.loads(path.read_text())
        seconds, memory = found["seconds"], found["memory"] / 1e9
        cells = [f"{seconds:,.0f}", f"{n_words / seconds:,.0f}", f"{memory:.1f}"]
        asked = {name for name in found["scores"] if name.startswith("questions")}
        pairs = {name: v for name, v in found["scores"].items() if name not in asked}
        shown = [pairs.get(name, 0.0) for name in SHOWN]
        shown += [sum(pairs.values()) / max(len(pairs), 1)]
        shown += [sum(found["scores"][name] for name in asked)]
        print(f"| {path.stem} |", " | ".join([*cells, *(f"{100 * x:.1f}" for x in shown)]), "|")
    for log in sorted(out.glob("glove-*/log.jsonl")):
        steps = map(json.loads, log.read_text().splitlines())
        losses = " ".join(f"{step['loss']:.4f}" for step in steps if "loss" in step)
        print(f"{log.parent.name}, loss by epoch: {losses}")


if __name__ == "__main__":
    main()
