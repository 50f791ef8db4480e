"""The list of runs, and their states."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import (
    SAVED,
    figures_of,
    held_lock,
    make_run,
    timing_line,
    training_line,
    workplace,
    write_lines,
)

from unmask.checkpoints.packed import PACKED_WEIGHTS
from unmask.finetuning.search import TRIALS_FILE
from unmask.finetuning.suite import SUITE_FILE
from unmask.preferences.job.result import MEASURES_FILE
from unmask.reports import report_data
from unmask.studies.study_run import STUDY_FILE
from unmask.web.runs import scan, summary
from unmask.web.runs.index import RunFilter, RunIndex
from unmask.web.runs.state import RunState, is_running, state_of

MODULES = (
    "unmask.web.workplace", "unmask.web.runs.index", "unmask.web.runs.series",
    "unmask.web.runs.edit", "unmask.web.runs.compare",
)  # fmt: skip
HEAVY = ("torch", "scipy", "sklearn", "transformers", "safetensors")


def test_no_heavy_library_is_imported_even_when_runs_are_listed_and_compared() -> None:
    code = f"""
import sys
from pathlib import Path
import {", ".join(MODULES)}
assert "numpy" not in sys.modules
from unmask.web.workplace import Workplace
from unmask.web.runs.index import RunIndex
place = Workplace(Path({str(SAVED)!r}))
index = RunIndex(place)
ids = [run.id for run in index.list()]
unmask.web.runs.compare.compare_runs(place, index, ids[:20])
print(len(ids), [name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1)[1] == "[]\n"


def test_names_of_files_are_those_of_the_jobs() -> None:
    assert (scan.SUITE_FILE, scan.STUDY_FILE) == (SUITE_FILE, STUDY_FILE)
    assert (scan.SEARCH_FILE, scan.MEASURES_FILE) == (TRIALS_FILE, MEASURES_FILE)
    assert (scan.RUN_FILE, scan.RESULTS_FILE) == (report_data.RUN_FILE, report_data.RESULTS_FILE)
    assert scan.SAMPLES_FILE == report_data.SAMPLES_FILE
    assert scan.BASELINES_FILE == report_data.BASELINES_FILE
    assert PACKED_WEIGHTS in scan._WEIGHTS


def test_runs_that_jobs_wrote_are_listed_rightly() -> None:
    index = RunIndex(workplace(SAVED))
    runs = {run.id: run for run in index.list()}
    assert runs["bert"].kind == "pretrain"
    assert runs["bert"].state == "finished"
    assert runs["bert"].model == "bert-tiny"
    assert (runs["bert"].step, runs["bert"].steps) == (60, 60)
    assert figures_of(runs["bert"]) == [
        ("Masked accuracy, held out", "17.6 %"), ("bigram baseline", "60.8 %"),
        ("unigram baseline", "17.6 %"), ("Next sentence loss, held out", "0.701 nats"),
    ]  # fmt: skip
    assert (runs["stopped"].state, runs["stopped"].step) == ("stopped", 30)
    assert set(runs["stopped"].has) == {"samples", "checkpoints"}
    assert (runs["tags"].kind, runs["tags"].task) == ("finetune", "tag")
    assert runs["word2vec"].headline[0].name == "Loss, in training"
    assert [run.notes for run in runs.values() if run.notes] == []
    assert {run.id for run in runs.values() if "model" not in run.has} == {
        "stopped", "study", "suite", "study/tuned/much", "study/tuned/little",
    }  # fmt: skip


def test_seeds_are_one_run_and_cells_are_listed_under_their_study() -> None:
    index = RunIndex(workplace(SAVED))
    runs = {run.id: run for run in index.list()}
    one = runs["suite/How-long"]
    assert (one.seeds, one.parent, one.step) == (("seed-0", "seed-1"), "suite", 28)
    assert one.headline[0].text == "0.221 ± 0.32"
    assert "suite/How-long/seed-0" not in runs
    assert (runs["suite"].n_runs, runs["suite"].headline[0].text) == (2, "53.6")
    assert (runs["study"].kind, runs["study"].n_runs) == ("study", 4)
    assert runs["study"].headline[0].text == "2 of 2"
    parents = {run.id: run.parent for run in index.list(RunFilter(parent="study"))}
    assert parents == dict.fromkeys(
        ("study/pretrained/much", "study/pretrained/little", "study/tuned/much",
         "study/tuned/little"), "study",
    )  # fmt: skip
    assert all(not run.parent for run in index.list(RunFilter(parent="")))
    for run_id in ("study", "suite/How-long", "bert"):
        assert index.get(run_id) == runs[run_id]


def test_runs_of_seeds_that_go_on_count_all_seeds(tmp_path: Path) -> None:
    recipe = {"task": "classify", "task_name": "mood", "seeds": 3, "baseline": True}
    folder = make_run(tmp_path / "a", kind="finetune", recipe=recipe, finished=False)
    for name in ("log.jsonl", "timing.jsonl"):
        (folder / name).unlink()
    for seed, done in (("seed-0", 20), ("seed-10", 5), ("random-seed-0", 1)):
        inside = folder / seed
        inside.mkdir()
        write_lines(inside / "timing.jsonl", (timing_line(s) for s in range(1, done + 1)))
        write_lines(inside / "log.jsonl", (training_line(s) for s in range(1, done + 1)))
    write_lines(folder / "seed-0" / "log.jsonl", [{"step": 9, "evaluation": {"f1": 0.5}}], "a")
    write_lines(folder / "random-seed-0" / "log.jsonl", [{"step": 9, "evaluation": {"f1": 0.1}}])
    (run,) = RunIndex(workplace(tmp_path)).list()
    assert (run.step, run.steps, run.seconds) == (26, 120, 13.0)
    assert (run.task, run.seeds) == ("mood", ("seed-0", "seed-10", "random-seed-0"))
    assert figures_of(run) == [("Mood F1, held out", "50.0 %")]


def test_preferences_lead_with_what_matters_before_and_after(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", kind="prefer")
    measures = {"before": {"reward": 0.5, "kl": 0}, "after": {"reward": 1.25, "kl": 2, "cut": 1}}
    (folder / "measures.json").write_text(json.dumps(measures))
    index = RunIndex(workplace(tmp_path))
    assert figures_of(index.get("a")) == [("Reward", "0.500 → 1.25"), ("KL divergence", "0 → 2.00")]
    (folder / "measures.json").write_text("[]")
    (run,) = index.list()
    assert run.notes == ("measures.json: must have measures before and after",)


def test_run_in_which_a_process_trains_is_running_until_that_is_killed(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", done=5)
    index = RunIndex(workplace(tmp_path))
    assert index.get("a").state == "stopped"
    with held_lock(folder):
        assert is_running(folder)
        assert [run.state for run in index.list()] == ["running"]
    assert index.get("a").state == "stopped"


def test_folder_with_nothing_but_a_held_lock_is_a_run_that_begins(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    index = RunIndex(workplace(tmp_path))
    with held_lock(tmp_path / "new"):
        assert [(run.id, run.state, run.kind) for run in index.list()] == [
            ("new", "running", "unknown")
        ]
    assert index.list() == []


def test_study_runs_while_one_of_its_cells_does(tmp_path: Path) -> None:
    shutil.copytree(SAVED / "study", tmp_path / "study")
    place = tmp_path / "study" / ".running" / "much" / "pretraining"
    place.mkdir(parents=True)
    index = RunIndex(workplace(tmp_path))
    with held_lock(place):
        assert index.get("study").state == "running"
        assert index.get("study/pretrained/much").state == "finished"
    assert index.get("study").state == "finished"


def test_states_of_jobs_count_where_no_process_trains(tmp_path: Path) -> None:
    make_run(tmp_path / "a", done=5)
    make_run(tmp_path / "b")
    states: dict[str, RunState] = {"a": "crashed", "b": "crashed"}
    index = RunIndex(workplace(tmp_path), lambda: states)
    assert {run.id: run.state for run in index.list()} == {"a": "crashed", "b": "finished"}
    states["b"] = "queued"
    assert [(run.id, run.state) for run in index.list()] == [("b", "queued"), ("a", "crashed")]
    assert state_of(tmp_path / "none", is_finished=False) == "stopped"


def test_filters_and_order(tmp_path: Path) -> None:
    for n, name in enumerate(("one", "two", "three")):
        folder = make_run(tmp_path / name, card=f"model-{name}", done=20 if n else 3)
        for path in folder.iterdir():
            os.utime(path, (1000 + n, 1000 + n))
    place = workplace(tmp_path)
    place.write_tags({"two": ["good", "mine"]})
    index = RunIndex(place)

    def ids(**fields: str) -> list[str]:
        return [run.id for run in index.list(RunFilter(**fields))]

    assert ids() == ["three", "two", "one"]
    assert ids(text="MODEL-t good") == ["two"]
    assert ids(tag="good") == ["two"]
    assert ids(state="stopped") == ["one"]
    assert ids(kind="finetune") == []
    with held_lock(tmp_path / "one"):
        assert ids() == ["one", "three", "two"]


def test_only_changed_folders_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = summary._read_run

    def counted(*args: object) -> summary.RunSummary:
        read.append(args[1].id)
        return original(*args)

    monkeypatch.setattr(summary, "_read_run", counted)
    for name in "ab":
        make_run(tmp_path / name, done=5)
    index = RunIndex(workplace(tmp_path))
    index.list()
    index.list()
    assert sorted(read) == ["a", "b"]
    write_lines(tmp_path / "a" / "timing.jsonl", [timing_line(6)], "a")
    assert {run.id: run.step for run in index.list()} == {"a": 6, "b": 5}
    shutil.rmtree(tmp_path / "b")
    assert [run.id for run in index.list()] == ["a"]
    assert read[2:] == ["a"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("unmask.json", b"{"), ("unmask.json", b"[]"), ("unmask.json", b'{"format": 99}'),
        ("unmask.json", b"\xff"), ("unmask.json", b"[" * 5000), ("results.json", b'{"task": 1}'),
        ("results.json", b"null"), ("baselines.json", b"1"),
    ],
)  # fmt: skip
def test_damaged_file_is_noted_in_one_line_without_its_path(
    tmp_path: Path, name: str, content: bytes
) -> None:
    folder = make_run(tmp_path / "a", kind="finetune" if name == "results.json" else "pretrain")
    (folder / name).write_bytes(content)
    (run,) = RunIndex(workplace(tmp_path)).list()
    assert len(run.notes) == 1
    assert name in run.notes[0]
    assert "\n" not in run.notes[0]
    assert str(tmp_path) not in run.notes[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": 1}, {"recipe": {"steps": "x"}}, {"card": ["a"]}, {"kind": 5}, {"finished": "no"},
        {"card": "\udce9"}, {"card": "a\n" * 900}, {"recipe": {"task_name": {"a": 1}}},
        {"kind": "finetune", "recipe": {"seeds": "many", "baseline": 1}},
    ],
)  # fmt: skip
def test_strange_records_are_listed(tmp_path: Path, changes: dict[str, object]) -> None:
    make_run(tmp_path / "a", **changes)
    (run,) = RunIndex(workplace(tmp_path)).list()
    assert len(run.model) <= summary.MAX_TEXT
    run.model.encode()


def test_damaged_logs_are_listed(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    for content in (b"", b"\xff" * 99, b'{"step": "x"}\n', b'{"seconds": 1.2.3}\n', b"1"):
        for name in ("log.jsonl", "timing.jsonl"):
            (folder / name).write_bytes(content)
        (run,) = RunIndex(workplace(tmp_path)).list()
        assert run.kind == "pretrain"


def test_evaluation_far_from_the_end_of_a_log_is_found(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", steps=400)
    before = {"step": 1, "evaluation": {"masked_loss": 3.5, "masked_accuracy": 0.125}}
    write_lines(folder / "log.jsonl", [before, *map(training_line, range(1, 401))])
    (run,) = RunIndex(workplace(tmp_path)).list()
    assert [figure.value for figure in run.headline] == [0.125, 3.5]


def test_time_of_a_run_is_that_of_all_its_processes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    write_lines(folder / "timing.jsonl", map(timing_line, (2, 4, 1, 3)))
    assert RunIndex(workplace(tmp_path)).get("a").seconds == 3.5


def test_what_is_hidden_linked_or_no_run_is_not_listed(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run = make_run(root / "group" / "a")
    make_run(root / ".unmask" / "trash" / "x" / "run")
    make_run(tmp_path / "else")
    (root / "link").symlink_to(tmp_path / "else")
    (root / "text").mkdir()
    make_run(run / "checkpoints" / "step-1")
    (root / os.fsdecode(b"\xe9")).mkdir()
    (root / "file").write_text("")
    index = RunIndex(workplace(root))
    assert [one.id for one in index.list()] == ["group/a"]
    for run_id in ("text", "group", "nothing"):
        with pytest.raises(FileNotFoundError, match=f"{run_id}: no such run"):
            index.get(run_id)
    for run_id in ("link", "../else", ".unmask/trash/x/run"):
        with pytest.raises(ValueError, match=r"leads out|not a run's id"):
            index.get(run_id)
    assert RunIndex(workplace(tmp_path / "none")).list() == []


def test_folder_removed_in_the_middle_of_listing_does_not_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        make_run(tmp_path / name)
    original = summary.read_saved

    def read_saved(path: Path) -> dict[str, object]:
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        return original(path)

    monkeypatch.setattr(summary, "read_saved", read_saved)
    index = RunIndex(workplace(tmp_path))
    assert {"a", "c"} <= {run.id for run in index.list()}
    assert {run.id for run in index.list()} == {"a", "c"}


def test_model_without_a_run_is_listed_as_a_model(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "hub" / name).write_text("{}")
    (run,) = RunIndex(workplace(tmp_path)).list()
    assert (run.kind, run.state, run.has, run.notes) == ("model", "finished", ("model",), ())
