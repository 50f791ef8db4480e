"""A word between two readers: what is asked of whom, and what it costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unmask.batch import IGNORE, Batch
from unmask.heads.both_sides import BothSides
from unmask.heads.model import Model
from unmask.hiding.collate import pad
from unmask.hiding.show import explain
from unmask.hiding.spelled import FromBothSides
from unmask.model.elmo import ElmoArchitecture
from unmask.model.spelling import Spelling
from unmask.tokens.spelled import INSIDE
from unmask.tokens.tokenizer import learn
from unmask.tokens.vocabulary import ELMO, SpelledWords, TokenizerSpec

TEXT = learn(TokenizerSpec(SpelledWords(9), ELMO), ["the old king said: the old queen"])
SMALL = ElmoArchitecture(
    d_model=12, embed_width=6, n_layers=2, d_ff=16, clip=3.0, dropout=0.0,
    spelling=Spelling(width=4, filters=((1, 3), (2, 4))),
)  # fmt: skip


def asked(text: str):
    return FromBothSides()(TEXT.encode(text), TEXT.special, np.random.default_rng(0))


def built(**changes) -> Model:
    spec = replace(BothSides(size=2), **changes).fitted(TEXT.special)
    return Model(SMALL, {"both_sides": spec}).initialize(0)


def test_each_word_is_asked_at_its_first_byte() -> None:
    example = asked("the odd king")
    known = TEXT.special.subwords
    places = np.flatnonzero(example.targets != IGNORE)
    assert places.tolist() == [1, 4, 7]
    assert known.pieces(example.targets[places].tolist()) == ["the", "<UNK>", "king"]
    assert example.asked_at.tolist() == [IGNORE, 1, 1, 1, 4, 4, 4, 7, 7, 7, 7, IGNORE]
    assert example.inputs.tolist() == [1, *TEXT.encode("the odd king").ids.tolist(), 2]
    assert example.blind
    objective = FromBothSides()
    assert objective.budget(12, TEXT.special) == 10
    assert objective.size(np.array([10]), TEXT.special).tolist() == [12]
    assert not (asked("").targets != IGNORE).any()


def test_a_torn_word_and_what_is_special_are_not_asked() -> None:
    ids = np.array([INSIDE + 97, *TEXT.encode("the").ids, 2, *TEXT.encode("old").ids])
    text = replace(TEXT.encode("x"), ids=ids, marks=np.zeros(len(ids), np.uint8))
    example = FromBothSides()(text, TEXT.special, np.random.default_rng(0))
    assert np.flatnonzero(example.targets != IGNORE).tolist() == [2, 6]
    assert example.asked_at.tolist() == [-100, -100, 2, 2, 2, -100, 6, 6, 6, -100]


def test_people_see_words_that_nobody_who_is_asked_has_read() -> None:
    shown = explain(asked("the odd king"), TEXT, FromBothSides())
    assert [cell.asked for cell in shown.inputs if cell.asked] == ["the", "<UNK>", "king"]
    roles = [cell.role for cell in shown.inputs]
    assert roles == ["special", *["unseen"] * 10, "special"]
    assert shown.sees.startswith("each word is told from those before it")


@pytest.mark.parametrize("cutoffs", [(), (4,)])
def test_both_readers_name_the_word_between_them(cutoffs: tuple[int, ...]) -> None:
    model = built(cutoffs=cutoffs)
    batch = pad([asked("the old king"), asked("the queen said")], TEXT.special)
    head = model.heads["both_sides"]
    prediction = model(batch, scores=True)
    term = prediction.terms["both_sides"]
    assert (term.count, model.count(batch)) == (12, {"both_sides": 12})
    said = prediction.scores["both_sides"]
    targets = batch.targets.flatten()[batch.asked].repeat(2)
    torch.testing.assert_close(term.total, F.cross_entropy(said, targets, reduction="sum"))
    # Before "old" stands "the", behind it "king", in the states of all that they have read.
    hidden = model.hidden(replace(batch, blind=False))
    place = int(batch.asked[1])
    before, after = hidden[0, place - 1, :6], hidden[0, place + 3, 6:]
    torch.testing.assert_close(said[1], head.names.scores(before))
    torch.testing.assert_close(said[7], head.names.scores(after))
    names = {name.split(".")[2] for name in model.kept() if name.startswith("heads.")}
    assert names == {"table", "names"}
    assert model.flops(20, 0.2) > 0


def test_it_learns_a_text_by_heart() -> None:
    model = built()
    batch = pad([asked("the old king said: the old queen")], TEXT.special)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        term = model(batch).terms["both_sides"]
        optimizer.zero_grad()
        (term.total / term.count).backward()
        optimizer.step()
    assert term.total / term.count < 0.1


def test_what_would_know_its_answers_is_refused() -> None:
    model = built()
    batch = pad([asked("the king")], TEXT.special)
    with pytest.raises(ValueError, match="who have not read it"):
        model(replace(batch, blind=False))
    assert not model(Batch(inputs=batch.inputs)).terms
    with pytest.raises(ValueError, match="size must be at least 1"):
        BothSides(size=0)
    bare = replace(TEXT.special, subwords=None)
    with pytest.raises(ValueError, match="words are asked for, and this tokenizer knows none"):
        FromBothSides()(TEXT.encode("a"), bare, np.random.default_rng(0))
