"""Decoders of captions: GPT-2, BERT and RoBERTa with attention to an encoder, in transformers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from unmask.model.architecture import POST_NORM, BackboneArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.exchange.weight_names import WeightNames
from unmask.zoo.decoders.gpt import gpt2
from unmask.zoo.encoders.bert_family import bert, roberta

_CROSS_ATTENTION_KEYS = """
    add_cross_attention          fixed     true
    cross_attention_hidden_size  fixed     null
    pruned_heads                 fixed     {}|null
    use_mask_token               harmless
    """


@dataclass(frozen=True, kw_only=True)
class CaptionDecoder:
    """A family of language models as the decoder of captions: its configuration and names."""

    class_name: str
    config_mapping: ConfigMapping
    config_keys: ConfigKeys
    names: str
    """Lines of `WeightNames` of the language model."""
    cross_attention: str
    """The lines that it has besides as a decoder."""
    has_transform: bool = True
    """Whether its language head has BERT's transform and a bias."""

    @property
    def model_type(self) -> str:
        """Name of the family."""
        return self.config_mapping.model_type

    @property
    def table(self) -> str:
        """Lines of `WeightNames`, under the name of this side."""
        prefix = "transformer" if self.model_type == "gpt2" else self.model_type
        lines = [
            line.replace(f" {prefix}.", f" decoder.{prefix}.")
            .replace(" lm_head", " decoder.lm_head")
            .replace(" cls.", " decoder.cls.")
            .replace("backbone.", "backbone.decoder.")
            .replace("backbone.decoder.tokens", "backbone.tokens")
            for line in (self.names + self.cross_attention).splitlines()
            if not line.strip().startswith("heads.") or line.strip().startswith("heads.language")
        ]
        return "\n".join(line for line in lines if "pooler" not in line)

    def read(self, config: Mapping[str, Any]) -> Architecture:
        """Return the decoder of a configuration with all keys.

        Raises:
            ValueError: it does not attend to an encoder, or is not causal.
        """
        for key in ("add_cross_attention", "is_decoder"):
            if not config.get(key, key == "is_decoder" and not self.has_transform):
                raise ValueError(f"lacks {key} = true, without which it writes no captions")
        a = self.config_mapping.to_architecture({**config, "add_cross_attention": False})
        return replace(cast(Architecture, a), cross_attention=True)

    def write(self, a: Architecture) -> dict[str, Any]:
        """Return the configuration of a decoder."""
        return self.config_mapping.from_architecture(a) | {
            "model_type": self.model_type,
            "architectures": [self.class_name],
            "add_cross_attention": True,
            "is_decoder": True,
        }

    def language_head(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of `LanguageModeling` that the family has."""
        if not self.has_transform:
            return {}
        options = self.config_mapping.read_language_head(config)
        return {"transform": "gelu", "bias": True} | options


_CROSS_ATTENTION_OF_GPT2 = """
    backbone.layers.*.cross_norm.into         transformer.h.*.ln_cross_attn
    backbone.layers.*.cross.q                 transformer.h.*.crossattention.q_attn  transposed
    backbone.layers.*.cross.k + backbone.layers.*.cross.v transformer.h.*.crossattention.c_attn transposed
    backbone.layers.*.cross.o                 transformer.h.*.crossattention.c_proj  transposed
    -                                         transformer.h.*.crossattention
    -                                         transformer.h.*.crossattention.masked_bias
    """  # noqa: E501 - a line is a rule


def _cross_attention_of_bert(family: str) -> str:
    layer = f"{family}.encoder.layer.*.crossattention"
    return f"""
    backbone.layers.*.cross_norm.after        {layer}.output.LayerNorm
    backbone.layers.*.cross.q                 {layer}.self.query
    backbone.layers.*.cross.k                 {layer}.self.key
    backbone.layers.*.cross.v                 {layer}.self.value
    backbone.layers.*.cross.o                 {layer}.output.dense
    """


GPT2 = CaptionDecoder(
    class_name="GPT2LMHeadModel",
    config_mapping=gpt2.CONFIG_MAPPING,
    config_keys=ConfigKeys(f"is_decoder harmless{_CROSS_ATTENTION_KEYS.rstrip()}", gpt2.GPT_2_KEYS),
    names=gpt2.WEIGHT_NAMES.table,
    cross_attention=_CROSS_ATTENTION_OF_GPT2,
    has_transform=False,
)
BERT = CaptionDecoder(
    class_name="BertLMHeadModel",
    config_mapping=bert.CONFIG_MAPPING,
    config_keys=ConfigKeys(_CROSS_ATTENTION_KEYS, bert.CONFIG_MAPPING.config_keys),
    names=bert.WEIGHT_NAMES.table,
    cross_attention=_cross_attention_of_bert("bert"),
)
ROBERTA = CaptionDecoder(
    class_name="RobertaForCausalLM",
    config_mapping=roberta.CONFIG_MAPPING,
    config_keys=ConfigKeys(_CROSS_ATTENTION_KEYS, roberta.CONFIG_MAPPING.config_keys),
    names=roberta.WEIGHT_NAMES.table,
    cross_attention=_cross_attention_of_bert("roberta"),
)
DECODERS: Mapping[str, CaptionDecoder] = {x.model_type: x for x in (GPT2, BERT, ROBERTA)}
"""By `model_type`."""


def decoder_family(a: Architecture) -> CaptionDecoder:
    """Return the family in whose format a decoder is written.

    BERT's norms come after the sublayers, and RoBERTa's positions begin after the padding id.
    """
    if a.norm_placement != POST_NORM:
        return GPT2
    counts_padding = a.position.with_padding_id(0) != a.position.with_padding_id(1)
    return ROBERTA if counts_padding else BERT


class CaptionerNames(WeightNames):
    """The names of an encoder of pictures and of the decoder beside it."""

    def __init__(self, encoder: str, decoder: CaptionDecoder = GPT2) -> None:
        self.encoder = encoder
        super().__init__(f"{encoder}\n{decoder.table}\nbackbone.projection enc_to_dec_proj")

    def for_architecture(self, a: BackboneArchitecture) -> "CaptionerNames":
        """Return the table for the family of an architecture's decoder."""
        return CaptionerNames(self.encoder, decoder_family(cast(Architecture, a.decoder_stack)))
