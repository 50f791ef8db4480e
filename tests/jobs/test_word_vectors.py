"""Word vectors on the path of all models: pretrained, resumed, opened, used."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

pytest.importorskip("numba")

import unmask
from unmask.cli import main as cli
from unmask.inference.vectors.load_word_vectors import load_word_vectors
from unmask.jobs.catalogue.hide import hide
from unmask.training.log import TrainingLog

MINIS = {
    "word2vec-skipgram-mini": "objective.epochs=6",
    "word2vec-cbow-mini": "objective.epochs=6",
    "fasttext-mini": "objective.character_ngrams.n_buckets=500",
    "glove-mini": "objective.epochs=6",
    "svd-ppmi-mini": "objective.add_contexts=false",
    "lsa-mini": "objective.power=0.5",
}
COUNTED = ("glove-mini", "svd-ppmi-mini")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(corpus())
    return path


def learn(name: str, text: Path, out: Path, *changes: str, **more):
    changes = ("architecture.d_model=12", "log_every=2", MINIS[name], *changes)
    return unmask.pretrain(name, data=text, out=out, changes=changes, threads=1, quiet=True, **more)


def learned(out: Path) -> tuple[bytes, bytes]:
    return (out / "model.safetensors").read_bytes(), (out / "log.jsonl").read_bytes()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MINIS)
def test_run_opens_as_word_vectors_and_as_model(name: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    made = learn(name, text, out)
    facts = json.loads((out / "unmask.json").read_text())
    assert facts["finished"] is True
    last = json.loads((out / "log.jsonl").read_text().splitlines()[-1])
    assert last["step"] == facts["recipe"]["steps"]
    for file in ("config.json", "tokenizer.json", "README.md", "log.jsonl", "report.html"):
        assert (out / file).stat().st_size > 0
    assert (out / "counts").exists() == (name in COUNTED)
    report = (out / "report.html").read_text()
    space = load_word_vectors(out)
    shown = json.loads((out / "samples.json").read_text())
    for one in shown:
        assert one["neighbors"] == [list(near) for near in space.neighbors([one["word"]], 5)[0]]
        assert f"<mark>{one['word']}</mark>" in report
    assert not re.search("Perplexity|nats</|Kaplan|AdamW|layerwise_lr_decay", report)
    space = unmask.load_word_vectors(out)
    assert {"king", "followed", "silver"} <= set(space.words)
    assert not {".", "<unk>", "<eos>"} & set(space.words)
    assert space.vector_size == 12
    assert np.isfinite(space.vectors).all()
    loaded = unmask.load(out)
    for model in (made, loaded):
        (mean,) = model.embed(["King gate."], pooling="mean")
        both = (space.vector("king") + space.vector("gate")) / 3  # and the full stop, which is 0
        np.testing.assert_allclose(mean, both, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    ["d_model=12", "objective.output_layer=HierarchicalSoftmax", "objective=CBOW"],
    ids=str,
)
def test_fasttext_run_composes_unseen_words(changes: str, text: Path, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim.models.fasttext")
    name, out = "fasttext-mini", tmp_path / "run"
    change = {
        "d_model=12": "objective.character_ngrams.n_buckets=500",
        "objective=CBOW": 'objective={kind="CBOW",character_ngrams={n_buckets=500}}',
    }.get(changes, changes)
    learn(name, text, out, change)
    space = unmask.load_word_vectors(out)
    theirs = gensim.load_facebook_vectors(str(out / "fasttext.bin"))
    assert "kingly" not in space.words
    for word in (*space.words, "kingly", "größer"):
        np.testing.assert_allclose(space.vector(word), theirs[word], rtol=1e-4, atol=1e-6)
    for word in space.words:
        assert theirs.get_vecattr(word, "count") > 0
    near = [one.word for one in space.neighbors(["kingly"], k=5)[0]]
    assert near == [word for word, _ in theirs.most_similar("kingly", topn=5)]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("king\tgate\t1\nkingly\tking\t5\nsilver\tgate\t2\n")
    (score,) = unmask.evaluate_word_vectors(out, pairs, terminal=None)
    assert (score.n_pairs, score.n_known) == (3, 2)
    with pytest.raises(ValueError, match="'' is not among the"):
        space.vector("")
    unmask.convert_word_vectors(out, tmp_path / "model.bin", format_name="fasttext")
    assert (tmp_path / "model.bin").read_bytes() == (out / "fasttext.bin").read_bytes()
    if "objective" not in changes:
        model = gensim.load_facebook_model(str(out / "fasttext.bin"))
        assert (model.sg, model.window, model.negative, model.epochs) == (1, 5, 5, 5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["word2vec-cbow-mini", "glove-mini", "lsa-mini"])
def test_phrases_become_words_of_a_run(name: str, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "run"
    draw = np.random.default_rng(0)
    filler = ["the", "old", "sea", "was", "far", "from", "small", "towns", "and", "their"]
    positions = ["New York", "New York", "New Delhi", "green tea", "New York Times"]
    text.write_text(
        "\n\n".join(
            " ".join(
                [*draw.choice(filler, 6), positions[draw.integers(5)], *draw.choice(filler, 3)]
            )
            + "."
            for _ in range(300)
        )
    )
    changes = "objective.phrase_detection={thresholds=[3.0,3.0]}"
    made = learn(name, text, out, changes)
    space = unmask.load_word_vectors(out)
    assert {"new_york", "new_york_times", "new_delhi", "green_tea", "old"} <= set(space.words)
    assert not {"new", "york", "delhi", "."} & set(space.words)
    assert space.neighbors(["new_york"], k=3)
    (york,) = made.embed(["New York"], pooling="mean")  # words of their own, in a text
    assert not york.any()
    learn(name, text, out, changes, resume=True)
    weights = learned(out)
    shutil.rmtree(out)
    learn(name, text, out, changes)
    assert learned(out)[0] == weights[0]
    unmask.convert_word_vectors(out, tmp_path / "made.vec")
    assert "new_york" in unmask.load_word_vectors(tmp_path / "made.vec")


@pytest.mark.parametrize("name", ["word2vec-skipgram-mini", "fasttext-mini", "glove-mini"])
def test_stopped_and_resumed_run_equals_uninterrupted(
    name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(name, text, tmp_path / "whole")
    broken, log = tmp_path / "broken", TrainingLog.__call__

    def call(self, report):
        log(self, report)
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingLog, "__call__", call)
    with pytest.raises(KeyboardInterrupt, match="continue with --resume"):
        learn(name, text, broken)
    monkeypatch.setattr(TrainingLog, "__call__", log)
    assert not (broken / "config.json").exists()
    with pytest.raises(ValueError, match="this run has not ended; continue it with --resume"):
        unmask.load_word_vectors(broken)
    learn(name, text, broken, resume=True)
    assert learned(broken) == learned(tmp_path / "whole")
    unmask.pretrain(out=broken, resume=True, quiet=True, threads=1)  # it is finished: nothing moves
    assert learned(broken) == learned(tmp_path / "whole")


def test_killed_run_resumes_from_its_last_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, log = "word2vec-skipgram-mini", TrainingLog.__call__
    learn(name, text, tmp_path / "whole", checkpoint_every=2)

    class KilledError(Exception):
        pass

    def call(self, report):
        log(self, report)
        if report.step == 5:
            raise KilledError

    monkeypatch.setattr(TrainingLog, "__call__", call)
    with pytest.raises(KilledError):
        learn(name, text, tmp_path / "killed", checkpoint_every=2)
    monkeypatch.setattr(TrainingLog, "__call__", log)
    assert (tmp_path / "killed" / "checkpoints" / "step-00000004").is_dir()
    learn(name, text, tmp_path / "killed", checkpoint_every=2, resume=True)
    assert learned(tmp_path / "killed") == learned(tmp_path / "whole")


def test_seed_and_learning_rate_are_those_of_the_recipe(text: Path, tmp_path: Path) -> None:
    name = "word2vec-skipgram-mini"
    runs = {
        "one": {}, "same": {}, "seed": {"seed": 1}, "rate": {"changes": "learning_rate=0.2"},
    }  # fmt: skip
    found = {}
    for run, how in runs.items():
        changes = [how.pop("changes")] if "changes" in how else []
        learn(name, text, tmp_path / run, *changes, **how)
        found[run] = learned(tmp_path / run)[0]
    assert found["one"] == found["same"]
    assert len(set(found.values())) == 3


@pytest.mark.thorough
def test_classifier_starts_from_the_vectors(text: Path, tmp_path: Path) -> None:
    learn("word2vec-skipgram-mini", text, tmp_path / "run")
    rows = [("the old king saw the gate", "a"), ("her brother feared the sea", "b")] * 8
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in rows))
    tuned = unmask.finetune(
        tmp_path / "run", task="classify", train=table, dev=table, epochs=20.0, learning_rate=0.1,
        out=tmp_path / "tuned", terminal=None,
    )  # fmt: skip
    assert [p["label"] for p in tuned.predict([t for t, _ in rows[:2]])] == ["a", "b"]


@pytest.mark.parametrize(
    ("how", "output"),
    [
        ({"steps": 5}, "whole epochs, not for steps, tokens or minutes"),
        ({"minutes": 1}, "whole epochs"),
        ({"changes": ["steps=10"]}, "whole epochs"),
        ({"changes": ["architecture.n_layers=3"]}, "have only d_model"),
        ({"sequence_length": 20}, "sequence_length: word vectors have no sequence_length, got 20"),
        ({"changes": ["optimizer=Muon"]}, "optimizer: word vectors have no optimizer"),
        ({"changes": ["max_grad_norm=2.0"]},
         "max_grad_norm: word vectors have no max_grad_norm, got 2"),
        ({"changes": ["architecture.dropout=0.5"]}, "have only d_model, their width"),
        ({"changes": ["row_unit=corpus"]}, "row_unit: windows need one of"),
        ({"changes": ['objective={kind="Objective",select={kind="TokenMasking",rate=0.1},'
                      'corrupt={kind="MaskInPlace"}}']}, "need one of CBOW, GloVe, LSA"),
        ({"init_from": "somewhere"}, "init_from: word vectors have no init_from"),
        ({"vocab_size": 2}, "too small"),
        ({"changes": ["objective.window=0"]}, "window must be at least 1, got 0"),
        ({"changes": ["learning_rate=1e-9"]}, "rate must be above 0, and at least min_learning"),
    ],
)  # fmt: skip
def test_unsupported_options_are_refused_and_leave_nothing(
    how: dict, output: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=output):
        unmask.pretrain(
            "word2vec-skipgram-mini", data=text, out=tmp_path / "out", quiet=True, **how
        )
    assert not (tmp_path / "out").exists()


def test_matrix_factorization_has_no_learning_rate(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="learning_rate: matrix factorization has none"):
        unmask.pretrain(
            "svd-ppmi-mini", data=text, out=tmp_path / "out", changes=["learning_rate=0.5"]
        )


def test_too_rare_words_are_reported(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("Every word stands here once.")
    with pytest.raises(ValueError, match="no word occurs 5 times or more"):
        unmask.pretrain("glove-mini", data=tmp_path / "few.txt", out=tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_command_accepts_a_run_for_its_vectors(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    learn("svd-ppmi-mini", text, out)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("king\tfox\t9\nking\tgate\t1\nsea\tgate\t2\nking\tnobody\t3\n")

    def run_command(*words: str) -> str:
        capsys.readouterr()
        assert cli.run(list(words)) == 0
        return capsys.readouterr().out

    assert (
        json.loads(run_command("evaluate", str(out), "--data", str(pairs), "--json"))["scores"][0][
            "known"
        ]
        == 3
    )
    run_command("convert", str(out), str(tmp_path / "v.vec"))
    assert unmask.load_word_vectors(tmp_path / "v.vec").words == unmask.load_word_vectors(out).words
    run_command("convert", str(out), str(tmp_path / "copy"), "--to", "unmask")
    assert (tmp_path / "copy" / "model.safetensors").is_file()
    assert len(run_command("neighbors", str(out), "king", "-k", "3").splitlines()) == 3
    assert "SVD" in run_command("show", str(out))
    shutil.rmtree(tmp_path / "copy")
    (tmp_path / "copy").mkdir()
    assert cli.run(["neighbors", str(tmp_path / "copy"), "king"]) == 2
    assert "not a model: it has no config.json" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(5))
def test_hide_shows_target_word_and_context(seed: int) -> None:
    line = 'The man saw the house. "The house saw the man," he said.'
    words = [["the", "man", "saw", "the", "house"], ["the", "house", "saw", "the", "man", "he",
             "said"]]  # fmt: skip
    changes = ["dynamic_window=false", "window=2"]
    out = hide("word2vec-skipgram-mini", line, seed=seed, changes=changes)
    read, targets = {c.piece for c in out.inputs}, [c.target for c in out.inputs]
    (word,) = read
    around = [
        sentence[max(i - 2, 0) : i] + sentence[i + 1 : i + 3]
        for sentence in words
        for i, one in enumerate(sentence)
        if one == word
    ]
    assert targets in around
    inward = hide("word2vec-cbow-mini", line, seed=seed, changes=changes)
    assert [c.piece for c in inward.inputs] == targets
    assert {c.target for c in inward.inputs} == {word}
    assert "mean of the neighbors' vectors" in inward.visibility
