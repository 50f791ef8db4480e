"""Beam search: texts and scores equal the reference's, and a prompt's are its own."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from generating import MODELS, SPECIAL, pairs, prompts, theirs

from unmask.batch import Batch, Visibility
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.settings import GenerationConfig, generation_config
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import EncoderDecoder

WAYS = ((1.0, False), (1.0, "never"), (0.0, "never"), (2.0, "never"), (-1.0, True))
"""Length penalty and early stopping; the second continues where the first stops."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Model]]:
    return pairs(tmp_path_factory.mktemp("models"), spread=0.25)


def check(reference: Any, model: Model, end: int | None, n: int, **how: Any) -> list[list[int]]:
    """Check texts and scores of several prompts against the reference, and return its texts."""
    texts = prompts((9, 1, 14, 5))
    names = {"beams": "num_beams", "n_best": "num_return_sequences"}
    expected, scores = theirs(
        reference, texts, end, n, **{names.get(k, k): v for k, v in how.items()}
    )
    special = replace(SPECIAL, end=end)
    ours = generate_candidates(model, texts, special, generation_config(max_new_tokens=n, **how))
    assert [list(one.token_ids) for best in ours for one in best] == expected
    assert [one.score for best in ours for one in best] == pytest.approx(scores, rel=1e-4)
    return expected


@pytest.mark.sample(1)
@pytest.mark.quick("gpt2", "t5", "gemma3")
@pytest.mark.parametrize("family", MODELS)
def test_texts_and_scores_equal_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    free = check(reference, model, None, 12, beams=3, n_best=3)
    end = free[0][2]
    lengths = set()
    for beams, best in ((2, 1), (5, 4)):
        for penalty, early in WAYS:
            how = {"beams": beams, "n_best": best, "length_penalty": penalty}
            how["early_stopping"] = early
            lengths |= {len(row) for row in check(reference, model, end, 12, **how)}
    assert len(lengths) > 3  # some end early


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_generation_constraints_equal_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    end = check(reference, model, None, 10, beams=2)[0][1]
    for how in (
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.5, "min_new_tokens": 6},
        {"no_repeat_ngram_size": 3, "repetition_penalty": 0.8, "min_new_tokens": 3},
    ):
        # one by one: the reference takes its padding for tokens that were read
        for text in prompts((9, 1)):
            expected, scores = theirs(reference, [text], end, 10, num_beams=3, **how)
            special = replace(SPECIAL, end=end)
            ((ours,),) = generate_candidates(
                model, [text], special, generation_config(beams=3, max_new_tokens=10, **how)
            )
            assert list(ours.token_ids) == expected[0]
            assert ours.score == pytest.approx(scores[0], rel=1e-4)


@pytest.mark.sample(1)
@pytest.mark.quick("gpt2", "t5", "gemma3")
@pytest.mark.parametrize("family", MODELS)
def test_prompt_alone_equals_prompt_in_batch(family: str, models: dict) -> None:
    _, model = models[family]
    texts = prompts((9, 1, 14, 5, 20, 3))
    special = replace(SPECIAL, end=generate(model, texts, SPECIAL)[2][6])
    config = generation_config(beams=3, n_best=2, max_new_tokens=9)
    together = [
        [one.token_ids for one in best]
        for best in generate_candidates(model, texts, special, config)
    ]
    for text, expected in zip(texts, together, strict=True):
        (alone,) = generate_candidates(model, [text], special, config)
        assert [one.token_ids for one in alone] == expected
    assert generate(model, texts, special, config) == [list(best[0]) for best in together]


@torch.no_grad()
def test_full_width_beam_finds_the_most_likely_text(models: dict) -> None:
    _, model = models["gpt2"]
    small, n, prompt = replace(SPECIAL, vocab_size=6), 3, [5, 1, 2]
    config = generation_config(beams=6, n_best=6, max_new_tokens=n, length_penalty=0.0)
    wide = generate_candidates(model, [prompt], small, replace(config, max_new_tokens=2))[0]
    totals: dict[tuple[int, ...], float] = {}
    for output in product(range(6), repeat=2):
        ids = torch.tensor([[*prompt, *output]])
        hidden = model.backbone(Batch(inputs=ids, visibility=Visibility(causal=True)))
        logs = model.language_head.logits(hidden)[0, :, :6].double().log_softmax(-1)
        totals[output] = sum(logs[2 + i, token].item() for i, token in enumerate(output))
    best = sorted(totals, key=lambda output: -totals[output])[:6]
    assert [one.token_ids for one in wide] == best
    assert [one.score for one in wide] == pytest.approx([totals[b] for b in best], rel=1e-5)


def test_search_ends_at_last_position(models: dict) -> None:
    _, model = models["gpt2"]  # of 40 positions
    output = generate_candidates(
        model, prompts((40, 38)), SPECIAL, generation_config(beams=3, n_best=2)
    )
    assert [[len(one.token_ids) for one in best] for best in output] == [[1, 1], [3, 3]]


def test_search_ends_where_no_token_is_allowed(models: dict) -> None:
    for _, model in models.values():
        small = replace(SPECIAL, vocab_size=5)
        encoder = isinstance(model.backbone, EncoderDecoder)
        prompt = [1, 2]
        config = generation_config(beams=2, no_repeat_ngram_size=1, max_new_tokens=9)
        left = 4 if encoder else 3  # of five tokens, those that were not read
        (generated,) = generate(model, [prompt], small, config)
        assert len(set(generated)) == len(generated) == left
        (greedy,) = generate(
            model, [prompt], small, replace(config, strategy=GenerationConfig().strategy)
        )
        assert len(set(greedy)) == len(greedy) == left


def test_invalid_beams_are_refused(models: dict) -> None:
    _, model = models["gpt2"]
    with pytest.raises(ValueError, match="9 beams are more than the 8 tokens there are"):
        generate(model, [[5]], replace(SPECIAL, vocab_size=8), generation_config(beams=9))
    with pytest.raises(ValueError, match="only beams or samples give several texts"):
        generate_candidates(model, [[5]], SPECIAL, GenerationConfig())
    assert generate(model, [], SPECIAL, generation_config(beams=2)) == []
