"""Code points: the ids of transformers' CanineTokenizer, and a text back from them."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import SENTENCE_START, WORD_START
from unmask.shards.write import write_shards
from unmask.text.documents import Document
from unmask.tokenizers.characters import code_points
from unmask.tokenizers.characters.code_point_tokenizer import CodePointTokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import BERT, CANINE, TokenizerSpec
from unmask.tokenizers.vocabulary import CodePoints

TOKENIZER = train_tokenizer(TokenizerSpec(CodePoints(), CANINE), [])
ODD = [
    "", " ", "Zürich", "e\u0301", "\u0301alone",
    "👩‍👩‍👧 family 🇨🇭", "中文。日本語", "a\u200bb", "\ufeffx",
    "\U0010ffff", "\ud7ff\ue004\uf8ff", "tab\tnew\nline\r\n", "\x7f\x1c\x85", "עברית ‏ltr", "𝔘𝔫𝔦",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_odd_text_round_trips(text: str) -> None:
    ids = TOKENIZER.encode(text).ids
    assert ids.tolist() == [ord(c) for c in text]
    assert TOKENIZER.decode(ids) == text
    assert "".join(TOKENIZER.pieces(ids)) == text


@settings(max_examples=200)
@given(text=st.text(max_size=50))
def test_any_text_but_special_token_names_round_trips(text: str) -> None:
    taken = {chr(i) for i in code_points.SPECIAL_CODE_POINTS.values()}
    kept = "".join("\ufffd" if c in taken else c for c in text)
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == kept


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"character 1 of the text is '.ud800'"):
        TOKENIZER.encode("a\ud800b")
    with pytest.raises(ValueError, match="surrogate"):
        TOKENIZER.encode_ids_batch(["\udfff"])


def test_text_never_produces_special_tokens() -> None:
    text = "a\x00b\ue000\ue001\ue002\ue003"
    assert TOKENIZER.encode(text).ids.tolist() == [97, 0xFFFD, 98, *[0xFFFD] * 4]
    assert TOKENIZER.encode(text, allow_special=True).ids.tolist() == [
        97,
        0xFFFD,
        98,
        *[0xFFFD] * 4,
    ]
    assert len(TOKENIZER.encode("[MASK]")) == 6


def test_special_token_names_are_parsed_on_request() -> None:
    tokens = TOKENIZER.encode("A [MASK] fox.[SEP] He ran.", allow_special=True)
    special = [
        (i, t) for i, t in enumerate(tokens.ids.tolist()) if t in TOKENIZER.special_ids.all_ids
    ]
    assert special == [(2, 0xE003), (8, 0xE001)]
    assert TOKENIZER.decode(tokens.ids) == "A  fox. He ran."
    assert TOKENIZER.decode(tokens.ids, skip_special_tokens=False) == "A [MASK] fox.[SEP] He ran."
    assert TOKENIZER.pieces([0xE003, 0x41, 0x110000, 0xD800]) == [
        "[MASK]", "A", "<1114112>", "<55296>",
    ]  # fmt: skip


def test_boundaries_mark_words_and_sentences() -> None:
    text = "The old  king.\nHe saw."
    tokens = TOKENIZER.encode(text)
    starts = np.flatnonzero(tokens.boundaries & WORD_START).tolist()
    assert [text[i : i + 2] for i in starts] == ["Th", " o", "  ", " k", "\nH", "He", " s"]
    assert np.flatnonzero(tokens.boundaries & SENTENCE_START).tolist() == [0, 15]


def test_ids_equal_reference(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, CanineTokenizer

    TOKENIZER.save(tmp_path, max_length=300)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, CanineTokenizer)
    assert loaded.model_max_length == 300
    special = TOKENIZER.special_ids
    for text in ODD:
        ours = [*special.prefix, *TOKENIZER.encode(text).ids.tolist(), *special.suffix]
        assert loaded(text)["input_ids"] == ours
    pair = [*special.prefix, 97, *special.separator, 98, *special.suffix]
    assert loaded("a", "b")["input_ids"] == pair
    assert (loaded.mask_token_id, loaded.pad_token_id) == (special.mask, special.pad)


@pytest.mark.thorough
def test_tokenizer_saved_by_transformers_opens(tmp_path: Path) -> None:
    from transformers import CanineTokenizer

    CanineTokenizer().save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, CodePointTokenizer)
    assert (loaded.special_tokens, loaded.special_ids) == (CANINE, TOKENIZER.special_ids)
    assert (loaded.special_ids.pad, loaded.special_ids.start, loaded.special_ids.end) == (
        0,
        0xE000,
        0xE001,
    )


def test_canine_folder_opens_without_tokenizer_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "canine"}')
    assert isinstance(load_tokenizer(tmp_path), CodePointTokenizer)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FileNotFoundError, match="has no tokenizer"):
        load_tokenizer(tmp_path)


def test_other_special_tokens_are_refused(tmp_path: Path) -> None:
    config = {"tokenizer_class": "CanineTokenizer", "mask_token": "\ue010"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"mask_token must be U\+E003"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"no special token '\[UNK\]'"):
        train_tokenizer(TokenizerSpec(CodePoints(), BERT), [])


def test_tokenizer_is_picklable_and_small() -> None:
    again = pickle.loads(pickle.dumps(TOKENIZER))
    assert again.encode("añ").ids.tolist() == TOKENIZER.encode("añ").ids.tolist()
    assert len(pickle.dumps(TOKENIZER)) < 1000
    assert TOKENIZER.vocab_size == 0x110000


@pytest.mark.sample(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_shards_store_four_bytes_per_character(tmp_path: Path, workers: int) -> None:
    texts = ["The old king saw 👑.", "中文。\nA fox."]
    documents = [Document(text, f"line {i}") for i, text in enumerate(texts)]
    shards = write_shards(documents, TOKENIZER, tmp_path / "out", n_workers=workers)
    assert shards.manifest.dtype == "uint32"
    assert (tmp_path / "out" / "00000.tokens").stat().st_size == 4 * sum(map(len, texts))
    start, end = shards.document_spans[0].tolist()
    read = shards.read_tokens(start, end)
    assert shards.tokenizer.decode(read.ids) == texts[0]
    assert read.boundaries.tolist() == TOKENIZER.encode(texts[0]).boundaries.tolist()
