"""Size: the parameter count on the meta device equals the card's, and the published figures."""

import pytest
import torch

from unmask.zoo.catalogue import ALIASES, MODELS, get_preset

PUBLISHED = {
    # as the reference library counts the bare model, BERT's pooler included
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "bert-base-cased": 108_310_272,
    "bert-base-multilingual-cased": 177_853_440,
    "tinybert-4l-312d": 14_350_248,
    "tinybert-6l-768d": 66_955_008,
    "scibert-scivocab-uncased": 109_918_464,
    "scibert-scivocab-cased": 109_938_432,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "canine-c": 131_492_352,  # the pooler's 590,592 are of the head that labels
    "canine-s": 131_492_352,
    "elmo": 93_600_848,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
}


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", MODELS)
def test_preset_has_its_published_parameter_count(name: str) -> None:
    model = MODELS[name].build_without_memory()
    assert model.parameter_count() == MODELS[name].n_parameters
    if name in PUBLISHED:
        bare = sum(p.numel() for p in model.backbone.parameters())
        if "next_sentence" in model.heads:
            bare += sum(p.numel() for p in model.heads["next_sentence"].dense.parameters())
        assert bare == PUBLISHED[name]


@pytest.mark.parametrize("name", ["bert-tiny", "t5-mini", "elmo-mini", "awd-lstm"])
def test_meta_model_equals_allocated_model(name: str) -> None:
    before = torch.get_rng_state()
    model = MODELS[name].build_without_memory()
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.is_meta for p in model.parameters())
    shapes = {n: (p.shape, p.requires_grad) for n, p in model.named_parameters()}
    full = MODELS[name].build()
    assert shapes == {n: (p.shape, p.requires_grad) for n, p in full.named_parameters()}


PRINTED = {
    # Brown et al. 2020, table 2.1
    "gpt3-small": 0.125, "gpt3-medium": 0.35, "gpt3-large": 0.76, "gpt3-xl": 1.3,
    "gpt3-2.7b": 2.7, "gpt3-6.7b": 6.7, "gpt3-13b": 13.0, "gpt3-175b": 175.0,
    # Touvron et al. 2023, table 2
    "llama-7b": 6.7, "llama-13b": 13.0, "llama-33b": 32.5, "llama-65b": 65.2,
    # Chowdhery et al. 2022, table 1
    "palm-8b": 8.63, "palm-62b": 62.5, "palm-540b": 540.35,
    # by name of the size alone
    "gpt-neox-20b": 20.6, "lamda-137b": 137, "llama-2-70b": 69, "llama-3.1-405b": 405,
    "meena": 2.6, "qwen2-72b": 72.7, "roberta-base": 0.125, "roberta-large": 0.355,
    "distilbert-base-uncased": 0.066, "t5-3b": 2.8, "t5-11b": 11.3,
}  # fmt: skip
"""Billions, as rounded there."""


@pytest.mark.parametrize("name", PRINTED)
def test_preset_size_equals_that_printed_in_its_paper(name: str) -> None:
    assert MODELS[name].n_parameters / 1e9 == pytest.approx(PRINTED[name], rel=0.02)


PAPERS = {"small": 0.30, "base": 0.58, "large": 1.23, "xl": 3.74, "xxl": 12.9}
"""Billions: Xue et al. 2022, table 1, which are mT5's, too."""


@pytest.mark.parametrize("family", ["mt5", "byt5"])
@pytest.mark.parametrize("size", PAPERS)
def test_mt5_and_byt5_sizes_equal_the_paper(family: str, size: str) -> None:
    parameters = MODELS[f"{family}-{size}"].n_parameters / 1e9
    assert parameters == pytest.approx(PAPERS[size], rel=0.005)


def test_aliases_resolve_and_unknown_name_suggests_nearest() -> None:
    assert all(get_preset(alias) is MODELS[name] for alias, name in ALIASES.items())
    with pytest.raises(ValueError, match="did you mean 'bert-mini'"):
        get_preset("bert-mni")
