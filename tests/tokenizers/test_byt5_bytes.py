"""ByT5's bytes: the ids of transformers' ByT5Tokenizer, and sentinels that no text can write."""

import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tokenizer_cases import TEXTS

from unmask.tokenizers.characters.byte_tokenizers import ByT5Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import BYT5, T5, TokenizerSpec, special_token_names
from unmask.tokenizers.vocabulary import ByteLevel

TOKENIZER = train_tokenizer(TokenizerSpec(ByteLevel(n_unused_ids=125), BYT5), [])


@cache
def theirs() -> Any:
    from transformers import ByT5Tokenizer as Reference

    return Reference()


@settings(max_examples=300)
@given(text=TEXTS)
def test_ids_equal_reference_and_decode_to_the_text(text: str) -> None:
    ids = TOKENIZER.encode(text).ids.tolist()
    assert ids == [3 + byte for byte in text.encode()]
    assert TOKENIZER.decode(ids) == text
    assert not TOKENIZER.special_ids.all_ids.intersection(ids)
    if not any(
        name in text for name in (*special_token_names(BYT5), "<extra_id_")
    ):  # theirs takes those as such
        assert [*ids, *TOKENIZER.special_ids.suffix] == theirs()(text).input_ids


def test_pair_has_the_reference_end_tokens() -> None:
    ids = [*TOKENIZER.encode("a").ids, *TOKENIZER.special_ids.separator]
    ids += [*TOKENIZER.encode("é").ids, *TOKENIZER.special_ids.suffix]
    assert ids == theirs()("a", "é").input_ids


def test_sentinels_count_down_and_do_not_occur_in_text() -> None:
    special = TOKENIZER.special_ids
    assert special.sentinels == tuple(range(258, 247, -1))
    assert TOKENIZER.vocab_size == 384 == len(theirs())
    assert special.all_ids == {0, 1, 2, *range(248, 384)}
    assert TOKENIZER.encode("a<extra_id_0>b", allow_special=True).ids.tolist() == [100, 258, 101]
    assert TOKENIZER.decode([100, 258, 101, 259, 1]) == "ab" == theirs().decode([100, 258, 101])
    assert TOKENIZER.decode([258, 100, 1], skip_special_tokens=False) == "<extra_id_0>a</s>"
    assert TOKENIZER.pieces([258, 198, 259]) == ["<extra_id_0>", "\\xc3", "<unused_0>"]


def test_every_utf8_byte_is_a_token() -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 97), 0x10FFFF]))
    used = set(TOKENIZER.encode(text).ids.tolist())
    assert used == {3 + b for b in range(0xF5) if b not in (0xC0, 0xC1)}  # which never stand either


def test_saved_tokenizer_exchanges_with_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    TOKENIZER.save(tmp_path / "ours", max_length=300)
    loaded = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert isinstance(loaded, type(theirs()))
    assert (loaded.model_max_length, len(loaded)) == (300, 384)
    assert loaded("aé").input_ids == theirs()("aé").input_ids
    theirs().save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        again = load_tokenizer(tmp_path / folder)
        assert isinstance(again, ByT5Tokenizer)
        assert (again.special_tokens, again.special_ids) == (BYT5, TOKENIZER.special_ids)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    assert load_tokenizer(tmp_path / "bare").special_ids == TOKENIZER.special_ids


def test_other_special_tokens_are_refused(tmp_path: Path) -> None:
    config = {"tokenizer_class": "ByT5Tokenizer", "pad_token": "[PAD]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"tokenizer_config.json: pad_token must be <pad>"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"at most 11 bytes .* got 100 sentinels"):
        train_tokenizer(TokenizerSpec(ByteLevel(n_unused_ids=0), T5), [])


def test_tokenizer_is_picklable_and_small() -> None:
    again = pickle.loads(pickle.dumps(TOKENIZER))
    assert isinstance(again, ByT5Tokenizer)
    assert again.special_ids == TOKENIZER.special_ids
    assert len(pickle.dumps(TOKENIZER)) < 1000
