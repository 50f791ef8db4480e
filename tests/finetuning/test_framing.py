"""Tokens that fine-tuning adds around texts: what is read, learned, saved and read again."""

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


def task_of(does: TaskKindName, n_texts: int = 1, **chosen) -> Task:
    labels = () if does in ("regress", "choose") else ("no", "yes")
    columns = TaskColumns(texts=("a", "b")[:n_texts], label="label")
    return Task(
        task_kind=does,
        columns=columns,
        labels=labels,
        max_length=24,
        options=resolve_options(does, chosen),
    )


def opened(family: str = "gpt", **changes) -> LoadedModel:
    """Make a random model, its weights large enough that texts differ."""
    card = replace(toy.card(family), **changes)
    model = card.build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.3)
    return LoadedModel(
        preset=card,
        model=model,
        tokenizer=toy.tokenizer(family),
        label_names=(),
        missing=(),
        unexpected=(),
    )


def begun_of(does: TaskKindName, n_texts: int = 1, family: str = "gpt", **chosen) -> InitialModel:
    return load_initial_model(opened(family), task_of(does, n_texts, **chosen), [])


def read(begun: InitialModel, *items: TaskExample):
    return [
        q.example for q in formulate(begun.task, begun.preset, begun.tokenizer).build_inputs(items)
    ]


def ids(family: str, text: str) -> list[int]:
    return toy.tokenizer(family).encode(text).ids.tolist()


# What is read


def test_only_gpt1_uses_the_framing_by_default() -> None:
    for name, card in MODELS.items():
        wanted = (
            ("added", 0.5)
            if card.family == "gpt"
            else (FinetuningDefaults.special_tokens, FinetuningDefaults.lm_loss_weight)
        )
        assert (card.finetuning.special_tokens, card.finetuning.lm_loss_weight) == wanted, name


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_layout_of_each_task_equals_section_3_3(family: str) -> None:
    """Section 3.3; the ids follow those of the vocabulary in the released code's order."""
    chosen = {} if family == "gpt" else {"special_tokens": "added"}
    n, one, two = toy.tokenizer(family).vocab_size, ids(family, ONE), ids(family, TWO)
    start, delimiter, extract = n, n + 1, n + 2
    for does in ("classify", "regress", "multilabel"):
        begun = begun_of(does, family=family, **chosen)
        truth = 1.0 if does == "regress" else ("yes",) if does == "multilabel" else "yes"
        (example,) = read(begun, TaskExample(texts=(ONE,), label=truth))
        assert example.inputs.tolist() == [start, *one, extract]
    (example,) = read(begun_of("pairs", 2, family, **chosen), TaskExample(texts=(ONE, TWO)))
    entailed = [start, *one, delimiter, *two, extract]
    assert example.inputs.tolist() == entailed
    assert example.part_ids is None
    item = TaskExample(texts=(ONE,), choices=("sun", TWO), label=1)
    first, second = read(begun_of("choose", family=family, **chosen), item)
    assert first.inputs.tolist() == [start, *one, delimiter, *ids(family, "sun"), extract]
    assert second.inputs.tolist() == entailed
    swapped = [start, *two, delimiter, *one, extract]
    for does, more in (
        ("regress", {}),
        ("pairs", {"pooling": "both"}),
        ("pairs", {"order_invariant": True}),
        ("multilabel", {"order_invariant": True}),
    ):
        begun = begun_of(does, 2, family, **chosen, **more)
        assert begun.task.options["pooling"] == "both"
        (example,) = read(begun, TaskExample(texts=(ONE, TWO)))
        assert example.inputs.tolist() == entailed + swapped
        assert np.asarray(example.part_ids).tolist() == [0] * len(entailed) + [1] * len(swapped)
        batch = pad_examples([example], begun.tokenizer.special_ids)
        assert batch.position_ids is not None
        assert batch.position_ids[0].tolist() == [*range(len(entailed)), *range(len(swapped))]


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_default_framing_adds_no_tokens(family: str) -> None:
    chosen = {"special_tokens": "own"} if family == "gpt" else {}
    begun = begun_of("pairs", 2, family, **chosen)
    assert begun.tokenizer is toy.tokenizer(family)
    between = [] if family == "gpt" else [begun.tokenizer.special_ids.end]
    (example,) = read(begun, TaskExample(texts=(ONE, TWO)))
    assert example.inputs.tolist() == [*ids(family, ONE), *between, *ids(family, TWO)]
    assert begun_of("regress", 2, family, **chosen).task.options["pooling"] is None
    assert (
        begun_of("pairs", 2, family, order_invariant=True, **chosen).task.options["pooling"] is None
    )
    assert begun_of("regress", 2, "gpt", order_invariant=False).task.options["pooling"] is None
    for does in ("tag", "cloze") if family == "gpt" else ():
        given = {"pattern": "{text} [MASK]"} if does == "cloze" else {}
        assert not load_initial_model(opened(), task_of(does, **given), []).new_token_ids


def test_truncated_texts_keep_the_special_tokens() -> None:
    long = "the cat " * 40
    n = toy.tokenizer("gpt").vocab_size
    for does, two in (("classify", 1), ("pairs", 2), ("regress", 2)):
        begun = begun_of(does, two)
        (example,) = read(begun, TaskExample(texts=(long, f"{long} sun")[:two]))
        cuts = np.split(example.inputs, [24]) if does == "regress" else [example.inputs]
        for part in cuts:
            assert len(part) == 24
            marked = part[part >= n].tolist()
            assert marked == ([n, n + 2] if two == 1 else [n, n + 1, n + 2])


@pytest.mark.parametrize("name", sorted(n for n in MODELS if n.endswith("-mini")))
def test_every_decoder_supports_the_framing(name: str) -> None:
    card = MODELS[name]
    a = card.architecture
    causal = isinstance(a, StackArchitecture) and a.causal
    frame = TASK_TOKENS.surround(card.tokenizer.special_tokens)
    assert TASK_TOKENS.surround(frame) == frame
    if causal:
        assert frame.prefix == (*card.tokenizer.special_tokens.prefix, "_start_")
        assert (frame.separator, frame.suffix) == (("_delimiter_",), ("_classify_",))


# What it begins with


def test_only_new_embeddings_are_initialized() -> None:
    given = opened()
    begun = load_initial_model(given, task_of("classify"), [])
    n = given.tokenizer.vocab_size
    assert begun.new_token_ids == range(n, n + 3)
    one, same, other = (begun.build_model(seed).own_weights() for seed in (1, 1, 2))
    for name, theirs in given.model.own_weights().items():
        assert torch.equal(one[name][: len(theirs)], theirs), name
    table = "backbone.tokens.weight"
    assert one[table].shape == (n + 3, 32)
    assert torch.equal(one[table], same[table])
    assert not torch.equal(one[table][n:], other[table][n:])
    assert 0.01 < float(one[table][n:].std()) < 0.03, "N(0, 0.02), as the architecture says"


def test_learned_vocabulary_contains_the_tokens() -> None:
    begun = load_initial_model("gpt-mini", task_of("classify"), [text for text, _ in toy.texts(99)])
    n = begun.tokenizer.vocab_size
    assert begun.preset.architecture.vocab_size == n
    (example,) = read(begun, TaskExample(texts=("cat",)))
    assert example.inputs[[0, -1]].tolist() == [n - 3, n - 1]
    assert not begun.is_pretrained


def test_untied_output_matrix_grows_too() -> None:
    heads = {"language": LanguageModeling(tie_embeddings=False, bias=True)}
    given = opened("gpt2", heads=heads)
    begun = load_initial_model(
        given,
        task_of("classify", special_tokens="added"),
        [],
        InitialModelOptions(lm_loss_weight=0.5),
    )
    n, weights = given.tokenizer.vocab_size, begun.build_model(0).own_weights()
    for name in ("heads.language.out.weight", "heads.language.bias"):
        assert len(weights[name]) == n + 3
        assert torch.equal(weights[name][:n], given.model.own_weights()[name])


def test_padding_rows_of_the_embedding_are_initialized() -> None:
    card = toy.card("gpt")
    n = toy.tokenizer("gpt").vocab_size
    given = opened(architecture=replace(card.architecture, vocab_size=n + 8))
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
    """Equation 5, each loss a mean over what it asks, in float64 from the hidden states."""
    begun = load_initial_model(
        opened(), task_of("pairs", 2, pooling=pool), [], InitialModelOptions(lm_loss_weight=weight)
    )
    model = begun.build_model(0).eval()
    rows = [(ONE, TWO, "no"), ("sun", "the very good moon", "yes"), (TWO, "a", "no")]
    items = [TaskExample(texts=(a, b), label=label) for a, b, label in rows]
    examples = [with_next_token_targets(example) for example in read(begun, *items)]
    batch = pad_examples(examples, begun.tokenizer.special_ids)
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
        said = model(batch)
    assert said.terms["next_token"].count == n
    assert said.loss.item() == pytest.approx(expected, rel=1e-5)


def test_second_order_has_no_language_targets() -> None:
    (example,) = read(begun_of("regress", 2), TaskExample(texts=(ONE, TWO)))
    targets, half = with_next_token_targets(example).targets, len(example.inputs) // 2
    assert targets[[half - 1, -1]].tolist() == [IGNORE_INDEX, IGNORE_INDEX]
    assert targets[half:-1].tolist() == example.inputs[half + 1 :].tolist()


@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_pair_order_matters_only_where_one_order_is_read(family: str) -> None:
    for pool, same in (("both", True), ("last", False)):
        begun = begun_of("pairs", 2, family, special_tokens="added", pooling=pool)
        model = begun.build_model(0)
        torch.manual_seed(1)
        torch.nn.init.normal_(model.heads[LABEL_HEAD].out.weight)
        made = LoadedModel(
            preset=begun.preset,
            model=model.eval(),
            tokenizer=begun.tokenizer,
            label_names=("no", "yes"),
            missing=(),
            unexpected=(),
        )
        pairs = [(ONE, TWO), ("sun", "the very good moon and a bird"), ("", "cat")]
        said = unmask.finetuning.results.predict.predict(made, pairs, task=begun.task)
        turned = [(b, a) for a, b in pairs]
        again = unmask.finetuning.results.predict.predict(made, turned, task=begun.task)
        for one, other in zip(said, again, strict=True):
            alike = one["probability"] == pytest.approx(other["probability"], abs=1e-5)
            assert alike == same, pool


# Runs


def rows_of(does: TaskKindName, folder: Path, n: int = 48) -> dict[str, object]:
    """Write files in which one word decides, and name their columns."""
    rng = np.random.default_rng(0)
    train = folder / f"{does}.tsv"
    texts = toy.texts(n, 1)
    if does == "classify":
        toy.write(train, texts)
    elif does == "pairs":
        toy.write(train, [(t, "the sun", y) for t, y in texts], "sentence1\tsentence2\tlabel")
    elif does == "regress":
        rows = [(t, "the sun", f"{(y == 'yes') * 5 + rng.normal():.3f}") for t, y in texts]
        toy.write(train, rows, "sentence1\tsentence2\tscore")
    else:
        rows = [(t, "bad sun", "good sun", int(y == "yes")) for t, y in texts]
        toy.write(train, rows, "text\tchoice1\tchoice2\tlabel")
    return {"task": does, "train": train, "dev": train}


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
    shares = answer["probabilities"]
    return list(shares.values()) if isinstance(shares, dict) else shares


@pytest.mark.parametrize("does", sorted(GIVEN))
def test_run_round_trips(does: TaskKindName, tmp_path: Path) -> None:
    base, out = toy.pretrained("gpt", tmp_path / "base"), tmp_path / "out"
    tuned = quick(base, rows_of(does, tmp_path), out=out)
    assert tuned.config.lm_loss_weight == 0.5
    assert any("next_token" in line for line in (out / "log.jsonl").read_text().splitlines())
    assert LANGUAGE_HEAD not in tuned.loaded_model.model.head_specs
    both = [note for note in tuned.notes if "read in both orders" in note]
    assert bool(both) == (does == "regress")
    assert any("around texts stand" in note for note in tuned.notes)
    said = tuned.predict(GIVEN[does])
    again = unmask.load(out)
    again.save(tmp_path / "copy")
    n = toy.tokenizer("gpt").vocab_size
    for one in (again, unmask.load(tmp_path / "copy")):
        theirs = one.model.own_weights()
        assert all(
            torch.equal(x, theirs[k]) for k, x in tuned.loaded_model.model.own_weights().items()
        )
        for old, new in zip(said, one.predict(GIVEN[does]), strict=True):
            assert numbers(new) == pytest.approx(numbers(old), abs=1e-6)
        assert has_task_tokens(one.tokenizer)
        assert one.tokenizer.vocab_size == one.model.vocab_size == n + 3
        assert one.tokenizer.encode("_start_").ids.max() < n, "typed in a text it is text"
        assert one.tokenizer.pieces(range(n, n + 3)) == list(TASK_TOKENS.names)
    further = load_initial_model(str(out), task_of("classify"), [])
    assert not further.new_token_ids, "they are known already"


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
    (said,) = tuned.predict([ONE])
    assert list(said["probabilities"].values()) == pytest.approx(scores.tolist(), abs=1e-5)


class Killed(Exception):
    """The process is gone."""


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


def test_method_that_freezes_embeddings_adds_no_tokens(tmp_path: Path) -> None:
    base, given = toy.pretrained("gpt", tmp_path / "base"), rows_of("classify", tmp_path)
    for tune, weight in (("lora", 0.5), ("prefix:n_virtual_tokens=3", 0.5), ("frozen", 0.0)):
        out = tmp_path / tune.partition(":")[0]
        tuned = quick(base, given, out=out, tune=tune)
        assert any("none are added, unlike in the paper" in note for note in tuned.notes)
        assert tuned.config.lm_loss_weight == weight
        assert unmask.load(out).tokenizer.vocab_size == toy.tokenizer("gpt").vocab_size
        (said,), (again,) = tuned.predict([ONE]), unmask.load(out).predict([ONE])
        assert numbers(again) == pytest.approx(numbers(said), abs=1e-6)
        with pytest.raises(ValueError, match="leaves their vectors random: tune it in full"):
            quick(base, given, tune=tune, task_options={"special_tokens": "added"})


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
    for does, n, chosen, why in (
        ("classify", 1, {"pooling": "both"}, "classify here reads none"),
        ("choose", 2, {"pooling": "both"}, "choose here reads none"),
    ):
        with pytest.raises(ValueError, match=why):
            begun_of(does, n, **chosen)
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
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert why in said[0]
    assert not out.exists()


def test_whole_path_on_the_command_line(tmp_path: Path, capsys) -> None:
    base = toy.pretrained("gpt", tmp_path / "base")

    def said(*words: object) -> str:
        capsys.readouterr()
        assert cli.run([str(word) for word in words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    for does in ("classify", "pairs", "regress", "choose"):
        train, out = rows_of(does, tmp_path)["train"], tmp_path / f"run-{does}"
        words = ["finetune", base, "--task", does, "--train", train, "--dev", train, "--quiet"]
        said(*words, "--out", out, "--epochs", 1)
        said("finetune", "--out", out, "--resume", "--quiet")
        answers = said("predict", out, "--input", train)
        said("convert", out, tmp_path / f"copy-{does}")
        assert said("predict", tmp_path / f"copy-{does}", "--input", train) == answers
        figures = json.loads(said("evaluate", out, "--data", train, "--json"))
        assert figures == json.loads(
            said("evaluate", tmp_path / f"copy-{does}", "--data", train, "--json")
        )
