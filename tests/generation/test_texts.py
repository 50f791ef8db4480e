"""What a text may not have: penalties and repeats equal the reference's; windows slide."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from generating import MODELS, SPECIAL, pairs, prompts, theirs

from unmask.batch import Batch, Visibility
from unmask.generation.decode import generate
from unmask.generation.settings import generation_config
from unmask.heads.model import Model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Model]]:
    return pairs(tmp_path_factory.mktemp("models"), spread=0.25)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_greedy_text_without_repetition_equals_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    texts = prompts((9, 1, 6))
    free = generate(model, texts, SPECIAL, generation_config(max_new_tokens=15))
    special = replace(SPECIAL, end=free[0][2])
    seen = set()
    for how in (
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 2.0},
        {"repetition_penalty": 0.5},
        {"min_new_tokens": 8},
    ):
        more = {
            {"no_repeat_ngram_size": "no_repeat_ngram_size"}.get(k, k): v for k, v in how.items()
        }
        ours = generate(model, texts, special, generation_config(max_new_tokens=15, **how))
        # one by one: the reference takes its padding for tokens that were read
        expected = [theirs(reference, [t], special.end, 15, **more)[0][0] for t in texts]
        assert ours == expected
        seen.add(tuple(map(tuple, ours)))
    assert len(seen) >= 4


def test_forbidden_tokens_are_never_sampled(models: dict) -> None:
    _, model = models["gpt2"]
    small = replace(SPECIAL, vocab_size=20, end=7)
    config = generation_config(
        temperature=3.0, no_repeat_ngram_size=1, min_new_tokens=6, max_new_tokens=12
    )
    for text in generate(model, [[5, 6]] * 8, small, config):
        assert len(set(text)) == len(text) >= 6
        assert not {5, 6} & set(text)


@torch.no_grad()
def greedy_by_hand(model: Model, prompt: list[int], n: int, room: int) -> list[int]:
    """Say n tokens, reading everything anew each time, and the last part where it is too long."""
    read, output = list(prompt), list[int]()
    while len(output) < n:
        if len(read) > room:
            read = read[-max(room // 2, room + 1 - (n - len(output))) :]
        ids = torch.tensor([read])
        hidden = model.backbone(Batch(inputs=ids, visibility=Visibility(causal=True)))
        output.append(int(model.language_head.logits(hidden[0, -1]).argmax()))
        read.append(output[-1])
    return output


@pytest.mark.thorough
def test_window_slides_over_text_beyond_positions(models: dict) -> None:
    _, model = models["gpt2"]  # of 40 positions
    texts = prompts((100, 38, 3, 41))
    for n in (1, 90):
        expected = [greedy_by_hand(model, text, n, 40) for text in texts]
        config = generation_config(max_new_tokens=n, window=True)
        assert generate(model, texts, SPECIAL, config) == expected
    with pytest.raises(ValueError, match=r"prompt 1 has 100 tokens.*: `window` reads the last"):
        generate(model, texts, SPECIAL)


@pytest.mark.thorough
def test_window_changes_nothing_without_position_limit(models: dict) -> None:
    for _, model in models.values():
        texts = prompts((5, 9))
        for config in (
            generation_config(max_new_tokens=20),
            generation_config(max_new_tokens=20, temperature=1.0),
        ):
            wide = replace(config, window=True)
            assert generate(model, texts, SPECIAL, wide) == generate(model, texts, SPECIAL, config)


@pytest.mark.thorough
def test_samples_in_a_window_do_not_depend_on_other_texts(models: dict) -> None:
    _, model = models["gpt2"]
    texts, config = (
        prompts((60, 38, 3)),
        generation_config(max_new_tokens=70, temperature=1.0, window=True),
    )
    together = generate(model, texts, SPECIAL, config)
    assert [generate(model, [text], SPECIAL, config)[0] for text in texts] == together


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", MODELS)
def test_given_prefix_is_continued(family: str, models: dict) -> None:
    _, model = models[family]
    texts = prompts((9, 1, 6))
    for config in (
        generation_config(max_new_tokens=9),
        generation_config(max_new_tokens=9, beams=1, early_stopping=True),
    ):
        whole = generate(model, texts, SPECIAL, config)
        for cut in ((3, 3, 3), (1, 4, 0)):
            started = [output[:n] for output, n in zip(whole, cut, strict=True)]
            rest = [output[n:] for output, n in zip(whole, cut, strict=True)]
            found = generate(model, texts, SPECIAL, config, output_prefixes=started)
            assert [output[: len(r)] for output, r in zip(found, rest, strict=True)] == rest
