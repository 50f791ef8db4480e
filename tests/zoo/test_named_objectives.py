"""Objectives by name, and what fits them to a network."""

from dataclasses import replace
from typing import get_args

import pytest

from unmask.heads.language.language_modeling import (
    LanguageModeling,
    ShiftedTargetGeneration,
    SourcePrefixGeneration,
)
from unmask.heads.pretraining.generator import Generator
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.model.backbones.transformer import Architecture
from unmask.objectives import published as values
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.objective import Objective
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.select import TokenMasking
from unmask.objectives.sentence_pairs.pairs import SentencePairObjective
from unmask.objectives.sentence_pairs.tasks import SentenceOrderPrediction
from unmask.zoo.catalogue import MODELS
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.objectives.presets import OBJECTIVE_PRESETS, is_objective_name, parse_objective
from unmask.zoo.objectives.requirements import requirements_of

BACKBONES = ("bert-mini", "llama-mini", "bart-mini", "t5-mini", "xlnet-mini", "lstm-mini")


def test_name_with_options_gives_an_objective() -> None:
    assert parse_objective("mlm").objective == values.MASKED_LM
    parsed = parse_objective("mlm:rate=0.3,mask=1,random=0").objective
    assert isinstance(parsed, Objective)
    assert parsed.select == TokenMasking(0.3)
    named = parse_objective("rtd:generator_size=0.5,generator_layers=2")
    assert named.heads == ("generator", "replaced")
    assert named.head_options == {"generator": {"width_factor": 0.5, "n_layers": 2}}
    both = parse_objective("mlm:rate=0.2+sop:swapped=0.3").objective
    assert both == SentencePairObjective(
        replace(values.MASKED_LM, select=TokenMasking(0.2)),
        SentenceOrderPrediction(swap_probability=0.3),
    )
    assert parse_objective("spans+sbo").heads == ("language", "boundary")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("mlmm", "unknown name 'mlmm'; did you mean 'mlm'"),
        ("skipgram", "a method for word vectors"),
        ("mlm:rat=0.3", "mlm: unknown key 'rat'; did you mean 'rate'"),
        ("mlm:rate", "options as option=value, got 'rate' .known: rate, mask, random"),
        ("clm:rate=0.1", "clm: unknown key 'rate' .known: none"),
        ("mlm:rate=2", "select: rate must be above 0 and at most 1, got 2"),
        ("mlm:rate=x", "select.rate must be float, got 'x'"),
        ("rtd:generator_size=7", "width_factor must be above 0 and at most 1, got 7"),
        ("nsp+mlm", "only static, .* may follow a plus, got mlm|only .* may follow a plus"),
        ("clm+nsp", "objective.corrupt must be MaskInPlace|hidden in place"),
        ("mlm+", "unknown name ''"),
    ],
)
def test_unknown_objective_is_one_clear_error(output: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_objective(output)
    assert "\n" not in str(error.value)
    assert output in str(error.value)


@pytest.mark.parametrize("name", OBJECTIVE_PRESETS)
def test_each_named_option_is_one_of_its_class(name: str) -> None:
    for option, path in OBJECTIVE_PRESETS[name].options.items():
        with pytest.raises(ValueError, match=f"{path.split('/')[-1].split('.')[-1]} must be") as it:
            parse_objective(f"{name}:{option}=nonsense")
        assert "unknown" not in str(it.value)


def test_every_kind_of_objective_has_a_name() -> None:
    made = [preset.objective for preset in OBJECTIVE_PRESETS.values()]
    kinds = {type(one) for one in made} | {SingleStackSeq2Seq}  # which follows from the network
    parts = {type(part) for one in made if hasattr(one, "components") for _, part in one.components}
    assert {kind.__name__ for kind in get_args(ObjectiveSpec)} <= {
        k.__name__ for k in kinds | parts
    } | {
        "TwoSegments",  # XLNet's rows of a stream: its card's own
        "PictureContrast",
        "PictureLabels",  # of networks that read pictures
    }
    assert all(map(is_objective_name, OBJECTIVE_PRESETS))


def test_requirements_follow_from_produced_examples() -> None:
    assert requirements_of(values.MASKED_LM).mask
    assert requirements_of(values.MASKED_LM).attention_patterns == {"bidirectional"}
    assert requirements_of(values.CAUSAL_LM).attention_patterns == {"forward"}
    assert requirements_of(values.T5).seq2seq
    assert requirements_of(values.T5).sentinels
    assert not requirements_of(values.T5).mask
    assert requirements_of(values.UL2).mode_tokens
    assert requirements_of(values.UNILM).n_segments == 6
    assert requirements_of(values.UNILM).forward_mask_segment == 2
    assert requirements_of(values.BERT).separator
    assert requirements_of(values.XLNET).attention_patterns == {"prefix"}


@pytest.mark.parametrize("preset", [*BACKBONES, "electra-mini", "spanbert-mini", "coco-lm-mini"])
def test_own_objective_changes_nothing(preset: str) -> None:
    own = MODELS[preset]
    assert adapt_to_objective(own, own.objective) == own


@pytest.mark.sample(10)
@pytest.mark.quick("bert-mini", "bart-mini")
@pytest.mark.parametrize("preset", BACKBONES)
@pytest.mark.parametrize("name", OBJECTIVE_PRESETS)
def test_objective_fits_or_has_one_reason(preset: str, name: str) -> None:
    own = MODELS[preset]
    reason = f"objective: {preset} does not support {name}: "
    try:
        made = adapt_to_objective(own, name)
    except ValueError as error:
        made, message = None, str(error)
        assert message.startswith(reason), message
        assert "\n" not in message, message
    if made is None:
        return
    asks, frame = made.objective.loss_terms, made.tokenizer.special_tokens
    expected = requirements_of(made.objective)
    assert frame.mask or not expected.mask or (expected.seq2seq and frame.n_sentinels)
    assert frame.n_sentinels or not expected.sentinels
    assert frame.separator or not expected.separator
    assert set(made.heads), asks
    assert adapt_to_objective(made, name).objective == made.objective, (
        "asked once more, it is the same"
    )
    assert adapt_to_objective(made, made.objective) == made


@pytest.mark.thorough
def test_objective_brings_visibility_heads_and_tokens() -> None:
    llama = adapt_to_objective(MODELS["llama-mini"], "mlm")
    assert isinstance(llama.architecture, Architecture)
    assert not llama.architecture.causal
    assert llama.tokenizer.special_tokens.mask == "<mask>"
    assert not llama.config_mapping.in_transformers
    bert = adapt_to_objective(MODELS["bert-mini"], "clm")
    assert isinstance(bert.architecture, Architecture)
    assert bert.architecture.causal
    assert bert.config_mapping.class_names_of(bert.architecture)[("language",)] == "BertLMHeadModel"
    assert bert.config_mapping.from_architecture(bert.architecture)["is_decoder"] is True
    found = adapt_to_objective(MODELS["roberta-mini"], "rtd:generator_size=0.5").heads
    assert found == {"generator": Generator(width_factor=0.5), "replaced": ReplacedTokenDetection()}
    own = adapt_to_objective(MODELS["electra-mini"], "rtd:weight=20").heads
    assert own == {
        "generator": Generator(width_factor=0.5),
        "replaced": ReplacedTokenDetection(weight=20.0),
    }
    assert set(adapt_to_objective(MODELS["electra-mini"], "mlm").heads) == {"language"}
    next_one = adapt_to_objective(MODELS["bert-mini"], "mntp").heads["language"]
    assert isinstance(next_one, LanguageModeling)
    assert next_one.generation == ShiftedTargetGeneration()
    whole = adapt_to_objective(MODELS["bert-mini"], "span-corruption")
    assert whole.objective == SingleStackSeq2Seq(values.T5, bidirectional_source=True)
    head = whole.heads["language"]
    assert isinstance(head, LanguageModeling)
    assert head.generation == SourcePrefixGeneration(bidirectional_source=True)
    assert adapt_to_objective(
        MODELS["llama-mini"], "span-corruption"
    ).objective == SingleStackSeq2Seq(values.T5)
    encoder = adapt_to_objective(MODELS["t5-mini"], "mlm").architecture
    assert isinstance(encoder, Architecture)
    assert not encoder.cross_attention
    assert (
        adapt_to_objective(
            MODELS["transformer-mini"], "span-corruption"
        ).tokenizer.special_tokens.n_sentinels
        == 100
    )


@pytest.mark.parametrize(
    ("preset", "name", "reason"),
    [
        ("bert-mini", "plm", "positions must be in the attention scores .*, got Learned"),
        ("lstm-mini", "prefix-lm", "does not support a bidirectional prefix"),
        ("lstm-mini", "rtd", "a generator is a smaller Transformer"),
        ("cnn-mini", "clm", "a convolutional network is bidirectional"),
        ("canine-mini", "mlm", "characters have no token embeddings"),
        ("elmo-mini", "mlm", "no token embeddings"),
        ("word2vec-skipgram-mini", "mlm", "not a network"),
        ("bert-mini", "characters", "hashes characters"),
        ("transformer-xl-words-mini", "rtd", "adaptive_input is supported by next-token heads"),
    ],
)
def test_impossible_adaptations_are_refused(preset: str, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{preset} does not support {name}: .*{reason}"):
        adapt_to_objective(MODELS[preset], name)
