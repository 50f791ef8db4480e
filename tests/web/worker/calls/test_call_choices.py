"""What of a preset can be changed: each key is one that a recipe takes, and each reason is true."""

from pathlib import Path
from typing import Any

import pytest

from unmask.jobs.pretrain.plan import plan
from unmask.jobs.pretrain.resolve_options import resolve_recipe
from unmask.planning import rows
from unmask.web.worker.table import load_call
from unmask.zoo.catalogue import MODELS
from unmask.zoo.objectives.presets import parse_objective

KEPT_SIZES = {"bert-mini": 4, "t5-mini": 5, "lstm-mini": 3, "word2vec-cbow-mini": 3, "mae-mini": 4}


def ask(name: str, **arguments: Any) -> Any:
    return load_call(name)(arguments)


@pytest.mark.parametrize("name", MODELS)
def test_each_size_is_a_key_of_the_recipe(name: str) -> None:
    found = ask("preset_choices", model=name)
    changes = [f"{key}={one['value']}" for one in found["sizes"] for key in one["keys"]]
    recipe = resolve_recipe(name, changes)
    assert recipe.model == name
    assert len(found["sizes"]) == KEPT_SIZES.get(name, len(found["sizes"]))
    if found["objective"] is not None:
        assert parse_objective(found["objective"]).objective == MODELS[name].objective


def test_sizes_of_two_stacks_are_set_together() -> None:
    width = next(
        s for s in ask("preset_choices", model="t5-mini")["sizes"] if s["label"] == "Width"
    )
    assert width["keys"] == ["architecture.encoder.d_model", "architecture.decoder.d_model"]
    small = ask("plan", model="t5-mini", changes=[f"{key}=64" for key in width["keys"]])
    assert small["parameters"] < ask("plan", model="t5-mini")["parameters"] / 2


def test_objectives_say_why_not() -> None:
    found = {one["name"]: one for one in ask("objective_choices", model="bert-mini")["objectives"]}
    assert found["mlm"]["can"]
    assert found["mlm"]["options"][0] == {"name": "rate", "value": 0.15}
    assert found["nsp"]["follows"]
    assert not found["plm"]["can"]
    assert "positions must be in the attention scores" in found["plm"]["reason"]
    assert ask("objective_choices", model="glove-mini") == {"objectives": []}
    assert {one["name"]: one["value"] for one in found["rtd"]["options"]}["weight"] == 50


def test_a_text_is_hidden_by_a_tokenizer_of_its_own_language(tmp_path: Path) -> None:
    file = tmp_path / "satz.csv"
    rows = "\n".join(f"{i},Der Fischer {i % 9} fährt über den See." for i in range(300))
    file.write_text(f"id,body\n{rows}\n", encoding="utf-8")
    text = "Der Fischer fährt über den See."
    own = {"files": [str(file)], "vocab_size": 300, "text_column": "body"}
    found = ask("hide", model="gpt2-mini", text=text, **own)
    assert "ischer" in "".join(str(one["asked"]) for one in found["inputs"])
    tokens = ask("tokenize", model="bert-mini", text=text, **own)["tokens"]
    assert "fischer" in {one["piece"] for one in tokens}
    with pytest.raises(ValueError, match="no column 'text', only 'id', 'body'"):
        ask("tokenize", model="bert-mini", text=text, files=[str(file)], vocab_size=300)


def test_a_plan_learns_a_tokenizer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    learn = rows.train_tokenizer

    def counted(spec: Any, texts: Any) -> Any:
        calls.append("learned")
        return learn(spec, texts)

    monkeypatch.setattr(rows, "train_tokenizer", counted)
    rows.trained_tokenizer.cache_clear()
    first = plan(model="bert-tiny", hardware="a100", steps=10)
    changes = ["architecture.n_layers=3"]
    again = plan(model="bert-tiny", hardware="a100", steps=10, changes=changes)
    assert first.parameters < again.parameters
    assert calls == ["learned"]
