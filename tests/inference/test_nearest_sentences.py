"""Sentences as vectors: the nearest ones, how alike two are, and words that are added."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import texts, tokenizer
from toy_text import corpus

import unmask
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.sentence_similarity import sentence_encoder
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.vocabulary import WordBytesWithWords
from unmask.word_vectors.formats.files import write_vectors
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published

SMALL = {"d_model": 8, "embedding_size": 8, "d_ff": 8}
SENTENCES = texts(12, seed=3)


def opened(card: Published, model: Model, words: Tokenizer) -> Pipeline:
    return Pipeline(
        LoadedModel(
            preset=card, model=model, tokenizer=words, label_names=(), missing=(), unexpected=()
        )
    )


def pipeline(name: str, seed: int = 0, **heads) -> Pipeline:
    """Make a model that has learned nothing, of the words of the toy language."""
    preset = MODELS[name]
    preset = replace(preset, architecture=replace(preset.architecture, **SMALL))
    preset = preset.with_vocabulary(tokenizer("bert").special_ids)
    model = preset.build({**preset.heads, **heads}).initialize(seed)
    return opened(preset, model, tokenizer("bert"))


@pytest.fixture(scope="module")
def space() -> unmask.KeyedVectors:
    rng = np.random.default_rng(0)
    words = sorted({w.strip(".").lower() for w in corpus().split()})
    words = (*words, "castle", "ocean", "The", "old king")
    return unmask.KeyedVectors(words, rng.normal(size=(len(words), 4)).astype(np.float32))


@pytest.fixture
def home(tmp_path: Path, space: unmask.KeyedVectors, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_vectors(space, tmp_path / "words.vec", white_space_replacement="_")
    pipeline("skip-thoughts-mini").save(tmp_path / "skip", format="unmask")
    pairs = [(*SENTENCES[i : i + 2], 1 + (7 * i) % 5) for i in range(8)]
    rows = "".join(f"{i}\t{a}\t{b}\t{n}\n" for i, (a, b, n) in enumerate(pairs))
    (tmp_path / "sick.tsv").write_text(f"id\tsentence_A\tsentence_B\trelatedness_score\n{rows}")
    (tmp_path / "some.txt").write_text("\n".join(SENTENCES) + "\n")
    (tmp_path / "empty.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], home: Path):
    def command(words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return (cli.run(shlex.split(words)), *capsys.readouterr())

    return command


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (x.astype(np.float64) for x in (a, b))
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_default_embedding_is_that_of_the_preset() -> None:
    skip, bilstm = pipeline("skip-thoughts-mini"), pipeline("bilstm-mini")
    assert np.array_equal(skip.embed(SENTENCES), skip.embed(SENTENCES, pooling="last"))
    assert np.array_equal(bilstm.embed(SENTENCES), bilstm.embed(SENTENCES, pooling="mean"))
    assert not np.array_equal(skip.embed(SENTENCES), skip.embed(SENTENCES, pooling="mean"))


@pytest.mark.parametrize("kind", ["skip-thoughts-mini", "quick-thoughts-mini", "words"])
def test_nearest_sentences_have_highest_cosines(kind: str, space) -> None:
    model = space if kind == "words" else pipeline(kind)
    encode = sentence_encoder(model)
    queries, candidates = [SENTENCES[4], "The sea."], [*SENTENCES, SENTENCES[4], SENTENCES[0]]
    found = unmask.nearest_sentences(model, queries, candidates, top_k=20)
    for sentence, near in zip(queries, found, strict=True):
        others = [s for s in dict.fromkeys(SENTENCES) if s != sentence]
        scores = cosines(encode([sentence]), encode(others))
        assert {n.word for n in near} == set(others)
        assert [n.score for n in near] == sorted((n.score for n in near), reverse=True)
        output = dict(zip(others, scores, strict=True))
        np.testing.assert_allclose(
            [n.score for n in near], [output[n.word] for n in near], atol=1e-5
        )


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "words"),
    [("bert-mini", "bert"), ("gpt2-mini", "gpt2"), ("t5-mini", "t5"), ("elmo-mini", None)],
)
@pytest.mark.parametrize("layer", [0, -1])
def test_word_in_context_is_mean_of_its_tokens(name: str, words: str | None, layer: int) -> None:
    spelled = replace(MODELS[name].tokenizer, vocabulary=WordBytesWithWords(40))
    cut = train_tokenizer(spelled, corpus(20).splitlines()) if words is None else tokenizer(words)
    preset = MODELS[name].with_vocabulary(cut.special_ids)
    model = opened(preset, preset.build().initialize(0), cut)
    uses = ["The old gate.", "An old king saw the GATE  of the sea, the gate of old."]
    (near,) = unmask.nearest_sentences(
        model, "A gate.", [*uses, "The gates.", "A king."], word="gate", layer=layer
    )
    expected: dict[str, np.ndarray] = {}
    before = len(model.tokenizer.special_ids.prefix)
    for text in ("A gate.", *uses):
        start = text.lower().index("gate")
        spans = model.tokenizer.offsets(text)
        there = [i for i, (a, b) in enumerate(spans) if a < start + 4 and b > start and a < b]
        rows = model.embed([text], pooling="none", layer=layer)[0]
        expected[text] = rows[[before + i for i in there]].mean(0)
    assert {one.word for one in near} == set(uses)
    for one in near:
        assert one.score == pytest.approx(
            cosines(expected["A gate."], expected[one.word]), abs=1e-5
        )


def test_word_absent_from_sentences_is_refused(space) -> None:
    preset = MODELS["bert-mini"].with_vocabulary(tokenizer("bert").special_ids)
    model = opened(preset, preset.build().initialize(0), tokenizer("bert"))
    long = "the sea " * 300 + "gate"  # beyond the positions
    with pytest.raises(ValueError, match="none of 2 has the word 'gate'"):
        unmask.nearest_sentences(model, "A gate.", [long, "The king."], word="gate")
    with pytest.raises(ValueError, match=r"'The gates\.': it lacks the word 'gate'"):
        unmask.nearest_sentences(model, "The gates.", SENTENCES, word="gate")
    with pytest.raises(ValueError, match="word must not be empty"):
        unmask.nearest_sentences(model, "A gate.", SENTENCES, word=" ")
    with pytest.raises(ValueError, match="not for a word; leave it out"):
        unmask.nearest_sentences(model, "A gate.", SENTENCES, word="gate", pooling="mean")
    with pytest.raises(ValueError, match="word vectors do not depend on the sentence"):
        unmask.nearest_sentences(space, "A gate.", SENTENCES, word="gate")


@pytest.mark.parametrize("kind", ["quick-thoughts-mini", "words"])
def test_similarity_correlates_cosines_with_human_scores(kind: str, space, home: Path) -> None:
    model = space if kind == "words" else pipeline(kind)
    encode = sentence_encoder(model)
    output = cosines(encode(SENTENCES[:8]), encode(SENTENCES[1:9]))
    truth = [1 + (7 * i) % 5 for i in range(8)]
    score = unmask.evaluate_sentence_similarity(model, home / "sick.tsv")
    assert (score.name, score.n_pairs) == ("sick.tsv", 8)
    assert score.pearson == pytest.approx(np.corrcoef(truth, output)[0, 1], abs=1e-6)
    named = unmask.evaluate_sentence_similarity(
        model, home / "sick.tsv", text=("sentence_B", "sentence_A"), label="id"
    )
    assert named.pearson == pytest.approx(np.corrcoef(range(8), output)[0, 1], abs=1e-6)


def test_invalid_options_are_refused(space) -> None:
    with pytest.raises(ValueError, match="a text is the mean of its words' vectors; leave out"):
        sentence_encoder(space, pooling="last")
    with pytest.raises(ValueError, match="limit is for word vectors"):
        sentence_encoder(pipeline("skip-thoughts-mini"), limit=5)
    with pytest.raises(ValueError, match="gives each token a vector"):
        sentence_encoder(space, pooling="none")
    with pytest.raises(ValueError, match="'!': no word of it has a vector"):
        unmask.nearest_sentences(space, "!", SENTENCES)
    with pytest.raises(ValueError, match="sentences must not be empty"):
        unmask.nearest_sentences(space, "the sea", [])


@pytest.mark.parametrize("model", ["skip", "words.vec"])
def test_command_takes_a_model_or_word_vectors(model: str, run) -> None:
    code, out, _ = run(
        f"neighbors {model} --sentences some.txt -k 2 'the sea' '{SENTENCES[4]}' --json"
    )
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["text"] for line in lines] == ["the sea", SENTENCES[4]]
    assert all(len(line["neighbors"]) == 2 for line in lines)
    code, out, _ = run(f"neighbors {model} --sentences some.txt -k 2 'the sea'")
    assert (code, len(out.splitlines())) == (0, 2)
    code, out, _ = run(f"evaluate {model} --task similarity --data sick.tsv --json")
    assert code == 0
    (score,) = json.loads(out)["scores"]
    assert (score["name"], score["pairs"]) == ("sick.tsv", 8)
    code, out, _ = run(f"evaluate {model} --task similarity sick.tsv sick.tsv")
    assert (code, len(out.splitlines())) == (0, 3)
    code, out, _ = run(f"embed {model} 'the sea'")
    assert (code, len(json.loads(out)["vector"])) == (0, 8 if model == "skip" else 4)


@pytest.mark.trials("mistakes")
@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("neighbors skip sea --sentences empty.txt", "empty.txt: no text in it"),
        ("neighbors skip sea --sentences none.txt", "none.txt: no such file"),
        ("neighbors skip sea --sentences some.txt --minus x", "leave out --minus"),
        ("neighbors words.vec sea --word sea", "--word needs --sentences"),
        ("neighbors skip sea --sentences some.txt --word gate", "'sea': it lacks the word 'gate'"),
        ("neighbors words.vec sea --pooling last", "--pooling needs --sentences"),
        ("evaluate skip --task similarity", "no data: give files of sentence pairs"),
        ("evaluate skip --task similarity --data some.txt", "which two columns hold the texts"),
        ("evaluate skip --task similarity --data empty.txt", "empty.txt"),
        ("evaluate skip --data some.txt --pooling last", "--pooling needs --task similarity"),
        ("evaluate skip --task similarity --data sick.tsv --rows 3", "leave out --rows"),
        ("embed words.vec sea --pooling first", "leave out pooling and layer"),
        ("embed skip sea --limit 3", "--limit applies to word vectors only"),
        ("convert words.vec x.vec --expand words.vec", "leave out --expand"),
        ("convert skip x --limit 3", "--limit applies to word vectors only"),
        ("convert skip x --expand words.vec --limit 2", "words are in both vocabularies"),
    ],
)
def test_mistakes_are_reported_in_one_line(words: str, output: str, run) -> None:
    code, _, result = run(words)
    assert code == 2
    assert output in result
    assert len(result.splitlines()) == 1


@pytest.mark.parametrize("name", ["skip-thoughts-mini", "quick-thoughts-mini", "bilstm-mini"])
def test_vocabulary_expansion_maps_vectors_linearly(name: str, space) -> None:
    before = pipeline(name, label=SequenceClassification(pooling="last"))
    known = before.tokenizer.word_vocabulary()
    shared = [word for word in known if word in space]
    made = unmask.expand_vocabulary(before, space)
    after, old = made.pipeline, before.model.backbone.embedding_table.weight.detach().numpy()
    lower = [w for w in space.words if w == w.lower() and " " not in w and w not in known]
    assert (made.n_shared, made.n_added) == (len(shared), len(lower))
    new = after.model.backbone.embedding_table.weight.detach().numpy()
    assert np.array_equal(new[: len(old)], old)
    a = np.stack([space.vector(w) for w in shared])
    b = np.stack([old[known[w]] for w in shared])
    weights = np.linalg.lstsq(a, b, rcond=None)[0]
    expected = np.stack([space.vector(w) for w in lower]) @ weights
    np.testing.assert_allclose(new[len(old) :], expected, rtol=1e-4, atol=1e-5)
    ids = after.tokenizer.encode("The castle of the ocean").ids
    assert after.tokenizer.pieces(ids)[1] == "castle"
    assert set(after.model.head_specs) == {"label"}
    kept = [w for w in known if w in ("the", "king", "a")]
    same = [" ".join(kept)]
    np.testing.assert_allclose(after.embed(same), before.embed(same), atol=1e-6)


def test_expanded_model_is_a_loadable_folder(run, home: Path) -> None:
    code, _, output = run("convert skip more --expand words.vec")
    assert code == 0
    assert "words added through a linear map" in output
    again = unmask.load(home / "more")
    assert again.tokenizer.pieces(again.tokenizer.encode("castle").ids) == ["castle"]
    assert again.model.head_specs == {}
    assert again.embed("A castle.").shape == (1, 8)


def test_model_without_word_vocabulary_is_not_expanded(space) -> None:
    gpt = MODELS["gpt2-mini"].with_vocabulary(tokenizer("gpt2").special_ids)
    with pytest.raises(ValueError, match="this one is BPE"):
        unmask.expand_vocabulary(opened(gpt, gpt.build().initialize(0), tokenizer("gpt2")), space)
    t5 = MODELS["t5-mini"].with_vocabulary(tokenizer("t5").special_ids)
    with pytest.raises(ValueError, match="words can be added to models of one stack"):
        unmask.expand_vocabulary(opened(t5, t5.build().initialize(0), tokenizer("t5")), space)
