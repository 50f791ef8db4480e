import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import BERT, GPT, T5, long_text, text, texts

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching import collate
from unmask.batching.collate import (
    RowLimits,
    first_fit,
    group_by_length,
    pack_examples,
    pad_examples,
)
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.objectives import published
from unmask.objectives.features import ShiftedTargets, TwoStream
from unmask.objectives.sentence_pairs.pairs import SplitTextObjective

SEEDS = st.integers(0, 2**32 - 1)


def plain(n: int, first: int = 10, **rest: object) -> Example:
    ids = np.arange(first, first + n)
    return Example(inputs=ids, targets=np.where(ids % 2, ids, IGNORE_INDEX), **rest)


def visible(batch, row: int) -> np.ndarray:
    t = batch.inputs.shape[1]
    mask = batch.visibility.to_mask(t, t)
    return np.ones((t, t), bool) if mask is None else mask[min(row, len(mask) - 1), 0].numpy()


# ---- groups of like size


@given(st.lists(st.integers(0, 50)), st.integers(1, 200), st.none() | st.integers(1, 9))
def test_token_groups_hold_each_item_once_within_limit(sizes, tokens, rows):
    found = group_by_length(sizes, tokens, rows)
    assert sorted(i for group in found for i in group) == list(range(len(sizes)))
    for group in found:
        assert len(group) == 1 or len(group) * max(sizes[i] for i in group) <= tokens
        assert rows is None or len(group) <= rows
    ordered = [sizes[i] for group in found for i in group]
    assert ordered == sorted(ordered, reverse=True)


# ---- padding


def test_rows_of_equal_length_need_no_mask():
    batch = pad_examples([plain(4), plain(4, 20)], BERT)
    assert batch.visibility.document is None
    assert batch.visibility.rank is None
    assert not batch.visibility.causal
    assert batch.visibility.to_mask(4, 4) is None
    assert batch.last_token_positions is None
    assert batch.position_ids is None
    assert batch.source is None


def test_padding_is_on_the_right_as_separate_document():
    batch = pad_examples([plain(3), plain(5, 20)], BERT)
    assert batch.inputs.tolist() == [[10, 11, 12, 0, 0], [20, 21, 22, 23, 24]]
    assert batch.targets.tolist()[0] == [IGNORE_INDEX, 11, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX]
    assert batch.visibility.document.tolist() == [[0, 0, 0, -1, -1], [0] * 5]
    assert batch.last_token_positions.tolist() == [2, 4]
    assert not visible(batch, 0)[:3, 3:].any()
    assert visible(batch, 0)[:3, :3].all()


def test_target_positions_index_the_flattened_batch():
    batch = pad_examples([plain(3), plain(5, 20)], BERT)
    assert batch.target_positions.tolist() == [1, 6, 8]
    flat = batch.targets.flatten()
    assert (flat[batch.target_positions] != IGNORE_INDEX).all()
    assert (flat != IGNORE_INDEX).sum() == len(batch.target_positions)


def test_target_positions_are_omitted_where_all_are_targets():
    e = published.CAUSAL_LM(text(range(10, 15)), GPT, np.random.default_rng(0))
    assert pad_examples([e, e], GPT).target_positions is None
    longer = published.CAUSAL_LM(text(range(10, 17)), GPT, np.random.default_rng(0))
    assert pad_examples([e, longer], GPT).target_positions.tolist() == [
        0,
        1,
        2,
        3,
        4,
        *range(7, 14),
    ]


def test_target_positions_are_empty_without_targets():
    e = Example(inputs=np.array([10]), targets=np.array([IGNORE_INDEX]))
    assert pad_examples([e], BERT).target_positions.tolist() == []


def test_causal_batches_need_no_ranks_or_padding_mask():
    # padding follows all inputs, so that no target can attend to it
    some = [
        published.CAUSAL_LM(text(range(10, n)), GPT, np.random.default_rng(0)) for n in (13, 17)
    ]
    batch = pad_examples(some, GPT)
    assert batch.visibility.causal
    assert batch.visibility.rank is None
    assert batch.visibility.document is None
    assert batch.last_token_positions.tolist() == [2, 6]


def test_prefix_examples_have_ranks():
    e = published.PREFIX_LM(text(range(10, 20)), GPT, np.random.default_rng(3))
    batch = pad_examples([e, e], GPT)
    assert not batch.visibility.causal
    assert batch.visibility.rank.tolist() == [e.rank.tolist()] * 2


def test_causal_and_bidirectional_examples_share_a_batch_by_rank():
    forward = published.CAUSAL_LM(text([10, 11, 12]), GPT, np.random.default_rng(0))
    batch = pad_examples([forward, plain(3)], BERT)
    assert not batch.visibility.causal
    assert batch.visibility.rank.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert (visible(batch, 0) == np.tril(np.ones((3, 3), bool))).all()
    assert visible(batch, 1).all()


def test_shifted_targets_are_distinguished_from_others():
    forward = published.CAUSAL_LM(text([10, 11]), GPT, np.random.default_rng(0))
    assert not pad_examples([plain(3)], BERT).has(ShiftedTargets)
    assert pad_examples([forward, plain(3)], BERT).feature(ShiftedTargets).is_shifted.tolist() == [
        [True, True, False],
        [False] * 3,
    ]
    both = [forward, plain(3)]
    assert pack_examples(both, BERT, 6).feature(ShiftedTargets).is_shifted.tolist() == [
        [True, True, False, False, False, False]
    ]


def test_encoder_and_decoder_are_padded_separately():
    rng = np.random.default_rng(0)
    some = [published.T5(text(range(10, n)), T5, rng) for n in (14, 40)]
    batch = pad_examples(some, T5)
    assert batch.source.shape == (2, len(some[1].source))
    assert batch.inputs.shape == (2, len(some[1].inputs))
    n = len(some[0].source)
    assert batch.source_visibility.document.tolist()[0][n - 1 : n + 1] == [0, -1]
    assert batch.visibility.causal
    assert batch.source[0, :n].tolist() == some[0].source.tolist()


def test_encoder_and_decoder_of_equal_length_need_no_mask():
    some = [published.T5(long_text(40, s), T5, np.random.default_rng(s)) for s in range(3)]
    batch = pad_examples(some, T5)
    assert batch.source_visibility.document is None
    assert batch.visibility.document is None


def test_few_lengths_are_shared_by_all_rows_within_their_limits():
    limits = RowLimits.of([plain(200), plain(3)])
    assert limits == (200, 0)
    found = [
        pad_examples([plain(n)], BERT, row_limits=limits).inputs.shape[1] for n in range(1, 201)
    ]
    assert all(n <= m <= n + n / 16 for n, m in enumerate(found, 1))
    assert found[:32] == list(range(1, 33))
    assert len(set(found)) == 32 + 16 + 16 + 9
    assert max(found) == 200
    assert pad_examples([plain(250)], BERT, row_limits=limits).inputs.shape[1] == 250
    e = published.T5(long_text(99), T5, np.random.default_rng(0))
    n, m = len(e.source), len(e.inputs)
    assert n > 64
    batch = pad_examples([e], T5, row_limits=RowLimits(m, 200))
    assert batch.source.shape[1] == -(-n // 4) * 4
    assert batch.inputs.shape[1] == m  # no longer than a decoder may read


def test_segments_are_padded_and_labels_stacked():
    some = [plain(2, segments=np.array([0, 1]), label=1), plain(3, label=0)]
    batch = pad_examples(some, BERT)
    assert batch.segments.tolist() == [[0, 1, 0], [0, 0, 0]]
    assert batch.labels.tolist() == [1, 0]
    assert batch.labels.dtype == torch.int64


def test_labels_may_be_numbers_per_token_or_missing():
    assert pad_examples([plain(2, label=0.5), plain(2, label=2)], BERT).labels.tolist() == [
        0.5,
        2.0,
    ]
    tokens = pad_examples([plain(2, label=np.array([5, 6])), plain(3)], BERT)
    assert tokens.labels.tolist() == [[5, 6, IGNORE_INDEX], [IGNORE_INDEX] * 3]
    assert pad_examples([plain(2, label=1), plain(2)], BERT).labels.tolist() == [1, IGNORE_INDEX]
    assert pad_examples([plain(2), plain(2)], BERT).labels is None


def test_batch_tensors_are_int64_and_own_their_memory():
    e = plain(3, label=1, segments=np.zeros(3, np.int64))
    batch = pad_examples([e, plain(2)], BERT)
    for tensor in (
        batch.inputs,
        batch.targets,
        batch.target_positions,
        batch.segments,
        batch.labels,
        batch.last_token_positions,
    ):
        assert tensor.dtype == torch.int64
    batch.inputs[0, 0] = 77
    assert e.inputs[0] == 10


@pytest.mark.parametrize(
    ("some", "message"),
    [
        ([], "at least one example"),
        ([plain(3), plain(3, source=np.arange(3))], "with a source and examples without"),
        ([plain(3), plain(3, rank=np.arange(3), features=(TwoStream(),))], "two-stream ones"),
        ([plain(3, label=0.5), plain(3)], "have a score as their label and others have none"),
        ([plain(3, label=1), plain(3, label=np.arange(3))], "one for each of their tokens"),
    ],
)
def test_incompatible_examples_are_refused(some, message):
    with pytest.raises(ValueError, match=message):
        pad_examples(some, BERT)


@settings(max_examples=50)
@given(st.lists(texts(least=1), min_size=1, max_size=6), SEEDS)
def test_every_example_is_recovered_from_its_row(some, seed):
    rng = np.random.default_rng(seed)
    for objective, special in (
        (published.MASKED_LM, BERT),
        (published.T5, T5),
        (published.CAUSAL_LM, GPT),
    ):
        examples = [objective(t, special, rng) for t in some]
        batch = pad_examples(examples, special)
        for row, e in enumerate(examples):
            n = len(e.inputs)
            assert batch.inputs[row, :n].tolist() == e.inputs.tolist()
            assert batch.targets[row, :n].tolist() == e.targets.tolist()
            assert (batch.inputs[row, n:] == special.pad).all()
            assert (batch.targets[row, n:] == IGNORE_INDEX).all()
            if e.source is not None:
                assert batch.source[row, : len(e.source)].tolist() == e.source.tolist()


# ---- packing


def test_first_fit_uses_first_row_with_room():
    assert first_fit(np.array([5, 4, 3, 6, 2]), 8) == [[0, 2], [1, 4], [3]]
    assert first_fit(np.array([8, 8]), 8) == [[0], [1]]
    assert first_fit(np.array([], np.int64), 8) == []


def test_first_fit_considers_only_recent_rows(monkeypatch):
    monkeypatch.setattr(collate, "MAX_OPEN_ROWS", 1)
    assert first_fit(np.array([5, 6, 3]), 8) == [[0], [1], [2]]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_first_fit_never_overfills_or_skips_a_row_with_room(sizes):
    rows = first_fit(np.array(sizes), 20)
    assert sorted(i for row in rows for i in row) == list(range(len(sizes)))
    for r, row in enumerate(rows):
        assert sum(sizes[i] for i in row) <= 20
        assert row == sorted(row)
        for i in row:
            for earlier in rows[:r]:
                assert sum(sizes[j] for j in earlier if j < i) + sizes[i] > 20


def test_packed_texts_are_isolated_and_start_at_position_zero():
    batch = pack_examples([plain(3), plain(2, 20), plain(6, 30)], BERT, 8)
    assert batch.inputs.tolist() == [[10, 11, 12, 20, 21, 0, 0, 0], [30, 31, 32, 33, 34, 35, 0, 0]]
    assert batch.visibility.document.tolist() == [[0, 0, 0, 1, 1, -1, -1, -1], [0] * 6 + [-1, -1]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 0, 0, 0], [0, 1, 2, 3, 4, 5, 0, 0]]
    assert batch.last_token_positions.tolist() == [4, 5]
    seen = visible(batch, 0)
    assert seen[:3, :3].all()
    assert seen[3:5, 3:5].all()
    assert not seen[:3, 3:].any()
    assert not seen[3:5, :3].any()


def test_packed_causal_texts_are_causal_within_each():
    some = [
        published.CAUSAL_LM(text(range(10, n)), GPT, np.random.default_rng(0)) for n in (13, 14)
    ]
    batch = pack_examples(some, GPT, 8)
    assert batch.visibility.causal
    assert batch.visibility.rank is None
    seen = visible(batch, 0)
    assert (seen[:3, :3] == np.tril(np.ones((3, 3), bool))).all()
    assert not seen[3:7, :3].any()


def test_full_rows_need_no_padding_and_single_texts_no_mask():
    batch = pack_examples([plain(4), plain(4)], BERT, 4)
    assert batch.visibility.document is None
    assert batch.position_ids is None
    assert batch.last_token_positions is None


def test_packed_sources_share_document_ids_with_targets():
    rng = np.random.default_rng(0)
    some = [published.T5(text(range(10, 10 + n)), T5, rng) for n in (9, 7, 12)]
    batch = pack_examples(some, T5, 20)
    assert batch.source.shape == (2, 20)
    assert batch.inputs.shape[0] == 2
    for row, members in ((0, some[:2]), (1, some[2:])):
        for number, e in enumerate(members):
            source = batch.source[row][batch.source_visibility.document[row] == number]
            inputs = batch.inputs[row][batch.visibility.document[row] == number]
            assert source.tolist() == e.source.tolist()
            assert inputs.tolist() == e.inputs.tolist()
    assert batch.visibility.causal


def test_unpackable_examples_are_refused():
    with pytest.raises(ValueError, match="example 1 has 9 tokens, which do not fit a row of 8"):
        pack_examples([plain(3), plain(9)], BERT, 8)
    with pytest.raises(ValueError, match="labels cannot be packed"):
        pack_examples([plain(3, label=1), plain(3, label=0)], BERT, 8)


@settings(max_examples=50)
@given(st.lists(texts(least=1, most=30), min_size=1, max_size=8), SEEDS)
def test_text_parts_are_isolated_and_count_positions_separately(some, seed):
    rng = np.random.default_rng(seed)
    objective = SplitTextObjective(published.MASKED_LM)
    examples = [objective(t, BERT, rng) for t in some]
    for batch in (pad_examples(examples, BERT), pack_examples(examples, BERT, 40)):
        assert batch.part_ids is not None
        assert batch.visibility.document is not None
        assert batch.part_ids.equal(batch.visibility.document)
        found = []
        for row, parts, positions in zip(
            batch.inputs, batch.part_ids, batch.position_ids, strict=True
        ):
            for number in sorted({*parts.tolist()} - {-1}):
                if number and number - 1 in parts:
                    continue  # a second part
                found.append([row[parts == number + k].tolist() for k in (0, 1)])
                for k in (0, 1):
                    mine = positions[parts == number + k].tolist()
                    assert mine == list(range(len(mine)))
            assert (row[parts < 0] == BERT.pad).all()
        expected = [[e.inputs[e.part_ids == k].tolist() for k in (0, 1)] for e in examples]
        assert sorted(found) == sorted(expected)


@settings(max_examples=50)
@given(st.lists(texts(least=1, most=30), min_size=1, max_size=8), SEEDS)
def test_padding_and_packing_hold_the_same_examples(some, seed):
    for objective, special in (
        (published.MASKED_LM, BERT),
        (published.T5, T5),
        (published.CAUSAL_LM, GPT),
    ):
        rng = np.random.default_rng(seed)
        examples = [objective(t, special, rng) for t in some]
        batch = pack_examples(examples, special, 40)
        found = []
        for row in range(len(batch.inputs)):
            document = batch.visibility.document
            if document is None:
                end = (
                    batch.inputs.shape[1]
                    if batch.last_token_positions is None
                    else int(batch.last_token_positions[row]) + 1
                )
                found.append(batch.inputs[row, :end].tolist())
                continue
            numbers = range(int(document[row].max()) + 1)
            found += [batch.inputs[row][document[row] == n].tolist() for n in numbers]
        assert sorted(found) == sorted(e.inputs.tolist() for e in examples)


# ---- tokens with global attention


def test_global_tokens_are_given_by_column():
    some = [
        plain(3, features=(GlobalTokens(np.array([0, 2])),)),
        plain(5),
        plain(4, features=(GlobalTokens(np.array([1])),)),
    ]
    assert pad_examples(some, BERT).feature(GlobalTokens).positions.tolist() == [
        [0, 2],
        [-1, -1],
        [1, -1],
    ]
    assert pack_examples(some, BERT, 8).feature(GlobalTokens).positions.tolist() == [
        [0, 2],
        [1, -1],
    ]
    assert not pad_examples([plain(3), plain(5)], BERT).has(GlobalTokens)
    none = plain(3, features=(GlobalTokens(np.array([], np.int64)),))
    assert not pad_examples([none], BERT).has(GlobalTokens)
