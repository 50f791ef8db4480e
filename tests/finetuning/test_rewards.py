"""Reward models: Bradley-Terry of two, all pairs of several, the token that is read, and files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, tokenizer

from unmask.batch import Batch
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.conversations.messages import Message
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.conversations.reward_metrics import reward_metrics
from unmask.finetuning.formulations.conversations.rewards import RewardFormulation
from unmask.heads.classification.choice_groups import ChoiceGroups, RewardMargins
from unmask.heads.classification.label_losses import PairwiseRanking
from unmask.inference.open_model import load
from unmask.jobs.finetune import finetune
from unmask.preferences.pair_losses import bradley_terry_loss, ranking_loss
from unmask.tasks.kinds.prefer import PREFER, PreferenceReader
from unmask.tasks.readers.tables import read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.zoo.catalogue import MODELS

COLUMNS = TaskColumns(texts=("chosen", "rejected"), label="last turn")
PROMPT = (Message("user", "a dog runs"),)


def batch_of(labels: list[int], groups: list[int]) -> Batch:
    n = len(labels)
    return Batch(
        inputs=torch.zeros(n, 1, dtype=torch.long), labels=torch.tensor(labels),
        features=(ChoiceGroups(torch.tensor(groups)),),
    )  # fmt: skip


def test_loss_of_pairs_is_bradley_terry() -> None:
    rewards = torch.tensor([1.0, 0.2, 0.9, 0.5])
    term = PairwiseRanking().term(rewards[:, None], batch_of([1, 0, 0, 1], [0, 0, 1, 1]))
    assert float(term.total) / int(term.count) == pytest.approx(0.642058, abs=1e-6)
    assert (int(term.count), int(term.n_correct)) == (2, 1)
    expected = bradley_terry_loss(rewards[[0, 3]], rewards[[1, 2]], 0.3).sum()
    with_margin = PairwiseRanking(0.3).term(
        rewards[:, None], batch_of([1, 0, 0, 1], [0, 0, 1, 1]), training=True
    )
    torch.testing.assert_close(with_margin.total, expected)
    plain = PairwiseRanking(0.3).term(rewards[:, None], batch_of([1, 0, 0, 1], [0, 0, 1, 1]))
    torch.testing.assert_close(plain.total, term.total)


def test_margins_of_rows_are_those_of_trl() -> None:
    """TRL's reward trainer: the mean of -logsigmoid(chosen - rejected - margin)."""
    rewards, margins = torch.tensor([1.0, 0.2, 0.9, 0.5]), torch.tensor([0.3, -1.0])
    batch = batch_of([1, 0, 0, 1], [0, 0, 1, 1])
    batch = replace(batch, features=(*batch.features, RewardMargins(margins[[0, 0, 1, 1]])))
    term = PairwiseRanking(5.0).term(rewards[:, None], batch, training=True)
    difference = rewards[[0, 3]] - rewards[[1, 2]] - margins
    torch.testing.assert_close(term.total, -torch.nn.functional.logsigmoid(difference).sum())
    scored = PairwiseRanking(5.0).term(rewards[:, None], batch)
    plain = bradley_terry_loss(rewards[[0, 3]], rewards[[1, 2]], 0.0).sum()
    torch.testing.assert_close(scored.total, plain)


def test_margins_are_read_and_travel_with_their_responses(tmp_path: Path) -> None:
    rows = [{"prompt": "a dog", "chosen": "the cat", "rejected": "a fox"}] * 3
    margins: list[dict[str, Any]] = [{"margin": 2}, {"margin": None}, {}]
    rows = [row | more for row, more in zip(rows, margins, strict=True)]
    path, reader = tmp_path / "x.jsonl", PreferenceReader()
    path.write_text("\n".join(map(json.dumps, rows)))

    def read() -> list[TaskExample]:
        table = read_table(path)
        return reader.read_examples(table, COLUMNS, "strict", has_labels=True, options={})

    assert [item.margin for item in read()] == [2.0, None, None]
    words = tokenizer("gpt2")
    card = MODELS["gpt2-mini"].with_vocabulary(words.special_ids)
    task = Task(task_kind="prefer", columns=COLUMNS, max_length=99, options={"margin": 0.5})
    inputs = formulate(task, card, words).build_inputs(read())
    batch = pad_examples([one.example for one in inputs], words.special_ids)
    found = batch.feature(RewardMargins)
    assert found is not None
    assert found.values.tolist() == [2, 2, 0.5, 0.5, 0.5, 0.5]
    for wrong in ('"much"', "true", "1e999"):
        path.write_text(json.dumps(rows[0] | {"margin": 0}).replace("0}", wrong + "}"))
        with pytest.raises(ValueError, match="'margin' must be a number"):
            read()


def test_loss_of_rankings_is_that_of_all_pairs() -> None:
    rewards = torch.tensor([0.1, 2.0, 0.5, 1.0, 0.3])
    labels, groups = [0, 1, 0, -1, 1], [0, 1, 1, 1, 0]
    term = PairwiseRanking().term(rewards[:, None], batch_of(labels, groups))
    expected = ranking_loss(rewards[[4, 0]]) + ranking_loss(rewards[[1, 2, 3]])
    torch.testing.assert_close(term.total, expected)
    assert (int(term.count), int(term.n_correct)) == (2, 2)
    tied = PairwiseRanking().term(torch.ones(2, 1), batch_of([1, 0], [0, 0]))
    assert int(tied.n_correct) == 0


def formulation(family: str = "gpt2", length: int = 200) -> RewardFormulation:
    words = tokenizer(family)
    card = {"gpt2": "gpt2-mini", "bert": "bert-tiny"}[family]
    task = Task(task_kind="prefer", columns=COLUMNS, max_length=length)
    made = formulate(task, MODELS[card].with_vocabulary(words.special_ids), words)
    assert isinstance(made, RewardFormulation)
    return made


def item(*responses: str, prompt: tuple[Message, ...] = PROMPT) -> TaskExample:
    return TaskExample(
        texts=tuple(m.content for m in prompt), label=0, choices=responses, turns=prompt,
        location="x:1",
    )  # fmt: skip


ITEMS = [item("the cat", "a dog runs and runs"), item("the old king sees", "a fox", "the")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    sizes = {"gpt2": {"n_positions": 256}, "bert": {"max_position_embeddings": 256}}
    kinds = {"gpt2": "GPT2ForSequenceClassification", "bert": "BertForSequenceClassification"}
    return {
        family: make(
            family, tmp_path_factory.mktemp(family), kinds[family], num_labels=1, **sizes[family]
        )
        for family in sizes
    }


@pytest.mark.parametrize("family", ["gpt2", "bert"])
@torch.no_grad()
def test_rewards_equal_transformers_wherever_padding_stands(
    family: str, models: dict[str, tuple[Any, LoadedModel]]
) -> None:
    reference, ours = models[family]
    made = formulation(family)
    examples = [one.example for one in made.build_inputs(ITEMS)]
    rewards = [made.compute_scores(ours.model, pad_examples(examples, made.special_ids), [])]
    alone = [
        made.compute_scores(ours.model, pad_examples([one], made.special_ids), [])[0]
        for one in examples
    ]
    np.testing.assert_allclose(np.concatenate(rewards[0]), np.concatenate(alone), atol=1e-5)
    width = max(len(one.inputs) for one in examples) + 3
    for side in ("right", "left"):
        if (family, side) == ("bert", "left"):
            continue  # its positions are those of columns
        ids = torch.full((len(examples), width), made.special_ids.pad)
        mask = torch.zeros_like(ids)
        for row, one in enumerate(examples):
            n = len(one.inputs)
            at = slice(0, n) if side == "right" else slice(width - n, width)
            ids[row, at], mask[row, at] = torch.from_numpy(one.inputs), 1
        more = {}
        if family == "gpt2":
            more["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad():
            theirs = reference(input_ids=ids, attention_mask=mask, **more).logits[:, 0]
        np.testing.assert_allclose(np.concatenate(rewards[0]), theirs.numpy(), atol=2e-5)


def test_the_last_token_that_is_read_is_no_padding_token() -> None:
    made = formulation()
    special = made.special_ids
    assert special.pad == special.end
    for one in made.build_inputs(ITEMS):
        assert one.example.inputs[-1] != special.pad
    text = made.tokenizer.decode(made.build_inputs(ITEMS)[1].example.inputs)
    assert text.endswith("a dog runs and runs")
    inputs = formulation("bert").build_inputs(ITEMS)
    ids = formulation("bert").special_ids
    for one in inputs:
        assert (one.example.inputs[0], one.example.inputs[-1]) == (*ids.prefix, *ids.suffix)
        assert (one.example.inputs == ids.end).sum() == 1


def test_responses_of_a_comparison_are_cut_alike_or_left_out() -> None:
    long = (Message("user", "the cat " * 30), Message("assistant", "a fox"), *PROMPT)
    whole = item("the cat", "a dog", prompt=long)
    made = formulation(length=60)
    inputs = made.build_inputs([whole])
    assert all(one.truncated for one in inputs)
    assert len({tuple(one.example.inputs[:5].tolist()) for one in inputs}) == 1
    kept, reasons = made.fitting_items([whole, item("the cat", "a dog " * 50)])
    assert kept == [whole]
    assert reasons == ["1 whose last turns are longer than 60 tokens"]


def test_files_of_pairs_and_rankings(tmp_path: Path) -> None:
    hh = {
        "chosen": "\n\nHuman: a dog\n\nAssistant: the cat",
        "rejected": "\n\nHuman: a dog\n\nAssistant: a fox",
    }
    ranked = {"prompt": "a dog", "responses": ["the cat", "a fox", "the"]}
    reader = PreferenceReader()
    for row, n in ((hh, 2), (ranked, 3)):
        (tmp_path / "x.jsonl").write_text(json.dumps(row))
        table = read_table(tmp_path / "x.jsonl")
        columns = reader.find_columns(table, (), None, ())
        (found,) = reader.read_examples(table, columns, "strict", has_labels=True, options={})
        assert found.turns == (Message("user", "a dog"),)
        assert found.choices == ("the cat", "a fox", "the")[:n]
        assert found.label == 0
        task = Task(task_kind="prefer", columns=COLUMNS)
        again = reader.parse_input(task, reader.format_input(found), "text 1")
        assert (again.turns, again.choices) == (found.turns, found.choices)
    (tmp_path / "x.jsonl").write_text(json.dumps({**ranked, "responses": ["one"]}))
    with pytest.raises(ValueError, match="must be a list of 2 to 64 responses"):
        reader.read_examples(
            read_table(tmp_path / "x.jsonl"), columns, "strict", has_labels=True, options={}
        )
    (tmp_path / "x.jsonl").write_text(json.dumps({"prompt": "a", "better": "b"}))
    with pytest.raises(ValueError, match="no column 'chosen'"):
        reader.find_columns(read_table(tmp_path / "x.jsonl"), (), None, ())


def test_metrics_of_rewards() -> None:
    rewards = [np.array([2.0, 0.0]), np.array([0.0, 1.0]), np.array([0.5, 0.0])]
    lengths = [np.array([3, 1]), np.array([1, 5]), np.array([2, 2])]
    found = reward_metrics(rewards, lengths)
    shares = 1 / (1 + np.exp(-np.array([2.0, 1.0, 0.5])))  # of the predicted winners
    right = np.array([1, 0, 1])
    # Bins above 0.8 and 0.7, and between 0.6 and 0.7: each has one pair.
    assert found["calibration_error"] == pytest.approx(np.abs(shares - right).mean())
    assert (found["longer_chosen"], found["longer_preferred"]) == (0.5, 1.0)
    expected = np.corrcoef([6, 2, 2, 5, 4, 2], [5, 1.5, 1.5, 6, 3.5, 3.5])[0, 1]
    assert found["length_correlation"] == pytest.approx(expected)
    assert reward_metrics([np.array([1.0])], [np.array([2])]) == {}
    same = reward_metrics([np.array([1.0, 0.0])], [np.array([2, 2])])
    assert same.keys() == {"calibration_error"}
    of_ranking = reward_metrics([np.array([3.0, 2.0, 1.0])], [np.array([1, 2, 3])])
    assert (of_ranking["longer_chosen"], of_ranking["longer_preferred"]) == (0.0, 0.0)
    assert of_ranking["length_correlation"] == pytest.approx(-1)


def test_accuracy_has_an_interval() -> None:
    task = Task(task_kind="prefer", columns=COLUMNS)
    found = PREFER.compute_metrics(task, [0] * 10, [0] * 8 + [1, -1])
    assert found["accuracy"] == 0.8
    assert found["accuracy_low"] == pytest.approx(0.4902, abs=1e-4)
    assert found["accuracy_high"] == pytest.approx(0.9433, abs=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_reward_is_learned_and_opens_in_transformers(
    family: str, models: dict[str, tuple[Any, LoadedModel]], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import transformers as hf

    words = ("cat", "dog", "king", "fox")
    rows = [
        {"instruction": f"the {words[i % 4]} runs", "chosen": f"the {words[i // 4 % 4]} sees",
         "rejected": f"a {words[(i + 1) % 4]} runs"}
        for i in range(32)
    ]  # fmt: skip
    data = tmp_path / "x.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    base, (reference, ours) = tmp_path / "base", models[family]
    reference.save_pretrained(base)
    assert ours.tokenizer is not None
    ours.tokenizer.save(base)
    out = tmp_path / "run"
    finetune(
        str(base), task="prefer", train=str(data), dev=str(data), out=str(out), epochs=25.0,
        learning_rate=2e-3, batch_size=8, max_length=128, terminal=None,
    )  # fmt: skip
    tuned = load(out)
    scores = tuned.score(data)
    assert scores["accuracy"] > 0.85
    better, worse = tuned.predict([
        [{"role": "user", "content": "the dog runs"}, {"role": "assistant", "content": x}]
        for x in ("the king sees", "a cat runs")
    ])  # fmt: skip
    assert isinstance(better, dict)
    assert isinstance(worse, dict)
    best = int(better["reward"] > worse["reward"])
    assert best == 1 or family == "bert"
    both = tuned.predict([{"prompt": "the dog runs", "responses": ["a cat runs", "the king sees"]}])
    assert isinstance(both[0], dict)
    assert both[0]["index"] == best
    assert both[0]["rewards"] == pytest.approx([worse["reward"], better["reward"]], abs=1e-4)
    model: Any = hf.AutoModelForSequenceClassification.from_pretrained(out)
    known: Any = hf.AutoTokenizer.from_pretrained(out)
    turns = [{"role": "user", "content": "the dog runs"},
             {"role": "assistant", "content": "the king sees"}]  # fmt: skip
    text = known.apply_chat_template(turns, tokenize=False)
    ids = known(text, return_tensors="pt", add_special_tokens=family == "gpt2")["input_ids"]
    if family == "bert":
        ids = torch.cat((torch.tensor([[known.cls_token_id]]), ids), 1)
    with torch.no_grad():
        theirs = float(model(input_ids=ids).logits)
    assert better["reward"] == pytest.approx(theirs, abs=1e-4)
    assert cli.run(["predict", str(out), "the dog runs\tthe king sees"]) == 0
    assert json.loads(capsys.readouterr().out)["reward"] == pytest.approx(theirs, abs=1e-4)


def test_an_adapter_of_rewards_opens_again(
    models: dict[str, tuple[Any, LoadedModel]], tmp_path: Path
) -> None:
    base, (reference, ours) = tmp_path / "base", models["gpt2"]
    reference.save_pretrained(base)
    assert ours.tokenizer is not None
    ours.tokenizer.save(base)
    row = {"prompt": "a dog", "chosen": "the cat", "rejected": "a fox"}
    (tmp_path / "x.jsonl").write_text("\n".join([json.dumps(row)] * 12))
    words = ["finetune", str(base), "--task", "prefer", "--train", str(tmp_path / "x.jsonl")]
    assert cli.run([*words, "--tune", "lora", "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    turns = [{"role": "user", "content": "a dog"}, {"role": "assistant", "content": "the cat"}]
    (found,) = load(tmp_path / "run").predict([turns])
    assert isinstance(found, dict)
    assert np.isfinite(found["reward"])
