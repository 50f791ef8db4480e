"""Evaluation: the numbers are sums over the reference's scores, whatever the batches."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, tokenizer
from toy_text import corpus

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.evaluation import perplexity
from unmask.evaluation.perplexity import HeldOutConfig, HeldOutEvaluation, evaluate
from unmask.objectives.mixtures import ObjectiveMixture
from unmask.objectives.published import BERT, CAUSAL_LM, MASKED_LM, PREFIX_LM, T5
from unmask.objectives.unified_lm.visibility import UnidirectionalLM
from unmask.text.documents import Document
from unmask.zoo.catalogue import MODELS

SEPARATOR = "\n\n"
DOCUMENTS = [Document(text, "") for text in corpus(12, seed=5).strip().split(SEPARATOR)]
DOCUMENTS += [Document("The gate.", ""), Document("Na\u00efve  \u2603!", "")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in ("bert", "gpt2", "t5")}


def nats(logits: torch.Tensor, targets: Sequence[int]) -> float:
    there = torch.tensor(targets)
    return float(torch.nn.functional.cross_entropy(logits.double(), there, reduction="sum"))


@torch.no_grad()
def test_causal_model_predicts_every_token_once(models: dict) -> None:
    reference, loaded = models["gpt2"]
    known, length = tokenizer("gpt2"), 16
    total, n, right = 0.0, 0, 0
    for document in DOCUMENTS:
        ids = known.encode(document.text).ids.tolist()
        for at in range(0, len(ids), length):
            piece = ids[at : at + length]
            read = torch.tensor([[known.special_ids.start, *piece[:-1]]])
            logits = reference(input_ids=read).logits[0]
            total, n = total + nats(logits, piece), n + len(piece)
            right += int((logits.argmax(-1) == torch.tensor(piece)).sum())
    result = evaluate(
        loaded.model, known, CAUSAL_LM, DOCUMENTS, HeldOutConfig(sequence_length=length)
    )
    text = "".join(document.text for document in DOCUMENTS)
    words = sum(len(document.text.split()) for document in DOCUMENTS)
    assert result.documents == len(DOCUMENTS) == 14
    assert result.tokens == result.n_targets["next_token"] == n
    assert result.words == words
    assert result.bytes == len(text.encode()) == len(text) + 3
    assert result.loss["next_token"] == pytest.approx(total / n, rel=1e-5)
    assert result.perplexity["next_token"] == pytest.approx(math.exp(total / n), rel=1e-4)
    assert result.accuracy["next_token"] == pytest.approx(right / n)
    assert result.bits_per_byte == pytest.approx(total / math.log(2) / result.bytes, rel=1e-5)
    assert result.word_perplexity == pytest.approx(math.exp(total / words), rel=1e-3)


@torch.no_grad()
def test_mlm_and_nsp_losses_equal_reference(models: dict) -> None:
    """The questions are ours; the answers are those of the reference, read one by one."""
    reference, loaded = models["bert"]
    known = tokenizer("bert")
    examples: list[Example] = []

    class Recorded:
        loss_terms, needs_second_text, causal, n_variants = BERT.loss_terms, True, False, None
        max_text_length, max_example_length = BERT.max_text_length, BERT.max_example_length

        def __call__(self, text: Tokens, special_ids: Any, rng: np.random.Generator) -> Example:
            assert text.other_text is not None
            examples.append(BERT(text, special_ids, rng))
            return examples[-1]

    result = evaluate(
        loaded.model, known, Recorded(), DOCUMENTS, HeldOutConfig(sequence_length=24, seed=3)
    )
    masked, pairs, n, right = 0.0, 0.0, 0, 0
    for example in examples:
        out = reference(
            input_ids=torch.tensor(example.inputs)[None],
            token_type_ids=torch.tensor(example.segments)[None],
        )
        where = example.targets != IGNORE_INDEX
        targets = example.targets[where].tolist()
        logits = out.prediction_logits[0, where]
        masked, n = masked + nats(logits, targets), n + len(targets)
        right += int((logits.argmax(-1) == torch.tensor(targets)).sum())
        if example.label != IGNORE_INDEX:
            pairs += nats(out.seq_relationship_logits, [int(example.label)])
    labels = [example.label for example in examples if example.label != IGNORE_INDEX]
    assert result.n_targets == {"masked": n, "next_sentence": len(labels)}
    assert result.loss["masked"] == pytest.approx(masked / n, rel=1e-5)
    assert result.accuracy["masked"] == pytest.approx(right / n)
    assert result.loss["next_sentence"] == pytest.approx(pairs / len(labels), rel=1e-5)
    assert set(result.perplexity) == {"masked"}
    assert (result.bits_per_byte, result.word_perplexity) == (None, None)
    assert len(labels) > 50
    assert 0.25 < np.mean(labels) < 0.75


@torch.no_grad()
def test_span_losses_equal_reference(models: dict) -> None:
    reference, loaded = models["t5"]
    known = tokenizer("t5")
    result = evaluate(
        loaded.model, known, T5, DOCUMENTS[:3], HeldOutConfig(sequence_length=20, seed=1)
    )
    total, n, number = 0.0, 0, 0
    for document in DOCUMENTS[:3]:
        tokens = known.encode(document.text)
        budget = T5.max_text_length(20, known.special_ids)
        for at in range(0, len(tokens), budget):
            rng = np.random.default_rng([1, number])
            example = T5(tokens[at : at + budget], known.special_ids, rng)
            number += 1
            if (example.targets == IGNORE_INDEX).all():
                continue
            logits = reference(
                input_ids=torch.tensor(example.source)[None],
                decoder_input_ids=torch.tensor(example.inputs)[None],
            ).logits[0]
            total, n = total + nats(logits, example.targets.tolist()), n + len(example.targets)
    assert result.n_targets == {"denoised": n}
    assert result.loss["denoised"] == pytest.approx(total / n, rel=1e-5)
    assert result.bits_per_byte is None


@pytest.mark.thorough
def test_each_named_mixture_component_evaluates_the_whole_text(models: dict) -> None:
    loaded, known = models["bert"][1], tokenizer("bert")
    parts = {"both": BERT, "forward": UnidirectionalLM(BERT.objective)}
    mixed = ObjectiveMixture(
        tuple((1.0, part) for part in parts.values()), component_names=tuple(parts)
    )
    result = evaluate(
        loaded.model, known, mixed, DOCUMENTS, HeldOutConfig(sequence_length=24, seed=3)
    )
    assert set(result.n_targets) == {"masked_both", "next_sentence_both", "masked_forward"}
    assert set(result.perplexity) == {"masked_both", "masked_forward"}
    for name, part in parts.items():
        # Pieces of a pair have a token less: both parts are predicted from pieces that fit both.
        alone = evaluate(
            loaded.model,
            known,
            part,
            DOCUMENTS,
            HeldOutConfig(sequence_length=24 - (name == "forward"), seed=3),
        )
        for term in alone.n_targets:
            assert result.n_targets[f"{term}_{name}"] == alone.n_targets[term]
            assert result.loss[f"{term}_{name}"] == pytest.approx(alone.loss[term], rel=1e-5)
            assert result.accuracy[f"{term}_{name}"] == alone.accuracy[term]
    assert (result.bits_per_byte, result.word_perplexity) == (None, None)


def test_causal_component_gives_likelihood_of_the_whole_text(models: dict) -> None:
    loaded, known = models["gpt2"][1], tokenizer("gpt2")
    mixed = ObjectiveMixture(
        ((1.0, CAUSAL_LM), (1.0, PREFIX_LM)), component_names=("forward", "prefix")
    )
    result = evaluate(loaded.model, known, mixed, DOCUMENTS, HeldOutConfig(sequence_length=24))
    alone = evaluate(loaded.model, known, CAUSAL_LM, DOCUMENTS, HeldOutConfig(sequence_length=24))
    assert result.bits_per_byte == pytest.approx(alone.bits_per_byte, rel=1e-5)
    assert result.word_perplexity == pytest.approx(alone.word_perplexity, rel=1e-5)
    assert result.loss["next_token_forward"] == pytest.approx(alone.loss["next_token"], rel=1e-5)


def same(a: HeldOutEvaluation, b: HeldOutEvaluation) -> bool:
    close = all(a.loss[name] == pytest.approx(b.loss[name], rel=1e-5) for name in a.loss)
    rest = {"loss": {}, "perplexity": {}, "word_perplexity": None, "bits_per_byte": None}
    return close and replace(a, **rest) == replace(b, **rest)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "objective"), [("bert", BERT), ("gpt2", CAUSAL_LM), ("t5", T5)])
def test_result_depends_on_seed_not_on_batches(
    family: str, objective: Any, models: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, loaded = models[family]

    def run(batch_tokens: int = 8192, seed: int = 0) -> HeldOutEvaluation:
        known = tokenizer(family)
        monkeypatch.setattr(perplexity, "BATCH_TOKENS", batch_tokens)
        return evaluate(
            loaded.model,
            known,
            objective,
            iter(DOCUMENTS),
            HeldOutConfig(sequence_length=60 if family == "t5" else 24, seed=seed),
        )

    first = run()
    assert run() == first
    assert same(run(batch_tokens=1), first)
    assert same(run(batch_tokens=100), first)
    assert same(run(seed=1), first) is (family == "gpt2")


def test_window_size_does_not_matter_for_single_texts(models: dict, monkeypatch: Any) -> None:
    _, loaded = models["bert"]
    first = evaluate(
        loaded.model, tokenizer("bert"), MASKED_LM, DOCUMENTS, HeldOutConfig(sequence_length=24)
    )
    monkeypatch.setattr(perplexity, "PIECES_PER_WINDOW", 3)
    assert same(
        evaluate(
            loaded.model, tokenizer("bert"), MASKED_LM, DOCUMENTS, HeldOutConfig(sequence_length=24)
        ),
        first,
    )


def test_negative_next_sentence_is_from_another_document(models: dict) -> None:
    _, loaded = models["bert"]
    known = tokenizer("bert")
    marked = [Document(f"{name} {name}. " * 40, "") for name in ("king", "fox", "ring", "sea")]
    own = {int(i): d for d, doc in enumerate(marked) for i in known.encode(doc.text).ids}
    shared = set.intersection(*(set(known.encode(doc.text).ids.tolist()) for doc in marked))
    seen = []

    class Recorded:
        loss_terms, needs_second_text, causal, n_variants = BERT.loss_terms, True, False, None
        max_text_length, max_example_length = BERT.max_text_length, BERT.max_example_length

        def __call__(self, text: Tokens, special_ids: Any, rng: np.random.Generator) -> Example:
            assert text.other_text is not None
            here = {own[i] for i in text.ids.tolist() if i not in shared}
            there = {own[i] for i in text.other_text.ids.tolist() if i not in shared}
            seen.append((here, there))
            return BERT(text, special_ids, rng)

    evaluate(loaded.model, known, Recorded(), marked, HeldOutConfig(sequence_length=24))
    assert len(seen) > 10
    assert all(here and there and not here & there for here, there in seen)
    # A single document has no other: only the following sentence is a second part.
    alone = evaluate(loaded.model, known, BERT, marked[:1], HeldOutConfig(sequence_length=24))
    assert alone.n_targets["masked"] > 0


@pytest.mark.parametrize(
    ("kind", "asks"),
    [
        ("BertForSequenceClassification", "label"),
        ("BertForTokenClassification", "token_label"),
        ("BertModel", "none"),
    ],
)
def test_model_without_matching_head_is_refused(kind: str, asks: str, tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, kind)
    message = rf"no head for masked or next_sentence \(it has {asks}\)"
    with pytest.raises(ValueError, match=message):
        evaluate(
            loaded.model, tokenizer("bert"), BERT, DOCUMENTS, HeldOutConfig(sequence_length=24)
        )


def test_model_with_one_of_two_heads_evaluates_that_one(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, "BertForMaskedLM")
    result = evaluate(
        loaded.model, tokenizer("bert"), BERT, DOCUMENTS, HeldOutConfig(sequence_length=24)
    )
    assert set(result.loss) == set(result.accuracy) == set(result.n_targets) == {"masked"}


def test_head_with_two_terms_has_both_evaluated() -> None:
    preset, known = MODELS["coco-lm-mini"], tokenizer("bert")
    a = replace(preset.architecture, vocab_size=known.vocab_size, d_model=16, n_heads=2, d_ff=16)
    model = replace(preset, architecture=a).build().initialize(0)
    result = evaluate(
        model, known, preset.objective, DOCUMENTS[:3], HeldOutConfig(sequence_length=60)
    )
    assert result.loss.keys() == {"masked", "copied", "corrected", "crop"}
    assert result.n_targets["copied"] > result.n_targets["corrected"] == result.n_targets["masked"]
    assert result.perplexity.keys() == {"masked"}


def test_nothing_to_predict_is_an_error(models: dict) -> None:
    _, loaded = models["gpt2"]
    known = tokenizer("gpt2")
    for some in ([], [Document("", "")]):
        with pytest.raises(ValueError, match=r"no targets: the text has \d documents and 0 tok"):
            evaluate(loaded.model, known, CAUSAL_LM, some, HeldOutConfig(sequence_length=24))
    with pytest.raises(ValueError, match="a length of 0 leaves no room"):
        evaluate(loaded.model, known, CAUSAL_LM, DOCUMENTS, HeldOutConfig(sequence_length=0))


def test_non_finite_loss_is_an_error_and_mode_is_restored(tmp_path: Path) -> None:
    _, loaded = make("gpt2", tmp_path, resid_pdrop=0.5)
    known = tokenizer("gpt2")
    expected = evaluate(
        loaded.model, known, CAUSAL_LM, DOCUMENTS, HeldOutConfig(sequence_length=24)
    )
    loaded.model.train()
    assert (
        evaluate(loaded.model, known, CAUSAL_LM, DOCUMENTS, HeldOutConfig(sequence_length=24))
        == expected
    )
    with torch.no_grad():
        loaded.model.backbone.embedding_table.weight[5] = math.nan
    with pytest.raises(FloatingPointError, match="the loss of 'next_token' is not finite"):
        evaluate(loaded.model, known, CAUSAL_LM, DOCUMENTS, HeldOutConfig(sequence_length=24))
    assert loaded.model.training


def test_text_without_spaces_omits_overflowing_word_perplexity(models: dict) -> None:
    _, loaded = models["gpt2"]
    result = evaluate(
        loaded.model,
        tokenizer("gpt2"),
        CAUSAL_LM,
        [Document("saw" * 400, "")],
        HeldOutConfig(sequence_length=24),
    )
    assert result.words == 1
    assert result.word_perplexity is None
    assert result.bits_per_byte is not None


def test_progress_counts_tokens_read(models: dict, monkeypatch: Any) -> None:
    _, loaded = models["gpt2"]
    monkeypatch.setattr(perplexity, "BATCH_TOKENS", 100)
    counts: list[int] = []
    config = HeldOutConfig(sequence_length=24, on_progress=counts.append)
    result = evaluate(loaded.model, tokenizer("gpt2"), CAUSAL_LM, DOCUMENTS, config)
    assert len(counts) > 2
    assert counts == sorted(set(counts))
    assert counts[-1] >= result.tokens
