"""Tables of tokens and pairs equal a count by dictionaries."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.batch import IGNORE_INDEX, Tokens
from unmask.batching.collate import pack_examples, pad_examples
from unmask.evaluation import baselines
from unmask.evaluation.baselines import BigramBaseline, count_bigrams
from unmask.objectives.corrupt import MaskedNextToken
from unmask.objectives.objective import Objective
from unmask.objectives.published import CAUSAL_LM, MASKED_LM, PREFIX_LM
from unmask.objectives.select import TokenMasking
from unmask.objectives.unified_lm.visibility import UnidirectionalLM
from unmask.shards.write import write_shards
from unmask.text.documents import Document
from unmask.tokenizers.spec import SpecialTokenIds

V = 12
SPECIAL = SpecialTokenIds(
    vocab_size=V,
    pad=0,
    start=1,
    end=2,
    mask=3,
    prefix=(1,),
    suffix=(2,),
    all_ids=frozenset({0, 1, 2, 3}),
)
BACKWARD = UnidirectionalLM(MASKED_LM, "backward")
NEXT = Objective(TokenMasking(0.4), MaskedNextToken())
PLAIN = SpecialTokenIds(
    vocab_size=V, pad=0, start=1, end=2, mask=3, all_ids=frozenset({0, 1, 2, 3})
)
pieces = st.lists(arrays(np.int64, st.integers(0, 20), elements=st.integers(4, V - 1)), max_size=8)


def counted(texts: list[np.ndarray]) -> tuple[int, dict[int, int]]:
    """Count by dictionaries: the commonest token, and what follows each; of equals the lowest."""
    ones = Counter(int(i) for text in texts for i in text)
    pairs: dict[int, Counter[int]] = {}
    for text in texts:
        for a, b in zip(text.tolist(), text[1:].tolist(), strict=False):
            pairs.setdefault(a, Counter())[b] += 1

    def best(counts: Counter[int]) -> int:
        return min(counts, key=lambda i: (-counts[i], i))

    return best(ones), {a: best(counts) for a, counts in pairs.items()}


@given(texts=pieces.filter(lambda texts: any(map(len, texts))))
def test_count_tables_equal_dictionary_counts(texts: list[np.ndarray]) -> None:
    top, after = counted(texts)
    table = BigramBaseline(texts, V)
    assert table.most_frequent_token == top
    assert table.most_frequent_next.tolist() == [after.get(i, top) for i in range(V)]
    assert table.token_counts.sum() == sum(map(len, texts))
    wide = BigramBaseline(texts, 70_000)  # whose pairs need more than 32 bits
    assert wide.most_frequent_next[:V].tolist() == table.most_frequent_next.tolist()


@given(
    texts=pieces.filter(lambda texts: any(map(len, texts))),
    held=pieces.filter(lambda texts: any(map(len, texts))),
    objective=st.sampled_from([MASKED_LM, CAUSAL_LM, PREFIX_LM, BACKWARD, NEXT]),
    special=st.sampled_from([SPECIAL, PLAIN]),
    packed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_baseline_accuracy_equals_dictionary_counts(
    texts: list[np.ndarray], held: list[np.ndarray], objective, special, packed: bool, seed: int
) -> None:
    top, after = counted(texts)
    held = [text for text in held if len(text)]
    rng = np.random.default_rng(seed)
    examples = [objective(Tokens(t, np.ones_like(t)), special, rng) for t in held]
    packed = packed and (special is SPECIAL or objective not in (MASKED_LM, BACKWARD, NEXT))
    batch = pack_examples(examples, special, 64) if packed else pad_examples(examples, special)
    scored = first = second = 0
    for example in examples:
        for at in np.flatnonzero(example.targets != IGNORE_INDEX):
            if objective in (MASKED_LM, BACKWARD):
                truth = np.where(example.targets != IGNORE_INDEX, example.targets, example.inputs)
                before = int(truth[at - 1]) if at else None
            elif objective is NEXT:
                asked_for = np.append(
                    IGNORE_INDEX, example.targets[:-1]
                )  # of the token that stands here
                truth = np.where(asked_for != IGNORE_INDEX, asked_for, example.inputs)
                before = int(truth[at])
            else:
                before = int(example.inputs[at])
            scored += 1
            first += example.targets[at] == top
            second += example.targets[at] == after.get(before, top)
    found = BigramBaseline(texts, V).accuracy([batch, batch])
    assert found == {
        "unigram": pytest.approx(first / max(scored, 1)),
        "bigram": pytest.approx(second / max(scored, 1)),
    }


def test_no_text_is_an_error_and_no_targets_give_zero() -> None:
    for texts in ([], [np.zeros(0, np.int64)]):
        with pytest.raises(ValueError, match="no text to count"):
            BigramBaseline(texts, V)
    assert BigramBaseline([np.array([5])], V).accuracy([]) == {"unigram": 0, "bigram": 0}


def test_shards_are_counted_within_spans_up_to_a_limit(tmp_path: Path, monkeypatch) -> None:
    from small_models import texts, tokenizer

    known = tokenizer("bert")
    some = [Document(text, "") for text in texts(60)]
    shards = write_shards(some, known, tmp_path / "shards", shard_tokens=100)
    spans = np.delete(shards.document_spans, [3, 17, 18, 40], axis=0)

    def pieces(most: int) -> list[np.ndarray]:
        ids, left = [], most
        for start, end in spans.tolist():
            ids.append(shards.read_tokens(start, min(end, start + left)).ids)
            left = max(0, left - (end - start))
        return ids

    for most, at_once in ((10**6, 2**21), (10**6, 50), (97, 64), (1, 64)):
        monkeypatch.setattr(baselines, "MAX_COUNTED_TOKENS", most)
        monkeypatch.setattr(baselines, "TOKENS_PER_CHUNK", at_once)
        table, expected = count_bigrams(shards, spans), pieces(most)
        top, after = counted(expected)
        assert table.token_counts.sum() == min(most, sum(map(len, expected)))
        assert table.most_frequent_token == top
        assert table.most_frequent_next.tolist() == [
            after.get(i, top) for i in range(known.vocab_size)
        ]
