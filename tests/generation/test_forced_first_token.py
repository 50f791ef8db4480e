"""Targets that begin with a special token (BART's <s>): it is forced, the rest is generated."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from generating import SPECIAL, pairs, prompts, reference_inputs, theirs

from unmask.evaluation.likelihood import ContextContinuation, token_likelihoods
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.settings import GenerationConfig, generation_config
from unmask.heads.model import Model

LEAD = 7
BART = replace(SPECIAL, start=0, prefix=(LEAD,))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Model]:
    return pairs(tmp_path_factory.mktemp("models"), spread=0.25)["bart"]


@pytest.mark.thorough
def test_greedy_text_equals_forced_first_token(pair) -> None:
    reference, model = pair
    expected, _ = theirs(reference, prompts(), None, 13, forced_bos_token_id=LEAD)
    assert {row[0] for row in expected} == {LEAD}
    generated = generate(model, prompts(), BART, GenerationConfig(max_new_tokens=12))
    assert generated == [row[1:] for row in expected]
    free = generate(model, prompts(), replace(BART, prefix=()), GenerationConfig(max_new_tokens=12))
    assert free != generated


@pytest.mark.sample(1)
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_beams_equal_forced_first_token(pair, penalty: float) -> None:
    reference, model = pair
    texts = prompts((9, 5, 5))
    end = generate(model, texts, BART, GenerationConfig(max_new_tokens=12))[0][3]
    how = {"length_penalty": penalty, "early_stopping": "never"}
    reference.generation_config.eos_token_id = end
    out = reference.generate(
        **reference_inputs(reference, texts), forced_bos_token_id=LEAD, max_new_tokens=13,
        num_beams=3, do_sample=False, pad_token_id=0, return_dict_in_generate=True,
        output_scores=True, **how,
    )  # fmt: skip
    rows = out.sequences[:, 2:].tolist()
    expected = [row[: row.index(end)] if end in row else row for row in rows]
    special = replace(BART, end=end)
    found = generate_candidates(
        model, texts, special, generation_config(max_new_tokens=12, beams=3, **how)
    )
    assert [list(best[0].token_ids) for best in found] == expected
    scores = out.sequences_scores.tolist()
    assert [best[0].score for best in found] == pytest.approx(scores, rel=1e-4)


@torch.no_grad()
def test_answer_likelihood_equals_forced_first_token(pair) -> None:
    reference, model = pair
    source, answer = [LEAD, 30, 11, 9], [12, 40, 8]
    (ours,) = token_likelihoods(
        model, BART, [ContextContinuation(context=(30, 11, 9), continuation=tuple(answer))]
    )
    out = reference(
        input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[0, LEAD, *answer[:-1]]])
    ).logits[0, 1:]
    expected = out.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum()
    assert ours.log_likelihood == pytest.approx(float(expected), rel=1e-4)
