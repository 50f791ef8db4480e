"""Ranking of choices: their likelihoods are those of each choice computed alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from generating import MODELS, SPECIAL, pairs, prompts

from unmask.batch import Batch, Visibility
from unmask.generation import rank_choices as choosing
from unmask.generation.rank_choices import rank_choices
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import EncoderDecoder

CHOICES = [[7, 8, 9], [7, 8, 10, 11], [12], [13, 7]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Model]]:
    return pairs(tmp_path_factory.mktemp("models"), spread=0.25)


@torch.no_grad()
def likelihood(model: Model, prompt: list[int], choice: list[int]) -> float:
    """Read a prompt and one choice, and sum the log-probabilities of its tokens."""
    if isinstance(model.backbone, EncoderDecoder):
        inputs, source, old = [SPECIAL.start, *choice], torch.tensor([prompt]), 1
    else:
        inputs, source, old = [*prompt, *choice], None, len(prompt)
    batch = Batch(inputs=torch.tensor([inputs]), visibility=Visibility(causal=True), source=source)
    logs = model.language_head.logits(model.backbone(batch))[0].double().log_softmax(-1)
    return sum(logs[old - 1 + i, token].item() for i, token in enumerate(choice))


@pytest.mark.sample(1)
@pytest.mark.quick("gpt2", "t5", "gemma3")
@pytest.mark.parametrize("family", MODELS)
def test_likelihoods_equal_each_choice_alone(family: str, models: dict, monkeypatch: Any) -> None:
    _, model = models[family]
    special = replace(SPECIAL, end=3)
    texts = prompts((9, 1))
    encoder = isinstance(model.backbone, EncoderDecoder)
    for some in (CHOICES, [*CHOICES, [7, 8]]):
        ended = encoder or len(some) == 5  # the last begins others
        expected = [
            [likelihood(model, text, [*c, *([3] if ended else [])]) for c in some] for text in texts
        ]
        found = rank_choices(model, texts, [some] * 2, special)
        monkeypatch.setattr(choosing, "CHOICES_PER_BATCH", 2)
        again = rank_choices(model, texts, [some] * 2, special)
        wide = rank_choices(model, texts, [some] * 2, special, beams=5)
        for row, scores in enumerate(expected):
            order = sorted(range(len(some)), key=lambda i: -scores[i])
            for best in (found[row], again[row], wide[row]):
                assert [one.choice_index for one in best] == order
                assert [one.log_probability for one in best] == pytest.approx(
                    [scores[i] for i in order], rel=1e-4
                )


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", MODELS)
def test_greedy_choice_follows_most_likely_allowed_token(family: str, models: dict) -> None:
    _, model = models[family]
    special = replace(SPECIAL, end=3)
    for text in prompts((9, 1, 4)):
        some = [[*c, 3] for c in CHOICES] if isinstance(model.backbone, EncoderDecoder) else CHOICES
        left, n = list(range(len(some))), 0
        while len(left) > 1:
            heads = {some[i][n] for i in left}
            scores = {t: likelihood(model, text, [*some[left[0]][:n], t]) for t in heads}
            best = max(scores, key=lambda t: scores[t])
            left, n = [i for i in left if some[i][n] == best], n + 1
        (found,) = rank_choices(model, [text], [CHOICES], special, beams=1)
        assert [one.choice_index for one in found] == left
        assert found[0].log_probability == pytest.approx(
            likelihood(model, text, some[left[0]]), rel=1e-4
        )


def test_invalid_choices_are_refused(models: dict) -> None:
    _, model = models["gpt2"]  # of 40 positions

    def refused(some: list[list[int]], message: str, prompt: int = 3) -> None:
        with pytest.raises(ValueError, match=message):
            rank_choices(model, prompts((prompt,)), [some], SPECIAL)

    refused([], "there is no choice")
    refused([[5], []], "choice 2 has no token")
    refused([[5], [6], [5]], "choices 1 and 3 are the same tokens")
    refused([[5], [5, 6]], "a choice begins with another one, and there is no end token")
    refused([[5, 6, 7], [8]], "prompt 1 has 39 tokens and its longest choice 3, but .* 40 pos", 39)
    assert len(rank_choices(model, prompts((38,)), [[[5, 6, 7], [8]]], SPECIAL)[0]) == 2
