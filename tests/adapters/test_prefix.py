"""Learned tokens before the text: alone, padded, packed, with a cache, and where positions end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unmask.adapters.attach import attach, detach, freeze, use_adapters
from unmask.adapters.prefix import (
    PrefixTuning,
    PrefixTuningModule,
    PromptTuning,
    PromptTuningModule,
    max_text_length,
)
from unmask.batch import IGNORE_INDEX, Batch, Example, Visibility
from unmask.batching.collate import pack_examples, pad_examples
from unmask.generation.decode import generate
from unmask.generation.decoding import common_prefix
from unmask.generation.settings import GenerationConfig
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.model.requested_states import RequestedStates
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.encoder_decoders import bart, transformer
from unmask.zoo.encoder_decoders.t5 import ENCODER, encoder_decoder

SPECIAL = SpecialTokenIds(vocab_size=30, pad=0, start=2, end=None)
BERT = Architecture(
    vocab_size=30, d_model=16, n_layers=3, n_heads=2, d_ff=32, n_segments=2,
    position=LearnedPositions(24), embedding_norm=True, initializer=NormalInit(0.4),
)  # fmt: skip
GPT = replace(
    BERT,
    n_segments=0,
    embedding_norm=False,
    norm_placement=PRE_NORM,
    final_norm=True,
    causal=True,
    n_kv_heads=1,
)
T5 = encoder_decoder(
    replace(ENCODER, vocab_size=30, d_model=16, n_layers=2, n_heads=2, d_ff=32, head_dim=8)
)
BART = transformer.encoder_decoder(
    replace(
        bart.ENCODER, vocab_size=30, d_model=16, n_layers=2, n_heads=2, d_ff=32,
        position=LearnedPositions(24, bart.OFFSET), initializer=NormalInit(0.4),
    )
)  # fmt: skip
FAMILIES = {"bert": BERT, "gpt": GPT, "t5": T5, "bart": BART}
HEADS: dict[str, HeadSpec] = {
    "bert": SequenceClassification(n_labels=3),
    "gpt": LanguageModeling(),
    "t5": LanguageModeling(scale_hidden=True),
    "bart": LanguageModeling(),
}
SPECS = [
    PrefixTuning(n_virtual_tokens=4),
    PrefixTuning(n_virtual_tokens=3, projection_size=5),
    PromptTuning(n_virtual_tokens=4),
]


def model(family: str, head: HeadSpec | None = None) -> Model:
    """Make a model in which what is read matters: no dropout, no bias drowns it."""
    made = Model(FAMILIES[family], {"head": head or HEADS[family]})
    return made.initialize(1).eval()


def with_adapter(family: str, spec: Any, head: HeadSpec | None = None) -> Model:
    made = model(family, head)
    module = attach(made, spec)
    generator = torch.Generator().manual_seed(2)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.7, generator=generator)
    return made


def examples(family: str, lengths: Sequence[int], seed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    made = []
    for n in lengths:
        ids = rng.integers(5, 30, n)
        targets = np.roll(ids, -1)
        if family in ("t5", "bart"):
            start = np.concatenate(([0], ids[:3]))
            rank = np.arange(len(start))
            made.append(Example(inputs=start, targets=start, rank=rank, source=ids))
        elif family == "gpt":
            made.append(Example(inputs=ids, targets=targets, rank=np.arange(n)))
        else:
            label = int(rng.integers(3))
            nothing = np.full(n, IGNORE_INDEX)
            segments = (np.arange(n) > n // 2).astype(np.int64)
            made.append(Example(inputs=ids, targets=nothing, segments=segments, label=label))
    return made


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_output_does_not_depend_on_padding(family: str, spec: Any) -> None:
    made, some = with_adapter(family, spec), examples(family, (3, 11, 7))
    together = made.hidden_states(pad_examples(some, SPECIAL))
    for row, one in zip(together, some, strict=True):
        alone = made.hidden_states(pad_examples([one], SPECIAL))[0]
        assert alone.shape[0] == len(one.inputs)
        assert close(row[: len(alone)], alone)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_changes_outputs_and_detach_restores_them(family: str, spec: Any) -> None:
    batch = pad_examples(examples(family, (5, 9)), SPECIAL)
    plain = model(family).hidden_states(batch)
    made = with_adapter(family, spec)
    assert not close(made.hidden_states(batch), plain)
    with use_adapters(made, None):
        assert torch.equal(made.hidden_states(batch), plain)
    assert not close(made.hidden_states(batch), plain)
    detach(made, "default")
    assert torch.equal(made.hidden_states(batch), plain)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in made.modules())


@pytest.mark.sample(6)
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_only_prefix_parameters_receive_gradients(family: str, spec: Any) -> None:
    made = with_adapter(family, spec)
    freeze(made)
    made.heads.requires_grad_(False)
    learned = [p for p in made.parameters() if p.requires_grad]
    assert {id(p) for p in learned} == {id(p) for p in made.adapters.parameters()}
    optimizer = torch.optim.SGD(learned, 1e-3)
    batch, losses = pad_examples(examples(family, (5, 9, 6)), SPECIAL), []
    for _ in range(5):
        loss = made(batch).loss
        loss.backward()
        assert all(p.grad is not None and bool(p.grad.any()) for p in learned)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_every_packed_text_sees_the_prefix(family: str) -> None:
    made = with_adapter(family, PrefixTuning(n_virtual_tokens=4), TokenClassification())
    some = [replace(e, label=None) for e in examples(family, (3, 8, 5))]
    packed = made.hidden_states(pack_examples(some, SPECIAL, 20))
    assert len(packed) == 1
    alone = torch.cat([made.hidden_states(pad_examples([e], SPECIAL))[0] for e in some])
    assert close(packed[0, : len(alone)], alone)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("family", ["bert", "gpt"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_each_packed_text_equals_text_alone(family: str, spec: Any, layers: str) -> None:
    made = with_adapter(family, spec, TokenClassification())
    texts = [replace(e, label=None) for e in examples(family, (3, 8, 5, 2, 4))]

    def joined(a: Example, b: Example | None) -> Example:
        ids = [a.inputs] if b is None else [a.inputs, b.inputs]
        part = np.repeat([0, 1][: len(ids)], [len(one) for one in ids])
        inputs = np.concatenate(ids)
        return Example(
            inputs=inputs,
            targets=np.full(len(inputs), IGNORE_INDEX),
            rank=None if family == "bert" else np.arange(len(inputs)),
            segments=np.concatenate([e.segments for e in (a, b) if e and e.segments is not None])
            if family == "bert"
            else None,
            part_ids=part,
        )

    pairs = [(texts[0], texts[1]), (texts[2], None), (texts[3], texts[4])]
    batch = pad_examples([joined(*pair) for pair in pairs], SPECIAL).with_feature(
        RequestedStates(all_layers=layers == "all")
    )
    together = made.hidden_states(batch)
    for row, pair in zip(together, pairs, strict=True):
        whole = [
            pad_examples([e], SPECIAL).with_feature(RequestedStates(all_layers=layers == "all"))
            for e in pair
            if e
        ]
        alone = torch.cat([made.hidden_states(one)[0] for one in whole])
        assert close(row[: len(alone)], alone)


def test_prompt_refuses_rows_of_several_texts() -> None:
    made = with_adapter("gpt", PromptTuning(n_virtual_tokens=4))
    with pytest.raises(ValueError, match="one text per row"):
        made.hidden_states(pack_examples(examples("gpt", (3, 4)), SPECIAL, 20))


@pytest.mark.sample(4)
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("family", ["gpt", "t5", "bart"])
@pytest.mark.parametrize("first", [[], [7, 8, 9]], ids=["apart", "common prefix"])
def test_cached_generation_equals_full_forward(
    family: str, spec: Any, first: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_prefix, "MIN_SAVED_TOKENS", 1)
    made = with_adapter(family, spec)
    prompts = [[*first, *rest] for rest in ([7, 8, 9, 5, 11], [20], [6, 6, 13])]
    for generated, prompt in zip(
        generate(made, prompts, SPECIAL, GenerationConfig(max_new_tokens=8)), prompts, strict=True
    ):
        assert len(generated) == 8
        for n in range(8):
            read = generated[:n]
            if family == "gpt":
                batch = Batch(
                    inputs=torch.tensor([prompt + read]), visibility=Visibility(causal=True)
                )
            else:
                batch = Batch(
                    inputs=torch.tensor([[SPECIAL.start, *read]]),
                    visibility=Visibility(causal=True),
                    source=torch.tensor([prompt]),
                )
            with torch.no_grad():
                scores = made.language_head.logits(made.hidden_states(batch)[0, -1])
            assert int(scores.argmax()) == generated[n]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_cache_rows_can_be_selected_and_repeated(spec: Any) -> None:
    made = with_adapter("gpt", spec)
    ids = torch.randint(5, 30, (3, 6), generator=torch.Generator().manual_seed(0))
    rows, after = torch.tensor([2, 0, 0, 1]), torch.tensor([[9], [8], [7], [6]])
    causal = Visibility(causal=True)
    cache = made.backbone.new_cache()
    with torch.no_grad():
        made.backbone(Batch(inputs=ids, visibility=causal), cache)
        cache.select_rows(rows)
        step = made.backbone(Batch(inputs=after, visibility=causal), cache)
        again = made.hidden_states(
            Batch(inputs=torch.cat((ids[rows], after), 1), visibility=causal)
        )
    assert close(step[:, 0], again[:, -1])


def test_cache_filled_without_prefix_is_refused() -> None:
    made = with_adapter("gpt", PrefixTuning(n_virtual_tokens=4))
    batch = Batch(inputs=torch.tensor([[5, 6]]), visibility=Visibility(causal=True))
    cache = made.backbone.new_cache()
    with use_adapters(made, None):
        made.backbone(batch, cache)
    with pytest.raises(ValueError, match="after 0 virtual tokens, now there are 4"):
        made.backbone(batch, cache)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_virtual_tokens_use_up_positions(family: str, spec: Any) -> None:
    made, room = with_adapter(family, spec), 24 - spec.n_virtual_tokens
    made.hidden_states(pad_examples(examples(family, (room,)), SPECIAL))
    with pytest.raises(
        ValueError, match=f"a text of {room + 1} tokens need 25 positions.* only 24"
    ):
        made.hidden_states(pad_examples(examples(family, (room + 1,)), SPECIAL))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_generation_ends_at_last_position_after_virtual_tokens(spec: Any) -> None:
    made, room = with_adapter("gpt", spec), 24 - spec.n_virtual_tokens
    prompts = [[6] * room, [7] * (room - 3), [5]]
    config = GenerationConfig(max_new_tokens=room + 5)
    assert [len(generated) for generated in generate(made, prompts, SPECIAL, config)] == [
        1,
        4,
        room,
    ]
    with pytest.raises(ValueError, match=f"has {room + 1} tokens, but the model only {room} pos"):
        generate(made, [[6] * (room + 1)], SPECIAL, config)
    attach(made, PromptTuning(n_virtual_tokens=8), "other")
    with use_adapters(made, None):
        assert len(generate(made, [[6] * 24], SPECIAL, config)[0]) == 1
    with use_adapters(made, "other"), pytest.raises(ValueError, match="only 16 positions"):
        generate(made, [[6] * 17], SPECIAL, config)


def test_virtual_tokens_use_positions_of_their_own_stack() -> None:
    made = with_adapter("gpt", PrefixTuning(n_virtual_tokens=5))
    assert max_text_length(made, made.backbone.decoder_stack) == 24 - 5
    made = with_adapter("gpt", PromptTuning(n_virtual_tokens=30))
    assert max_text_length(made, made.backbone.decoder_stack) == 0
    for spec, positions in (
        (PrefixTuning(n_virtual_tokens=5), (24, 19)),
        (PromptTuning(n_virtual_tokens=5), (19, 24)),
    ):
        both = replace(FAMILIES["t5"].encoder, position=LearnedPositions(24))
        decoder = replace(both, causal=True, cross_attention=True)
        a = replace(FAMILIES["t5"], encoder=both, decoder=decoder)
        made = Model(a, {}).initialize(1)
        attach(made, spec)
        assert (
            max_text_length(made, made.backbone.encoder_stack),
            max_text_length(made, made.backbone.decoder_stack),
        ) == positions
    assert max_text_length(model("t5"), model("t5").backbone.encoder_stack) is None


def test_prefix_mlp_is_two_linear_layers_and_tanh() -> None:
    made = model("bert")
    module = cast(
        PrefixTuningModule, attach(made, PrefixTuning(n_virtual_tokens=3, projection_size=5))
    )
    assert module.table is not None
    assert module.into is not None
    assert module.out is not None
    assert tuple(module.keys_values().shape) == (3, 2 * 3 * 16)
    inner = torch.tanh(module.table @ module.into.weight.T + module.into.bias)
    assert close(module.keys_values(), inner @ module.out.weight.T + module.out.bias)


def test_attention_prefix_is_extra_keys_and_values() -> None:
    """One layer written out: softmax over the prefix and the text together."""
    a = replace(
        BERT, n_layers=1, n_heads=1, norm_placement=frozenset(), embedding_norm=False, n_segments=0
    )
    made = Model(a, {}).initialize(0).eval()
    module = cast(PrefixTuningModule, attach(made, PrefixTuning(n_virtual_tokens=2)))
    assert module.vectors is not None
    nn.init.normal_(module.vectors, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[5, 6, 7]])
    x = made.backbone.embedding_table(ids)[0] + made.backbone.position.table(torch.arange(2, 5))
    layer = made.backbone.layers[0]
    k, v = module.vectors.view(2, 2, 16).unbind(1)
    k = torch.cat((k, layer.attention.k(x)))
    v = torch.cat((v, layer.attention.v(x)))
    share = (layer.attention.q(x) @ k.T / 4).softmax(-1)
    x = x + layer.attention.o(share @ v)
    x = x + layer.feed_forward(x[None])[0]
    assert close(made.hidden_states(Batch(inputs=ids))[0], x)


def test_first_column_pooling_reads_first_prompt_token() -> None:
    spec, ids = PromptTuning(n_virtual_tokens=3), torch.tensor([[5, 6, 7, 8]])
    first, tokens = (
        with_adapter("bert", spec, head)
        for head in (SequenceClassification(), TokenClassification())
    )
    hidden, plain = first.hidden_states(Batch(inputs=ids)), tokens.hidden_states(Batch(inputs=ids))
    assert close(hidden[:, 1:], plain[:, 1:])
    assert not close(hidden[:, 0], plain[:, 0])


def test_prompt_is_initialized_from_vocabulary_or_text() -> None:
    made = model("gpt")
    table = made.backbone.embedding_table.weight
    drawn = cast(
        PromptTuningModule, attach(made, PromptTuning(n_virtual_tokens=6), "drawn", seed=3)
    )
    assert all(bool((table == row).all(1).any()) for row in drawn.vectors)
    other = cast(
        PromptTuningModule, attach(made, PromptTuning(n_virtual_tokens=6), "other", seed=4)
    )
    assert not torch.equal(drawn.vectors, other.vectors)
    output = cast(
        PromptTuningModule,
        attach(made, PromptTuning(n_virtual_tokens=5, init_text="three words"), "words"),
    )
    with (
        use_adapters(made, "words"),
        pytest.raises(ValueError, match="init_text is set: give the tokens of"),
    ):
        made.hidden_states(Batch(inputs=torch.tensor([[5]])))
    output.initialize_from(made, [9, 8, 7])
    assert torch.equal(output.vectors, table[[9, 8, 7, 9, 8]])
    with pytest.raises(ValueError, match="has no tokens"):
        output.initialize_from(made, [])
    before = table.clone()
    with torch.no_grad():
        output.vectors.add_(1)
    assert torch.equal(table, before)


@pytest.mark.parametrize(
    "build", [lambda: PrefixTuning(n_virtual_tokens=0), lambda: PromptTuning(n_virtual_tokens=0)]
)
def test_zero_virtual_tokens_are_refused(build: Any) -> None:
    with pytest.raises(ValueError, match="n_virtual_tokens must be at least 1, got 0"):
        build()


def test_prefixes_cannot_be_mixed_in_one_batch() -> None:
    made = with_adapter("bert", PrefixTuning(n_virtual_tokens=2))
    with pytest.raises(ValueError, match="all rows"), use_adapters(made, ["default", None]):
        pass
