"""Subwords beside characters: as a BERT tokenizer finds them, at any position."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tokenizer_cases import TEXTS, story

from unmask.batch import WORD_START
from unmask.shards.write import write_shards
from unmask.text.documents import Document
from unmask.tokenizers.characters.code_point_tokenizer import CodePointTokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.output_vocabularies.wordpieces import SUBWORDS_FILE, WordPieceVocabulary
from unmask.tokenizers.spec import BERT, CANINE, SubwordVocabulary, TokenizerSpec
from unmask.tokenizers.vocabulary import CodePoints, CodePointsWithSubwords, WordPiece

TOKENIZER = train_tokenizer(TokenizerSpec(CodePointsWithSubwords(120), CANINE), [story()])
REFERENCE = train_tokenizer(TokenizerSpec(WordPiece(120, lowercase=False), BERT), [story()])
PLAIN = train_tokenizer(TokenizerSpec(CodePoints(), CANINE), [])
KNOWN = TOKENIZER.special_ids.output_vocabulary
assert isinstance(KNOWN, WordPieceVocabulary)


def characters(text: str) -> np.ndarray:
    return PLAIN.encode(text).ids


def found(text: str) -> list[tuple[str, int]]:
    cut = KNOWN.tokenize(characters(text))
    return list(zip(KNOWN.pieces(cut.tokens.ids.tolist()), cut.starts.tolist(), strict=True))


def test_subwords_equal_reference_wordpiece() -> None:
    text = story()[:3000]
    cut, expected = KNOWN.tokenize(characters(text)), REFERENCE.encode(text)
    assert cut.tokens.ids.tolist() == expected.ids.tolist()
    assert KNOWN.vocabulary == tuple(REFERENCE.pieces(range(REFERENCE.vocab_size)))
    assert cut.starts.tolist() == [start for start, _ in REFERENCE.offsets(text)]
    words = (np.array(expected.boundaries) & WORD_START) != 0
    assert ((cut.tokens.boundaries == WORD_START) == words).all()
    assert 0.1 < words.mean() < 0.9


@settings(max_examples=200)
@given(text=TEXTS)
def test_subwords_match_their_spelling_without_overlap(text: str) -> None:
    ids = characters(text)
    cut = KNOWN.tokenize(ids)
    end = 0
    for subword, start in zip(cut.tokens.ids.tolist(), cut.starts.tolist(), strict=True):
        spelled = KNOWN.spell(subword)
        assert len(spelled)
        assert ids[start : start + len(spelled)].tolist() == spelled.tolist()
        assert start >= end
        end = start + len(spelled)
        assert subword not in KNOWN.special_ids.all_ids


def test_unknown_special_and_cleaned_characters_belong_to_no_subword() -> None:
    assert found("") == []
    assert found("[MASK] 中 zzz ##a") == [("a", len("[MASK] 中 zzz ##"))]
    assert found("th\u200be") == []
    assert found("\ufffdthe the\u200b中the") == [("the", 1), ("the", 5), ("the", 10)]


def test_subwords_of_equal_length_exclude_special_tokens() -> None:
    lengths = {i: len(KNOWN.spell(i)) for i in range(KNOWN.special_ids.vocab_size)}
    for i in sorted(set(lengths) - KNOWN.special_ids.all_ids):
        others = [
            j for j, n in lengths.items() if n == lengths[i] and j not in KNOWN.special_ids.all_ids
        ]
        assert KNOWN.same_length(i).tolist() == others
        assert i in others


def test_characters_are_encoded_as_without_subwords() -> None:
    text = story()[:500]
    ours, plain = TOKENIZER.encode(text), PLAIN.encode(text)
    assert (ours.ids == plain.ids).all()
    assert (ours.boundaries == plain.boundaries).all()
    assert TOKENIZER.special_ids == PLAIN.special_ids
    assert isinstance(KNOWN, SubwordVocabulary)
    assert PLAIN.special_ids.output_vocabulary is None


@pytest.mark.thorough
def test_folder_keeps_subwords_and_opens_in_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, CanineTokenizer

    TOKENIZER.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, CodePointTokenizer)
    again = loaded.special_ids.output_vocabulary
    assert isinstance(again, WordPieceVocabulary)
    assert again.vocabulary == KNOWN.vocabulary
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path), CanineTokenizer)
    travelled = pickle.loads(pickle.dumps(TOKENIZER)).special_ids.output_vocabulary
    ids = characters(story()[:200])
    assert travelled.tokenize(ids).starts.tolist() == KNOWN.tokenize(ids).starts.tolist()


def test_published_vocabulary_can_be_used_as_subwords(tmp_path: Path) -> None:
    PLAIN.save(tmp_path)
    pieces = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "##es"]
    (tmp_path / SUBWORDS_FILE).write_bytes("\r\n".join(pieces).encode())
    tokenizer = load_tokenizer(tmp_path).special_ids.output_vocabulary
    assert tokenizer is not None
    assert tokenizer.special_ids.mask == 5
    assert tokenizer.pieces(tokenizer.tokenize(characters("a foxes fox")).tokens.ids.tolist()) == [
        "fox", "##es", "fox",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n", r"subwords\.txt: the subwords lack \[CLS\], \[SEP\], \[MASK\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", r"the subword 'a' is repeated"),
        (b"[PAD]\n\xff", r"subwords\.txt is not UTF-8"),
    ],
)
def test_damaged_file_is_one_clear_error(content: bytes, message: str, tmp_path: Path) -> None:
    PLAIN.save(tmp_path)
    (tmp_path / SUBWORDS_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


def test_too_small_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a vocabulary of 9 is too small"):
        train_tokenizer(TokenizerSpec(CodePointsWithSubwords(9), CANINE), [story()])


def test_shards_hold_equal_characters_but_another_tokenizer(tmp_path: Path) -> None:
    documents = [Document(line, "here") for line in story().split("\n")[:3]]
    ours = write_shards(documents, TOKENIZER, tmp_path / "ours")
    plain = write_shards(documents, PLAIN, tmp_path / "plain")
    for kind in ("tokens", "marks"):
        a, b = (tmp_path / name / f"00000.{kind}" for name in ("ours", "plain"))
        assert a.read_bytes() == b.read_bytes()
    assert ours.manifest.tokenizer_sha256 != plain.manifest.tokenizer_sha256
    assert ours.tokenizer.special_ids.output_vocabulary is not None
