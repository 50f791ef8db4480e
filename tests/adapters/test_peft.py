"""Adapters in PEFT's layout: both libraries give equal outputs, whichever wrote the folder."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from reference import V, bart, bert, gpt2, saved, t5
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unmask.adapters.attach import attach, find_adapter, merge
from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA, LoRAModule
from unmask.adapters.peft_format.compatibility import peft_incompatibility, task_type
from unmask.adapters.peft_format.folder import (
    CONFIG_FILE,
    RECORD_FILE,
    WEIGHTS_FILE,
    backbone_digest,
    read_adapter,
    write_adapter,
)
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.adapters.scalar_mix import ScalarMix
from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.heads.classification.sequence_classification import (
    SequenceClassificationHead,
    TokenClassificationHead,
)
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False but the target:UserWarning"),
    # of GPT-2's places when it generates with a prompt: it counts them itself
    pytest.mark.filterwarnings("ignore:Position ids are not supported for:UserWarning"),
]

CLASSES = {
    "bert, a text": (bert, "BertForSequenceClassification", "SEQ_CLS"),
    "bert, tokens": (bert, "BertForTokenClassification", "TOKEN_CLS"),
    "gpt2, a text": (gpt2, "GPT2ForSequenceClassification", "SEQ_CLS"),
    "gpt2, tokens": (gpt2, "GPT2ForTokenClassification", "TOKEN_CLS"),
    "gpt2, language": (gpt2, "GPT2LMHeadModel", "CAUSAL_LM"),
    "t5, language": (t5, "T5ForConditionalGeneration", "SEQ_2_SEQ_LM"),
    "t5 v1.1, language": (
        partial(t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_layers=2),
        "T5ForConditionalGeneration",
        "SEQ_2_SEQ_LM",
    ),
    "bart, a text": (bart, "BartForSequenceClassification", "SEQ_CLS"),
    "bart, language": (
        partial(bart, decoder_start_token_id=0, forced_eos_token_id=None),
        "BartForConditionalGeneration",
        "SEQ_2_SEQ_LM",
    ),
}
OURS = {
    "LoRA": LoRA(rank=3, alpha=7.0, dropout=0.1),
    "LoRA of all maps": LoRA(rank=2, alpha=8.0, target_modules=("all",)),
    "LoRA of one layer": LoRA(
        rank=2, alpha=2.0, target_modules=("layers.1.attention.k", "layers.0.*.up")
    ),
    "IA3": IA3(),
    "PrefixTuning": PrefixTuning(n_virtual_tokens=5),
    "Prefix through maps": PrefixTuning(n_virtual_tokens=4, projection_size=6),
    "Prompt": PromptTuning(n_virtual_tokens=5),
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each class, as their library writes it, then as ours does."""
    made = {}
    for name, (build, kind, _) in CLASSES.items():
        loaded = load_folder(saved(build(kind), tmp_path_factory.mktemp("theirs")))
        made[name] = tmp_path_factory.mktemp("base")
        write_folder(made[name], loaded.model, loaded.preset, None, loaded.label_names)
        if "gpt2" in name:  # which token is padding, as the folder of a tokenizer would say
            config = json.loads((made[name] / "config.json").read_text())
            (made[name] / "config.json").write_text(json.dumps(config | {"pad_token_id": 0}))
    return made


@cache
def _opened(folder: Path) -> LoadedModel:
    return load_folder(folder)


def opened_at(folder: Path) -> LoadedModel:
    """Open a base once, and copy it."""
    return deepcopy(_opened(folder))


@cache
def _reference(name: str, folder: Path) -> Any:
    import transformers as hf

    return getattr(hf, CLASSES[name][1]).from_pretrained(folder).eval()


def reference(name: str, folder: Path) -> Any:
    return deepcopy(_reference(name, folder))


def with_peft(name: str, base: Path, adapter: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(reference(name, base), adapter).eval()


def ids(padded: bool) -> tuple[Tensor, Tensor]:
    made = torch.randint(1, V, (3, 9), generator=torch.Generator().manual_seed(0))
    there = torch.ones_like(made)
    if padded:
        made[1, 4:] = there[1, 4:] = 0
    return made, there


def two_stacks(name: str) -> bool:
    return name.startswith(("t5", "bart"))


END = 2
"""Of BART: the token whose state its labels read."""


def ended(text: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Return texts as BART labels them: with one end, and what its decoder reads of them."""
    text = text.masked_fill(text == END, 5).scatter(1, there.sum(1, keepdim=True) - 1, END)
    return text, torch.cat((torch.zeros(3, 1, dtype=torch.long), text[:, :-1]), 1)


def our_outputs(model: Model, name: str, padded: bool = True) -> Tensor:
    """Outputs of our model: labels of texts, or of tokens that are not padding, or next tokens."""
    text, there = ids(padded)
    document, last = torch.where(there == 1, 0, -1), there.sum(1) - 1
    if name.startswith("bert"):
        segments = (torch.arange(9) > 2).long().expand(3, -1)
        batch = Batch(inputs=text, segments=segments, visibility=Visibility(document=document))
    elif name.startswith("gpt2"):
        batch = Batch(inputs=text, last_token_positions=last, visibility=Visibility(causal=True))
    elif name == "bart, a text":
        source, inputs = ended(text, there)
        batch = Batch(
            inputs=inputs,
            last_token_positions=last,
            visibility=Visibility(causal=True),
            source=source,
            source_visibility=Visibility(document=document),
        )
    else:
        batch = Batch(
            inputs=torch.tensor([[0, 4, 5]]).expand(3, -1),
            visibility=Visibility(causal=True),
            source=text,
            source_visibility=Visibility(document=document),
        )
    with torch.no_grad():
        hidden = model.hidden_states(batch)
        head = next(iter(model.heads.values()))
        if isinstance(head, SequenceClassificationHead):
            return head.logits(hidden, batch)
        if isinstance(head, TokenClassificationHead):
            return head.logits(hidden, batch)[there == 1]
        scores = model.language_head.logits(hidden)
    return scores if two_stacks(name) else scores[there == 1]


def peft_outputs(model: Any, name: str, padded: bool = True) -> Tensor:
    """Outputs of their model for the same."""
    text, there = ids(padded)
    given = {"input_ids": text, "attention_mask": there}
    if name.startswith("bert"):
        given["token_type_ids"] = (torch.arange(9) > 2).long().expand(3, -1)
    if name == "bart, a text":
        given["input_ids"], given["decoder_input_ids"] = ended(text, there)
    elif two_stacks(name):
        given["decoder_input_ids"] = torch.tensor([[0, 4, 5]]).expand(3, -1)
    with torch.no_grad():
        scores = model(**given).logits
    if scores.dim() == 2 or two_stacks(name):
        return scores
    return scores[:, -9:][there == 1]  # theirs has columns for a prompt


def equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max() / b.abs().max()) < 1e-5


def randomize_weights(parameters: Any, seed: int = 0) -> None:
    """Give weights a size at which differences show."""
    generator = torch.Generator().manual_seed(seed)
    for weight in parameters:
        nn.init.normal_(weight, mean=0.2, std=0.4, generator=generator)


def with_ours(base: Path, spec: Any, seed: int = 0) -> LoadedModel:
    loaded = opened_at(base)
    model = loaded.model
    randomize_weights(attach(model, spec, "mine").parameters(), seed)
    if "language" not in model.heads:
        randomize_weights(model.heads.parameters(), seed + 1)
    return loaded


# Of vectors, their GPT-2 labels the last column, which with a prompt must not be padding.
def reads_padding(name: str, spec: Any) -> bool:
    return not (name == "gpt2, a text" and (spec == "Prompt" or isinstance(spec, PromptTuning)))


MANY = ("LoRA", "IA3", "PrefixTuning", "Prompt")
FEW = ("gpt2, language", "t5, language", "bart, language")
BEFORE = ("PrefixTuning", "Prompt")
"""Their `BartForSequenceClassification` reads neither."""


def both(methods: Any) -> list[tuple[str, str]]:
    """Pair all classes with the main methods, and few with the others."""
    names = {method: tuple(CLASSES) if method in MANY else FEW for method in methods}
    pairs = [(name, method) for method, some in names.items() for name in some]
    return [(n, method) for n, method in pairs if n != "bart, a text" or method not in BEFORE]


@pytest.mark.sample(4)
@pytest.mark.quick("t5, language", "LoRA")
@pytest.mark.parametrize(("name", "method"), both(OURS))
def test_peft_outputs_equal_ours_and_saved_adapter_is_read_back(
    name: str, method: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    spec = OURS[method]
    loaded = with_ours(bases[name], spec)
    plain, padded = opened_at(bases[name]).model, reads_padding(name, spec)
    assert peft_incompatibility(loaded.model, loaded.preset, "mine") is None
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base=str(bases[name]))
    ours = our_outputs(loaded.model, name, padded)
    assert not equal(ours, our_outputs(plain, name, padded))
    theirs = with_peft(name, bases[name], tmp_path)
    assert theirs.peft_config["default"].task_type == CLASSES[name][2]
    assert equal(ours, peft_outputs(theirs, name, padded))
    found = read_adapter(tmp_path, plain, loaded.preset, "back")
    assert torch.equal(our_outputs(plain, name, padded), ours)
    assert type(found) is type(spec)
    if isinstance(spec, LoRA):
        assert isinstance(found, LoRA)
        assert (found.rank, found.alpha, found.dropout) == (spec.rank, spec.alpha, spec.dropout)
        mine, back = (find_adapter(m, n) for m, n in ((loaded.model, "mine"), (plain, "back")))
        assert cast(LoRAModule, mine).layers.keys() == cast(LoRAModule, back).layers.keys()


@pytest.mark.parametrize("method", BEFORE)
def test_prompt_of_bart_classifier_is_not_written_for_peft(
    method: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "bart, a text"
    loaded, plain = with_ours(bases[name], OURS[method]), opened_at(bases[name]).model
    why = peft_incompatibility(loaded.model, loaded.preset, "mine")
    assert why == "PEFT has no prefixes and prompts for the heads label of two stacks"
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base=str(bases[name]))
    read_adapter(tmp_path, plain, loaded.preset, "back")
    assert torch.equal(our_outputs(plain, name), our_outputs(loaded.model, name))


WIDE = {
    "SEQ_CLS": ["query", "intermediate.dense", "c_attn", "c_fc", "mlp.c_proj"],
    "SEQ_2_SEQ_LM": [
        "SelfAttention.q",
        "EncDecAttention.v",
        "wi",
        "wi_1",
        "wo",
        "self_attn.q_proj",
        "encoder_attn.v_proj",
        "fc1",
    ],
}
WIDE |= {"TOKEN_CLS": WIDE["SEQ_CLS"], "CAUSAL_LM": WIDE["SEQ_CLS"]}


def theirs_of(method: str, task: str) -> Any:
    import peft

    if method == "LoRA":
        return peft.LoraConfig(task_type=task, r=4, lora_alpha=6, lora_dropout=0.1)
    if method == "LoRA, patterns":
        return peft.LoraConfig(
            task_type=task, r=4, lora_alpha=6, use_rslora=True, target_modules=WIDE[task],
            rank_pattern={r".*\.0\..*": 2}, alpha_pattern={r".*\.1\..*": 9},
        )  # fmt: skip
    if method == "IA3":
        return peft.IA3Config(task_type=task)
    if method == "PrefixTuning":
        return peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=5)
    if method == "Prefix through maps":
        return peft.PrefixTuningConfig(
            task_type=task, num_virtual_tokens=5, prefix_projection=True, encoder_hidden_size=6
        )
    return peft.PromptTuningConfig(task_type=task, num_virtual_tokens=5)


def saved_by_peft(name: str, config: Any, base: Path, folder: Path) -> Any:
    from peft import get_peft_model

    model = get_peft_model(reference(name, base), config).eval()
    randomize_weights(p for p in model.parameters() if p.requires_grad)
    model.save_pretrained(folder)
    return model


THEIRS = ("LoRA", "LoRA, patterns", "IA3", "PrefixTuning", "Prefix through maps", "Prompt")


@pytest.mark.sample(10)
@pytest.mark.parametrize(("name", "method"), both(THEIRS))
def test_our_outputs_equal_peft(
    name: str, method: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    padded = reads_padding(name, method)
    theirs = saved_by_peft(name, theirs_of(method, CLASSES[name][2]), bases[name], tmp_path)
    loaded = opened_at(bases[name])
    read_adapter(tmp_path, loaded.model, loaded.preset)
    assert equal(our_outputs(loaded.model, name, padded), peft_outputs(theirs, name, padded))


GENERATING = [
    (name, method)
    for name in FEW
    for method in ("LoRA", "PrefixTuning", "Prompt")
    if (name, method) != ("bart, language", "Prompt")  # drowned by one, all its texts are the same
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "method"), GENERATING)
def test_peft_generation_equals_ours(name: str, method: str, tmp_path: Path) -> None:
    build, kind, _ = CLASSES[name]
    plain = build(kind)
    with torch.no_grad():  # biases would drown what is read: every text would be the same
        for part, weight in plain.named_parameters():
            if weight.dim() == 1:
                weight.fill_(0.0 if part.endswith("bias") else 1.0)
    base = saved(plain, tmp_path / "base")
    loaded = load_folder(base)
    module = attach(loaded.model, OURS[method], "mine")
    generator = torch.Generator().manual_seed(1)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.15 if method == "LoRA" else 0.4, generator=generator)
    write_adapter(tmp_path / "adapter", loaded.model, loaded.preset, "mine", base=str(base))
    theirs = with_peft(name, base, tmp_path / "adapter")
    text, there = ids(padded=False)
    out = theirs.generate(
        input_ids=text, attention_mask=there, max_new_tokens=8, do_sample=False, pad_token_id=0,
        eos_token_id=None, decoder_start_token_id=0,
    )  # fmt: skip
    special = SpecialTokenIds(vocab_size=V, pad=0, start=0, end=None)
    ours = generate(loaded.model, text.tolist(), special, GenerationConfig(max_new_tokens=8))
    assert len(set(map(tuple, ours))) == len(ours)
    assert out[:, -8:].tolist() == ours


def test_fused_projections_share_a_or_have_blocks(
    bases: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "gpt2, language"
    spec = LoRA(rank=3, alpha=6.0, target_modules=("attention.q", "attention.v", "feed_forward.up"))
    loaded = with_ours(bases[name], spec)
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base")
    config, tensors = (
        json.loads((tmp_path / CONFIG_FILE).read_text()),
        load_file(tmp_path / WEIGHTS_FILE),
    )
    assert (config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == (3, 6, True)
    assert set(config["rank_pattern"].values()) == {6}
    assert set(config["alpha_pattern"].values()) == {12}
    assert config["target_modules"] == ["attn.c_attn", "mlp.c_fc"]
    up = tensors["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"]
    assert tuple(up.shape) == (96, 6)
    assert not up[32:64].any()
    assert not up[:32, 3:].any()
    assert not up[64:, :3].any()
    parts = cast(LoRAModule, find_adapter(loaded.model, "mine")).layers
    for part in "qv":
        parts[f"backbone.layers.0.attention.{part}"].down.data.fill_(0.5)
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base")
    down = load_file(tmp_path / WEIGHTS_FILE)[
        "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"
    ]
    assert tuple(down.shape) == (3, 32)


@pytest.mark.parametrize("method", ["LoRA", "PrefixTuning"])
def test_modules_trained_beside_the_adapter_are_saved_with_it(
    method: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "bert, a text"
    loaded = with_ours(bases[name], OURS[method])
    also = [n for n in loaded.model.own_weights() if n.endswith(("_norm.after.weight", ".o.bias"))]
    randomize_weights((loaded.model.get_parameter(n) for n in also), 5)
    assert peft_incompatibility(loaded.model, loaded.preset, "mine", also) is None
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base", extra_parameters=also)
    beside = json.loads((tmp_path / CONFIG_FILE).read_text())["modules_to_save"]
    assert {"classifier", "bert.pooler.dense"} <= set(beside)
    ours = our_outputs(loaded.model, name)
    assert equal(ours, peft_outputs(with_peft(name, bases[name], tmp_path), name))
    again = opened_at(bases[name])
    read_adapter(tmp_path, again.model, again.preset)
    assert torch.equal(our_outputs(again.model, name), ours)


LACKING = {
    "HoulsbyAdapter": HoulsbyAdapter(bottleneck_size=4),
    "PfeifferAdapter": PfeifferAdapter(bottleneck_size=4),
    "AdaMix": AdaMix(bottleneck_size=4),
    "Mix": ScalarMix(),
}


@pytest.mark.parametrize("method", LACKING)
def test_adapter_peft_lacks_is_written_in_own_format(
    method: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "bert, a text"
    loaded = with_ours(bases[name], LACKING[method])
    assert method in str(peft_incompatibility(loaded.model, loaded.preset, "mine"))
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base")
    assert sorted(p.name for p in tmp_path.iterdir()) == [CONFIG_FILE, WEIGHTS_FILE]
    again = opened_at(bases[name])
    assert read_adapter(tmp_path, again.model, again.preset, "again") == LACKING[method]
    ours = our_outputs(loaded.model, name)
    assert torch.equal(our_outputs(again.model, name), ours)
    assert not equal(our_outputs(opened_at(bases[name]).model, name), ours)


def test_trained_parameters_without_adapter_are_written(
    bases: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "bert, a text"
    loaded, again = opened_at(bases[name]), opened_at(bases[name])
    biases = [n for n in loaded.model.own_weights() if n.endswith(".bias")]
    randomize_weights(loaded.model.get_parameter(n) for n in biases)
    write_adapter(tmp_path, loaded.model, loaded.preset, None, base="base", extra_parameters=biases)
    assert load_file(tmp_path / WEIGHTS_FILE).keys() == {
        *biases, "heads.label.dense.weight", "heads.label.out.weight"
    }  # fmt: skip
    assert read_adapter(tmp_path, again.model, again.preset) is None
    assert torch.equal(our_outputs(again.model, name), our_outputs(loaded.model, name))


def test_combination_peft_cannot_train_is_written_in_own_format(
    bases: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "bert, a text"
    loaded = with_ours(bases[name], OURS["LoRA"])
    also = ["backbone.layers.0.attention.q.bias"]
    randomize_weights((loaded.model.get_parameter(n) for n in also), 5)
    why = str(peft_incompatibility(loaded.model, loaded.preset, "mine", also))
    assert "both adapt and train bert.encoder.layer.0.attention.self.query" in why
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base", extra_parameters=also)
    assert json.loads((tmp_path / CONFIG_FILE).read_text())["peft_type"] == "LoRA"
    again = opened_at(bases[name])
    assert read_adapter(tmp_path, again.model, again.preset) == OURS["LoRA"]
    assert torch.equal(our_outputs(again.model, name), our_outputs(loaded.model, name))
    tokens = peft_incompatibility(loaded.model, loaded.preset, "mine", ["backbone.tokens.weight"])
    assert "cannot train backbone.tokens.weight" in str(tokens)


@pytest.fixture
def written(bases: Mapping[str, Path], tmp_path: Path) -> Path:
    loaded = with_ours(bases["bert, a text"], OURS["LoRA"])
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base")
    return tmp_path


def test_other_backbone_of_same_shape_is_refused(bases: Mapping[str, Path], written: Path) -> None:
    other = opened_at(bases["bert, a text"])
    with torch.no_grad():
        other.model.backbone.embedding_table.weight[3, 4] += 1e-3
    before = {n: w.clone() for n, w in other.model.named_parameters()}
    with pytest.raises(ValueError, match=r"trained on another backbone \(sha256 "):
        read_adapter(written, other.model, other.preset)
    assert not other.model.adapters
    assert all(torch.equal(w, before[n]) for n, w in other.model.named_parameters())


@pytest.mark.parametrize("method", ["LoRA", "IA3", "PrefixTuning", "Prompt", "HoulsbyAdapter"])
def test_backbone_of_other_shape_is_refused_naming_a_tensor(
    method: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    loaded = with_ours(bases["bert, a text"], (OURS | LACKING)[method])
    write_adapter(tmp_path / "adapter", loaded.model, loaded.preset, "mine", base="base")
    wide = bert("BertForSequenceClassification", hidden_size=48)
    other = load_folder(saved(wide, tmp_path / "wide"))
    if method == "HoulsbyAdapter":  # its own tensors are compared after the backbone
        (tmp_path / "adapter" / CONFIG_FILE).write_text(
            (tmp_path / "adapter" / CONFIG_FILE)
            .read_text()
            .replace(backbone_digest(loaded.model), backbone_digest(other.model))
        )
    with pytest.raises(ValueError, match=r"adapter: tensor \S+ has shape \[.*\], this model's has"):
        read_adapter(tmp_path / "adapter", other.model, other.preset)
    assert not other.model.adapters


def test_adapter_of_other_family_or_head_is_refused_naming_a_tensor(
    bases: Mapping[str, Path], written: Path
) -> None:
    for name in ("gpt2, a text", "t5, language"):
        other = opened_at(bases[name])
        with pytest.raises(ValueError, match=r"tensor bert\.encoder\.layer.* does not belong"):
            read_adapter(written, other.model, other.preset)
    without = load_folder(bases["bert, a text"], head_specs={})
    with pytest.raises(ValueError, match=r"tensor \S+ does not belong to this model"):
        read_adapter(written, without.model, without.preset)


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps(config | keys))


def test_unknown_damaged_and_pickled_adapters_are_refused(
    bases: Mapping[str, Path], written: Path
) -> None:
    loaded = opened_at(bases["bert, a text"])
    change(written, use_dora=True)
    with pytest.raises(ValueError, match="use_dora = True is not supported, only False"):
        read_adapter(written, loaded.model, loaded.preset)
    change(written, use_dora=False, peft_type="LOHA")
    with pytest.raises(ValueError, match="peft_type 'LOHA' is not one of LORA, IA3, PREFIX_TUNING"):
        read_adapter(written, loaded.model, loaded.preset)
    change(written, peft_type="LORA")
    tensors = load_file(written / WEIGHTS_FILE)
    one = next(n for n in tensors if "lora_A" in n)
    save_file({n: x for n, x in tensors.items() if n != one}, written / WEIGHTS_FILE)
    with pytest.raises(ValueError, match=r"tensor \S+lora_A.weight is missing"):
        read_adapter(written, loaded.model, loaded.preset)
    save_file({**tensors, "base_model.model.more": torch.zeros(1)}, written / WEIGHTS_FILE)
    with pytest.raises(ValueError, match="tensor more does not belong"):
        read_adapter(written, loaded.model, loaded.preset)
    (written / WEIGHTS_FILE).rename(written / "adapter_model.bin")
    with pytest.raises(ValueError, match=r"adapter_model\.bin: a pickled adapter is not read"):
        read_adapter(written, loaded.model, loaded.preset)
    (written / "adapter_model.bin").rename(written / WEIGHTS_FILE)
    (written / RECORD_FILE).write_text("{}")
    with pytest.raises(ValueError, match="record must be a table"):
        read_adapter(written, loaded.model, loaded.preset)
    (written / CONFIG_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=CONFIG_FILE):
        read_adapter(written, loaded.model, loaded.preset)
    assert not loaded.model.adapters


@pytest.mark.parametrize("method", ["LoRA", "Prompt", "HoulsbyAdapter"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: torch.full_like(x, torch.nan), "has values that are not finite"),
        (lambda x: x.index_fill(0, torch.tensor([1]), torch.inf), "has values that are not finite"),
        (lambda x: x.double() * 1e300, "has values that are not finite"),
        (lambda x: x.long(), "must have floating-point values, got"),
    ],
)
def test_non_weight_tensors_are_refused_by_name(
    method: str, spoil: Any, message: str, bases: Mapping[str, Path], tmp_path: Path
) -> None:
    loaded = with_ours(bases["bert, a text"], (OURS | LACKING)[method])
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base")
    tensors = load_file(tmp_path / WEIGHTS_FILE)
    for name in (min(tensors), max(tensors)):  # of the adapter, and of the head beside it
        save_file({**tensors, name: spoil(tensors[name])}, tmp_path / WEIGHTS_FILE)
        again = opened_at(bases["bert, a text"])
        with pytest.raises(ValueError, match=rf"{WEIGHTS_FILE}: tensor {name} {message}"):
            read_adapter(tmp_path, again.model, again.preset)
        assert not again.model.adapters


@pytest.mark.sample(7)
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    ("method", "keys", "message"),
    [
        ("LoRA", {"r": 10**9}, r"lora_A\.weight has rank 3, but r is 1000000000"),
        ("LoRA", {"r": -1}, r"adapter_config\.json: r must be at least 1, got -1"),
        ("LoRA", {"r": "3"}, r"adapter_config\.json: r must be int, got '3'"),
        ("LoRA", {"rank_pattern": {"query": 4}}, r"query\.lora_A\.weight has rank 3, but r is 4"),
        ("LoRA", {"rank_pattern": {"(": 4}}, r"'\(' is not a pattern of names"),
        ("LoRA", {"lora_alpha": float("nan")}, r"lora_alpha must be a finite number, got nan"),
        ("LoRA", {"alpha_pattern": {"query": 1e999}}, r"query must be a finite number, got inf"),
        ("LoRA", {"lora_alpha": [1]}, r"adapter_config\.json: lora_alpha must be float, got \[1\]"),
        ("LoRA", {"lora_dropout": 5}, r"dropout must be at least 0 and below 1, got 5"),
        ("LoRA", {"target_modules": ["nope"]}, r"query has tensors, but target_modules names only"),
        (
            "IA3",
            {"target_modules": ["output.dense"]},
            r"has tensors, but target_modules names only",
        ),
        ("IA3", {"target_modules": 7}, r"adapter_config\.json: target_modules must be "),
        (
            "PrefixTuning",
            {"num_virtual_tokens": 6},
            r"prompt_embeddings has shape \[5, .*has \[6, ",
        ),
        ("Prompt", {"num_virtual_tokens": "5"}, r"num_virtual_tokens must be int, got '5'"),
    ],
)
def test_config_contradicting_tensors_is_refused_by_key(
    method: str,
    keys: dict[str, Any],
    message: str,
    recorded: bool,
    bases: Mapping[str, Path],
    tmp_path: Path,
) -> None:
    loaded = with_ours(bases["bert, a text"], OURS[method])
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base="base")
    if not recorded:
        (tmp_path / RECORD_FILE).unlink()
    again = opened_at(bases["bert, a text"])
    change(tmp_path, **keys)
    with pytest.raises(ValueError, match=message):
        read_adapter(tmp_path, again.model, again.preset)
    assert not again.model.adapters


def test_unwritable_adapters_are_refused(bases: Mapping[str, Path], tmp_path: Path) -> None:
    loaded = with_ours(bases["gpt2, language"], OURS["LoRA"])
    write = partial(write_adapter, tmp_path, loaded.model, loaded.preset, base="base")
    with pytest.raises(ValueError, match="no adapter 'other'"):
        write("other")
    with pytest.raises(ValueError, match="no parameter 'nothing'"):
        write("mine", extra_parameters=["nothing"])
    with pytest.raises(ValueError, match="nothing to write"):
        write(None)
    merge(loaded.model, "mine")
    with pytest.raises(ValueError, match="merged into the weights"):
        write("mine")


def test_adapter_further_trained_by_peft_is_not_split(
    bases: Mapping[str, Path], tmp_path: Path
) -> None:
    """Our record of the folder may be older than its tensors."""
    name = "gpt2, language"
    loaded = with_ours(bases[name], OURS["LoRA"])
    write_adapter(tmp_path, loaded.model, loaded.preset, "mine", base=str(bases[name]))
    theirs = with_peft(name, bases[name], tmp_path)
    randomize_weights((p for n, p in theirs.named_parameters() if "lora_" in n), 9)
    theirs.save_pretrained(tmp_path)
    again = opened_at(bases[name])
    found = read_adapter(tmp_path, again.model, again.preset)
    assert isinstance(found, LoRA)
    assert found.rank == 6
    assert equal(our_outputs(again.model, name), peft_outputs(theirs, name))


def test_backbone_digest_covers_backbone_only(bases: Mapping[str, Path]) -> None:
    loaded, other = opened_at(bases["bert, a text"]), opened_at(bases["bert, tokens"])
    before = backbone_digest(loaded.model)
    assert before == backbone_digest(other.model)
    attach(loaded.model, OURS["LoRA"])
    randomize_weights(loaded.model.heads.parameters())
    assert backbone_digest(loaded.model) == before
    name = "backbone.layers.0.attention.q.bias"
    with torch.no_grad():
        loaded.model.get_parameter(name)[0] += 1e-3
    assert backbone_digest(loaded.model) != before
    assert backbone_digest(loaded.model, [name]) == backbone_digest(other.model, [name])


def test_task_types_have_peft_names(bases: Mapping[str, Path]) -> None:
    loaded = opened_at(bases["bert, a text"])
    assert task_type(loaded.model) == "SEQ_CLS"
    assert (
        task_type(load_folder(bases["bert, a text"], head_specs={}).model) == "FEATURE_EXTRACTION"
    )
    masked = replace(loaded.preset).build({"language": loaded.preset.heads["label"]})
    assert task_type(masked) is None
