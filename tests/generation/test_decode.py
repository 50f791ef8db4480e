"""Decoding: greedy text equals the reference's, and what is drawn is drawn as it should be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import V, bert, gemma2, gemma3, gpt2, llama, neox, saved, t5

from unmask.checkpoints.huggingface import open_folder
from unmask.generation import decode
from unmask.generation.decode import Decoding, generate, kept_shares, pick
from unmask.heads.model import Model
from unmask.tokens.vocabulary import Special

SPECIAL = Special(size=V, pad=0, start=0, end=None)
MODELS = {
    "gpt2": gpt2,
    "llama": llama,
    "mistral": lambda: llama(name="Mistral", sliding_window=6),
    "gemma2": lambda: gemma2(tie_word_embeddings=False),
    "gemma3": lambda: gemma3(tie_word_embeddings=False),
    "neox": neox,
    "t5": t5,
    "t5 v1.1": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Model]]:
    made = {}
    for name, make in MODELS.items():
        reference = make()
        with torch.no_grad():  # biases would drown what is read: every text would be the same
            for part, weight in reference.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(0.0 if part.endswith("bias") else 1.0)
        folder = saved(reference, tmp_path_factory.mktemp("model"))
        made[name] = reference, open_folder(folder).model
    return made


def prompts(lengths: tuple[int, ...] = (9, 1, 14, 5, 5), seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, V, n).tolist() for n in lengths]


def theirs(reference: Any, texts: list[list[int]], end: int | None, n: int) -> list[list[int]]:
    """Let the reference generate a batch greedily; return what is new, the end left out."""
    encoder = reference.config.is_encoder_decoder
    width = max(map(len, texts))
    ids, there = torch.zeros(2, len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if encoder else slice(width - len(text), width)
        ids[row, place], there[row, place] = torch.tensor(text), 1
    reference.generation_config.eos_token_id = end
    out = reference.generate(
        input_ids=ids, attention_mask=there, max_new_tokens=n, do_sample=False, pad_token_id=0
    )
    new = out[:, 1 if encoder else width :].tolist()
    return [row[: row.index(end)] if end in row else row[:n] for row in new]


@pytest.mark.parametrize("family", MODELS)
def test_greedy_text_equals_the_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    texts = prompts()
    expected = theirs(reference, texts, None, 20)
    assert len({tuple(row) for row in expected}) == len(texts)  # they do differ
    assert generate(model, texts, SPECIAL, Decoding(new_tokens=20)) == expected


@pytest.mark.parametrize("family", MODELS)
def test_rows_that_end_early_equal_the_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    texts = prompts((9, 1, 14, 5, 5, 8, 3), seed=3)
    free = theirs(reference, texts, None, 20)
    ended = 0
    ends = {t for row in free for t in row if row.index(t) > 0}
    for end in [free[0][0], *sorted(ends)[:5]]:
        expected = theirs(reference, texts, end, 20)
        special = replace(SPECIAL, end=end)
        assert generate(model, texts, special, Decoding(new_tokens=20)) == expected
        ended += len({len(row) for row in expected}) > 1
    assert ended >= 3  # times at which some rows ended and others went on


@pytest.mark.parametrize("family", MODELS)
def test_a_prompt_alone_equals_the_same_one_among_others(family: str, models: dict) -> None:
    _, model = models[family]
    texts = prompts((9, 1, 14, 5, 20, 3))
    special = replace(SPECIAL, end=generate(model, texts, SPECIAL)[2][6])
    for how in (Decoding(new_tokens=15), Decoding(new_tokens=15, temperature=0.8, seed=4)):
        together = generate(model, texts, special, how)
        assert [generate(model, [text], special, how)[0] for text in texts] == together
        assert generate(model, texts[::-1], special, how) == together[::-1]


def test_what_is_held_at_once_does_not_matter(models: dict, monkeypatch: Any) -> None:
    _, model = models["gpt2"]
    texts = prompts((9, 1, 14, 5, 20, 3))
    how = Decoding(new_tokens=10, temperature=1.0, top_p=0.9)
    together = generate(model, texts, SPECIAL, how)
    monkeypatch.setattr(decode, "AT_ONCE", 35)
    assert generate(model, texts, SPECIAL, how) == together


@torch.no_grad()
def test_a_text_ends_where_the_positions_do(models: dict) -> None:
    reference, model = models["gpt2"]  # of 40 positions
    texts = prompts((40, 39, 36, 2))
    said = generate(model, texts, SPECIAL, Decoding(new_tokens=6))
    assert [len(row) for row in said] == [1, 2, 5, 6]
    for text, row in zip(texts, said, strict=True):
        read = [*text]
        for token in row:
            assert token == int(reference(torch.tensor([read])).logits[0, -1].argmax())
            read.append(token)
    with pytest.raises(ValueError, match=r"^prompt 2 has 41 tokens, but the model only 40 pos"):
        generate(model, [*prompts((40, 41)), [5]], SPECIAL, Decoding())


def test_no_and_empty_prompts(models: dict) -> None:
    for _, model in models.values():
        assert generate(model, [], SPECIAL, Decoding()) == []
        first, second = generate(model, [[], [SPECIAL.start]], SPECIAL, Decoding(new_tokens=5))
        assert len(first) == 5
        assert first == second


def test_ids_beyond_the_vocabulary_are_never_said(models: dict) -> None:
    _, model = models["gpt2"]
    small = replace(SPECIAL, size=30)
    texts = [[i % 30 for i in text] for text in prompts()]
    for how in (Decoding(), Decoding(temperature=5.0)):
        assert max(max(row) for row in generate(model, texts, small, how)) < 30


def test_the_model_is_at_rest_meanwhile_and_left_as_it_was(tmp_path: Path) -> None:
    model = open_folder(saved(gpt2(resid_pdrop=0.5, embd_pdrop=0.5), tmp_path)).model
    expected = generate(model, prompts(), SPECIAL, Decoding())
    model.train()
    assert generate(model, prompts(), SPECIAL, Decoding()) == expected
    assert model.training
    with pytest.raises(ValueError, match="positions"):
        generate(model, prompts((41,)), SPECIAL, Decoding())
    assert model.training


def test_models_that_do_not_generate_are_refused(tmp_path: Path) -> None:
    encoder = open_folder(saved(bert(), tmp_path / "bert")).model
    with pytest.raises(ValueError, match="reads in both directions and does not generate"):
        generate(encoder, [[5]], SPECIAL, Decoding())
    folder = saved(gpt2("GPT2ForSequenceClassification", num_labels=3), tmp_path / "gpt2")
    with pytest.raises(ValueError, match=r"no language-model head \(heads: label\)"):
        generate(open_folder(folder).model, [[5]], SPECIAL, Decoding())


def test_scores_that_are_no_numbers_are_an_error() -> None:
    for wrong in (np.nan, np.inf, -np.inf):
        for how in (Decoding(), Decoding(temperature=1.0)):
            with pytest.raises(FloatingPointError, match="not finite"):
                pick(torch.tensor([[0.0, wrong]]), how, [np.random.default_rng(0)])


# What is drawn

scores = st.lists(st.integers(-90, 90).map(lambda i: i / 4), min_size=2, max_size=40, unique=True)


@given(some=scores, k=st.integers(1, 45))
def test_top_k_keeps_what_the_reference_keeps(some: list[float], k: int) -> None:
    from transformers import TopKLogitsWarper

    row = torch.tensor([some])
    expected = TopKLogitsWarper(k)(torch.zeros(1, 1), row).softmax(-1)
    torch.testing.assert_close(kept_shares(row, k, None), expected, rtol=0, atol=0)


@given(some=scores, k=st.none() | st.integers(1, 45), p=st.floats(0.01, 0.99))
def test_top_p_keeps_what_the_reference_keeps(some: list[float], k: int | None, p: float) -> None:
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    row = torch.tensor([some])
    cut = row if k is None else TopKLogitsWarper(k)(torch.zeros(1, 1), row)
    expected = TopPLogitsWarper(p)(torch.zeros(1, 1), cut).isfinite()
    share = kept_shares(row, k, p)[0]
    ordered = cut[0].double().softmax(-1).sort(descending=True).values
    if float((ordered.cumsum(0) - p).abs().min()) > 1e-5:  # not where rounding decides
        assert ((share > 0) == (expected[0] & (cut[0].softmax(-1) > 0))).all()
    # By definition: the fewest tokens with at least p.
    kept = share[share > 0].double()
    assert float(kept.sum()) > p - 1e-5
    assert float(kept.sum() - kept.min()) < p + 1e-5
    assert torch.equal(share[share > 0], cut[0].softmax(-1)[share > 0])


def test_tokens_as_likely_as_the_kth_stay_and_all_of_them_with_p_1() -> None:
    row = torch.tensor([[1.0, 3.0, 1.0, 0.0]])
    assert (kept_shares(row, 2, None)[0] > 0).tolist() == [True, True, True, False]
    long = torch.zeros(1, 50_000)
    assert int((kept_shares(long, None, 1.0) > 0).sum()) == 50_000
    assert int((kept_shares(long, None, 0.5) > 0).sum()) == pytest.approx(25_000, abs=1)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    k=st.none() | st.integers(1, 8),
    p=st.none() | st.floats(0.2, 1.0),
)
def test_tokens_are_drawn_as_often_as_they_are_probable(
    seed: int, temperature: float, k: int | None, p: float | None
) -> None:
    n = 4000
    row = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed % 2**31))
    how = Decoding(temperature=temperature, top_k=k, top_p=p)
    dice = [np.random.default_rng([seed, i]) for i in range(n)]
    drawn = np.bincount(pick(row.expand(n, -1), how, dice).numpy(), minlength=9)
    share = kept_shares(row / temperature, k, p)[0].double()
    expected = (share / share.sum()).numpy() * n
    assert (drawn[expected == 0] == 0).all()
    some = expected > 5
    chi = float(((drawn - expected)[some] ** 2 / expected[some]).sum())
    assert chi < 40  # 8 degrees of freedom: above it once in 300,000


def test_temperature_sharpens_without_overflow(models: dict) -> None:
    _, model = models["gpt2"]
    greedy = generate(model, prompts(), SPECIAL, Decoding())
    for how in (
        Decoding(temperature=1e-30),
        Decoding(temperature=3.0, top_k=1),
        Decoding(temperature=3.0, top_p=1e-9),
    ):
        assert generate(model, prompts(), SPECIAL, how) == greedy
    warm = generate(model, prompts(), SPECIAL, Decoding(temperature=1.0))
    assert warm != greedy


def test_the_same_seed_draws_the_same_and_another_another(models: dict) -> None:
    _, model = models["gpt2"]

    def drawn(seed: int, texts: list[list[int]]) -> list[list[int]]:
        return generate(model, texts, SPECIAL, Decoding(temperature=1.5, seed=seed, new_tokens=12))

    (text,) = prompts((5,))
    assert drawn(1, [text]) == drawn(1, [text])
    assert drawn(1, [text]) != drawn(2, [text])
    several = drawn(1, [text, [7, 8], text, text])
    assert len({tuple(row) for row in several}) == 4  # each time anew
    assert [several[0]] == drawn(1, [text])
    assert several[::2] == drawn(1, [text, text])


def test_no_two_prompts_share_their_dice() -> None:
    prompts = [[5], [6], [5, 6], [5], [6, 5]]
    drawn = [d.random() for seed in (0, 1) for d in decode._dice(prompts, seed)]
    assert len(set(drawn)) == 2 * len(prompts)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"new_tokens": 0}, "new_tokens must be at least 1, got 0"),
        ({"temperature": -0.1}, "temperature must be at least 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be at least 0, got nan"),
        ({"temperature": float("inf")}, "temperature must be at least 0, got inf"),
        ({"temperature": 1.0, "top_k": 0}, "top_k must be at least 1, got 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"temperature": 1.0, "top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"top_k": 5}, "at temperature 0 none is: give a temperature above 0"),
        ({"top_p": 0.9}, "at temperature 0 none is: give a temperature above 0"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**wrong)
