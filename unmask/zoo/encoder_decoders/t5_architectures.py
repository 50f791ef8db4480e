"""The architectures compared in T5's paper: Raffel et al. 2020, arXiv:1910.10683, section 3.2.

All with T5's layers; the encoder-decoder itself is `t5-base` (12 layers a side) or `t5-mini` (4).
The default objective is T5's span corruption; others are set by `objective` of a recipe.
"""

from dataclasses import replace

from unmask.heads.language.language_modeling import LanguageModeling, SourcePrefixGeneration
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.positions.relative_bias import RelativePositionBias
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.published import T5 as SPAN_CORRUPTION
from unmask.zoo.decoders.gpt.gpt2 import CLASSIFICATION_HEAD
from unmask.zoo.encoder_decoders import t5
from unmask.zoo.preset import Published

_NOTE = "Section 3.2.2, table 2. transformers has no such network; it is saved in Unmask's format."
_SMALL = " Not in the paper: for two CPU cores, with the width and depth of t5-mini."


def shared_encoder_decoder(encoder: Architecture) -> EncoderDecoderArchitecture:
    """Return two stacks with shared layers, except for cross-attention.

    Each stack has its own relative position buckets in one table: `bi_v1_shared` shares variables,
    and `SelfAttention` of Mesh TensorFlow makes buckets bidirectional by stack.
    """
    return replace(t5.encoder_decoder(encoder), tie_encoder_decoder=True)


def single_stack(encoder: Architecture, *, bidirectional_source: bool) -> Architecture:
    """Return one causal stack, optionally with a bidirectional source."""
    position = encoder.position
    assert isinstance(position, RelativePositionBias)
    return replace(
        encoder, causal=True, position=replace(position, causal=not bidirectional_source)
    )


def _encoder(preset: Published) -> Architecture:
    assert isinstance(preset.architecture, EncoderDecoderArchitecture)
    return preset.architecture.encoder


def _sharing(preset: Published, name: str, parameters: int) -> Published:
    return replace(
        preset,
        name=name,
        family="t5-shared",
        architecture=shared_encoder_decoder(_encoder(preset)),
        n_parameters=parameters,
        weight_names=NATIVE_WEIGHT_NAMES,
        config_mapping=native_config_mapping("t5-shared", EncoderDecoderArchitecture),
        hub_id=None,
        note=_NOTE,
    )


def _half_depth(preset: Published, name: str, parameters: int) -> Published:
    encoder = _encoder(preset)
    return replace(
        preset,
        name=name,
        architecture=t5.encoder_decoder(replace(encoder, n_layers=encoder.n_layers // 2)),
        n_parameters=parameters,
        hub_id=None,
        note="Section 3.2.2, table 2: half as many layers a side.",
    )


def _one_stack(
    preset: Published, name: str, parameters: int, *, bidirectional_source: bool, length: int
) -> Published:
    """Return a language model whose rows have as much text as those of two stacks."""
    kind = "t5-prefix-lm" if bidirectional_source else "t5-lm"
    return replace(
        preset,
        name=name,
        family=kind,
        architecture=single_stack(_encoder(preset), bidirectional_source=bidirectional_source),
        heads={
            "language": LanguageModeling(
                term="denoised",
                scale_hidden=True,
                generation=SourcePrefixGeneration(bidirectional_source),
            )
        },
        classification_head=CLASSIFICATION_HEAD,
        objective=SingleStackSeq2Seq(SPAN_CORRUPTION, bidirectional_source=bidirectional_source),
        sequence_length=length,
        batch_tokens=preset.batch_tokens // preset.sequence_length * length,
        n_parameters=parameters,
        weight_names=NATIVE_WEIGHT_NAMES,
        config_mapping=native_config_mapping(kind),
        hub_id=None,
        note=_NOTE + " Source and target are concatenated in one stack; only the target is "
        "predicted.",
    )


_BASE = replace(t5.T5_BASE, **t5.BASELINE_TRAINING)  # section 3.1.2

SHARED_BASE = _sharing(_BASE, "t5-shared-base", 137_949_312)
HALF_BASE = _half_depth(_BASE, "t5-half-base", 123_790_080)
LM_BASE = _one_stack(_BASE, "t5-lm-base", 109_628_544, bidirectional_source=False, length=626)
PREFIX_LM_BASE = _one_stack(
    _BASE, "t5-prefix-lm-base", 109_628_544, bidirectional_source=True, length=626
)


def _with_note(preset: Published) -> Published:
    return replace(preset, note=preset.note + _SMALL)


SHARED_MINI = _with_note(_sharing(t5.T5_MINI, "t5-shared-mini", 6_320_512))
HALF_MINI = _with_note(_half_depth(t5.T5_MINI, "t5-half-mini", 5_796_096))
LM_MINI = _with_note(
    _one_stack(t5.T5_MINI, "t5-lm-mini", 5_270_912, bidirectional_source=False, length=157)
)
PREFIX_LM_MINI = _with_note(
    _one_stack(t5.T5_MINI, "t5-prefix-lm-mini", 5_270_912, bidirectional_source=True, length=157)
)

PRESETS = (
    SHARED_MINI, SHARED_BASE, HALF_MINI, HALF_BASE, LM_MINI, LM_BASE, PREFIX_LM_MINI,
    PREFIX_LM_BASE,
)  # fmt: skip
