"""Recorded attention maps equal the reference library's `output_attentions`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from reference import albert, bert, deberta, deberta_v2, gpt2, longformer, modernbert, saved, t5
from test_parity import documents, texts

from unmask.analysis.attention.record import attention_maps
from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.heads.model import Model
from unmask.model.layers.attention import attention
from unmask.model.layers.attention.block_local_mask import GlobalTokens, columns_to_mask

T, LENGTHS = 13, [13, 9]
READERS = {
    "bert": (bert, "BertModel"),
    "albert": (albert, "Model"),
    "gpt2": (gpt2, "GPT2Model"),
    "deberta": (deberta, "Model"),
    "deberta-v2": (deberta_v2, "Model"),
    "modernbert": (modernbert, "Model"),
}


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    document = documents(LENGTHS, T)
    return texts(1, len(LENGTHS), T), document


def eager(reference: Any) -> Any:
    """Make the reference give its weights: its fused kernels do not."""
    reference.set_attn_implementation("eager")
    return reference.double()


def opened(reference: Any, folder: Path) -> Model:
    """Open a reference in double precision: float32 alone rounds scores of this size by 1e-6."""
    return load_folder(saved(reference, folder)).model.double().eval()


def assert_close(maps: list[torch.Tensor], wanted: Any, document: torch.Tensor) -> None:
    assert len(maps) == len(wanted)
    for ours, theirs in zip(maps, wanted, strict=True):
        seen = (document >= 0)[:, None, :, None].expand_as(ours)  # queries of padding are unused
        torch.testing.assert_close(ours[seen], theirs[seen], atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", READERS)
@torch.no_grad()
def test_maps_equal_reference(family: str, tmp_path: Path) -> None:
    build, kind = READERS[family]
    reference = eager(build(kind))
    ours = opened(reference, tmp_path)
    ids, document = padded()
    if family == "modernbert":  # the reference computes its angles in float32
        reference, ours = reference.float(), ours.float()
    visible = {"attention_mask": (document >= 0).long()}
    wanted = reference(ids, output_attentions=True, **visible).attentions
    causal = family == "gpt2"
    batch = Batch(inputs=ids, visibility=Visibility(document=document, causal=causal))
    (maps,) = attention_maps(ours, batch)
    assert_close(maps.self_attention, wanted, document)
    assert maps.cross_attention == []


@torch.no_grad()
def test_maps_of_both_stacks_and_of_cross_attention_equal_reference(tmp_path: Path) -> None:
    reference = t5("T5Model")
    ours = opened(reference, tmp_path)
    ids, document = padded()
    inputs = texts(2, len(LENGTHS), 7)
    wanted = eager(reference)(
        ids,
        attention_mask=(document >= 0).long(),
        decoder_input_ids=inputs,
        output_attentions=True,
    )
    batch = Batch(
        inputs=inputs,
        visibility=Visibility(causal=True),
        source=ids,
        source_visibility=Visibility(document=document),
    )
    encoder, decoder = attention_maps(ours, batch)
    whole = torch.zeros(len(LENGTHS), 7)
    assert_close(encoder.self_attention, wanted.encoder_attentions, document)
    assert_close(decoder.self_attention, wanted.decoder_attentions, whole)
    assert_close(decoder.cross_attention, wanted.cross_attentions, whole)
    assert encoder.cross_attention == []


@pytest.mark.parametrize("blocks", [True, False], ids=["in blocks", "with a mask"])
@pytest.mark.parametrize("columns", [[[0, 3], [5, -1]], None], ids=["global", "local"])
@torch.no_grad()
def test_maps_of_windows_and_global_tokens_equal_reference(
    blocks: bool, columns: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", -1000 if blocks else 1000)
    reference = longformer("Model")
    ours = opened(reference, tmp_path)
    ids, document = padded()
    ids[ids == reference.config.sep_token_id] = 6
    batch = Batch(inputs=ids, visibility=Visibility(document=document))
    is_global = torch.zeros_like(ids)
    if columns is not None:
        batch = batch.with_feature(GlobalTokens(torch.tensor(columns)))
        is_global = columns_to_mask(torch.tensor(columns), T).long()
    # the library pads a text to whole windows, whose weights it returns, too
    reference_output = reference.double()(
        torch.where(document >= 0, ids, reference.config.pad_token_id),
        attention_mask=(document >= 0).long(),
        global_attention_mask=is_global,
        output_attentions=True,
    )
    (maps,) = attention_maps(ours, batch)
    wanted = [
        dense(local, None if columns is None else everywhere, is_global.bool(), window // 2)
        for local, everywhere, window in zip(
            reference_output.attentions,
            reference_output.global_attentions or [None] * 3,
            reference.config.attention_window,
            strict=True,
        )
    ]
    assert_close(maps.self_attention, wanted, document)


def dense(
    local: torch.Tensor, everywhere: torch.Tensor | None, is_global: torch.Tensor, reach: int
) -> torch.Tensor:
    """Lay the reference's weights, columns of a window after those of global tokens, in a matrix.

    `local` is [b h t g+2*reach+1], `everywhere` [b h t g].
    """
    b, h, t, _ = local.shape
    whole = torch.zeros(b, h, t, t, dtype=local.dtype)
    n_global = local.shape[-1] - 2 * reach - 1
    for row in range(b):
        columns = is_global[row].nonzero()[:, 0].tolist()
        for i in range(t):
            for offset in range(-reach, reach + 1):
                if 0 <= i + offset < t:
                    whole[row, :, i, i + offset] = local[row, :, i, n_global + reach + offset]
        for g, column in enumerate(columns):
            whole[row, :, :, column] += local[row, :, :, g]
        for g, column in enumerate(columns):
            assert everywhere is not None
            whole[row, :, column] = everywhere[row, :, :t, g]
    return whole


@torch.no_grad()
def test_a_long_text_in_blocks_has_the_maps_of_a_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = opened(modernbert("Model", max_position_embeddings=64), tmp_path)
    batch = Batch(inputs=texts(1, 1, 40))
    (wanted,) = attention_maps(ours, batch)
    monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", 0)
    (maps,) = attention_maps(ours, batch)
    for one, other in zip(maps.self_attention, wanted.self_attention, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one.sum(-1), torch.ones(one.shape[:-1], dtype=one.dtype))


def test_a_network_without_attention_is_refused() -> None:
    from unmask.zoo.catalogue import get_preset

    model = Model(get_preset("lstm-mini").architecture, {})
    with pytest.raises(ValueError, match="Transformer blocks only"):
        attention_maps(model, Batch(inputs=torch.zeros(1, 3, dtype=torch.long)))
