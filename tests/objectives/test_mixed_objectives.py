from dataclasses import replace

import numpy as np
import pytest
from vocabularies import BERT, GPT, long_text

from unmask.batch import IGNORE_INDEX
from unmask.objectives import published
from unmask.objectives.corrupt import CausalLM
from unmask.objectives.mixtures import ObjectiveMixture, StaticMasking
from unmask.objectives.objective import Objective
from unmask.objectives.select import AllTokens

MIXTURE = ObjectiveMixture(
    ((1.0, published.MASKED_LM), (2.0, published.CAUSAL_LM), (1.0, published.PREFIX_LM))
)
GPT_WITH_MASK = replace(GPT, mask=4, all_ids=GPT.all_ids | {4})


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_components_are_sampled_by_weight():
    tokens = long_text(40)
    kinds = [MIXTURE(tokens, GPT_WITH_MASK, rng(seed)) for seed in range(2000)]
    masked = np.mean([e.rank is None for e in kinds])
    everything = np.mean([bool((e.targets != IGNORE_INDEX).all()) for e in kinds])
    assert abs(masked - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)
    assert abs(everything - 0.5) < 5 * np.sqrt(0.25 / 2000)


def test_component_names_are_all_given_and_unique_or_absent():
    parts = ((1.0, published.MASKED_LM), (3.0, published.PREFIX_LM))
    named = ObjectiveMixture(parts, component_names=("masked", "prefix"))
    assert dict(named.components_by_name) == {
        "masked": published.MASKED_LM,
        "prefix": published.PREFIX_LM,
    }
    assert published.components_of(StaticMasking(named)) == named.components_by_name
    assert (
        published.components_of(ObjectiveMixture(parts))
        == published.components_of(published.BERT)
        == {}
    )
    for names in (("masked",), ("masked", "masked"), ("a", "b", "c")):
        with pytest.raises(ValueError, match="one for each of the 2 components, all different"):
            ObjectiveMixture(parts, component_names=names)


def test_unilm_mixes_directions_as_published():
    tokens, seen = (
        replace(long_text(60), other_text=long_text(60, 1)),
        {"pair": 0, 2: 0, 3: 0, 4: 0},
    )
    for seed in range(1200):
        e = published.UNILM(tokens, BERT, rng(seed))
        seen["pair" if e.rank is None else int(e.segments[0])] += 1
        assert (e.label is None) == (e.rank is not None)
    for key, share in (("pair", 1 / 3), (4, 1 / 3), (2, 1 / 6), (3, 1 / 6)):
        assert abs(seen[key] - 1200 * share) < 4 * np.sqrt(1200 * share)


def test_mixture_has_the_length_of_its_longest_component():
    part = Objective(AllTokens(), CausalLM())
    mixture = ObjectiveMixture(((1.0, published.MASKED_LM), (1.0, part)))
    assert mixture.max_example_length(np.array([10, 20]), BERT).tolist() == [12, 22]
