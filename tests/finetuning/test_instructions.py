"""Instructions: responses alone are learned, in rows of one or several; nothing is lost."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, tokenizer

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.conversations.messages import Message
from unmask.conversations.template import ChatTemplate
from unmask.finetuning.data.batch_stream import BatchSize, make_batch_stream
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.inference.open_model import load
from unmask.jobs.finetune import finetune
from unmask.tasks.kinds.instruct import ConversationReader
from unmask.tasks.readers.tables import read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.zoo.catalogue import MODELS

COLUMNS = TaskColumns(texts=("messages",), label="last turn")
CHAT = (
    Message("system", "the cat"), Message("user", "a dog runs"), Message("assistant", "the king"),
    Message("user", "a fox"), Message("assistant", "the old cat sees a dog"),
)  # fmt: skip


def item(*turns: Message, location: str = "x:1") -> TaskExample:
    return TaskExample(
        texts=tuple(m.content for m in turns[:-1]), label=(turns[-1].content,), turns=turns,
        location=location,
    )  # fmt: skip


def formulation(family: str = "gpt2", length: int = 200, **options: Any) -> InstructionFormulation:
    words = tokenizer(family)
    card = {"gpt2": "gpt2-mini", "t5": "t5-mini"}[family]
    task = Task(
        task_kind="instruct", columns=COLUMNS, max_length=length, metric="loss", options=options
    )
    made = formulate(task, MODELS[card].with_vocabulary(words.special_ids), words)
    assert isinstance(made, InstructionFormulation)
    return made


def learned(made: InstructionFormulation, some: TaskExample) -> list[str]:
    """Return the texts that have a loss, each a run of targets."""
    (one,) = made.build_inputs([some])
    targets = one.example.targets
    is_target = np.concatenate(([0], targets != IGNORE_INDEX, [0])).astype(int)
    edges = np.flatnonzero(np.diff(is_target)).reshape(-1, 2)
    words = made.tokenizer
    return [words.decode(targets[a:b], skip_special_tokens=False) for a, b in edges]


def test_all_responses_and_nothing_else_have_a_loss() -> None:
    end = tokenizer("gpt2").special_tokens.end
    assert learned(formulation(), item(*CHAT)) == [f"the king{end}", f"the old cat sees a dog{end}"]
    assert learned(formulation(), item(*CHAT[:3])) == [f"the king{end}"]


def test_responses_with_a_weight_of_0_are_read_and_not_learned(tmp_path: Path) -> None:
    made, end = formulation(), tokenizer("gpt2").special_tokens.end
    found = {}
    for weights in ((1, 1), (0, 1), (1, 0), (0, 0)):
        numbers = iter(weights)
        messages = [m.to_dict() for m in CHAT]
        for message in messages:
            if message["role"] == "assistant":
                message |= {"weight": next(numbers)}
        (tmp_path / "x.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
        (row,) = ConversationReader().read_examples(
            read_table(tmp_path / "x.jsonl"), COLUMNS, "strict", has_labels=True, options={}
        )
        kept, reasons = made.fitting_items([row])
        found[weights] = learned(made, row) if kept else reasons
        if weights == (0, 1):
            whole, weighted = made.build_inputs([item(*CHAT), row])
            assert weighted.example.inputs.tolist() == whole.example.inputs.tolist()
    texts = [f"the king{end}", f"the old cat sees a dog{end}"]
    assert list(found.values()) == [texts, texts[1:], texts[:1], ["1 without a response to learn"]]


def test_targets_are_the_next_tokens() -> None:
    (one,) = formulation().build_inputs([item(*CHAT)])
    inputs, targets = one.example.inputs, one.example.targets
    is_target = targets[:-1] != IGNORE_INDEX
    assert (targets[:-1][is_target] == inputs[1:][is_target]).all()


def test_an_encoder_decoder_reads_the_prompt_and_writes_the_last_response() -> None:
    made = formulation("t5")
    words = made.tokenizer
    (one,) = made.build_inputs([item(*CHAT)])
    assert one.example.source is not None
    source = words.decode(one.example.source)
    assert "the king" in source
    assert "the old cat sees" not in source
    assert one.example.source[-1] == words.special_ids.end
    assert words.decode(one.example.targets) == "the old cat sees a dog"
    assert one.example.targets[-1] == words.special_ids.end
    assert one.example.inputs[0] == words.special_ids.start
    assert (one.example.inputs[1:] == one.example.targets[:-1]).all()


def test_what_is_generated_follows_the_prompt_that_was_learned() -> None:
    made = formulation()
    known = made.build_inputs([item(*CHAT)])[0].example
    asked = TaskExample(texts=("",), turns=CHAT[:-1], location="x:1")
    prompt = made.build_inputs([asked])[0].example
    assert made.prompt_ids(known).tolist() == prompt.inputs.tolist()
    assert made.prompt_ids(prompt).tolist() == prompt.inputs.tolist()


def test_long_conversations_lose_their_first_turns_and_too_long_ones_are_counted() -> None:
    whole = formulation()
    n = len(whole.build_inputs([item(*CHAT)])[0].example.inputs)
    shorter = formulation(length=n - 1)
    (one,) = shorter.build_inputs([item(*CHAT)])
    assert one.truncated
    text = shorter.tokenizer.decode(one.example.inputs)
    assert "the cat" in text  # of the system
    assert "the king" not in text
    assert "the old cat sees a dog" in text
    rows = [
        item(*CHAT), item(Message("user", "a dog " * 90), Message("assistant", "the cat")),
        item(Message("user", "a dog"), Message("assistant", "the cat " * 90)),
        item(Message("user", "a dog"), Message("assistant", "  ")),
    ]  # fmt: skip
    kept, reasons = whole.fitting_items(rows)
    assert kept == rows[:1]
    assert reasons == [
        "1 without a response to learn",
        "2 whose last turns are longer than 200 tokens",
    ]
    with pytest.raises(ValueError, match="x:1: its last turns do not fit 200 tokens"):
        whole.build_inputs(rows[1:2])


def test_end_of_a_response_is_that_of_the_template() -> None:
    assert formulation().end_id == tokenizer("gpt2").special_ids.end
    words = tokenizer("gpt2")
    special = replace(words.special_tokens, first_in_vocabulary=("<|im_start|>", "<|im_end|>"))
    more = words.with_special_tokens(special)
    chatml = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    task = Task(
        task_kind="instruct", columns=COLUMNS, max_length=200, metric="loss",
        options={"chat_template": chatml},
    )  # fmt: skip
    made = formulate(task, MODELS["gpt2-mini"].with_vocabulary(more.special_ids), more)
    assert isinstance(made, InstructionFormulation)
    assert more.pieces([made.end_id]) == ["<|im_end|>"]
    assert learned(made, item(*CHAT[1:3])) == ["the king<|im_end|>"]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, LoadedModel]:
    return make("gpt2", tmp_path_factory.mktemp("decoder"), n_positions=256)


ROWS = [
    item(*CHAT), item(*CHAT[:3]), item(Message("user", "a dog"), Message("assistant", "the cat")),
    item(Message("user", "the old king sees a fox"), Message("assistant", "a dog runs and runs")),
]  # fmt: skip


def test_loss_equals_transformers_where_padding_is_the_end_token(
    decoder: tuple[Any, LoadedModel],
) -> None:
    reference, ours = decoder
    made = formulation()
    special = made.special_ids
    assert special.pad == special.end
    examples = [one.example for one in made.build_inputs(ROWS)]
    batch = pad_examples(examples, special)
    width = batch.inputs.shape[1]
    labels = torch.full((len(examples), width + 1), -100)
    ids = torch.full((len(examples), width + 1), special.pad)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(examples):
        n = len(one.inputs)
        ids[row, :n] = torch.from_numpy(one.inputs)
        ids[row, n] = int(one.targets[-1])
        labels[row, 1 : n + 1] = torch.from_numpy(one.targets)
        mask[row, : n + 1] = 1
    with torch.no_grad():
        theirs = reference(input_ids=ids, attention_mask=mask, labels=labels).loss
        term = ours.model(batch).terms["next_token"]
    torch.testing.assert_close(term.loss, theirs, rtol=1e-5, atol=0)
    assert int(term.count) == sum(int((e.targets != IGNORE_INDEX).sum()) for e in examples)


def test_packed_rows_have_the_loss_and_gradient_of_separate_ones(
    decoder: tuple[Any, LoadedModel],
) -> None:
    model = decoder[1].model
    made = formulation(packing="pack")
    examples = [one.example for one in made.build_inputs(ROWS)]

    def gradient(row_length: int | None) -> tuple[list[int], float, torch.Tensor]:
        size = BatchSize(n_units=4, micro_batch_tokens=400, row_length=row_length)
        ((micro, _),) = [next(make_batch_stream(examples, made.special_ids, size, 0)(None))]
        model.zero_grad()
        total = torch.zeros(())
        for batch in micro:
            total = total + model(batch).terms["next_token"].total
        total.backward()
        found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        return [len(b.inputs) for b in micro], float(total.detach()), found.clone()

    rows, loss, plain = gradient(None)
    packed_rows, packed_loss, packed = gradient(made.row_length)
    assert sum(packed_rows) < sum(rows) == 4
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-5)


def test_packing_drops_nothing() -> None:
    made = formulation(packing="pack")
    examples = [one.example for one in made.build_inputs(ROWS * 9)]
    size = BatchSize(n_units=36, micro_batch_tokens=400, row_length=made.row_length)
    ((micro, _),) = [next(make_batch_stream(examples, made.special_ids, size, 3)(None))]
    n = sum(int((b.targets != IGNORE_INDEX).sum()) for b in micro if b.targets is not None)
    assert n == sum(int((e.targets != IGNORE_INDEX).sum()) for e in examples)
    assert all(b.inputs.shape[1] == 200 for b in micro)


FORMATS: dict[str, list[dict[str, Any]]] = {
    "alpaca.jsonl": [{"instruction": "a dog", "input": "", "output": "the cat"}],
    "dolly.jsonl": [{"instruction": "a dog", "context": "runs", "response": "the cat"}],
    "messages.jsonl": [{"messages": [m.to_dict() for m in CHAT]}],
    "sharegpt.json": [{"conversations": [{"from": "human", "value": "a dog"},
                                         {"from": "gpt", "value": "the cat"}]}],
    "prompt.jsonl": [{"prompt": "a dog", "completion": "the cat"}],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_every_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = FORMATS[name]
    text = json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows))
    path.write_text(text + "\n")
    reader = ConversationReader()
    table = read_table(path)
    columns = reader.find_columns(table, (), None, ())
    (found,) = reader.read_examples(table, columns, "strict", has_labels=True, options={})
    assert found.turns[-1].role == "assistant"
    assert found.label == (found.turns[-1].content,)
    (asked,) = reader.read_examples(table, columns, "strict", has_labels=False, options={})
    assert asked.turns == found.turns[:-1]
    assert asked.label is None


def test_named_columns_are_prompt_and_response(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question,hint,reply\na dog,runs,the cat\n")
    table = read_table(tmp_path / "x.csv")
    reader = ConversationReader()
    columns = reader.find_columns(table, ("question", "hint"), "reply", ())
    (found,) = reader.read_examples(table, columns, "strict", has_labels=True, options={})
    assert found.turns == (Message("user", "a dog\n\nruns"), Message("assistant", "the cat"))
    with pytest.raises(ValueError, match="which column holds the prompt"):
        reader.find_columns(table, (), None, ())


def _write(path: Path, n: int = 24) -> Path:
    words = ("cat", "dog", "king", "fox")
    rows = [
        {"instruction": f"the {words[i % 4]} runs", "output": f"a {words[i % 4]}"} for i in range(n)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


@pytest.mark.sample(1)
@pytest.mark.parametrize("packing", ["bucket", "pack"])
def test_responses_are_learned_and_the_folder_chats_in_transformers(
    packing: str, decoder: tuple[Any, LoadedModel], tmp_path: Path
) -> None:
    import transformers as hf

    data = _write(tmp_path / "x.jsonl")
    base = tmp_path / "base"
    decoder[1].tokenizer.save(base)  # type: ignore[union-attr]
    decoder[0].save_pretrained(base)
    out = tmp_path / "run"
    finetune(
        str(base), task="instruct", train=str(data), dev=str(data), out=str(out), epochs=30.0,
        learning_rate=3e-3, batch_size=8, max_length=128, terminal=None,
        task_options={"packing": packing, "max_response_length": 8},
    )  # fmt: skip
    tuned = load(out)
    answers = tuned.predict(["the dog runs", [{"role": "user", "content": "the king runs"}]])
    assert [one["answer"] for one in answers] == ["a dog", "a king"]
    assert tuned.score(data)["loss"] < 0.8
    reference: Any = hf.AutoModelForCausalLM.from_pretrained(out)
    words: Any = hf.AutoTokenizer.from_pretrained(out)
    ids = words.apply_chat_template(
        [{"role": "user", "content": "the fox runs"}], add_generation_prompt=True,
        return_tensors="pt", return_dict=True,
    )["input_ids"]  # fmt: skip
    written = reference.generate(ids, max_new_tokens=8, do_sample=False)
    assert words.decode(written[0, ids.shape[1] :], skip_special_tokens=True).strip() == "a fox"
    assert tuned.task is not None
    names = tuned.task.options["template_tokens"]
    template = tuned.loaded_model.chat_template
    assert template is not None
    own = ChatTemplate(tuned.task.options["chat_template"], names)
    assert template.render(CHAT) == own.render(CHAT)


def test_command_counts_what_is_left_out(
    decoder: tuple[Any, LoadedModel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = _write(tmp_path / "x.jsonl", 12)
    with data.open("a") as file:
        file.write(json.dumps({"instruction": "a dog", "output": ""}) + "\n")
        file.write(json.dumps({"instruction": "a dog " * 200, "output": "a cat"}) + "\n")
    words = [
        "finetune",
        "gpt2-mini",
        "--task",
        "instruct",
        "--train",
        str(data),
        "--dev",
        str(data),
    ]
    words += ["--epochs", "1", "--max-length", "64", "--out", str(tmp_path / "run")]
    assert cli.run(words) == 0
    err = capsys.readouterr().err
    left = "14 rows: 1 without a response to learn; 1 whose last turns are longer than 64"
    assert left in err
    assert cli.run(["evaluate", str(tmp_path / "run"), "--data", str(data)]) == 0
    assert "left out of 14 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "row", "message"),
    [
        ("bert-mini", {"instruction": "a", "output": "b"}, "does not write from left to right"),
        ("gpt2-mini", {"instruction": "a", "output": " "}, "no row has a response"),
        ("gpt2-mini", {"messages": [{"role": "user", "content": "a"}]}, "must be of the assistant"),
        ("gpt2-mini", {"instruction": "a <|endoftext|>", "output": "b"}, "a special token"),
    ],
)
def test_what_is_refused(
    model: str, row: dict[str, Any], message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "x.jsonl").write_text("\n".join([json.dumps(row)] * 12))
    words = ["finetune", model, "--task", "instruct", "--train", str(tmp_path / "x.jsonl")]
    assert cli.run([*words, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
