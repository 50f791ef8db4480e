"""Probes of spans: their formula in double precision, their tokens, files of targets, baselines."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_probe_features import SENTENCES, made

from unmask.analysis.probes.annotations import AnnotatedSentences, read_annotated
from unmask.analysis.probes.control_tasks import ControlTask
from unmask.analysis.probes.features import WordFeatures, token_features, word_features
from unmask.analysis.probes.layers import ProbingData, probe_layers, probe_mixes
from unmask.analysis.probes.probe import (
    LabeledFeatures,
    ProbeSettings,
    SpanProbeNetwork,
    train_probe,
)
from unmask.analysis.probes.spans.pooling import SpanFeatures, SpanTokens
from unmask.analysis.probes.spans.rows import ProbedSpans, word_vote_accuracy
from unmask.analysis.probes.spans.targets import SpanTarget

WIDTH, SIZE, K = 6, 5, 3
LENGTHS = ([1, 3, 2, 4], [2, 1, 5, 1])


def random_spans(n_layers: int, seed: int) -> SpanFeatures:
    rng = torch.Generator().manual_seed(seed)
    return SpanFeatures(
        tuple(
            SpanTokens(
                torch.randn(n_layers, sum(lengths), WIDTH, generator=rng, dtype=torch.float64),
                torch.tensor(lengths),
            )
            for lengths in LENGTHS
        )
    )


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


@pytest.mark.parametrize("hidden_size", [None, 7])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_probe_is_its_formula_in_double_precision(n_layers: int, hidden_size: int | None) -> None:
    # e = A h + b, a = softmax(W e), r = Σ a e, of each span; then W [r1; r2] + b, or with a layer
    features = random_spans(n_layers, 0)
    torch.manual_seed(1)
    settings = ProbeSettings(projection_size=SIZE, hidden_size=hidden_size)
    network = SpanProbeNetwork(features, K, settings).double()
    with torch.no_grad():
        network.mix.copy_(torch.arange(n_layers) * 0.7)
        network.gamma.fill_(1.3 if n_layers > 1 else 1.0)
    w = {name: p.detach().numpy() for name, p in network.named_parameters()}
    wanted = []
    for row in range(4):
        vectors = []
        for role, lengths in enumerate(LENGTHS):
            start = sum(lengths[:row])
            h = features.spans[role].tokens[:, start : start + lengths[row]].numpy()
            h = w["gamma"] * np.tensordot(softmax(w["mix"]), h, 1)
            e = h @ w[f"pooling.{role}.projection.weight"].T + w[f"pooling.{role}.projection.bias"]
            a = softmax((e @ w[f"pooling.{role}.attention.weight"].T)[:, 0])
            vectors.append(a @ e)
        r = np.concatenate(vectors)
        for i in range(0, len(network.classifier), 2):
            r = np.maximum(r, 0) if i else r
            r = r @ w[f"classifier.{i}.weight"].T + w[f"classifier.{i}.bias"]
        wanted.append(r)
    # sums in another order
    np.testing.assert_allclose(network(features).detach().numpy(), wanted, rtol=1e-12, atol=1e-13)


def test_rows_and_layers_are_chosen_as_of_a_tensor() -> None:
    features = random_spans(3, 2)
    assert features.shape == (3, 4, WIDTH)
    assert len(features) == 3
    chosen = features[:, torch.tensor([2, 0])]
    first, second = (one.tokens for one in features.spans)
    assert torch.equal(chosen.spans[0].tokens, first[:, [4, 5, 0]])
    assert torch.equal(chosen.spans[1].tokens, second[:, [3, 4, 5, 6, 7, 0, 1]])
    assert chosen.spans[1].row_of_token.tolist() == [0, 0, 0, 0, 0, 1, 1]
    cut = features[:2, :2]
    assert cut.shape == (2, 2, WIDTH)
    assert torch.equal(cut.spans[0].tokens, first[:2, :4])


def test_attention_finds_the_word_that_decides() -> None:
    rng = torch.Generator().manual_seed(3)
    parts = []
    for _ in range(3):
        tokens = torch.randn(1, 900, 8, generator=rng)
        marked = torch.arange(900) % 3 == torch.randint(3, (300,), generator=rng).repeat_interleave(
            3
        )
        tokens[0, :, 0] = torch.where(marked, 4.0, -4.0)  # which of three words decides
        labels = (tokens[0, marked, 1] > 0).long()
        spans = SpanFeatures((SpanTokens(tokens, torch.full((300,), 3)),))
        parts.append(LabeledFeatures(spans, labels))
    probe = train_probe(
        *parts[:2], 2, ProbeSettings(projection_size=4, span_learning_rate=0.05, max_epochs=60)
    )
    assert probe.accuracy(parts[2]) > 0.9
    mean = [
        LabeledFeatures(one.features.spans[0].tokens.view(1, 300, 3, 8).mean(2), one.labels)
        for one in parts
    ]
    settings = ProbeSettings(learning_rate=0.05, max_epochs=60)
    assert train_probe(mean[0], mean[1], 2, settings).accuracy(mean[2]) < 0.85


def test_tokens_of_words_have_the_means_of_words() -> None:
    model, cut = made("bert-mini")
    tokens, words = (f(model, cut, SENTENCES) for f in (token_features, word_features))
    assert len(tokens) > len(words)  # a word of several tokens
    for layer, means in zip(tokens.layers, words.layers, strict=True):
        for row, place in enumerate(zip(words.sentences, words.words, strict=True)):
            own = (tokens.sentences == place[0]) & (tokens.words == place[1])
            wanted = layer[torch.from_numpy(own)].mean(0)
            torch.testing.assert_close(means[row], wanted, atol=1e-6, rtol=1e-6)  # other order


def test_rows_are_the_tokens_of_the_spans_of_sentences_that_were_read() -> None:
    # words 0 and 2 of sentence 1 have two tokens; sentence 0 was too long
    features = WordFeatures(
        (torch.arange(5.0)[:, None],), np.array([1] * 5), np.array([0, 0, 1, 2, 2]), 1
    )
    targets = (
        (SpanTarget((0, 1), "x"),),
        (SpanTarget((0, 2), "a"), SpanTarget((1, 3), "b"), SpanTarget((2, 3), "a")),
    )
    rows = ProbedSpans.of_sentences(features, [["z"], ["New", "York", "City"]], targets)
    assert rows.labels == ("a", "b", "a")
    assert rows.word_types == ("New York", "York City", "City")
    read = rows.inputs(features.layers[0][None]).spans[0]
    assert read.tokens.flatten().tolist() == [0, 1, 2, 2, 3, 4, 3, 4]
    assert read.lengths.tolist() == [3, 3, 2]
    with pytest.raises(ValueError, match="no spans to probe in 2 sentences"):
        ProbedSpans.of_sentences(features, [["z"], ["New", "York", "City"]], (targets[0], ()))


def probed(spans: list[str], labels: str) -> ProbedSpans:
    """Spans written with spaces between words; two spans have a bar between them."""
    words = tuple(tuple(tuple(one.split()) for one in text.split("|")) for text in spans)
    n = len(words)
    return ProbedSpans(
        WordFeatures((torch.randn(n, 4),), np.zeros(n, np.int64), np.arange(n)),
        tuple(np.stack([np.arange(n), np.arange(n) + 1], 1) for _ in words[0]),
        words,
        tuple(labels),
    )


def test_baseline_is_the_vote_of_words() -> None:
    train = probed(["the bank", "the sea", "a sea", "the bank", "Paris"], "NNSNP")
    # "a Paris" has a vote for S and one for P, equally frequent: the first by name. Nobody has seen
    # Rome: the most frequent label, which is not its own
    test = probed(["Paris", "a Paris", "the sea", "Rome", "a"], "PPNPS")
    assert word_vote_accuracy(train, test) == 1 - 1 / 5
    roles = probed(["x|y", "y|x", "x|y"], "ABA")
    assert word_vote_accuracy(roles, probed(["x|y", "y|x"], "AB")) == 1
    assert word_vote_accuracy(roles, probed(["x|y", "y|x"], "BA")) == 0


def test_control_task_labels_the_words_of_the_first_span() -> None:
    parts = [probed(["a b|c", "a b|d", "e|c"], "XYX") for _ in range(3)]
    scores = probe_layers(ProbingData(*parts), ProbeSettings(max_epochs=2, projection_size=2))
    assert len(scores) == 1
    task = ControlTask(np.array([0.5, 0.5]))
    labels = task.labels(parts[0].word_types)
    assert labels[0] == labels[1]


@pytest.mark.thorough
def test_planted_types_of_spans_are_read_from_their_layer() -> None:
    rng = torch.Generator().manual_seed(5)
    parts = []
    for _ in range(3):
        states = [torch.randn(1200, 8, generator=rng) for _ in range(3)]
        starts = np.arange(0, 1200, 3)
        sums = states[2].view(400, 3, 8).sum(1)
        labels = tuple("AB"[int(x > 0)] for x in sums[:, 0])
        features = WordFeatures(tuple(states), np.zeros(1200, np.int64), np.arange(1200))
        words = tuple(((f"w{i}",),) for i in range(400))
        parts.append(ProbedSpans(features, (np.stack([starts, starts + 3], 1),), words, labels))
    data, settings = ProbingData(*parts), ProbeSettings(projection_size=32)
    scores = probe_layers(data, settings)
    assert max(scores, key=lambda one: one.accuracy).layer == 2
    assert scores[2].accuracy > 0.85
    assert scores[2].description_length.compression > scores[0].description_length.compression
    mix = probe_mixes(data, settings)
    assert mix.center_of_gravity > 1.2
    assert mix.expected_layer is not None
    assert mix.expected_layer > 1.5


GOOD = {
    "text": "The old king saw a ship .",
    "info": {"document": 3},
    "targets": [{"span1": [0, 3], "span2": [4, 6], "label": "ARG", "info": 1}],
}


def put(folder: Path, *rows: object) -> Path:
    path = folder / "spans.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_targets_are_read_and_other_keys_are_not(tmp_path: Path) -> None:
    found = read_annotated(put(tmp_path, GOOD, {"text": " No\u00a0one  is here", "targets": []}))
    assert found.tasks == ("spans",)
    wanted = (SpanTarget((0, 3), "ARG", (4, 6)),)
    assert found.sentences == AnnotatedSentences(
        words=(tuple(GOOD["text"].split()), ("No", "one", "is", "here")), spans=(wanted, ())
    )
    assert found.sentences.select([1]).spans == ((),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": ""}, r"spans.jsonl:2: text must be words, got "),
        ({"text": 3}, r"spans.jsonl:2: text must be words, got "),
        ({"targets": None}, r"spans.jsonl:2: targets must be a list, got "),
        ({"targets": ["x"]}, r"spans.jsonl:2: targets\[0\]: must be an object"),
        (
            {"span1": [2, 2]},
            r"spans.jsonl:2: targets\[0\]: span1 must be \[first word.*got \[2, 2\]",
        ),
        ({"span1": [-1, 2]}, r"span1 must be .* to at most 7, got \[-1, 2\]"),
        ({"span1": [True, 2]}, r"span1 must be .* got \[True, 2\]"),
        ({"span1": [0, 1, 2]}, r"span1 must be "),
        ({"span1": None}, r"span1 must be .* got None"),
        ({"span2": [3, 8]}, r"spans.jsonl:2: targets\[0\]: span2 must be .* 7, got \[3, 8\]"),
        ({"span2": None}, r"spans.jsonl:2: targets\[0\]: has one span, but those before it two"),
        ({"label": ["a", "b"]}, r"spans.jsonl:2: targets\[0\]: label must be one text, got"),
        ({"label": ""}, r"label must be one text"),
    ],
)
def test_bad_targets_are_refused_by_line(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    target = GOOD["targets"][0]
    row = GOOD | {k: v for k, v in changes.items() if k in GOOD}
    if "targets" not in changes:
        row["targets"] = [target | {k: v for k, v in changes.items() if k in target}]
    with pytest.raises(ValueError, match=message):
        read_annotated(put(tmp_path, GOOD, row))


def test_files_without_targets_or_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"spans\.jsonl: no targets"):
        read_annotated(put(tmp_path, {"text": "a b", "targets": []}))
    with pytest.raises(ValueError, match=r"spans\.jsonl: no column 'text'"):
        read_annotated(put(tmp_path, {"targets": []}))
    with pytest.raises(ValueError, match="tasks of a file of spans are spans, got 'labels'"):
        read_annotated(put(tmp_path, GOOD), ("labels",))
    with pytest.raises(ValueError, match="label_column is of files of tags, not of a file of sp"):
        read_annotated(put(tmp_path, GOOD), label_column=2)


def test_spans_of_a_decoder_and_an_lstm_have_tokens() -> None:
    for name in ("gpt2-mini", "lstm-mini"):
        model, cut = made(name)
        features = token_features(model, cut, SENTENCES)
        rows = ProbedSpans.of_sentences(features, SENTENCES, ((SpanTarget((0, 3), "a"),), ()))
        n = len(cut.input_tokenizer.encode_ids_batch([" ".join(SENTENCES[0][:3])])[0])
        assert rows.token_ranges[0].tolist() == [[0, n]]
