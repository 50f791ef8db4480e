"""Graphs give the numbers of the model, for every size of a batch."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx_models import FAMILIES, OTHERS, tiny
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.inference.onnx.export import unexportable_reason, write_graph
from unmask.inference.onnx.graphs import (
    ATTENTION_MASK,
    HIDDEN_STATE,
    INPUT_IDS,
    LANGUAGES,
    LOGITS,
    SEGMENTS,
)
from unmask.inference.onnx.model import OnnxModel
from unmask.inference.onnx.record import MODEL_FILE, OnnxRecord
from unmask.inference.onnx.session import OnnxSession
from unmask.tokenizers.spec import TextLanguages
from unmask.zoo.catalogue import get_preset

TOLERANCE = 1e-5
"""Of float32, relative to the largest number: sums are in another order."""
SIZES = [(b, t) for b in (1, 7, 32) for t in (1, 17, 128)]
NOT_EXPORTED = {"xlnet"}
CAUSAL = {f for f, name in FAMILIES.items() if get_preset(name).architecture.is_decoder_only}


def close(ours: Tensor, theirs: Tensor) -> None:
    scale = max(1.0, float(theirs.abs().max()))
    assert float((ours - theirs).abs().max()) < TOLERANCE * scale


def exported(loaded: LoadedModel, record: OnnxRecord, folder: Path) -> OnnxSession:
    with torch.no_grad():
        write_graph(loaded.model, record, folder / MODEL_FILE)
    return OnnxSession(folder)


@pytest.mark.thorough
@pytest.mark.quick("bert")
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - NOT_EXPORTED))
@torch.no_grad()
def test_logits_and_hidden_states_equal_the_model(family: str, tmp_path: Path) -> None:
    loaded = tiny(FAMILIES[family])
    model, a = loaded.model, loaded.model.decoder_architecture
    head = "language" if "language" in model.heads and not a.causal else None
    session = exported(loaded, OnnxRecord(head=head), tmp_path)
    draw = torch.Generator().manual_seed(1)
    for b, t in SIZES:
        ids = torch.randint(0, a.vocab_size, (b, t), generator=draw)
        lengths = torch.randint(1, t + 1, (b,), generator=draw)
        lengths[0] = t
        mask = (torch.arange(t) < lengths[:, None]).long()
        inputs = {INPUT_IDS: ids, ATTENTION_MASK: mask}
        if a.uses_segments:
            inputs[SEGMENTS] = torch.randint(0, a.segment_count, (b, t), generator=draw)
        if a.has_language_embeddings:
            inputs[LANGUAGES] = torch.randint(-1, a.n_languages, (b, t), generator=draw)
        batch = Batch(
            inputs=ids,
            visibility=Visibility(document=mask - 1, causal=a.causal),
            segments=inputs.get(SEGMENTS),
            last_token_positions=lengths - 1,
        )
        if a.has_language_embeddings:
            batch = batch.with_feature(TextLanguages(language=inputs[LANGUAGES]))
        real = mask.bool()
        close(session.run(inputs, [HIDDEN_STATE])[0][real], model.backbone(batch)[real])
        if head is not None:
            expected = model.language_head.logits(model.hidden_states(batch))
            close(session.run(inputs, [LOGITS])[0][real], expected[real])


@pytest.mark.thorough
@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_other_cards_of_a_family_equal_their_models_or_are_refused(
    name: str, tmp_path: Path
) -> None:
    loaded = tiny(name)
    if (reason := unexportable_reason(loaded.model, None)) is not None:
        assert "\n" not in reason
        return
    session = exported(loaded, OnnxRecord(), tmp_path)
    a = loaded.model.decoder_architecture
    ids = torch.randint(0, a.vocab_size, (3, 17), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(17) < torch.tensor([[17], [9], [1]])).long()
    inputs = {INPUT_IDS: ids, ATTENTION_MASK: mask}
    inputs |= {SEGMENTS: torch.zeros_like(ids)} if a.uses_segments else {}
    inputs |= {LANGUAGES: ids % 2 - 1} if a.has_language_embeddings else {}
    batch = Batch(
        inputs=ids,
        visibility=Visibility(document=mask - 1, causal=a.causal),
        segments=inputs.get(SEGMENTS),
    )
    if a.has_language_embeddings:
        batch = batch.with_feature(TextLanguages(language=inputs[LANGUAGES]))
    real = mask.bool()
    close(session.run(inputs, [HIDDEN_STATE])[0][real], loaded.model.backbone(batch)[real])


@pytest.mark.thorough
@torch.no_grad()
def test_languages_of_tokens_are_an_input(tmp_path: Path) -> None:
    loaded = tiny("xlm-mini", languages=3)
    record = OnnxRecord(head="language")
    session = exported(loaded, record, tmp_path)
    specs = {"language": loaded.model.head_specs["language"]}
    graph = OnnxModel(loaded.model.architecture, specs, session, record)
    ids = torch.randint(0, loaded.model.vocab_size, (5, 9))
    plain = Batch(inputs=ids, visibility=Visibility(document=torch.zeros_like(ids)))
    told = plain.with_feature(TextLanguages(language=ids % 4 - 1))
    for batch in (plain, told):
        close(graph.hidden_states(batch), loaded.model.hidden_states(batch))
        selected = ids % 2 == 0
        close(graph.logits_at(batch, selected), loaded.model.logits_at(batch, selected))
    assert not torch.allclose(graph.hidden_states(plain), graph.hidden_states(told), atol=1e-3)
    record = OnnxRecord()
    (tmp_path / "one").mkdir()
    other = exported(tiny("xlm-mini", languages=1), record, tmp_path / "one")
    untold = OnnxModel(loaded.model.architecture, {}, other, record)
    with pytest.raises(ValueError, match="does not read languages of tokens"):
        untold.hidden_states(told)


@pytest.mark.thorough
@pytest.mark.quick("gpt2")
@pytest.mark.parametrize("family", sorted(CAUSAL))
@torch.no_grad()
def test_decoder_continues_from_its_cache(family: str, tmp_path: Path) -> None:
    loaded = tiny(FAMILIES[family])
    record = OnnxRecord(graph="decoder", head="language")
    session = exported(loaded, record, tmp_path)
    specs = {"language": loaded.model.head_specs["language"]}
    models = (loaded.model, OnnxModel(loaded.model.architecture, specs, session, record))
    draw = torch.Generator().manual_seed(1)
    for b, t in ((1, 1), (7, 17), (3, 128)):
        first = torch.randint(0, t, (b,), generator=draw)
        first[0] = 0
        document = torch.where(torch.arange(t) >= first[:, None], 0, -1)
        caches = [model.backbone.new_cache(4) for model in models]
        for n_new, n_last in ((t, 1), (1, 1), (1, 1), (3, 3)):
            ids = torch.randint(0, loaded.model.vocab_size, (b, n_new), generator=draw)
            if caches[0].length:
                document = torch.cat((document, torch.zeros_like(ids)), 1)
            positions = ((document >= 0).cumsum(1) - 1).clamp(min=0)[:, -n_new:]
            batch = Batch(
                inputs=ids,
                visibility=Visibility(document=document if b > 1 else None, causal=True),
                position_ids=positions,
            )
            expected, found = (
                model.next_token_logits(batch, cache, n_last)
                for model, cache in zip(models, caches, strict=True)
            )
            close(found, expected)
        for cache in caches:
            cache.crop(cache.length - 2)
            cache.select_rows(torch.tensor([b - 1, 0]))
        assert caches[0].length == caches[1].length == t + 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: tiny("xlnet-mini"), "Transformer-XL in both directions"),
        (lambda: tiny("evolved-transformer-mini"), "layers with convolutions"),
        (lambda: get_preset("mae-mini"), "masked autoencoders are not exported"),
        (lambda: get_preset("canine-s"), "only Transformers .* CanineArchitecture"),
        (lambda: get_preset("awd-lstm"), "only Transformers .* got a"),
    ],
)
def test_unexportable_models_are_named(make: Callable[[], Any], reason: str) -> None:
    made = make()
    model = made.model if isinstance(made, LoadedModel) else made.build_without_memory()
    assert re.search(reason, unexportable_reason(model, None) or "")
