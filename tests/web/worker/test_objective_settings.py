"""The numbers of an objective, and `hide` with other ones."""

import re
from typing import Any

import pytest

from unmask.web.worker.calls.hiding import hide, hide_answers
from unmask.web.worker.calls.models.facts import list_studies
from unmask.web.worker.objective_settings import objective_settings, setting_changes
from unmask.zoo.catalogue import get_preset

TEXT = "The cat sat on the mat because it was tired. Then it slept."


def settings_of(name: str) -> dict[str, tuple[str, float]]:
    return {
        one.key: (one.kind, one.value) for one in objective_settings(get_preset(name).objective)
    }


def test_settings_of_nested_objectives_by_the_keys_of_changes() -> None:
    found = settings_of("bert-mini")
    assert found["select.rate"] == ("share", 0.15)
    assert found["sentence_task.single_sentences"] == ("boolean", False)
    assert settings_of("t5-mini")["select.mean_span_length"] == ("number", 3.0)
    assert settings_of("xlnet-mini")["select.context_factor"] == ("integer", 6)
    assert settings_of("bart-mini")["noises.1.rate"] == ("share", 0.3)
    assert settings_of("gpt2-mini") == settings_of("unilm-mini") == {}
    assert {*settings_of("word2vec-skipgram-mini")} == {
        "window",
        "dynamic_window",
        "output_layer.n_negatives",
    }


@pytest.mark.parametrize(
    "name",
    ["bert-mini", "bart-mini", "xlnet-mini", "ul2-mini", "glove-mini", "coco-lm-mini", "elmo-mini"],
)
def test_values_are_within_their_ranges(name: str) -> None:
    for one in objective_settings(get_preset(name).objective):
        assert one.low <= one.value <= one.high, one


def test_changes_are_those_of_the_command_line() -> None:
    bart = get_preset("bart-mini").objective
    [change] = setting_changes(bart, {"noises.1.rate": 0.5, "noises.0.fraction": 0})
    assert change.startswith(
        'noises=[{kind = "SentencePermutation", fraction = 0}, {kind = "TextInfilling", rate = 0.5'
    )
    bert = get_preset("bert-mini").objective
    wanted = {"select.rate": 0.5, "corrupt.whole_spans": True}
    assert setting_changes(bert, wanted) == ["select.rate=0.5", "corrupt.whole_spans=true"]


@pytest.mark.parametrize(("settings", "line"), [
    ({"rate": 0.5}, "settings: no 'rate'; there are select.rate, "),
    ({"select.rate": "0.5"}, "settings: select.rate must be a number, got '0.5'"),
    ({"select.rate": 7}, "rate must be above 0 and at most 1, got 7"),
])  # fmt: skip
def test_wrong_settings_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        hide({"model": "unmask-mini-en", "text": TEXT, "objective": "mlm", "settings": settings})


def test_hide_and_answers_with_other_settings() -> None:
    given = {
        "model": "unmask-mini-en",
        "text": TEXT,
        "objective": "mlm",
        "settings": {"select.rate": 0.6},
    }
    told = hide(given)
    places = [i for i, one in enumerate(told["inputs"]) if one["asked"]]
    assert len(places) == round(0.6 * len(told["inputs"]))
    assert told["changes"] == ["select.rate=0.6"]
    assert {one["key"]: one["value"] for one in told["settings"]}["select.rate"] == 0.6
    answers = hide_answers(given)["answers"]
    assert [one["position"] for one in answers] == places
    assert [one["target"] for one in answers] == [told["inputs"][i]["asked"] for i in places]


def test_published_studies() -> None:
    found = {one["name"]: one for one in list_studies({})["studies"]}
    assert found["t5-rates"]["cells"][0] == "no-pretraining"
    assert found["t5-rates"]["question"].endswith("?")
    assert "transfer" in found
