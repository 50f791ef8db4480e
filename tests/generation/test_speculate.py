"""Speculation: the same text greedily, the same distribution when drawn, and an honest tally."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generating import MODELS, SPECIAL, pairs, prompts
from reference import gpt2, saved

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.generation.decode import generate
from unmask.generation.settings import Greedy, Sampling, generation_config
from unmask.generation.speculative import DraftModel, is_accepted, residual_distribution
from unmask.heads.model import Model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Model]]:
    return pairs(tmp_path_factory.mktemp("models"), spread=0.25)


def disturbed(reference: Any, folder: Path, much: float) -> Model:
    """Open a copy whose weights are a little different, so that it guesses well but not always."""
    model = load_folder(saved(reference, folder)).model
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(much * torch.randn_like(weight) * weight.std().nan_to_num())
    return model


@pytest.mark.thorough
@pytest.mark.quick("gpt2", "t5", "gemma3")
@pytest.mark.parametrize("family", MODELS)
def test_greedy_text_is_equal_for_any_draft(family: str, models: dict, tmp_path: Path) -> None:
    reference, model = models[family]
    texts = prompts((9, 1, 5))
    free = generate(model, texts, SPECIAL, generation_config(max_new_tokens=10))
    special, shares = replace(SPECIAL, end=free[2][5]), []
    plain = generation_config(max_new_tokens=10)
    kept = generation_config(
        max_new_tokens=10, repetition_penalty=1.3, no_repeat_ngram_size=2, min_new_tokens=4
    )
    for much, guesses, how in ((0.0, 3, kept), (0.05, 1, plain), (0.05, 4, kept), (3.0, 2, plain)):
        draft = DraftModel(
            model=disturbed(reference, tmp_path / str(len(shares)), much), draft_tokens=guesses
        )
        expected = generate(model, texts, special, how)
        assert generate(model, texts, special, how, draft=draft) == expected
        shares.append(draft.acceptance_rate)
    assert shares[0] == 1.0
    assert min(shares) == shares[3] < 0.2


@pytest.mark.thorough
def test_text_ends_at_last_position_as_without_draft(models: dict, tmp_path: Path) -> None:
    reference, model = models["gpt2"]  # of 40 positions
    draft = DraftModel(model=disturbed(reference, tmp_path, 0.05))
    for config in (
        generation_config(max_new_tokens=6),
        generation_config(max_new_tokens=24, window=True),
    ):
        texts = prompts((40, 36))
        assert generate(model, texts, SPECIAL, config, draft=draft) == generate(
            model, texts, SPECIAL, config
        )


@pytest.mark.parametrize("seed", range(3))
def test_accepted_and_resampled_tokens_have_target_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted, expected = rng.dirichlet(np.ones(12) / 2), rng.dirichlet(np.ones(12) / 2)
    wanted[3] = 0
    wanted /= wanted.sum()
    n, drawn = 4_000, Counter[int]()
    for token in rng.choice(12, n, p=expected).tolist():
        if not is_accepted(wanted, expected, token, rng):
            token = int(rng.choice(12, p=residual_distribution(wanted, expected)))
        drawn[token] += 1
    some = wanted * n > 5
    found = np.array([drawn[i] for i in range(12)])
    assert found[wanted == 0].sum() == 0
    assert float(((found - wanted * n)[some] ** 2 / (wanted * n)[some]).sum()) < 45


@torch.no_grad()
def test_samples_are_distributed_as_without_draft(models: dict, tmp_path: Path) -> None:
    reference, model = models["gpt2"]
    small = replace(SPECIAL, vocab_size=4)
    prompt, n = [3, 1, 2], 150
    config = generation_config(temperature=1.5, top_p=0.95, max_new_tokens=2)
    assert isinstance(config.strategy, Sampling)
    draft = DraftModel(model=disturbed(reference, tmp_path, 0.5), draft_tokens=2)
    generated = Counter(map(tuple, generate(model, [prompt] * n, small, config, draft=draft)))
    expected: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(2):
        for before in list(expected):
            ids = torch.tensor([[*prompt, *before]])
            hidden = model.backbone(Batch(inputs=ids, visibility=Visibility(causal=True)))
            logits = model.language_head.logits(hidden[:, -1])[:, :4]
            share = config.strategy.probabilities(logits)[0].double()
            mass = expected.pop(before)
            for token, p in enumerate((share / share.sum()).tolist()):
                expected[*before, token] = mass * p
    assert sum(expected.values()) == pytest.approx(1)
    likely = {text: p * n for text, p in expected.items() if p * n >= 5}
    rest = n - sum(likely.values())
    chi = sum((generated[text] - e) ** 2 / e for text, e in likely.items())
    if rest > 5:
        chi += (n - sum(generated[text] for text in likely) - rest) ** 2 / rest
    assert len(likely) > 4
    assert chi < len(likely) + 6 * (2 * len(likely)) ** 0.5  # six standard deviations
    assert 0.2 < draft.acceptance_rate < 0.95
    assert not any(expected.get(text, 0) == 0 for text in generated)


@pytest.mark.thorough
def test_samples_depend_on_seed_and_prompt_only(models: dict, tmp_path: Path) -> None:
    reference, model = models["t5"]
    draft = DraftModel(model=disturbed(reference, tmp_path, 0.1))
    config, texts = generation_config(temperature=1.0, max_new_tokens=9, seed=3), prompts((4, 9, 2))
    together = generate(model, texts, SPECIAL, config, draft=draft)
    assert [generate(model, [t], SPECIAL, config, draft=draft)[0] for t in texts] == together
    other = generate(model, texts, SPECIAL, replace(config, seed=4), draft=draft)
    assert other != together


def test_unsuitable_drafts_are_refused(models: dict, tmp_path: Path) -> None:
    model = models["gpt2"][1]

    def refused(small: Model, message: str, **how: Any) -> None:
        with pytest.raises(ValueError, match=message):
            generate(model, [[5]], SPECIAL, generation_config(**how), draft=DraftModel(model=small))

    refused(models["t5"][1], "the draft must be a decoder")
    fewer = load_folder(saved(gpt2(vocab_size=50), tmp_path / "vocabulary")).model
    refused(fewer, "the draft has 50 tokens and the model 99")
    short = load_folder(saved(gpt2(n_positions=20), tmp_path / "positions")).model
    refused(short, "the draft has 20 positions and the model 40")
    refused(model, "give beams or a draft, not both", beams=2)
    with pytest.raises(ValueError, match="draft_tokens must be at least 1, got 0"):
        DraftModel(model=model, draft_tokens=0)
    assert isinstance(generation_config().strategy, Greedy)
