"""Decoding: greedy text equals the reference's, and what is drawn is drawn as it should be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generating import MODELS, SPECIAL, pairs, prompts, theirs
from reference import bert, gpt2, saved

from unmask.checkpoints.huggingface.read import load_folder
from unmask.generation import decode
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig, generation_config
from unmask.heads.model import Model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Model]]:
    return pairs(tmp_path_factory.mktemp("models"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", MODELS)
def test_greedy_text_equals_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    texts = prompts()
    expected, _ = theirs(reference, texts, None, 20)
    assert len({tuple(row) for row in expected}) == len(texts)  # they do differ
    assert generate(model, texts, SPECIAL, GenerationConfig(max_new_tokens=20)) == expected


@pytest.mark.thorough
@pytest.mark.quick("gpt2", "t5", "bart", "gemma3")
@pytest.mark.parametrize("family", MODELS)
def test_rows_ending_early_equal_reference(family: str, models: dict) -> None:
    reference, model = models[family]
    texts = prompts((9, 1, 14, 5, 5, 8, 3), seed=3)
    free, _ = theirs(reference, texts, None, 20)
    ended = 0
    ends = {t for row in free for t in row if row.index(t) > 0}
    for end in [free[0][0], *sorted(ends)[:5]]:
        expected, _ = theirs(reference, texts, end, 20)
        special = replace(SPECIAL, end=end)
        assert generate(model, texts, special, GenerationConfig(max_new_tokens=20)) == expected
        ended += len({len(row) for row in expected}) > 1
    assert ended >= 3  # times at which some rows ended and others went on


@pytest.mark.thorough
@pytest.mark.quick("gpt2", "t5", "bart", "gemma3")
@pytest.mark.parametrize("family", MODELS)
def test_prompt_alone_equals_prompt_in_batch(family: str, models: dict) -> None:
    _, model = models[family]
    texts = prompts((9, 1, 14, 5, 20, 3))
    special = replace(SPECIAL, end=generate(model, texts, SPECIAL)[2][6])
    for config in (
        GenerationConfig(max_new_tokens=15),
        generation_config(max_new_tokens=15, temperature=0.8, seed=4),
    ):
        together = generate(model, texts, special, config)
        assert [generate(model, [text], special, config)[0] for text in texts] == together
        assert generate(model, texts[::-1], special, config) == together[::-1]


def test_batch_memory_limit_does_not_matter(models: dict, monkeypatch: Any) -> None:
    _, model = models["gpt2"]
    texts = prompts((9, 1, 14, 5, 20, 3))
    config = generation_config(max_new_tokens=10, temperature=1.0, top_p=0.9)
    together = generate(model, texts, SPECIAL, config)
    monkeypatch.setattr(decode, "MAX_CACHED_TOKENS", 35)
    assert generate(model, texts, SPECIAL, config) == together


@torch.no_grad()
def test_text_ends_at_last_position(models: dict) -> None:
    reference, model = models["gpt2"]  # of 40 positions
    texts = prompts((40, 39, 36, 2))
    generated = generate(model, texts, SPECIAL, GenerationConfig(max_new_tokens=6))
    assert [len(row) for row in generated] == [1, 2, 5, 6]
    for text, row in zip(texts, generated, strict=True):
        read = [*text]
        for token in row:
            assert token == int(reference(torch.tensor([read])).logits[0, -1].argmax())
            read.append(token)
    with pytest.raises(ValueError, match=r"^prompt 2 has 41 tokens, but the model only 40 pos"):
        generate(model, [*prompts((40, 41)), [5]], SPECIAL, GenerationConfig())


@pytest.mark.parametrize(
    ("settings", "hint"),
    [({}, "; `window` reads the last of it, and goes on"), ({"beams": 2}, "")],
    ids=["greedy", "beams"],
)
def test_text_cut_by_positions_is_reported(
    models: dict, settings: dict, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, model = models["gpt2"]  # of 40 positions
    generate(model, prompts((35, 2)), SPECIAL, generation_config(max_new_tokens=6, **settings))
    assert not caplog.records
    generate(model, prompts((37, 2)), SPECIAL, generation_config(max_new_tokens=6, **settings))
    assert [r.getMessage() for r in caplog.records] == [
        "a text ended after 4 new tokens, at the model's last position, before the 6 that were "
        f"asked for{hint}"
    ]


def test_no_prompts_and_empty_prompts(models: dict) -> None:
    for _, model in models.values():
        assert generate(model, [], SPECIAL, GenerationConfig()) == []
        first, second = generate(
            model, [[], [SPECIAL.start]], SPECIAL, GenerationConfig(max_new_tokens=5)
        )
        assert len(first) == 5
        assert first == second


def test_ids_beyond_the_vocabulary_are_never_generated(models: dict) -> None:
    _, model = models["gpt2"]
    small = replace(SPECIAL, vocab_size=30)
    texts = [[i % 30 for i in text] for text in prompts()]
    for config in (GenerationConfig(), generation_config(temperature=5.0)):
        assert max(max(row) for row in generate(model, texts, small, config)) < 30


def test_generation_runs_in_evaluation_mode_and_restores_it(tmp_path: Path) -> None:
    model = load_folder(saved(gpt2(resid_pdrop=0.5, embd_pdrop=0.5), tmp_path)).model
    expected = generate(model, prompts(), SPECIAL, GenerationConfig())
    model.train()
    assert generate(model, prompts(), SPECIAL, GenerationConfig()) == expected
    assert model.training
    with pytest.raises(ValueError, match="positions"):
        generate(model, prompts((41,)), SPECIAL, GenerationConfig())
    assert model.training


def test_models_that_do_not_generate_are_refused(tmp_path: Path) -> None:
    encoder = load_folder(saved(bert(), tmp_path / "bert")).model
    with pytest.raises(ValueError, match="reads in both directions and does not generate"):
        generate(encoder, [[5]], SPECIAL, GenerationConfig())
    folder = saved(gpt2("GPT2ForSequenceClassification", num_labels=3), tmp_path / "gpt2")
    with pytest.raises(ValueError, match=r"no language-model head \(heads: label\)"):
        generate(load_folder(folder).model, [[5]], SPECIAL, GenerationConfig())


def test_non_finite_logits_are_an_error(tmp_path: Path) -> None:
    for wrong in (np.nan, np.inf):
        model = load_folder(saved(gpt2(), tmp_path / str(wrong))).model
        model.backbone.embedding_table.weight.data[3] = wrong
        for config in (
            GenerationConfig(),
            generation_config(temperature=1.0),
            generation_config(beams=2),
        ):
            with pytest.raises(FloatingPointError, match="not finite"):
                generate(model, [[5, 3]], SPECIAL, config)


# What is drawn


def test_low_temperature_does_not_overflow(models: dict) -> None:
    _, model = models["gpt2"]
    greedy = generate(model, prompts(), SPECIAL, GenerationConfig())
    for config in (
        generation_config(temperature=1e-6),
        generation_config(temperature=3.0, top_k=1),
        generation_config(temperature=3.0, top_p=1e-9),
    ):
        assert generate(model, prompts(), SPECIAL, config) == greedy
    warm = generate(model, prompts(), SPECIAL, generation_config(temperature=1.0))
    assert warm != greedy


def test_samples_depend_on_the_seed(models: dict) -> None:
    _, model = models["gpt2"]

    def drawn(seed: int, texts: list[list[int]]) -> list[list[int]]:
        return generate(
            model, texts, SPECIAL, generation_config(temperature=1.5, seed=seed, max_new_tokens=12)
        )

    (text,) = prompts((5,))
    assert drawn(1, [text]) == drawn(1, [text])
    assert drawn(1, [text]) != drawn(2, [text])
    several = drawn(1, [text, [7, 8], text, text])
    assert len({tuple(row) for row in several}) == 4  # each time anew
    assert [several[0]] == drawn(1, [text])
    assert several[::2] == drawn(1, [text, text])


def test_prompts_have_independent_generators() -> None:
    prompts = [[5], [6], [5, 6], [5], [6, 5]]
    drawn = [d.random() for seed in (0, 1) for d in decode._make_generators(prompts, seed)]
    assert len(set(drawn)) == 2 * len(prompts)
