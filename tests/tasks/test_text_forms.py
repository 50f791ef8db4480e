"""Forms: columns put in text, targets as words and numbers, and answers read again."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config import from_dict, to_dict
from unmask.tasks.metrics.regression import pearson, spearman
from unmask.tasks.text_templates import (
    TEXT_TEMPLATES,
    TextTemplate,
    resolve_template,
    round_to_step,
)

STSB, SST2, MNLI = TEXT_TEMPLATES["stsb"], TEXT_TEMPLATES["sst2"], TEXT_TEMPLATES["mnli"]


@pytest.mark.parametrize("name", TEXT_TEMPLATES)
def test_each_published_form_names_columns_and_metric(name: str) -> None:
    form = TEXT_TEMPLATES[name]
    assert form.columns
    texts = [f"text {i}" for i, _ in enumerate(form.columns)]
    written = form.render(texts)
    assert all(text in written for text in texts)
    assert not {"{", "}"} & set(written)
    assert form.metric is None or form.metric in form.metric_names
    assert from_dict(TextTemplate, to_dict(form)) == form


def test_paper_examples_are_reproduced() -> None:  # appendix D
    assert STSB.render(["A.", "B."]) == "stsb sentence1: A. sentence2: B."
    assert SST2.render(["it confirms fincher"]) == "sst2 sentence: it confirms fincher"
    assert MNLI.render(["H.", "P."]) == "mnli hypothesis: H. premise: P."
    assert round_to_step(2.57, 0.2) == "2.6"  # section 2.4


def test_repeated_column_is_one_column() -> None:
    form = TextTemplate(source="{a} and {b}, {a}")
    assert form.columns == ("a", "b")
    assert form.render(["{b}", "y"]) == "{b} and y, {b}"


@pytest.mark.parametrize(
    ("number", "step", "text"),
    [
        (3.8, 0.2, "3.8"), (0.0, 0.2, "0.0"), (5.0, 0.2, "5.0"), (2.5, 0.2, "2.4"),
        (2.7, 0.2, "2.8"),
        (17.0, 5.0, "15"), (0.13, 0.25, "0.25"), (1e-5, 1e-05, "0.00001"), (-2.57, 0.2, "-2.6"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_to_a_step(number: float, step: float, text: str) -> None:
    assert round_to_step(number, step) == text


@given(st.floats(0, 5), st.sampled_from([0.1, 0.2, 0.25, 1.0]))
def test_rounding_is_near_and_idempotent(number: float, step: float) -> None:
    text = round_to_step(number, step)
    assert abs(float(text) - number) <= step / 2 + 1e-9
    assert round_to_step(float(text), step) == text


def test_target_is_rounded_but_scored_exactly() -> None:
    assert STSB.format_target("2.57", "score", "x:1") == ("2.6", "2.57")
    assert STSB.format_target(5, "score", "x:1") == ("5.0",)
    with pytest.raises(ValueError, match="x:1: 'score' must be from 0 to 5, got 7"):
        STSB.format_target("7", "score", "x:1")
    with pytest.raises(ValueError, match="x:1: 'score' must be a number"):
        STSB.format_target("good", "score", "x:1")


def test_malformed_prediction_is_wrong() -> None:
    assert [STSB.parse_prediction(s) for s in ("2.6", " 5 ", "5.2", "nan", "a cat", "")] == [
        2.6, 5.0, None, None, None, None,
    ]  # fmt: skip
    assert [SST2.parse_prediction(s) for s in ("positive", " negative", "Positive", "")] == [
        "positive", "negative", None, None,
    ]  # fmt: skip
    free = TextTemplate(number_step=0.5)
    assert [free.parse_prediction(s) for s in ("-7", "inf", "1e99")] == [-7.0, None, None]


def test_malformed_number_counts_as_minus_one() -> None:
    truth = [("2.6", "2.57"), ("5.0",), ("0.0",), ("1.0",)]
    found = STSB.compute_metrics(truth, ["2.4", "no", "0.2", "1.0"])
    exact, output = np.array([2.57, 5, 0, 1]), np.array([2.4, -1, 0.2, 1.0])
    assert found["pearson"] == pytest.approx(pearson(exact, output))
    assert found["spearman"] == pytest.approx(spearman(exact, output))
    assert found["no_number"] == 0.25
    assert STSB.compute_metrics(truth, ["2.57", "5.0", "0", "1"])["pearson"] == pytest.approx(1)


def test_unknown_binary_label_counts_as_the_other() -> None:
    mrpc = TEXT_TEMPLATES["mrpc"]
    no, yes = mrpc.labels
    found = mrpc.compute_metrics([(yes,), (no,), (yes,), (no,)], [yes, "a cat", "", no])
    assert found["accuracy"] == 0.5
    assert found["f1"] == 0.5  # one found, one missed, one invented
    assert found["no_label"] == 0.5


def test_unknown_label_of_three_is_wrong() -> None:
    a, b, c = MNLI.labels
    found = MNLI.compute_metrics([(a,), (b,), (c,)], [a, "?", c])
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert "f1" not in found


@pytest.mark.parametrize("form", [SST2, STSB])
def test_no_predictions_have_metrics(form: TextTemplate) -> None:
    assert set(form.compute_metrics([], [])) >= set(form.metric_names) - {"macro_f1"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": "a {b"}, "brace"),
        ({"source": "a"}, "must have a column"),
        ({"labels": ("a",)}, "two or more that differ"),
        ({"labels": ("a", "a")}, "two or more that differ"),
        ({"number_step": 0.0}, "above 0"),
        ({"labels": ("a", "b"), "number_step": 0.2}, "give labels or number_step"),
        ({"number_range": (0.0, 5.0)}, "needs number_step"),
        ({"number_step": 0.2, "number_range": (5.0, 0.0)}, "a minimum and a maximum"),
        ({"labels": ("a", "b"), "metric": "bleu"}, "must be one of accuracy"),
        ({"number_step": 0.2, "metric": "accuracy"}, "must be one of pearson, spearman"),
    ],
)
def test_impossible_form_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextTemplate(**wrong)  # pyright: ignore[reportArgumentType]


def test_unknown_form_name_is_refused() -> None:
    assert resolve_template("stsb", "here") is STSB
    with pytest.raises(ValueError, match=r"here must be one of cola, .*, or a table, got 'sts'"):
        resolve_template("sts", "here")


def test_default_columns_depend_on_the_form() -> None:
    def first(form: TextTemplate) -> Sequence[str]:
        return form.label_column_names[:1]

    assert [first(form) for form in (SST2, STSB, TextTemplate())] == [("label",), ("score",), ()]
