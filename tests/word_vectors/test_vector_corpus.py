from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from toy_text import corpus as toy_text

from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.text.documents import Document
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import WORD_LEVEL, TokenizerSpec
from unmask.tokenizers.vocabulary import WordLevel
from unmask.word_vectors.formats import npy
from unmask.word_vectors.train import phrases, word2vec
from unmask.word_vectors.train.corpus import (
    MAX_DOCUMENT_WORDS,
    build_lexicon,
    corpus_from_ids,
    corpus_from_shards,
    count_ids,
    keep_thresholds,
    lexicon_from_tokenizer,
    subsample_chunk,
    subsampling_keep_probabilities,
)

KEY = np.uint64(12345)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    texts = toy_text(12).strip().split("\n\n")
    tokenizer = train_tokenizer(TokenizerSpec(WordLevel(40), WORD_LEVEL), texts)
    out = tmp_path_factory.mktemp("shards") / "words"
    documents = (Document(text, f"toy:{i}") for i, text in enumerate(texts))
    return write_shards(documents, tokenizer, out, shard_tokens=150)


@pytest.mark.parametrize("unit", ["document", "paragraph", "sentence"])
@pytest.mark.parametrize("held_out", [False, True])
def test_sentences_equal_those_of_the_shards(
    shards: TokenShards, unit: str, held_out: bool
) -> None:
    within = shards.split_held_out(0.3)[0] if held_out else None
    corpus = corpus_from_shards(shards, unit, within)  # type: ignore[arg-type]
    assert len(corpus.part_sizes) > 2
    found = [
        (part.offset + int(a), part.offset + int(b), part.ids[a:b].tolist())
        for part in map(corpus.read_part, range(len(corpus.part_sizes)))
        for a, b in part.sentences
    ]
    rows = shards.row_spans(MAX_DOCUMENT_WORDS, unit, within)  # type: ignore[arg-type]
    assert [f[:2] for f in found] == [tuple(row) for row in rows.tolist()]
    for start, end, ids in found:
        assert ids == shards.read_tokens(start, end).ids.tolist()


def test_ids_are_not_copied(shards: TokenShards) -> None:
    part = corpus_from_shards(shards).read_part(0)
    assert np.shares_memory(part.ids, shards.mapped_arrays(0)[0])
    assert part.ids.dtype == np.uint16
    assert not part.ids.flags.writeable


@pytest.mark.parametrize("n_tokens", [1, 20, 100, 10**6])
def test_chunks_cover_every_sentence_once_from_any_start(
    shards: TokenShards, n_tokens: int
) -> None:
    corpus = corpus_from_shards(shards)
    chunks = list(corpus.iter_chunks(n_tokens))
    all_spans = [(c.part.offset, *span) for c in chunks for span in c.sentences.tolist()]
    assert (
        len(set(all_spans))
        == len(all_spans)
        == len(shards.row_spans(MAX_DOCUMENT_WORDS, "sentence"))
    )
    assert [c.end for c in chunks[:-1]] <= [c.start for c in chunks[1:]]
    for position in (chunks[len(chunks) // 2].end, 0, corpus.n_tokens):
        rest = [
            (c.part.offset, *span)
            for c in corpus.iter_chunks(n_tokens, position)
            for span in c.sentences.tolist()
        ]
        assert rest == [s for s in all_spans if s[0] + s[1] >= position]


def test_long_sentences_are_split() -> None:
    corpus = corpus_from_ids(np.zeros(2 * MAX_DOCUMENT_WORDS + 5, np.uint16))
    assert np.diff(corpus.read_part(0).sentences).ravel().tolist() == [
        MAX_DOCUMENT_WORDS,
        MAX_DOCUMENT_WORDS,
        5,
    ]


def test_words_are_counted_without_special_tokens(shards: TokenShards) -> None:
    corpus = corpus_from_shards(shards)
    counts = count_ids(corpus)
    ids = shards.read_tokens(0, shards.n_tokens).ids
    np.testing.assert_array_equal(counts, np.bincount(ids, minlength=shards.tokenizer.vocab_size))
    special = shards.tokenizer.special_ids
    assert special.unknown is not None
    assert counts[special.unknown] > 0
    found = lexicon_from_tokenizer(shards.tokenizer, counts, min_count=6)
    assert not {"<unk>", "<eos>"} & set(found.words)
    assert (np.diff(found.counts) <= 0).all()
    assert found.counts[-1] >= 6
    assert (found.row_of[list(special.all_ids)] == -1).all()
    for word in ("the", found.words[-1]):
        id_ = shards.tokenizer.encode(word).ids[0]
        assert found.words[found.row_of[id_]] == word
        assert found.counts[found.row_of[id_]] == counts[id_]
    assert len(lexicon_from_tokenizer(shards.tokenizer, counts, min_count=6, max_words=3)) == 3
    with pytest.raises(ValueError, match="no word is seen 1000000 times or more"):
        lexicon_from_tokenizer(shards.tokenizer, counts, min_count=10**6)


def test_subsampling_rates_equal_released_code() -> None:
    counts = np.array([5000, 400, 30, 0])
    kept = subsampling_keep_probabilities(counts, 1e-3)
    f = counts[:2] / counts.sum()
    np.testing.assert_allclose(kept[:2], np.sqrt(1e-3 / f) + 1e-3 / f)
    assert kept[2:].tolist() == [pytest.approx(min(np.sqrt(0.181) + 0.181, 1)), 1]
    assert subsampling_keep_probabilities(counts, None).tolist() == [1, 1, 1, 1]
    assert keep_thresholds(np.array([0.0, 0.5, 1.0])).tolist() == [0, 2**31 - 1, 2**32 - 1]
    with pytest.raises(ValueError, match="must be above 0"):
        subsampling_keep_probabilities(counts, 0.0)


def test_subsampling_depends_on_position_only() -> None:
    ids = np.random.default_rng(0).integers(0, 4, 20_000).astype(np.uint32)
    spans = np.stack((np.arange(0, 20_000, 50), np.arange(50, 20_001, 50)), 1)
    corpus = corpus_from_ids(ids, spans)
    row_of = np.array([-1, 0, 1, 2], np.int32)
    keep = keep_thresholds(np.array([1.0, 0.25, 0.7]))
    (chunk,) = corpus.iter_chunks(10**6)
    whole = subsample_chunk(chunk, row_of, keep, KEY)
    seen = np.bincount(whole.rows[: whole.n_words]) / np.bincount(ids)[1:]
    np.testing.assert_allclose(seen, [1, 0.25, 0.7], atol=0.02)
    assert whole.n_sentences == 400
    np.testing.assert_array_equal(whole.offsets[:400], spans[:, 0])
    pieces = [subsample_chunk(c, row_of, keep, KEY) for c in corpus.iter_chunks(1000)]
    rows = np.concatenate([p.rows[: p.n_words] for p in pieces])
    np.testing.assert_array_equal(rows, whole.rows[: whole.n_words])
    other = subsample_chunk(chunk, row_of, keep, np.uint64(9))
    assert not np.array_equal(other.rows[: other.n_words], rows)


def test_word_without_row_is_skipped_or_ends_the_sentence() -> None:
    ids = np.array([0, 1, 2, 0, 0, 1, 2, 2, 0], np.uint16)
    corpus = corpus_from_ids(ids, np.array([[0, 6], [6, 8], [8, 9]]))
    (chunk,) = corpus.iter_chunks(100)
    row_of, keep = np.array([-1, 0, 1], np.int32), keep_thresholds(np.ones(2))
    for gaps, bounds, positions in ((False, [0, 3, 5], [0, 6]), (True, [0, 2, 3, 5], [0, 3, 6])):
        found = subsample_chunk(chunk, row_of, keep, KEY, gaps=gaps)
        assert found.rows[: found.n_words].tolist() == [0, 1, 0, 1, 1]
        assert found.bounds[: found.n_sentences + 1].tolist() == bounds
        assert found.offsets[: found.n_sentences].tolist()[-1] == positions[-1]


def test_invalid_id_types_are_refused() -> None:
    with pytest.raises(ValueError, match="must be uint16 or uint32, got uint8"):
        corpus_from_ids(np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="must lie in order within the 3 ids"):
        corpus_from_ids(np.zeros(3, np.uint16), np.array([[0, 2], [1, 3]]))
    with pytest.raises(ValueError, match="2 words for 3 ids"):
        build_lexicon(["a", "b"], np.array([1, 2, 3]))


def test_vectors_are_learned_from_shards(shards: TokenShards) -> None:
    corpus = corpus_from_shards(shards, within=shards.split_held_out(0.2)[0])
    tokenizer = lexicon_from_tokenizer(shards.tokenizer, count_ids(corpus), min_count=3)
    spec = word2vec.SkipGram(epochs=2)
    state = word2vec.initialize_word2vec(spec, tokenizer, d_model=8)
    training = word2vec.Word2VecTraining(learning_rate=0.025, chunk_tokens=50)
    reports = list(word2vec.train_word2vec(spec, corpus, tokenizer, state, training))
    assert state.place == 2 * corpus.n_tokens
    assert sum(r.n_words for r in reports) > 0
    assert np.isfinite(word2vec.word_vectors(spec, tokenizer, state)).all()


# Phrases -------------------------------------------------------------------------------------

NAMES = ["<unk>", "new", "york", "times", "the", "read", "city"]


def papers(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Give sentences in which `new york` and `new york times` stand together."""
    random = np.random.default_rng(seed)
    phrases = [[1, 2, 3], [1, 2], [4], [5], [6], [0], [4], [4]]
    sentences = [[w for i in random.integers(0, 8, 8) for w in phrases[i]] for _ in range(400)]
    ends = np.cumsum([0, *map(len, sentences)])
    return np.array([w for s in sentences for w in s], np.uint16), np.stack(
        (ends[:-1], ends[1:]), 1
    )


@pytest.mark.thorough
def test_three_word_phrases_are_joined_in_two_passes(tmp_path: Path) -> None:
    ids, spans = papers()
    corpus = corpus_from_ids(ids, spans)
    joining = phrases.PhraseDetection(thresholds=(2.0, 2.0))
    joined, words = phrases.detect_phrases(corpus, NAMES, [0], joining, tmp_path)
    assert words == [*NAMES, "new_york", "york_times", "new_york_times"]
    # by plain replacing of strings, sentence by sentence
    part = joined.read_part(0)
    found = [" ".join(words[i] for i in part.ids[a:b]) for a, b in part.sentences]
    expected = [
        " ".join(NAMES[i] for i in ids[a:b])
        .replace("new york", "new_york")
        .replace("new_york times", "new_york_times")
        for a, b in spans
    ]
    assert found == expected
    again, same = phrases.detect_phrases(corpus, NAMES, [0], joining, tmp_path)  # is only opened
    assert same == words
    np.testing.assert_array_equal(again.read_part(0).ids, part.ids)
    with pytest.raises(ValueError, match="joined otherwise"):
        phrases.detect_phrases(
            corpus, NAMES, [0], phrases.PhraseDetection(thresholds=(5.0,)), tmp_path
        )


def test_phrase_scores_equal_formula(tmp_path: Path) -> None:
    ids, spans = papers(1)
    corpus = corpus_from_ids(ids, spans)
    known = build_lexicon(NAMES, count_ids(corpus), [0])
    pairs = phrases.count_cooccurrences(corpus, known, phrases._BIGRAM_WINDOW, tmp_path / "counts")
    score = phrases.phrase_scores(pairs, known, 5.0)
    for row, column, found in zip(pairs.row_indices, pairs.columns, score, strict=True):
        a, b = NAMES.index(known.words[column]), NAMES.index(known.words[row])
        together = sum(int(((ids[s : e - 1] == a) & (ids[s + 1 : e] == b)).sum()) for s, e in spans)
        single = (ids == a).sum() * (ids == b).sum()
        assert found == pytest.approx((together - 5) / single * (ids > 0).sum(), rel=1e-5)


def test_invalid_phrase_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="a threshold for each pass"):
        phrases.PhraseDetection(thresholds=())
    with pytest.raises(ValueError, match="thresholds must be above 0"):
        phrases.PhraseDetection(thresholds=(1.0, 0.0))
    with pytest.raises(ValueError, match="discount must be at least 0"):
        phrases.PhraseDetection(discount=-1.0)
    for joint in ("", " ", "a\tb"):
        with pytest.raises(ValueError, match="delimiter must be a text without white space"):
            phrases.PhraseDetection(delimiter=joint)


def test_arrays_grow_on_disk(tmp_path: Path) -> None:
    with npy.npy_appender(tmp_path / "a.npy", np.int32, 2) as append:
        for n in (0, 3, 1000):
            append(np.arange(2 * n).reshape(n, 2))
    found = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert found.shape == (1003, 2)
    assert found[3:].ravel().tolist() == list(range(2000))
    with pytest.raises(ValueError, match="a mistake"):
        fail(tmp_path / "b.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def fail(path: Path) -> None:
    with npy.npy_appender(path, float) as append:
        append(np.zeros(3))
        raise ValueError("a mistake")
