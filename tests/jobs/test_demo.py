"""The demo: all of it, in seconds instead of minutes."""

import json
from pathlib import Path

import pytest

from unmask.jobs.demo import demo


@pytest.mark.parametrize(
    ("expected_message", "message"),
    [
        ({"minutes": 0}, "minutes must be above 0, got 0"),
        ({"minutes": float("nan")}, "minutes must be above 0, got nan"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_invalid_numbers_are_refused(expected_message: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        demo(tmp_path / "demo", **expected_message)
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_demo_pretrains_fine_tunes_and_reports_only_once(tmp_path: Path, capsys) -> None:
    out = tmp_path / "demo"
    found = demo(out, minutes=0.1, seeds=1)
    output = capsys.readouterr().err
    assert "1. Pretraining" in output
    assert "2. Fine-tuning" in output
    assert "3. The report" in output
    assert {scored.arm for scored in found.finetuned.run_results} == {
        "pretrained",
        "not pretrained",
    }
    assert 0 < found.bigram_accuracy < 1
    assert json.loads((out / "results.json").read_text())["metric"]
    before = (out / "log.jsonl").read_bytes(), (out / "model.safetensors").read_bytes()
    again = demo(out, minutes=0.1, seeds=1, quiet=True)
    assert again.finetuned.run_results == found.finetuned.run_results
    assert capsys.readouterr().err == ""
    assert ((out / "log.jsonl").read_bytes(), (out / "model.safetensors").read_bytes()) == before
