"""Round trip: the reference library's tensors -> ours -> theirs, bit for bit.

And what we save opens there.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import SHAPES, bart, bert, gpt2, marian, mbart, saved, t5
from safetensors.torch import load_file
from small_models import tokenizer

from unmask.batch import Batch
from unmask.checkpoints.huggingface.differences import (
    heads_without_transformers_class,
    opening_note,
)
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.zoo.catalogue import MODELS

FAMILIES = sorted({card.family for card in MODELS.values()})

OURS = [
    n for n, c in MODELS.items() if c.weight_names is NATIVE_WEIGHT_NAMES and n.endswith("-mini")
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("tied", [False, True])
def test_family_absent_from_transformers_round_trips(name: str, tied: bool, tmp_path: Path) -> None:
    preset = MODELS[name]
    kept = {name: spec for name, spec in preset.heads.items() if spec.is_kept_after_pretraining}
    heads = {name: _tied(spec, tied) for name, spec in kept.items()}
    heads |= {"label": SequenceClassification(n_labels=3)}
    model = preset.build(heads).initialize(0)
    write_folder(tmp_path, model, preset, None)
    loaded = load_folder(tmp_path)
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert loaded.preset.architecture == preset.architecture
    assert loaded.model.head_specs == heads
    weights = loaded.model.own_weights()
    assert all(torch.equal(x, weights[n]) for n, x in model.own_weights().items())
    output = "transformers has no class for this network: `unmask.load` loads it"
    assert opening_note(preset, heads) == output


def _tied(spec, tied: bool):
    return replace(spec, tie_embeddings=tied) if isinstance(spec, LanguageModeling) else spec


_PLACES = {"deberta.embeddings.position_embeddings.weight"}
UNREAD = {"deberta": _PLACES, "deberta-v2": _PLACES}
"""Tensors, also of released weights, that transformers leaves out: it has no mask decoder."""
UNTRAINED = {
    "CanineModel": {"pooler.dense.weight", "pooler.dense.bias"},
    "VisionEncoderDecoderModel": {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"},
}
"""Tensors that transformers' class has, and a pretrained model of ours has not."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", SHAPES)
def test_reference_weights_and_config_round_trip_bitwise(shape: str, tmp_path: Path) -> None:
    reference = SHAPES[shape]()
    opened = load_folder(saved(reference, tmp_path / "theirs"))
    assert opened.missing == ()
    assert opened.unexpected == ()
    write_folder(tmp_path / "back", opened.model, opened.preset, None)
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    after = load_file(tmp_path / "back" / "model.safetensors")
    assert sorted(before) == sorted(after)
    assert all(torch.equal(before[name], after[name]) for name in before)

    import transformers as hf

    loaded, output = type(reference).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not output["missing_keys"]
    assert not output["unexpected_keys"]
    theirs = json.loads((tmp_path / "theirs" / "config.json").read_text())
    again = json.loads(json.dumps(loaded.config.to_dict()))
    ignored = {"transformers_version", "_name_or_path", "dtype", "n_inner", "pad_token_id",
               "bos_token_id", "eos_token_id", "decoder_start_token_id", "classifier_dropout",
               "tie_word_embeddings", "initializer_factor", "cls_token_id",
               "sep_token_id"}  # fmt: skip
    assert {k: v for k, v in theirs.items() if k not in ignored} == {
        k: again[k] for k in theirs if k not in ignored
    }
    assert isinstance(loaded, hf.PreTrainedModel)
    assert all(
        torch.equal(a, b)
        for a, b in zip(reference.state_dict().values(), loaded.state_dict().values(), strict=True)
    )


SMALL = [
    name
    for name, card in MODELS.items()
    if card.n_parameters < 20_000_000
    and card.config_mapping.in_transformers
    and not heads_without_transformers_class(card, card.heads)
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SMALL)
def test_small_preset_opens_in_transformers_with_equal_weights(name: str, tmp_path: Path) -> None:
    import transformers as hf

    preset = MODELS[name]
    model = preset.build().initialize(0)
    write_folder(tmp_path, model, preset, None)
    kind = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    loaded, output = getattr(hf, kind).from_pretrained(tmp_path, output_loading_info=True)
    own = tuple(f"heads.{head}." for head in heads_without_transformers_class(preset, preset.heads))
    kept = model.trained_weights()
    untrained = UNTRAINED.get(kind, set())
    assert set(output["missing_keys"]) == untrained
    assert set(output["unexpected_keys"]) == {n for n in kept if n.startswith(own)}
    again = load_folder(tmp_path)
    assert again.preset.architecture == preset.architecture or preset.family in (
        "t5",
        "transformer",
    )
    weights = again.model.own_weights()
    assert weights.keys() == kept.keys()
    assert all(torch.equal(x, weights[n]) for n, x in kept.items())
    alone = load_folder(tmp_path, {}).model.own_weights()
    pooler = {n: x for n, x in alone.items() if n.startswith("pooler.")}  # that a head held
    assert all(any(torch.equal(x, y) for y in weights.values()) for x in pooler.values())
    assert all(torch.equal(x, weights[n]) for n, x in alone.items() if n not in pooler)
    written, known = load_file(tmp_path / "model.safetensors"), loaded.state_dict()
    if preset.reads_pictures:  # whose tensors have other names in files than in memory
        loaded.save_pretrained(tmp_path / "theirs")
        stored = load_file(tmp_path / "theirs" / "model.safetensors")
        wrong = "decoder.decoder_encoder.layer."  # of transformers 5, which renames a part too much
        known = {n.replace(wrong, "decoder.decoder_layers."): x for n, x in stored.items()}
    unread = {name: x.numel() for name, x in written.items() if name not in known}
    assert {n for n in unread if not n.startswith(own)} == UNREAD.get(preset.family, set())
    computed = {n for n in known if n.endswith("embed_positions.weight") and n not in written}
    assert not computed or preset.family == "transformer"  # sinusoids, which are not saved
    theirs = loaded.num_parameters() - sum(known[n].numel() for n in untrained | computed)
    assert theirs + sum(unread.values()) == model.parameter_count()


@pytest.mark.parametrize(
    "name", ["bert-tiny", "roberta-mini", "distilbert-mini", "flaubert-mini", "modernbert-mini"]
)
@torch.no_grad()
def test_reference_tokenizer_and_model_equal_ours(name: str, tmp_path: Path) -> None:
    import transformers as hf

    preset, words = MODELS[name], tokenizer("bert")
    preset = preset.with_vocabulary(words.special_ids)
    model = preset.build().initialize(0).eval()
    write_folder(tmp_path, model, preset, words)
    given = hf.AutoTokenizer.from_pretrained(tmp_path)("the old king", return_tensors="pt")
    theirs = hf.AutoModel.from_pretrained(tmp_path).eval()(**given).last_hidden_state
    ours = model.hidden_states(Batch(inputs=given["input_ids"]))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [bert, gpt2, t5])
def test_sharded_weights_open(make, tmp_path: Path) -> None:
    reference = make()
    reference.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    loaded = load_folder(tmp_path)
    whole = load_folder(saved(reference, tmp_path / "whole"))
    assert loaded.missing == ()
    weights = whole.model.own_weights()
    assert all(torch.equal(x, weights[n]) for n, x in loaded.model.own_weights().items())


@pytest.mark.parametrize("legacy", [False, True])
def test_pickled_weights_open_through_the_allow_list(legacy: bool, tmp_path: Path) -> None:
    reference = bert()
    saved(reference, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): v
        for k, v in reference.state_dict().items()
    }
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    loaded = load_folder(tmp_path)
    assert loaded.missing == ()
    assert torch.equal(
        loaded.model.own_weights()["backbone.tokens.weight"],
        reference.bert.embeddings.word_embeddings.weight,
    )


class Attack:
    """What a hostile pickle would carry."""

    ran = False

    def __reduce__(self):
        return (setattr, (Attack, "ran", True))


@pytest.mark.parametrize("legacy", [False, True])
def test_pickle_with_code_is_refused_and_not_run(legacy: bool, tmp_path: Path) -> None:
    saved(bert(), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    path = tmp_path / "pytorch_model.bin"
    torch.save({"x": Attack()}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: refused"):
        load_folder(tmp_path)
    assert not Attack.ran


def test_headless_base_model_opens_and_names_new_weights(tmp_path: Path) -> None:
    loaded = load_folder(saved(bert("BertModel"), tmp_path))
    assert loaded.model.head_specs == {}
    assert loaded.unexpected == ()
    labelled = load_folder(tmp_path, head_specs={"label": SequenceClassification(n_labels=3)})
    assert set(labelled.missing) == {"heads.label.out.weight", "heads.label.out.bias"}


def test_extra_heads_are_named(tmp_path: Path) -> None:
    loaded = load_folder(
        saved(bert(), tmp_path), head_specs={"label": SequenceClassification(n_labels=2)}
    )
    assert all(name.startswith("cls.") for name in loaded.unexpected)
    assert len(loaded.unexpected) == 7


@pytest.mark.parametrize("make", [bert, gpt2, t5])
def test_truncated_file_is_one_clear_error(make, tmp_path: Path) -> None:
    saved(make(), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model\.safetensors: truncated or damaged"):
        load_folder(tmp_path)


def test_config_of_another_family_is_refused(tmp_path: Path) -> None:
    saved(bert(), tmp_path)
    theirs = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"model_type": "resnet"}, "model_type 'resnet' is not one of"),
        ({"hidden_size": 64}, "has shape"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is not one of"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"num_hidden_layers": 4}, "num_hidden_layers = 4, but the weights have 3 layers"),
        ({"hidden_size": "wide"}, "hidden_size must be an integer"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(theirs | change))
        with pytest.raises(ValueError, match=message):
            load_folder(tmp_path)


def test_index_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    saved(bert(), tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "secret.safetensors")
    index = {"weight_map": {"x": "../secret.safetensors"}}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="is not a file of this folder"):
        load_folder(tmp_path / "model")


@pytest.mark.parametrize("make", [bart, mbart, marian])
def test_output_bias_is_read_only_where_it_was_trained(make, tmp_path: Path) -> None:
    plain = make()
    loaded = load_folder(saved(plain, tmp_path / "plain"))
    assert loaded.model.language_head.bias is None
    plain.final_logits_bias[0, 7] = 0.5
    biased = load_folder(saved(plain, tmp_path / "biased"))
    assert biased.model.language_head.bias is not None
    assert biased.model.language_head.bias.nonzero().tolist() == [[7]]
    one_each = biased.model.parameter_count() - loaded.model.parameter_count()
    assert one_each == biased.model.vocab_size

    labelled = load_folder(
        tmp_path / "biased", head_specs={"label": SequenceClassification(n_labels=2)}
    )
    assert "final_logits_bias" in labelled.unexpected


def test_headless_bart_opens_with_its_tied_head(tmp_path: Path) -> None:
    bare = bart("BartModel")
    loaded = load_folder(saved(bare, tmp_path))
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert list(loaded.model.head_specs) == ["language"]


@pytest.mark.parametrize("change", [{"normalize_before": True}, {"activation_function": "mish"}])
def test_unsupported_bart_heads_are_refused(change: dict, tmp_path: Path) -> None:
    saved(bart(), tmp_path)
    theirs = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(theirs | change))
    with pytest.raises(ValueError, match=next(iter(change.values())).__repr__()):
        load_folder(tmp_path)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["SequenceClassification", "QuestionAnswering"])
@pytest.mark.parametrize("make", [bart, mbart])
def test_zero_output_bias_is_ignored_for_classifiers(make, kind: str, tmp_path: Path) -> None:
    name = {bart: "Bart", mbart: "MBart"}[make]
    theirs = make(f"{name}For{kind}")
    opened = load_folder(saved(theirs, tmp_path / "theirs"))
    write_folder(tmp_path / "back", opened.model, opened.preset, None, opened.label_names)
    loaded, output = type(theirs).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(output.values()), output
    again = loaded.state_dict()
    assert all(torch.equal(x, again[n]) for n, x in theirs.state_dict().items())
    assert load_folder(tmp_path / "back").unexpected == ()

    preset = opened.preset
    for heads in ({}, MODELS["bart-mini"].heads):
        write_folder(tmp_path / "said", preset.build(heads).initialize(0), preset, None)
        assert not load_file(tmp_path / "said" / "model.safetensors")["final_logits_bias"].any()
        assert load_folder(tmp_path / "said").unexpected == ()
