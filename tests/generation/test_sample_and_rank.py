"""Sample-and-rank: of several sampled texts the most likely one is returned."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from generating import SPECIAL, pairs, prompts

from unmask.batch import Batch, Visibility
from unmask.generation.decode import generate, generate_candidates, initial_states, stream_tokens
from unmask.generation.settings import BestOfN, Sampling, generation_config
from unmask.generation.speculative import DraftModel
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import EncoderDecoder

N = 6


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder: Path = tmp_path_factory.mktemp("models")
    return {name: model for name, (_, model) in pairs(folder, 0.3).items()}


@torch.no_grad()
def likelihood(model: Model, prompt: list[int], continuation: list[int]) -> float:
    """Read prompt and text at once, and sum what each token's log-probability is."""
    encoder = isinstance(model.backbone, EncoderDecoder)
    before = [SPECIAL.start] if encoder else prompt
    batch = Batch(
        inputs=torch.tensor([[*before, *continuation[:-1]]]),
        visibility=Visibility(causal=True),
        source=torch.tensor([prompt]) if encoder else None,
    )
    logs = model.language_head.logits(model.backbone(batch)).double().log_softmax(-1)[0]
    rows = logs[len(before) - 1 :]
    return sum(float(row[token]) for row, token in zip(rows, continuation, strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gpt2", "bart"])
@pytest.mark.parametrize("ends", [False, True])
def test_most_likely_sample_is_returned(models: dict, name: str, ends: bool) -> None:
    model, given = models[name].eval(), prompts((5, 1, 7))
    how = {"temperature": 0.7, "top_k": 40, "max_new_tokens": 7, "seed": 2}
    end = generate(model, given[:1], SPECIAL, generation_config(**how))[0][3] if ends else None
    special = replace(SPECIAL, end=end)
    found = generate_candidates(
        model, given, special, generation_config(samples=N, n_best=N, **how)
    )
    for prompt, best in zip(given, found, strict=True):
        drawn = generate(model, [prompt] * N, special, generation_config(**how))
        assert {one.token_ids for one in best} == {tuple(ids) for ids in drawn}
        assert len(best) > 2
        scores = [one.score for one in best]
        assert scores == sorted(scores, reverse=True)
        for one in best:
            ended = len(one.token_ids) < 7
            whole = [*one.token_ids, *([end] if ended else [])]
            # float32 sums of a few numbers against float64
            assert one.score == pytest.approx(likelihood(model, prompt, whole), abs=1e-4)
    one = generate(model, given, special, generation_config(samples=N, **how))
    assert one == [list(best[0].token_ids) for best in found]
    if ends:
        assert any(len(output.token_ids) < 7 for best in found for output in best)


@pytest.mark.thorough
def test_single_sample_equals_sampling_without_ranking(models: dict) -> None:
    how = {"temperature": 1.0, "max_new_tokens": 5}
    ranked = generation_config(samples=1, **how)
    assert ranked.strategy == BestOfN(sampling=Sampling(temperature=1.0), samples=1)
    model, given = models["gpt2"], prompts((5, 3))
    assert generate(model, given, SPECIAL, ranked) == generate(
        model, given, SPECIAL, generation_config(**how)
    )


def test_invalid_samples_are_refused(models: dict) -> None:
    model, config = models["gpt2"], generation_config(samples=2, temperature=1.0)
    with pytest.raises(ValueError, match="give samples or a draft, not both"):
        generate(model, [[5]], SPECIAL, config, draft=DraftModel(model=model))
    with pytest.raises(ValueError, match="samples end before a text is known: no stream"):
        next(stream_tokens(model, initial_states(model, [[5]], SPECIAL, config), SPECIAL, config))
    with pytest.raises(ValueError, match="only beams or samples give several texts"):
        generate_candidates(model, [[5]], SPECIAL, generation_config(temperature=1.0))
