"""COCO-LM against its formulas, and folders laid out as Microsoft published them.

transformers has no class for it. `Released` is the network of the released code written out once
more, each tensor by the name that it has there.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from unmask.adapters.attach import attach
from unmask.adapters.lora import LoRA
from unmask.adapters.peft_format.compatibility import peft_incompatibility
from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.generator import add_generator, write_generator
from unmask.checkpoints.huggingface.differences import opening_note
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.inference.export import model_card
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.relative_bias import (
    LearnedPositionsAndRelativeBias,
    RelativePositionBias,
)
from unmask.zoo.catalogue import MODELS, preset_for_config
from unmask.zoo.encoders import coco_lm

V, D, H, N = 60, 16, 4, 3
CONFIG: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": D, "initializer_range": 0.02, "intermediate_size": 32,
    "max_position_embeddings": 40, "num_attention_heads": H, "num_hidden_layers": N,
    "type_vocab_size": 0, "vocab_size": V, "rel_pos_bins": 16, "max_rel_pos": 24,
    "layer_norm_type": "post", "layer_norm_eps": 1e-5, "cls_dropout_prob": 0.1,
}  # fmt: skip
"""Of a small model, with exactly the keys of the published config.json, which names no family."""
PUBLISHED = {
    "coco-lm-base": CONFIG | {
        "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 64000,
        "rel_pos_bins": 64, "max_rel_pos": 128,
    },
    "coco-lm-large": CONFIG | {
        "hidden_size": 1024, "intermediate_size": 4096, "max_position_embeddings": 512,
        "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 64000,
        "rel_pos_bins": 128, "max_rel_pos": 256,
    },
}  # fmt: skip
"""The config.json of microsoft/cocolm-base and microsoft/cocolm-large, as a whole."""


def released(config: dict[str, Any] = CONFIG, *, labels: int = 0) -> dict[str, Tensor]:
    """Draw weights, by the names of huggingface/cocolm/modeling_cocolm.py."""
    v, d, f = config["vocab_size"], config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "cocolm.embeddings.word_embeddings.weight": (v, d),
        "cocolm.embeddings.position_embeddings.weight": (config["max_position_embeddings"], d),
    }
    if config["type_vocab_size"]:
        shapes["cocolm.embeddings.token_type_embeddings.weight"] = (config["type_vocab_size"], d)
    if config["rel_pos_bins"]:
        shapes["cocolm.relative_attention_bias.weight"] = (
            config["rel_pos_bins"],
            config["num_attention_heads"],
        )

    def linear(name: str, wide: int, narrow: int) -> None:
        shapes.update({f"{name}.weight": (wide, narrow), f"{name}.bias": (wide,)})

    def norm(name: str) -> None:
        shapes.update({f"{name}.weight": (d,), f"{name}.bias": (d,)})

    norm("cocolm.embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"cocolm.encoder.layer.{i}"
        linear(f"{layer}.attention.self_attn.in_proj", 3 * d, d)
        linear(f"{layer}.attention.self_attn.out_proj", d, d)
        norm(f"{layer}.attention.LayerNorm")
        linear(f"{layer}.intermediate.dense", f, d)
        linear(f"{layer}.output.dense", d, f)
        norm(f"{layer}.output.LayerNorm")
    if labels:
        linear("classifier.dense", d, d)
        linear("classifier.out_proj", labels, d)
    rng = torch.Generator().manual_seed(0)
    return {name: 0.5 * torch.randn(shape, generator=rng) for name, shape in shapes.items()}


class Released:
    """The network, in float64."""

    def __init__(self, weights: dict[str, Tensor], config: dict[str, Any]) -> None:
        self.w = {name: x.double() for name, x in weights.items()}
        self.c = config

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + self.c["layer_norm_eps"]).sqrt()
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def bias(self, t: int) -> Tensor | float:
        """The biases of the scores [h t t], with a loop over pairs of places."""
        if not self.c["rel_pos_bins"]:
            return 0.0
        half = self.c["rel_pos_bins"] // 2
        exact, reach = half // 2, self.c["max_rel_pos"]

        def bucket(away: int) -> int:
            n = abs(away)
            if n >= exact:
                share = math.log(n / exact) / math.log((reach - 1) / exact)
                n = min(exact + math.ceil(share * (half - 1 - exact) - 1e-9), half - 1)
            return n if away > 0 else -n

        least = bucket(1 - self.c["max_position_embeddings"])
        rows = [[bucket(j - i) - least for j in range(t)] for i in range(t)]
        return self.w["cocolm.relative_attention_bias.weight"][torch.tensor(rows)].permute(2, 0, 1)

    def hidden(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """The last hidden states [t d] of one text [t]."""
        t, heads = len(ids), self.c["num_attention_heads"]
        x = self.w["cocolm.embeddings.word_embeddings.weight"][ids]
        x = x + self.w["cocolm.embeddings.position_embeddings.weight"][:t]
        if segments is not None:
            x = x + self.w["cocolm.embeddings.token_type_embeddings.weight"][segments]
        x, bias = self.norm(x, "cocolm.embeddings.LayerNorm"), self.bias(t)
        for i in range(self.c["num_hidden_layers"]):
            layer = f"cocolm.encoder.layer.{i}"
            parts = self.linear(x, f"{layer}.attention.self_attn.in_proj").chunk(3, -1)
            q, k, v = (y.unflatten(-1, (heads, -1)).transpose(0, 1) for y in parts)
            probabilities = (q @ k.mT / math.sqrt(q.shape[-1]) + bias).softmax(-1)
            y = self.linear((probabilities @ v).transpose(0, 1).flatten(1),
                            f"{layer}.attention.self_attn.out_proj")  # fmt: skip
            x = self.norm(x + y, f"{layer}.attention.LayerNorm")
            y = F.gelu(self.linear(x, f"{layer}.intermediate.dense"))
            x = self.norm(x + self.linear(y, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        return x

    def labels(self, ids: Tensor) -> Tensor:
        """The scores of a text's labels."""
        first = F.gelu(self.linear(self.hidden(ids)[0], "classifier.dense"))
        return self.linear(first, "classifier.out_proj")


def folder(path: Path, weights: dict[str, Tensor], config: dict[str, Any]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    save_file(weights, path / "model.safetensors")
    return path


def close(ours: Tensor, theirs: Tensor) -> None:
    scale = max(1.0, theirs.abs().max().item())
    assert (ours.double() - theirs).abs().max().item() < 1e-5 * scale


def texts(*lengths: int) -> list[Tensor]:
    rng = torch.Generator().manual_seed(1)
    return [torch.randint(5, V, (n,), generator=rng) for n in lengths]


SHAPES = {
    "as published": CONFIG,
    "no biases": CONFIG | {"rel_pos_bins": 0, "max_rel_pos": 0},
    "biases that reach farther than the text, two segments, relu": CONFIG
    | {"rel_pos_bins": 32, "max_rel_pos": 128, "type_vocab_size": 2, "hidden_act": "relu"},
}


@pytest.mark.parametrize("shape", [s for s in SHAPES if "relu" not in s])
@torch.no_grad()
def test_padded_and_packed_hidden_states_equal_reference(shape, tmp_path) -> None:
    config = SHAPES[shape]
    reference = Released(released(config), config)
    ours = load_folder(folder(tmp_path / "f", released(config), config), {}).model
    some = texts(37, 12, 1)
    expected = [reference.hidden(x) for x in some]
    padded = torch.nn.utils.rnn.pad_sequence(some, batch_first=True, padding_value=1)
    there = torch.arange(37)[None] < torch.tensor([37, 12, 1])[:, None]
    batch = Batch(inputs=padded, visibility=Visibility(document=there.long() - 1))
    for hidden, x, wanted in zip(ours.hidden_states(batch), some, expected, strict=True):
        close(hidden[: len(x)], wanted)
    packed = Batch(  # a row longer than there are places
        inputs=torch.cat(some)[None],
        visibility=Visibility(
            document=torch.cat([torch.full((len(x),), i) for i, x in enumerate(some)])[None]
        ),
        position_ids=torch.cat([torch.arange(len(x)) for x in some])[None],
    )
    close(ours.hidden_states(packed)[0], torch.cat(expected))


@torch.no_grad()
def test_segment_embeddings_are_added_if_present(tmp_path: Path) -> None:
    config = CONFIG | {"type_vocab_size": 2}
    ours = load_folder(folder(tmp_path / "f", released(config), config), {}).model
    (x,), segments = texts(9), torch.tensor([0] * 5 + [1] * 4)
    hidden = ours.hidden_states(Batch(inputs=x[None], segments=segments[None]))[0]
    close(hidden, Released(released(config), config).hidden(x, segments))


@torch.no_grad()
def test_classification_logits_equal_reference(tmp_path: Path) -> None:
    weights = released(labels=3)
    config = CONFIG | {
        "architectures": ["COCOLMForSequenceClassification"], "model_type": "cocolm",
        "id2label": {"0": "a", "1": "b", "2": "c"},
    }  # fmt: skip
    loaded = load_folder(folder(tmp_path / "f", weights, config))
    assert (loaded.missing, loaded.unexpected, loaded.label_names) == ((), (), ("a", "b", "c"))
    for x in texts(20, 3):
        logits = loaded.model(Batch(inputs=x[None]), return_logits=True).logits["label"][0]
        close(logits, Released(weights, config).labels(x))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_config_equals_the_preset(name: str) -> None:
    preset, theirs = MODELS[name], PUBLISHED[name]
    assert preset_for_config(theirs).family == preset.family
    assert preset.config_mapping.to_architecture(theirs) == preset.architecture
    assert preset.config_mapping.from_architecture(preset.architecture) == theirs
    with torch.device("meta"):
        backbone = preset.build({}).trained_weights()
        there = released(theirs)
    assert sum(x.numel() for x in backbone.values()) == sum(x.numel() for x in there.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_round_trip_bitwise(shape: str, tmp_path: Path) -> None:
    config = SHAPES[shape]
    loaded = load_folder(folder(tmp_path / "f", released(config), config), {})
    assert (loaded.missing, loaded.unexpected) == ((), ())
    write_folder(tmp_path / "back", loaded.model, loaded.preset, None)
    back = load_file(tmp_path / "back" / "model.safetensors")
    names = {
        n.removeprefix("cocolm."): x for n, x in released(config).items()
    }  # no head, no prefix
    assert back.keys() == names.keys()
    assert all(torch.equal(back[n], x) for n, x in names.items())
    theirs = json.loads((tmp_path / "back" / "config.json").read_text())
    assert theirs.items() >= config.items()
    assert theirs["model_type"] == "cocolm"


def test_half_precision_pickle_opens_with_its_known_heads(
    tmp_path: Path,
) -> None:
    """microsoft/cocolm-base is such a file; by its size it contains the heads, too."""
    weights = released()
    tokens = weights["cocolm.embeddings.word_embeddings.weight"]
    rng = torch.Generator().manual_seed(2)
    bias = torch.randn(V, generator=rng)
    weights |= {
        "clm_head.decoder.weight": tokens, "clm_head.decoder.bias": bias, "clm_head.bias": bias,
        "cocolm.scl_head.dense.weight": torch.randn(D, D, generator=rng),
        "cocolm.scl_head.dense.bias": torch.randn(D, generator=rng),
        "cocolm.scl_head.LayerNorm.weight": torch.randn(D, generator=rng),
        "cocolm.scl_head.LayerNorm.bias": torch.randn(D, generator=rng),
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    torch.save({n: x.half() for n, x in weights.items()}, tmp_path / "pytorch_model.bin")
    loaded = load_folder(tmp_path)
    assert list(loaded.model.head_specs) == ["corrected", "crop"]
    assert loaded.unexpected == ()
    assert set(loaded.missing) == {"heads.corrected.copy.weight", "heads.corrected.copy.bias"}
    ours = loaded.model.own_weights()
    for name, theirs in {
        "backbone.tokens.weight": tokens,
        "heads.corrected.language.bias": bias,
        "heads.crop.dense.weight": weights["cocolm.scl_head.dense.weight"],
        "heads.crop.norm.bias": weights["cocolm.scl_head.LayerNorm.bias"],
    }.items():
        assert torch.equal(ours[name], theirs.half().float())
    scores = load_folder(tmp_path, {"language": LanguageModeling(term="masked", bias=True)})
    assert scores.missing == ()
    assert torch.equal(scores.model.own_weights()["heads.language.bias"], bias.half().float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_norm_type": "pre"}, "layer_norm_type = 'pre' is not supported, only 'post'"),
        ({"rel_pos_bins": 15}, "buckets must be even"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is not one of"),
        ({"model_type": "amos"}, "model_type 'amos' is not one of"),
    ],
)
def test_configs_of_other_formulas_are_refused(change, message, tmp_path: Path) -> None:
    path = folder(tmp_path / "f", released(), CONFIG | change)
    with pytest.raises(ValueError, match=message):
        load_folder(path)


def test_config_without_model_type_needs_the_keys_of_a_family() -> None:
    for bare in ({}, {"rel_pos_bins": 32}, {"hidden_size": 16}):
        with pytest.raises(ValueError, match="model_type 'None' is not one of"):
            preset_for_config(bare)


def test_positions_the_format_cannot_express_are_refused() -> None:
    for position in (RelativePositionBias(), LearnedPositions(40, offset=2)):
        with pytest.raises(ValueError, match="COCO-LM's format has learned positions"):
            coco_lm.CONFIG_MAPPING.from_architecture(replace(coco_lm.BASE, position=position))


def mini(drop: float = 0.0) -> Model:
    preset = MODELS["coco-lm-mini"]
    a = replace(
        preset.architecture, vocab_size=V, d_model=D, n_heads=H, d_ff=32, n_layers=3,
        position=LearnedPositionsAndRelativeBias(40, 16, 24), dropout=drop,
        attention_dropout=drop,
    )  # fmt: skip
    model = replace(preset, architecture=a).build().initialize(3).train()
    rng = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.4 * torch.randn(weight.shape, generator=rng))
    return model


def two_texts() -> Batch:
    """Two texts in a row each, some tokens masked, and a crop of each."""
    whole, rng = texts(14, 10), torch.Generator().manual_seed(6)
    rows: list[dict[str, Tensor]] = []
    for x in whole:
        n = math.ceil(0.9 * len(x))
        hidden = torch.rand(len(x), generator=rng) < 0.4
        hidden[2] = True
        crop = x[1 : 1 + n] if len(x) > n else x
        rows.append(
            {
                "inputs": torch.cat((torch.where(hidden, 4, x), crop)),
                "targets": torch.cat(
                    (torch.where(hidden, x, IGNORE_INDEX), torch.full((n,), IGNORE_INDEX))
                ),
                "part_ids": torch.cat((torch.zeros(len(x)), torch.ones(n))).long(),
                "position_ids": torch.cat((torch.arange(len(x)), torch.arange(n))),
            }
        )
    padding = {"inputs": 1, "targets": IGNORE_INDEX, "part_ids": -1, "position_ids": 0}
    made = {
        name: torch.nn.utils.rnn.pad_sequence(
            [row[name] for row in rows], batch_first=True, padding_value=padding[name]
        )
        for name in padding
    }
    is_target = (made["targets"].flatten() != IGNORE_INDEX).nonzero()[:, 0]
    return Batch(
        **made, target_positions=is_target, visibility=Visibility(document=made["part_ids"])
    )


def of_config(model: Model) -> dict[str, Any]:
    return coco_lm.CONFIG_MAPPING.from_architecture(model.architecture)


def generator_of(model: Model) -> dict[str, Tensor]:
    """The generator's network by the names of the released code; its biases are its own."""
    network = {
        f"backbone.{name.removeprefix('heads.generator.network.')}": x.detach()
        for name, x in model.named_parameters(remove_duplicate=False)
        if name.startswith("heads.generator.network.")
    }
    return coco_lm.WEIGHT_NAMES.to_external(network)


@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_losses_equal_the_paper(drop: float) -> None:
    """Equations 3 to 7, each network read by the reference."""
    model, batch = mini(drop), two_texts()
    if drop:  # of the generator alone, whose guesses are made without it all the same
        for module in model.backbone.modules():
            if hasattr(module, "rate"):
                module.rate = 0.0
    torch.manual_seed(9)
    read, _ = model.heads["generator"].corrupt(batch)
    torch.manual_seed(9)
    outputs = model(batch)

    config, own = of_config(model), model.own_weights()
    main = Released(coco_lm.WEIGHT_NAMES.to_external(
        {n: x for n, x in own.items() if n.startswith("backbone.")}), config)  # fmt: skip
    small = Released(generator_of(model), config | {"num_hidden_layers": 2})
    w = {n: x.double() for n, x in own.items()}
    tokens = w["backbone.tokens.weight"]
    masked = copied = corrected = 0.0
    n_hidden = n_read = 0
    summaries: list[Tensor] = []
    assert batch.targets is not None
    assert batch.part_ids is not None
    for row in range(2):
        first, second = batch.part_ids[row] == 0, batch.part_ids[row] == 1
        targets = batch.targets[row][first]
        where = targets != IGNORE_INDEX
        text = torch.where(where, targets, batch.inputs[row][first])
        corrupted = read.inputs[row][first]
        assert torch.equal(corrupted[~where], text[~where])
        h = small.hidden(batch.inputs[row][first])
        head = "heads.generator.language"
        y = F.gelu(h @ w[f"{head}.dense.weight"].T + w[f"{head}.dense.bias"])
        y = F.layer_norm(y, (D,), w[f"{head}.norm.weight"], w[f"{head}.norm.bias"], 1e-5)
        scores = y @ tokens.T + w[f"{head}.bias"]
        masked -= scores.log_softmax(-1)[where, text[where]].sum().item()

        h = main.hidden(corrupted)
        c = (h @ w["heads.corrected.copy.weight"][0] + w["heads.corrected.copy.bias"]).sigmoid()
        there = corrupted == text
        copied -= torch.where(there, c, 1 - c).log().sum().item()
        p = (h @ tokens.T + w["heads.corrected.language.bias"]).softmax(-1)
        x = p[torch.arange(len(text)), text]
        corrected -= (c * there + (1 - c) * x).log()[where].sum().item()
        n_hidden, n_read = n_hidden + int(where.sum()), n_read + len(text)
        for summary in (h[0], main.hidden(batch.inputs[row][second])[0]):
            y = F.gelu(summary @ w["heads.crop.dense.weight"].T + w["heads.crop.dense.bias"])
            weight, bias = w["heads.crop.norm.weight"], w["heads.crop.norm.bias"]
            summaries.append(F.normalize(F.layer_norm(y, (D,), weight, bias, 1e-5), dim=0))
    crop = 0.0
    for i in range(4):  # temperature 1; the other of a pair stands beside it
        others = torch.stack([summaries[i] @ summaries[j] for j in range(4) if j != i])
        crop += (others.logsumexp(0) - summaries[i] @ summaries[i ^ 1]).item() / 2

    expected = {
        "copied": (copied, n_read), "corrected": (corrected, n_hidden), "crop": (crop, 2),
    }  # fmt: skip
    if not drop:
        expected["masked"] = (masked, n_hidden)
    for name, (total, count) in expected.items():
        assert outputs.terms[name].total.item() == pytest.approx(total, rel=1e-5), name
        assert outputs.terms[name].count == count
    assert model.count_targets(batch) == {name: term.count for name, term in outputs.terms.items()}
    whole = {name: term.loss.item() for name, term in outputs.terms.items()}
    sum_ = whole["masked"] + 50 * whole["copied"] + whole["corrected"] + whole["crop"]
    assert outputs.loss.item() == pytest.approx(sum_, rel=1e-5)


def test_generator_samples_without_dropout() -> None:
    model, batch = mini(0.5), two_texts()
    head = model.heads["generator"]
    seen: list[Tensor] = []
    head._sample_tokens = lambda hidden: (
        seen.append(hidden) or batch.targets.flatten()[batch.target_positions]
    )
    for seed in (1, 2):
        torch.manual_seed(seed)
        head.corrupt(batch)
    assert torch.equal(*seen)
    assert head.network.training
    losses = {head.corrupt(batch)[1].terms["masked"].total.item() for _ in range(3)}
    assert len(losses) == 3
    model.eval()
    head.corrupt(batch)
    assert torch.allclose(seen[-1], seen[0], atol=1e-6)
    once = replace(head.spec, sample_with_dropout=True)
    other = once.build(model.architecture, model.backbone.embedding_table)
    assert head.flops(40, 0.0) == pytest.approx(4 / 3 * other.flops(40, 0.0))


def test_networks_share_embeddings_and_norm_but_no_biases() -> None:
    model = mini()
    ours, theirs = model.backbone, model.heads["generator"].network
    assert theirs.tokens is ours.tokens
    assert theirs.embed_norm is ours.embed_norm
    assert theirs.position.absolute.table is ours.position.absolute.table
    assert theirs.position.table is not ours.position.table
    assert len(theirs.layers) == 2


def test_trained_model_round_trips_with_heads_and_generator(tmp_path: Path) -> None:
    model = mini().eval()
    preset = replace(MODELS["coco-lm-mini"], architecture=model.architecture)
    loaded = LoadedModel(
        preset=preset, model=model, tokenizer=None, label_names=(), missing=(), unexpected=()
    )
    write_folder(tmp_path, model, preset, None)
    write_generator(tmp_path, loaded)
    again = load_folder(tmp_path)
    assert (again.missing, again.unexpected) == ((), ())
    assert again.preset.architecture == model.architecture
    assert again.model.head_specs == {n: s for n, s in model.head_specs.items() if n != "generator"}
    assert again.model.own_weights().keys() == model.trained_weights().keys()
    assert again.model.parameter_count() == model.parameter_count()
    add_generator(tmp_path, again.model)
    ours, theirs = again.model.own_weights(), model.own_weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(x, theirs[n]) for n, x in ours.items())
    batch = two_texts()
    torch.manual_seed(1)
    outputs = model(batch)
    torch.manual_seed(1)
    assert torch.equal(again.model(batch).loss, outputs.loss)
    page = model_card(again, {})
    assert "library_name: unmask" in page
    assert "transformers has no class for this network: `unmask.load` loads it" in page
    assert "from transformers" not in page


def test_model_card_claims_no_other_library() -> None:
    preset = MODELS["coco-lm-mini"]
    labelled = {"label": SequenceClassification(activation="gelu", n_labels=2)}
    note = opening_note(preset, labelled)
    assert note == "transformers has no class for this network: `unmask.load` loads it"
    model = mini()
    attach(model, LoRA(rank=2))
    assert (
        peft_incompatibility(model, preset, "default") == "transformers has no class of this family"
    )
