"""CLIP's tokenizer: transformers' CLIPTokenizer gives the same ids and texts, from every layout."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tokenizers import decoders

from tests.tokenizers.tokenizer_cases import TEXTS, story
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import CLIP, TokenizerSpec
from unmask.tokenizers.vocabulary import LowercaseByteBPE

SENTENCES = (
    "A dog runs.", "a  DOG\truns !!", "It's we'll don't 'S", "12 345 6.7", "naïve Ünïcode ﬁ İ ß",
    "日本語 🙂👍🏽", "", "  ", "a\u0301", "#@! hello--world...", "it''s", "\u2028x\x1cy", "...'s",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the vocabulary and merges of a learned tokenizer, as published ones are."""
    learned = train_tokenizer(TokenizerSpec(LowercaseByteBPE(900), CLIP), [story()])
    state = json.loads(learned._backend.to_str())
    folder = tmp_path_factory.mktemp("clip")
    vocab = state["model"]["vocab"]
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), "utf-8")
    merges = "\n".join(" ".join(pair) for pair in state["model"]["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    written = {"tokenizer_class": "CLIPTokenizer", **_NAMES}
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    return folder


_NAMES = {
    "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
}  # fmt: skip


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    """Open the folder in transformers."""
    import transformers as hf

    return hf.CLIPTokenizer.from_pretrained(folder)


def _opened(folder: Path, reference: Any, layout: str, to: Path) -> Tokenizer:
    """Open a layout: two files, or the tokenizer.json that transformers writes."""
    if layout == "two files":
        return load_tokenizer(folder)
    reference.save_pretrained(to)
    return load_tokenizer(to)


@pytest.mark.parametrize("layout", ["two files", "tokenizer.json"])
def test_ids_and_texts_equal_transformers(
    layout: str, folder: Path, reference: Any, tmp_path: Path
) -> None:
    tokenizer = _opened(folder, reference, layout, tmp_path)

    @settings(max_examples=150)
    @given(TEXTS)
    def equal(text: str) -> None:
        # A typed special token is text for us, and itself for them.
        if "<|" in text:
            return
        theirs = reference(text)["input_ids"]
        assert tokenizer.encode(text).ids.tolist() == theirs[1:-1]
        assert theirs[0] == tokenizer.special_ids.start
        assert theirs[-1] == tokenizer.special_ids.end
        assert tokenizer.decode(theirs).strip() == reference.decode(
            theirs, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    for text in SENTENCES:
        equal.hypothesis.inner_test(text)  # pyright: ignore[reportFunctionMemberAccess]
    equal()
    frame = tokenizer.special_tokens
    assert (frame.prefix, frame.suffix) == (("<|startoftext|>",), ("<|endoftext|>",))


def test_written_folder_opens_in_transformers(folder: Path, reference: Any, tmp_path: Path) -> None:
    import transformers as hf

    load_tokenizer(folder).save(tmp_path)
    again = hf.AutoTokenizer.from_pretrained(tmp_path)
    for text in SENTENCES:
        assert again(text)["input_ids"] == reference(text)["input_ids"], text
        ids = reference(text)["input_ids"]
        assert again.decode(ids, skip_special_tokens=True) == reference.decode(
            ids, skip_special_tokens=True
        ), text


def test_text_is_restored_in_lower_case_with_single_spaces(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    text = "The  KING said: no!"
    assert tokenizer.decode(tokenizer.encode(text).ids) == "the king said : no !"


def test_any_byte_has_a_piece(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode("".join(chr(i) for i in range(0x4E00, 0x4E80)))
    assert tokenizer.special_ids.unknown not in ids.ids.tolist()


def test_other_decoder_stays(folder: Path, reference: Any, tmp_path: Path) -> None:
    reference.save_pretrained(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    state["decoder"] = {"type": "Fuse"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    assert isinstance(load_tokenizer(tmp_path)._backend.decoder, decoders.Fuse)


@pytest.mark.parametrize("lost", ["<|startoftext|>", "Ġ"])
def test_damaged_vocabulary_is_refused(folder: Path, lost: str, tmp_path: Path) -> None:
    for name in ("merges.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    del vocab[lost]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    with pytest.raises(ValueError, match=r"vocab\.json"):
        load_tokenizer(tmp_path)
