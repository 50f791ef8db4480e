"""Pipelines: outputs are those of the model, and a saved folder keeps all of it."""

import gzip
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from small_models import FAMILIES, make, texts, tokenizer
from toy_text import corpus

from unmask.config import to_dict
from unmask.finetuning.results.predict import predict
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.inference.generation import as_text_list
from unmask.inference.open_model import load
from unmask.inference.pipeline import DEFAULT_SEQUENCE_LENGTH, Pipeline
from unmask.jobs.finetune import finetune
from unmask.objectives.published import MASKED_LM
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.task import Task, TaskColumns

SOME = ["The old king saw the gate.", "", *texts(5, most=9), "the old king " * 30]
LABELS = {0: "told", 1: "spoken", 2: "neither"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        made[family] = make(family, folder)[0], folder
    return made


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fine-tune for an instant, to have real folders."""
    rows = "\n".join(f"{text}\t{'ab'[i % 2]}" for i, text in enumerate(texts(12)))
    made = {}
    for family in ("bert", "t5"):
        folder = tmp_path_factory.mktemp("tuned")
        make(family, folder / "base")
        (folder / "rows.tsv").write_text(f"sentence\tsaid\n{rows}\n")
        made[family] = folder / "run"
        finetune(
            folder / "base", task="classify", train=folder / "rows.tsv", dev=folder / "rows.tsv",
            text="sentence", label="said", out=folder / "run", epochs=1.0, terminal=None,
        )  # fmt: skip
    return made


def reference_logits(family: str, reference: Any, ids: list[int]) -> torch.Tensor:
    read = torch.tensor([ids])
    if family == "t5":
        start = torch.tensor([[tokenizer("t5").special_ids.start]])
        return reference(input_ids=read, decoder_input_ids=start).logits[0]
    out = reference(input_ids=read)
    return (out.prediction_logits if family == "bert" else out.logits)[0]


def framed(family: str, text: str) -> list[int]:
    special = tokenizer(family).special_ids
    room = None if family == "t5" else 40 - len(special.prefix) - len(special.suffix)
    ids = tokenizer(family).encode(text).ids[:room].tolist()
    return [*special.prefix, *ids, *special.suffix] or [special.start]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_equal_reference(family: str, folders: dict) -> None:
    reference, folder = folders[family]
    found = load(folder).logits(SOME)
    for text, scores in zip(SOME, found, strict=True):
        expected = reference_logits(family, reference, framed(family, text))
        assert scores.shape == tuple(expected.shape)
        np.testing.assert_allclose(scores, expected.numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("bert", "BertForSequenceClassification"),
        ("bert", "BertForTokenClassification"),
        ("gpt2", "GPT2ForSequenceClassification"),
        ("gpt2", "GPT2ForTokenClassification"),
    ],
)
@torch.no_grad()
def test_classification_logits_equal_reference(family: str, kind: str, tmp_path: Path) -> None:
    reference, _ = make(family, tmp_path, kind, id2label=LABELS, num_labels=3)
    pipeline = load(tmp_path)
    assert pipeline.can_predict
    assert pipeline.label_names == ("told", "spoken", "neither")
    some = [text for text in SOME if text]  # GPT-2's empty text is all padding to the reference
    for text, scores in zip(some, pipeline.logits(some), strict=True):
        expected = reference(input_ids=torch.tensor([framed(family, text)])).logits[0]
        assert scores.shape == tuple(expected.shape)
        np.testing.assert_allclose(scores, expected.numpy(), rtol=0, atol=1e-4)


def test_model_without_head_has_no_logits(tmp_path: Path) -> None:
    make("bert", tmp_path, "BertModel")
    with pytest.raises(ValueError, match="this model has no head; use `embed`"):
        load(tmp_path).logits(["a"])


def test_single_text_and_list_give_equal_results(folders: dict) -> None:
    bert, gpt2 = load(folders["bert"][1]), load(folders["gpt2"][1])
    blank = "The old [MASK] saw the gate."
    assert [bert.fill(blank, top_k=3)] == bert.fill([blank], top_k=3)
    config = GenerationConfig(max_new_tokens=8)
    assert [gpt2.generate("The old", config)] == gpt2.generate(["The old"], config)
    np.testing.assert_array_equal(bert.embed("the king"), bert.embed(["the king"]))
    assert len(bert.logits("the king")) == 1


def test_generated_text_continues_the_prompt(folders: dict) -> None:
    pipeline = load(folders["gpt2"][1])
    known, config = pipeline.tokenizer, GenerationConfig(max_new_tokens=12)
    for prompt in ("The old king", "The old king ", "", "un\u00e9 \u2603"):
        ids = known.encode(prompt).ids.tolist()
        (new,) = generate(pipeline.model, [ids], known.special_ids, config)
        assert prompt + pipeline.generate(prompt, config) == known.decode([*ids, *new])
    with pytest.raises(ValueError, match=r"prompt 1 has \d+ tokens, but the model only 40 pos"):
        pipeline.generate("the old king " * 40)


def test_encoder_decoder_input_has_special_tokens(folders: dict) -> None:
    from transformers import AutoTokenizer

    reference, folder = folders["t5"]
    reader = AutoTokenizer.from_pretrained(folder)
    for prompt in ("the king <extra_id_0> saw", ""):
        read = reader(prompt, return_tensors="pt")
        out = reference.generate(**read, max_new_tokens=9, do_sample=False)[0]
        generated = load(folder).generate(prompt, GenerationConfig(max_new_tokens=9))
        assert generated == reader.decode(out, skip_special_tokens=True)


# Labels


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_fine_tuned_folder_predicts_reads_rows_and_scores(
    family: str, tuned: dict, tmp_path: Path
) -> None:
    pipeline = load(tuned[family])
    assert pipeline.can_predict
    assert pipeline.task is not None
    assert pipeline.task.columns == TaskColumns(texts=("sentence",), label="said")
    some = [text for text in SOME if len(text) < 100]
    answers = pipeline.predict(some)
    assert answers == predict(pipeline.loaded_model, some, task=pipeline.task)
    (alone,) = pipeline.predict(some[0])
    assert alone["probabilities"] == pytest.approx(answers[0]["probabilities"])
    assert {answer["label"] for answer in answers} <= {"a", "b"}
    path = tmp_path / "new.tsv"
    path.write_text("sentence\tsaid\nthe king\ta\nher brother\tb\n")
    assert pipeline.read_inputs(path) == ["the king", "her brother"]
    scores = pipeline.score(path)
    predictions = [answer["label"] for answer in pipeline.predict(pipeline.read_inputs(path))]
    right = (predictions[0] == "a") + (predictions[1] == "b")
    assert scores["accuracy"] == right / 2
    assert scores["loss"] > 0
    path = tmp_path / "new.jsonl"
    path.write_text('{"text": "the king"}\n{"text": "a gate"}\n')
    assert pipeline.read_inputs(path) == ["the king", "a gate"]  # a customary column
    with pytest.raises(ValueError, match=r"new\.jsonl.*which column holds the label"):
        pipeline.score(path)
    path.write_text('{"words": "the king"}\n')
    with pytest.raises(ValueError, match=r"new\.jsonl: which column holds the text"):
        pipeline.read_inputs(path)
    with pytest.raises(FileNotFoundError, match=r"none\.tsv: no such file"):
        pipeline.read_inputs(tmp_path / "none.tsv")


def test_read_inputs_are_accepted_by_predict(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path / "pairs", "BertForSequenceClassification", num_labels=2)
    labels = loaded.label_names
    pairs = Task(
        task_kind="pairs",
        columns=TaskColumns(texts=("a", "b"), label="c"),
        labels=labels,
        max_length=40,
    )
    path = tmp_path / "pairs.csv"
    path.write_text('a,b,c\nthe king,"the gate, the sea",LABEL_0\n')
    pipeline = Pipeline(loaded, pairs)
    assert pipeline.read_inputs(path) == [("the king", "the gate, the sea")]
    assert len(pipeline.predict(pipeline.read_inputs(path))) == 1
    assert pipeline.score(path)["accuracy"] in (0, 1)
    _, loaded = make("bert", tmp_path / "tags", "BertForTokenClassification", num_labels=2)
    path = tmp_path / "tags.conll"
    path.write_text("the X\nking Y\n\nher X\n")
    pipeline = Pipeline(loaded)
    assert pipeline.can_predict
    assert pipeline.read_inputs(path) == [["the", "king"], ["her"]]
    assert [len(a["labels"]) for a in pipeline.predict(pipeline.read_inputs(path))] == [2, 1]
    with pytest.raises(ValueError, match=r"tags\.conll:1: label 'X' .* must be one of"):
        pipeline.score(path)


LINES = {
    "classify": ("the king sees", "the king sees"),
    "regress": ("the king\tthe sea", ("the king", "the sea")),
    "tag": ("the king  sees ", ["the", "king", "sees"]),
    "answer": ("who sees\tthe king", {"question": "who sees", "context": "the king"}),
    "choose": ("who sees\ta king\ta sea", {"context": "who sees", "choices": ["a king", "a sea"]}),
}


@pytest.mark.parametrize("kind", LINES)
def test_plain_text_line_is_one_text(kind: str, folders: dict, tmp_path: Path) -> None:
    texts = ("a", "b") if kind in ("regress", "answer") else ("a",)
    task = Task(
        task_kind=cast(TaskKindName, kind),
        columns=TaskColumns(texts=texts, label="c"),
        max_length=40,
    )
    pipeline = Pipeline(load(folders["bert"][1]).loaded_model, task)
    line, text = LINES[kind]
    for name in ("new.txt", "new.txt.gz"):
        data = f"{line}\r\n \n{line}".encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        assert pipeline.read_inputs(tmp_path / name) == [text, text]
    (tmp_path / "new.txt").write_bytes(b"a\0b\tc\td\n")
    with pytest.raises(ValueError, match=r"new\.txt:1: a NUL character"):
        pipeline.read_inputs(tmp_path / "new.txt")


@pytest.mark.parametrize("kind", ["regress", "answer", "choose"])
def test_line_without_tab_is_named(kind: str, folders: dict, tmp_path: Path) -> None:
    columns = TaskColumns(texts=("a", "b"), label="c")
    pipeline = Pipeline(
        load(folders["bert"][1]).loaded_model,
        Task(task_kind=cast(TaskKindName, kind), columns=columns, max_length=40),
    )
    (tmp_path / "new.txt").write_text(f"{LINES[kind][0]}\nno tab\n")
    with pytest.raises(ValueError, match=r"new\.txt:2"):
        pipeline.read_inputs(tmp_path / "new.txt")


@pytest.mark.thorough
def test_pairs_read_by_saved_model_are_predicted(tmp_path: Path) -> None:
    make("bert", tmp_path / "base")
    pairs = list(zip(texts(12), texts(12, seed=1), strict=True))
    rows = "".join(f"{a}\t{b}\t{i % 3}\n" for i, (a, b) in enumerate(pairs))
    (tmp_path / "rows.tsv").write_text(f"one\tother\tsaid\n{rows}")
    run = finetune(
        tmp_path / "base", task="regress", train=tmp_path / "rows.tsv", dev=tmp_path / "rows.tsv",
        text=("one", "other"), label="said", out=tmp_path / "run", epochs=1.0, terminal=None,
    )  # fmt: skip
    mine = load(tmp_path / "run")
    locations = [run.save(tmp_path / "by the run")]
    locations += [mine.save(tmp_path / name, format=name) for name in ("huggingface", "unmask")]
    for position in locations:
        again = load(position)
        assert again.task == mine.task
        assert again.read_inputs(tmp_path / "rows.tsv") == pairs
        assert again.predict(pairs) == mine.predict(pairs)


def test_pretrained_model_refuses_predict(folders: dict, tmp_path: Path) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("text\tlabel\nthe king\ta\n")
    for family in FAMILIES:
        pipeline = load(folders[family][1])
        assert not pipeline.can_predict
        for use in (pipeline.predict, pipeline.read_inputs, pipeline.score):
            with pytest.raises(ValueError, match="has no head that labels texts; fine-tune it"):
                use(str(path))


def test_classifier_refuses_evaluation_of_pretraining(tuned: dict, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(corpus(2))
    with pytest.raises(ValueError, match=r"no head for masked or next_sentence.*\(it has label\)"):
        load(tuned["bert"]).evaluate(tmp_path / "text.txt")


# Evaluation


def test_evaluation_defaults_to_objective_and_length_of_the_run(
    folders: dict, tmp_path: Path, monkeypatch: Any
) -> None:
    from unmask.evaluation.perplexity import evaluate
    from unmask.inference import pipeline as module

    requests: list[tuple[Any, int]] = []

    def record(*given: Any) -> Any:
        requests.append((given[2], given[-1].sequence_length))
        return evaluate(*given)

    monkeypatch.setattr(module, "evaluate", record)
    (tmp_path / "text.txt").write_text(corpus(2))
    folder = tmp_path / "run"
    _, loaded = make("bert", folder, max_position_embeddings=1000)
    load(folder).evaluate(tmp_path / "text.txt")
    recipes = [
        {"model": "bert-tiny", "objective": None, "sequence_length": None, "steps": 3},
        {"model": "bert-tiny", "objective": to_dict(MASKED_LM), "sequence_length": 77},
        {"model": "bert-tiny", "objective": to_dict(MASKED_LM), "sequence_length": 7000},
        {"model": "of a later version"},
    ]
    for recipe in recipes:
        facts = {"format": 2, "kind": "pretrain", "recipe": recipe}
        (folder / "unmask.json").write_text(json.dumps(facts))
        load(folder).evaluate(tmp_path / "text.txt")
    load(folder).evaluate(tmp_path / "text.txt", sequence_length=30)
    assert requests == [
        (loaded.preset.objective, DEFAULT_SEQUENCE_LENGTH),
        (loaded.preset.objective, 128),
        (MASKED_LM, 77),
        (MASKED_LM, 1000),
        (loaded.preset.objective, DEFAULT_SEQUENCE_LENGTH),
        (loaded.preset.objective, 30),
    ]
    with pytest.raises(
        ValueError, match="sequence_length must be at most the model's 1000 positions"
    ):
        load(folder).evaluate(tmp_path / "text.txt", sequence_length=1001)
    with pytest.raises(FileNotFoundError, match=r"none\.txt: no such file"):
        load(folder).evaluate(tmp_path / "none.txt")
    (folder / "unmask.json").write_text(
        '{"format": 2, "kind": "pretrain", "recipe": {"sequence_length": ""}}'
    )
    with pytest.raises(ValueError, match=r"unmask\.json: recipe\.sequence_length"):
        load(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_held_out_text_is_evaluated(family: str, folders: dict, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(corpus(4))
    result = load(folders[family][1]).evaluate(tmp_path / "text.txt")
    assert result.documents == 4
    assert set(result.loss) <= set(load(folders[family][1]).preset.objective.loss_terms)
    assert all(np.isfinite(list(result.loss.values())))
    assert (result.bits_per_byte is not None) is (family == "gpt2")


# Folders


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("format", ["huggingface", "unmask"])
def test_saved_model_opens_with_equal_weights_and_ids(
    family: str, format: Any, folders: dict, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    pipeline = load(folders[family][1])
    assert pipeline.save(tmp_path / "new" / "saved", format=format) == tmp_path / "new" / "saved"
    again = load(tmp_path / "new" / "saved")
    mine, theirs = pipeline.model.own_weights(), again.model.own_weights()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert again.loaded_model.missing == again.loaded_model.unexpected == ()
    assert again.model.head_specs == pipeline.model.head_specs
    reader = AutoTokenizer.from_pretrained(tmp_path / "new" / "saved")
    for text in SOME:
        ids = pipeline.tokenizer.encode(text).ids.tolist()
        assert again.tokenizer.encode(text).ids.tolist() == ids
        assert reader(text, add_special_tokens=False)["input_ids"] == ids
    assert [x.name for x in (tmp_path / "new").iterdir()] == ["saved"]


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_saved_classifier_predicts_equally(family: str, tuned: dict, tmp_path: Path) -> None:
    pipeline = load(tuned[family])
    for format in ("unmask", "huggingface"):
        again = load(pipeline.save(tmp_path / format, format=format))
        assert again.task == pipeline.task
        assert again.label_names == pipeline.label_names
        assert again.predict(SOME) == pipeline.predict(SOME)


def test_pretraining_objective_is_saved(tmp_path: Path) -> None:
    make("bert", tmp_path / "run")
    recipe = {"model": "bert-tiny", "objective": to_dict(MASKED_LM), "sequence_length": 17}
    facts = {"format": 2, "kind": "pretrain", "recipe": recipe}
    (tmp_path / "run" / "unmask.json").write_text(json.dumps(facts))
    again = load(load(tmp_path / "run").save(tmp_path / "saved", format="unmask"))
    assert (again.preset.objective, again.preset.sequence_length) == (MASKED_LM, 17)


def test_existing_files_are_not_overwritten(folders: dict, tmp_path: Path) -> None:
    pipeline = load(folders["bert"][1])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="full: is there already, with files in it; name a new"):
        pipeline.save(tmp_path / "full")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(ValueError, match=r"mine\.txt: is a file; name a new folder"):
        pipeline.save(tmp_path / "full" / "mine.txt")
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    pipeline.save(tmp_path / "empty")
    assert load(tmp_path / "empty").model.vocab_size == pipeline.model.vocab_size


def test_folder_without_tokenizer_opens_but_reads_no_text(tmp_path: Path) -> None:
    from reference import bert, saved

    pipeline = load(saved(bert(), tmp_path / "model"))
    for use in (pipeline.embed, pipeline.logits, pipeline.fill):
        with pytest.raises(ValueError, match="this model has no tokenizer"):
            use("[MASK]")
    load(pipeline.save(tmp_path / "saved"))


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


def test_non_model_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "unmask.json").write_text('{"format": 2, "finished": false}')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "whisper"}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    make("gpt2", tmp_path / "weightless")
    (tmp_path / "weightless" / "model.safetensors").unlink()
    cases = {
        str(tmp_path / "none"): (FileNotFoundError, "no such folder"),
        str(tmp_path / "file.txt"): (ValueError, "is a file; a model is a folder"),
        str(tmp_path / "empty"): (ValueError, "not a model: it has no config.json"),
        str(tmp_path / "run"): (ValueError, "this run has not ended; continue it with --resume"),
        str(tmp_path / "other"): (ValueError, "whisper"),
        str(tmp_path / "broken"): (ValueError, "config.json"),
        str(tmp_path / "weightless"): (FileNotFoundError, "weightless"),
    }
    for name, (kind, message) in cases.items():
        with pytest.raises(kind) as caught:
            load(name)
        output = one_line(caught.value)
        assert output.startswith(name)
        assert message in output


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("bert-mini", ValueError, r"^bert-mini is a preset, which has no weights: pretrain"),
        ("bert-minni", FileNotFoundError, r"^bert-minni: no such folder, and no model of the cat"),
        (
            "bert-base",
            ValueError,
            r"^bert-base is a preset.*: hf:google-bert/bert-base-u",
        ),
        ("hf:nobody/nothing", FileNotFoundError, r"^hf:nobody/nothing: cannot be fetched from"),
        ("hf:no/such/name", ValueError, r"^hf:no/such/name: "),
        ("hf:", ValueError, r"^hf:: "),
    ],
)
def test_name_without_weights_is_refused_in_one_line(name: str, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        load(name)
    one_line(caught.value)


def test_device_and_dtype_are_validated(folders: dict, tmp_path: Path) -> None:
    pipeline = load(folders["bert"][1])
    exact = pipeline.embed(SOME)
    assert pipeline.to("cpu", dtype="bfloat16") is pipeline
    rough = pipeline.embed(SOME)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - exact).max() < 0.1 * np.abs(exact).max()
    assert load(pipeline.save(tmp_path / "saved")).model.device.type == "cpu"
    to = getattr(Pipeline.to, "__wrapped__", Pipeline.to)  # the tests' type checker would be first
    with pytest.raises(ValueError, match=r"dtype must be one of \['float32', 'bfloat16'\], got"):
        to(pipeline, "cpu", dtype="int8")
    with pytest.raises(ValueError, match="device 'abacus' cannot be used here"):
        pipeline.to("abacus")


@pytest.mark.parametrize("family", FAMILIES)
def test_likelihood_accepts_one_or_several(family: str, folders: dict) -> None:
    pipeline = load(folders[family][1])
    after = [" saw the gate.", " loved the sea."]
    several = pipeline.likelihood(["The old king", "A young fox"], after)
    assert isinstance(several, list)
    one = pipeline.likelihood("The old king", after[0])
    assert one.log_likelihood == pytest.approx(several[0].log_likelihood, rel=1e-5)
    with pytest.raises(ValueError, match="1 contexts, but 2 continuations"):
        pipeline.likelihood(["a"], after)


@pytest.mark.parametrize("given", [3, [3], None])
def test_non_text_input_is_refused_with_what_is_allowed(given: object) -> None:
    with pytest.raises(TypeError, match="prompt must be a text or several, each a str, got"):
        as_text_list(given, "prompt")
    assert as_text_list("a", "prompt") == ["a"]
    assert as_text_list(iter(["a", "b"]), "prompt") == ["a", "b"]
