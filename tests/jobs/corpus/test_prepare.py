"""A corpus is tokenized once, and only from the requested files."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

from unmask import output
from unmask.inference.pipeline import Pipeline
from unmask.jobs.corpus import prepare as module
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.shards.read import TokenShards
from unmask.text.documents import read_documents


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(corpus())
    return path


def small(text: Path, out: Path, **more) -> TokenShards:
    more.setdefault("vocab_size", 120)
    return prepare(text, out=out, quiet=True, **more)


def test_prepared_folder_holds_the_text(text: Path, tmp_path: Path) -> None:
    shards = small(text, tmp_path / "out")
    assert shards.n_documents == 30
    assert shards.tokenizer.vocab_size == 120
    decoded = shards.tokenizer.decode(shards.read_tokens(0, 9).ids.tolist())
    first = next(read_documents(text)).text.lower()
    assert decoded.replace(" ", "")[:20] == first.replace(" ", "")[:20]


@pytest.mark.sample(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_result_is_equal_for_any_number_of_workers(
    workers: int, text: Path, tmp_path: Path
) -> None:
    small(text, tmp_path / "a")
    small(text, tmp_path / "b", workers=workers)
    a, b = ((tmp_path / name / "00000.tokens").read_bytes() for name in "ab")
    assert a == b


def test_finished_folder_is_reused(text: Path, tmp_path: Path, monkeypatch) -> None:
    small(text, tmp_path / "out")

    def fail(*arguments: object, **more: object) -> None:
        raise AssertionError("it learned a tokenizer again")

    monkeypatch.setattr(module, "train_tokenizer", fail)
    assert small(text, tmp_path / "out").n_documents == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 100}, "was prepared with vocab_size = 120, not 100"),
        ({"document_separator": "line"}, "prepared with document_separator = 'blank', not 'line'"),
        ({"encoding_errors": "replace"}, "encoding_errors = 'strict', not 'replace'"),
        ({"model": "gpt2-mini", "vocab_size": 300}, "model = 'bert-mini', not 'gpt2-mini'"),
    ],
)
def test_folder_prepared_with_other_options_is_refused(
    change: dict[str, object], message: str, text: Path, tmp_path: Path
) -> None:
    small(text, tmp_path / "out")
    with pytest.raises(ValueError, match=message):
        small(text, tmp_path / "out", **change)


def test_folder_prepared_from_other_text_is_refused(text: Path, tmp_path: Path) -> None:
    small(text, tmp_path / "out")
    text.write_text(corpus(seed=1))
    with pytest.raises(ValueError, match="was made from other documents"):
        small(text, tmp_path / "out")


@pytest.mark.parametrize("model", ["bert-mini", "canine-s-mini", "elmo-mini"])
def test_interrupted_preparation_ends_as_uninterrupted(
    model: str, text: Path, tmp_path: Path, monkeypatch
) -> None:
    write = module.write_shards

    def stop(documents, tokenizer, out, **more):
        def some():
            for i, document in enumerate(documents):
                if i == 20:
                    raise KeyboardInterrupt
                yield document

        return write(some(), tokenizer, out, **more)

    monkeypatch.setattr(module, "write_shards", stop)
    with pytest.raises(KeyboardInterrupt, match="interrupted; the same command continues"):
        small(text, tmp_path / "out", model=model)
    with pytest.raises(FileNotFoundError, match="unfinished"):
        TokenShards.open(tmp_path / "out")
    monkeypatch.undo()
    small(text, tmp_path / "out", model=model)
    small(text, tmp_path / "whole", model=model)
    a, b = ((tmp_path / name / "00000.tokens").read_bytes() for name in ("out", "whole"))
    assert a == b


def test_text_is_read_once(text: Path, tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(text)
    for twice in ([text, text], [text, tmp_path / "*.txt"], [tmp_path]):
        with pytest.raises(ValueError, match="is given twice"):
            small(twice, tmp_path / "out")


def test_prepared_folder_is_refused_as_corpus(text: Path, tmp_path: Path) -> None:
    small(text, tmp_path / "out")
    with pytest.raises(ValueError, match="is already prepared"):
        small(tmp_path / "out", tmp_path / "again")
    with pytest.raises(ValueError, match="give it alone"):
        small([tmp_path / "out", text], tmp_path / "again")


def test_foreign_folder_is_not_written_to(text: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.pdf").write_text("mine")
    with pytest.raises(FileExistsError, match="holds files, but no prepared tokens"):
        small(text, tmp_path / "other")
    with pytest.raises(ValueError, match="is a file"):
        small(text, text)


@pytest.mark.thorough
def test_overlong_line_is_split(text: Path, tmp_path: Path) -> None:
    small(text, tmp_path / "out")
    text.write_text(("x" * 99 + " ") * 45_000)
    shards = prepare(text, out=tmp_path / "long", tokenizer=tmp_path / "out/tokenizer", quiet=True)
    assert shards.n_documents == 2
    assert shards.n_bytes == pytest.approx(text.stat().st_size, abs=2)


class Terminal(io.StringIO):
    def __init__(self, live: bool) -> None:
        super().__init__()
        self.live = live

    def isatty(self) -> bool:
        return self.live


@pytest.mark.parametrize("live", [True, False])
def test_progress_ends_with_the_amount_read(
    live: bool, text: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(output, "_SECONDS_BETWEEN_REDRAWS", 0.0)
    terminal = Terminal(live)
    monkeypatch.setattr(module.sys, "stderr", terminal)
    prepare(text, out=tmp_path / "out", vocab_size=120)
    learned, tokenized, rest = terminal.getvalue().split("\n")
    assert learned.endswith("training a WordPiece tokenizer: 30 documents, 12.7 k characters")
    assert tokenized.endswith("tokenizing: 30 documents, 12.7 k characters")
    assert tokenized.count("\r") == (31 if live else 0)
    assert rest == ""


@pytest.mark.thorough
def test_training_on_prepared_tokens_equals_training_on_text(text: Path, tmp_path: Path) -> None:
    small(text, tmp_path / "prepared", model="bert-tiny")
    changes = ["sequence_length=32", "batch_tokens=256", "log_every=2", "dev_fraction=0.1"]
    changes += ["architecture={d_model=32,d_ff=64,n_layers=1,n_heads=2}"]
    for name, data, size in (("a", text, 120), ("b", tmp_path / "prepared", None)):
        pretrain(
            "bert-tiny", data=data, out=tmp_path / name, vocab_size=size, steps=4, quiet=True,
            changes=changes, threads=1,
        )  # fmt: skip
    a, b = ((tmp_path / name / "log.jsonl").read_bytes() for name in "ab")
    assert a == b
    assert not (tmp_path / "b" / "data").exists()


@pytest.mark.parametrize(
    ("expected_message", "message"),
    [
        ({"vocab_size": 100}, "was prepared with vocab_size = 120, not 100"),
        ({"document_separator": "line"}, "prepared with document_separator = 'blank', not 'line'"),
    ],
)
def test_contradicting_tokenizer_options_are_refused(
    expected_message: dict[str, object], message: str, text: Path, tmp_path: Path
) -> None:
    small(text, tmp_path / "out")
    with pytest.raises(ValueError, match=message):
        pretrain(
            "bert-tiny", data=tmp_path / "out", out=tmp_path / "run", quiet=True, **expected_message
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_objective_adds_its_special_tokens(text: Path, tmp_path: Path) -> None:
    plain = small(text, tmp_path / "plain", model="llama-mini", vocab_size=300)
    with pytest.raises(ValueError, match="no mask token, which this objective needs"):
        _masked(plain, tmp_path / "refused")
    made = small(text, tmp_path / "out", model="llama-mini", vocab_size=300, objective="mlm")
    assert plain.tokenizer.special_ids.mask is None
    assert made.tokenizer.special_ids.mask is not None
    assert _masked(made, tmp_path / "run").model.has_language_head
    with pytest.raises(ValueError, match="objective = 'mlm', not 'clm'"):
        small(text, tmp_path / "out", model="llama-mini", vocab_size=300, objective="clm")


def _masked(shards: TokenShards, out: Path) -> Pipeline:
    return pretrain(
        "llama-mini", data=shards.folder, objective="mlm", out=out, steps=1, quiet=True,
        changes=["architecture.d_model=16", "architecture.n_layers=1", "architecture.n_heads=2",
                 "architecture.n_kv_heads=1", "architecture.d_ff=16", "sequence_length=16",
                 "batch_tokens=64"],
    )  # fmt: skip


def test_sources_are_recorded(text: Path, tmp_path: Path) -> None:
    small(text, tmp_path / "out")
    facts = json.loads(json.loads((tmp_path / "out" / "shards.json").read_text())["made_from"])
    assert facts["vocab_size"] == 120
    assert [(Path(name).name, size) for name, size, _ in facts["files"]] == [
        ("text.txt", text.stat().st_size)
    ]
    assert np.fromfile(tmp_path / "out" / "00000.tokens", "<u2").max() < 120


@pytest.fixture
def languages(tmp_path: Path) -> list[Path]:
    """A folder of one language, and a tenth as much of another."""
    for name, n in (("en", 60), ("fr", 6)):
        (tmp_path / name).mkdir()
        for i in range(2):
            text = corpus(n // 2, seed=i)
            if name == "fr":
                text = text.translate(str.maketrans("aeiou", "xqzjw"))
            (tmp_path / name / f"{i}.txt").write_text(text)
    return [tmp_path / "en", tmp_path / "fr"]


def test_several_sources_are_distinguished(languages: list[Path], tmp_path: Path) -> None:
    shards = small(languages, tmp_path / "out")
    files = sorted((tmp_path / "en").iterdir()) + sorted((tmp_path / "fr").iterdir())
    again = small(files, tmp_path / "files")
    for found in (shards, again):
        assert found.sources_of_documents is not None
        names, of = found.sources_of_documents
        assert [Path(name).name for name in names] == ["en", "fr"]
        assert np.bincount(of).tolist() == [60, 6]
    assert small(languages[0], tmp_path / "one").sources_of_documents is None


def test_tokenizer_is_trained_on_smoothed_sources(languages: list[Path], tmp_path: Path) -> None:
    sizes = []
    for exponent in (1.0, 0.0):
        shards = small(
            languages, tmp_path / f"{exponent}", sampling_exponent=exponent, vocab_size=100
        )
        assert shards.n_documents == 66, "all of the text is tokenized"
        assert shards.sources_of_documents is not None
        documents, of = shards.document_spans, shards.sources_of_documents[1]
        sizes.append(int((documents[:, 1] - documents[:, 0])[of == 1].sum()))
    assert sizes[1] < 0.9 * sizes[0], "pieces of the small language are longer"


def test_sampling_without_sources_is_one_clear_error(languages: list[Path], tmp_path: Path) -> None:
    message = r"sampling_exponent = 0.3 needs several sources, and .*en is one"
    with pytest.raises(ValueError, match=message):
        small(languages[0], tmp_path / "out", sampling_exponent=0.3)
    with pytest.raises(ValueError, match=r"sampling_exponent must be from 0 to 1, got 1.5"):
        small(languages, tmp_path / "out", sampling_exponent=1.5)
    small(languages, tmp_path / "out")
    with pytest.raises(ValueError, match=r"was prepared with sampling_exponent = 1.0, not 0.3"):
        small(languages, tmp_path / "out", sampling_exponent=0.3)


def test_unused_vocabulary_size_is_reported(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(text, out=tmp_path / "out", model="canine-mini", vocab_size=200)
    assert (
        "vocab_size = 200 is not used: canine-mini has characters as tokens"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("share", [0, 0.2, 0.9])
def test_share_of_unknown_tokens_is_reported_and_most_are_refused(
    share: float, text: Path, tmp_path: Path, caplog
) -> None:
    small(text, tmp_path / "known")
    documents = text.read_text().split("\n\n")
    n = round(share * len(documents))
    unknown = [" ".join("ж" * len(document.split())) for document in documents[:n]]
    text.write_text("\n\n".join(unknown + documents[n:]) + "\n")
    more = {"vocab_size": None, "tokenizer": tmp_path / "known" / "tokenizer"}
    if share > 0.5:
        with pytest.raises(ValueError, match="tokenizer, at most 50% may be: its vocabulary lacks"):
            small(text, tmp_path / "out", **more)
        return
    caplog.clear()
    shards = small(text, tmp_path / "out", **more)
    ids = shards.read_tokens(0, shards.n_tokens).ids
    special = shards.tokenizer.special_ids
    ids = ids[ids != special.end]
    found = [record.getMessage() for record in caplog.records]
    if not share:
        assert found == []
        return
    assert found == [
        f"{(ids == special.unknown).mean():.0%} of {len(ids):,} tokens of the "
        f"beginning of {text} are unknown to the tokenizer"
    ]


def test_too_many_characters_are_refused_with_a_coverage_that_works(tmp_path: Path):
    """The message names an option, with which the same text can be prepared."""
    text = tmp_path / "text.txt"
    rare = " ".join(map(chr, range(0x4E00, 0x4E00 + 400)))
    text.write_text("the old king saw a young fox\n\n" * 90 + rare, "utf-8")
    with pytest.raises(ValueError, match=r"or set character_coverage to [0-9.]+, so") as error:
        prepare(text, out=tmp_path / "out", model="bert-mini", vocab_size=120, quiet=True)
    coverage = float(str(error.value).split("character_coverage to ")[1].split(",")[0])
    more = {"vocab_size": 120, "quiet": True}
    made = prepare(text, out=tmp_path / "b", model="bert-mini", character_coverage=coverage, **more)
    assert made.tokenizer.vocab_size <= 120
    with pytest.raises(ValueError, match=r"character_coverage = 0.9: is of word pieces"):
        prepare(text, out=tmp_path / "c", model="gpt2-mini", character_coverage=0.9, quiet=True)
    with pytest.raises(ValueError, match=r"vocab_size must be at most 16,777,216, got"):
        prepare(text, out=tmp_path / "d", model="bert-mini", vocab_size=10**9, quiet=True)
    assert not (tmp_path / "d").exists()
