"""Published tokenizer folders: what is read from each, and messages for damaged ones."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import toy_models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizer_cases import SHARED, learned, refusal, story
from tokenizers import decoders, models, pre_tokenizers, processors

from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import BERT, GPT2, ROBERTA, T5, SpecialTokens

PUBLISHED = SHARED / "tokenizers"
SAID = "Hello world! Tokenization isn't trivial: 3.14"
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="the published vocabularies are not beside this checkout"
)


def reference(name: str) -> list[int]:
    """Read the ids of SAID from the table of independent implementations."""
    found = re.search(rf"^    {name}\s+([\d ]+)$", (PUBLISHED / "README.md").read_text(), re.M)
    assert found is not None
    return [int(i) for i in found[1].split()]


def roberta(folder: Path) -> Path:
    """Number GPT-2's pieces as fairseq's dictionary does."""
    pieces = json.loads((PUBLISHED / "gpt2" / "vocab.json").read_text("utf-8"))
    piece = {str(i): p for p, i in pieces.items()}
    lines = (PUBLISHED / "roberta-base" / "dict.txt").read_text("utf-8").splitlines()
    names = [line.split()[0] for line in lines]
    order = ["<s>", "<pad>", "</s>", "<unk>", *(piece.get(n, n) for n in names), "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(order)}))
    shutil.copy(PUBLISHED / "gpt2" / "merges.txt", folder)
    return folder


GPT1 = SpecialTokens(pad="<unk>", start="<unk>", unknown="<unk>")


@pytest.mark.sample(2)
@needs_published
@pytest.mark.parametrize(
    ("name", "frame", "size"),
    [
        ("bert-base-uncased", BERT, 30522),
        ("bert-base-cased", BERT, 28996),
        ("gpt2", GPT2, 50257),
        ("roberta-base", ROBERTA, 50265),
        ("t5-base", T5, 32100),
        ("openai-gpt", GPT1, 40478),
    ],
)
def test_published_vocabularies_give_published_ids(
    name: str, frame: SpecialTokens, size: int, tmp_path: Path
):
    folder = roberta(tmp_path) if name == "roberta-base" else PUBLISHED / name
    tokenizer = load_tokenizer(folder)
    special = tokenizer.special_ids
    ids = [*special.prefix, *tokenizer.encode(SAID).ids.tolist(), *special.suffix]
    assert ids == reference(name)
    assert tokenizer.special_tokens == frame
    assert tokenizer.vocab_size == size


@pytest.mark.thorough
@needs_published
def test_published_roles_have_published_ids(tmp_path: Path):
    bert = load_tokenizer(PUBLISHED / "bert-base-uncased").special_ids
    assert (bert.pad, bert.unknown, bert.start, bert.end, bert.mask) == (0, 100, 101, 102, 103)
    robert = load_tokenizer(roberta(tmp_path)).special_ids
    assert (robert.pad, robert.start, robert.end, robert.mask) == (1, 0, 2, 50264)
    t5 = load_tokenizer(PUBLISHED / "t5-base").special_ids
    assert (t5.pad, t5.start, t5.end, t5.unknown) == (0, 0, 1, 2)
    assert t5.sentinels == tuple(range(32099, 31999, -1))
    assert load_tokenizer(PUBLISHED / "gpt2").special_ids.end == 50256


@pytest.mark.sample(1)
@needs_published
@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "gpt2", "openai-gpt"])
def test_published_vocabularies_equal_transformers(name: str):
    import transformers

    theirs: Any = {
        "bert-base-uncased": transformers.BertTokenizer,
        "bert-base-cased": transformers.BertTokenizer,
        "gpt2": transformers.GPT2Tokenizer,
        "openai-gpt": transformers.OpenAIGPTTokenizer,
    }[name]
    kwargs = {"do_lower_case": False} if name == "bert-base-cased" else {}
    reader = theirs.from_pretrained(PUBLISHED / name, **kwargs)
    texts = ["", " a\n\nb  c\t", "Ünïcödé ﬁ ½ 中文字 😀 İ", "e\u0301 \u200b\xa0x\x00y", story(12)]
    ours = load_tokenizer(PUBLISHED / name).encode_batch(texts)
    for text, tokens in zip(texts, ours, strict=True):
        assert tokens.ids.tolist() == reader(text, add_special_tokens=False).input_ids


@pytest.mark.thorough
@needs_published
def test_saved_published_tokenizer_opens_in_transformers(tmp_path: Path):
    from transformers import AutoTokenizer

    load_tokenizer(PUBLISHED / "t5-base").save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(SAID).input_ids == reference("t5-base")
    assert theirs("a <extra_id_0> b").input_ids == [3, 9, 32099, 3, 115, 1]


# --- tokenizer.json, with roles in other files -------------------------------------------------


def byte_level(*special: str, template: tuple[str, str] | None = None) -> tokenizers.Tokenizer:
    """Make a small tokenizer.json of today's decoders: its special tokens come after the pieces."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(characters)} | {"th": 256, "the": 257}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [("t", "h"), ("th", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    if template is not None:
        single, pair = template
        ids = [(name, backend.token_to_id(name)) for name in special]
        backend.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=ids
        )
    return backend


def write(folder: Path, backend: tokenizers.Tokenizer, **files: dict[str, Any]) -> Path:
    backend.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_llama_folder_has_start_token_and_pads_with_end(tmp_path: Path):
    bos, eos = "<|begin_of_text|>", "<|end_of_text|>"
    template = (f"{bos} $A", f"{bos} $A {bos} $B")
    folder = write(
        tmp_path,
        byte_level(bos, eos, "<|reserved_0|>", template=template),
        tokenizer_config={"bos_token": bos, "eos_token": eos, "tokenizer_class": "PreTrained"},
    )
    tokenizer = load_tokenizer(folder)
    assert tokenizer.special_tokens == SpecialTokens(
        pad=eos, start=bos, end=eos, prefix=(bos,), separator=(bos,)
    )
    assert tokenizer.special_ids.all_ids == {258, 259, 260}
    assert tokenizer.encode("the <|reserved_0|>").ids.max() < 258


def test_frame_is_that_of_tokenizer_json(tmp_path: Path):
    """As in transformers 5, which does not read add_bos_token where that file is."""
    template = ("<s> $A", "<s> $A <s> $B")
    backend = byte_level("<s>", "</s>", template=template)
    says = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": False}
    write(tmp_path, backend, tokenizer_config=says | {"add_eos_token": True})
    frame = load_tokenizer(tmp_path).special_tokens
    assert (frame.prefix, frame.separator, frame.suffix) == (("<s>",), ("<s>",), ())


def test_encoder_decoder_start_is_that_of_its_config(tmp_path: Path):
    template = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
    backend = byte_level("<s>", "</s>", "<pad>", "<mask>", "<unk>", template=template)
    write(tmp_path, backend, config={"model_type": "bart", "decoder_start_token_id": 259})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_ids.start == tokenizer.special_ids.end == 259
    assert tokenizer.special_tokens.separator == ("</s>", "</s>")
    assert (tokenizer.special_tokens.mask, tokenizer.special_tokens.pad) == ("<mask>", "<pad>")


def test_decoder_without_start_token_uses_end(tmp_path: Path):
    roles = {"eos_token": "<|endoftext|>", "pad_token": "<pad>", "bos_token": None}
    write(tmp_path, byte_level("<|endoftext|>", "<pad>"), special_tokens_map=roles)
    frame = load_tokenizer(tmp_path).special_tokens
    assert (frame.start, frame.end, frame.pad) == ("<|endoftext|>", "<|endoftext|>", "<pad>")


def test_xlnet_ends_texts_with_two_tokens(tmp_path: Path):
    template = ("$A <sep> <cls>", "$A <sep> $B <sep> <cls>")
    write(tmp_path, byte_level("<s>", "</s>", "<sep>", "<cls>", "<pad>", template=template))
    frame = load_tokenizer(tmp_path).special_tokens
    assert (frame.prefix, frame.separator, frame.suffix) == ((), ("<sep>",), ("<sep>", "<cls>"))


def test_declared_token_is_special_even_if_unmarked_in_the_file(tmp_path: Path):
    backend = byte_level("<s>")
    backend.add_tokens(["<fill>"])
    write(tmp_path, backend, tokenizer_config={"mask_token": "<fill>", "eos_token": "<s>"})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_ids.mask == 259
    assert 259 not in tokenizer.encode("a <fill> b").ids
    assert 259 in tokenizer.encode("a <fill> b", allow_special=True).ids


def test_file_without_special_tokens_is_refused(tmp_path: Path):
    write(tmp_path, byte_level())
    with pytest.raises(ValueError, match=r"tokenizer.json: no special tokens are known"):
        load_tokenizer(tmp_path)


def test_different_frames_of_single_and_pair_are_refused(tmp_path: Path):
    write(tmp_path, byte_level("<s>", "</s>", template=("<s> $A", "$A </s> $B")))
    with pytest.raises(ValueError, match=r"the special tokens around one text and around"):
        load_tokenizer(tmp_path)


# --- vocab.txt ----------------------------------------------------------------------------------

BERT_LINES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", "é"]


def test_vocab_txt_casing_is_that_of_its_config(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT_LINES, "The", "e"]) + "\n", "utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert load_tokenizer(tmp_path).encode("The é").ids.tolist() == [6, 11]
    (tmp_path / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "strip_accents": false, "tokenizer_class": "ElectraTokenizerFast"}'
    )
    assert load_tokenizer(tmp_path).encode("The é").ids.tolist() == [6, 9]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_tokenizer(tmp_path).encode("The é").ids.tolist() == [10, 9]


@pytest.mark.parametrize(("more", "lowered"), [("a", True), ("A", False)])
def test_bare_vocab_txt_guesses_casing_with_a_note(
    more: str, lowered: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "vocab.txt").write_text("\r\n".join([*BERT_LINES, more]), "utf-8", newline="")
    with caplog.at_level(logging.WARNING):
        ids = load_tokenizer(tmp_path).encode("THE").ids.tolist()
    assert ids == ([6] if lowered else [2])
    assert f"do_lower_case is not set in tokenizer_config.json; assumed {str(lowered).lower()}" in (
        caplog.text
    )


def test_added_tokens_keep_their_ids(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT_LINES), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "do_lower_case": True,
                "added_tokens_decoder": {
                    "11": {"content": "<two>", "special": True},
                    "10": {"content": "<one>", "special": False},
                },
            }
        )
    )
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("the <one> <two>").ids.tolist() == [6, 10, 2, 2, 2]
    assert 11 in tokenizer.special_ids.all_ids
    assert 10 not in tokenizer.special_ids.all_ids
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (tmp_path / "added_tokens.json").write_text('{"<one>": 77}')
    with pytest.raises(ValueError, match="'<one>' must have the id 77, but would get 10"):
        load_tokenizer(tmp_path)


# --- vocab.json and merges.txt ------------------------------------------------------------------


def merged(folder: Path, vocab: list[str], merges: list[str], **config: Any) -> Path:
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(vocab)}), "utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def test_two_files_of_gpt2(tmp_path: Path):
    folder = merged(tmp_path, [*BYTES, "th", "the", "<|endoftext|>"], ["t h", "th e"])
    tokenizer = load_tokenizer(folder)
    assert tokenizer.special_tokens == GPT2
    assert tokenizer.pieces(tokenizer.encode("the bath").ids) == ["the", " ", "b", "a", "th"]
    merged(tmp_path, [*BYTES, "Ġt", "<|endoftext|>"], ["Ġ t"], add_prefix_space=True)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.pieces(tokenizer.encode("to").ids) == [" t", "o"]


def test_two_files_of_roberta(tmp_path: Path):
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *BYTES, "<mask>"]
    tokenizer = load_tokenizer(merged(tmp_path, vocab, [], tokenizer_class="RobertaTokenizer"))
    assert tokenizer.special_tokens == ROBERTA
    typed = tokenizer.encode("a <mask>.", allow_special=True)
    assert tokenizer.pieces(typed.ids) == ["a", " ", "<mask>", "."]  # as in transformers 5
    says = {"content": "<mask>", "lstrip": True, "normalized": False}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": says}))
    typed = load_tokenizer(tmp_path).encode("a <mask>.", allow_special=True)
    assert tokenizer.pieces(typed.ids) == ["a", "<mask>", "."]


def test_two_files_of_gpt1(tmp_path: Path):
    vocab = ["<unk>", *"abc", "a</w>", "b</w>", "c</w>", "ab", "abc</w>"]
    tokenizer = load_tokenizer(merged(tmp_path, vocab, ["a b", "ab c</w>"]))
    assert tokenizer.pieces(tokenizer.encode("ABC ab d").ids) == ["abc</w>", "a", "b</w>", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("abc ab").ids) == "abc ab"
    assert tokenizer.special_tokens == GPT1


# --- other layouts, and what is wrong -------------------------------------------------------------


def test_folder_without_tokenizer_lists_the_files_sought(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json, vocab\.txt, .* spiece\.model"):
        load_tokenizer(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_tokenizer(tmp_path / "nowhere")


def saved(folder: Path) -> None:
    learned("wordpiece").save(folder)


def wordpiece(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join(BERT_LINES), "utf-8")


def gpt2(folder: Path) -> None:
    merged(folder, [*BYTES, "th", "the", "<|endoftext|>"], ["t h", "th e"])


@pytest.mark.parametrize(
    ("make", "file", "content", "message"),
    [
        (saved, "tokenizer.json", b'{"version": "1.0", "mod', "tokenizer.json: not JSON"),
        (saved, "tokenizer.json", b"[1]", "tokenizer.json: must be a JSON object, got list"),
        (saved, "tokenizer.json", b"{}", "tokenizer.json is no tokenizer file"),
        (saved, "tokenizer.json", b"[" * 100_000, "tokenizer.json: not JSON"),
        (saved, "tokenizer.json", b"\xff\xfe", "tokenizer.json: not JSON: .* in position 0"),
        (
            saved,
            "tokenizer.json",
            b'{"added_tokens": [1]}',
            "added_tokens must be a list of tokens",
        ),
        (saved, "tokenizer_config.json", b'{"unmask', "tokenizer_config.json: not JSON"),
        (
            saved,
            "tokenizer_config.json",
            b'{"unmask": {"frame": {}}}',
            "unmask.frame is of format 1",
        ),
        (
            saved,
            "tokenizer_config.json",
            b'{"unmask": {"special_tokens": {"pad": 1}}}',
            "unmask.special_tokens",
        ),
        (
            saved,
            "tokenizer_config.json",
            b'{"unmask": {"special_tokens": {"pad": "<p>", "start": "[CLS]"}}}',
            "unmask names '<p>', which tokenizer.json does not have",
        ),
        (saved, "tokenizer_config.json", b'{"pad_token": 3}', "pad_token must be a token, got 3"),
        (
            wordpiece,
            "vocab.txt",
            b"the\nfox\n",
            r"vocab.txt: the vocabulary lacks \[PAD\], \[UNK\]",
        ),
        (wordpiece, "vocab.txt", b"", "vocab.txt: the vocabulary lacks"),
        (wordpiece, "vocab.txt", b"\x80\n", "vocab.txt is not UTF-8"),
        (
            wordpiece,
            "tokenizer_config.json",
            b'{"tokenizer_class": "BertJapaneseTokenizer"}',
            "vocab.txt: a BertJapaneseTokenizer does more",
        ),
        (gpt2, "merges.txt", b"t h\nth", r"merges.txt:2: a line must be two pieces .* got 'th'"),
        (gpt2, "merges.txt", b"t h\nq x\n", "merges.txt:2: 'qx' is not in vocab.json"),
        (gpt2, "vocab.json", b'{"a": 0}', "merges.txt:2: 't' is not in vocab.json"),
        (gpt2, "vocab.json", b'{"a": "b"}', "vocab.json must map every piece to its id"),
        (gpt2, "vocab.json", b"{", "vocab.json: not JSON"),
        (
            gpt2,
            "tokenizer_config.json",
            b'{"tokenizer_class": "CodeGenTokenizer"}',
            "vocab.json: the treatment of such files by the tokenizer of 'CodeGen' is unknown",
        ),
        (gpt2, "tokenizer_config.json", b'{"added_tokens_decoder": {"x": 1}}', "must map ids"),
        (gpt2, "tokenizer_config.json", b'{"added_tokens_decoder": [1]}', "must map ids"),
        (gpt2, "added_tokens.json", b'{"x": "y"}', "added_tokens.json must map tokens to ids"),
        (gpt2, "vocab.json", b'{"t": 1, "h": 1, "th": 2, "e": 3, "the": 4}', "have the same id"),
    ],
)
def test_damage_is_one_line_naming_the_file(
    make: Callable[[Path], None], file: str, content: bytes, message: str, tmp_path: Path
):
    make(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load_tokenizer(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def edit(name: str, *path: Any, to: Any) -> Callable[[Path], None]:
    """Save a learned tokenizer with something else at a place of its tokenizer.json."""

    def make(folder: Path) -> None:
        learned(name).save(folder)
        (folder / "tokenizer_config.json").write_text("{}")
        state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        here = state
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = to
        (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            edit("wordpiece", "post_processor", "special_tokens", to={}),
            r"has '\[CLS\]' without an id",
        ),
        (
            edit("wordpiece", "model", "unk_token", to="§"),
            "model.unk_token is '§', which is not in",
        ),
        (edit("bpe", "model", "vocab", "a", to=0), "two pieces of the vocabulary have the same id"),
        (edit("bpe", "model", "continuing_subword_prefix", to="##"), "does not begin with '##'"),
        (
            edit("bpe", "model", "vocab", "a", to=2**31),
            r"tokenizer.json: model.vocab: 'a' must have an id from 0 to \d+, .* got 2147483648",
        ),
        (
            edit("unigram", "model", "unk_id", to=None),
            "model.unk_id must be the id of the unkn",
        ),
        (edit("unigram", "model", "unk_id", to=999), "is no tokenizer file"),
        (edit("wordpiece", "post_processor", "pair", to=[]), "must keep one text, or two in"),
        (edit("wordpiece", "added_tokens", 0, "content", to=["x"]), "must be a list of tokens"),
        (edit("wordpiece", "added_tokens", 0, "id", to=77), r"'\[PAD\]' cannot have the id 77"),
    ],
)
def test_later_library_failures_are_refused_at_load(
    make: Callable[[Path], None], message: str, tmp_path: Path
):
    make(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=st.sampled_from([None, 0, -1, 2**40, 1.5, "", "[MASK]", [], {}, [1]]))
@pytest.mark.parametrize("name", ["wordpiece", "bpe", "unigram"])
def test_any_change_gives_a_tokenizer_or_a_clear_error(
    name: str, data: st.DataObject, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.fsync", lambda _: None)  # only for speed
    path: list[Any] = []
    learned(name).save(tmp_path)
    here = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    while isinstance(here, dict | list) and here and (not path or data.draw(st.booleans())):
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        path.append(data.draw(st.sampled_from(keys)))
        here = here[path[-1]]
    edit(name, *path, to=value)(tmp_path)
    if output := refusal(lambda: load_tokenizer(tmp_path)):
        assert str(tmp_path) in output or output.startswith("the vocabulary")
        return
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.encode("The old king é [MASK]\nx").ids < tokenizer.vocab_size).all()


def test_moses_pre_tokenization_is_refused_as_gpt1(tmp_path: Path):
    special = ["<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>"]
    folder = merged(tmp_path, [*special, "a</w>", "b</w>"], [])
    with pytest.raises(FileNotFoundError, match=r"vocab.json: Moses pre-tokenization"):
        load_tokenizer(folder)


def test_sparse_ids_are_refused(tmp_path: Path):
    merged(tmp_path, [*BYTES, "<|endoftext|>"], [])
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps(vocab | {"<|endoftext|>": 10**9}))
    with pytest.raises(ValueError, match=r"ids up to 1000000000, but only 257 pieces"):
        load_tokenizer(tmp_path)


def test_truncated_merges_are_detected(tmp_path: Path):
    pieces = [f"{a}{b}" for a in BYTES[:40] for b in BYTES[:40]]
    folder = merged(tmp_path, [*BYTES, *pieces, "<|endoftext|>"], ["! !"])
    with pytest.raises(ValueError, match=r"merges.txt seems truncated: 1600 pieces"):
        load_tokenizer(folder)


def test_byte_level_vocabulary_must_have_all_bytes(tmp_path: Path):
    with pytest.raises(ValueError, match=r"vocab.json is not byte-level: 255 of 256 bytes have no"):
        load_tokenizer(merged(tmp_path, ["a", "<|endoftext|>"], []))


def test_every_truncation_of_a_saved_file_is_an_error(tmp_path: Path):
    learned("wordpiece").save(tmp_path)
    whole = (tmp_path / "tokenizer.json").read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int).tolist():
        (tmp_path / "tokenizer.json").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=re.escape(str(tmp_path / "tokenizer.json"))):
            load_tokenizer(tmp_path)


def test_padding_and_truncation_settings_are_ignored(tmp_path: Path) -> None:
    toy_models.tokenizer("bert").save(tmp_path)
    text = "the good cat runs very so blue"
    plain = load_tokenizer(tmp_path).encode(text).ids.tolist()
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.enable_padding(length=64)  # as sentence encoders have it
    backend.enable_truncation(3)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode(text).ids.tolist() == plain
    assert len(plain) >= 7
