"""`logits` agrees with `predict`, for every kind of base and of head."""

from dataclasses import replace

import numpy as np
import pytest
import toy_models
from test_exports import shrunk
from toy_text import corpus

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.classification.label_losses import BinaryCrossEntropy
from unmask.heads.spec import HeadSpec
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published, question_answering_head, token_classification_head

TEXTS = ["the old king", "my friend saw the long road once again and again", "a"]
CARDS = ("canine-mini", "lstm-mini", "bilstm-mini", "cnn-mini", "modernbert-mini", "llama-mini",
         "xlnet-mini", "deberta-mini")  # fmt: skip
BASES = ("bert", "gpt2", "bart", "longformer", "unilm", *CARDS)


def _base(name: str) -> tuple[Published, Tokenizer]:
    if name in toy_models.CARDS:
        return toy_models.card(name), toy_models.tokenizer(name)
    preset = MODELS[name]
    if name == "canine-mini":
        tokenizer = train_tokenizer(preset.tokenizer, [])
    else:
        frame = (
            preset.tokenizer.special_tokens
            if name == "mbart-mini"
            else MODELS["bert-tiny"].tokenizer.special_tokens
        )
        vocabulary = (
            replace(preset.tokenizer.vocabulary, vocab_size=120)
            if name == "mbart-mini"
            else WordPiece(100)
        )
        tokenizer = train_tokenizer(TokenizerSpec(vocabulary, frame), corpus(20).splitlines())
    if not name.startswith(("lstm", "bilstm", "cnn")):
        preset = replace(preset, architecture=shrunk(preset.architecture))
    return preset.with_vocabulary(tokenizer.special_ids), tokenizer


def _pipeline(name: str, head: str) -> Pipeline:
    preset, known = _base(name)
    assert preset.classification_head is not None
    made: dict[str, HeadSpec] = {
        "label": replace(preset.classification_head, n_labels=3),
        "several": replace(preset.classification_head, n_labels=3, loss=BinaryCrossEntropy()),
        "number": replace(preset.classification_head, n_labels=1),
        "token_label": replace(token_classification_head(preset), n_labels=3),
        "spans": question_answering_head(preset),
    }
    spec = made[head]
    heads = {head if head in ("token_label", "spans") else "label": spec}
    labels = () if head in ("number", "spans") else ("A", "B", "C")
    model = preset.build(heads).initialize(0).eval()
    loaded = LoadedModel(
        preset=replace(preset, heads=heads),
        model=model,
        tokenizer=known,
        label_names=labels,
        missing=(),
        unexpected=(),
    )
    return Pipeline(loaded)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", BASES)
def test_logits_are_those_behind_predictions(name: str) -> None:
    labelled = _pipeline(name, "label")
    for logits, predictions in zip(labelled.logits(TEXTS), labelled.predict(TEXTS), strict=True):
        shares = np.exp(logits - logits.max())
        assert isinstance(predictions, dict)
        assert list(predictions["probabilities"].values()) == pytest.approx(
            shares / shares.sum(), abs=2e-5
        )
    several = _pipeline(name, "several")
    for logits, predictions in zip(several.logits(TEXTS), several.predict(TEXTS), strict=True):
        assert isinstance(predictions, dict)
        shares = 1 / (1 + np.exp(-logits))
        assert list(predictions["probabilities"].values()) == pytest.approx(shares, abs=2e-5)
    number = _pipeline(name, "number")
    for logits, predictions in zip(number.logits(TEXTS), number.predict(TEXTS), strict=True):
        assert predictions == pytest.approx(float(logits[0]), abs=2e-5)
    one = labelled.logits(TEXTS[0])
    assert one[0] == pytest.approx(labelled.logits(TEXTS)[0], abs=2e-5)


@pytest.mark.sample(13)
@pytest.mark.parametrize("head", ["token_label", "spans"])
@pytest.mark.parametrize("name", BASES)
def test_token_heads_have_logits_per_token(name: str, head: str) -> None:
    pipeline = _pipeline(name, head)
    tokenizer = pipeline.tokenizer
    special = tokenizer.special_ids
    for text, scores in zip(TEXTS, pipeline.logits(TEXTS), strict=True):
        n = len(tokenizer.encode(text)) + len(special.prefix) + len(special.suffix)
        assert scores.shape == (n, 3 if head == "token_label" else 2)
    if head == "token_label":
        pipeline.predict([text.split() for text in TEXTS])
    vectors = pipeline.embed(TEXTS)
    assert len(vectors) == len(TEXTS)
