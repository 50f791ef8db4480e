"""Modules with tensors as inputs and outputs, from which ONNX graphs are traced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.cache import Cache, LayerCache
from unmask.model.requested_states import RequestedStates
from unmask.objectives.inputs.pictures import Pictures
from unmask.tokenizers.spec import NO_LANGUAGE, TextLanguages

BATCH, LENGTH, PAST, SOURCE_LENGTH = "batch", "length", "past", "source_length"
"""Names of the sizes that vary from call to call."""
LOGITS, HIDDEN_STATE = "logits", "last_hidden_state"
INPUT_IDS, ATTENTION_MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
POSITION_IDS, PART_IDS, LANGUAGES = "position_ids", "part_ids", "langs"
PIXELS = "pixel_values"


@dataclass(frozen=True, kw_only=True)
class GraphInterface:
    """The inputs and outputs of a graph."""

    inputs: Mapping[str, Tensor]
    """Examples of the inputs, by name."""
    varying: Mapping[str, Mapping[int, str]]
    """Which dimensions of each input vary, and what they are called."""
    outputs: tuple[str, ...]
    longest: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    """The largest value of a varying size. None: there is none."""


class WholeTextGraph(nn.Module):
    """Texts that are read at once -> logits of a head, if there is one, and hidden states."""

    def __init__(self, model: Model, head: str | None) -> None:
        super().__init__()
        self.model, self.head_name = model, head

    def outputs(self, batch: Batch, *encoded: Tensor | None) -> tuple[Tensor, ...]:
        """Return logits of the head, if there is one, and hidden states of the last layer.

        `encoded`, of an encoder-decoder: no cache, and the hidden states of its encoder.
        """
        model, name = self.model, self.head_name
        backbone: Any = model.backbone
        if name is None:
            return (backbone(batch, *encoded),)
        head: Any = model.heads[name]
        spec = model.head_specs[name]
        requested = RequestedStates(all_layers=spec.uses_all_layers)
        states = backbone(batch.with_feature(requested), *encoded)
        hidden = states[..., -model.decoder_architecture.d_model :]
        if name in model.language_heads:
            predicting = hidden if head.decoder is None else model.hidden_states(batch)
            return head.logits(predicting), hidden
        prediction = head(states if spec.uses_all_layers else hidden, batch, return_logits=True)
        return prediction.logits[spec.term], hidden


class TextGraph(WholeTextGraph):
    """Token ids [b t], attention mask [b t] and segments [b t] -> logits and hidden states [b t d].

    The attention mask is 1 for tokens and 0 for the padding after them. Logits are those of the
    head: of texts [b labels], of tokens [b t labels], of the vocabulary [b t v].
    """

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        names = [INPUT_IDS, ATTENTION_MASK]
        names += [SEGMENTS] if self.model.decoder_architecture.uses_segments else []
        return GraphInterface(
            # distinct tensors: one that is given twice would be one input
            inputs={name: torch.full((2, 7), int(name != SEGMENTS)) for name in names},
            varying={name: {0: BATCH, 1: LENGTH} for name in names},
            outputs=(HIDDEN_STATE,) if self.head_name is None else (LOGITS, HIDDEN_STATE),
            longest={LENGTH: self.model.architecture.max_positions},
        )

    def forward(
        self,
        input_ids: Int[Tensor, "b t"],
        attention_mask: Int[Tensor, "b t"],
        token_type_ids: Int[Tensor, "b t"] | None = None,
    ) -> tuple[Tensor, ...]:
        """Run the model."""
        return self.outputs(self.batch(input_ids, attention_mask, token_type_ids))

    def batch(
        self,
        input_ids: Int[Tensor, "b t"],
        attention_mask: Int[Tensor, "b t"],
        segments: Int[Tensor, "b t"] | None = None,
    ) -> Batch:
        """Return the batch of the inputs."""
        return Batch(
            inputs=input_ids,
            visibility=Visibility(
                document=attention_mask - 1, causal=self.model.decoder_architecture.causal
            ),
            segments=segments,
            last_token_positions=attention_mask.sum(1) - 1,
        )


class MultilingualTextGraph(TextGraph):
    """Token ids, attention mask and languages [b t] -> logits and hidden states, as `TextGraph`.

    A language is a row of the language embeddings (Conneau and Lample 2019, section 3.4), or
    NO_LANGUAGE for a token to which none is added.
    """

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        plain = super().interface()
        languages = torch.tensor([[0] * 7, [NO_LANGUAGE] * 7])
        return replace(
            plain,
            inputs={**plain.inputs, LANGUAGES: languages},
            varying={**plain.varying, LANGUAGES: {0: BATCH, 1: LENGTH}},
        )

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input_ids: Int[Tensor, "b t"],
        attention_mask: Int[Tensor, "b t"],
        langs: Int[Tensor, "b t"],
    ) -> tuple[Tensor, ...]:
        """Run the model."""
        batch = self.batch(input_ids, attention_mask)
        return self.outputs(batch.with_feature(TextLanguages(language=langs)))


class PairGraph(WholeTextGraph):
    """Two texts in a row that do not attend to each other -> logits [b labels] and hidden states.

    The inputs are token ids [b t], position ids [b t], which begin anew with the second text, and
    part ids [b t]: 0 in the first text, 1 in the second, -1 in the padding after them.
    """

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        part_ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, -1, -1]])
        inputs = {
            INPUT_IDS: torch.ones(2, 7, dtype=torch.long),
            POSITION_IDS: torch.tensor([[0, 1, 2, 3, 0, 1, 2], [0, 1, 0, 1, 2, 0, 0]]),
            PART_IDS: part_ids,
        }
        return GraphInterface(
            inputs=inputs,
            varying={name: {0: BATCH, 1: LENGTH} for name in inputs},
            outputs=(LOGITS, HIDDEN_STATE),
            longest={LENGTH: self.model.architecture.max_positions},
        )

    def forward(
        self,
        input_ids: Int[Tensor, "b t"],
        position_ids: Int[Tensor, "b t"],
        part_ids: Int[Tensor, "b t"],
    ) -> tuple[Tensor, ...]:
        """Run the model."""
        causal = self.model.decoder_architecture.causal
        return self.outputs(
            Batch(
                inputs=input_ids,
                visibility=Visibility(document=part_ids, causal=causal),
                position_ids=position_ids,
                part_ids=part_ids,
            )
        )


class PictureGraph(WholeTextGraph):
    """Pixels [b c height width] -> logits [b labels] and hidden states of all columns [b t d].

    Pixels are standardized as `preprocessor_config.json` says; height and width are the network's.
    """

    def __init__(self, model: Model, head: str | None) -> None:
        super().__init__(model, head)
        self.a = cast(VisionArchitecture, model.architecture)
        self.register_buffer("ids", torch.tensor(self.a.picture_ids), persistent=False)

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        return GraphInterface(
            inputs={PIXELS: torch.zeros(2, self.a.n_channels, *self.a.image_size)},
            varying={PIXELS: {0: BATCH}},
            outputs=(HIDDEN_STATE,) if self.head_name is None else (LOGITS, HIDDEN_STATE),
        )

    def forward(self, pixel_values: Float[Tensor, "b c height width"]) -> tuple[Tensor, ...]:
        """Run the model."""
        inputs = cast(Tensor, self.ids).expand(pixel_values.shape[0], -1)
        return self.outputs(Batch(inputs=inputs, features=(Pictures(pixel_values),)))


class _TracedLayerCache(LayerCache):
    """Keys and values [b g s e] of earlier tokens, if there are any, and, after a step, of all."""

    def __init__(self, key: Tensor | None = None, value: Tensor | None = None) -> None:
        super().__init__()
        self.key, self.value = key, value
        self.length = 0 if key is None else key.shape[2]

    def extend(
        self, k: Float[Tensor, "b g t e"], v: Float[Tensor, "b g t e"]
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all."""
        k = k if self.key is None else torch.cat((self.key, k), 2)
        v = v if self.value is None else torch.cat((self.value, v), 2)
        self.key, self.value = k, v
        return k, v


class TracedCache(Cache):
    """A cache whose keys and values are inputs and outputs of a graph.

    No layer drops what is beyond its window: the attention mask hides it. Keys and values of
    cross-attention are outputs alone.
    """

    def __init__(self, keys_values: tuple[Tensor, ...]) -> None:
        pairs = list(zip(keys_values[::2], keys_values[1::2], strict=True))
        super().__init__([None] * len(pairs))
        self.traced = [_TracedLayerCache(k, v) for k, v in pairs]
        self.traced_cross = [_TracedLayerCache() for _ in pairs]
        self.layers: list[LayerCache] = [*self.traced]
        self.cross_attention: list[LayerCache] = [*self.traced_cross]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return keys and values of each layer in turn."""
        return _keys_values(self.traced)

    def cross_tensors(self) -> tuple[Tensor, ...]:
        """Return keys and values of each layer's cross-attention in turn."""
        return _keys_values(self.traced_cross)


def _keys_values(layers: Iterable[_TracedLayerCache]) -> tuple[Tensor, ...]:
    return tuple(cast(Tensor, x) for layer in layers for x in (layer.key, layer.value))


class DecoderGraph(nn.Module):
    """One step of a decoder: tokens after a cache -> logits of the next token, and a larger cache.

    The inputs are token ids [b t], an attention mask [b s] over the cached and the new tokens,
    position ids [b t], and for each layer the keys and values [b g s-t e] of the tokens before,
    none at first. The outputs are the logits [b v] after the last token, the hidden states [b t d]
    of the new tokens, and the keys and values [b g s e] of all.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        a = cast(Any, self.model.decoder_architecture)
        new, past = 3, 5
        ids = torch.ones(2, new, dtype=torch.long)
        inputs = {
            INPUT_IDS: ids,
            ATTENTION_MASK: torch.ones(2, past + new, dtype=torch.long),
            POSITION_IDS: torch.arange(past, past + new).expand(2, -1).clone(),
        }
        varying: dict[str, Mapping[int, str]] = {
            INPUT_IDS: {0: BATCH, 1: LENGTH},
            ATTENTION_MASK: {0: BATCH, 1: f"{PAST} + {LENGTH}"},
            POSITION_IDS: {0: BATCH, 1: LENGTH},
        }
        past_names = cache_names("past_key_values", a.n_layers)
        for name in past_names:
            inputs[name] = torch.zeros(2, a.n_key_value_heads, past, a.d_head)
            varying[name] = {0: BATCH, 2: PAST}
        present = cache_names("present", a.n_layers)
        return GraphInterface(
            inputs=inputs,
            varying=varying,
            outputs=(LOGITS, HIDDEN_STATE, *present),
            longest={LENGTH: a.max_positions},
        )

    def forward(
        self,
        input_ids: Int[Tensor, "b t"],
        attention_mask: Int[Tensor, "b s"],
        position_ids: Int[Tensor, "b t"],
        *past_key_values: Tensor,
    ) -> tuple[Tensor, ...]:
        """Read the new tokens."""
        batch = Batch(
            inputs=input_ids,
            visibility=Visibility(document=attention_mask - 1, causal=True),
            position_ids=position_ids,
        )
        cache = TracedCache(past_key_values)
        hidden = self.model.backbone(batch, cache)
        return self.model.language_head.logits(hidden[:, -1]), hidden, *cache.tensors()


def cache_names(prefix: str, n_layers: int) -> tuple[str, ...]:
    """Return the names of the keys and values of each layer, as optimum has them."""
    return tuple(f"{prefix}.{i}.{part}" for i in range(n_layers) for part in ("key", "value"))
