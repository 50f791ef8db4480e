"""UniLM: who sees whom by the paper's matrices, text said by masks, and what it begins with."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import bert, saved
from test_leak import build, depends

from unmask.batch import IGNORE_INDEX, Batch, Tokens, Visibility
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.rank_choices import rank_choices
from unmask.generation.settings import generation_config
from unmask.generation.speculative import DraftModel
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS, preset_for_config
from unmask.zoo.encoders import unilm as card

SPECIAL = SpecialTokenIds(
    vocab_size=50,
    pad=0,
    unknown=1,
    start=2,
    end=3,
    mask=4,
    prefix=(2,),
    separator=(3,),
    suffix=(3,),
    all_ids=frozenset({0, 1, 2, 3, 4}),
)


@pytest.fixture(scope="module")
def model() -> Model:
    return build("unilm")


def matrix(way: str, first: int, t: int) -> np.ndarray:
    """M of equation 2, where it is 0: row i sees column j (figure 1)."""
    seen = np.zeros((t, t), bool)
    for i in range(t):
        for j in range(t):
            if way == "both_ways":
                seen[i, j] = True
            elif way == "forward":
                seen[i, j] = j <= i
            elif way == "backward":
                seen[i, j] = j >= i
            else:
                seen[i, j] = j < first or (i >= first and j <= i)
    return seen


@pytest.mark.parametrize("way", MODELS["unilm-mini"].objective.component_names)
def test_hidden_states_follow_the_attention_masks_of_the_paper(model: Model, way) -> None:
    text = Tokens(np.arange(10, 22), np.array([3, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1]))
    text = replace(text, other_text=text)
    objective = MODELS["unilm-mini"].objective.components_by_name[way]
    e = objective(text, SPECIAL, np.random.default_rng(1))
    short = objective(Tokens(text.ids[:5], text.boundaries[:5]), SPECIAL, np.random.default_rng(1))
    first = int((e.segments == e.segments[0]).sum())
    expected = torch.from_numpy(matrix(way, first, len(e.inputs)))
    assert torch.equal(depends(model, pad_examples([e], SPECIAL)), expected)
    batch = pad_examples([e, short], SPECIAL)  # padded, by rank
    batch = replace(batch, inputs=batch.inputs.clone())
    assert torch.equal(depends(model, batch)[: len(e.inputs), : len(e.inputs)], expected)
    assert (e.targets != IGNORE_INDEX).any()


@torch.no_grad()
def test_text_is_generated_by_appended_masks(model: Model) -> None:
    prompts = [[2, 9, 7, 30, 11], [2], [2, 21, 13]]
    generated = generate(
        model, prompts, replace(SPECIAL, end=None), generation_config(max_new_tokens=6)
    )
    for prompt, text in zip(prompts, generated, strict=True):
        assert len(text) == 6
        known = list(prompt)
        for token in text:
            read = torch.tensor([[*known, SPECIAL.mask]])
            batch = Batch(
                inputs=read,
                visibility=Visibility(causal=True),
                segments=torch.full_like(read, card.FORWARD_SEGMENT),
            )
            best = model.language_head.logits(model.hidden_states(batch))[0, -1].argmax()
            assert token == int(best)
            known.append(token)


def test_prompt_alone_equals_prompt_in_batch(model: Model) -> None:
    prompts = [[2, 9, 7, 30, 11], [2], [2, 21, 13]]
    for how in (
        {"temperature": 1.0, "seed": 3},
        {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    ):
        config = generation_config(**how, max_new_tokens=6)
        alone = [generate(model, [prompt], SPECIAL, config)[0] for prompt in prompts]
        assert alone == generate(model, prompts, SPECIAL, config)
    config = generation_config(beams=3, n_best=2, max_new_tokens=5)
    alone = [generate_candidates(model, [prompt], SPECIAL, config)[0] for prompt in prompts]
    together = generate_candidates(model, prompts, SPECIAL, config)
    assert [[b.token_ids for b in x] for x in alone] == [[b.token_ids for b in x] for x in together]


@torch.no_grad()
def test_choices_are_scored_by_appended_masks(model: Model) -> None:
    prompt, choices = [2, 9, 7], [[8, 9, 10], [22]]
    (found,) = rank_choices(model, [prompt], [choices], SPECIAL)
    for one in found:
        total, known = 0.0, list(prompt)
        for token in choices[one.choice_index]:
            read = torch.tensor([[*known, SPECIAL.mask]])
            segments = torch.full_like(read, card.FORWARD_SEGMENT)
            batch = Batch(inputs=read, visibility=Visibility(causal=True), segments=segments)
            scores = model.language_head.logits(model.hidden_states(batch))[
                0, -1, : SPECIAL.vocab_size
            ]
            total += scores.log_softmax(-1)[token].item()
            known.append(token)
        assert one.log_probability == pytest.approx(total, rel=1e-4)


def test_appended_mask_uses_a_position_of_its_own() -> None:
    whole = build("unilm")
    a = whole.architecture
    short = Model(
        replace(a, position=replace(a.position, max_positions=8)), whole.head_specs
    ).initialize(0)
    special = replace(SPECIAL, end=None)
    assert len(generate(short, [[2, 9, 7]], special, generation_config(max_new_tokens=50))[0]) == 5
    with pytest.raises(ValueError, match="has 8 tokens, but the model only 7 positions"):
        generate(short, [[2] * 8], special)
    assert (
        len(
            generate(short, [[2] * 20], special, generation_config(max_new_tokens=9, window=True))[
                0
            ]
        )
        == 9
    )


def test_generation_needs_a_mask_token_and_refuses_drafts(model: Model) -> None:
    with pytest.raises(ValueError, match="generates by appended masks needs a mask token"):
        generate(model, [[2, 9]], replace(SPECIAL, mask=None))
    with pytest.raises(ValueError, match="by appended masks reads no draft"):
        generate(model, [[2, 9]], SPECIAL, draft=DraftModel(model=model))


@torch.no_grad()
def test_model_starts_from_bert_and_encodes_as_bert(tmp_path: Path) -> None:
    short = load_folder(saved(bert(), tmp_path)).model
    a = short.architecture
    grown = card.convert_from_bert(short, replace(a, n_segments=6))
    assert grown.architecture == replace(a, n_segments=6)
    language = grown.head_specs["language"]
    assert isinstance(language, LanguageModeling)
    assert language == card.HEADS["language"]
    ids = torch.randint(5, 99, (2, 9))
    second = (torch.arange(9) > 4).long().expand(2, -1)
    expected = short.hidden_states(Batch(inputs=ids, segments=second))
    for segments in (second, second + 4):
        assert torch.equal(grown.hidden_states(Batch(inputs=ids, segments=segments)), expected)
    first = short.hidden_states(Batch(inputs=ids))
    for segment in (0, 2, 3, 4):
        hidden = grown.hidden_states(Batch(inputs=ids, segments=torch.full_like(ids, segment)))
        assert torch.equal(hidden, first)
    with pytest.raises(ValueError, match="is initialized from a BERT of two segments and has 6"):
        card.convert_from_bert(short, a)


def test_unilm_in_bert_format_is_recognized_by_its_segments(tmp_path: Path) -> None:
    mini = MODELS["unilm-mini"]
    model = mini.build().initialize(0)
    write_folder(tmp_path, model, mini, None)
    loaded = load_folder(tmp_path)
    assert loaded.preset.family == "unilm"
    assert loaded.model.head_specs == mini.heads
    theirs = json.loads((tmp_path / "config.json").read_text())
    assert (theirs["model_type"], theirs["type_vocab_size"]) == ("bert", 6)
    del theirs["model_type"]  # as the authors' configurations are
    assert preset_for_config(theirs).family == "unilm"
    assert preset_for_config({"model_type": "bert"}).family == "bert"
