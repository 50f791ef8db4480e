"""Cross-attention against a dictionary's links: the error rate, and maps of a T5."""

import pytest
import torch
from small_models import make

from unmask.analysis.attention.alignment import (
    STEPS,
    AlignedPair,
    WordAlignment,
    align_by_dictionary,
    alignment_error_rate,
    cross_attention_maps,
    measure_alignment,
    read_pairs,
)
from unmask.analysis.attention.record import attention_maps
from unmask.batch import Batch, Visibility

DICTIONARY = {"the": {"the"}, "dog": {"dog"}, "cat": {"cat"}}
PAIRS = [
    (["the", "dog", "sees"], ["dog", "the", "sees"]),
    (["a", "cat"], ["cat", "a"]),
    (["one"], ["two"]),
]


def test_links_are_sure_where_both_words_occur_once() -> None:
    found = align_by_dictionary(["the", "dog", "the"], ["The", "DOG"], DICTIONARY)
    assert found.sure == {(1, 1)}
    assert found.possible == {(0, 0), (2, 0), (1, 1)}


def test_error_rate_by_its_formula() -> None:
    reference = WordAlignment(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 2)}))
    links = {(0, 0), (2, 2), (0, 1)}
    assert alignment_error_rate([(links, reference)]) == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert alignment_error_rate([(set(reference.sure), reference)]) == 0
    with pytest.raises(ValueError, match="no two words"):
        alignment_error_rate([(links, WordAlignment(frozenset(), frozenset({(0, 0)})))])


def test_cross_attention_of_target_words(tmp_path) -> None:
    _, loaded = make("t5", tmp_path)
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    pairs = read_pairs(tokenizer, PAIRS, DICTIONARY, None)
    assert len(pairs) == 2  # the last one has no link
    pair: AlignedPair = pairs[0]
    maps = cross_attention_maps(loaded.model, tokenizer, pair)
    assert len(maps) == 12
    targets = tokenizer.encode("dog the sees").ids.tolist()
    batch = Batch(
        inputs=torch.tensor([[tokenizer.special_ids.start, *targets]]),
        visibility=Visibility(causal=True),
        source=torch.from_numpy(pair.source.token_ids)[None],
    )
    whole = attention_maps(loaded.model, batch)[-1].cross_attention[0][0, 0]
    words = pair.target.word_of_token[pair.target.word_of_token >= 0]
    last = torch.from_numpy(words == 2).nonzero()[:, 0]
    of_source = torch.from_numpy(pair.source.word_of_token == 0)
    predicting, reading = maps[0][1]
    wanted = whole[last].mean(0)[of_source].sum()
    torch.testing.assert_close(predicting[2, 0], wanted, atol=1e-5, rtol=1e-4)
    wanted = whole[last + 1].mean(0)[of_source].sum()
    torch.testing.assert_close(reading[2, 0], wanted, atol=1e-5, rtol=1e-4)


def test_heads_have_error_rates(tmp_path) -> None:
    _, loaded = make("t5", tmp_path)
    assert loaded.tokenizer is not None
    pairs = read_pairs(loaded.tokenizer, PAIRS, DICTIONARY, None)
    found = measure_alignment(loaded.model, loaded.tokenizer, pairs)
    assert found.n_words == 3
    assert set(found.error_rates) == set(STEPS)
    assert all(len(rates) == len(found.heads) for rates in found.error_rates.values())
    assert all(0 <= rate <= 1 for rates in found.error_rates.values() for rate in rates)
    assert found.diagonal == pytest.approx(1)


def test_a_model_without_cross_attention_is_refused(tmp_path) -> None:
    _, loaded = make("bert", tmp_path)
    assert loaded.tokenizer is not None
    with pytest.raises(ValueError, match="only encoder-decoders"):
        measure_alignment(loaded.model, loaded.tokenizer, [])
