"""A job killed at any write or renaming resumes to equal bytes; a finished one stays so."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kills import Job, check
from toy_text import corpus
from trials import Trials

from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.methods.method import SourceEncoder, parse_method
from unmask.finetuning.run import run_finetuning as tune
from unmask.inference.open_model import load
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.word_vectors.align.align import align

SMALL = (
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}", "init_previous_token_heads=0",
    "vocab_size=300", "sequence_length=16", "batch_tokens=64", "log_every=1", "evaluate_every=2",
    "dev_fraction=0.1",
)  # fmt: skip
TWO_STACKS = (
    "architecture={encoder={d_model=16,d_ff=32,n_layers=1,n_heads=2,head_dim=8},"
    "decoder={d_model=16,d_ff=32,n_layers=1,n_heads=2,head_dim=8}}",
    *SMALL[1:],
)
CHARACTERS = (
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2,local_attention_block=16}",
    *SMALL[3:],
)
ELMO = (
    "architecture={d_model=16,embedding_size=8,d_ff=24,character_cnn={filters=[[1,8],[3,8]]}}",
    *SMALL[2:],
)
WORDS = ("architecture={d_model=8}", "log_every=1")


def pretraining(name: str, *changes: str) -> Job:
    def job(home: Path, out: Path, again: bool) -> object:
        long = {} if changes[-2:] == WORDS else {"steps": 3}
        return pretrain(
            name, data=home / "text.txt", out=out, quiet=True, changes=changes, threads=1,
            checkpoint_every=2, resume=again, **long,
        )  # fmt: skip

    return job


def taught(home: Path, out: Path, again: bool) -> object:
    """Learn from a teacher whose scores are kept in the run's own folder."""
    return pretrain(
        "bert-tiny", data=home / "text.txt", out=out, quiet=True, threads=1, steps=3,
        changes=[c for c in SMALL if "vocab" not in c], checkpoint_every=2, resume=again,
        teacher=str(home / "bert"), distill=["soft:top_k=8", f"teacher:store={out / 'scores'}"],
    )  # fmt: skip


def tuning(base: str, task: str = "classify", **more: object) -> Job:
    def job(home: Path, out: Path, again: bool) -> object:
        rows = home / ("pairs.tsv" if task == "generate" else "rows.tsv")
        more.setdefault("epochs", 1.0)
        output = FinetuneConfig(
            base=str(home / base) if (home / base).is_dir() else base,
            task=task,
            train=str(rows),
            dev=str(rows),
            batch_size=8,
            max_length=16,
            evaluate_every=1,
            learning_rate=1e-3,
            **more,
        )
        return tune(output, output_folder=out, resume=again and out.exists(), terminal=None)

    return job


def preparing(home: Path, out: Path, again: bool) -> object:
    return prepare(home / "text.txt", out=out, vocab_size=120, quiet=True)


def aligning(home: Path, out: Path, again: bool) -> object:
    if not (out / "align.json").exists():  # it does not go on: it is whole, or made anew
        return align(home / "a.vec", home / "a.vec", identical=True, out=out)
    return None


def converting(home: Path, out: Path, again: bool) -> object:
    if not (out / "config.json").exists():
        return load(home / "electra").save(out)
    return None


JOBS: dict[str, Job] = {
    "pretrain electra": pretraining("electra-mini", *SMALL),
    "pretrain bert": pretraining("bert-tiny", *SMALL),
    "pretrain taught": taught,
    "pretrain gpt2": pretraining("gpt2-mini", *SMALL),
    "pretrain coco-lm": pretraining("coco-lm-mini", *SMALL),
    "pretrain t5": pretraining("t5-mini", *TWO_STACKS),
    "pretrain canine": pretraining("canine-mini", *CHARACTERS),
    "pretrain elmo": pretraining("elmo-mini", *ELMO),
    "fasttext": pretraining(
        "fasttext-mini", "objective.phrase_detection={}", "dev_fraction=0.0", *WORDS
    ),
    "glove": pretraining("glove-mini", *WORDS),
    "lsa": pretraining("lsa-mini", *WORDS),
    "tune": tuning("electra"),
    "tune seeds": tuning("electra", seeds=2, baseline=True),
    "tune lora": tuning("electra", tune=parse_method("lora")),
    "tune mean": tuning("electra", epochs=2.0, average=2),
    "tune source": tuning("bart", "generate", tune=SourceEncoder(n_layers=1, vocab_size=300)),
    "prepare": preparing,
    "align": aligning,
    "convert": converting,
}


def texts(home: Path) -> None:
    """Write texts, labelled rows, word vectors."""
    (home / "text.txt").write_text(corpus(12))
    sentences = corpus(6).replace("\n", " ").split(". ")[:24]
    rows = [f"{s}\t{'night' if 'night' in s else 'day'}" for s in sentences]
    (home / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    pairs = [f"{s}\t{' '.join(s.split()[:2])}" for s in sentences]
    (home / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n")
    words = sorted({w for s in sentences for w in s.split()})
    vectors = [f"{w} {' '.join(str((i * k) % 7 - 3) for k in range(1, 5))}" for i, w in
               enumerate(words, 1)]  # fmt: skip
    (home / "a.vec").write_text("\n".join([f"{len(words)} 4", *vectors]) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    texts(home)
    yield home
    shutil.rmtree(home)


def at_the_end(events: list[str]) -> set[int]:
    """Choose the renamings with which the model comes into its folder, and one before them."""
    last = [i for i, what in enumerate(events) if ".final" in what]
    moved = [i for i in last if "rename" in events[i]]
    return {*moved[::3], moved[-1], events.index(events[last[0]])}


def test_model_with_subfolder_is_finished_after_any_kill(
    home: Path, tmp_path, trials: Trials
) -> None:
    check(JOBS["pretrain electra"], home, tmp_path / "run", at_the_end, trials)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_job_killed_at_any_instant_ends_as_uninterrupted(
    name: str, home: Path, tmp_path, trials: Trials
) -> None:
    if not (home / "electra").exists():
        JOBS["pretrain electra"](home, home / "electra", False)
    if name == "pretrain taught":
        JOBS["pretrain bert"](home, home / "bert", False)
    if name == "tune source":
        pretrain(
            "bart-mini", data=home / "text.txt", out=home / "bart", quiet=True, steps=2,
            changes=TWO_STACKS, threads=1,
        )  # fmt: skip
    alike = () if name == "pretrain electra" else (" data/", " data")  # of all that is pretrained

    def chosen(events: list[str]) -> set[int]:
        return {i for i, what in enumerate(events) if not any(one in what for one in alike)}

    check(JOBS[name], home, tmp_path / "run", chosen, trials)


@pytest.mark.parametrize("kind", ["tokens", "marks", "documents"])
@pytest.mark.parametrize("name", ["bert-tiny", "lsa-mini"])
def test_nothing_is_saved_from_a_damaged_shard(name: str, kind: str, home: Path, tmp_path) -> None:
    data, out = tmp_path / "data", tmp_path / "run"
    prepare(home / "text.txt", out=data, model=name, quiet=True, vocab_size=150)
    path = data / f"00000.{kind}"
    whole = bytearray(path.read_bytes())
    whole[-2] ^= 1 if kind == "tokens" else 8
    path.write_bytes(whole)
    changes = WORDS if name == "lsa-mini" else [c for c in SMALL if "vocab" not in c]
    with pytest.raises(ValueError, match=rf"00000\.{kind}"):
        pretrain(
            name, data=data, out=out, quiet=True, changes=changes, threads=1,
            **({} if name == "lsa-mini" else {"steps": 2}),
        )  # fmt: skip
    assert not list(out.rglob("*.safetensors"))
    with pytest.raises(ValueError, match=rf"00000\.{kind}"):
        prepare(home / "text.txt", out=data, model=name, quiet=True, vocab_size=150)


@pytest.mark.thorough
def test_report_failure_does_not_prevent_saving(
    home: Path, tmp_path: Path, monkeypatch, caplog
) -> None:
    job, out = JOBS["pretrain bert"], tmp_path / "run"
    job(home, out, False)
    whole = (out / "model.safetensors").read_bytes()
    for name in ("samples.json", "baselines.json"):
        (out / name).write_text("{")
    for name in ("config.json", "model.safetensors"):
        (out / name).unlink()
    job(home, out, True)
    assert (out / "model.safetensors").read_bytes() == whole
    assert "samples.json" in caplog.text
    assert (out / "report.html").is_file()

    def broken(*_: object) -> None:
        raise RuntimeError("a picture cannot be made")

    for location in ("train.held_out_samples", "run_folder.write_report", "train.count_bigrams"):
        monkeypatch.setattr(f"unmask.jobs.pretrain.{location}", broken)
    monkeypatch.setattr("unmask.inference.export.model_card", broken)
    job(home, tmp_path / "other", False)
    assert (tmp_path / "other" / "model.safetensors").read_bytes() == whole
    assert caplog.text.count("a picture cannot be made") >= 4


@pytest.mark.thorough
def test_run_files_are_verified_on_open(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    JOBS["pretrain electra"](home, out, False)
    load(out)
    for name in ("model.safetensors", "tokenizer.json", "generator/model.safetensors"):
        whole = (out / name).read_bytes()
        (out / name).write_bytes(whole[:-3])
        with pytest.raises(ValueError, match=rf"{name}: truncated or damaged"):
            load(out)
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 4
        (out / name).write_bytes(damaged)
        if "/" not in name:  # the generator is read by whoever trains on
            with pytest.raises(ValueError, match=rf"{name}: .*damaged"):
                load(out)
        (out / name).write_bytes(whole)
    (out / "generator" / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"generator/config\.json: missing"):
        load(out)
