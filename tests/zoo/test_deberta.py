"""DeBERTa's weights as released and as transformers lays them out; its heads and configurations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from reference import deberta, deberta_v2, saved
from safetensors.torch import load_file, save_file

from unmask.adapters.attach import attach
from unmask.adapters.lora import LoRA
from unmask.adapters.peft_format.compatibility import peft_incompatibility
from unmask.adapters.peft_format.folder import read_adapter, write_adapter
from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.model.exchange.weight_names import WeightNames
from unmask.zoo.catalogue import MODELS

BOTH = pytest.mark.parametrize("make", [deberta, deberta_v2])
TEXTS = torch.from_numpy(np.random.default_rng(1).integers(5, 99, (2, 9)))
DOCUMENT = torch.tensor([[0] * 9, [0] * 4 + [-1] * 5])
READ = {"input_ids": TEXTS, "attention_mask": (DOCUMENT >= 0).long()}
BATCH = Batch(
    inputs=TEXTS,
    visibility=Visibility(document=DOCUMENT),
    last_token_positions=torch.tensor([8, 3]),
)
CARDS = [name for name, card in MODELS.items() if card.family in ("deberta", "deberta-v2")]


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("name", CARDS)
def test_preset_has_parameter_count_of_transformers_and_decoder_positions(
    name: str,
) -> None:
    import transformers as hf

    preset = MODELS[name]
    config, kind = (
        (hf.DebertaConfig, hf.DebertaForMaskedLM)
        if preset.family == "deberta"
        else (hf.DebertaV2Config, hf.DebertaV2ForMaskedLM)
    )
    d = preset.architecture.d_model
    beside = 512 * d  # places that the mask decoder adds
    if "replaced" in preset.heads:
        kind, beside = hf.DebertaV2Model, d * d + d + d + 1
    with torch.device("meta"):
        theirs = kind(config(**preset.config_mapping.from_architecture(preset.architecture)))
    assert preset.n_parameters == theirs.num_parameters() + beside


@BOTH
@torch.no_grad()
def test_tagging_and_span_logits_equal_reference(make, tmp_path: Path) -> None:
    reference = make("ForTokenClassification", num_labels=3)
    ours = load_folder(saved(reference, tmp_path / "tags")).model
    logits = ours(BATCH, return_logits=True).logits["token_label"]
    close(logits[DOCUMENT >= 0], reference(**READ).logits[DOCUMENT >= 0])
    reference = make("ForQuestionAnswering")
    ours = load_folder(saved(reference, tmp_path / "answers")).model
    logits, out = ours(BATCH, return_logits=True).logits["span"], reference(**READ)
    close(logits[0], torch.stack((out.start_logits, out.end_logits), -1)[0])


@torch.no_grad()
def test_choice_scores_equal_reference(tmp_path: Path) -> None:
    reference = deberta_v2("ForMultipleChoice")
    ours = load_folder(saved(reference, tmp_path)).model
    out = reference(**{name: x[None] for name, x in READ.items()}).logits
    close(ours(BATCH, return_logits=True).logits["choice"][:, 0], out[0])


@BOTH
@torch.no_grad()
def test_released_weights_round_trip_with_their_decoder(make, tmp_path: Path) -> None:
    """Released folders have no key `legacy`, and transformers leaves the positions out."""
    reference = make(legacy=False)
    state = load_file(saved(reference, tmp_path / "theirs") / "model.safetensors")
    positions = torch.randn(42, 32)
    state["deberta.embeddings.position_embeddings.weight"] = positions
    save_file(state, tmp_path / "theirs" / "model.safetensors")
    opened = load_folder(tmp_path / "theirs")
    assert (opened.missing, opened.unexpected) == ((), ())
    assert torch.equal(opened.model.query_stream.table.weight, positions)
    # before the decoder, all is as in transformers, whose head reads the last layer
    states = reference(**READ, output_hidden_states=True).hidden_states
    close(opened.model.backbone(BATCH)[0], states[-1][0])
    out = reference(**READ).logits
    close(opened.model.language_head.logits(states[-1])[0], out[0])
    write_folder(tmp_path / "back", opened.model, opened.preset, None)
    again = load_file(tmp_path / "back" / "model.safetensors")
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], x) for name, x in state.items())
    loaded, output = type(reference).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not output["missing_keys"]
    assert not loaded.config.legacy
    close(loaded(**READ).logits, out)


@BOTH
@torch.no_grad()
def test_released_weights_without_positions_open_without_decoder(make, tmp_path: Path) -> None:
    reference = make(legacy=False)
    loaded = load_folder(saved(reference, tmp_path))
    assert loaded.model.query_stream is None
    assert (loaded.missing, loaded.unexpected) == ((), ())
    hidden = loaded.model.language_head.logits(loaded.model.hidden_states(BATCH))
    close(hidden[0], reference(**READ).logits[0])


def test_input_position_embedding_is_not_of_the_decoder(tmp_path: Path) -> None:
    loaded = load_folder(saved(deberta(position_biased_input=True), tmp_path))
    assert loaded.model.query_stream is None
    assert loaded.model.backbone.position.absolute is not None


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (deberta, {"relative_attention": False}, "relative_attention must be true"),
        (deberta, {"pos_att_type": ["c2p", "p2p"]}, r"pos_att_type has \['p2p'\]"),
        (deberta, {"pos_att_type": []}, "pos_att_type must name one or both"),
        (deberta, {"talking_head": True}, "talking_head = True is not supported"),
        (deberta, {"embedding_size": 16}, "embedding_size = 16 is not supported"),
        (deberta_v2, {"share_att_key": False}, "share_att_key must be true"),
        (deberta_v2, {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd 'batch_norm' is not one of"),
        (deberta_v2, {"attention_head_size": 16}, "attention_head_size = 16 is not supported"),
        (deberta_v2, {"conv_kernel_size": 2}, "conv_kernel_size must be odd"),
    ],
)
def test_configs_of_other_formulas_are_refused(make, change, message) -> None:
    preset = MODELS["deberta-mini" if make is deberta else "deberta-v3-mini"]
    theirs = {**preset.config_mapping.from_architecture(preset.architecture), **change}
    with pytest.raises(ValueError, match=message):
        preset.config_mapping.to_architecture(preset.config_mapping.config_keys.complete(theirs))


def test_released_configs_write_the_terms_as_one_string() -> None:
    preset = MODELS["deberta-base"]
    theirs = {
        **preset.config_mapping.from_architecture(preset.architecture),
        "pos_att_type": "c2p|p2c",
    }
    assert preset.config_mapping.to_architecture(theirs).position == preset.architecture.position


@pytest.mark.parametrize("name", ["deberta-mini", "deberta-v3-mini"])
def test_formula_of_the_other_version_cannot_be_written(name: str) -> None:
    preset, other = (MODELS[n] for n in (name, {"deberta-mini": "deberta-v3-mini"}.get(
        name, "deberta-mini"
    )))  # fmt: skip
    with pytest.raises(ValueError, match="Disentangled positions"):
        preset.config_mapping.from_architecture(other.architecture)


def test_fused_projections_are_split_by_the_number_of_heads() -> None:
    names = WeightNames("a + b  c  by_head", n_heads=3)
    a, b = torch.arange(6)[:, None], 10 + torch.arange(6)[:, None]
    joined = names.to_external({"a.weight": a, "b.weight": b})["c.weight"]
    assert joined[:, 0].tolist() == [0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15]
    expected = {"a.weight": a.shape, "b.weight": b.shape}
    read = names.from_external({"c.weight": joined}, expected).tensors
    assert torch.equal(read["a.weight"], a)
    assert torch.equal(read["b.weight"], b)
    assert MODELS["deberta-large"].weight_names.n_heads == 16
    with pytest.raises(ValueError, match="number of heads is unknown"):
        WeightNames(names.table).to_external({"a.weight": a, "b.weight": b})


def test_adapter_on_fused_projections_uses_own_format_only(
    tmp_path: Path,
) -> None:
    loaded = load_folder(saved(deberta("ForSequenceClassification"), tmp_path / "model"))
    attach(loaded.model, LoRA(rank=2))
    assert "head by head" in str(peft_incompatibility(loaded.model, loaded.preset, "default"))
    write_adapter(tmp_path / "ours", loaded.model, loaded.preset, "default", base="x")
    again = load_folder(tmp_path / "model")
    assert read_adapter(tmp_path / "ours", again.model, again.preset) == LoRA(rank=2)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    name = "base_model.model.deberta.encoder.layer.0.attention.self.in_proj.lora_A.weight"
    save_file({name: torch.zeros(2, 32)}, tmp_path / "theirs" / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="joined by head"):
        read_adapter(tmp_path / "theirs", again.model, again.preset)
