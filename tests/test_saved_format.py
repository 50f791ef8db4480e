"""Names of format 1 become those of today, by their type or by where they stand."""

import json
from pathlib import Path
from typing import Any

import pytest

from unmask.saved_format import (
    FORMAT,
    check_format,
    from_format_1,
    read_record,
    read_saved,
    renamed_type,
    write_record,
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"kind": "Hide", "choose": {"kind": "Spans", "rate": 0.1, "mean": 3.0}},
            {"kind": "Objective", "select": {"kind": "RandomSpanMasking", "rate": 0.1,
             "mean_span_length": 3.0}},
        ),
        (  # the other type of that name
            {"kind": "Spans", "term": "spans", "map": None},
            {"kind": "QuestionAnswering", "term": "spans", "transform": None},
        ),
        ({"kind": "Words", "rate": 0.15}, {"kind": "WholeWordMasking", "rate": 0.15}),
        (
            {"kind": "Words", "size": 9, "least": 2, "lowercase": True, "punctuation": True},
            {"kind": "WordLevel", "vocab_size": 9, "min_count": 2, "lowercase": True,
             "split_punctuation": True},
        ),
        (  # which of its names an option has follows from the task
            {"kind": "Task", "does": "answer", "options": {"longest": 30, "stride": 8}},
            {"kind": "Task", "task_kind": "answer",
             "options": {"max_answer_length": 30, "window_overlap": 8}},
        ),
        (
            {"kind": "Task", "does": "generate", "options": {"longest": 30}},
            {"kind": "Task", "task_kind": "generate", "options": {"max_target_length": 30}},
        ),
        (  # differences to a preset name no type
            {"kind": "Recipe", "architecture": {"position": {"length": 64}, "head_width": 8},
             "heads": {"generator": {"size": 0.25}}, "rate": 1e-3},
            {"kind": "Recipe",
             "architecture": {"position": {"max_positions": 64}, "head_dim": 8},
             "heads": {"generator": {"width_factor": 0.25}}, "learning_rate": 1e-3},
        ),
        (  # fields that parts have now
            {"kind": "Architecture", "scale": 1.0, "parallel": "one_norm", "mixed": False},
            {"kind": "Architecture", "attention": {"kind": "AttentionVariant", "scale": 1.0},
             "sublayers": {"kind": "ParallelSublayers", "shared_norm": True}},
        ),
        (
            {"kind": "Recipe", "architecture": {"shared": ["attention"], "mixed": True}},
            {"kind": "Recipe", "architecture": {"layers": {"shared_sublayers": ["attention"]},
             "sublayers": {"kind": "DepthWeightedSublayers"}}},
        ),
        (
            {"kind": "Cell", "changes": ["architecture.scale=1.0",
             "architecture={score_cap=5.0,d_ff=8}"]},
            {"kind": "StudyCell", "changes": ["architecture.attention.scale=1.0",
             "architecture={attention.logit_softcapping=5.0,d_ff=8}"]},
        ),
        (
            {"kind": "Cell", "changes": ["objective.choose.rate=0.1", "rate=0.5",
             "schedule=SlantedTriangle", "architecture={d_ff=8,position={length=64}}"],
             "tune": "mix"},
            {"kind": "StudyCell", "changes": ["objective.select.rate=0.1", "learning_rate=0.5",
             "schedule=SlantedTriangular", "architecture={d_ff=8,position={max_positions=64}}"],
             "tune": "scalar_mix"},
        ),
        (
            {"kind": "Study", "tune": "gradual:decay=0.4,over=0.5"},
            {"kind": "Study", "tune": "gradual:layerwise_lr_decay=0.4,unfreeze_fraction=0.5"},
        ),
        (  # a checkpoint names its optimizer by its type
            {"kind": "Progress", "optimizer": "Lamb", "tokens": 5},
            {"kind": "RunProgress", "optimizer": "LAMB", "n_tokens": 5},
        ),
        ({"anything": ["else", 1, None]}, {"anything": ["else", 1, None]}),
    ],
)  # fmt: skip
def test_format_1_names_translate_to_current_names(old: Any, new: Any) -> None:
    assert from_format_1(old) == new


def test_both_formats_are_read_and_a_later_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "unmask.json"
    path.write_text(json.dumps({"format": 1, "recipe": {"kind": "Recipe", "rate": 1.0}}))
    assert read_saved(path) == {
        "format": FORMAT,
        "recipe": {"kind": "Recipe", "learning_rate": 1.0},
    }
    path.write_text(json.dumps({"format": FORMAT, "recipe": {"rate": 1.0}}))
    assert read_saved(path)["recipe"] == {"rate": 1.0}
    for found in (FORMAT + 1, 0, True, "2", None):
        with pytest.raises(ValueError, match=rf"unmask\.json: format {found!r}"):
            check_format({"format": found}, path)


def test_embedded_record_is_read_by_its_format() -> None:
    plain = {"kind": "TokenMasking", "rate": 0.1}
    assert read_record(write_record(plain), "x") == plain
    old = {"kind": "TokenMasking", "choose": {"kind": "Tokenwise", "rate": 0.1}, "random": 0.2}
    assert read_record(old, "x") == {
        "kind": "TokenMaskingNoise", "select": plain, "random_token_probability": 0.2,
    }  # fmt: skip
    assert read_record("no table", "x") == "no table"
    assert renamed_type(old, "Houlsby") == "HoulsbyAdapter"
    assert renamed_type(write_record({}), "Houlsby") == "Houlsby"
