"""Learning vocabularies: the literature's example, the same every time, and too little text."""

import hashlib
import itertools
import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import LOSSLESS, SPECS, learned, refusal, story

from unmask.config import from_dict, to_dict
from unmask.tokenizers.learn import count
from unmask.tokenizers.learn import train as learning
from unmask.tokenizers.learn.count import MAX_WORD_CHARACTERS, count_words
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.learn.train import learn_merges
from unmask.tokenizers.spec import (
    BERT,
    GPT2,
    LLAMA,
    T5,
    WORD_LEVEL,
    XLM,
    SpecialTokens,
    TokenizerSpec,
)
from unmask.tokenizers.vocabulary import (
    BPE,
    ByteBPE,
    ByteLevel,
    CharacterLevel,
    SentencePieceBPE,
    Unigram,
    WordLevel,
    WordPiece,
    parse_vocabulary,
)

ONE = SpecialTokens(pad="<unk>", start="<unk>", unknown="<unk>")


def test_bpe_equals_jurafsky_and_martin():
    """Speech and Language Processing, 3rd edition, byte-pair encoding: corpus, merges, new word."""
    corpus = "low " * 5 + "lowest " * 2 + "newer " * 6 + "wider " * 3 + "new " * 2
    spec = TokenizerSpec(
        BPE(vocab_size=1 + 11 + 8, end_of_word="_", separate_end_of_word=True), ONE
    )
    tokenizer = train_tokenizer(spec, [corpus])
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    assert pieces[:12] == ["<unk>", *"_deilnorstw"]
    assert pieces[12:] == ["er", "er_", "ne", "new", "lo", "low", "newer_", "low_"]
    assert tokenizer.pieces(tokenizer.encode("newer").ids) == ["newer_"]
    assert tokenizer.pieces(tokenizer.encode("lower").ids) == ["low", "er_"]
    assert tokenizer.decode(tokenizer.encode("lower newer").ids) == "lower newer"


def test_xlm_special_tokens_have_released_ids():
    tokenizer = train_tokenizer(
        TokenizerSpec(BPE(vocab_size=37), XLM), ["le chat mange la pomme du chat " * 3]
    )
    special = tokenizer.special_ids
    assert (special.start, special.end, special.pad, special.unknown) == (0, 1, 2, 3)
    assert special.mask == 5
    assert (special.prefix, special.separator, special.suffix) == ((0,), (1,), (1,))
    assert tokenizer.pieces(tokenizer.encode("chat la").ids) == ["chat</w>", "la</w>"]


def test_ties_go_to_the_first_listed_symbol():
    words = {"ab": 2, "cd": 2, "ba": 2}
    assert learn_merges(words, list("abcd"), 9)[0] == ["ab", "ba", "cd"]
    assert learn_merges(words, list("dcba"), 9)[0] == ["cd", "ba", "ab"]


def test_pair_must_occur_twice():
    assert learn_merges({"abc": 1, "xbc": 1}, list("abcx"), 9)[0] == ["bc"]


def test_merges_keep_continuation_and_end_of_word_markers():
    made, pairs = learn_merges({"aba": 3}, ["a", "b", "##a", "##b"], 2, prefix="##")
    assert (made, pairs[0]) == (["ab", "aba"], ("a", "##b"))
    made, pairs = learn_merges({"aba": 3}, ["a", "b", "a</w>"], 2, suffix="</w>")
    assert (made, pairs) == (["ab", "aba</w>"], [("a", "b"), ("ab", "a</w>")])


@settings(max_examples=40)
@given(
    words=st.dictionaries(
        st.text(st.sampled_from("abcé"), min_size=1, max_size=8), st.integers(1, 30), min_size=1
    ),
    order=st.permutations(list("abcé")),
)
def test_merging_equals_definition(words: dict[str, int], order: list[str]):
    expected, cut = [], {word: list(word) for word in words}
    position = {symbol: i for i, symbol in enumerate(order)}
    for _ in range(12):
        pairs: dict[tuple[str, str], int] = {}
        for word, symbols in cut.items():
            for pair in itertools.pairwise(symbols):
                pairs[pair] = pairs.get(pair, 0) + words[word]
        if not pairs:
            break
        pair = min(pairs, key=lambda p: (-pairs[p], position[p[0]], position[p[1]]))
        if pairs[pair] < 2:
            break
        expected.append(pair)
        position.setdefault("".join(pair), len(position))
        for symbols in cut.values():
            i = 0
            while i < len(symbols) - 1:
                if (symbols[i], symbols[i + 1]) == pair:
                    symbols[i : i + 2] = ["".join(pair)]
                i += 1
    assert learn_merges(words, order, 12)[1] == expected


@pytest.mark.parametrize("name", SPECS)
def test_ids_are_special_tokens_then_characters_then_pieces(name: str):
    tokenizer = learned(name)
    special = tokenizer.special_ids
    n = len(special.all_ids) - len(special.sentinels)
    assert special.all_ids - set(special.sentinels) == set(range(n))
    # as the published vocabularies; Llama's has no padding of its own
    assert special.pad == {"roberta": 1, "pieces": 2}.get(name, 0)
    pieces = tokenizer.pieces(range(n, tokenizer.vocab_size - len(special.sentinels)))
    assert len(set(pieces)) == len(pieces) or name in LOSSLESS
    size = getattr(SPECS[name].vocabulary, "vocab_size", 259)
    assert tokenizer.vocab_size - len(special.sentinels) <= size


def test_pieces_with_spaces_cover_any_text_and_split_digits():
    tokenizer = learned("pieces")
    assert tokenizer.pieces(range(3, 259)) == [f"<0x{i:02X}>" for i in range(256)]
    for text in ("the  old king", "a 中 b", "12 quiet houses, 2024", " x\n"):
        ids = tokenizer.encode(text).ids
        assert tokenizer.special_ids.unknown not in ids
        assert tokenizer.decode(ids) == text
    result = tokenizer.pieces(tokenizer.encode("in 1212").ids)
    assert result[-4:] == ["1", "2", "1", "2"]
    rare = tokenizer.encode("中").ids.tolist()
    assert rare[-3:] == [3 + byte for byte in "中".encode()]


@pytest.mark.parametrize("name", SPECS)
def test_frequent_words_are_few_tokens(name: str):
    tokenizer = learned(name)
    unknown = tokenizer.special_ids.unknown
    assert (tokenizer.encode(story()).ids != unknown).all() or tokenizer.special_tokens == GPT2
    if name not in ("bytes", "characters"):
        assert len(tokenizer.encode("remembered the silver ring")) <= 8


LEARN = """\
import hashlib, sys
from pathlib import Path
from tokenizer_cases import SPECS, story
from unmask.tokenizers.learn.tokenizer import train_tokenizer
for name, spec in SPECS.items():
    folder = Path(sys.argv[1]) / name
    train_tokenizer(spec, story().split("\\n")).save(folder)
    print(name, hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest())
"""


@pytest.mark.thorough
def test_training_is_deterministic_across_processes_and_threads(tmp_path: Path):
    for name, spec in SPECS.items():
        train_tokenizer(spec, story().split("\n")).save(tmp_path / name)
    here = {
        name: hashlib.sha256((tmp_path / name / "tokenizer.json").read_bytes()).hexdigest()
        for name in SPECS
    }
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    for i, threads in enumerate(("1", "4")):
        process = subprocess.run(
            [sys.executable, "-c", LEARN, str(tmp_path / str(i))],
            env={
                **os.environ, "PYTHONPATH": paths, "RAYON_NUM_THREADS": threads,
                "TOKENIZERS_PARALLELISM": "true", "PYTHONHASHSEED": threads,
            },
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert dict(line.split() for line in process.stdout.splitlines()) == here


@pytest.mark.parametrize("name", SPECS)
def test_document_boundaries_do_not_matter(name: str, tmp_path: Path):
    train_tokenizer(SPECS[name], (line + "\n" for line in story().split("\n"))).save(tmp_path)
    learned(name).save(tmp_path / "whole")
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    whole = json.loads((tmp_path / "whole" / "tokenizer.json").read_text())["model"]
    if name in ("bytebpe", "roberta"):  # the last line had no newline after it
        assert abs(len(model["vocab"]) - len(whole["vocab"])) <= 1
    elif name != "characters":
        assert model == whole


@pytest.mark.parametrize("name", [n for n in SPECS if n not in ("bytes", "signs")])
def test_too_little_text_gives_a_smaller_vocabulary_with_a_note(
    name: str, caplog: pytest.LogCaptureFixture
):
    spec = SPECS[name]  # of words that are left out where they are rare it is no news
    with caplog.at_level(logging.WARNING):
        tokenizer = train_tokenizer(spec, ["the fox saw the fox"])
    size = tokenizer.vocab_size - len(tokenizer.special_ids.sentinels)
    expected = spec.vocabulary.vocab_size
    assert size < expected
    assert f"only for a vocabulary of {size}, not of {expected}" in caplog.text


@pytest.mark.parametrize("name", [n for n in SPECS if n != "bytes"])
@pytest.mark.parametrize("texts", [[], [""], ["", " \n "]])
def test_no_text_is_an_error(name: str, texts: list[str]):
    if name in ("bytebpe", "roberta", "characters") and texts[-1:] == [" \n "]:
        assert train_tokenizer(SPECS[name], texts).vocab_size > 2  # spaces are text to these
        return
    with pytest.raises(ValueError, match="there is no text to train a vocabulary on"):
        train_tokenizer(SPECS[name], texts)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            TokenizerSpec(ByteBPE(256), GPT2),
            "a vocabulary of 256 is too small: 1 special tokens and 256 single characters must be "
            "in it; ask for 257 or more",
        ),
        (TokenizerSpec(WordPiece(20), BERT), "a vocabulary of 20 is too small: 5 special tokens"),
        (
            TokenizerSpec(BPE(vocab_size=20), ONE),
            "a vocabulary of 20 is too small: 1 special tokens",
        ),
        (TokenizerSpec(Unigram(20), T5), "a vocabulary of 20 is too small: 3 special tokens"),
        (TokenizerSpec(CharacterLevel(3), T5), "ask for 4 or more"),
        (
            TokenizerSpec(WordPiece(400), GPT2.__class__(pad="p", start="p")),
            "special_tokens.unknown",
        ),
        (
            TokenizerSpec(CharacterLevel(90), SpecialTokens(pad="a", start="a", unknown="<unk>")),
            "'a' cannot be a special token: it is a character of the text",
        ),
    ],
)
def test_impossible_specs_are_refused(spec: TokenizerSpec, message: str):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(spec, [story()])


def test_smallest_named_size_works():
    with pytest.raises(ValueError, match="ask for") as error:
        train_tokenizer(TokenizerSpec(WordPiece(20), BERT), [story()])
    least = int(str(error.value).split("ask for ")[1].split()[0])
    assert train_tokenizer(TokenizerSpec(WordPiece(least), BERT), [story()]).vocab_size == least


@pytest.mark.parametrize("name", SPECS)
def test_special_token_names_in_text_are_not_learned(name: str):
    special = ("[MASK]", "</s>", "<|endoftext|>", "<unk>", "[UNK]", "<pad>")
    text = "".join(f"a{x}b c{x}d {x} {x}e " for x in special) * 50 + story(40)
    tokenizer = train_tokenizer(SPECS[name], [text])
    written = set(tokenizer.encode(text).ids.tolist()) & tokenizer.special_ids.all_ids
    assert written <= {tokenizer.special_ids.unknown}


def test_lone_surrogate_is_refused():
    for kind in (WordPiece(300), CharacterLevel(30)):
        with pytest.raises(ValueError, match="half of a surrogate pair"):
            train_tokenizer(TokenizerSpec(kind, BERT), ["fine", "b\ud800d"])


def test_byte_vocabulary_reads_no_text():
    def texts():
        raise AssertionError("are not trained")
        yield ""

    assert train_tokenizer(TokenizerSpec(ByteLevel(), T5), texts()).vocab_size == 3 + 256 + 100


def test_rarest_characters_are_unknown():
    text = "the king " * 4000 + "中 ж"
    for kind in (WordPiece(60), BPE(vocab_size=60), Unigram(60)):
        tokenizer = train_tokenizer(TokenizerSpec(kind, BERT), [text])
        assert tokenizer.special_ids.unknown in tokenizer.encode("the 中 king").ids
        assert tokenizer.special_ids.unknown not in tokenizer.encode("the king").ids
    tokenizer = train_tokenizer(TokenizerSpec(WordPiece(60, character_coverage=1.0), BERT), [text])
    assert tokenizer.special_ids.unknown not in tokenizer.encode("the 中 king").ids


def test_memory_is_bounded_by_dropping_rarest_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(count, "MAX_COUNTED_WORDS", 50)
    monkeypatch.setattr(count, "_MAX_COUNTED_CHUNKS", 30)
    rare = [f"w{i}" for i in range(1000)]
    texts = [f"the king {word} the king" for word in rare]
    shell = learning.pipeline.wordpiece_pipeline({"?": 0}, "?", lowercase=True)
    words = count_words(texts, shell, ())
    assert len(words) <= 80
    assert words["king"] == words["the"] == 2000
    assert len(count_words(rare, shell, ())) == 50  # where none is rarer, the first stay


@pytest.mark.parametrize("name", ["wordpiece", "bpe", "bytebpe", "unigram"])
def test_counts_are_the_same_however_often_they_are_gathered(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    """Within the limits nothing is dropped: the vocabulary is that of one count of all texts."""
    texts = [story() * 2, story()[::-1], story().upper()]
    whole = train_tokenizer(SPECS[name], texts)
    monkeypatch.setattr(count, "_MAX_CHUNK_CHARACTERS", 40)
    monkeypatch.setattr(count, "_CHARACTERS_BETWEEN_CHECKS", 20)
    assert train_tokenizer(SPECS[name], texts).pieces(range(999)) == whole.pieces(range(999))


def test_training_words_are_the_most_frequent_that_fit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(count, "MAX_TRAINING_CHARACTERS", 12)
    shell = learning.pipeline.wordpiece_pipeline({"?": 0}, "?", lowercase=True)
    found = count_words(["once the sea king the sea twice king the"], shell, ())
    assert found == {"the": 3, "sea": 2, "king": 2}


def test_large_counts_are_scaled_down(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(count, "MAX_TRAINER_WORDS", 1000)
    made, _ = learn_merges({"ab": 10**9, "bc": 10**8, "cd": 3}, list("abcd"), 5)
    assert made == ["ab", "bc"]


def test_very_long_words_are_cut():
    tokenizer = train_tokenizer(
        TokenizerSpec(ByteBPE(400), GPT2), ["a" * 100_000 + " " + "acgt" * 20_000]
    )
    assert max(map(len, tokenizer.pieces(range(tokenizer.vocab_size)))) <= MAX_WORD_CHARACTERS


@pytest.mark.parametrize("name", SPECS)
def test_specs_are_plain_data(name: str):
    plain = json.loads(json.dumps(to_dict(SPECS[name])))
    assert from_dict(TokenizerSpec, plain) == SPECS[name]


@pytest.mark.sample(1)
@settings(max_examples=25)
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=4))
@pytest.mark.parametrize("name", SPECS)
def test_any_text_is_learned_from_or_refused_clearly(name: str, texts: list[str]):
    if output := refusal(lambda: train_tokenizer(SPECS[name], texts)):
        assert output.startswith(("there is no text", "a vocabulary of"))
        return
    tokenizer = train_tokenizer(SPECS[name], texts)
    for text in texts:
        tokens = tokenizer.encode(text)
        assert (tokens.ids < tokenizer.vocab_size).all()
        if name in LOSSLESS:
            assert tokenizer.decode(tokens.ids) == text
    np.testing.assert_array_equal(
        train_tokenizer(SPECS[name], texts).encode(texts[0]).ids, tokenizer.encode(texts[0]).ids
    )


def test_words_may_be_lower_cased_with_minimum_count() -> None:
    texts = [
        "The dog's bone, \u2018don\u2019t\u2019! A DOG\u0027S house, e\u0301t\u00e9.",
        "\u00c9T\u00c9 3.5, the end",
    ]
    tokenizer = train_tokenizer(
        TokenizerSpec(
            WordLevel(50, min_count=2, lowercase=True, split_punctuation=True), WORD_LEVEL
        ),
        texts,
    )
    words = set(tokenizer.pieces(range(tokenizer.vocab_size)))
    assert words == {"<eos>", "<unk>", "the", "dog's", "\u00e9t\u00e9", ",", "."}
    found = tokenizer.encode("THE (dog's) bone, \u00c9t\u00e9.")
    assert tokenizer.pieces(found.ids) == [
        "the", "<unk>", "dog's", "<unk>", "<unk>", ",", "\u00e9t\u00e9", "."
    ]  # fmt: skip
    with pytest.raises(ValueError, match="min_count must be at least 1, got 0"):
        WordLevel(min_count=0)


def test_vocabulary_is_parsed_from_kind_and_size() -> None:
    assert parse_vocabulary("words") == WordLevel()
    assert parse_vocabulary("unigram:8000") == Unigram(8000)
    assert parse_vocabulary("bytes") == ByteLevel()
    assert parse_vocabulary(WordLevel(7)) == WordLevel(7)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("word", "vocabulary must be one of wordpiece, .*words, bytes, got 'word'"),
        ("words:", "or name:size, as words:500, got 'words:'"),
        ("words:0", "got 'words:0'"),
        ("words:-3", "got 'words:-3'"),
        ("bytes:300", "vocabulary bytes has no size"),
    ],
)
def test_malformed_vocabulary_is_refused(output: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_vocabulary(output)


@pytest.mark.parametrize(
    "kind", [WordPiece(300), BPE(vocab_size=300), Unigram(300), SentencePieceBPE(300 + 256)]
)
def test_too_many_characters_are_refused_with_a_coverage_that_works(kind: Any):
    """The message names a coverage with which the vocabulary can be learned."""
    frame = LLAMA if isinstance(kind, SentencePieceBPE) else BERT
    text = "the old king saw a fox " * 60 + " ".join(map(chr, range(0x4E00, 0x4E00 + 900)))
    with pytest.raises(ValueError, match=r"is too small: .* single characters") as error:
        train_tokenizer(TokenizerSpec(kind, frame), [text])
    named = re.search(r"set character_coverage to ([0-9.]+), so that the rarest", str(error.value))
    assert named is not None
    other = replace(kind, character_coverage=float(named[1]))
    tokenizer = train_tokenizer(TokenizerSpec(other, frame), [text])
    assert tokenizer.vocab_size <= kind.vocab_size
    ids = tokenizer.encode("the \u4e05 king").ids.tolist()
    if isinstance(kind, SentencePieceBPE):  # byte by byte
        assert tokenizer.decode(ids) == "the \u4e05 king"
    else:
        assert tokenizer.special_ids.unknown in ids


@pytest.mark.parametrize("kind", [WordPiece, ByteBPE, Unigram, WordLevel, CharacterLevel])
@pytest.mark.parametrize("size", [0, -1, 10**9])
def test_size_limits_are_checked_before_reading(kind: Any, size: int):
    with pytest.raises(ValueError, match="size of a vocabulary must be from 1 to 16,777,216"):
        TokenizerSpec(kind(size), WORD_LEVEL)


@pytest.mark.parametrize("coverage", [0.0, -0.5, 1.1, float("nan")])
def test_coverage_must_be_a_share(coverage: float):
    with pytest.raises(ValueError, match="character_coverage must be above 0 and at most 1"):
        TokenizerSpec(Unigram(500, character_coverage=coverage), T5)
