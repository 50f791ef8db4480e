"""Prompted tasks: prompts, correct answers, and partial credit for ties."""

import math
from typing import Any

import pytest
from small_models import make, tokenizer

from unmask.evaluation.answer_methods import (
    GenerateUntil,
    MultipleChoiceScoring,
    PartialScoring,
    PromptedModel,
    PromptedRow,
    TargetLikelihood,
    TemplateRow,
    choice_credit,
    target_index,
    truncate_at,
    with_leading_space,
)
from unmask.evaluation.likelihood import continuation_likelihoods
from unmask.generation.prompts import generate_texts
from unmask.generation.settings import GenerationConfig

PROMPT, ENDS = "The old king saw", ["the gate", "a silver ring once again", "his own shadow"]


def row(**values: object) -> TemplateRow:
    return TemplateRow(values=values, location="rows.jsonl:3")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PromptedModel]:
    made = {}
    for family in ("bert", "gpt2", "t5"):
        _, loaded = make(family, tmp_path_factory.mktemp(family))
        made[family] = PromptedModel(model=loaded.model, tokenizer=tokenizer(family))
    return made


def test_template_is_filled_from_a_row() -> None:
    one = row(text="a {b}", n=3, lines=["x", "y"], none=None)
    assert one.render("{text}: {n}, {lines} {{n}}") == "a {b}: 3, x y {n}"
    assert one.template_value("{lines}") == ["x", "y"]
    assert one.template_value("{n}") == 3
    assert one.render_list("{lines}") == ["x", "y"]
    assert one.render_list("{text}!") == ["a {b}!"]
    with pytest.raises(ValueError, match=r"rows.jsonl:3: no column 'm' \(columns: 'text', 'n'"):
        one.render("{m}")
    with pytest.raises(ValueError, match=r"rows.jsonl:3: 'none' must be text, got NoneType None"):
        one.render("{none}")


def test_target_is_given_by_text_or_index() -> None:
    options = ["no", "yes", "0"]
    assert target_index(row(gold=1), "{gold}", options) == 1
    assert target_index(row(gold="yes"), "{gold}", options) == 1
    assert target_index(row(gold="0"), "{gold}", options) == 2, (
        "a text that is an option is that one"
    )
    assert target_index(row(gold=0), "{gold}", options) == 0
    assert target_index(row(gold=True), "{gold}", options) == 1
    assert target_index(row(), "1", options) == 1
    for wrong in (3, "maybe", -1):
        with pytest.raises(ValueError, match="must be one of 'no', 'yes', '0', or its index"):
            target_index(row(gold=wrong), "{gold}", options)


def test_ties_get_partial_credit() -> None:
    assert choice_credit([1.0, 1.0], 0) == choice_credit([1.0, 1.0], 1) == 0.5
    assert choice_credit([2.0, 2.0, 2.0, 1.0], 1) == pytest.approx(1 / 3)
    assert (choice_credit([1.0, 2.0], 1), choice_credit([1.0, 2.0], 0)) == (1.0, 0.0)


def test_equal_sentences_are_a_tie(models: dict) -> None:
    same = PromptedRow(prompt="", row=row(good="the sea", bad="the sea"))
    other = PromptedRow(prompt="", row=row(good="the sea", bad="the sea saw the quiet house"))
    scores = MultipleChoiceScoring(choices=("{good}", "{bad}"), target="0").score(
        models["bert"], [same, other]
    )
    assert scores[0].metrics["accuracy"] == 0.5
    assert scores[1].metrics["accuracy"] in (0.0, 1.0)


def test_answer_is_separated_from_prompt_by_one_space() -> None:
    assert [with_leading_space(p, "a") for p in ("", "b", "b ", "b\n")] == ["a", " a", "a", "a"]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize("normalize", ["sum", "token", "byte", "unconditional"])
def test_most_likely_choice_is_selected(family: str, normalize: Any, models: dict) -> None:
    model = models[family]
    likelihoods = continuation_likelihoods(
        model.model, model.tokenizer, [PROMPT] * 3, [f" {e}" for e in ENDS]
    )
    alone = continuation_likelihoods(
        model.model, model.tokenizer, ["So:"] * 3, [f" {e}" for e in ENDS]
    )
    scores = {
        "sum": [one.log_likelihood for one in likelihoods],
        "token": [one.log_likelihood / one.n_tokens for one in likelihoods],
        "byte": [one.log_likelihood / len(e) for one, e in zip(likelihoods, ENDS, strict=True)],
        "unconditional": [
            a.log_likelihood - b.log_likelihood for a, b in zip(likelihoods, alone, strict=True)
        ],
    }[normalize]
    part = MultipleChoiceScoring(
        choices="{options}", target="{gold}", normalization=normalize, neutral_context="So:"
    )
    items = [PromptedRow(prompt=PROMPT, row=row(options=ENDS, gold=i)) for i in range(3)]
    got = [one.metrics["accuracy"] for one in part.score(model, items)]
    assert got == [float(i == scores.index(max(scores))) for i in range(3)]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_partial_scoring_compares_contexts_by_their_suffix(family: str, models: dict) -> None:
    """Partial scoring: Trinh and Le 2018, section 3.1."""
    model = models[family]
    contexts = ["The old king feared the sea because the old king", "The gate"]
    likelihoods = continuation_likelihoods(
        model.model, model.tokenizer, contexts, [" was quiet."] * 2
    )
    best = 0 if likelihoods[0].log_likelihood > likelihoods[1].log_likelihood else 1
    part = PartialScoring(contexts="{options}", continuation="{end}", target="{gold}")
    items = [
        PromptedRow(prompt="", row=row(options=contexts, end="was quiet.", gold=g)) for g in (0, 1)
    ]
    assert [s.metrics["accuracy"] for s in part.score(model, items)] == [best == 0, best == 1]
    assert part.render_solved("", items[0].row) == f"{contexts[0]} was quiet."


def test_greedy_text_and_its_nats_are_reported(models: dict) -> None:
    model = models["gpt2"]
    greedy = generate_texts(
        model.model, model.tokenizer, [PROMPT], GenerationConfig(max_new_tokens=1)
    )[0].text
    items = [
        PromptedRow(prompt=PROMPT, row=row(last=w)) for w in (greedy.strip() or "x", "gatehouse")
    ]
    scores = TargetLikelihood(target="{last}").score(model, items)
    expected = continuation_likelihoods(model.model, model.tokenizer, [PROMPT] * 2, [
        with_leading_space(PROMPT, str(i.row.values["last"])) for i in items
    ])  # fmt: skip
    assert [s.metrics["perplexity"] for s in scores] == [one.log_likelihood for one in expected]
    assert [s.metrics["accuracy"] for s in scores] == [float(one.is_greedy) for one in expected]
    assert scores[1].metrics["accuracy"] == 0.0


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_generated_answer_is_compared_after_normalization(family: str, models: dict) -> None:
    model = models[family]
    text = generate_texts(
        model.model, model.tokenizer, [PROMPT], GenerationConfig(max_new_tokens=6)
    )[0].text
    output = truncate_at(text, ("\n",))
    part = GenerateUntil(target="{gold}", max_new_tokens=6, metric="f1")
    items = [
        PromptedRow(prompt=PROMPT, row=row(gold=g)) for g in (["zzz", output.upper()], "zzz zzz")
    ]
    found = [one.metrics for one in part.score(model, items)]
    assert found[0] == {"exact_match": 1.0, "f1": 1.0}
    assert found[1] == {"exact_match": 0.0, "f1": 0.0}
    assert part.primary_metric == "f1"


def test_answer_is_truncated_at_first_stop() -> None:
    assert truncate_at("a b\nc. d", ("\n", ".")) == "a b"
    assert truncate_at("a. b\nc", ("\n", ".", "")) == "a"
    assert truncate_at("a", ()) == "a"


def test_overlong_prompt_is_truncated_and_counted(models: dict) -> None:
    model = models["gpt2"]
    long = "the old king saw the gate " * 30
    item = PromptedRow(prompt=long.strip(), row=row(gold="x", options=["a", "b"]))
    n = len(model.tokenizer.encode(long.strip()))
    assert (
        GenerateUntil(target="{gold}", max_new_tokens=5).score(model, [item])[0].n_truncated_tokens
        == n - 35
    )
    one = MultipleChoiceScoring(choices="{options}", target="0").score(model, [item])[0]
    longest = max(len(model.tokenizer.encode(end)) for end in (" a", " b"))
    assert one.n_truncated_tokens == n + longest - 41
    short = PromptedModel(model=model.model, tokenizer=model.tokenizer, sequence_length=20)
    assert (
        GenerateUntil(target="{gold}", max_new_tokens=5).score(short, [item])[0].n_truncated_tokens
        == n - 15
    )
    with pytest.raises(ValueError, match="40 new tokens leave no room for prompts in 40"):
        GenerateUntil(target="{gold}", max_new_tokens=40).score(model, [item])


def test_too_few_choices_are_refused(models: dict) -> None:
    item = PromptedRow(prompt="", row=row(options=["one"], gold=0))
    with pytest.raises(ValueError, match=r"rows.jsonl:3: needs at least 2 choices, got 'one'"):
        MultipleChoiceScoring(choices="{options}", target="{gold}").score(models["gpt2"], [item])
    with pytest.raises(ValueError, match="at least 2 contexts"):
        PartialScoring(contexts="{options}", continuation="a", target="0").score(
            models["gpt2"], [item]
        )


def test_shots_show_the_correct_answer() -> None:
    one = row(q="How?", options=["so", "thus"], gold=1, said=["thus", "so"])
    assert (
        MultipleChoiceScoring(choices="{options}", target="{gold}").render_solved("Q: How?", one)
        == "Q: How? thus"
    )
    assert TargetLikelihood(target="{q}").render_solved("", one) == "How?"
    assert GenerateUntil(target="{said}").render_solved("A:", one) == "A: thus"
    assert math.isclose(choice_credit([0.0, -1.0], 0), 1.0)
