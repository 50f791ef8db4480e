"""Tokens that fine-tuning adds around texts: inputs, learning, saving and loading."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.finetuning import train_run as tuning_module
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import LABEL_HEAD, LANGUAGE_HEAD
from unmask.finetuning.initial_model.auxiliary_lm import with_next_token_targets
from unmask.finetuning.initial_model.load import (
    InitialModel,
    InitialModelOptions,
    load_initial_model,
)
from unmask.finetuning.initial_model.task_tokens import TASK_TOKENS, has_task_tokens
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.jobs.finetune import finetune
from unmask.model.architecture import StackArchitecture
from unmask.tasks.all_kinds import resolve_options
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import FinetuningDefaults

FAST = {
    "epochs": 1.0, "batch_size": 16, "learning_rate": 1e-2, "terminal": None,
    "precision": "float32", "device": "cpu",
}  # fmt: skip
ONE, TWO = "the good cat", "a red house"


def task_of(kind: TaskKindName, n_texts: int = 1, **chosen) -> Task:
    labels = () if kind in ("regress", "choose") else ("no", "yes")
    columns = TaskColumns(texts=("a", "b")[:n_texts], label="label")
    return Task(
        task_kind=kind,
        columns=columns,
        labels=labels,
        max_length=24,
        options=resolve_options(kind, chosen),
    )


def opened(family: str = "gpt", **changes) -> LoadedModel:
    """Make a random model, its weights large enough that texts differ."""
    preset = replace(toy.card(family), **changes)
    model = preset.build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.3)
    return LoadedModel(
        preset=preset,
        model=model,
        tokenizer=toy.tokenizer(family),
        label_names=(),
        missing=(),
        unexpected=(),
    )


def initial_model_of(
    kind: TaskKindName, n_texts: int = 1, family: str = "gpt", **chosen
) -> InitialModel:
    return load_initial_model(opened(family), task_of(kind, n_texts, **chosen), [])


def read(started: InitialModel, *items: TaskExample):
    return [
        q.example
        for q in formulate(started.task, started.preset, started.tokenizer).build_inputs(items)
    ]


def ids(family: str, text: str) -> list[int]:
    return toy.tokenizer(family).encode(text).ids.tolist()


# What is read


def test_only_gpt1_uses_the_framing_by_default() -> None:
    for name, preset in MODELS.items():
        expected = (
            ("added", 0.5)
            if preset.family == "gpt"
            else (FinetuningDefaults.special_tokens, FinetuningDefaults.lm_loss_weight)
        )
        assert (preset.finetuning.special_tokens, preset.finetuning.lm_loss_weight) == expected, (
            name
        )


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_layout_of_each_task_equals_section_3_3(family: str) -> None:
    """Section 3.3; the ids follow those of the vocabulary in the released code's order."""
    chosen = {} if family == "gpt" else {"special_tokens": "added"}
    n, one, two = toy.tokenizer(family).vocab_size, ids(family, ONE), ids(family, TWO)
    start, delimiter, extract = n, n + 1, n + 2
    for kind in ("classify", "regress", "multilabel"):
        started = initial_model_of(kind, family=family, **chosen)
        truth = 1.0 if kind == "regress" else ("yes",) if kind == "multilabel" else "yes"
        (example,) = read(started, TaskExample(texts=(ONE,), label=truth))
        assert example.inputs.tolist() == [start, *one, extract]
    (example,) = read(initial_model_of("pairs", 2, family, **chosen), TaskExample(texts=(ONE, TWO)))
    entailed = [start, *one, delimiter, *two, extract]
    assert example.inputs.tolist() == entailed
    assert example.part_ids is None
    item = TaskExample(texts=(ONE,), choices=("sun", TWO), label=1)
    first, second = read(initial_model_of("choose", family=family, **chosen), item)
    assert first.inputs.tolist() == [start, *one, delimiter, *ids(family, "sun"), extract]
    assert second.inputs.tolist() == entailed
    swapped = [start, *two, delimiter, *one, extract]
    for kind, more in (
        ("regress", {}),
        ("pairs", {"pooling": "both"}),
        ("pairs", {"order_invariant": True}),
        ("multilabel", {"order_invariant": True}),
    ):
        started = initial_model_of(kind, 2, family, **chosen, **more)
        assert started.task.options["pooling"] == "both"
        (example,) = read(started, TaskExample(texts=(ONE, TWO)))
        assert example.inputs.tolist() == entailed + swapped
        assert np.asarray(example.part_ids).tolist() == [0] * len(entailed) + [1] * len(swapped)
        batch = pad_examples([example], started.tokenizer.special_ids)
        assert batch.position_ids is not None
        assert batch.position_ids[0].tolist() == [*range(len(entailed)), *range(len(swapped))]


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_default_framing_adds_no_tokens(family: str) -> None:
    chosen = {"special_tokens": "own"} if family == "gpt" else {}
    started = initial_model_of("pairs", 2, family, **chosen)
    assert started.tokenizer is toy.tokenizer(family)
    between = [] if family == "gpt" else [started.tokenizer.special_ids.end]
    (example,) = read(started, TaskExample(texts=(ONE, TWO)))
    assert example.inputs.tolist() == [*ids(family, ONE), *between, *ids(family, TWO)]
    assert initial_model_of("regress", 2, family, **chosen).task.options["pooling"] is None
    assert (
        initial_model_of("pairs", 2, family, order_invariant=True, **chosen).task.options["pooling"]
        is None
    )
    assert (
        initial_model_of("regress", 2, "gpt", order_invariant=False).task.options["pooling"] is None
    )
    for kind in ("tag", "cloze") if family == "gpt" else ():
        given = {"pattern": "{text} [MASK]"} if kind == "cloze" else {}
        assert not load_initial_model(opened(), task_of(kind, **given), []).new_token_ids


def test_truncated_texts_keep_the_special_tokens() -> None:
    long = "the cat " * 40
    n = toy.tokenizer("gpt").vocab_size
    for kind, two in (("classify", 1), ("pairs", 2), ("regress", 2)):
        started = initial_model_of(kind, two)
        (example,) = read(started, TaskExample(texts=(long, f"{long} sun")[:two]))
        cuts = np.split(example.inputs, [24]) if kind == "regress" else [example.inputs]
        for part in cuts:
            assert len(part) == 24
            marked = part[part >= n].tolist()
            assert marked == ([n, n + 2] if two == 1 else [n, n + 1, n + 2])


@pytest.mark.parametrize("name", sorted(n for n in MODELS if n.endswith("-mini")))
def test_every_decoder_supports_the_framing(name: str) -> None:
    preset = MODELS[name]
    a = preset.architecture
    causal = isinstance(a, StackArchitecture) and a.causal
    frame = TASK_TOKENS.surround(preset.tokenizer.special_tokens)
    assert TASK_TOKENS.surround(frame) == frame
    if causal:
        assert frame.prefix == (*preset.tokenizer.special_tokens.prefix, "_start_")
        assert (frame.separator, frame.suffix) == (("_delimiter_",), ("_classify_",))


# What it begins with


def test_only_new_embeddings_are_initialized() -> None:
    given = opened()
    initial = load_initial_model(given, task_of("classify"), [])
    n = given.tokenizer.vocab_size
    assert initial.new_token_ids == range(n, n + 3)
    one, same, other = (initial.build_model(seed).own_weights() for seed in (1, 1, 2))
    for name, theirs in given.model.own_weights().items():
        assert torch.equal(one[name][: len(theirs)], theirs), name
    table = "backbone.tokens.weight"
    assert one[table].shape == (n + 3, 32)
    assert torch.equal(one[table], same[table])
    assert not torch.equal(one[table][n:], other[table][n:])
    assert 0.01 < float(one[table][n:].std()) < 0.03, "N(0, 0.02), as the architecture says"


def test_learned_vocabulary_contains_the_tokens() -> None:
    initial = load_initial_model(
        "gpt-mini", task_of("classify"), [text for text, _ in toy.texts(99)]
    )
    n = initial.tokenizer.vocab_size
    assert initial.preset.architecture.vocab_size == n
    (example,) = read(initial, TaskExample(texts=("cat",)))
    assert example.inputs[[0, -1]].tolist() == [n - 3, n - 1]
    assert not initial.is_pretrained


def test_untied_output_matrix_grows_too() -> None:
    heads = {"language": LanguageModeling(tie_embeddings=False, bias=True)}
    given = opened("gpt2", heads=heads)
    initial = load_initial_model(
        given,
        task_of("classify", special_tokens="added"),
        [],
        InitialModelOptions(lm_loss_weight=0.5),
    )
    n, weights = given.tokenizer.vocab_size, initial.build_model(0).own_weights()
    for name in ("heads.language.out.weight", "heads.language.bias"):
        assert len(weights[name]) == n + 3
        assert torch.equal(weights[name][:n], given.model.own_weights()[name])


def test_padding_rows_of_the_embedding_are_initialized() -> None:
    preset = toy.card("gpt")
    n = toy.tokenizer("gpt").vocab_size
    given = opened(architecture=replace(preset.architecture, vocab_size=n + 8))
    table = (
        load_initial_model(given, task_of("classify"), [])
        .build_model(0)
        .own_weights()["backbone.tokens.weight"]
    )
    theirs = given.model.own_weights()["backbone.tokens.weight"]
    assert len(table) == n + 8
    assert torch.equal(table[:n], theirs[:n])
    assert torch.equal(table[n + 3 :], theirs[n + 3 :])
    assert not torch.isclose(table[n : n + 3], theirs[n : n + 3]).any(1).all()


# What is learned


@pytest.mark.parametrize("weight", [0.5, 2.0])
@pytest.mark.parametrize("pool", ["both", None])
def test_loss_is_task_plus_weighted_next_token_loss(pool, weight) -> None:
    """Equation 5, each loss a mean over its targets, in float64 from the hidden states."""
    initial = load_initial_model(
        opened(), task_of("pairs", 2, pooling=pool), [], InitialModelOptions(lm_loss_weight=weight)
    )
    model = initial.build_model(0).eval()
    rows = [(ONE, TWO, "no"), ("sun", "the very good moon", "yes"), (TWO, "a", "no")]
    items = [TaskExample(texts=(a, b), label=label) for a, b, label in rows]
    examples = [with_next_token_targets(example) for example in read(initial, *items)]
    batch = pad_examples(examples, initial.tokenizer.special_ids)
    hidden = model.hidden_states(batch).detach().double().numpy()
    weights = {name: x.double().numpy() for name, x in model.own_weights().items()}
    table, out = weights["backbone.tokens.weight"], weights["heads.label.out.weight"]
    bias = weights.get("heads.label.out.bias", 0.0)
    lost, next_lost, n = 0.0, 0.0, 0
    for row, example in zip(hidden, examples, strict=True):
        parts = np.zeros(len(example.inputs)) if example.part_ids is None else example.part_ids
        extract = np.zeros(32)
        for part in np.unique(parts):
            (at,) = np.nonzero(parts == part)
            extract += row[at[-1]]
            for now, after in pairwise(at):
                scores = table @ row[now]
                next_lost += np.logaddexp.reduce(scores) - scores[example.inputs[after]]
                n += 1
        scores = out @ extract + bias
        lost += np.logaddexp.reduce(scores) - scores[example.label]
    expected = lost / len(rows) + weight * next_lost / n
    with torch.no_grad():
        outputs = model(batch)
    assert outputs.terms["next_token"].count == n
    assert outputs.loss.item() == pytest.approx(expected, rel=1e-5)


def test_second_order_has_no_language_targets() -> None:
    (example,) = read(initial_model_of("regress", 2), TaskExample(texts=(ONE, TWO)))
    targets, half = with_next_token_targets(example).targets, len(example.inputs) // 2
    assert targets[[half - 1, -1]].tolist() == [IGNORE_INDEX, IGNORE_INDEX]
    assert targets[half:-1].tolist() == example.inputs[half + 1 :].tolist()


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_pair_order_matters_only_where_one_order_is_read(family: str) -> None:
    for pool, same in (("both", True), ("last", False)):
        started = initial_model_of("pairs", 2, family, special_tokens="added", pooling=pool)
        model = started.build_model(0)
        torch.manual_seed(1)
        torch.nn.init.normal_(model.heads[LABEL_HEAD].out.weight)
        made = LoadedModel(
            preset=started.preset,
            model=model.eval(),
            tokenizer=started.tokenizer,
            label_names=("no", "yes"),
            missing=(),
            unexpected=(),
        )
        pairs = [(ONE, TWO), ("sun", "the very good moon and a bird"), ("", "cat")]
        predictions = unmask.finetuning.results.predict.predict(made, pairs, task=started.task)
        turned = [(b, a) for a, b in pairs]
        again = unmask.finetuning.results.predict.predict(made, turned, task=started.task)
        for one, other in zip(predictions, again, strict=True):
            alike = one["probability"] == pytest.approx(other["probability"], abs=1e-5)
            assert alike == same, pool


# Runs


def rows_of(kind: TaskKindName, folder: Path, n: int = 48) -> dict[str, object]:
    """Write files in which one word decides, and name their columns."""
    rng = np.random.default_rng(0)
    train = folder / f"{kind}.tsv"
    texts = toy.texts(n, 1)
    if kind == "classify":
        toy.write(train, texts)
    elif kind == "pairs":
        toy.write(train, [(t, "the sun", y) for t, y in texts], "sentence1\tsentence2\tlabel")
    elif kind == "regress":
        rows = [(t, "the sun", f"{(y == 'yes') * 5 + rng.normal():.3f}") for t, y in texts]
        toy.write(train, rows, "sentence1\tsentence2\tscore")
    else:
        rows = [(t, "bad sun", "good sun", int(y == "yes")) for t, y in texts]
        toy.write(train, rows, "text\tchoice1\tchoice2\tlabel")
    return {"task": kind, "train": train, "dev": train}


GIVEN = {
    "classify": [ONE, "bad", ""],
    "pairs": [(ONE, TWO), ("sun", "bad")],
    "regress": [(ONE, TWO), ("sun", "bad")],
    "choose": [{"context": ONE, "choices": ["sun", TWO]}],
}


def quick(base: Path, given, **more) -> FinetunedModel:
    return finetune(base, **(given | FAST | more))


def numbers(answer) -> float | list[float]:
    """Give the numbers of an answer, whose last bits depend on where tensors lie in memory."""
    if isinstance(answer, float):
        return answer
    probabilities = answer["probabilities"]
    return list(probabilities.values()) if isinstance(probabilities, dict) else probabilities


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", sorted(GIVEN))
def test_run_round_trips(kind: TaskKindName, tmp_path: Path) -> None:
    base, out = toy.pretrained("gpt", tmp_path / "base"), tmp_path / "out"
    tuned = quick(base, rows_of(kind, tmp_path), out=out)
    assert tuned.config.lm_loss_weight == 0.5
    assert any("next_token" in line for line in (out / "log.jsonl").read_text().splitlines())
    assert LANGUAGE_HEAD not in tuned.loaded_model.model.head_specs
    both = [note for note in tuned.notes if "read in both orders" in note]
    assert bool(both) == (kind == "regress")
    assert any("around texts stand" in note for note in tuned.notes)
    predictions = tuned.predict(GIVEN[kind])
    again = unmask.load(out)
    again.save(tmp_path / "copy")
    n = toy.tokenizer("gpt").vocab_size
    for one in (again, unmask.load(tmp_path / "copy")):
        theirs = one.model.own_weights()
        assert all(
            torch.equal(x, theirs[k]) for k, x in tuned.loaded_model.model.own_weights().items()
        )
        for old, new in zip(predictions, one.predict(GIVEN[kind]), strict=True):
            assert numbers(new) == pytest.approx(numbers(old), abs=1e-6)
        assert has_task_tokens(one.tokenizer)
        assert one.tokenizer.vocab_size == one.model.vocab_size == n + 3
        assert one.tokenizer.encode("_start_").ids.max() < n, "typed in a text it is text"
        assert one.tokenizer.pieces(range(n, n + 3)) == list(TASK_TOKENS.names)
    further = load_initial_model(str(out), task_of("classify"), [])
    assert not further.new_token_ids, "they are known already"


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_transformers_reads_the_same_input(family: str, tmp_path: Path) -> None:
    import transformers as hf

    base, out = toy.pretrained(family, tmp_path / "base"), tmp_path / "out"
    tuned = quick(
        base, rows_of("classify", tmp_path), out=out, task_options={"special_tokens": "added"}
    )
    words = hf.AutoTokenizer.from_pretrained(out)
    theirs = hf.AutoModelForSequenceClassification.from_pretrained(out).eval()
    n = toy.tokenizer(family).vocab_size
    assert words(ONE)["input_ids"] == [n, *ids(family, ONE), n + 2]
    assert words(ONE, TWO)["input_ids"] == [n, *ids(family, ONE), n + 1, *ids(family, TWO), n + 2]
    with torch.no_grad():
        scores = theirs(**words(ONE, return_tensors="pt")).logits[0].softmax(0)
    (predictions,) = tuned.predict([ONE])
    assert list(predictions["probabilities"].values()) == pytest.approx(scores.tolist(), abs=1e-5)


class Killed(Exception):
    """The process is gone."""


@pytest.mark.thorough
def test_killed_and_resumed_run_is_bitwise_equal(tmp_path, monkeypatch) -> None:
    base, given = toy.pretrained("gpt", tmp_path / "base"), rows_of("regress", tmp_path)
    whole = quick(base, given, out=tmp_path / "whole", epochs=2.0)
    save = tuning_module._save_checkpoint

    def save_and_die(*args, **more):
        save(*args, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            quick(base, given, out=tmp_path / "out", epochs=2.0)
    again = unmask.jobs.finetune.resume_finetuning(tmp_path / "out", device="cpu", terminal=None)
    for name, tensor in whole.loaded_model.model.own_weights().items():
        assert torch.equal(tensor, again.loaded_model.model.own_weights()[name]), name
    assert again.config.lm_loss_weight == 0.5
    assert again.config.task_options == {
        "special_tokens": "added", "pooling": "both", "pooled_layers": None, "order_invariant": None
    }  # fmt: skip


@pytest.mark.thorough
def test_method_that_freezes_embeddings_adds_no_tokens(tmp_path: Path) -> None:
    base, given = toy.pretrained("gpt", tmp_path / "base"), rows_of("classify", tmp_path)
    for tune, weight in (("lora", 0.5), ("prefix:n_virtual_tokens=3", 0.5), ("frozen", 0.0)):
        out = tmp_path / tune.partition(":")[0]
        tuned = quick(base, given, out=out, tune=tune)
        assert any("none are added, unlike in the paper" in note for note in tuned.notes)
        assert tuned.config.lm_loss_weight == weight
        assert unmask.load(out).tokenizer.vocab_size == toy.tokenizer("gpt").vocab_size
        (predictions,), (again,) = tuned.predict([ONE]), unmask.load(out).predict([ONE])
        assert numbers(again) == pytest.approx(numbers(predictions), abs=1e-6)
        with pytest.raises(ValueError, match="leaves their vectors random: tune it in full"):
            quick(base, given, tune=tune, task_options={"special_tokens": "added"})


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "tune", ["lora", "houlsby", "prefix:n_virtual_tokens=3", "prompt:n_virtual_tokens=3"]
)
def test_adapters_use_the_tokens_a_model_has_learned(tune: str, tmp_path: Path) -> None:
    base = toy.pretrained("gpt", tmp_path / "base")
    quick(base, rows_of("classify", tmp_path), out=tmp_path / "full")
    given, out = rows_of("pairs", tmp_path), tmp_path / "small"
    tuned = quick(
        tmp_path / "full", given, out=out, tune=tune, task_options={"order_invariant": True}
    )
    assert tuned.task.options["pooling"] == "both"
    again = unmask.load(out)
    assert has_task_tokens(again.tokenizer)
    for a, b in GIVEN["pairs"]:
        ((one,), (same,)) = tuned.predict([(a, b)]), again.predict([(a, b)])
        (turned,) = again.predict([(b, a)])
        assert numbers(same) == pytest.approx(numbers(one), abs=1e-6)
        assert numbers(turned) == pytest.approx(numbers(one), abs=1e-5)


# Mistakes


def test_unsuitable_models_are_refused() -> None:
    for kind, n, chosen, why in (
        ("classify", 1, {"pooling": "both"}, "classify here reads none"),
        ("choose", 2, {"pooling": "both"}, "choose here reads none"),
    ):
        with pytest.raises(ValueError, match=why):
            initial_model_of(kind, n, **chosen)
    with pytest.raises(ValueError, match="that a decoder reads, and bert-tiny is none"):
        load_initial_model(opened("bert"), task_of("pairs", 2, pooling="both"), [])
    with pytest.raises(ValueError, match="'own' for bert-tiny: tokens are added for decoders"):
        load_initial_model(opened("bert"), task_of("classify", special_tokens="added"), [])
    with pytest.raises(ValueError, match=r"options\.special_tokens must be 'own' for t5-mini"):
        load_initial_model(opened("t5"), task_of("classify", special_tokens="added"), [])
    with pytest.raises(ValueError, match=r"special_tokens must be .*'own', 'added'.*, got 'x'"):
        resolve_options("classify", {"special_tokens": "x"})
    assert PoolingOptions().special_tokens is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--option special_tokens=addd", "special_tokens must be"),
        ("--option pooling=both", "options.pooling 'both' is for two texts that a decoder reads"),
        ("--option special_tokens=added --tune lora", "leaves their vectors random"),
        ("--lm-loss-weight -1", "--lm-loss-weight must be at least 0, got -1"),
        ("--lm-loss-weight 0.5 --option lm_loss_weight=0.5", "lm_loss_weight"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    arguments: str, why: str, tmp_path: Path, capsys
) -> None:
    base, out = toy.pretrained("gpt", tmp_path / "base"), tmp_path / "out"
    train = rows_of("classify", tmp_path)["train"]
    words = ["finetune", base, "--task", "classify", "--train", train, "--out", out, "--quiet"]
    assert cli.run([str(word) for word in (*words, *arguments.split())]) == 2
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 1
    assert why in output[0]
    assert not out.exists()


@pytest.mark.thorough
def test_whole_path_on_the_command_line(tmp_path: Path, capsys) -> None:
    base = toy.pretrained("gpt", tmp_path / "base")

    def run_command(*words: object) -> str:
        capsys.readouterr()
        assert cli.run([str(word) for word in words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    for kind in ("classify", "pairs", "regress", "choose"):
        train, out = rows_of(kind, tmp_path)["train"], tmp_path / f"run-{kind}"
        words = ["finetune", base, "--task", kind, "--train", train, "--dev", train, "--quiet"]
        run_command(*words, "--out", out, "--epochs", 1)
        run_command("finetune", "--out", out, "--resume", "--quiet")
        answers = run_command("predict", out, "--input", train)
        run_command("convert", out, tmp_path / f"copy-{kind}")
        assert run_command("predict", tmp_path / f"copy-{kind}", "--input", train) == answers
        figures = json.loads(run_command("evaluate", out, "--data", train, "--json"))
        assert figures == json.loads(
            run_command("evaluate", tmp_path / f"copy-{kind}", "--data", train, "--json")
        )
