"""A job killed at any write or renaming resumes to equal bytes; a finished one stays so."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import kinds, spread
from kills import check
from tiny_jobs import JOBS, SMALL, WORDS, ready, texts
from trials import Trials

from unmask.inference.open_model import load
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain


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


@pytest.mark.parametrize("name", kinds([name for name in JOBS if name != "study"]))
def test_job_killed_at_some_instants_ends_as_uninterrupted(
    name: str, home: Path, tmp_path, trials: Trials
) -> None:
    check(
        ready(name, home), home, tmp_path / "run", lambda events: {*spread(len(events), 16)}, trials
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in JOBS if n != "study"])
def test_job_killed_at_any_instant_ends_as_uninterrupted(
    name: str, home: Path, tmp_path, trials: Trials
) -> None:
    job = ready(name, home)
    alike = () if name == "pretrain electra" else (" data/", " data")  # of all that is pretrained

    def chosen(events: list[str]) -> set[int]:
        return {i for i, what in enumerate(events) if not any(one in what for one in alike)}

    check(job, home, tmp_path / "run", chosen, trials)


@pytest.mark.trials("checkpoints")
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
