"""Targets generated from mask tokens after a bidirectional source: cache, batches and beams."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_leak import build, depends

from unmask.batching.collate import pad_examples
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.rank_choices import rank_choices
from unmask.generation.settings import generation_config
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.objectives.unified_lm.masked_target import MaskedTarget
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

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
ENDLESS = replace(SPECIAL, end=None)
FINE_TUNING = MODELS["unilm-mini"].finetuning
SOURCES = [[2, 9, 7, 30, 11, 3], [2, 3], [2, 21, 13, 3]]


def make_model(whole: Model) -> Model:
    language = whole.head_specs["language"]
    assert isinstance(language, LanguageModeling)
    model = Model(
        whole.architecture, {"language": replace(language, generation=FINE_TUNING.generation)}
    )
    return model.initialize(5).eval()


@pytest.fixture(scope="module")
def model() -> Model:
    made = make_model(build("unilm"))
    with torch.no_grad():  # so that what is read matters
        for name, weight in made.named_parameters():
            if "attention" in name and weight.dim() == 2:
                weight.mul_(8)
    return made


@torch.no_grad()
def logs(model: Model, source: list[int], prefix: list[int]) -> torch.Tensor:
    """Return the log-probabilities at a mask after the prefix, without a cache."""
    target = FINE_TUNING.seq2seq_target
    assert target is not None
    example = target.unmasked_example(source, [*prefix, 4])
    scores = model.language_head.logits(model.hidden_states(pad_examples([example], SPECIAL)))[
        0, -1
    ]
    return scores[: SPECIAL.vocab_size].log_softmax(-1)


def test_source_is_bidirectional_and_target_causal(model: Model) -> None:
    example = MaskedTarget(segment_ids=(4, 5)).unmasked_example(SOURCES[0], [8, 9, 10, 3])
    short = MaskedTarget(segment_ids=(4, 5)).unmasked_example(SOURCES[1], [8])
    seen = np.zeros((10, 10), bool)
    seen[:, :6] = True
    for i in range(6, 10):
        seen[i, 6 : i + 1] = True
    assert torch.equal(depends(model, pad_examples([example], SPECIAL)), torch.from_numpy(seen))
    batch = pad_examples([example, short], SPECIAL)
    batch = replace(batch, inputs=batch.inputs.clone())
    assert torch.equal(depends(model, batch)[:10, :10], torch.from_numpy(seen))


def test_each_token_is_mask_prediction_given_all_before(model: Model) -> None:
    generated = generate(model, SOURCES, ENDLESS, generation_config(max_new_tokens=7))
    assert len({tuple(text) for text in generated}) == 3
    for source, text in zip(SOURCES, generated, strict=True):
        assert len(text) == 7
        for i, token in enumerate(text):
            assert token == int(logs(model, source, text[:i]).argmax())


def test_given_prefix_is_continued(model: Model) -> None:
    (whole,) = generate(model, SOURCES[:1], ENDLESS, generation_config(max_new_tokens=7))
    rest = generate(
        model,
        SOURCES[:1],
        ENDLESS,
        generation_config(max_new_tokens=4),
        output_prefixes=[whole[:3]],
    )
    assert rest == [whole[3:]]


@pytest.mark.parametrize(
    "how",
    [{}, {"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2}],
)
def test_source_alone_equals_source_in_batch(model: Model, how) -> None:
    config = generation_config(**how, max_new_tokens=9)
    alone = [generate(model, [source], SPECIAL, config)[0] for source in SOURCES]
    assert alone == generate(model, SOURCES, SPECIAL, config)


@pytest.mark.parametrize("beams", [1, 3])
def test_beam_scores_equal_full_forward(model: Model, beams: int) -> None:
    config = generation_config(beams=beams, n_best=beams, max_new_tokens=4, length_penalty=0.0)
    together = generate_candidates(model, SOURCES, SPECIAL, config)
    for source, best in zip(SOURCES, together, strict=True):
        (alone,) = generate_candidates(model, [source], SPECIAL, config)
        assert [one.token_ids for one in alone] == [one.token_ids for one in best]
        assert len({one.token_ids for one in best}) == beams
        for one in best:
            ids = [*one.token_ids, *([3] if len(one.token_ids) < 4 else [])]
            steps = [logs(model, source, ids[:i])[token].item() for i, token in enumerate(ids)]
            assert one.score == pytest.approx(sum(steps), rel=1e-4)
    if beams == 1:
        greedy = generate(model, SOURCES, SPECIAL, generation_config(max_new_tokens=4))
        assert [list(best[0].token_ids) for best in together] == greedy


def test_choices_are_scored_token_by_token_after_gold_prefix(model: Model) -> None:
    choices = [[8, 9, 10], [8], [22, 7]]
    (found,) = rank_choices(model, SOURCES[:1], [choices], SPECIAL)
    assert sorted(one.choice_index for one in found) == [0, 1, 2]
    for one in found:
        ids = [*choices[one.choice_index], 3]
        steps = [logs(model, SOURCES[0], ids[:i])[token].item() for i, token in enumerate(ids)]
        assert one.log_probability == pytest.approx(sum(steps), rel=1e-4)


def test_truncated_cache_equals_fresh_cache(model: Model) -> None:
    prompts = [Prompt(input_ids=source, n_source_tokens=len(source)) for source in SOURCES]
    with torch.no_grad():
        rows, other = DecodingBatch(model, prompts, SPECIAL), DecodingBatch(model, prompts, SPECIAL)
        first = rows.next_token_logits()
        rows.append_tokens(torch.tensor([[8, 9]] * 3))
        rows.next_token_logits()
        rows.append_tokens(torch.tensor([[10]] * 3))
        rows.crop(3)
        rows.select_rows(torch.tensor([2, 0]))
        rows.append_tokens(torch.tensor([[20], [21]]))
        other.select_rows(torch.tensor([2, 0]))
        other.append_tokens(torch.tensor([[20], [21]]))
        torch.testing.assert_close(rows.next_token_logits(), other.next_token_logits())
        torch.testing.assert_close(
            first[0, 0].log_softmax(-1), logs(model, SOURCES[0], []), rtol=1e-4, atol=1e-5
        )


def test_whole_source_is_read_when_text_exceeds_positions() -> None:
    whole = build("unilm")
    a = whole.architecture
    short = make_model(
        Model(replace(a, position=replace(a.position, max_positions=8)), whole.head_specs)
    )
    assert len(generate(short, [[2, 9, 3]], ENDLESS, generation_config(max_new_tokens=50))[0]) == 5
    with pytest.raises(ValueError, match="prompt 1 has 8 tokens, but the model only 7 positions"):
        generate(short, [[2] * 8], SPECIAL)
    config = generation_config(max_new_tokens=9, window=True)
    for n in (3, 6):  # the last: the source, one token and the mask
        assert len(generate(short, [[2] * n], ENDLESS, config)[0]) == 9
    with pytest.raises(ValueError, match="prompt 1 has 7 tokens, but the model only 6 positions"):
        generate(short, [[2] * 7], ENDLESS, config)
