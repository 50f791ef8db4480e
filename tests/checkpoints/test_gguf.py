"""GGUF files hold the model tensor by tensor, and the vocabulary, as llama.cpp reads them."""

import importlib.util
import json
import unicodedata
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
from test_exports import shrunk
from toy_text import corpus

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.conversations.template import ChatTemplate
from unmask.inference.pipeline import Pipeline
from unmask.model.positions.rotary import Llama3Scaling
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.catalogue import MODELS

SIZE = 140


@cache
def tokenizer(name: str) -> Tokenizer:
    spec = MODELS[name].tokenizer
    size = {"Unigram": 70, "ByteBPE": 300, "SentencePieceBPE": 320}.get(
        type(spec.vocabulary).__name__, SIZE
    )
    vocabulary: Any = replace(spec.vocabulary, vocab_size=size)
    return train_tokenizer(replace(spec, vocabulary=vocabulary), corpus(20).splitlines())


def tiny(name: str, **changes: Any) -> LoadedModel:
    known = tokenizer(name)
    preset = MODELS[name].with_vocabulary(known.special_ids)
    a = shrunk(preset.architecture).with_vocab_size(known.vocab_size + 3)
    preset = replace(preset, architecture=replace(a, **changes))
    model = preset.build().initialize(0).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=draw)
    return LoadedModel(
        preset=preset, model=model, tokenizer=known, label_names=(), missing=(), unexpected=()
    )


def written(loaded: LoadedModel, folder: Path, dtype: Any = "float32") -> gguf.GGUFReader:
    return gguf.GGUFReader(
        Pipeline(loaded).save(folder / "m", format="gguf", dtype=dtype) / "model.gguf"
    )


def field(reader: gguf.GGUFReader, name: str) -> Any:
    found = reader.get_field(name)
    assert found is not None, name
    return found.contents()


def neighbors(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Put row i of a head's second half after row i of its first."""
    size = len(x) // heads
    order = [h * size + half * size // 2 + i
             for h in range(heads) for i in range(size // 2) for half in (0, 1)]  # fmt: skip
    return x[order]


LLAMA = {
    "tokens.weight": "token_embd.weight",
    "final_norm.weight": "output_norm.weight",
    "layers.0.attention.v.weight": "blk.0.attn_v.weight",
    "layers.1.attention.o.weight": "blk.1.attn_output.weight",
    "layers.0.feed_forward.gate.weight": "blk.0.ffn_gate.weight",
    "layers.0.feed_forward.up.weight": "blk.0.ffn_up.weight",
    "layers.1.feed_forward.down.weight": "blk.1.ffn_down.weight",
}
PRE_NORMS = {
    "layers.0.attention_norm.into.weight": "blk.0.attn_norm.weight",
    "layers.1.feed_forward_norm.into.weight": "blk.1.ffn_norm.weight",
}
BERT = {
    "tokens.weight": "token_embd.weight",
    "embed_norm.bias": "token_embd_norm.bias",
    "segments.weight": "token_types.weight",
    "layers.0.attention.q.weight": "blk.0.attn_q.weight",
    "layers.0.attention.k.bias": "blk.0.attn_k.bias",
    "layers.1.attention.v.weight": "blk.1.attn_v.weight",
    "layers.1.attention.o.bias": "blk.1.attn_output.bias",
    "layers.0.attention_norm.after.weight": "blk.0.attn_output_norm.weight",
    "layers.0.feed_forward.up.weight": "blk.0.ffn_up.weight",
    "layers.1.feed_forward.down.bias": "blk.1.ffn_down.bias",
    "layers.1.feed_forward_norm.after.bias": "blk.1.layer_output_norm.bias",
}
T5 = {
    "tokens.weight": "token_embd.weight",
    "encoder.layers.0.attention.q.weight": "enc.blk.0.attn_q.weight",
    "encoder.layers.1.feed_forward.down.weight": "enc.blk.1.ffn_down.weight",
    "encoder.final_norm.weight": "enc.output_norm.weight",
    "encoder.position.table.weight": "enc.blk.0.attn_rel_b.weight",
    "decoder.layers.0.attention.k.weight": "dec.blk.0.attn_k.weight",
    "decoder.layers.1.cross.v.weight": "dec.blk.1.cross_attn_v.weight",
    "decoder.layers.1.cross_norm.into.weight": "dec.blk.1.cross_attn_norm.weight",
    "decoder.layers.0.feed_forward_norm.into.weight": "dec.blk.0.ffn_norm.weight",
    "decoder.position.table.weight": "dec.blk.0.attn_rel_b.weight",
}
CASES = {
    "llama-mini": ("llama", LLAMA | PRE_NORMS),
    "mistral-mini": ("llama", LLAMA | PRE_NORMS),
    "qwen2-mini": ("qwen2", LLAMA | PRE_NORMS),
    "qwen3-mini": (
        "qwen3",
        LLAMA | PRE_NORMS | {"layers.1.attention.q_norm.norm.weight": "blk.1.attn_q_norm.weight"},
    ),
    "olmo-2-mini": (
        "olmo2",
        LLAMA
        | {
            "layers.0.attention_norm.out.weight": "blk.0.post_attention_norm.weight",
            "layers.1.feed_forward_norm.out.weight": "blk.1.post_ffw_norm.weight",
        },
    ),
    "gpt2-mini": (
        "gpt2",
        {
            "tokens.weight": "token_embd.weight",
            "position.table.weight": "position_embd.weight",
            "layers.0.attention.o.weight": "blk.0.attn_output.weight",
            "layers.0.feed_forward.up.weight": "blk.0.ffn_up.weight",
            "layers.1.feed_forward.down.bias": "blk.1.ffn_down.bias",
            "layers.1.feed_forward_norm.into.bias": "blk.1.ffn_norm.bias",
            "final_norm.bias": "output_norm.bias",
        },
    ),
    "bert-mini": ("bert", BERT | {"position.table.weight": "position_embd.weight"}),
    "roberta-mini": ("bert", {k: v for k, v in BERT.items() if k != "segments.weight"}),
    "t5-mini": ("t5", T5),
    "t5-v1_1-mini": ("t5", T5),
}


@pytest.mark.parametrize("name", CASES)
def test_tensors_equal_the_model(name: str, tmp_path: Path) -> None:
    loaded = tiny(name)
    reader = written(loaded, tmp_path)
    architecture, names = CASES[name]
    assert field(reader, "general.architecture") == architecture
    found = {one.name: torch.from_numpy(np.array(one.data)) for one in reader.tensors}
    network = dict(loaded.model.backbone.named_parameters())
    for ours, theirs in names.items():
        assert torch.equal(found[theirs], network[ours]), theirs
    a: Any = loaded.model.decoder_architecture
    if architecture not in ("bert", "t5", "gpt2"):
        for part, heads in (("q", a.n_heads), ("k", a.n_key_value_heads)):
            own = network[f"layers.1.attention.{part}.weight"]
            expected = neighbors(own, heads) if architecture == "llama" else own
            assert torch.equal(found[f"blk.1.attn_{part}.weight"], expected)
        assert field(reader, f"{architecture}.rope.freq_base") == a.position.theta
    if name == "gpt2-mini":
        own = torch.cat([network[f"layers.1.attention.{part}.weight"] for part in "qkv"])
        assert torch.equal(found["blk.1.attn_qkv.weight"], own)
    if name == "roberta-mini":
        table = network["position.table.weight"][a.position.offset :]
        assert torch.equal(found["position_embd.weight"], table)
        assert len(table) == field(reader, "bert.context_length")
    if name in ("mistral-mini", "t5-v1_1-mini"):
        assert torch.equal(found["output.weight"], loaded.model.language_head.weight)
    heads = {n: x for n, x in loaded.model.trained_weights().items() if n.startswith("heads.")}
    assert len(found) <= len(network) + len(heads) + (name == "olmo-2-mini")
    assert field(reader, f"{architecture}.embedding_length") == a.d_model
    assert field(reader, f"{architecture}.attention.head_count") == a.n_heads
    assert field(reader, f"{architecture}.block_count") == a.n_layers


@pytest.mark.parametrize("name", CASES)
def test_vocabulary_equals_the_tokenizer(name: str, tmp_path: Path) -> None:
    loaded = tiny(name)
    reader, known = written(loaded, tmp_path), tokenizer(name)
    tokens = field(reader, "tokenizer.ggml.tokens")
    types = field(reader, "tokenizer.ggml.token_type")
    assert len(tokens) == len(types) == known.vocab_size + 3
    assert types[-3:] == [5, 5, 5]  # unused rows of the table
    special = known.special_ids
    for key, i in (("eos", special.end), ("padding", special.pad)):
        assert field(reader, f"tokenizer.ggml.{key}_token_id") == i
    model = field(reader, "tokenizer.ggml.model")
    expected = {"bert-mini": "bert", "mistral-mini": "llama", "t5-mini": "t5", "t5-v1_1-mini": "t5"}
    assert model == expected.get(name, "gpt2")
    pre = {"llama-mini": "llama-bpe", "olmo-2-mini": "llama-bpe", "qwen2-mini": "qwen2",
           "qwen3-mini": "qwen2", "gpt2-mini": "gpt-2", "roberta-mini": "gpt-2"}  # fmt: skip
    assert field(reader, "tokenizer.ggml.pre") == pre.get(name, "default")
    if model == "gpt2":
        merges = field(reader, "tokenizer.ggml.merges")
        assert all("".join(merge.split(" ")) in tokens for merge in merges)
    if model == "bert":
        pieces = {t for t, kind in zip(tokens, types, strict=True) if kind == 1}
        assert "\u2581the" in pieces
        assert not any(piece.startswith("##") for piece in pieces)
    if model == "llama":  # the pieces of a text, merged by their scores
        scores = dict(zip(tokens, field(reader, "tokenizer.ggml.scores"), strict=True))
        for text in corpus(2).split()[:20]:
            pieces = list("\u2581" + text)
            while pairs := [
                (scores[a + b], -i, i)
                for i, (a, b) in enumerate(pairwise(pieces))
                if a + b in scores
            ]:
                at = max(pairs)[2]
                pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            assert pieces == [tokens[i] for i in known.encode(text).ids]
    if model == "t5":
        assert len(field(reader, "tokenizer.ggml.scores")) == len(tokens)
        assert types[special.sentinels[0]] == 4
        assert field(reader, "t5.decoder_start_token_id") == special.start


def test_matrices_may_be_float16(tmp_path: Path) -> None:
    loaded = tiny("bert-mini")
    found = {one.name: one.data for one in written(loaded, tmp_path, "float16").tensors}
    network = dict(loaded.model.backbone.named_parameters())
    own = network["layers.0.feed_forward.up.weight"].detach().numpy()
    assert np.array_equal(found["blk.0.ffn_up.weight"], own.astype(np.float16))
    assert found["position_embd.weight"].dtype == found["blk.0.ffn_up.bias"].dtype == np.float32
    with torch.no_grad():
        network["tokens.weight"][0, 0] = 1e6
    with pytest.raises(ValueError, match="beyond float16; give --dtype float32"):
        written(loaded, tmp_path / "b", "float16")
    assert not (tmp_path / "b" / "m").exists()


def test_llama_3_rope_scaling_divides_frequencies(tmp_path: Path) -> None:
    preset = MODELS["llama-mini"]
    position: Any = preset.architecture.position  # type: ignore[attr-defined]
    scaling = Llama3Scaling(original_max_positions=64)
    loaded = tiny("llama-mini", position=replace(position, scaling=scaling))
    found = {one.name: one.data for one in written(loaded, tmp_path).tensors}
    frequencies = position.theta ** -(torch.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(
        frequencies.numpy() / found["rope_freqs.weight"], scaling(frequencies).numpy(), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tiny("albert-mini"), "GGUF is written of bert, gpt2, .*; got albert"),
        (lambda: tiny("gpt2-mini", activation="relu"), "has the activation gelu_tanh, got relu"),
        (lambda: replace(tiny("bert-mini"), tokenizer=None), "has no tokenizer"),
        (lambda: tiny("llama-mini", causal=False), "reads forward only"),
    ],
)
def test_models_llama_cpp_lacks_are_refused(
    make: Callable[[], LoadedModel], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        written(make(), tmp_path)
    assert not (tmp_path / "m").exists()


def test_omitted_parts_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tiny("bert-mini"), tmp_path / "a")
    written(tiny("mistral-mini"), tmp_path / "b")
    known = train_tokenizer(
        replace(MODELS["bert-mini"].tokenizer, vocabulary=WordPiece(SIZE, lowercase=False)),
        corpus(20).splitlines(),
    )
    cased = tiny("bert-mini")
    written(replace(cased, tokenizer=known), tmp_path / "c")
    messages = caplog.text
    assert "bert-mini: heads are left out: language, next_sentence" in messages
    assert "has no window: it differs in texts longer than 64 tokens" in messages
    assert "before tokenizer.ggml.normalizer.lowercase read it in lower case" in messages


TEXTS = [
    *corpus(3).splitlines(), "The year 1984 had 365,000 days; don't STOP'LL we.", "a", " a", "a ",
    "  two  spaces   three ", "line\n\n  line\r\n\ttab\n", "x=1;\t\ty+=2.5e10//z", "...!?#$%&*()[]",
    "Crème brûlée naïve Ünder Straße ÅNGSTRÖM", "e\u0301toile cafe\u0301 A\u030a",
    "हिन्दी भाषा Tiếng Việt",
    "日本語の文章 한국어 漢字かな", "١٢٣٤ Ⅳ ½ 三 12345678",
    "👩‍👩‍👧 😀", "\u00a0nbsp\u2003em \u200bzero\ufeff", "\u2581mark",
    "ﬁ ﬂ ① ｆｕｌｌ", "<s>[MASK]</s><unk><|endoftext|>", "ǅ ʰ ⅷ ª", "",
]  # fmt: skip


def llama_cpp_ids(file: Path, texts: list[str], **options: bool) -> list[list[int]]:
    """Return the ids of llama.cpp itself, where it is installed."""
    xllamacpp = pytest.importorskip("xllamacpp")
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_parallel = str(file), 64, 1
    settings.warmup, settings.embedding = False, options.pop("embeds")
    server = xllamacpp.Server(settings)  # it answers as long as it is referred to

    def tokenize(text: str) -> list[int]:
        body = json.dumps({"content": text, **options}).encode()
        address = server.listening_address + "/tokenize"
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)["tokens"]

    return [tokenize(text) for text in texts]


def check_ids(loaded: LoadedModel, file: Path, texts: list[str]) -> None:
    known, embeds = loaded.tokenizer, not loaded.model.decoder_architecture.causal
    assert known is not None
    ids = known.special_ids
    plain = [own.tolist() for own in known.encode_ids_batch(texts)]
    framed = [[*ids.prefix, *own, *ids.suffix] for own in plain]
    for add_special, expected in ((False, plain), (True, framed)):
        theirs = llama_cpp_ids(
            file, texts, add_special=add_special, parse_special=False, embeds=embeds
        )
        for text, own, other in zip(texts, expected, theirs, strict=True):
            assert own == other, repr(text)


@pytest.mark.parametrize("name", [name for name in CASES if "t5" not in name])  # no server of T5
def test_llama_cpp_cuts_text_alike(name: str, tmp_path: Path) -> None:
    loaded = tiny(name)
    written(loaded, tmp_path)
    normal = "qwen" in name  # as the command says
    texts = [unicodedata.normalize("NFC", text) if normal else text for text in TEXTS]
    check_ids(loaded, tmp_path / "m" / "model.gguf", texts)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
SPACES = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
FEWER: Any = lambda merges: merges[3:]  # noqa: E731
BERT_STEPS: dict[str, Any] = {
    "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
    "strip_accents": None, "lowercase": True,
}  # fmt: skip


def changed(name: str, **changes: Any) -> LoadedModel:
    """Return a model whose tokenizer.json differs; `model__x` is a key of its model."""
    known = tokenizer(name)
    state = json.loads(known.__reduce__()[1][0])
    for key, value in changes.items():
        part, _, inner = key.rpartition("__")
        place = state[part] if part else state
        place[inner] = value(place[inner]) if callable(value) else value
    backend = tokenizers.Tokenizer.from_str(json.dumps(state))
    return replace(tiny(name), tokenizer=Tokenizer(backend, known.special_tokens))


def pattern(regex: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTES | {"use_regex": False}]}


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("gpt2-mini", {"pre_tokenizer": BYTES | {"add_prefix_space": True}}, "add_prefix_space"),
        ("gpt2-mini", {"pre_tokenizer": BYTES | {"use_regex": False}}, "pre_tokenizer"),
        ("gpt2-mini", {"normalizer": {"type": "Lowercase"}}, "normalizer"),
        ("llama-mini", {"pre_tokenizer": pattern(r"\p{L}+|\p{N}|\s+")}, "pre_tokenizer"),
        ("bert-mini", {"normalizer": BERT_STEPS | {"handle_chinese_chars": False}}, "chinese"),
        ("bert-mini", {"normalizer": BERT_STEPS | {"clean_text": False}}, "clean_text"),
        ("bert-mini", {"normalizer": {"type": "Lowercase"}}, "normalizer"),
        ("bert-mini", {"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer"),
        ("mistral-mini", {"model__byte_fallback": False}, "model.byte_fallback"),
        ("mistral-mini", {"model__ignore_merges": True}, "model.ignore_merges"),
        ("mistral-mini", {"normalizer": {"type": "Strip"}}, "normalizer"),
        ("mistral-mini", {"pre_tokenizer": DIGITS}, "pre_tokenizer"),
        ("t5-mini", {"model__byte_fallback": True}, "model.byte_fallback"),
        ("t5-mini", {"normalizer": {"type": "Lowercase"}}, "normalizer"),
        ("t5-mini", {"pre_tokenizer": SPACES | {"prepend_scheme": "never"}}, "prepend_scheme"),
    ],
)  # fmt: skip
def test_tokenizers_llama_cpp_lacks_are_refused(
    name: str, changes: dict[str, Any], key: str, tmp_path: Path
) -> None:
    if changes.get("normalizer") == {"type": "Strip"}:
        changes["normalizer"] |= {"strip_left": True, "strip_right": True}
    with pytest.raises(ValueError, match=rf"{name}: llama.cpp lacks .*{key}") as caught:
        written(changed(name, **changes), tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("name", "changes", "pre"),
    [
        ("gpt2-mini", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, BYTES]}},
         "smollm"),
        ("llama-mini", {"model__ignore_merges": True}, "llama-bpe"),
        ("llama-mini", {"model__merges": FEWER}, "smaug-bpe"),
        ("llama-mini", {"model__merges": FEWER, "model__ignore_merges": True}, "llama-bpe"),
        ("qwen2-mini", {"model__ignore_merges": True, "normalizer": None}, "qwen2"),
        ("bert-mini", {"normalizer": BERT_STEPS | {"lowercase": False}}, "default"),
        ("bert-mini", {"normalizer": BERT_STEPS | {"strip_accents": False}}, "default"),
    ],
)  # fmt: skip
def test_settings_of_llama_cpp_are_those_of_the_tokenizer(
    name: str, changes: dict[str, Any], pre: str, tmp_path: Path
) -> None:
    loaded = changed(name, **changes)
    assert field(written(loaded, tmp_path), "tokenizer.ggml.pre") == pre
    check_ids(loaded, tmp_path / "m" / "model.gguf", TEXTS)


@pytest.mark.parametrize("end", ["", "<|begin_of_text|>"])
def test_chat_template_and_its_end_of_a_turn_are_written(end: str, tmp_path: Path) -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}" + end + "{% endfor %}", {})
    loaded = replace(tiny("llama-mini"), chat_template=template)
    reader = written(loaded, tmp_path)
    assert field(reader, "tokenizer.chat_template") == template.source
    special = loaded.tokenizer.special_ids
    expected = special.start if end else special.end
    assert field(reader, "tokenizer.ggml.eot_token_id") == expected


@pytest.mark.thorough
def test_invalid_options_and_missing_library_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    out = str(tmp_path / "m")
    assert cli.run(["convert", "unmask-mini-en", out, "--dtype", "float16"]) == 2
    assert "--dtype applies to --to gguf only" in capfd.readouterr().err
    assert cli.run(["convert", "unmask-mini-en", out, "--to", "gguf", "--dtype", "float16"]) == 0
    assert (tmp_path / "m" / "model.gguf").is_file()
    capfd.readouterr()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.run(["convert", "unmask-mini-en", str(tmp_path / "x"), "--to", "gguf"]) == 2
    assert 'pip install "unmask[gguf]"' in capfd.readouterr().err
