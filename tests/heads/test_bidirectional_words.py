"""Words predicted from a forward and a backward model: targets, losses and display."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.batching.collate import pad_examples
from unmask.heads.model import Model
from unmask.heads.pretraining.bidirectional_lm import BidirectionalLM
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.layers.embeddings.character_cnn import CharacterCNN
from unmask.objectives.explain import explain_example
from unmask.objectives.features import SubwordTargets, TwoStream
from unmask.objectives.inputs.characters import BidirectionalWordLM
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.output_vocabularies.words import FIRST_CONTINUATION_ID
from unmask.tokenizers.spec import ELMO, TokenizerSpec
from unmask.tokenizers.vocabulary import WordBytesWithWords

TEXT = train_tokenizer(
    TokenizerSpec(WordBytesWithWords(9), ELMO), ["the old king said: the old queen"]
)
SMALL = ElmoArchitecture(
    d_model=12, embedding_size=6, n_layers=2, d_ff=16, cell_clip=3.0, dropout=0.0,
    character_cnn=CharacterCNN(character_embedding_size=4, filters=((1, 3), (2, 4))),
)  # fmt: skip


def make_example(text: str):
    return BidirectionalWordLM()(TEXT.encode(text), TEXT.special_ids, np.random.default_rng(0))


def built(**changes) -> Model:
    spec = replace(BidirectionalLM(output_vocab_size=2), **changes).with_vocabulary(
        TEXT.special_ids
    )
    return Model(SMALL, {"both_sides": spec}).initialize(0)


def test_each_word_is_predicted_at_its_first_byte() -> None:
    example = make_example("the odd king")
    known = TEXT.special_ids.output_vocabulary
    positions = np.flatnonzero(example.targets != IGNORE_INDEX)
    assert positions.tolist() == [1, 4, 7]
    assert known.pieces(example.targets[positions].tolist()) == ["the", "<UNK>", "king"]
    assert example.feature(SubwordTargets).position_of.tolist() == [
        IGNORE_INDEX,
        1,
        1,
        1,
        4,
        4,
        4,
        7,
        7,
        7,
        7,
        IGNORE_INDEX,
    ]
    assert example.inputs.tolist() == [1, *TEXT.encode("the odd king").ids.tolist(), 2]
    assert example.has(TwoStream)
    objective = BidirectionalWordLM()
    assert objective.max_text_length(12, TEXT.special_ids) == 10
    assert objective.max_example_length(np.array([10]), TEXT.special_ids).tolist() == [12]
    assert not (make_example("").targets != IGNORE_INDEX).any()


def test_truncated_words_and_special_tokens_are_no_targets() -> None:
    ids = np.array(
        [FIRST_CONTINUATION_ID + 97, *TEXT.encode("the").ids, 2, *TEXT.encode("old").ids]
    )
    text = replace(TEXT.encode("x"), ids=ids, boundaries=np.zeros(len(ids), np.uint8))
    example = BidirectionalWordLM()(text, TEXT.special_ids, np.random.default_rng(0))
    assert np.flatnonzero(example.targets != IGNORE_INDEX).tolist() == [2, 6]
    assert example.feature(SubwordTargets).position_of.tolist() == [
        -100,
        -100,
        2,
        2,
        2,
        -100,
        6,
        6,
        6,
        -100,
    ]


def test_display_shows_words_no_direction_has_seen() -> None:
    shown = explain_example(make_example("the odd king"), TEXT, BidirectionalWordLM())
    assert [cell.target for cell in shown.inputs if cell.target] == ["the", "<UNK>", "king"]
    roles = [cell.role for cell in shown.inputs]
    assert roles == ["special", *["shown"] * 10, "special"]
    assert shown.visibility.startswith("each word is predicted from those before it")


@pytest.mark.parametrize("cutoffs", [(), (4,)])
def test_both_directions_predict_the_word_between(cutoffs: tuple[int, ...]) -> None:
    model = built(cutoffs=cutoffs)
    batch = pad_examples(
        [make_example("the old king"), make_example("the queen said")], TEXT.special_ids
    )
    head = model.heads["both_sides"]
    prediction = model(batch, return_logits=True)
    term = prediction.terms["both_sides"]
    assert (term.count, model.count_targets(batch)) == (12, {"both_sides": 12})
    logits = prediction.logits["both_sides"]
    targets = batch.targets.flatten()[batch.target_positions].repeat(2)
    torch.testing.assert_close(term.total, F.cross_entropy(logits, targets, reduction="sum"))
    # Before "old" stands "the", behind it "king", in the states of all that they have read.
    hidden = model.hidden_states(batch.without(TwoStream))
    position = int(batch.target_positions[1])
    before, after = hidden[0, position - 1, :6], hidden[0, position + 3, 6:]
    torch.testing.assert_close(logits[1], head.names.logits(before))
    torch.testing.assert_close(logits[7], head.names.logits(after))
    names = {name.split(".")[2] for name in model.trained_weights() if name.startswith("heads.")}
    assert names == {"table", "names"}
    assert model.flops(20, 0.2) > 0


@pytest.mark.thorough
def test_text_is_memorized() -> None:
    model = built()
    batch = pad_examples([make_example("the old king said: the old queen")], TEXT.special_ids)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        term = model(batch).terms["both_sides"]
        optimizer.zero_grad()
        (term.total / term.count).backward()
        optimizer.step()
    assert term.total / term.count < 0.1


def test_leaking_networks_are_refused() -> None:
    model = built()
    batch = pad_examples([make_example("the king")], TEXT.special_ids)
    with pytest.raises(ValueError, match="do not see the targets"):
        model(batch.without(TwoStream))
    assert not model(Batch(inputs=batch.inputs)).terms
    with pytest.raises(ValueError, match="size must be at least 1"):
        BidirectionalLM(output_vocab_size=0)
    bare = replace(TEXT.special_ids, output_vocabulary=None)
    with pytest.raises(ValueError, match="words are predicted, and this tokenizer knows none"):
        BidirectionalWordLM()(TEXT.encode("a"), bare, np.random.default_rng(0))
