import functools
import heapq
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba")

import itertools

from unmask.word_vectors.train import word2vec as w2v
from unmask.word_vectors.train.corpus import (
    Corpus,
    Lexicon,
    build_lexicon,
    corpus_from_ids,
    count_ids,
    keep_thresholds,
    subsampling_keep_probabilities,
)
from unmask.word_vectors.train.kernels import word2vec
from unmask.word_vectors.train.kernels import words as word_kernels

NAMES = ["<unk>", *(f"w{i}" for i in range(1, 40))]
MASK = 2**64 - 1


@functools.cache
def corpus() -> Corpus:
    random = np.random.default_rng(5)
    ids = random.zipf(1.4, 400) % 40
    ends = np.array([0, 7, 8, 31, 60, 150, 151, 260, 399, 400])
    return corpus_from_ids(ids.astype(np.uint16), np.stack((ends[:-1], ends[1:]), 1))


def words() -> Lexicon:
    return build_lexicon(
        NAMES, np.append(count_ids(corpus()), np.zeros(40 - corpus().n_ids, int)), [0], 2
    )


D, RATE, SEED = 19, 0.1, 3


def started(spec: w2v.Word2VecMethod, seed: int = SEED) -> w2v.Word2VecState:
    return w2v.initialize_word2vec(spec, words(), D, seed)


def train(spec: w2v.Word2VecMethod, state: w2v.Word2VecState, seed: int = SEED, **options: int):
    return w2v.train_word2vec(
        spec,
        corpus(),
        words(),
        state,
        w2v.Word2VecTraining(learning_rate=RATE, seed=seed, **options),
    )


def learned(
    spec: w2v.Word2VecMethod, seed: int = SEED, **options: int
) -> tuple[w2v.Word2VecState, list[w2v.Word2VecReport]]:
    state = started(spec, seed)
    return state, list(train(spec, state, seed, **options))


# The same in plain Python, step by step ------------------------------------------------------


def mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


class Plain:
    """The updates of one epoch after another, pair by pair and question by question."""

    def __init__(self, spec: w2v.Word2VecMethod) -> None:
        self.spec, self.lexicon = spec, words()
        state = started(spec)
        self.inputs, self.outputs = state.inputs.copy(), state.outputs.copy()
        self.keep = keep_thresholds(
            subsampling_keep_probabilities(self.lexicon.counts, spec.subsample)
        )
        self.tables = w2v._lookup_tables(spec, self.lexicon)
        self.state = 0

    def draw(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return mixed(self.state)

    def rows(self, word: int) -> list[int]:
        offsets, rows, _ = self.tables.row_parts
        return rows[offsets[word] : offsets[word + 1]].tolist()

    def questions(self, word: int) -> list[tuple[int, float]]:
        if isinstance(self.spec.output_layer, w2v.HierarchicalSoftmax):
            offsets, nodes, codes = self.tables.tree
            path = range(offsets[word], offsets[word + 1])
            return [(int(nodes[i]), 1.0 - codes[i]) for i in path]
        rows, entries = [(word, 1.0)], self.tables.alias_entries.tolist()
        for _ in range(self.spec.output_layer.n_negatives):
            random = self.draw()
            row = (random >> 32) * len(entries) >> 32
            if random & 0xFFFFFFFF >= entries[row] >> 32:
                row = entries[row] & 0xFFFFFFFF
            if row != word:
                rows.append((row, 0.0))
        return rows

    def step(self, hidden: np.ndarray, rows: list[tuple[int, float]], rate: float) -> np.ndarray:
        before = self.outputs.copy()
        error = np.zeros_like(hidden)
        for row, answer in rows:
            score = float(hidden @ before[row])
            at = int((score + 6) * 1000 / 12)
            p = 1.0 if score >= 6 else 0.0 if score <= -6 else float(self.tables.probabilities[at])
            error += np.float32((answer - p) * rate) * self.outputs[row]
            self.outputs[row] += np.float32((answer - p) * rate) * hidden
        return error

    def run(self) -> None:
        spec, n_tokens = self.spec, corpus().n_tokens
        part = corpus().read_part(0)
        for epoch in range(spec.epochs):
            out, drawn = (int(w2v._random_key(SEED, epoch, purpose)) for purpose in range(2))
            for start, end in part.sentences.tolist():
                kept = []
                for position in range(start, end):
                    row = int(self.lexicon.row_of[part.ids[position]])
                    random = mixed((out + position * 0x9E3779B97F4A7C15) & MASK) >> 32
                    if row >= 0 and random <= self.keep[row]:
                        kept.append(row)
                self.state = mixed(drawn ^ mixed(start))
                done = (epoch * n_tokens + start) / (spec.epochs * n_tokens)
                self.sentence(kept, RATE + (spec.min_learning_rate - RATE) * done)

    def sentence(self, kept: list[int], rate: float) -> None:
        for center, word in enumerate(kept):
            reach = self.spec.window
            if self.spec.dynamic_window:
                reach -= (self.draw() >> 32) * self.spec.window >> 32
            near = [
                kept[i]
                for i in range(max(0, center - reach), min(len(kept), center + reach + 1))
                if i != center
            ]
            if not near:
                continue
            if isinstance(self.spec, w2v.SkipGram):
                for other in near:
                    hidden = self.inputs[self.rows(word)].mean(0)
                    error = self.step(hidden, self.questions(other), rate)
                    np.add.at(self.inputs, self.rows(word), error)
            else:
                rows = [row for other in near for row in self.rows(other)]
                hidden = self.inputs[rows].sum(0) / np.float32(
                    len(rows) if self.spec.average_context else 1
                )
                error = self.step(hidden, self.questions(word), rate)
                part = len(rows) if self.spec.average_context and self.spec.divide_gradient else 1
                np.add.at(self.inputs, rows, error / np.float32(part))


SMALL = w2v.SkipGram(window=3, subsample=0.05, epochs=2)
SMALL_CBOW = w2v.CBOW(window=3, subsample=0.05, epochs=2)
SPECS = {
    "skip-gram": SMALL,
    "whole windows": replace(
        SMALL, dynamic_window=False, subsample=None, output_layer=w2v.NegativeSampling(4, 0.5)
    ),
    "tree": replace(SMALL, output_layer=w2v.HierarchicalSoftmax()),
    "n-grams": replace(SMALL, character_ngrams=w2v.CharacterNgrams(2, 3, 7)),
    "cbow": SMALL_CBOW,
    "cbow, sum": replace(SMALL_CBOW, average_context=False),
    "cbow, divided": replace(
        SMALL_CBOW, divide_gradient=True, output_layer=w2v.HierarchicalSoftmax()
    ),
    "cbow, n-grams": replace(SMALL_CBOW, character_ngrams=w2v.CharacterNgrams(2, 3, 7)),
}


@pytest.mark.sample(1)
@pytest.mark.quick("skip-gram", "n-grams", "cbow, sum", "cbow, divided")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_updates_equal_plain_python(spec: w2v.Word2VecMethod) -> None:
    plain = Plain(spec)
    plain.run()
    state, _ = learned(spec)
    assert np.abs(state.outputs).max() > 0.05
    # float32, sums in another order, and a probability that may fall on the next of 1000 steps
    np.testing.assert_allclose(state.inputs, plain.inputs, atol=2e-3)
    np.testing.assert_allclose(state.outputs, plain.outputs, atol=2e-3)


@pytest.mark.sample(1)
@pytest.mark.quick("skip-gram", "cbow, divided")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_stopped_and_resumed_training_equals_uninterrupted(spec: w2v.Word2VecMethod) -> None:
    whole, _ = learned(spec)
    state = started(spec)
    for report in train(spec, state, chunk_tokens=40):
        if report.position > 500:
            break
    assert 500 < state.place < 800
    for _ in train(spec, state, chunk_tokens=70):
        pass
    np.testing.assert_array_equal(state.inputs, whole.inputs)
    np.testing.assert_array_equal(state.outputs, whole.outputs)
    assert list(train(spec, state)) == []


def test_training_depends_on_the_seed() -> None:
    one, _ = learned(SMALL)
    same, _ = learned(SMALL)
    other, _ = learned(SMALL, 4)
    np.testing.assert_array_equal(one.inputs, same.inputs)
    assert np.abs(one.inputs - other.inputs).max() > 0.01


def test_learning_rate_falls_linearly_and_every_word_is_reported() -> None:
    spec = replace(SMALL, subsample=None)
    _, reports = learned(spec, chunk_tokens=50)
    assert [r.position for r in reports] == sorted({r.position for r in reports})
    for r in reports:
        assert r.rate == pytest.approx(RATE + (1e-4 - RATE) * r.position / 800)
    assert sum(r.n_words for r in reports) == 2 * words().n_words


def test_several_threads_learn_too() -> None:
    whole, _ = learned(SMALL)
    state, reports = learned(SMALL, threads=2, chunk_tokens=40)
    assert reports[-1].position == 800
    assert np.abs(state.inputs - whole.inputs).max() < 1.5  # they differ, but not by much
    assert np.isfinite(state.inputs).all()


def test_update_equals_gradient_of_the_loss() -> None:
    random = np.random.default_rng(0)
    d, n = 21, 5
    hidden = random.normal(0, 0.5, d).astype(np.float32)
    outputs = random.normal(0, 0.5, (n, d)).astype(np.float32)
    rows, answers = np.arange(n), np.array([1, 0, 0, 1, 0], np.float32)

    def loss(hidden: np.ndarray, outputs: np.ndarray) -> float:
        return word2vec._loss(hidden, outputs, rows, answers, n)

    signs = np.where(answers == 1, 1, -1)
    by_hand = np.log1p(np.exp(-signs * (outputs.astype(float) @ hidden))).sum()
    assert loss(hidden, outputs) == pytest.approx(by_hand, rel=1e-5)
    error, moved = np.empty(d, np.float32), outputs.copy()
    table, gains = w2v.sigmoid_table(), np.empty(n, np.float32)
    assert word2vec._update(hidden, error, moved, rows, answers, n, np.float32(1), table, gains)
    step = np.float32(1e-2)
    for k in range(d):
        bump = np.zeros(d, np.float32)
        bump[k] = step
        slope = (loss(hidden + bump, outputs) - loss(hidden - bump, outputs)) / (2 * step)
        assert -error[k] == pytest.approx(slope, abs=0.02)  # the table has steps of 0.012
        bumped, lowered = outputs.copy(), outputs.copy()
        bumped[2, k] += step
        lowered[2, k] -= step
        slope = (loss(hidden, bumped) - loss(hidden, lowered)) / (2 * step)
        assert outputs[2, k] - moved[2, k] == pytest.approx(slope, abs=0.02)


def test_sigmoid_table_equals_logistic_function() -> None:
    table = w2v.sigmoid_table()
    scores = np.linspace(-5.999, 5.999, 997, dtype=np.float32)
    found = [word2vec._sigmoid(score, table) for score in scores]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-scores)), atol=0.0016)
    for score in (np.nextafter(np.float32(6), np.float32(0)), np.float32(6), np.float32(1e9)):
        assert word2vec._sigmoid(score, table) >= 0.997
    assert word2vec._sigmoid(np.float32(-1e9), table) == 0


def test_huffman_codes_are_optimal_and_prefix_free() -> None:
    counts = np.sort(np.random.default_rng(1).integers(1, 500, 50))[::-1].copy()
    offsets, nodes, codes = word_kernels.huffman_paths(counts)
    paths = [tuple(codes[a:b][::-1]) for a, b in itertools.pairwise(offsets)]
    assert sum(len(p) * c for p, c in zip(paths, counts, strict=True)) == cost(counts.tolist())
    assert sum(2.0 ** -len(p) for p in paths) == 1
    assert len(set(paths)) == 50
    assert not any(a != b and a == b[: len(a)] for a in paths for b in paths)
    assert set(nodes.tolist()) == set(range(49))
    assert all(nodes[end - 1] == 48 for end in offsets[1:])  # the root


def cost(counts: list[int]) -> int:
    """Add up the inner nodes of the best tree, found by a heap."""
    heapq.heapify(counts)
    total = 0
    while len(counts) > 1:
        total += (node := heapq.heappop(counts) + heapq.heappop(counts))
        heapq.heappush(counts, node)
    return total


def test_negatives_follow_their_weights() -> None:
    weights = np.array([5.0, 1.0, 0.5, 3.0, 0.0])
    entries = word_kernels.alias_table(weights)
    random = np.random.default_rng(0).integers(0, 2**64, 40_000, np.uint64)
    seen = np.bincount([word_kernels.sample_row(r, entries) for r in random], minlength=5)
    np.testing.assert_allclose(seen / 40_000, weights / weights.sum(), atol=0.01)
    np.testing.assert_allclose(shares(entries), weights / weights.sum(), atol=1e-9)


@pytest.mark.parametrize("exponent", [0.75, 0.0])
def test_negatives_follow_a_power_of_the_counts(exponent: float) -> None:
    spec = w2v.SkipGram(output_layer=w2v.NegativeSampling(exponent=exponent))
    weights = words().counts.astype(float) ** exponent
    entries = w2v._lookup_tables(spec, words()).alias_entries
    np.testing.assert_allclose(shares(entries), weights / weights.sum(), atol=1e-9)


def shares(entries: np.ndarray) -> np.ndarray:
    """Add up exactly what the table gives to each row."""
    given = np.zeros(len(entries))
    for i, entry in enumerate(entries.tolist()):
        given[i] += (entry >> 32) / 2**32
        given[entry & 0xFFFFFFFF] += 1 - (entry >> 32) / 2**32
    return given / len(entries)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)],  # as published for FNV-1a
)
def test_hashes_equal_fnv_1a(text: str, value: int) -> None:
    letters = np.frombuffer(text.encode(), np.uint8)
    assert word_kernels._hash_of(letters, 0, len(letters)) == value


def test_ngrams_equal_fasttext() -> None:
    spec = w2v.CharacterNgrams(3, 6, 2_000_000)
    gensim = pytest.importorskip("gensim.models.fasttext")
    for word in ("where", "a", "größe", "日本語", "nanana", "\U0001f600x"):
        expected = [i + 100 for i in gensim.ft_ngram_hashes(word, 3, 6, 2_000_000)]
        offsets, rows = w2v.ngram_rows([word], spec, 100)
        assert sorted(rows.tolist()) == sorted(expected)
        assert offsets.tolist() == [0, len(expected)]


def test_ngrams_of_where_equal_the_paper() -> None:
    # Bojanowski et al. 2017, section 3.2: <wh, whe, her, ere, re>
    _, rows = w2v.ngram_rows(["where"], w2v.CharacterNgrams(3, 3, 2**31), 0)
    letters = [np.frombuffer(g.encode(), np.uint8) for g in ("<wh", "whe", "her", "ere", "re>")]
    assert rows.tolist() == [word_kernels._hash_of(g, 0, 3) % 2**31 for g in letters]
    # signs: bytes above 127 are below 0 in the released code
    found = word_kernels._hash_of(np.frombuffer("é".encode(), np.uint8), 0, 2)
    value = 2166136261
    for byte in "é".encode():
        value = ((value ^ (byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    assert found == value


def test_boundary_marks_alone_are_no_ngrams() -> None:
    _, rows = w2v.ngram_rows(["ab"], w2v.CharacterNgrams(1, 1, 2**31), 0)
    letters = [np.frombuffer(g.encode(), np.uint8) for g in "ab"]
    assert rows.tolist() == [word_kernels._hash_of(g, 0, 1) % 2**31 for g in letters]


def test_word_vector_is_mean_of_its_rows() -> None:
    spec = replace(SMALL, character_ngrams=w2v.CharacterNgrams(3, 4, 50))
    state, _ = learned(spec)
    lexicon = words()
    found = w2v.word_vectors(spec, lexicon, state)
    assert found.shape == (len(lexicon), 19)
    for i in (0, len(lexicon) - 1):
        _, rows = w2v.ngram_rows([lexicon.words[i]], spec.character_ngrams, len(lexicon))
        mean = state.inputs[[i, *rows]].mean(0)
        np.testing.assert_allclose(mean, found[i], rtol=1e-5, atol=1e-6)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("spec", "rate"),
    [
        (w2v.SkipGram(epochs=20, subsample=None), 0.05),
        (w2v.SkipGram(epochs=20, subsample=None, output_layer=w2v.HierarchicalSoftmax()), 0.05),
        (w2v.CBOW(epochs=20, subsample=None), 0.1),
        (
            w2v.SkipGram(epochs=20, subsample=None, character_ngrams=w2v.CharacterNgrams(3, 4, 50)),
            0.025,
        ),
    ],
)
def test_words_of_one_topic_cluster(spec: w2v.Word2VecMethod, rate: float) -> None:
    random = np.random.default_rng(0)
    n = 10
    topics = random.integers(0, 2, 300)
    ids = (random.integers(0, n, (300, 12)) + n * topics[:, None]).ravel().astype(np.uint16)
    ends = np.arange(0, 3601, 12)
    made = corpus_from_ids(ids, np.stack((ends[:-1], ends[1:]), 1))
    known = build_lexicon([f"{chr(97 + i)}{i}x" for i in range(2 * n)], count_ids(made))
    state = w2v.initialize_word2vec(spec, known, 16)
    reports = list(
        w2v.train_word2vec(spec, made, known, state, w2v.Word2VecTraining(learning_rate=rate))
    )
    assert reports[-1].loss < reports[0].loss - 0.05
    found = w2v.word_vectors(spec, known, state)
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    topic = np.flatnonzero(known.row_of >= 0)[np.argsort(known.row_of)] >= n
    same = topic[:, None] == topic
    cosine = unit @ unit.T
    assert cosine[same].mean() > cosine[~same].mean() + 0.3


def test_diverging_learning_rate_is_reported() -> None:
    state = started(SMALL)
    state.inputs[3, 2] = np.inf
    with pytest.raises(FloatingPointError, match=r"not finite near word .* the rate 0\.1"):
        list(train(SMALL, state))
    state = started(SMALL)
    state.outputs[-1, 0] = np.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        list(train(SMALL, state))


@pytest.mark.parametrize(
    ("make", "output"),
    [
        (lambda: w2v.SkipGram(window=0), "window must be at least 1, got 0"),
        (lambda: w2v.CBOW(epochs=0), "epochs must be at least 1, got 0"),
        (
            lambda: w2v.CBOW(min_learning_rate=-0.1),
            r"min_learning_rate must be at least 0, got -0\.1",
        ),
        (lambda: w2v.SkipGram(subsample=0.0), "subsample must be above 0, got 0.0"),
        (lambda: w2v.NegativeSampling(0), "n_negatives must be at least 1, got 0"),
        (
            lambda: w2v.CharacterNgrams(3, 2),
            "most characters of an n-gram must be at least 3, got 2",
        ),
        (lambda: w2v.CharacterNgrams(n_buckets=0), "n_buckets must be at least 1, got 0"),
    ],
)
def test_invalid_spec_is_refused(make: object, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        make()  # type: ignore[operator]


def test_incompatible_training_state_is_refused() -> None:
    state = started(SMALL)
    with pytest.raises(ValueError, match="must be of shapes"):
        list(train(replace(SMALL, output_layer=w2v.HierarchicalSoftmax()), state))
    for rate in (0.0, math.inf, 1e-5):
        with pytest.raises(
            ValueError, match="rate must be above 0, and at least min_learning_rate"
        ):
            list(
                w2v.train_word2vec(
                    SMALL, corpus(), words(), state, w2v.Word2VecTraining(learning_rate=rate)
                )
            )
    with pytest.raises(ValueError, match="two words or more"):
        w2v.initialize_word2vec(SMALL, build_lexicon(["a"], np.array([9])))
    with pytest.raises(ValueError, match="d_model must be at least 1, got 0"):
        w2v.initialize_word2vec(SMALL, words(), 0)
