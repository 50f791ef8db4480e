"""Features of words are the means of what the network computes at their tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import KINDS, tokenizer
from toy_text import corpus

from unmask.analysis.probes.features import random_weights, static_features, word_features
from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.vocabulary import WordBytesWithWords
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.zoo.catalogue import MODELS

SENTENCES = [["The", "old", "gate", "."], ["An", "unknowable", "king", "saw", "the", "sea", "!"]]
FAMILIES = {
    "bert-mini": "bert",
    "albert-mini": "bert",
    "gpt2-mini": "gpt2",
    "t5-mini": "t5",
    "t5-shared-mini": "t5",
    "lstm-mini": "bert",
    "elmo-mini": None,
}


def made(name: str) -> tuple[Model, Tokenizer]:
    known = FAMILIES[name]
    if known in KINDS:
        cut = tokenizer(known)
    else:
        spelled = replace(MODELS[name].tokenizer, vocabulary=WordBytesWithWords(40))
        cut = train_tokenizer(spelled, corpus(20).splitlines())
    return MODELS[name].with_vocabulary(cut.special_ids).build().initialize(0), cut


def batch_of(model: Model, cut: Tokenizer, ids: list[int]) -> Batch:
    """One text without padding, written once more."""
    tokens = torch.tensor([[*cut.special_ids.prefix, *ids, *cut.special_ids.suffix]])
    if model.architecture.is_encoder_decoder:
        start = torch.tensor([[cut.special_ids.start]])
        return Batch(inputs=start, visibility=Visibility(causal=True), source=tokens)
    return Batch(inputs=tokens, visibility=Visibility(causal=model.decoder_architecture.causal))


@pytest.mark.parametrize("name", FAMILIES)
def test_features_are_means_of_the_states_of_tokens(name: str) -> None:
    model, cut = made(name)
    found = word_features(model, cut, SENTENCES)
    assert found.select(SENTENCES) == [word for words in SENTENCES for word in words]
    n_layers = model.backbone.encoder_stack.n_token_layers
    assert len(found.layers) == n_layers + 1
    start, row, own = len(cut.special_ids.prefix), 0, cut.input_tokenizer
    model.eval()
    for words in SENTENCES:
        text = " ".join(words)
        batch = batch_of(model, cut, own.encode_ids_batch([text])[0].tolist())
        with torch.no_grad():
            # of networks with a final norm, layer_states gives what the norm reads, too
            states = [model.backbone.layer_states(batch, i)[0] for i in range(n_layers + 1)]
        end = 0
        for word in words:
            begin = text.index(word, end)
            end = begin + len(word)
            # the space before a word belongs to it
            tokens = [
                start + i for i, (a, b) in enumerate(own.offsets(text)) if b > begin - 1 and a < end
            ]
            for layer, state in zip(found.layers, states, strict=True):
                wanted = sum(state[i] for i in tokens) / len(tokens)
                # padding and batching round in another order
                torch.testing.assert_close(layer[row], wanted, atol=2e-5, rtol=1e-4)
            row += 1
    assert row == len(found)


def test_long_sentences_are_skipped_and_counted() -> None:
    model, cut = made("bert-mini")
    long = ["king"] * 2000
    found = word_features(model, cut, [SENTENCES[0], long, SENTENCES[1]])
    assert found.n_skipped == 1
    assert sorted(set(found.sentences.tolist())) == [0, 2]
    with pytest.raises(ValueError, match="no words to probe: 1 sentences, 1 too long"):
        word_features(model, cut, [long])


@pytest.mark.thorough
def test_random_weights_differ_and_leave_the_model() -> None:
    model, cut = made("bert-mini")
    before = word_features(model, cut, SENTENCES).layers[-1]
    control = word_features(random_weights(model, 1), cut, SENTENCES).layers[-1]
    assert not torch.allclose(before, control, atol=1e-2)
    assert torch.equal(before, word_features(model, cut, SENTENCES).layers[-1])
    same = word_features(random_weights(model, 0), cut, SENTENCES).layers[-1]
    assert torch.equal(before, same)


def test_static_vectors_are_one_layer() -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = static_features(KeyedVectors(("old", "king", "gate"), vectors), SENTENCES)
    assert found.select(SENTENCES) == ["old", "gate", "king"]
    assert len(found.layers) == 1
    assert found.layers[0].tolist() == [[0, 1], [4, 5], [2, 3]]
    with pytest.raises(ValueError, match="no word of the sentences has a vector"):
        static_features(KeyedVectors(("x",), vectors[:1]), SENTENCES)
