"""Reading times: tables, surprisals of the reference, and linear models equal to scikit-learn's."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import linregress
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures
from small_models import make, texts, tokenizer

from unmask.analysis.behavior.reading_data import WordInContext, read_reading_times
from unmask.analysis.behavior.reading_scores import (
    measure_network,
    surprisal_effect,
    surprisals,
)
from unmask.checkpoints.huggingface.read import LoadedModel

HEADER = "item,word,Subtlex_log10,length,context_length,prev_item,prev_word,prev_length,ms"
ROWS = ["the old,king,3.5,4,2,the,old,3,201.5", ",She,,3,0,,,-1,180", "She,saw,4.5,3,1,,She,3,NA"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    return {f: make(f, tmp_path_factory.mktemp(f)) for f in ("bert", "gpt2", "t5")}


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "reading.csv"
    path.write_text("\n".join([HEADER, *ROWS]))
    data = read_reading_times(path, ["ms"])
    assert data.words == (
        WordInContext("the old", "king"), WordInContext("", "She"), WordInContext("She", "saw"),
    )  # fmt: skip
    assert data.previous == (WordInContext("the", "old"), None, WordInContext("", "She"))
    assert data.frequency.tolist()[::2] == [3.5, 4.5]
    assert math.isnan(data.frequency[1])
    assert data.measures["ms"].tolist()[:2] == [201.5, 180.0]
    assert math.isnan(data.measures["ms"][2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "has a header but no rows"),
        ("item,word\na,b", "need a column 'prev_item'"),
        (f"{HEADER}\n{ROWS[0]}\n{ROWS[0].replace('3.5', 'rare')}", r":3: Subtlex_log10 must be a"),
        (f"{HEADER}\n{ROWS[0].replace('201.5', 'inf')}", r":2: ms must be a number, or empty"),
        (f"{HEADER}\n{ROWS[0].replace('king', '')}", r":2: there is no word"),
    ],
)
def test_bad_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "reading.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_reading_times(path, ["ms"])


@torch.no_grad()
@pytest.mark.parametrize("ending_masks", [0, 3])
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_surprisals_equal_the_reference(family: str, ending_masks: int, models: dict) -> None:
    reference, loaded = models[family]
    known = tokenizer(family)
    special = known.special_ids
    words = [WordInContext("the old king saw", "gatehouse"), None, WordInContext("the", "sea")]
    found = surprisals(loaded.model, known, [*words, words[0]], ending_masks)
    assert np.isnan(found.bits).tolist() == [False, True, False, False]
    assert found.bits[3] == found.bits[0]
    for i, word in enumerate(words):
        if word is None:
            continue
        before = known.encode(word.before).ids.tolist()
        ids = known.encode(f"{word.before} {word.word}").ids.tolist()[len(before) :]
        assert found.n_tokens[i] == len(ids)
        nats = 0.0
        for k, token in enumerate(ids):
            if family == "bert":
                masks = [special.mask] * (len(ids) - k + ending_masks)
                row = [*special.prefix, *before, *ids[:k], *masks, *special.suffix]
                scores = reference(input_ids=torch.tensor([row])).prediction_logits[0]
                at = len(special.prefix) + len(before) + k
            elif family == "gpt2":
                scores = reference(input_ids=torch.tensor([[*before, *ids]])).logits[0]
                at = len(before) + k - 1
            else:
                blank = special.sentinels[0]
                source = [*special.prefix, *before, blank, *special.suffix]
                scores = reference(
                    input_ids=torch.tensor([source]),
                    decoder_input_ids=torch.tensor([[special.start, blank, *ids]]),
                ).logits[0]
                at = k + 1
            nats -= float(scores[at].double().log_softmax(-1)[token])
        assert found.bits[i] == pytest.approx(nats / math.log(2), rel=1e-5)


def test_words_beyond_the_positions_have_no_surprisal(models: dict) -> None:
    long = " ".join(texts(30, most=9))
    found = surprisals(models["bert"][1].model, tokenizer("bert"), [WordInContext(long, "sea")])
    assert np.isnan(found.bits).all()


def drawn(n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    multiplied = rng.normal(5, 2, (3, n))
    added = rng.normal(0, 3, (2, n))
    bits = rng.gamma(4, 2, n) + 0.3 * multiplied[0]
    values = (
        200 + 3 * bits - 5 * multiplied[0] + multiplied[1] * multiplied[2] + rng.normal(0, 9, n)
    )
    return values, bits, multiplied, added


@pytest.mark.parametrize("n_added", [0, 2])
def test_linear_models_equal_those_of_scikit_learn(n_added: int) -> None:
    values, bits, multiplied, added = drawn()
    bits[3], values[7] = math.nan, math.nan
    found = surprisal_effect("ms", values, bits, list(multiplied), list(added[:n_added]))
    there = np.isfinite(bits) & np.isfinite(values)
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    base = np.column_stack([products.fit_transform(multiplied.T), added[:n_added].T])[there]
    whole, y = np.column_stack([base, bits[there]]), values[there]
    fitted = LinearRegression().fit(whole, y)
    assert found.n_words == 58
    assert found.r2_baseline == pytest.approx(LinearRegression().fit(base, y).score(base, y))
    assert found.r2 == pytest.approx(fitted.score(whole, y))
    assert found.slope == pytest.approx(fitted.coef_[-1])
    assert found.gain == found.r2 - found.r2_baseline > 0
    assert found.partial_r2 == pytest.approx(found.gain / (1 - found.r2_baseline))
    assert found.slope_low < found.slope < found.slope_high


def test_interval_and_p_value_equal_those_of_a_simple_regression() -> None:
    values, bits, _, _ = drawn()
    found = surprisal_effect("ms", values, bits, [], [])
    expected = linregress(bits, values)
    assert found.r2_baseline == pytest.approx(0, abs=1e-12)
    assert found.r2 == pytest.approx(expected.rvalue**2)
    assert found.p_value == pytest.approx(expected.pvalue)
    from scipy.stats import t

    half = t.ppf(0.975, len(bits) - 2) * expected.stderr
    assert found.slope_high == pytest.approx(expected.slope + half)
    assert found.slope_low == pytest.approx(expected.slope - half)


def test_too_few_words_are_refused() -> None:
    values, bits, multiplied, _ = drawn(8)
    with pytest.raises(ValueError, match="ms: 8 words have all numbers"):
        surprisal_effect("ms", values, bits, list(multiplied), [])
    values, bits, multiplied, _ = drawn()
    with pytest.raises(ValueError, match="all have the same"):
        surprisal_effect("ms", np.zeros(60), bits, list(multiplied), [])


def test_spillover_and_tokens_are_in_the_baseline_if_asked_for(tmp_path: Path) -> None:
    values, bits, multiplied, added = drawn()
    path = tmp_path / "reading.csv"
    rows = [
        f"a,b,{f},{length},{k},a,c,{p},{y}"
        for f, length, k, p, y in zip(*multiplied, added[0], values, strict=True)
    ]
    path.write_text("\n".join([HEADER, *rows]))
    data = read_reading_times(path, ["ms"])
    previous = added[1]

    def effect(*added_columns: np.ndarray) -> Any:
        return surprisal_effect("ms", values, bits, list(multiplied), list(added_columns))

    def measured(*more: Any) -> Any:
        return measure_network("trained", data, bits, previous, *more).effects[0]

    n_tokens = np.round(bits)
    assert measured(()).r2 == pytest.approx(effect().r2)
    assert measured(("ms",)).r2 == pytest.approx(effect(added[0], previous).r2)
    assert measured((), n_tokens).r2 == pytest.approx(effect(n_tokens).r2)
    found = measure_network("trained", data, bits, previous, ())
    assert found.mean_surprisal == pytest.approx(bits.mean())
    assert found.frequency_correlation == pytest.approx(np.corrcoef(bits, multiplied[0])[0, 1])
