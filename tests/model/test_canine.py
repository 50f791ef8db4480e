"""CANINE's network against the reference library's, and what may depend on what in it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import _fill, saved
from safetensors.torch import load_file
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.model.backbones.canine import Canine, CanineArchitecture
from unmask.model.layers.embeddings.character_hash import CharacterHashEmbedding
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.rotary import Rotary
from unmask.model.requested_states import RequestedStates
from unmask.zoo.encoders.canine import BASE, CANINE_C

TOLERANCE = 1e-5  # relative to the largest number of the reference, float32


assert CANINE_C.classification_head is not None
LABELS = CANINE_C.classification_head


def theirs(kind: str = "CanineModel", **changes: Any) -> Any:
    import transformers as hf

    sizes = {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 64, "num_hash_buckets": 512, "max_position_embeddings": 512,
        "local_transformer_stride": 8,
    }  # fmt: skip
    return _fill(getattr(hf, kind)(hf.CanineConfig(**(sizes | changes))))


def texts(lengths: list[int], t: int, seed: int = 1) -> tuple[Batch, dict[str, Tensor]]:
    """Make padded texts of any code points, for both libraries."""
    draw = torch.Generator().manual_seed(seed)
    real = torch.arange(t)[None] < torch.tensor(lengths)[:, None]
    ids = torch.where(real, torch.randint(1, 0x110000, (len(lengths), t), generator=draw), 0)
    segments = torch.randint(2, ids.shape, generator=draw)
    batch = Batch(
        inputs=ids,
        visibility=Visibility(document=torch.where(real, 0, -1)),
        segments=segments,
        last_token_positions=torch.tensor(lengths) - 1,
    )
    given = {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": segments}
    return batch, given


def relative_difference(ours: Tensor, other: Tensor) -> float:
    return float((ours - other).abs().max() / other.abs().max())


SHAPES: dict[str, Callable[[], Any]] = {
    "blocks of 8": theirs,
    "blocks of 128": lambda: theirs(local_transformer_stride=128),
    "other rates, kernels and hashes": lambda: theirs(
        downsampling_rate=3, upsampling_kernel_size=5, num_hash_functions=4, hidden_act="relu",
        type_vocab_size=2,
    ),
}  # fmt: skip
LENGTHS = [([37, 20, 3], 37), ([40, 16, 8], 40), ([19, 8, 1], 19), ([300, 256, 127], 300)]
"""No multiple of 4, of 8 or of 128; multiples; shorter than a molecule; three blocks of 128."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("lengths", "t"), LENGTHS)
@torch.no_grad()
def test_hidden_states_and_pooled_output_equal_reference(
    shape: str, lengths: list[int], t: int, tmp_path: Path
) -> None:
    reference = SHAPES[shape]()
    loaded = load_folder(saved(reference, tmp_path))
    assert loaded.missing == ()
    model, (batch, given) = loaded.model, texts(lengths, t)
    out = reference(**given, output_hidden_states=True)
    real = given["attention_mask"].bool()
    hidden = model.hidden_states(batch)
    assert relative_difference(hidden[real], out.last_hidden_state[real]) < TOLERANCE
    both = model.hidden_states(batch.with_feature(RequestedStates(summary=True)))
    deep = out.hidden_states[2 + reference.config.num_hidden_layers]  # leaves the deep stack
    assert relative_difference(both[:, 0], deep[:, 0]) < TOLERANCE
    assert torch.equal(both[:, 1:], hidden)
    only = torch.tensor(lengths) - 1
    alone = model.hidden_states(
        batch.with_feature(RequestedStates(summary=True, selected_column=only * 0))
    )
    assert torch.equal(alone, both[:, :1])
    one = model.hidden_states(batch.with_feature(RequestedStates(selected_column=only)))
    assert relative_difference(one[:, 0], hidden[torch.arange(len(lengths)), only]) < TOLERANCE


@torch.no_grad()
def test_text_without_padding_needs_no_mask(tmp_path: Path) -> None:
    reference = theirs()
    model = load_folder(saved(reference, tmp_path)).model
    batch, given = texts([37, 37], 37)
    out = reference(input_ids=given["input_ids"])
    mine = model.hidden_states(Batch(inputs=batch.inputs))
    assert relative_difference(mine, out.last_hidden_state) < TOLERANCE


LABELLED = {
    "CanineForSequenceClassification": "label",
    "CanineForTokenClassification": "token_label",
    "CanineForQuestionAnswering": "span",
}


@pytest.mark.parametrize("kind", LABELLED)
@torch.no_grad()
def test_head_outputs_equal_reference(kind: str, tmp_path: Path) -> None:
    answering = "Question" in kind
    reference = theirs(kind, **({} if answering else {"num_labels": 3}))
    loaded = load_folder(saved(reference, tmp_path))
    assert loaded.missing == ()
    assert loaded.unexpected == ()
    batch, given = texts([37, 20, 5], 37)
    out = reference(**given)
    logits = loaded.model(batch, return_logits=True).logits[LABELLED[kind]]
    expected = torch.stack((out.start_logits, out.end_logits), -1) if answering else out.logits
    real = given["attention_mask"].bool()
    if logits.ndim == 3:
        logits, expected = logits[real], expected[real]
    assert relative_difference(logits, expected) < TOLERANCE


@pytest.mark.parametrize("kind", [*LABELLED, "CanineForMultipleChoice"])
def test_weights_and_config_round_trip_bitwise(kind: str, tmp_path: Path) -> None:
    reference = theirs(kind)
    opened = load_folder(saved(reference, tmp_path / "theirs"))
    write_folder(tmp_path / "back", opened.model, opened.preset, None)
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    after = load_file(tmp_path / "back" / "model.safetensors")
    assert set(before) - set(after) == set(opened.unexpected)
    assert all(torch.equal(before[name], after[name]) for name in after)
    loaded, output = type(reference).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert set(output["missing_keys"]) == set(opened.unexpected)
    assert not output["unexpected_keys"]
    config, again = reference.config.to_dict(), loaded.config.to_dict()
    ignored = {"transformers_version", "_name_or_path", "dtype", "architectures"}
    assert {n: x for n, x in config.items() if n not in ignored} == {
        n: again[n] for n in config if n not in ignored
    }


def test_number_of_positions_must_equal_number_of_buckets(tmp_path: Path) -> None:
    loaded = load_folder(saved(theirs(), tmp_path / "theirs"))
    other = replace(loaded.preset.architecture, position=LearnedPositions(100))
    with pytest.raises(ValueError, match="one position per bucket, 512"):
        loaded.preset.config_mapping.from_architecture(other)


def test_published_size_equals_reference() -> None:
    import transformers as hf

    with torch.device("meta"):
        reference, ours = hf.CanineModel(hf.CanineConfig()), CANINE_C.build()
        labelled = CANINE_C.build({"label": LABELS})
    pooler = sum(p.numel() for p in reference.pooler.parameters())
    backbone = sum(p.numel() for p in ours.backbone.parameters())
    assert reference.num_parameters() == backbone + pooler == 132_082_944
    bare = sum(p.numel() for n, p in labelled.named_parameters() if ".out." not in n)
    assert bare == 132_082_944
    assert CANINE_C.config_mapping.to_architecture(hf.CanineConfig().to_dict()) == replace(
        BASE,
        initializer=CANINE_C.config_mapping.to_architecture(
            hf.CanineConfig().to_dict()
        ).initializer,
    )


@torch.no_grad()
def test_choice_scores_equal_reference(tmp_path: Path) -> None:
    reference = theirs("CanineForMultipleChoice")
    loaded = load_folder(saved(reference, tmp_path))
    assert (loaded.missing, loaded.unexpected) == ((), ())
    batch, given = texts([37, 20, 5], 37)
    out = reference(**{name: x[None] for name, x in given.items()})
    logits = loaded.model(batch, return_logits=True).logits["choice"]
    assert relative_difference(logits[:, 0], out.logits[0]) < TOLERANCE


@torch.no_grad()
def test_hashes_equal_reference() -> None:
    reference = theirs().char_embeddings
    ids = torch.tensor([[0, 1, 65, 0xE003, 0x1F451, 0x10FFFF]])
    table = CharacterHashEmbedding(8, 512, 32)
    for mine, i in zip(table, range(8), strict=True):
        mine.weight.copy_(getattr(reference, f"HashBucketCodepointEmbedder_{i}").weight)
    expected = reference._hash_bucket_tensors(ids, num_hashes=8, num_buckets=512)
    assert torch.equal(table.buckets(ids), torch.stack(expected, -1))
    assert table.buckets(torch.tensor([65])).tolist() == [
        [66 * p % 512 for p in (31, 43, 59, 61, 73, 97, 103, 113)]
    ]
    assert torch.equal(table(ids), reference._embed_hash_buckets(ids, 32, 8, 512))


def network(**changes: Any) -> Canine:
    sizes = {
        "d_model": 16, "n_heads": 2, "d_ff": 16, "n_layers": 2, "n_hash_buckets": 64,
        "local_attention_block": 8, "position": LearnedPositions(64),
    }  # fmt: skip
    model = Canine(replace(BASE, **(sizes | changes))).eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


@torch.no_grad()
def test_well_padded_text_does_not_depend_on_others() -> None:
    model = network()
    for n in range(1, 36):
        batch, _ = texts([n], n)
        short = model(model.pad_for_network(batch))[0, :n]
        longer, _ = texts([n, 37], 37)
        longer.inputs[0, :n], longer.segments[0, :n] = batch.inputs[0], batch.segments[0]
        longer.segments[0, n:] = 0
        long = model(model.pad_for_network(longer))[0, :n]
        assert relative_difference(short, long) < TOLERANCE, n
    assert (
        relative_difference(
            model(texts([5], 5)[0]), model(model.pad_for_network(texts([5], 5)[0]))[:, :5]
        )
        > 1e-3
    )


def visible_inputs(model: Canine, batch: Batch) -> dict[str, Tensor]:
    """Say which characters move what is made of each: at the first block, the deep stack, at last.

    Rows are what is made, columns the characters.
    """
    seen: dict[str, Tensor] = {}
    handles = [
        model.first.register_forward_hook(lambda m, i, out: seen.update(first=out)),
        model.down.register_forward_hook(lambda m, i, out: seen.update(down=out)),
    ]
    table: list[Tensor] = []

    def keep(module: Any, inputs: Any, out: Tensor) -> Tensor:
        table.append(out.detach().requires_grad_(True))
        return table[0]

    handles.append(model.tokens.register_forward_hook(keep))
    seen["last"] = model(batch)
    for handle in handles:
        handle.remove()
    direction = torch.randn(model.width)
    return {
        name: torch.stack(
            [
                torch.autograd.grad((out[0, i] @ direction), table[0], retain_graph=True)[0][0]
                for i in range(out.shape[1])
            ]
        )
        .abs()
        .sum(-1)
        > 1e-12
        for name, out in seen.items()
    }


def test_stages_see_local_block_then_molecules_then_everything() -> None:
    t = 19
    depends = visible_inputs(network(), texts([t], t)[0])
    block = torch.arange(t) // 8
    assert torch.equal(depends["first"], block[:, None] == block[None])
    molecules = depends["down"]
    assert len(molecules) == t // 4
    starts = [0, 0, 4, 8]  # the first is [CLS]; the others are moved on by one
    expected = torch.stack(
        [torch.isin(block, block[i : i + (4 if m else 1)].unique()) for m, i in enumerate(starts)]
    )
    assert torch.equal(molecules, expected)
    assert depends["last"].all()


def test_padding_is_visible_only_where_the_reference_sees_it() -> None:
    n, t = 13, 40
    depends = visible_inputs(network(), texts([n], t)[0])
    assert not depends["first"][:8, 8:].any()
    assert not depends["first"][8:n, n:].any()
    text = depends["last"][:n]
    assert text[:, :n].all()
    # the molecule of the last character and those after it, and two characters more
    assert not text[:, n + 7 :].any()


def test_unsupported_inputs_are_refused() -> None:
    model, (batch, _) = network(), texts([9], 9)
    positions = torch.arange(9)[None]
    for change, message in (
        ({"position_ids": positions}, "one text per row"),
        ({"part_ids": positions * 0, "position_ids": positions}, "one text per row"),
        ({"visibility": Visibility(causal=True)}, "is bidirectional"),
        ({"visibility": Visibility(rank=positions)}, "is bidirectional"),
        ({"features": (RequestedStates(all_layers=True),)}, "different positions"),
    ):
        with pytest.raises(ValueError, match=message):
            model(replace(batch, **change))
    with pytest.raises(ValueError, match="longer than the model's 64 positions"):
        model(texts([65], 65)[0])


def test_impossible_architecture_is_refused() -> None:
    for change, message in (
        ({"causal": True}, "causal = True"),
        ({"embedding_size": 8}, "embedding_size = 8 is not supported"),
        ({"n_hash_functions": 7}, "not a multiple of n_hash_functions"),
        ({"n_hash_functions": 17}, "from 1 to 16"),
        ({"downsampling_rate": 0}, "downsampling_rate must be at least 1"),
        ({"position": Rotary()}, "must be LearnedPositions"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(BASE, **change)
    for labels in (
        SequenceClassification(pooling="compare"),
        SequenceClassification(pooled_layers="all"),
    ):
        with pytest.raises(ValueError, match="are not possible"):
            Model(network().a, {"label": labels})


def test_flops_equal_measured_products() -> None:
    a = network(n_layers=3).a
    assert isinstance(a, CanineArchitecture)
    d, f, t = 16, 16, 24
    layer = 2 * (4 * d * d + 2 * d * f)
    deep = 3 * (layer + 4 * d * t / 4) / 4
    around = 2 * layer + 4 * d * (8 + t)
    convolutions = 2 * d * d + 2 * 4 * 2 * d * d  # a molecule's, shared by four; kernel 4 of 2 d
    assert a.flops(t) == pytest.approx(deep + around + convolutions)
