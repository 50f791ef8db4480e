"""Suites: files are found under every spelling, missing ones are named, columns as written."""

import json
import lzma
import re
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from unmask.config import from_dict, to_dict
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.metrics.metric import METRICS
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.multiple_choice_tables import infer_label_format, read_choice_examples
from unmask.tasks.readers.squad import parse_answers
from unmask.tasks.readers.tables import Table, read_table
from unmask.tasks.suites.benchmark import (
    Benchmark,
    BenchmarkFiles,
    LocatedBenchmark,
    Suite,
    fetch_files,
    fetch_split,
)
from unmask.tasks.suites.bundled import SUITES, SUITES_FOLDER, find_suite
from unmask.tasks.task import TaskColumns
from unmask.tasks.text_templates import parse_template

SHARED = Path(__file__).parents[3] / "shared" / "data"

PUBLISHED = {
    "CoLA": (8551, 527, None),
    "SST-2": (67349, 872, None),
    "MRPC": (3668, 408, 1725),
    "STS-B": (5749, 1500, 1379),
    "QQP": (10000, 10000, None),
    "RTE": (2490, 277, None),
    "WNLI": (635, 71, None),
    "SICK entailment": (4500, 500, 4927),
    "SICK relatedness": (4500, 500, 4927),
    "MNLI subset": (6181, 689, 1000),
    "CommitmentBank": (250, 56, None),
    "AG News": (10001, None, 7600),
    "TREC coarse": (5452, None, 500),
    "TREC fine": (5452, None, 500),
    "SST-5": (8544, 1101, 2210),
    "IMDb": (25000, None, 25000),
    "CoNLL-2003": (14041, 3250, 3453),
    "CoNLL-2000": (8936, None, 2012),
    "WikiANN": (20000, 10000, 10000),
    "UD English EWT": (12544, 2001, 2077),
    "SQuADShifts Wikipedia": (6081, 1857, None),
    "XQuAD English": (6081, 1857, 1190),
    "DREAM": (6116, 2040, 2041),
    "ROC story cloze": (1871, None, 1871),
    "AESLC": (14436, 1960, 1906),
    "SciTLDR": (1992, 619, 618),
}
"""Rows of train, dev and test; of what the shared data hold a part of, of that part."""
LARGE = 6000
"""Rows: larger benchmarks are read whole by the slow tests alone; `find` itself reads headers."""


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """Some of GLUE as its own archive has it."""
    rows = "gj04\t1\t\tThey sang.\ngj04\t0\t*\tThey sings.\n"
    put(tmp_path, "CoLA/train.tsv", rows)
    put(tmp_path, "CoLA/dev.tsv", rows)
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    put(tmp_path, "MRPC/train.tsv", header + "1\t1\t2\ta\tb\n")
    put(tmp_path, "MRPC/dev.tsv", header + "0\t1\t2\ta\tb\n")
    put(tmp_path, "MRPC/test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta\tb\n")
    put(tmp_path, "STS-B/train.tsv", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t2.5\n")
    put(tmp_path, "STS-B/test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    packed = lzma.compress(b"sentence\tlabel\ngood\t1\n")
    put(tmp_path, "SST-2/readme", "")
    (tmp_path / "SST-2/train.tsv.xz").write_bytes(packed)
    put(tmp_path, "RTE/train.tsv", "index\tsentence1\tsentence2\tgold\n0\ta\tb\tentailment\n")
    return tmp_path


def by_name(entries: list[LocatedBenchmark]) -> dict[str, LocatedBenchmark]:
    return {entry.name: entry for entry in entries}


def test_files_are_found_in_original_and_own_layout(glue: Path) -> None:
    found = by_name(find_suite("glue", glue)[0])
    assert list(found) == ["CoLA", "SST-2", "MRPC", "STS-B"]
    cola, mrpc = found["CoLA"], found["MRPC"]
    assert cola.column_names == ("source", "label", "original_mark", "sentence")
    assert read_table(cola.train, header=cola.column_names).column("sentence") == [
        "They sang.",
        "They sings.",
    ]
    assert (mrpc.text, mrpc.label) == (("#1 String", "#2 String"), "Quality")
    assert (mrpc.dev, mrpc.test) == (str(glue / "MRPC/dev.tsv"), None)
    assert found["SST-2"].train == str(glue / "SST-2/train.tsv.xz")
    put(glue, "CoLA/train.tsv", "source\tlabel\toriginal_mark\tsentence\na\t1\t\tThey sang.\n")
    assert by_name(find_suite("glue", glue)[0])["CoLA"].column_names == ()


def test_suite_folder_within_the_given_one_is_found(glue: Path) -> None:
    (glue / "glue").mkdir()
    for name in ("CoLA", "MRPC", "STS-B", "SST-2", "RTE"):
        (glue / name).rename(glue / "glue" / name)
    assert by_name(find_suite("glue", glue)[0])["CoLA"].train == str(glue / "glue/CoLA/train.tsv")


def test_missing_files_are_reported(glue: Path) -> None:
    notes = find_suite("glue", glue)[1]
    assert "QNLI is left out: there is no QNLI/train.tsv" in notes
    assert "SST-2 has no dev file: there is no SST-2/dev.tsv" in notes
    rte = glue / "RTE/train.tsv"
    assert f"RTE is left out: {rte} has no column 'label' (columns: 'index', 'sentence1', "\
        "'sentence2', 'gold')" in notes  # fmt: skip
    test = glue / "STS-B/test.tsv"
    assert f"STS-B has no test file: {test} has no column 'score'" in " ".join(notes)
    untested, notes = find_suite("glue", glue, include_test=False)
    assert {entry.test for entry in untested} == {None}
    assert "SST-2 has no dev file: there is no SST-2/dev.tsv" in notes
    assert "test file" not in " ".join(notes)
    assert not any(note.startswith(("MRPC", "CoLA")) for note in notes)


def test_searched_files_are_listed_once_per_suite(tmp_path: Path, glue: Path) -> None:
    (tmp_path / "void").mkdir()
    with pytest.raises(FileNotFoundError) as caught:
        find_suite("glue", tmp_path / "void")
    assert str(caught.value).count("CoLA/train.tsv") == 1
    assert any("GLUE's own average" in note for note in find_suite("glue", glue)[1])
    assert not any("GLUE" in note for note in find_suite("topics")[1])


def test_transfer_benchmark_needs_its_own_test_file(tmp_path: Path) -> None:
    put(tmp_path, "squad/train-v1.1.json", "{}")
    found, notes = find_suite("questions", tmp_path)
    assert list(by_name(found)) == ["SQuAD"]
    assert "XQuAD English is left out: there is no xquad/xquad.en.json" in notes
    put(tmp_path, "xquad/xquad.en.json", "{}")
    assert by_name(find_suite("questions", tmp_path)[0])["XQuAD English"].dev is None


def test_unknown_suite_or_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown suite 'glu'; did you mean 'glue'\? \(known: "
                       r"as-text, choices, glue, .*\); or name a TOML file"):  # fmt: skip
        find_suite("glu", tmp_path)
    with pytest.raises(FileNotFoundError, match="none: no such folder"):
        find_suite("glue", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"no file of the suite 'glue' .*CoLA/tr"):
        find_suite("glue", tmp_path)


OWN = """
[[benchmarks]]
name = "spam"
task = "classify"
labels = ["ham", "spam"]
files = [{train = "sms/train.tsv", dev = "sms/dev.tsv", text = ["message"], label = "kind"}]

[[benchmarks]]
name = "here or there"
task = "pairs"
metric = "macro_f1"
files = [{train = "pairs.jsonl"}, {train = "hf:owner/pairs::train"}]
"""


def test_user_suite_is_read_from_toml(tmp_path: Path) -> None:
    path = put(tmp_path, "mine.toml", OWN)
    put(tmp_path, "sms/train.tsv", "kind\tmessage\nham\thi\n")
    (spam, pairs), notes = find_suite(str(path))
    assert (spam.train, spam.text, spam.label) == (
        str(tmp_path / "sms/train.tsv"), ("message",), "kind",
    )  # fmt: skip
    assert spam.labels == ("ham", "spam")
    assert notes == ["spam has no dev file: there is no sms/dev.tsv"]
    assert (pairs.train, pairs.text, pairs.metric) == ("hf:owner/pairs::train", (), "macro_f1")
    put(tmp_path, "pairs.jsonl", "{}")
    assert find_suite(str(path))[0][1].train == str(tmp_path / "pairs.jsonl")
    (tmp_path / "data").mkdir()
    assert [entry.name for entry in find_suite(str(path), tmp_path / "data")[0]] == [
        "here or there"
    ]


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", r"mine\.toml: not TOML"),
        ("", r"mine\.toml: Suite lacks benchmarks"),
        ("benchmarks = []", r"mine\.toml: suite 'mine' has no benchmarks"),
        ("benchmark = []", r"mine\.toml: unknown key 'benchmark'; did you mean 'benchmarks'\?"),
        (OWN.replace("classify", "classy"), r"benchmarks\[0\]\.task must be one of .*'classify'"),
        (OWN.replace("train =", "trane ="), r"unknown key 'benchmarks\[0\]\.files\[0\]\.trane'"),
        (OWN.replace('["message"]', '"message"'), r"files\[0\]\.text must be a list, got '"),
        (OWN.replace('"kind"', '"message"'), r"column 'message' is both text and label"),
        (OWN.replace('"here or there"', '"spam"'), r"suite 'mine' has two benchmarks 'spam'"),
        (OWN.replace('files = [{train = "pairs.jsonl"}, {train = "hf:owner/pairs::train"}]', ""),
         r"mine\.toml: benchmarks\[1\] lacks files"),
    ],
)  # fmt: skip
def test_each_toml_mistake_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = put(tmp_path, "mine.toml", text)
    with pytest.raises(ValueError, match=message) as caught:
        find_suite(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_toml_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.toml: no such file"):
        find_suite(str(tmp_path / "none.toml"))


def test_list_of_abstract_sentences_keeps_its_start(tmp_path: Path) -> None:
    """Other lists are turns of a dialog, of which the newest stay."""
    for split in ("train", "dev", "test"):
        line = {"source": ["We ask.", "We answer."], "target": ["An answer.", "It is known."]}
        put(tmp_path, f"SciTLDR-A/{split}.jsonl", json.dumps(line) + "\n")
    (entry,), _ = find_suite("summaries", tmp_path)
    table = read_table(entry.train, header=entry.column_names)
    columns = TaskColumns(texts=entry.text, label=entry.label)
    files = TASK_KINDS[entry.task].reader
    inferred = files.infer_options_from_table(table, columns, "strict", entry.options)
    assert parse_template(inferred["template"], "template").truncation_keeps == "start"
    dialog = files.infer_options_from_table(table, columns, "strict", {})
    assert parse_template(dialog["template"], "template").truncation_keeps == "end"


def test_without_folder_the_hub_is_listed_but_not_fetched(monkeypatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", never)
    for name, suite in SUITES.items():
        found, notes = find_suite(name)
        left_out = {note.split(" is left out")[0] for note in notes}
        assert [e.name for e in found] == [
            one.name for one in suite.benchmarks if one.name not in left_out
        ]
        assert all(entry.train.startswith("hf:") for entry in found)
    assert by_name(find_suite("glue")[0])["MNLI"].dev == "hf:nyu-mll/glue:mnli:validation_matched"
    assert "ROC story cloze is left out: it is not on the Hub" in find_suite("choices")[1][0]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch) -> list[tuple[str, str]]:
    """A folder in place of the Hub's branch of Parquet files, and its recorded requests."""
    import pyarrow
    from pyarrow import parquet

    inferred: list[tuple[str, str]] = []
    names = {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": names}})}
    for path in ("sst2/train/0000", "sst2/validation/0000", "two/train/0000", "two/train/0001"):
        whole = tmp_path / f"{path}.parquet"
        whole.parent.mkdir(parents=True, exist_ok=True)
        table = pyarrow.table({"sentence": ["a", "b"], "label": [1, 0]})
        parquet.write_table(table.replace_schema_metadata(metadata), whole)

    def download(name: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        assert (repo_type, revision) == ("dataset", "refs/convert/parquet")
        inferred.append((name, *allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return inferred


def test_hub_entry_is_fetched_with_its_label_names(hub) -> None:
    entry = fetch_files(by_name(find_suite("glue")[0])["SST-2"])
    assert hub == [
        ("nyu-mll/glue", "sst2/train/*.parquet"), ("nyu-mll/glue", "sst2/validation/*.parquet"),
    ]  # fmt: skip
    assert entry.test is None
    for path in (entry.train, entry.dev):
        assert path is not None
        assert read_table(path).column("label") == ["good", "bad"]
    assert fetch_files(entry) == entry


def test_missing_hub_data_is_one_line(hub, monkeypatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"hf:a/b::train: the Hub has no default/train/\*"):
        fetch_split("hf:a/b::train")
    with pytest.raises(ValueError, match="hf:a/b:two:train: must be one file, got 2"):
        fetch_split("hf:a/b:two:train")

    def offline(*_: object, **__: object) -> None:
        raise LocalEntryNotFoundError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(FileNotFoundError, match=r"hf:a/b:c:train: cannot be fetched .*: no$"):
        fetch_split("hf:a/b:c:train")


def test_suites_describe_runnable_benchmarks() -> None:
    for name, suite in SUITES.items():
        assert suite.name == name
        for one in suite.benchmarks:
            assert one.paper, one.name
            assert one.metric is None or one.metric in METRICS, one.name
            n_texts = {"pairs": 2, "answer": 2, "classify": 1, "tag": 1}.get(one.task)
            for files in one.files:
                assert n_texts in (None, len(files.text)), one.name
                assert files.label, one.name


def test_benchmark_without_files_is_refused() -> None:
    with pytest.raises(ValueError, match="benchmark 'a' has no files"):
        Benchmark(name="a", task="tag", files=())
    one = Benchmark(name="a", task="tag", files=(BenchmarkFiles(train="a.conllu"),))
    with pytest.raises(ValueError, match="two benchmarks 'a'"):
        Suite(name="s", benchmarks=(one, replace(one, task="classify")))


def labels_read(entry: LocatedBenchmark, table: Table) -> set[str]:
    """Read all texts and answers of a file; return the labels."""
    assert entry.label is not None
    if entry.task == "choose":
        columns = TaskColumns(texts=entry.text, label=entry.label, choices=entry.choices)
        assert infer_label_format(table, columns) == "from 0"
        read_choice_examples(table, columns)
        return set()
    truths = list(enumerate(table.column(entry.label)))
    if entry.task == "tag":
        sentences = table.column(entry.text[0])
        return {
            tag
            for i, truth in truths
            for words in (
                column_values.parse_words(sentences[i], entry.text[0], table.location(i), "strict"),
            )
            for tag in column_values.parse_tags(truth, entry.label, table.location(i), len(words))
        }
    assert all(any(row) for row in column_values.read_texts(table, entry.text, "strict"))
    if entry.task == "answer":
        _, context = entry.text
        for (i, truth), text in zip(truths, table.column(context), strict=True):
            assert isinstance(text, str)
            found = parse_answers(truth, table.location(i))
            assert found
            assert all(text[start : start + len(one)] == one for one, start in found)
        return set()
    if entry.task == "generate":
        targets = [
            one for _, truth in truths for one in (truth if isinstance(truth, list) else [truth])
        ]
        assert all(isinstance(target, str) and target.strip() for target in targets)
        return set()
    if entry.task == "regress":
        assert all(
            0 <= column_values.parse_number(t, entry.label, table.location(i)) <= 5
            for i, t in truths
        )
        return set()
    return {column_values.parse_label(truth, entry.label, table.location(i)) for i, truth in truths}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_all_shared_data_is_found() -> None:
    found = [entry for name in SUITES for entry in find_suite(name, SHARED)[0]]
    whole = [entry.name for entry in found if entry.rows is None]
    assert sorted(set(whole)) == sorted(PUBLISHED)
    files = {entry.train for entry in found if entry.rows is None}
    assert all(entry.train in files for entry in found), "few rows of files that are read whole"


def check(suite: str, name: str) -> None:
    """Read all files of a benchmark, and check their rows, columns and labels."""
    entry = by_name(find_suite(suite, SHARED)[0])[name]
    known: set[str] = set()
    for path, n in zip((entry.train, entry.dev, entry.test), PUBLISHED[name], strict=True):
        assert (path is None) == (n is None)
        if path is None:
            continue
        table = read_table(path, header=entry.column_names, word_per_line=entry.task == "tag")
        assert len(table) == n
        labels = labels_read(entry, table)
        known = known or labels
        if labels and labels <= {"0", "1", "2", "3", "4"}:
            assert labels == {str(i) for i in range(len(entry.labels))}
        else:
            assert labels <= (set(entry.labels) or known)


BENCHMARKS = [(s.name, one.name) for s in SUITES.values() for one in s.benchmarks]
SMALL = [
    (suite, name)
    for suite, name in BENCHMARKS
    if name in PUBLISHED and sum(n or 0 for n in PUBLISHED[name]) < LARGE
]


@pytest.mark.sample(4)
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(("suite", "name"), SMALL)
def test_columns_and_labels_match_small_files(suite: str, name: str) -> None:
    check(suite, name)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(("suite", "name"), [one for one in BENCHMARKS if one[1] in PUBLISHED])
def test_columns_and_labels_match_all_files(suite: str, name: str) -> None:
    check(suite, name)


def test_every_bundled_suite_is_readable() -> None:
    files = list(SUITES_FOLDER.rglob("*.toml"))
    assert sorted(path.stem for path in files) == list(SUITES)
    assert len(SUITES) == len(files) >= 14
    assert all(suite.name == name for name, suite in SUITES.items())
    with pytest.raises(KeyError):
        SUITES["../suites/glue"]


@pytest.mark.parametrize("name", SUITES)
def test_bundled_benchmarks_name_paper_columns_and_metrics(name: str) -> None:
    for one in SUITES[name].benchmarks:
        assert re.search(r"arXiv:\d{4}\.\d{4,5}|aclanthology\.org/\w|doi:10\.", one.paper), one.name
        assert one.metric in METRICS
        assert all(files.text and files.label for files in one.files), one.name
        assert from_dict(Benchmark, to_dict(one)) == one


@pytest.mark.parametrize(
    ("name", "of", "changed"),
    [
        ("as-text", ("glue", "sick"), {"task", "labels", "metric", "options"}),
        ("text-to-text", ("glue", "sick", "summaries"), set()),
        ("tagger", ("tags",), {"options"}),
        ("imdb-few", ("sentiment",), {"name", "rows"}),
        ("trec-few", ("topics",), {"name", "rows"}),
    ],
)
def test_benchmark_in_two_suites_has_equal_files(name: str, of, changed: set[str]) -> None:
    """Suites are written out, so what they share is written twice: here it is compared."""
    theirs = {one.name: one for suite in of for one in SUITES[suite].benchmarks}
    for one in SUITES[name].benchmarks:
        other = theirs.get(one.name.split(",")[0])
        if other is None:  # the suite's own, or one that is in another suite of the same tasks
            assert one.name == "AESLC"
            other = next(o for o in SUITES["summaries"].benchmarks if o.name == "AESLC")
        same = {field: getattr(other, field) for field in changed}
        assert replace(one, **same) == other
