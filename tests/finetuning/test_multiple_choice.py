"""Multiple choice: options are compared with one another in training and prediction."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from hypothesis import given, settings
from hypothesis import strategies as st

import unmask
from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.data.batch_stream import (
    BatchSize,
    group_examples,
    make_batch_stream,
    split_micro_batches,
)
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.multiple_choice_head import (
    MultipleChoiceFormulation,
    truncate_text_and_option,
)
from unmask.finetuning.initial_model.load import load_initial_model
from unmask.finetuning.results.predict import infer_task, predict
from unmask.heads.classification.choice_groups import ChoiceGroup, ChoiceGroups
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import TASK_KINDS, resolve_options
from unmask.tasks.readers.tables import read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.tokenizers.spec import SpecialTokenIds

CLOSE = 1e-4
SPECIAL = SpecialTokenIds(vocab_size=99, pad=0, start=1, end=2)
COLUMNS = TaskColumns(texts=("context", "question"), label="label", choices=("choices",))
TASK = Task(task_kind="choose", columns=COLUMNS, task_name="choose", max_length=40)
DATA = Path(__file__).parents[2] / "../shared/data/multiple_choice"


def some_items(n: int, seed: int = 0, *, known: bool = True) -> list[TaskExample]:
    """Make items whose correct option repeats the queried word."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        words = rng.choice(toy.WORDS[:20], 6, replace=False).tolist()
        n_options = int(rng.integers(2, 5))
        right = int(rng.integers(n_options))
        options = words[1 : n_options + 1]
        options[right] = words[0]
        made.append(
            TaskExample(texts=(" ".join(words[:1] * 3), "very"), choices=tuple(options),
                 label=right if known else None)
        )  # fmt: skip
    return made


def good(item: TaskExample) -> TaskExample:
    """Let the right option be "good", which is learned fast."""
    options = list(item.choices)
    options[item.label] = "good"
    return replace(item, choices=tuple(options))


def row(item: TaskExample) -> dict:
    return {
        "context": item.texts[0], "question": item.texts[1], "choices": list(item.choices),
        "label": item.label,
    }  # fmt: skip


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def opened(family: str) -> LoadedModel:
    """Make a random model that chooses, its weights large enough that options differ."""
    preset = toy.card(family)
    preset = replace(preset, heads=heads_for_task(TASK, preset))
    model = preset.build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.2)
    return LoadedModel(
        preset=preset,
        model=model,
        tokenizer=toy.tokenizer(family),
        label_names=(),
        missing=(),
        unexpected=(),
    )


@given(st.integers(0, 60), st.integers(0, 60), st.integers(2, 60))
def test_option_is_truncated_only_beyond_half(n_text: int, n_option: int, room: int) -> None:
    text, option = truncate_text_and_option(n_text, n_option, room)
    assert text + option == min(n_text + n_option, room)
    assert 0 <= text <= n_text
    assert option == n_option or (option >= room // 2 and n_option > room // 2)


def test_each_option_follows_the_text_end() -> None:
    for family in ("bert", "gpt2"):
        tokenizer, preset = toy.tokenizer(family), toy.card(family)
        formulation = formulate(replace(TASK, max_length=12), preset, tokenizer)
        assert isinstance(formulation, MultipleChoiceFormulation)
        item = TaskExample(
            texts=("cat " * 30 + "dog", "sun moon"), choices=("a tree", "runs"), label=1
        )
        first, second = formulation.build_inputs([item])
        text = tokenizer.encode(" ".join(item.texts)).ids.tolist()
        s, around = formulation.special_ids, formulation.template
        for question, option in ((first, "a tree"), (second, "runs")):
            ids = tokenizer.encode(option).ids.tolist()
            fixed = [*s.prefix, *around.separator, *ids, *s.suffix]
            kept = text[len(text) - (12 - len(fixed)) :]
            expected = [*s.prefix, *kept, *around.separator, *ids, *s.suffix]
            assert question.example.inputs.tolist() == expected
            assert question.truncated
            assert question.example.feature(ChoiceGroup) == ChoiceGroup(0)
        assert (first.example.label, second.example.label) == (0, 1)
        if family == "bert":
            n = len(expected) - len(ids) - len(s.suffix)
            assert second.example.segments.tolist() == [0] * n + [1] * (len(expected) - n)


def test_equal_options_tie_whatever_the_last_bits_of_their_scores() -> None:
    tokenizer, preset = toy.tokenizer("bert"), toy.card("bert")
    formulation = formulate(replace(TASK, max_length=12), preset, tokenizer)
    item = TaskExample(texts=("cat", "sun"), choices=("runs", "a tree", "runs"))
    scores = [np.array([x]) for x in (0.5, 0.0, np.nextafter(0.5, 1))]
    merged = formulation.merge_scores(formulation.build_inputs([item]), scores)
    assert merged[0, 0] == merged[0, 2] > merged[0, 1]
    assert formulation.prediction(item, merged) == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", toy.FAMILIES)
def test_prediction_does_not_depend_on_other_items(family: str) -> None:
    model = opened(family)
    items = some_items(9, 1, known=False)
    items[2] = replace(items[2], texts=("cat " * 200,))
    items[4] = replace(items[4], choices=("dog " * 200, "", "a"))
    given = [TASK_KINDS["choose"].reader.format_input(item) for item in items]
    alone = [predict(model, [one], task=TASK)[0] for one in given]
    for batch_tokens in (1, 90, 10_000):
        together = predict(model, given, task=TASK, batch_tokens=batch_tokens)
        for item, one, answer in zip(items, alone, together, strict=True):
            assert answer["probabilities"] == pytest.approx(one["probabilities"], abs=CLOSE)
            assert answer["index"] == one["index"]
            assert answer["choice"] == item.choices[answer["index"]]
            assert sum(answer["probabilities"]) == pytest.approx(1)
            assert len(answer["probabilities"]) == len(item.choices)
    assert len({str(answer) for answer in alone}) == len(alone)


@torch.no_grad()
def test_encoder_decoder_compares_option_likelihoods() -> None:
    model, task = opened("t5"), replace(TASK, max_length=99)
    formulation = formulate(task, model.preset, toy.tokenizer("t5"))
    (item,) = some_items(1, 3, known=False)
    (answer,) = predict(model, [TASK_KINDS["choose"].reader.format_input(item)], task=task)
    output = []
    for k in range(len(item.choices)):
        (question,) = formulation.build_inputs([replace(item, label=k)])
        batch = pad_examples([question.example], formulation.special_ids)
        output.append(-float(model.model(batch).terms["label"].total))
    expected = torch.tensor(output).softmax(0).tolist()
    assert answer["probabilities"] == pytest.approx(expected, abs=CLOSE)
    source = toy.tokenizer("t5").decode(question.example.source.tolist())
    listed = " ".join(f"choice{i}: {option}" for i, option in enumerate(item.choices, 1))
    assert source == f"choose {listed} context: {' '.join(item.texts)}"


@pytest.mark.parametrize("n_options", [2, 3, 5])
def test_scores_and_loss_equal_reference(n_options: int, tmp_path: Path) -> None:
    import transformers as hf

    tokenizer = toy.tokenizer("bert")
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, pad_token_id=tokenizer.special_ids.pad,
    )  # fmt: skip
    theirs = hf.BertForMultipleChoice(config).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_(std=0.2)
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    mine = load_folder(tmp_path)
    task = infer_task(mine)
    assert (task.task_kind, mine.missing, mine.unexpected) == ("choose", (), ())
    items = [i for i in some_items(60, 5) if len(i.choices) == min(n_options, 4)][:6]
    if n_options == 5:
        items = [replace(item, choices=(*item.choices, "moon")) for item in items]
    formulation = formulate(task, mine.preset, tokenizer)
    batch = pad_examples(
        [q.example for q in formulation.build_inputs(items)], formulation.special_ids
    )
    shape = (len(items), n_options, -1)
    seen = (batch.inputs != tokenizer.special_ids.pad).long()
    out = theirs(
        input_ids=batch.inputs.reshape(shape), token_type_ids=batch.segments.reshape(shape),
        attention_mask=seen.reshape(shape), labels=torch.tensor([item.label for item in items]),
    )  # fmt: skip
    with torch.no_grad():
        prediction = mine.model(batch, return_logits=True)
    assert prediction.terms["choice"].count == len(items)
    assert prediction.terms["choice"].loss.item() == pytest.approx(out.loss.item(), rel=1e-5)
    scores = prediction.logits["choice"].reshape(len(items), n_options)
    assert torch.allclose(scores, out.logits, atol=1e-4)
    given = [TASK_KINDS["choose"].reader.format_input(item) for item in items]
    for answer, row in zip(predict(mine, given), out.logits.softmax(-1).tolist(), strict=True):
        assert answer["probabilities"] == pytest.approx(row, abs=CLOSE)

    write_folder(tmp_path / "ours", mine.model, mine.preset, tokenizer)
    again = hf.BertForMultipleChoice.from_pretrained(tmp_path / "ours")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=40),
    st.integers(1, 200), st.integers(1, 9),
)  # fmt: skip
def test_options_of_an_item_stay_in_one_micro_batch(lengths, tokens, batch) -> None:
    examples = [
        Example(
            inputs=np.full(n, 5),
            targets=np.full(n, IGNORE_INDEX),
            features=(ChoiceGroup(i),),
            label=int(k == 0),
        )
        for i, some in enumerate(lengths)
        for k, n in enumerate(some)
    ]
    assert group_examples(examples) == [
        [i for i, e in enumerate(examples) if e.feature(ChoiceGroup) == ChoiceGroup(g)]
        for g in range(len(lengths))
    ]
    steps = make_batch_stream(
        examples, SPECIAL, BatchSize(n_units=batch, micro_batch_tokens=tokens), 0
    )(None)
    seen = 0
    for _ in range(-(-len(lengths) // batch)):
        parts, _ = next(steps)
        in_step = 0
        for part in parts:
            sizes = np.bincount(ChoiceGroups.numbers_of(part).numpy())
            # each group is whole: it has one right option
            assert int((part.labels == 1).sum()) == len(sizes)
            assert len(sizes) == 1 or part.inputs.numel() <= tokens
            in_step += len(sizes)
            seen += len(part.inputs)
        assert in_step <= batch
    assert seen == len(examples)


def test_micro_batching_does_not_change_gradients() -> None:
    model = opened("bert").model
    formulation = formulate(TASK, toy.card("bert"), toy.tokenizer("bert"))
    examples = [q.example for q in formulation.build_inputs(some_items(7, 2))]

    def slope(tokens: int) -> torch.Tensor:
        model.zero_grad()
        parts = split_micro_batches(examples, formulation.special_ids, tokens)
        n = sum(model.count_targets(part)["choice"] for part in parts)
        assert n == 7
        for part in parts:
            (model(part).terms["choice"].total / n).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    whole = slope(100_000)
    assert whole.abs().max() > 0
    for tokens in (1, 100):
        assert torch.allclose(slope(tokens), whole, atol=1e-5)


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", toy.FAMILIES)
def test_multiple_choice_is_learned_and_reloaded(family: str, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", [row(good(item)) for item in some_items(64, 0)])
    dev = write(tmp_path / "dev.jsonl", [row(good(item)) for item in some_items(20, 1)])
    base = toy.pretrained(family, tmp_path / "base")
    tuned = finetune(
        base,
        task="choose",
        train=train,
        dev=dev,
        out=tmp_path / "out",
        learning_rate=3e-3,
        batch_size=8,
        epochs={"bert": 4.0, "gpt2": 4.0, "t5": 6.0, "bart": 8.0}[family],
        terminal=None,
        dropout=0.0,
        precision="float32",
    )
    assert tuned.best_run.dev["accuracy"] > 0.9  # guessing has 0.36
    given = [TASK_KINDS["choose"].reader.format_input(item) for item in some_items(8, 7)]
    here = tuned.predict(given)
    there = unmask.load(tmp_path / "out").predict(given)
    for a, b in zip(here, there, strict=True):
        assert a["choice"] == b["choice"]
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
    found = unmask.load(tmp_path / "out").score(dev)
    assert found["accuracy"] == pytest.approx(tuned.best_run.dev["accuracy"])
    wrong = json.loads((tmp_path / "out" / "results.json").read_text())["errors"]
    assert all(one["truth"] in toy.WORDS and one["probability"] > 0 for one in wrong)


@pytest.mark.parametrize("family", toy.FAMILIES)
def test_first_of_tied_options_is_predicted(family: str) -> None:
    made, options = opened(family), ("runs", "walks", "runs", "walks", "runs")
    output = predict(made, [{"context": "a cat", "choices": options}], task=TASK)[0]
    probabilities = output["probabilities"]
    assert probabilities[0] == pytest.approx(probabilities[2], rel=1e-5)
    ask = formulate(TASK, made.preset, toy.tokenizer(family))
    item = TaskExample(texts=("a cat",), choices=options)
    for scores, first in (([-1, -3, -1, -3, -1], 0), ([-3, -1, -3, -1, -1], 1)):
        assert ask.prediction(item, np.array([scores], np.float64)) == first
        assert ask.prediction_record(item, np.array([scores], np.float64))["index"] == first


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"choices": ["a"], "label": 0}, r"bad.jsonl:2: only 1 option"),
        ({"choices": ["a", ""], "label": 0}, r"bad.jsonl:2: option 2 in 'choices' is empty"),
        ({"choices": [], "label": 0}, r"bad.jsonl:2: only no option"),
        ({"choices": ["a", "b"], "label": 2}, r"bad.jsonl:2: the answer .* is none of the 2"),
        ({"choices": ["a", "b"], "label": None}, r"bad.jsonl:2: no answer in column 'label'"),
        ({"choices": "a b", "label": 0}, r"bad.jsonl:2: 'choices' must be a list of options"),
    ],
)
def test_invalid_line_is_named(line: dict, message: str, tmp_path: Path) -> None:
    good = {"context": "x", "choices": ["a", "b", "c"], "label": 0}
    path = write(tmp_path / "bad.jsonl", [good, {"context": "x", **line}])
    kind, table = TASK_KINDS["choose"], read_table(path)
    columns = kind.reader.find_columns(table, (), None, ())
    with pytest.raises(ValueError, match=message):
        kind.reader.read_examples(
            table, columns, "strict", has_labels=True, options={"label_format": "from 0"}
        )


def test_answer_numbering_can_be_given(tmp_path: Path) -> None:
    rows = [{"context": "x", "choices": ["a", "b", "c"], "label": i} for i in (1, 2)]
    kind, table = TASK_KINDS["choose"], read_table(write(tmp_path / "short.jsonl", rows))
    columns = kind.reader.find_columns(table, (), None, ())
    with pytest.raises(ValueError, match="fit several formats"):
        kind.reader.read_examples(table, columns, "strict", has_labels=True, options={})
    found = kind.reader.read_examples(
        table,
        columns,
        "strict",
        has_labels=True,
        options=resolve_options("choose", {"label_format": "from 1"}),
    )
    assert [item.label for item in found] == [0, 1]
    with pytest.raises(ValueError, match=r"options.label_format"):
        resolve_options("choose", {"label_format": "from 2"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b", "text 1 must be a table with choices"),
        ({"context": "a"}, "text 1 must be a table with choices"),
        ({"context": "a", "choices": ["b"]}, "'choices' must be a list of 2 texts or more"),
        ({"context": "a", "choices": ["b", 3]}, "'choices' must be text, got int 3"),
        ({"context": 1, "choices": ["b", "c"]}, "'context' must be text"),
        ({"contxt": "a", "choices": ["b", "c"]}, "got 'contxt'"),
    ],
)
def test_invalid_choice_tasks_are_named(text, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predict(opened("bert"), [text], task=TASK)


def test_lines_and_tables_read_equally() -> None:
    kind = TASK_KINDS["choose"]
    item = kind.reader.parse_input(
        TASK, kind.reader.parse_line(TASK, "a cat\truns\twalks"), "line 1"
    )
    assert item == kind.reader.parse_input(
        TASK, {"context": "a cat", "choices": ["runs", "walks"]}, "line 1"
    )
    turns = kind.reader.parse_input(
        TASK, {"context": ["a", "b"], "question": "c", "choices": ("d", "e")}, "text 1"
    )
    assert turns.texts == ("a b", "c")
    assert kind.reader.parse_input(TASK, kind.reader.format_input(turns), "text 1") == turns


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_published_files_are_read_completely() -> None:
    counts = {
        "dream/dev.jsonl.xz": (2040, 3), "roc_story_cloze/dev.jsonl.xz": (1871, 2),
        "copa.jsonl": (100, 2),
    }  # fmt: skip
    kind = TASK_KINDS["choose"]
    for name, (n, n_options) in counts.items():
        table = read_table(DATA / name)
        columns = kind.reader.find_columns(table, (), None, ())
        found = kind.reader.read_examples(table, columns, "strict", has_labels=True, options={})
        assert len(found) == n
        assert {len(item.choices) for item in found} == {n_options}
        assert {item.label for item in found} == set(range(n_options))
        assert all(any(item.texts) for item in found)


def test_choice_model_is_tuned_further_with_its_head(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    initial = load_initial_model(str(base), TASK, [])
    assert initial.newly_initialized() == ("heads.choice.out.weight", "heads.choice.out.bias")
    theirs = load_folder(base).model.own_weights()["heads.next_sentence.dense.weight"]
    assert torch.equal(initial.pretrained_weights["heads.choice.dense.weight"], theirs)
    model = opened("bert")
    write_folder(tmp_path / "chooses", model.model, model.preset, toy.tokenizer("bert"))
    again = load_initial_model(str(tmp_path / "chooses"), TASK, [])
    assert again.newly_initialized() == again.unexpected == ()
    weights = again.build_model(1).own_weights()
    assert all(torch.equal(x, weights[name]) for name, x in model.model.own_weights().items())
