"""Where a captioner looks: cross-attention of each token of a caption to the patches."""

from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Float32

from unmask.analysis.attention.record import attention_maps
from unmask.batch import WORD_START, Batch, Visibility
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.model.backbones.captioning.show_attend_and_tell import ShowAttendAndTell
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.tokenizers.encode import Tokenizer


def attention_over_picture(
    model: Model, tokenizer: Tokenizer, pixels: Float32[np.ndarray, "c h w"], caption: str
) -> list[tuple[str, Float[np.ndarray, "rows columns"]]]:
    """Return each word of a caption and the attention by which it was predicted.

    Attention is that of an LSTM, or the mean of the heads of the last layer; a word has the mean of
    its tokens. That of special tokens of the encoder is left out, so that the rest sums to at most
    1. What is beyond the positions of the decoder has none.
    """
    special, stack = tokenizer.special_ids, model.architecture.picture_stack
    a = cast(VisionArchitecture, stack).with_image_size(*pixels.shape[1:])
    lead = [special.start, *special.decoder_prefix]
    room = model.architecture.max_positions
    tokens = tokenizer.encode(caption)[: None if room is None else room - len(lead)]
    ids = tokens.ids.tolist()
    seen = picture_batch(torch.from_numpy(pixels)[None], a)
    batch = Batch(
        inputs=torch.tensor([[*lead, *ids]]),
        visibility=Visibility(causal=True),
        source=seen.inputs,
        features=seen.features,
    )
    weights = _patch_attention(model, batch.to(model.device), a.position.n_special)
    grid = weights[len(lead) - 1 : -1].reshape(len(ids), a.position.rows, a.position.columns)
    first = np.flatnonzero(tokens.boundaries & WORD_START)
    ends = [*first[1:].tolist(), len(ids)]
    return [
        (tokenizer.decode(ids[start:end]).strip(), grid[start:end].mean(0))
        for start, end in zip(first.tolist(), ends, strict=True)
    ]


def _patch_attention(model: Model, batch: Batch, n_special: int) -> Float[np.ndarray, "t s"]:
    """Return the attention of one caption's tokens to the patches."""
    if model.decoder_architecture.returns_attention:
        network = cast(ShowAttendAndTell, model.backbone)
        with evaluation_mode(model):
            return network.patch_attention(batch)[0].float().cpu().numpy()
    maps = attention_maps(model, batch)[-1].cross_attention[-1]
    return maps[0].float().mean(0).cpu().numpy()[:, n_special:]
