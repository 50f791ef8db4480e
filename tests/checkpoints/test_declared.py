"""Sizes, rates and tables that a folder declares: compared with its weights before it is built."""

import json
import re
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from configured import MAKERS, TOLERANCE, differ, ours, quiet, rewrite, theirs
from safetensors.torch import load_file, save_file

from unmask.checkpoints.huggingface import check
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.checkpoints.tensors import SAFETENSORS_WEIGHTS
from unmask.config import set_value
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKey
from unmask.zoo.catalogue import MODELS

FIELDS = {
    c.config_mapping.model_type: c.config_mapping
    for c in MODELS.values()
    if c.config_mapping.in_transformers
}


@pytest.fixture(scope="module")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of one tiny model a family."""
    home = tmp_path_factory.mktemp("model_folders")
    for family, makers in MAKERS.items():
        with quiet():
            next(iter(makers.values()))().save_pretrained(home / family)
    return home


def _refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=re.escape(str(folder))) as caught:
        load_folder(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


WRONG: dict[str, list[Any]] = {
    "size": [0, -1, True, "12", 3.0, 2.5, 10**12, [3]],
    "layers": [0, -3, True, "2", 3.0, 10**6, 10**12],
    "labels": [0, -1, True, "3", 10**12],
    "count": [-1, True, "1", 0.5, 10**12],
    "integer": [True, "1", 0.5, -(10**12)],
    "sides": [0, -1, 2**15, True, "24", 24.0, [24], [24, 24, 24], [24, 0], None],
    "share": [-0.1, 1.0, 1.5, True, "0.1", float("nan"), [0.1]],
    "positive": [0, -1, 0.0, -1e-5, True, "1e-5", float("nan"), float("inf"), 1e40],
    "number": [-0.1, True, "0.02", float("nan"), float("-inf")],
    "flag": [1, "true", 0.0, []],
    "word": [1, ["gelu"], False],
    "words": ["BertModel", [1], {"a": 1}],
    "names": [["a", "b"], {"first": "a"}, {"0": ["a"]}, "a"],
    "table": [[1], "linear", 3],
}
"""Values that no key of a kind may hold."""


def _wrong(key: ConfigKey) -> list[Any]:
    """Return what a key may not hold, whatever is decided of it."""
    if key.use in ("fixed", "alias") or key.value_type == "anything":
        return []
    if "|" in key.value_type:
        return ["other", 3]
    return WRONG[key.value_type] + ([] if key.optional else [None])


@pytest.mark.sample(15)
@pytest.mark.parametrize("family", MAKERS)
def test_impossible_sizes_and_rates_are_refused_with_file_and_key(
    family: str, model_folders: Path
) -> None:
    table = FIELDS[family].config_keys.table
    plain = json.loads((model_folders / family / "config.json").read_text())
    tried = 0
    for key in table.values():
        for value in _wrong(key):
            with pytest.raises(ValueError, match=f"^{key.name} must be .*, got .*$") as caught:
                FIELDS[family].config_keys.complete({**plain, key.name: value})
            assert len(str(caught.value)) < 300
            tried += 1
    part = "text_config" if family == "clip" else "encoder"  # its keys: tests/zoo
    assert tried > (30 if part in table and family in ("clip", "vision-encoder-decoder") else 100)
    some = next(k for k in table.values() if k.value_type == "layers" or k.name == part)
    path = model_folders / family / "config.json"
    try:
        path.write_text(json.dumps({**plain, some.name: "three"}))
        assert _refusal(path.parent).startswith(f"{path}: {some.name} must be")
    finally:
        path.write_text(json.dumps(plain))


@pytest.mark.parametrize("family", MAKERS)
def test_indivisible_head_count_is_refused_by_key(
    family: str, model_folders: Path, tmp_path: Path
) -> None:
    heads = [
        k for k in FIELDS[family].config_keys.table.values() if "head" in k.name and k.divisor_of
    ]
    key = heads[0].name if heads else "num_key_value_heads"
    if family in ("t5", "mt5", "gemma"):  # heads are as wide as is said
        return
    if family in ("vision-encoder-decoder", "clip"):  # keys of its parts: tests/zoo
        return
    folder = tmp_path / "x"
    shutil.copytree(model_folders / family, folder)
    rewrite(folder, {key: 3})
    assert f"{key} = 3 must divide" in _refusal(folder)


def _declared() -> Iterator[tuple[str, dict[str, Any], str]]:
    big = 10**12
    for n in (5, 1000, 10**6, 10**9, big):
        yield "bert", {"num_hidden_layers": n}, "num_hidden_layers"
        yield "gpt2", {"n_layer": n}, "n_layer"
        yield "t5", {"num_layers": n}, "num_layers"
        yield "t5", {"num_decoder_layers": n}, "num_decoder_layers"
        yield "bart", {"decoder_layers": n}, "decoder_layers"
        yield "gemma2", {"num_hidden_layers": n, "layer_types": None}, "num_hidden_layers"
        yield "canine", {"num_hidden_layers": n}, "num_hidden_layers"
        yield "xlnet", {"n_layer": n}, "n_layer"
    for n in (10**6, big):
        for key in ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings",
                    "type_vocab_size"):  # fmt: skip
            yield "bert", {key: n}, "" if n < big else key
        yield "llama", {"num_attention_heads": n}, "num_attention_heads"
        yield "t5", {"relative_attention_num_buckets": n}, "" if n < big else "buckets"
        yield "albert", {"embedding_size": n}, "" if n < big else "embedding_size"
        yield "albert", {"num_hidden_layers": n}, "num_hidden_layers"
        yield "canine", {"num_hash_buckets": n}, "" if n < big else "num_hash_buckets"
        yield "gemma2", {"sliding_window_pattern": n, "num_hidden_layers": 9}, "num_hidden_layers"
    yield "bert", {"num_labels": big, "architectures": ["BertForSequenceClassification"]}, "num_lab"
    yield "bert", {"hidden_size": 2**24, "intermediate_size": 2**24, "vocab_size": 2**24}, ""


DECLARED = list(_declared())


@pytest.mark.parametrize(("family", "output", "key"), DECLARED)
def test_oversized_declarations_are_refused_without_allocating(
    family: str, output: dict[str, Any], key: str, model_folders: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    shutil.copytree(model_folders / family, folder)
    rewrite(folder, output)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    message = _refusal(folder)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert key in message
    assert time.process_time() - began < 1
    assert after.ru_maxrss - before.ru_maxrss < 200_000  # kilobytes


def test_label_count_of_head_without_weights_is_bounded(
    model_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_MAX_RANDOM_WEIGHTS", 10_000)
    folder = tmp_path / "x"
    shutil.copytree(model_folders / "bert", folder)
    names = {str(i): f"a{i}" for i in range(1_500)}
    rewrite(folder, {"architectures": ["BertForSequenceClassification"], "id2label": names})
    assert "would be random, of [1500, 32] in heads.label.out.weight" in _refusal(folder)
    rewrite(folder, {"id2label": {str(i): f"a{i}" for i in range(7)}})
    assert len(load_folder(folder).label_names) == 7


def test_layers_beyond_the_declared_are_reported_as_unused(
    model_folders: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    shutil.copytree(model_folders / "bert", folder)
    rewrite(folder, {"num_hidden_layers": 2})
    loaded = load_folder(folder)
    assert loaded.unexpected
    assert all("layer.2." in name for name in loaded.unexpected)


def test_layers_are_counted_in_an_index_file(model_folders: Path, tmp_path: Path) -> None:
    state = load_file(model_folders / "bert" / SAFETENSORS_WEIGHTS)
    shutil.copy(model_folders / "bert" / "config.json", tmp_path)
    save_file(state, tmp_path / "part.safetensors", {"format": "pt"})
    index = {"weight_map": dict.fromkeys(state, "part.safetensors")}
    (tmp_path / f"{SAFETENSORS_WEIGHTS}.index.json").write_text(json.dumps(index))
    assert load_folder(tmp_path).missing == ()
    rewrite(tmp_path, {"num_hidden_layers": 900})
    assert "num_hidden_layers = 900, but the weights have 3 layers" in _refusal(tmp_path)


@pytest.mark.parametrize("preset", ["bert-mini", "t5-mini", "gpt2-mini", "canine-mini"])
def test_preset_sizes_have_a_stated_limit(preset: str) -> None:
    a = MODELS[preset].architecture
    stack = "encoder." if preset == "t5-mini" else ""
    for key in ("n_layers", "d_ff", "n_heads", "vocab_size", "d_model"):
        began = time.process_time()
        with pytest.raises(ValueError, match=f"{key} must be at most"):
            set_value(a, f"{stack}{key}", 10**12)
        assert time.process_time() - began < 1
    with pytest.raises(ValueError, match=r"dropout must be from 0 to below 1, got 1\.5"):
        set_value(a, f"{stack}dropout", 1.5)
    if preset != "canine-mini":
        for value in (0.0, -1.0, float("nan")):
            with pytest.raises(ValueError, match=r"norm\.eps must be a number above 0"):
                set_value(a, f"{stack}norm.eps", value)


def test_own_format_config_is_bounded(tmp_path: Path) -> None:
    preset = MODELS["palm-mini"]
    small = {"vocab_size": 40, "d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 48}
    a = preset.architecture
    for key, value in small.items():
        a = set_value(a, key, value)
    preset = MODELS["palm-mini"].__class__(**{**vars(preset), "architecture": a})
    write_folder(tmp_path, preset.build().initialize(0), preset, None)
    path = tmp_path / "config.json"
    facts = json.loads(path.read_text())
    for key, value, message in (
        ("n_layers", 700, "n_layers = 700, but the weights have 2 layers"),
        ("n_layers", 10**6, "n_layers must be at most 1,024"),
        ("vocab_size", 10**12, "vocab_size must be at most"),
        ("d_ff", 10**6, "has shape"),
    ):
        facts["architecture"][key], was = value, facts["architecture"][key]
        path.write_text(json.dumps(facts))
        assert message in _refusal(tmp_path)
        facts["architecture"][key] = was


# Tables of tokens that are tied, or not.

TIED = {f: m["language"] for f, m in MAKERS.items() if "language" in m}
_USUAL = ("bert", "llama", "albert", "deberta", "t5", "bart", "xlnet")
FAMILIES = [f if f in _USUAL else pytest.param(f, marks=pytest.mark.slow) for f in TIED]
"""The cut of the default suite, and the rest."""


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_checkpoint_without_head_equals_reference_or_is_refused(
    family: str, tied: bool, tmp_path: Path
) -> None:
    with quiet():
        made = TIED[family]() if family in ("t5", "mt5") else TIED[family](tie_word_embeddings=True)
        made.save_pretrained(tmp_path)
    rewrite(tmp_path, {"tie_word_embeddings": tied})
    if tied or FIELDS[family].ties_embeddings({}):
        assert differ(ours(tmp_path, 9), theirs(made, tmp_path, 9)) < TOLERANCE
    else:
        message = _refusal(tmp_path)
        assert "config.json: tie_word_embeddings = false, but the weights have no" in message


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_checkpoint_with_other_head_equals_reference_or_is_refused(
    family: str, tied: bool, tmp_path: Path
) -> None:
    with quiet():
        made = TIED[family](tie_word_embeddings=False)
        if family in ("t5", "mt5"):
            made.lm_head.weight = torch.nn.Parameter(made.lm_head.weight.detach() + 1)
        made.save_pretrained(tmp_path)
    rewrite(tmp_path, {"tie_word_embeddings": tied})
    expected = theirs(made, tmp_path, 9)
    if family in ("xlnet", "bart", "mbart", "marian"):  # no place for it, or for three tables
        assert "differs from the one it should be tied to" in _refusal(tmp_path)
    elif family in ("albert", "electra"):  # scores are narrower than ours may be
        assert "tensor heads.language.out.weight has shape" in _refusal(tmp_path)
    else:
        assert differ(ours(tmp_path, 9), expected) < TOLERANCE


@pytest.mark.parametrize("name", ["bert-tiny", "bart-mini", "roberta-base", "llama-mini"])
def test_reference_reads_our_untied_weights(name: str, tmp_path: Path) -> None:
    import transformers as hf

    preset = MODELS[name]
    small = {"n_heads": 2, "vocab_size": 120, "d_model": 32, "n_layers": 2, "d_ff": 48}
    a = preset.architecture
    for side in ("encoder.", "decoder.") if name == "bart-mini" else ("",):
        for key, value in small.items():
            a = set_value(a, side + key, value)
        if name == "llama-mini":
            a = set_value(a, "n_kv_heads", 1)
    spec = preset.heads["language"]
    assert isinstance(spec, LanguageModeling)
    heads = {"language": LanguageModeling(**{**vars(spec), "tie_embeddings": False})}
    preset = preset.__class__(**{**vars(preset), "architecture": a, "heads": heads})
    model = preset.build().initialize(0)
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
    write_folder(tmp_path, model, preset, None)
    loaded = load_folder(tmp_path)
    assert not loaded.missing
    kind = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    with quiet():
        reads = getattr(hf, kind).from_pretrained(tmp_path).eval()
    from configured import reference_outputs

    assert differ(ours(tmp_path, 9), reference_outputs(reads, 9)) < TOLERANCE


def test_every_value_type_of_config_keys_is_tested() -> None:
    kinds = {
        k.value_type
        for f in FIELDS.values()
        for k in f.config_keys.table.values()
        if "|" not in k.value_type
    }
    assert kinds - {"anything"} == WRONG.keys()
    assert COMMON_KEYS.table["model_type"].value_type == "word"


assert reference.V == 99


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "gpt_neox", "bart", "modernbert"])
def test_duplicate_tensor_names_must_agree(
    family: str, model_folders: Path, tmp_path: Path
) -> None:
    """With a prefix and without: the file does not determine which of two that differ counts."""
    folder = shutil.copytree(model_folders / family, tmp_path / "x")
    path = folder / SAFETENSORS_WEIGHTS
    state = load_file(path)
    prefix = MODELS_OF_TYPE[family].weight_names.prefix
    name = next(n for n in state if prefix and n.startswith(prefix) and state[n].dim() == 2)
    for other, message in ((state[name].clone(), None), (state[name] + 1, "differ, and both are")):
        save_file(state | {name.removeprefix(prefix): other}, path, metadata={"format": "pt"})
        if message is None:
            load_folder(folder)
        else:
            assert message in _refusal(folder)


MODELS_OF_TYPE = {c.config_mapping.model_type: c for c in reversed(MODELS.values())}
