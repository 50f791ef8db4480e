"""Folders of sentence-transformers: `embed` gives their vectors, or names what it cannot do."""

import importlib.util
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import linear, normalize
from transformers import BertConfig, BertModel, BertTokenizerFast

import unmask

WIDTH = 32
TEXTS = ["the cat sat on the mat", "A Dog ran fast", "", "the dog ran " * 30]
Formula = Callable[[Tensor], Tensor]


def _weighted(x: Tensor) -> Tensor:
    weights = torch.arange(1.0, len(x) + 1)
    return (x * weights[:, None]).sum(0) / weights.sum()


def _dense_tensors() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(5)
    sizes = {"linear.weight": (8, WIDTH), "linear.bias": (8,)}
    return {name: torch.randn(size, generator=random) for name, size in sizes.items()}


def _dense(x: Tensor) -> Tensor:
    tensors = _dense_tensors()
    return torch.tanh(linear(x, tensors["linear.weight"], tensors["linear.bias"]))


FORMULAS: Mapping[str, Formula] = {
    "cls_token": lambda x: x[0],
    "max_tokens": lambda x: x.amax(0),
    "mean_tokens": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / len(x) ** 0.5,
    "weightedmean_tokens": _weighted,
    "lasttoken": lambda x: x[-1],
}
AFTER: Mapping[str, Formula] = {"Normalize": lambda x: normalize(x, dim=0), "Dense": _dense}
MODES = {  # key of the older format -> value of the newer one
    "cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}  # fmt: skip
ROWS: list[tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]] = [
    *(((pooling,), (), {}) for pooling in FORMULAS),
    (("cls_token", "mean_tokens", "max_tokens"), ("Normalize",), {}),
    (("mean_tokens",), ("Dense", "Normalize"), {}),
    (("mean_tokens",), ("Normalize", "Dense"), {"new_format": True}),
    (("lasttoken", "cls_token"), (), {"new_format": True}),
    (("mean_tokens",), (), {"text": {"max_seq_length": 9, "do_lower_case": True}}),
    (("cls_token",), (), {"model_max_length": 7}),
    (("mean_tokens",), (), {"prompt": "the mat on "}),
]  # fmt: skip


def _write(path: Path, poolings: tuple[str, ...], after: tuple[str, ...], how: Any) -> Path:
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "a",
        "cat",
        "dog",
        "sat",
        "on",
        "mat",
        "ran",
        "fast",
    ]
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    length = how.get("model_max_length", 64)
    tokenizer = BertTokenizerFast(
        vocab=str(path / "vocab.txt"), do_lower_case=False, model_max_length=length
    )
    tokenizer.save_pretrained(path)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(words), hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).save_pretrained(path)
    kinds = ["Transformer", "Pooling", *after]
    places = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": where, "type": f"sentence_transformers.models.{kind}"}
        for i, (where, kind) in enumerate(zip(places, kinds, strict=True))
    ]
    files: dict[str, Any] = {"modules.json": modules}
    pooling: dict[str, Any] = {"word_embedding_dimension": WIDTH}
    if how.get("new_format"):
        names = [MODES[name] for name in poolings]
        pooling = {"embedding_dimension": WIDTH, "pooling_mode": names, "include_prompt": True}
    else:
        pooling |= {f"pooling_mode_{name}": name in poolings for name in FORMULAS}
    files["1_Pooling/config.json"] = pooling
    for where, kind in zip(places, kinds, strict=True):
        if kind == "Dense":
            files[f"{where}/config.json"] = {
                "in_features": WIDTH, "out_features": 8, "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            }  # fmt: skip
    files["sentence_bert_config.json"] = how.get("text", {})
    prompts = {"prompts": {"query": how.get("prompt", "q: ")}}
    name = "query" if "prompt" in how else None
    files["config_sentence_transformers.json"] = prompts | {"default_prompt_name": name}
    for name, content in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(json.dumps(content))
    for where, kind in zip(places, kinds, strict=True):
        if kind == "Dense":
            save_file(_dense_tensors(), path / where / "model.safetensors")
        (path / where).mkdir(exist_ok=True)
    return path


@torch.no_grad()
def _expected(path: Path, poolings: tuple[str, ...], after: tuple[str, ...], how: Any) -> Any:
    tokenizer = BertTokenizerFast.from_pretrained(path)
    model = BertModel.from_pretrained(path).eval()
    text_options = how.get("text", {})
    length = text_options.get("max_seq_length", how.get("model_max_length", 64))
    vectors: list[Tensor] = []
    in_order = poolings if how.get("new_format") else [p for p in FORMULAS if p in poolings]
    for text in TEXTS:
        text = how.get("prompt", "") + text
        text = text.lower() if text_options.get("do_lower_case") else text
        ids = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
        states = model(**ids).last_hidden_state[0]
        vector = torch.cat([FORMULAS[pooling](states) for pooling in in_order])
        for kind in after:
            vector = AFTER[kind](vector)
        vectors.append(vector)
    return torch.stack(vectors).numpy()


@pytest.mark.parametrize(("poolings", "after", "how"), ROWS)
def test_vectors_are_those_of_the_folder(
    tmp_path: Path, poolings: tuple[str, ...], after: tuple[str, ...], how: dict[str, Any]
) -> None:
    path = _write(tmp_path / "m", poolings, after, how)
    expected = _expected(path, poolings, after, how)
    if importlib.util.find_spec("sentence_transformers"):  # a peer of this test alone
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(str(path), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(peer, expected, atol=1e-5)
    pipeline = unmask.load(path)
    np.testing.assert_allclose(pipeline.embed(TEXTS), expected, atol=1e-5)
    assert np.shape(pipeline.embed([])) == (0, expected.shape[1])
    copied = unmask.load(pipeline.save(tmp_path / "copied"))
    np.testing.assert_allclose(copied.embed(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("poolings", "after", "expected"),
    [
        (("mean_tokens",), ("Normalize",), 1),
        (("cls_token",), (), 2),
        (("lasttoken",), (), 3),
        (("max_tokens",), (), "mean, cls or lasttoken, without layers after it, got max"),
        (("mean_tokens",), ("Dense",), "without layers after it, got mean with a dense layer"),
        (("cls_token", "mean_tokens"), (), "got cls and mean"),
    ],
)
def test_pooling_is_that_of_llama_cpp_or_refused(
    tmp_path: Path, poolings: tuple[str, ...], after: tuple[str, ...], expected: int | str
) -> None:
    gguf = pytest.importorskip("gguf")
    pipeline = unmask.load(_write(tmp_path / "m", poolings, after, {}))
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            pipeline.save(tmp_path / "out", format="gguf")
        assert not (tmp_path / "out").exists()
        return
    reader = gguf.GGUFReader(pipeline.save(tmp_path / "out", format="gguf") / "model.gguf")
    assert reader.fields["bert.pooling_type"].contents() == expected


def test_pooling_that_is_given_replaces_that_of_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = unmask.load(_write(tmp_path / "m", ("cls_token",), (), {}))
    with caplog.at_level(logging.WARNING, "unmask"):
        first, mean = (pipeline.embed(TEXTS, pooling=pooling) for pooling in ("first", "mean"))
    np.testing.assert_allclose(pipeline.embed(TEXTS), first, atol=1e-6)
    assert float(np.abs(np.asarray(first) - np.asarray(mean)).max()) > 0.1
    assert "modules.json is not followed: pooling mean" in caplog.text


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", [], "must be a list of modules"),
        ("modules.json", [{"type": "other.Model", "path": ""}], "got 'other.Model': code of"),
        (
            "modules.json",
            [{"type": "sentence_transformers.models.Transformer", "path": "../x"}],
            "path must be a folder inside",
        ),
        (
            "modules.json",
            [{"type": "sentence_transformers.models.CLIPModel", "path": ""}],
            "type: only a Transformer, then a Pooling are supported, got CLIPModel",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling_mode must be of"),
        ("1_Pooling/config.json", {"whitening": True}, "whitening is not supported"),
        ("2_Dense/config.json", {"activation_function": "x.Y"}, "activation_function must be"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual must be false, got true"),
        ("2_Dense/config.json", {"out_features": 9}, "the weights are not those of a layer"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length must be at least 1"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task must"),
        ("config_sentence_transformers.json", {"default_prompt_name": "z"}, "default_prompt_name"),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, file: str, change: Any, message: str
) -> None:
    path = _write(tmp_path / "m", ("mean_tokens",), ("Dense",), {})
    old = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps(old | change if isinstance(old, dict) else change))
    pipeline = unmask.load(path)
    with pytest.raises(ValueError, match=message) as error:
        pipeline.embed(TEXTS)
    assert str(path) in str(error.value)
