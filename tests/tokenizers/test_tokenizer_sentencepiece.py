"""SentencePiece files: read as its own library reads them, ids as its own library gives them."""

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import SHARED, refusal, story
from tokenizers import normalizers

from unmask.tokenizers import pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.formats import sentencepiece_families
from unmask.tokenizers.formats.sentencepiece import (
    CONTROL,
    SentencePieceEntry,
    SentencePieceModel,
    parse_sentencepiece,
)
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import BERT, ROBERTA, T5, SpecialTokens

KINDS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "identity": {"normalization_rule_name": "identity"},
    "casefolded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "spaces kept": {"remove_extra_whitespaces": False},
    "no dummy": {"add_dummy_prefix": False},
    "across words": {"split_by_whitespace": False},
    "unigram bytes": {"byte_fallback": True, "vocab_size": 360},
    "bpe": {"model_type": "bpe"},
    "llama": {
        "model_type": "bpe", "byte_fallback": True, "vocab_size": 360, "split_digits": True,
        "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
    },
    "characters": {"model_type": "char"},
}  # fmt: skip
CONTROLS: dict[str, dict[str, Any]] = {
    "T5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "MT5": {
        "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "byte_fallback": True,
        "vocab_size": 380, "user_defined_symbols": [f"▁<extra_id_{i}>" for i in (2, 1, 0)],
    },
    "Albert": {
        "pad_id": 0, "unk_id": 1, "eos_id": -1, "bos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    },
    "DebertaV2": {
        "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]",
        "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]",
    },
    "XLNet": {"control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]},
    "Llama": KINDS["llama"],
    "XLMRoberta": {},
}  # fmt: skip


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Give a function that trains a model with the reference library, each only once."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    text = folder / "story.txt"
    text.write_text(story(600).replace("fox", "féx ﬁx"), "utf-8")

    @functools.cache
    def made(name: str) -> Path:
        settings = {"vocab_size": 120, "hard_vocab_limit": False} | (KINDS | CONTROLS)[name]
        reference.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / name), minloglevel=2, num_threads=1,
            **settings,
        )  # fmt: skip
        return folder / f"{name}.model"

    return made


@pytest.mark.parametrize("name", KINDS)
def test_pieces_scores_and_types_equal_reference(name: str, train: Callable[..., Path]):
    path = train(name)
    model, theirs = (
        parse_sentencepiece(path.read_bytes()),
        reference.SentencePieceProcessor(model_file=str(path)),
    )
    assert len(model.pieces) == theirs.get_piece_size()
    for i, piece in enumerate(model.pieces):
        assert (piece.text, piece.score) == (theirs.id_to_piece(i), theirs.get_score(i))
        assert (piece.piece_type == CONTROL) == theirs.is_control(i)
    assert (model.unk_id, model.bos_id, model.eos_id) == (0, 1, 2)
    assert model.pad_id is None
    assert model.byte_fallback == bool(KINDS[name].get("byte_fallback"))


def tokenizer_of(path: Path) -> Tokenizer:
    frame = SpecialTokens(pad="</s>", start="<s>", end="</s>", unknown="<unk>")
    return Tokenizer(
        pipeline.add_special_tokens(
            pipeline.sentencepiece_pipeline(parse_sentencepiece(path.read_bytes())), frame
        ),
        frame,
    )


@functools.cache
def both(path: Path) -> tuple[Tokenizer, Any]:
    return tokenizer_of(path), reference.SentencePieceProcessor(model_file=str(path))


# Left out: ▁ itself (the reference strips it as a space or not, by the rules), the names of bytes
# (<0x41> in a text is a byte to the unigram model), and marks after what normalization changes
# (½ + acute: the tokenizers library loses the acute).
_SAMPLES = [
    "the old king", "féx", "e\u0301", "ﬁx", "aaa", "aaaa", "zzz", "discovered", "中文",
    "😀", "12", "½", " ", "  ", "   ", "\n", "\t", "\xa0", "\u3000", "\u200b", "!", "...",
    "don't", "שלום", "\x00", "<s>", "</s>", "<unk>", "<pad>", "A Stranger", "ß", "İ", "①",
    "ｆｕｌｌ",
]  # fmt: skip
_TEXTS = st.one_of(
    st.lists(st.sampled_from(_SAMPLES), max_size=14).map("".join),
    st.text(st.characters(codec="ascii", exclude_characters="\r<"), max_size=40),
    st.text(
        st.characters(exclude_categories=["Cs", "M", "Cn", "Co"], exclude_characters="▁\r<"),
        max_size=30,
    ).filter(lambda text: not any("\u1100" <= c <= "\u11ff" for c in text)),
)


@settings(max_examples=60)
@given(text=_TEXTS)
@pytest.mark.parametrize("name", KINDS)
def test_ids_equal_reference(name: str, text: str, train: Callable[..., Path]):
    ours, theirs = both(train(name))
    ids = ours.encode(text).ids.tolist()
    if not ids:  # of a text whose characters all vanish, a space may be left
        assert theirs.encode(text, out_type=str) in ([], ["▁"])
        return
    assert ids == theirs.encode(text)
    if theirs.unk_id() not in ids:
        assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("name", KINDS)
def test_words_start_at_spaces(name: str, train: Callable[..., Path]):
    ours, _ = both(train(name))
    text = "the old king saw"
    marks = ours.encode(text).boundaries.tolist()
    assert {a for (a, _), m in zip(ours.offsets(text), marks, strict=True) if m} == {0, 3, 7, 12}


@pytest.mark.skipif(not (SHARED / "checkpoints" / "stories260K").is_dir(), reason="no such file")
def test_published_llama_file_is_read():
    path = SHARED / "checkpoints" / "stories260K" / "tok512.model"
    ours, theirs = both(path)
    for text in ("Once upon a time, there was a little girl named Lily.", "é中\n\n  x", story(8)):
        assert ours.encode(text).ids.tolist() == theirs.encode(text)


def place(path: Path, folder: Path, name: str, **config: Any) -> Path:
    shutil.copy(path, folder / name)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("family", "frame"),
    [
        ("T5", T5),
        ("Albert", SpecialTokens(
            pad="<pad>", start="[CLS]", end="[SEP]", mask="[MASK]", unknown="<unk>",
            prefix=("[CLS]",), separator=("[SEP]",), suffix=("[SEP]",),
        )),
        ("DebertaV2", BERT),
        ("Llama", SpecialTokens(
            pad="</s>", start="<s>", end="</s>", unknown="<unk>", prefix=("<s>",),
            separator=("<s>",),
        )),
        ("XLNet", SpecialTokens(
            pad="<pad>", start="<s>", end="</s>", mask="<mask>", unknown="<unk>",
            separator=("<sep>",), suffix=("<sep>", "<cls>"),
        )),
    ],
)  # fmt: skip
def test_family_is_recognized_by_its_special_tokens(
    family: str, frame: SpecialTokens, train: Callable[..., Path], tmp_path: Path
):
    folder = place(train(family), tmp_path, "spiece.model")
    tokenizer = load_tokenizer(folder)
    assert tokenizer.special_tokens == frame
    assert load_tokenizer(folder).special_ids.all_ids == tokenizer.special_ids.all_ids
    place(train(family), tmp_path, "spiece.model", tokenizer_class=f"{family}TokenizerFast")
    assert load_tokenizer(folder).special_ids == tokenizer.special_ids
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").special_ids == tokenizer.special_ids


@pytest.mark.parametrize("family", ["T5", "Albert", "XLNet", "Llama", "XLMRoberta"])
def test_families_equal_transformers(family: str, train: Callable[..., Path], tmp_path: Path):
    import transformers

    names = {"Llama": "tokenizer.model", "XLMRoberta": "sentencepiece.bpe.model"}
    says = {"add_bos_token": True} if family == "Llama" else {}
    folder = place(
        train(family), tmp_path, names.get(family, "spiece.model"),
        tokenizer_class=f"{family}Tokenizer", **says,
    )  # fmt: skip
    ours, theirs = (
        load_tokenizer(folder),
        getattr(transformers, f"{family}Tokenizer").from_pretrained(folder),
    )
    for text in ("The Old  king", "``quoted'' féx Ünï", "ﬁx\n12 ½ 中", ""):
        framed = [
            *ours.special_ids.prefix,
            *ours.encode(text).ids.tolist(),
            *ours.special_ids.suffix,
        ]
        assert framed == theirs(text).input_ids, text
    assert ours.special_ids.pad == theirs.pad_token_id or family == "Llama"
    assert ours.special_ids.mask == theirs.mask_token_id
    assert ours.vocab_size == len(theirs)


def test_config_sets_frame_and_number_of_sentinels(train: Callable[..., Path], tmp_path: Path):
    folder = place(train("T5"), tmp_path, "spiece.model", extra_ids=7)
    assert load_tokenizer(folder).special_tokens.n_sentinels == 7
    place(train("Llama"), tmp_path, "spiece.model", add_bos_token=False, add_eos_token=True)
    frame = load_tokenizer(folder).special_tokens
    assert (frame.prefix, frame.separator, frame.suffix) == ((), ("</s>",), ("</s>",))


def test_mt5_sentinels_are_in_its_file(train: Callable[..., Path], tmp_path: Path):
    """As in the published one (`mc4.250000.100extra`), of which this is a small likeness."""
    folder = place(
        train("MT5"), tmp_path, "spiece.model", tokenizer_class="T5Tokenizer", extra_ids=0
    )
    tokenizer = load_tokenizer(folder)
    theirs = reference.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    assert tokenizer.special_tokens == replace(T5, n_sentinels=3)
    assert tokenizer.special_ids.sentinels == tuple(
        theirs.piece_to_id(f"▁<extra_id_{i}>") for i in range(3)
    )
    assert tokenizer.vocab_size == theirs.get_piece_size()
    for text in ("the old king 中 ", "<extra", "féx"):
        assert tokenizer.encode(text).ids.tolist() == theirs.encode(text)
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").special_ids == tokenizer.special_ids


def test_config_sets_lower_casing_and_accents(train: Callable[..., Path], tmp_path: Path):
    folder = place(train("Albert"), tmp_path, "spiece.model")
    assert load_tokenizer(folder).encode("THÉ").ids.tolist() == (
        load_tokenizer(folder).encode("the").ids.tolist()
    )
    place(train("Albert"), tmp_path, "spiece.model", do_lower_case=False, keep_accents=True)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.special_ids.unknown in tokenizer.encode("Q").ids
    place(train("DebertaV2"), tmp_path, "spiece.model", split_by_punct=True)
    with pytest.raises(ValueError, match=r"spiece.model cannot be read .* split_by_punct"):
        load_tokenizer(folder)


@pytest.mark.parametrize("n", ["7", -1, 10**9, True])
def test_number_of_sentinels_is_validated(n: Any, train: Callable[..., Path], tmp_path: Path):
    folder = place(train("T5"), tmp_path, "spiece.model", extra_ids=n)
    with pytest.raises(
        ValueError, match=r"spiece.model .* extra_ids must be a number up to 100000"
    ):
        load_tokenizer(folder)


def test_missing_prefix_space_is_refused(train: Callable[..., Path], tmp_path: Path):
    says = '{"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false}'
    (tmp_path / "tokenizer.model").write_bytes(train("llama").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(says)
    with pytest.raises(
        ValueError, match=r"tokenizer.model cannot be read.* add_prefix_space = fal"
    ):
        load_tokenizer(tmp_path)


def test_model_type_determines_the_family(train: Callable[..., Path], tmp_path: Path):
    folder = place(train("XLMRoberta"), tmp_path, "sentencepiece.bpe.model")
    with pytest.raises(
        ValueError, match=r"special tokens \(</s>, <s>\) do not identify its family"
    ):
        load_tokenizer(folder)
    (folder / "config.json").write_text('{"model_type": "xlm-roberta"}')
    assert load_tokenizer(folder).special_tokens == ROBERTA
    place(train("T5"), tmp_path, "sentencepiece.bpe.model", tokenizer_class="PegasusTokenizer")
    with pytest.raises(ValueError, match=r"PegasusTokenizer is not supported"):
        load_tokenizer(folder)


def test_remapped_ids_are_refused_unless_the_family_is_known(
    train: Callable[..., Path], tmp_path: Path
):
    folder = place(train("Llama"), tmp_path, "sp.model")
    load_tokenizer(folder)
    (folder / "dict.txt").write_text(", 100\nthe 90\n")
    (folder / "config.json").write_text('{"model_type": "cocolm"}')
    with pytest.raises(ValueError, match=r"sp.model .* dict.txt .* other ids"):
        load_tokenizer(folder)
    folder = place(train("XLMRoberta"), tmp_path, "sentencepiece.bpe.model")
    (folder / "dict.txt").write_text(", 100\nthe 90\n")
    (folder / "config.json").write_text('{"model_type": "xlm-roberta"}')
    assert load_tokenizer(folder).special_tokens == ROBERTA


def test_file_without_tokens_of_the_family_is_refused(train: Callable[..., Path], tmp_path: Path):
    folder = place(train("T5"), tmp_path, "spiece.model", tokenizer_class="XLNetTokenizer")
    with pytest.raises(ValueError, match=r"spiece.model: the vocabulary lacks '<s>'"):
        load_tokenizer(folder)


USER_DEFINED = ["qqxyz", "<sep>", "(*)", '"', "▁fox", "never found"]
"""Pieces that a user defines; none with a space is found, as spaces are written as ▁."""


@functools.cache
def with_user_defined(folder: Path, algorithm: str, rules: str, spaces: bool) -> Path:
    path = folder / f"user-{algorithm}-{rules}-{spaces}"
    reference.SentencePieceTrainer.train(
        input=str(folder / "story.txt"), model_prefix=str(path), model_type=algorithm,
        vocab_size=130, hard_vocab_limit=False, minloglevel=2, num_threads=1,
        normalization_rule_name=rules, remove_extra_whitespaces=spaces,
        user_defined_symbols=USER_DEFINED[: None if rules == "identity" else 4],
    )  # fmt: skip
    return path.with_suffix(".model")


@settings(max_examples=40)
@given(
    parts=st.lists(
        st.sampled_from([*USER_DEFINED, "the", " ", "  ", "fox", " fox", "king", "\n", "ﬁx", "*"]),
        max_size=8,
    )
)
@pytest.mark.parametrize("spaces", [True, False])
@pytest.mark.parametrize("rules", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_user_defined_pieces_equal_reference(
    algorithm: str, rules: str, spaces: bool, parts: list[str], train: Callable[..., Path]
):
    ours, theirs = both(with_user_defined(train("unigram").parent, algorithm, rules, spaces))
    text = "".join(parts)
    ids = theirs.encode(text)
    if len(ids) == 2 and theirs.id_to_piece(ids) in [["▁", defined] for defined in USER_DEFINED]:
        ids = ids[1:]  # of a text that is one such piece, the space before it is missing
    assert ours.encode(text).ids.tolist() == ids
    assert theirs.piece_to_id("qqxyz") not in ours.special_ids.all_ids


def test_user_defined_pieces_changed_by_normalization_are_refused(
    train: Callable[..., Path], tmp_path: Path
):
    reference.SentencePieceTrainer.train(
        input=str(train("unigram").parent / "story.txt"), model_prefix=str(tmp_path / "m"),
        vocab_size=120, hard_vocab_limit=False, minloglevel=2, user_defined_symbols=["USER"],
        normalization_rule_name="nmt_nfkc_cf",
    )  # fmt: skip
    with pytest.raises(ValueError, match="its user-defined piece 'USER' is '▁user' after its own"):
        tokenizer_of(tmp_path / "m.model")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text", ["▁", "the▁", "the ▁▁", "▁the", "the▁king", "the ▁ king"])
def test_space_marker_in_text_is_a_space(name: str, text: str, train: Callable[..., Path]):
    ours, theirs = both(train(name))
    assert ours.encode(text).ids.tolist() == theirs.encode(text)


@pytest.mark.parametrize("name", ["unigram", "llama"])
def test_every_truncation_is_an_error(name: str, train: Callable[..., Path], tmp_path: Path):
    data = train(name).read_bytes()
    # The last field (normalization rules) may end early only by losing it, or within it.
    for length in [*range(0, 60), *range(60, len(data), len(data) // 60), len(data) - 1]:
        with pytest.raises(ValueError, match="it "):
            parse_sentencepiece(data[:length])
    (tmp_path / "spiece.model").write_bytes(data[: len(data) // 2])
    with pytest.raises(
        ValueError, match=r"spiece.model cannot be read as a SentencePiece model: it"
    ):
        load_tokenizer(tmp_path)


@settings(max_examples=300)
@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_model_or_a_clear_error(data: bytes):
    assert refusal(lambda: parse_sentencepiece(data)) != ""


@settings(max_examples=100)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_changed_byte_gives_a_model_or_a_clear_error(
    at: int, byte: int, train: Callable[..., Path]
):
    data = bytearray(train("llama").read_bytes())
    data[at % len(data)] = byte
    assert refusal(lambda: pipeline.sentencepiece_pipeline(parse_sentencepiece(bytes(data)))) != ""


def field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def test_unsupported_models_are_refused():
    piece, unknown = field(1, field(1, b"a")), field(1, field(1, b"?") + b"\x18\x02")
    empty = field(3, b"")
    with pytest.raises(ValueError, match="0 pieces have the type UNKNOWN"):
        parse_sentencepiece(piece + empty)
    with pytest.raises(ValueError, match="ends before normalizer_spec"):
        parse_sentencepiece(unknown + piece)
    with pytest.raises(ValueError, match="has no pieces"):
        parse_sentencepiece(b"")
    with pytest.raises(ValueError, match="model_type must be 1 to 4, got 9"):
        parse_sentencepiece(unknown + field(2, b"\x18\x09") + empty)
    with pytest.raises(ValueError, match="pieces are whole words"):
        pipeline.sentencepiece_pipeline(
            parse_sentencepiece(unknown + field(2, b"\x18\x03") + empty)
        )
    with pytest.raises(ValueError, match="does not write spaces as"):
        pipeline.sentencepiece_pipeline(
            parse_sentencepiece(unknown + field(2, b"\xc0\x01\x01") + empty)
        )
    with pytest.raises(ValueError, match="declares a table of 2,021,161,080 bytes"):
        pipeline.sentencepiece_pipeline(
            parse_sentencepiece(unknown + field(3, field(2, b"xxxxxxxx")))
        )
    with pytest.raises(ValueError, match="longer than ten bytes"):
        parse_sentencepiece(b"\xff" * 11)


def test_families_are_plain_data():
    assert all(
        isinstance(family.special_tokens, SpecialTokens)
        for family in sentencepiece_families.FAMILIES
    )
    model = SentencePieceModel(
        pieces=(
            SentencePieceEntry("<unk>", 0.0, 2),
            SentencePieceEntry("<s>", 0.0, 3),
            SentencePieceEntry("</s>", 0.0, 3),
            SentencePieceEntry("a", -1.0, 1),
        ),
        algorithm="unigram",
        charsmap=b"",
        add_dummy_prefix=True,
        remove_extra_whitespaces=True,
        escape_whitespaces=True,
        whitespace_as_suffix=False,
        byte_fallback=False,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=None,
    )
    family = sentencepiece_families.family_of(model, "XLMRoberta", "None")
    numbered = sentencepiece_families.renumber_pieces(family, model)
    assert [p.text for p in numbered.pieces] == ["<s>", "<pad>", "</s>", "<unk>", "a"]
    assert (
        sentencepiece_families.renumber_pieces(
            sentencepiece_families.family_of(model, "T5", ""), model
        )
        is model
    )
    assert isinstance(
        sentencepiece_families.normalizer_rules(family, {"do_lower_case": True})[0],
        normalizers.Lowercase,
    )
