"""The table of zero-shot tasks: each reads files of its format, of every kind of model."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from small_models import make, tokenizer

from unmask.evaluation.answer_methods import PromptedModel
from unmask.evaluation.prompting import PromptingConfig, PromptTask, TaskScore
from unmask.evaluation.word_perplexity import WordPerplexityTask
from unmask.evaluation.zero_shot import ZERO_SHOT

CHOSEN = {"query": "Question: Who saw it?", "choices": ["the king", "a fox"], "gold": 1}
CONTEXTS = {
    "context_options": ["The fox saw the king because the fox", "The fox saw the king because he"],
    "continuation": "was quiet.", "gold": 0,
}  # fmt: skip
ROWS: dict[str, dict[str, Any]] = {
    "lambada": {"context": "The king loved the sea. He saw the", "continuation": "sea"},
    "blimp": {"uid": "u", "term": "binding", "good": "the king saw", "bad": "the king seen"},
    "winograd": CONTEXTS,
    "winogrande": CONTEXTS,
    "story-cloze": {"context": ["The king came.", "He saw."], "choices": ["a.", "b."], "answer": 1},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PromptedModel]:
    made = {}
    for family in ("bert", "gpt2", "t5"):
        _, loaded = make(family, tmp_path_factory.mktemp(family))
        made[family] = PromptedModel(model=loaded.model, tokenizer=tokenizer(family))
    return made


def _other(value: Any) -> Any:
    if isinstance(value, list):
        return [_other(one) for one in value]
    return f"{value} so" if isinstance(value, str) else value


def written(task: PromptTask | WordPerplexityTask, folder: Path) -> Path:
    """Write a file of a task's format."""
    for names in (task.test, task.train if isinstance(task, PromptTask) else ()):
        for name in names[:1] if isinstance(names, tuple) else [names]:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            row = ROWS.get(task.name, CHOSEN)
            rows = [row, {k: _other(v) for k, v in row.items()}]
            line = "\n".join(map(json.dumps, rows)) if name.endswith("jsonl") else "the sea\n a b"
            path.write_text(line)
    return folder


@pytest.mark.sample(10)
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize("name", [n for n, t in ZERO_SHOT.items() if isinstance(t, PromptTask)])
def test_task_is_scored_for_every_kind_of_model(
    name: str, family: str, models: dict, tmp_path: Path
) -> None:
    task = ZERO_SHOT[name]
    for shots in (0, 1):
        got: TaskScore = task.score(
            models[family], written(task, tmp_path), PromptingConfig(shots=shots)
        )
        assert (got.task, got.n_examples) == (name, 2)
        assert 0 <= got.score.value <= 1
        assert set(got.groups) == ({"binding", "binding so"} if name == "blimp" else set())


@pytest.mark.parametrize(
    "name", [n for n, t in ZERO_SHOT.items() if isinstance(t, WordPerplexityTask)]
)
def test_generation_task_is_scored_for_causal_models(
    name: str, models: dict, tmp_path: Path
) -> None:
    got = ZERO_SHOT[name].score(
        models["gpt2"], written(ZERO_SHOT[name], tmp_path), PromptingConfig()
    )
    assert got.n_examples == 6
    assert math.isfinite(got.score.value)


def test_every_task_has_a_unique_name_and_paper() -> None:
    assert all(name == task.name and task.paper for name, task in ZERO_SHOT.items())
