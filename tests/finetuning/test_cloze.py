"""A label as a word in a blank: what is read, which words are compared, and that it is learned."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from small_models import make, tokenizer
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.cloze.blank_filling import ClozeFormulation, cloze_task
from unmask.finetuning.formulations.cloze.pattern import ClozePattern
from unmask.finetuning.formulations.formulation import language_modeling_head
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import predict, predict_scores, read_task
from unmask.heads.language.candidates import Candidates
from unmask.inference.pipeline import Pipeline
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.zoo.catalogue import MODELS

WORDS = {"no": "2", "yes": "8"}
LONG = {"no": "2 3", "yes": "8 5"}
SHORT = {"batch_size": 16, "terminal": None, "precision": "float32", "device": "cpu"}


def make_formulation(
    family: str, *, length: int = 40, texts=("text",), words=WORDS, **options
) -> ClozeFormulation:
    task = Task(
        task_kind="cloze", columns=TaskColumns(texts=texts, label="label"), labels=("no", "yes"),
        max_length=length, options={"label_words": words, **options},
    )  # fmt: skip
    found = formulate(task, toy.card(family), toy.tokenizer(family))
    assert isinstance(found, ClozeFormulation)
    return found


def items(*texts: str | tuple[str, ...], truth: str | None = None) -> list[TaskExample]:
    return [TaskExample(texts=(t,) if isinstance(t, str) else t, label=truth) for t in texts]


@pytest.mark.parametrize(
    ("family", "texts", "pattern", "written"),
    [
        ("bert", ("the cat",), "{text} is [MASK].", "the cat is [MASK]."),
        ("bert", ("the cat",), "[MASK] : {0}", "[MASK] : the cat"),
        ("bert", ("the cat",), None, "the cat It was [MASK]."),
        ("bert", ("the cat", "a dog"), None, "the cat? [MASK], a dog"),
        ("bert", ("the cat", "a dog"), "{1} {0} [MASK]", "a dog the cat [MASK]"),
        ("gpt2", ("the cat",), "{text} is very [MASK]", "the cat is very"),
        ("gpt2", ("the cat",), "so {text} is:\n[MASK]", "so the cat is:\n"),
        ("gpt2", ("the cat",), None, "the cat It was"),
        ("gpt2", ("the cat", "a dog"), "{0} and {1} [MASK]", "the cat and a dog"),
    ],
)
def test_pattern_is_tokenized_as_one_text(family, texts, pattern, written, tmp_path) -> None:
    from transformers import AutoTokenizer

    toy.tokenizer(family).save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    names = ("text", "other")[: len(texts)]
    spaced = family == "gpt2" and not (pattern or "").endswith("\n[MASK]")
    words = WORDS if spaced or family == "bert" else {"no": "a", "yes": "1"}
    one = make_formulation(family, texts=names, pattern=pattern, words=words)
    (question,) = one.build_inputs(items(texts, truth="yes"))
    assert question.example.inputs.tolist() == theirs(written)["input_ids"]
    position = theirs(written)["input_ids"].index(theirs.mask_token_id) if family == "bert" else -1
    expected = theirs((" " if spaced else "") + words["yes"], add_special_tokens=False)["input_ids"]
    assert [question.example.targets[position]] == expected
    assert int((question.example.targets != IGNORE_INDEX).sum()) == 1


@torch.no_grad()
def test_shifted_target_is_one_position_earlier() -> None:
    plain = make_formulation("bert", pattern="{text} is [MASK] now", words=LONG)
    causal = replace(plain, shifted_targets=True)
    (one,), (other,) = (ask.build_inputs(items("the cat", truth="yes")) for ask in (plain, causal))
    assert one.example.inputs.tolist() == other.example.inputs.tolist()
    assert one.example.targets[1:].tolist() == other.example.targets[:-1].tolist()
    preset = MODELS["gpt-bert-mini"]
    special = toy.tokenizer("bert").special_ids
    model = preset.with_vocabulary(special).build().initialize(0).eval()
    batch = pad_examples([other.example], special)
    (output,) = causal.compute_scores(model, batch, [other])
    inputs, at = other.example.inputs, int(np.flatnonzero(other.example.targets != IGNORE_INDEX)[0])

    def logs(ids: np.ndarray) -> torch.Tensor:
        hidden = model.hidden_states(replace(batch, inputs=torch.from_numpy(ids)[None]))[
            0, [at, at + 1]
        ]
        among = torch.from_numpy(causal.candidate_ids)
        return model.language_head.candidate_logits(hidden, among).log_softmax(-1)

    expected = []
    for word in causal.label_token_ids:
        which = [causal.candidate_ids.tolist().index(token) for token in word]
        first = logs(inputs)[[0, 1], which]
        known = int(first.argmax())  # the surer token is read where it stands, one place on
        filled = inputs.copy()
        filled[at + 1 + known] = word[known]
        expected.append(float(first[known] + logs(filled)[1 - known, which[1 - known]]))
    wanted = torch.tensor(expected).log_softmax(-1)
    torch.testing.assert_close(torch.from_numpy(output)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("length", [14, 17, 40])
def test_texts_are_truncated_and_the_pattern_is_not(family: str, length: int) -> None:
    one = make_formulation(
        family, length=length, texts=("a", "b"), pattern="{a} is {b} so very [MASK]"
    )
    long = " ".join(toy.WORDS)
    (question,) = one.build_inputs(items((long, long)))
    (short,) = one.build_inputs(items(("a", "a")))
    inputs, tail = question.example.inputs.tolist(), short.example.inputs.tolist()[-4:]
    assert len(inputs) == length
    assert inputs[-4:] == tail
    between, joined = one.pattern_parts[1], "".join(map(chr, inputs))
    assert isinstance(between, tuple)
    assert joined.count("".join(map(chr, between))) == 1
    assert question.truncated
    assert not short.truncated


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{text} is good", "must have one blank"),
        ("{text} [MASK] [MASK]", "must have one blank"),
        ("It was [MASK].", r"must have \{text\} once"),
        ("{text} {0} [MASK]", r"must have \{text\} once"),
        ("{title} [MASK]", r"\{title\} is no column of text; there are 'text'"),
        ("{1} [MASK]", r"\{1\} is no column of text"),
    ],
)
def test_invalid_pattern_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClozePattern.parse(pattern, ("text",))


def test_invalid_verbalizers_are_named() -> None:
    with pytest.raises(ValueError, match=r"'ж' of label 'no' must be in the .* got \[UNK\]"):
        make_formulation("bert", words={"no": "ж"})
    with pytest.raises(ValueError, match="'' of label 'no' must be in the vocabulary, got nothing"):
        make_formulation("bert", words={"no": ""})
    with pytest.raises(ValueError, match="label 'no' continues that of 'yes', '2', which"):
        make_formulation("gpt2", words={"no": "2 3", "yes": "2"})
    with pytest.raises(ValueError, match="'no' and 'yes' have the same word, '2'"):
        make_formulation("bert", words={"no": "2", "yes": "2"})
    with pytest.raises(ValueError, match="words of the labels 'no', 'yes', got one of 'maybe'"):
        make_formulation("bert", words={"maybe": "2"})
    with pytest.raises(ValueError, match=r"must end with \[MASK\] for gpt2-mini"):
        make_formulation("gpt2", pattern="{text} It was [MASK].")
    with pytest.raises(ValueError, match="two texts for a decoder"):
        make_formulation("gpt2", texts=("a", "b"))
    with pytest.raises(ValueError, match="max_length must be at least 13, since the pattern"):
        make_formulation("bert", length=12, pattern="1 2 3 4 5 6 7 8 {0} [MASK]")
    with pytest.raises(ValueError, match="classify lets it say labels in words"):
        heads_for_task(make_formulation("bert").task, toy.card("t5"))


def test_label_without_a_word_is_its_own_verbalizer() -> None:
    one = make_formulation("bert", words={"no": "2"})
    known = toy.tokenizer("bert")
    assert [token for word in one.label_token_ids for token in word] == known.encode(
        "2 yes"
    ).ids.tolist()


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_loss_and_gradients_equal_reference(family: str, tmp_path: Path) -> None:
    kind = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}[family]
    reference, loaded = make(family, tmp_path, kind)
    reference.eval()
    known = tokenizer(family)
    single = [w for w in "abcdefgh" if len(known.encode(f" {w}")) == 1][:3]
    words = dict(zip(("x", "y", "z"), single, strict=True))
    task = cloze_task(loaded.preset, words, pattern="{text} a [MASK]")
    one = formulate(task, loaded.preset, known)
    model = loaded.preset.build(heads_for_task(task, loaded.preset))
    model.load_state_dict(loaded.model.state_dict())
    model.eval()
    some = [
        TaskExample(texts=(text,), label=y) for text, y in (("ab cd", "x"), ("e", "z"), ("", "y"))
    ]
    questions = one.build_inputs(some)
    batch = pad_examples([q.example for q in questions], one.special_ids)
    term = model(batch).terms["label"]
    term.loss.backward()
    losses = []
    for question in questions:
        ids = torch.from_numpy(question.example.inputs)[None]
        (position,) = np.flatnonzero(question.example.targets != IGNORE_INDEX)
        logits = reference(input_ids=ids).logits[0, position][one.candidate_ids]
        which = one.candidate_ids.tolist().index(question.example.targets[position])
        losses.append(F.cross_entropy(logits[None], torch.tensor([which])))
    expected = torch.stack(losses).mean()
    expected.backward()
    assert term.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert term.count == 3
    theirs = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    ours = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    found = loaded.preset.weight_names.to_external(ours)
    for name, gradient in theirs.items():
        scale = max(float(gradient.abs().max()), 1e-2)
        assert float((found[name] - gradient).abs().max()) <= 1e-5 * scale, name
    predictions = predict_scores(one, model, questions).scores
    mean = sum(one.loss(item, s)[0] for item, s in zip(some, predictions, strict=True)) / 3
    assert mean == pytest.approx(expected.item(), rel=1e-5)


def test_zero_shot_prediction_works(tmp_path: Path) -> None:
    loaded = load_folder(toy.pretrained("bert", tmp_path))
    task = cloze_task(loaded.preset, {"bad": "2", "good": "8"}, pattern="{text} is [MASK] .")
    (answer,) = predict(loaded, ["the cat"], task=task)
    assert Pipeline(loaded).predict("the cat", task=task) == [answer]
    known = toy.tokenizer("bert")
    ids = known.encode("the cat is [MASK] .", allow_special=True).ids.tolist()
    from unmask.generation.text_batches import pad_texts

    special = known.special_ids
    framed = np.array([*special.prefix, *ids, *special.suffix], np.int64)
    with torch.no_grad():
        hidden = loaded.model.hidden_states(pad_texts([framed], special))[0, framed == special.mask]
        scores = loaded.model.language_head.logits(hidden)[0]
    two, eight = known.encode("2 8").ids.tolist()
    probabilities = scores[[two, eight]].softmax(-1).tolist()
    assert answer["probabilities"] == pytest.approx(
        {"bad": probabilities[0], "good": probabilities[1]}, rel=1e-5
    )


def _learned(family: str, words: dict[str, str], folder: Path) -> FinetunedModel:
    """Learn which of two words in a text decides the word in the blank; keep it in folder/out."""
    base = toy.pretrained(family, folder / "base", dropout=0.0, attention_dropout=0.0)
    files = {
        "train": toy.write(folder / "train.tsv", toy.texts(240, 1, 1, 4)),
        "dev": toy.write(folder / "dev.tsv", toy.texts(40, 2, 1, 4)),
    }
    return finetune(
        base, task="cloze", **files, **SHORT, out=folder / "out", epochs=4.0, learning_rate=3e-3,
        task_options={"pattern": "{text} is [MASK]", "label_words": words},
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_verbalizer_is_learned_from_a_word_in_the_text(family: str, tmp_path: Path) -> None:
    import transformers as hf

    tuned = _learned(family, WORDS, tmp_path)
    assert tuned.best_run.dev["accuracy"] > 0.9
    assert not [note for note in tuned.notes if "newly initialized" in note]
    answers = tuned.predict(["the good cat", "a bad moon"])
    assert [a["label"] for a in answers] == ["yes", "no"]
    again = load_folder(tmp_path / "out")
    task = read_task(tmp_path / "out")
    assert predict(again, ["the good cat", "a bad moon"], task=task) == answers
    kind = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}[family]
    theirs = getattr(hf, kind).from_pretrained(tmp_path / "out")
    assert theirs.config.architectures == [kind]
    assert {"bert": "fill-mask", "gpt2": "text-generation"}[family] in (
        tmp_path / "out" / "README.md"
    ).read_text()


def test_examples_of_other_candidates_do_not_share_a_batch() -> None:
    one, other = make_formulation("bert"), make_formulation("bert", words={"no": "4", "yes": "bad"})
    (a,), (b,) = one.build_inputs(items("cat")), other.build_inputs(items("cat"))
    with pytest.raises(ValueError, match="different candidate_ids"):
        pad_examples([a.example, b.example], one.special_ids)
    with pytest.raises(ValueError, match="different candidate_ids"):
        pad_examples([a.example, a.example.without(Candidates)], one.special_ids)


def test_family_without_language_head_is_refused_or_given_one() -> None:
    for name, transform in (("coco-lm-mini", None), ("electra-mini", "gelu")):
        spec = language_modeling_head(MODELS[name])
        assert (spec.transform, spec.bias, spec.tie_embeddings) == (transform, True, True)
    with pytest.raises(ValueError, match="models of the family canine have no language head"):
        language_modeling_head(MODELS["canine-mini"])


def test_columns_are_those_of_one_text_or_two(tmp_path: Path) -> None:
    from unmask.tasks.readers.tables import read_table

    kind = TASK_KINDS["cloze"]
    rows = toy.write(tmp_path / "one.tsv", [("a", "b")])
    assert kind.reader.find_columns(read_table(rows), (), None, ()) == TaskColumns(
        texts=("text",), label="label"
    )
    pair = toy.write(tmp_path / "two.tsv", [("a", "b", "c")], "sentence1\tsentence2\tlabel")
    assert kind.reader.find_columns(read_table(pair), (), None, ()).texts == (
        "sentence1",
        "sentence2",
    )


def test_candidates_are_the_tokens_of_the_verbalizers() -> None:
    known = toy.tokenizer("bert")
    for words, output in ((WORDS, "2 8"), ({"no": "2 3", "yes": "8 2"}, "2 3 8")):
        (question,) = make_formulation("bert", words=words).build_inputs(items("cat", truth="yes"))
        assert (
            question.example.feature(Candidates).ids.tolist() == known.encode(output).ids.tolist()
        )


def test_number_of_mask_tokens_does_not_reveal_the_label() -> None:
    words = {"no": "2 3", "yes": "8"}
    one = make_formulation("bert", words=words, pattern="{text} is [MASK] .")
    known = toy.tokenizer("bert")
    inputs = [one.build_inputs(items("the cat", truth=y))[0].example.inputs for y in words]
    assert all(np.array_equal(other, inputs[0]) for other in inputs)
    assert int((inputs[0] == known.special_ids.mask).sum()) == 2
    for label, word in words.items():
        (question,) = one.build_inputs(items("the cat", truth=label))
        targets = question.example.targets
        assert targets[targets != IGNORE_INDEX].tolist() == known.encode(word).ids.tolist()


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_longer_verbalizers_leave_less_room_for_texts(family: str) -> None:
    one = make_formulation(family, words=LONG, length=14)
    (question,) = one.build_inputs(items(" ".join(toy.WORDS), truth="yes"))
    assert len(question.example.inputs) == 14
    assert question.truncated


def hand_computed_likelihood(
    reference, ids: list[int], at: int, word: list[int], mask, among: list[int]
) -> float:
    """Fill a word into a blank, the most probable token first; without masks from left to right."""

    def logs_of(ids: list[int]) -> dict[int, list[float]]:
        logs = reference(input_ids=torch.tensor([ids])).logits[0, :, among].log_softmax(-1)
        return dict(zip(among, logs.T.tolist(), strict=True))

    if mask is None:
        logs = logs_of(ids[:at] + word)
        return sum(logs[token][at - 1 + i] for i, token in enumerate(word))
    ids, total, left = ids[:at] + [mask] * len(word) + ids[at:], 0.0, dict(enumerate(word, at))
    while left:
        logs = logs_of(ids)
        position = max(left, key=lambda i: logs[left[i]][i])
        ids[position] = left.pop(position)
        total += logs[ids[position]][position]
    return total


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_multi_token_verbalizer_likelihood_equals_hand_computation(
    family: str, tmp_path: Path
) -> None:
    kind = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}[family]
    reference, loaded = make(family, tmp_path, kind)
    reference.eval()
    torch.manual_seed(1)
    with torch.no_grad():  # so that the order and the other tokens matter
        for p in reference.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    ours = loaded.preset.weight_names.from_external(
        dict(reference.state_dict()), {n: p.shape for n, p in loaded.model.named_parameters()}
    )
    known = tokenizer(family)
    a, b, c = [w for w in "abcdefgh" if len(known.encode(f" {w}")) == 1][:3]
    words = {"x": f"{a} {b} {c}", "y": f"{b} {a}", "z": c, "w": f"{c} {c}"}
    if family == "gpt2":
        words["z"] = f"{b} {b} {a}"
    task = cloze_task(loaded.preset, words, pattern="{text} a [MASK]")
    one = formulate(task, loaded.preset, known)
    model = loaded.preset.build(heads_for_task(task, loaded.preset))
    model.load_state_dict(ours.tensors, strict=False)
    model.eval()
    texts = ["ab cd", "e", "", "a b c d e f g"]
    some = [TaskExample(texts=(text,), label=y) for text, y in zip(texts, words, strict=True)]
    predictions = predict_scores(one, model, one.build_inputs(some)).scores
    assert (
        len({int(s[0].argmax()) for s in predictions} | {int(s[0].argmin()) for s in predictions})
        > 1
    )
    unknown = [replace(item, label=None) for item in some]
    for i in (0, 3):  # alone, and with nothing to tell the answer by
        (alone,) = predict_scores(one, model, one.build_inputs(unknown[i : i + 1])).scores
        assert np.allclose(alone, predictions[i], atol=1e-4)
    mask = known.special_ids.mask if family == "bert" else None
    with torch.no_grad():
        for text, scores in zip(texts, predictions, strict=True):
            read = known.encode(f"{text} a").ids.tolist()
            s = known.special_ids
            ids = [*s.prefix, *read, *s.suffix]
            at = len(ids) - len(s.suffix)
            tokens = [known.encode(f" {word}").ids.tolist() for word in words.values()]
            among = sorted({token for word in tokens for token in word})
            each = torch.tensor(
                [hand_computed_likelihood(reference, ids, at, word, mask, among) for word in tokens]
            )
            assert torch.allclose(each.log_softmax(0), torch.from_numpy(scores[0]), atol=1e-4)
    batch = pad_examples([q.example for q in one.build_inputs(some)], one.special_ids)
    term = model(batch).terms["label"]
    assert term.count == sum(len(one.label_token_ids[i]) for i in range(4))
    if family == "gpt2":  # where nothing is hidden, what is learned is what is asked
        logs = np.array([scores[0, i] for i, scores in enumerate(_words(one, model, some))])
        assert term.total.item() == pytest.approx(-logs.sum(), rel=1e-4)


def _words(one: ClozeFormulation, model, some: list[TaskExample]) -> list[np.ndarray]:
    """Return how likely words are, not compared with each other."""
    with torch.no_grad():
        return list(one._multi_token_likelihoods(model, one.build_inputs(some)).numpy()[:, None])


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", [LONG, {"no": "2", "yes": "8 5"}])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_multi_token_verbalizers_are_learned(family, words, tmp_path: Path) -> None:
    tuned = _learned(family, words, tmp_path)
    assert tuned.best_run.dev["accuracy"] > 0.9
    answers = tuned.predict(["the good cat", "a bad moon"])
    assert [a["label"] for a in answers] == ["yes", "no"]
    again, task = load_folder(tmp_path / "out"), read_task(tmp_path / "out")
    assert predict(again, ["the good cat", "a bad moon"], task=task) == answers
