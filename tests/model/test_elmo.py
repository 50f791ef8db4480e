"""ELMo's network: words as the formulas have them, texts by themselves, and who knows what."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from unmask.batch import Batch, Visibility
from unmask.config import from_dict, to_dict
from unmask.model.backbones.elmo import Elmo, ElmoArchitecture, WordLayout
from unmask.model.layers.embeddings.character_cnn import CharacterCNN
from unmask.objectives.features import TwoStream
from unmask.tokenizers.characters.byte_pipelines import word_byte_pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import ELMO

SMALL = ElmoArchitecture(
    d_model=12,
    embedding_size=6,
    n_layers=2,
    d_ff=16,
    cell_clip=3.0,
    character_cnn=CharacterCNN(
        character_embedding_size=4,
        filters=((1, 3), (2, 4), (3, 5)),
        n_highway_layers=2,
        max_characters=9,
    ),
)
TEXT = Tokenizer(word_byte_pipeline(ELMO), ELMO)


def build(a: ElmoArchitecture = SMALL) -> Elmo:
    torch.manual_seed(0)
    network = Elmo(a).eval()
    for p in network.parameters():
        nn.init.normal_(p, std=0.5)
    return network


def ids(*texts: str) -> list[list[int]]:
    return [[1, *TEXT.encode(text).ids.tolist(), 2] for text in texts]


def padded(*texts: str) -> Batch:
    rows = ids(*texts)
    most = max(map(len, rows))
    inputs = torch.tensor([row + [0] * (most - len(row)) for row in rows])
    document = torch.tensor([[0] * len(row) + [-1] * (most - len(row)) for row in rows])
    return Batch(inputs=inputs, visibility=Visibility(document=document))


def firsts(row: list[int]) -> list[int]:
    return [i for i, token in enumerate(row) if token < 259]


def spelled(word: bytes, longest: int) -> list[int]:
    """As UnicodeCharsVocabulary of the released code."""
    code = [260] * longest
    code[0] = 258
    for k, byte in enumerate(word[: longest - 2], start=1):
        code[k] = byte
    code[min(len(word), longest - 2) + 1] = 259
    return code


@torch.no_grad()
def test_word_vector_equals_formula_of_its_characters() -> None:
    network = build()
    words = [b"a", "été".encode(), b"tremendously"]
    batch = padded("a été tremendously")
    found = network.layer_outputs(batch)[0][0, firsts(ids("a été tremendously")[0])][1:-1, :6]
    w = {name.removeprefix("tokens."): p for name, p in network.named_parameters()}
    for word, vector in zip(words, found, strict=True):
        x = w["characters.weight"][spelled(word, 9)]  # [c w]
        parts = []
        for i, (width, _) in enumerate(SMALL.character_cnn.filters):
            windows = x.unfold(0, width, 1)  # [places w width]
            scores = torch.einsum("pcw,ncw->pn", windows, w[f"filters.{i}.weight"])
            parts.append((scores + w[f"filters.{i}.bias"]).amax(0).relu())
        y = torch.cat(parts)
        for i in range(2):
            name = f"highways.{i}"
            gate = (w[f"{name}.carries.weight"] @ y + w[f"{name}.carries.bias"]).sigmoid()
            new = (w[f"{name}.transforms.weight"] @ y + w[f"{name}.transforms.bias"]).relu()
            y = gate * new + (1 - gate) * y
        expected = w["narrows.weight"] @ y + w["narrows.bias"]
        torch.testing.assert_close(vector, expected)


@torch.no_grad()
def test_all_bytes_of_a_word_share_its_state_and_texts_are_independent() -> None:
    network, texts = build(), ("the cat's étés", "a", "longer than all, tremendously")
    batch = padded(*texts)
    together = network(batch)
    for row, text in enumerate(texts):
        own = torch.tensor(ids(text))
        alone = network(Batch(inputs=own))[0]
        torch.testing.assert_close(together[row, : own.shape[1]], alone)
        assert not together[row, own.shape[1] :].any()
        starts = firsts(own[0].tolist())
        lengths = np.diff([*starts, own.shape[1]])
        assert torch.equal(alone, alone[starts].repeat_interleave(torch.tensor(lengths), 0))
    one = torch.tensor([[*ids(texts[0])[0], *ids(texts[1])[0]]])
    document = torch.tensor([[0] * len(ids(texts[0])[0]) + [1] * len(ids(texts[1])[0])])
    packed = network(Batch(inputs=one, visibility=Visibility(document=document)))
    torch.testing.assert_close(packed[0, document[0] == 0], network(padded(texts[0]))[0])
    torch.testing.assert_close(packed[0, document[0] == 1], network(padded(texts[1]))[0])


@pytest.mark.parametrize("two_stream", [True, False])
def test_each_direction_sees_one_side_and_excludes_the_word_if_asked(two_stream: bool) -> None:
    network, batch = build(), padded("ab cde fg h").without(TwoStream)
    if two_stream:
        batch = batch.with_feature(TwoStream())
    rows: list[torch.Tensor] = []

    def keep(module: nn.Module, args: tuple, out: torch.Tensor) -> torch.Tensor:
        rows.append(out.detach().requires_grad_(True))
        return rows[-1]

    network.tokens.register_forward_hook(keep)
    out = network(batch)[0, firsts(batch.inputs[0].tolist())]
    n = len(out)
    for i in range(1, n - 1):
        before, after = (
            torch.autograd.grad(half.sum(), rows[0], retain_graph=True)[0].abs().sum(-1) > 0
            for half in out[i].chunk(2)
        )
        assert before.tolist() == [j < i or (j == i and not two_stream) for j in range(n)]
        assert after.tolist() == [j > i or (j == i and not two_stream) for j in range(n)]


@torch.no_grad()
def test_row_starting_inside_a_word_starts_one() -> None:
    row = torch.from_numpy(TEXT.encode("cats eat").ids[None, 1:])
    words = WordLayout.from_batch(Batch(inputs=row))
    assert words.first_token.tolist() == [0, 3]
    assert words.lengths.tolist() == [3, 3]
    assert build()(Batch(inputs=row)).shape == (1, 6, 12)


@torch.no_grad()
def test_initialization_equals_released_code() -> None:
    from unmask.heads.model import Model

    network = Model(SMALL, {}).initialize(0).backbone
    assert network.layers[0].reads.bias.tolist() == [0] * 8 + [1] * 8 + [0] * 16
    assert (network.tokens.highways[0].carries.bias == -2).all()
    assert 0.5 < network.tokens.characters.weight.abs().max() <= 1
    assert network.tokens.filters[2].weight.abs().max() <= 0.05


def test_impossible_architectures_are_refused() -> None:
    assert from_dict(ElmoArchitecture, to_dict(SMALL)) == SMALL
    for change, output in (
        ({"vocab_size": 30}, "vocab_size must be 515"),
        ({"embedding_size": None}, "half of d_model"),
        ({"direction": "together"}, "must be 'apart'"),
    ):
        with pytest.raises(ValueError, match=output):
            replace(SMALL, **change)
    for change, output in (
        ({"filters": ()}, "filters must be"),
        ({"filters": ((12, 3),)}, "max_characters must be"),
        ({"character_embedding_size": 0}, "character_embedding_size must be at least 1"),
        ({"n_highway_layers": -1}, "at least 0"),
    ):
        with pytest.raises(ValueError, match=output):
            replace(SMALL.character_cnn, **change)


@torch.no_grad()
def test_bfloat16_is_close_to_float32() -> None:
    network, batch = build(), padded("some words of a text", "few")
    exact = network(batch)
    rough = network.bfloat16()(batch).float()
    assert float((rough - exact).abs().max()) < 0.1 * float(exact.abs().max())


def test_gradients_reach_every_parameter() -> None:
    network = build().train()
    network(padded("some words of a text", "few")).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_equal_words_are_encoded_once_with_the_gradients_of_all() -> None:
    spec = CharacterCNN(character_embedding_size=4, filters=((1, 3), (2, 5)), max_characters=12)
    torch.manual_seed(0)
    module = spec.build(6).double()
    ids = torch.tensor([[1, 2, 3, 0], [4, 2, 1, 0], [1, 2, 3, 0], [1, 2, 3, 0]])
    seen: list[int] = []
    hook = module.filters[0].register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    weights = torch.randn(4, 6, dtype=torch.double)
    once = module(ids)
    found = torch.autograd.grad((once * weights).sum(), list(module.parameters()))
    hook.remove()
    assert seen == [2]
    each = torch.cat([module(one[None]) for one in ids])
    expected = torch.autograd.grad((each * weights).sum(), list(module.parameters()))
    torch.testing.assert_close(once, each)
    torch.testing.assert_close(found, expected)
