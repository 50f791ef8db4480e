"""Generation: a text depends neither on the cache nor on other texts of its batch."""

from dataclasses import replace

import pytest
import torch
from test_leak import FAMILIES, build

from unmask.batch import Batch, Visibility
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.decoding import common_prefix
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.settings import generation_config
from unmask.generation.speculative import DraftModel
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import EncoderDecoder
from unmask.tokenizers.spec import SpecialTokenIds

MODELS = {family: build(family) for family in FAMILIES}
GENERATING = [
    f for f, model in MODELS.items() if model.predicts_next_token and model.has_language_head
]
SPECIAL = SpecialTokenIds(vocab_size=50, pad=0, start=1, end=2)
PROMPTS = [[5, 9, 7, 30, 11, 4], [8], [21, 13, 40]]


def test_decoders_and_encoder_decoders_are_covered() -> None:
    assert {"gpt2", "t5", "gpt-bert"} <= set(GENERATING)


def forward(model: Model, prompt: int, read: int) -> Visibility:
    if not model.bidirectional_prompt:
        return Visibility(causal=True)
    return Visibility(rank=(torch.arange(read) - prompt + 1).clamp(min=0)[None])


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", GENERATING)
@torch.no_grad()
def test_cached_generation_equals_uncached(family: str) -> None:
    model = build(family)
    generated = generate(
        model, PROMPTS, replace(SPECIAL, end=None), generation_config(max_new_tokens=6)
    )
    for prompt, text in zip(PROMPTS, generated, strict=True):
        encoder = isinstance(model.backbone, EncoderDecoder)
        read = [*([SPECIAL.start] if encoder else prompt), *text]
        batch = Batch(
            inputs=torch.tensor([read]),
            visibility=forward(model, len(prompt), len(read)),
            source=torch.tensor([prompt]) if encoder else None,
        )
        best = model.language_head.logits(model.backbone(batch))[0].argmax(-1).tolist()
        assert text == best[-7:-1]


@pytest.mark.sample(5)
@pytest.mark.quick("beams", "gpt2", "llama", "t5")
@pytest.mark.parametrize("family", GENERATING)
@pytest.mark.parametrize(
    "how",
    [
        {"beams": 3, "n_best": 2, "max_new_tokens": 6},
        {"temperature": 1.0, "min_p": 0.01, "typical_p": 0.95, "max_new_tokens": 6, "seed": 1},
        {
            "repetition_penalty": 1.3,
            "no_repeat_ngram_size": 2,
            "min_new_tokens": 3,
            "max_new_tokens": 6,
        },
    ],
    ids=["beams", "drawn", "restrained"],
)
def test_prompt_alone_equals_prompt_in_batch(family: str, how: dict) -> None:
    model, config = build(family), generation_config(**how)

    def texts(prompts: list[list[int]]) -> list[list[tuple[int, ...]]]:
        if "beams" in how:
            found = generate_candidates(model, prompts, SPECIAL, config)
            return [[one.token_ids for one in best] for best in found]
        return [[tuple(ids)] for ids in generate(model, prompts, SPECIAL, config)]

    assert [texts([prompt])[0] for prompt in PROMPTS] == texts(PROMPTS)
    assert texts(PROMPTS[::-1]) == texts(PROMPTS)[::-1]


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", GENERATING)
@torch.no_grad()
def test_truncated_and_reordered_cache_equals_fresh_cache(family: str) -> None:
    model = build(family)
    encoder = isinstance(model.backbone, EncoderDecoder)

    def rows(texts: list[list[int]]) -> DecodingBatch:
        if not encoder:
            return DecodingBatch(model, [Prompt(input_ids=text) for text in texts], SPECIAL)
        return DecodingBatch(
            model, [Prompt(input_ids=text, source_ids=text[:1] * 3) for text in texts], SPECIAL
        )

    some = rows(PROMPTS)
    some.next_token_logits()
    some.append_tokens(torch.tensor([[3, 4], [5, 6], [7, 8]]))
    some.next_token_logits(2)
    some.append_tokens(torch.tensor([[9], [10], [11]]))
    some.crop(2)  # one that was not read yet, and one that was
    some.select_rows(torch.tensor([2, 0, 2]))
    some.append_tokens(torch.tensor([[12], [13], [14]]))
    expected = rows([[*PROMPTS[2], 7, 12], [*PROMPTS[0], 3, 13], [*PROMPTS[2], 7, 14]])
    torch.testing.assert_close(
        some.next_token_logits(), expected.next_token_logits(), rtol=1e-4, atol=1e-4
    )


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", GENERATING)
def test_draft_does_not_change_greedy_text(family: str) -> None:
    model = build(family)
    config = generation_config(max_new_tokens=6)
    draft = DraftModel(model=build(family), draft_tokens=2)
    for weight in list(draft.model.parameters())[1:3]:
        torch.nn.init.normal_(weight.data, std=0.3)
    generated = generate(model, PROMPTS, SPECIAL, config, draft=draft)
    assert generated == generate(model, PROMPTS, SPECIAL, config)
    assert draft.n_drafted > 0


@pytest.mark.sample(3)
@pytest.mark.quick("gpt2", "t5")
@pytest.mark.parametrize("family", GENERATING)
@torch.no_grad()
def test_equal_prompts_are_read_once(family: str) -> None:
    model = build(family)
    encoder = isinstance(model.backbone, EncoderDecoder)
    texts = [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]]
    prompts = [
        Prompt(input_ids=text[:1] if encoder else text, source_ids=text if encoder else None)
        for text in texts
    ]
    read: list[int] = []
    hook = model.backbone.embedding_table.register_forward_hook(
        lambda _, ids, __: read.append(len(ids[0]))
    )
    batch = DecodingBatch(model, prompts, SPECIAL)
    found = [batch.next_token_logits()]
    hook.remove()
    assert set(read) == {2}
    batch.append_tokens(torch.tensor([[3], [4], [5], [6]]))
    found.append(batch.next_token_logits())
    alone = [DecodingBatch(model, [prompt], SPECIAL) for prompt in prompts]
    expected = [[one.next_token_logits() for one in alone]]
    for one, token in zip(alone, (3, 4, 5, 6), strict=True):
        one.append_tokens(torch.tensor([[token]]))
    expected.append([one.next_token_logits() for one in alone])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, torch.cat(theirs), rtol=1e-4, atol=1e-4)


@pytest.mark.sample(5)
@pytest.mark.quick("gpt2", "llama", "lstm")
@pytest.mark.parametrize("lengths", [(1, 4, 2), (3, 3, 3)], ids=["unequal", "equal"])
@pytest.mark.parametrize("family", GENERATING)
@torch.no_grad()
def test_common_prefix_is_read_once(
    family: str, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once; then logits, beams and removed tokens are those of prompts alone."""
    model = build(family)
    if isinstance(model.backbone, EncoderDecoder):
        pytest.skip("prompts are sources, which are read by the encoder")
    monkeypatch.setattr(common_prefix, "MIN_SAVED_TOKENS", 1)
    first, rest = [5, 9, 7, 30], [11, 4, 8, 21, 13, 40]
    texts = [[*first, *rest[i : i + n]] for i, n in enumerate(lengths)]
    read: list[int] = []
    hook = model.backbone.embedding_table.register_forward_hook(
        lambda _, ids, __: read.append(ids[0].numel())
    )
    batch = DecodingBatch(model, [Prompt(input_ids=text) for text in texts], SPECIAL)
    found = [batch.next_token_logits()]
    hook.remove()
    assert batch.visible_columns.shape == (3, batch.cache.length)
    shares = len({*lengths}) == 1 or batch.cache.can_shift
    if shares and not model.bidirectional_prompt and model.appended_mask_generation is None:
        assert sum(read) == len(first) + 3 * max(lengths)
    else:
        assert sum(read) >= 3 * (len(first) + max(lengths))
    batch.append_tokens(torch.tensor([[3], [4], [6]]))
    found.append(batch.next_token_logits())
    batch.crop(1)
    batch.select_rows(torch.tensor([2, 0]))
    batch.append_tokens(torch.tensor([[6], [3]]))
    found.append(batch.next_token_logits())
    alone = [DecodingBatch(model, [Prompt(input_ids=text)], SPECIAL) for text in texts]
    expected = [torch.cat([one.next_token_logits() for one in alone])]
    for one, token in zip(alone, (3, 4, 6), strict=True):
        one.append_tokens(torch.tensor([[token]]))
    expected.append(torch.cat([one.next_token_logits() for one in alone]))
    expected.append(expected[-1][[2, 0]])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    for how in ({"beams": 3}, {}):
        config = generation_config(**how, max_new_tokens=6)
        texts_alone = [generate(model, [text], SPECIAL, config)[0] for text in texts]
        assert generate(model, texts, SPECIAL, config) == texts_alone
