"""The published objectives, and all kinds that a recipe can hold."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from unmask.objectives.corrupt import (
    AutoregressiveMasking,
    CausalLM,
    DiffusionMasking,
    MaskedNextToken,
    MaskedSeq2Seq,
    MaskInPlace,
    PermutationLM,
)
from unmask.objectives.denoising.denoise import DenoisingObjective, ModeSwitching
from unmask.objectives.denoising.noise import (
    SentencePermutation,
    TextInfilling,
    TokenMaskingNoise,
    TokenPermutation,
)
from unmask.objectives.denoising.replace_spans import DropTokens, ReplaceSpans
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.inputs.characters import BidirectionalWordLM, SubwordMasking
from unmask.objectives.inputs.pictures import PictureContrast, PictureLabels
from unmask.objectives.mixtures import MixtureComponent, ObjectiveMixture, StaticMasking
from unmask.objectives.objective import AnyObjective, Objective
from unmask.objectives.select import (
    AllTokens,
    ContextSpanMasking,
    FragmentMasking,
    NGramMasking,
    RandomSpanMasking,
    ScheduledRate,
    SpanMasking,
    SuffixMasking,
    TokenMasking,
    TokenSpanMasking,
    WholeWordMasking,
)
from unmask.objectives.sentence_pairs.pairs import (
    AdjacentSentences,
    CropContrastiveObjective,
    SentencePairObjective,
    SplitTextObjective,
)
from unmask.objectives.sentence_pairs.tasks import NextSentencePrediction, SentenceOrderPrediction
from unmask.objectives.sentence_pairs.translation import TranslationLM
from unmask.objectives.sentence_pairs.two_segments import TwoSegments
from unmask.objectives.unified_lm.visibility import Seq2SeqLM, UnidirectionalLM
from unmask.tokenizers.spec import SpecialTokenIds

ObjectiveT = TypeVar("ObjectiveT")

ObjectiveSpec = (
    Objective
    | SentencePairObjective
    | SplitTextObjective
    | AdjacentSentences
    | CropContrastiveObjective
    | TranslationLM
    | TwoSegments
    | UnidirectionalLM
    | Seq2SeqLM
    | DenoisingObjective
    | ModeSwitching
    | ObjectiveMixture
    | StaticMasking
    | SubwordMasking
    | BidirectionalWordLM
    | SingleStackSeq2Seq
    | PictureLabels
    | PictureContrast
)
"""The kinds of objective that a recipe can hold."""

MASKED_LM = Objective(
    TokenMasking(rate=0.15), MaskInPlace(mask_probability=0.8, random_token_probability=0.1)
)
"""Masked tokens alone: Devlin et al. 2019, section 3.1, task 1; Liu et al. 2019, section 4.2."""

TRANSLATION_LM = TranslationLM(MASKED_LM)
"""Conneau and Lample 2019, arXiv:1901.07291, sections 3.3 to 3.5: MLM on texts of one language,
and TLM on translation pairs.

Deviates: the paper hides frequent tokens less often (section 3.3); here all are equally likely.
"""

BERT = SentencePairObjective(MASKED_LM, NextSentencePrediction())
"""Devlin et al. 2019, section 3.1, both tasks."""

BERT_WHOLE_WORD = SentencePairObjective(
    Objective(
        WholeWordMasking(rate=0.15), MaskInPlace(mask_probability=0.8, random_token_probability=0.1)
    ),
    NextSentencePrediction(),
)
"""BERT with whole words hidden: README of the released code, 31 May 2019."""

ALBERT = SentencePairObjective(
    Objective(
        NGramMasking(rate=0.15), MaskInPlace(mask_probability=0.8, random_token_probability=0.1)
    ),
    SentenceOrderPrediction(),
)
"""Lan et al. 2020, section 3.1 and 4.1: n-gram masking and sentence-order prediction."""

SPANBERT = Objective(
    SpanMasking(rate=0.15),
    MaskInPlace(mask_probability=0.8, random_token_probability=0.1, whole_spans=True),
)
"""Joshi et al. 2020, sections 3.1 and 3.3: spans, and no second text."""

XLNET = TwoSegments(Objective(ContextSpanMasking(), PermutationLM()))
"""Yang et al. 2019, sections 2.3, 2.5 and 3.1: spans, 1 of 6 tokens, are predicted in a random
order.

Half of a row becomes memory (released code, `reuse_len`); half of the second segments are random.
"""

ELECTRA = Objective(
    TokenMasking(rate=0.15), MaskInPlace(mask_probability=0.85, random_token_probability=0.0)
)
"""Clark et al. 2020, section 2; of the hidden tokens 15 % are left as they are (released code,
`mask`)."""

COCO_LM = CropContrastiveObjective(
    Objective(
        TokenMasking(rate=0.15), MaskInPlace(mask_probability=1.0, random_token_probability=0.0)
    ),
    crop_fraction=0.9,
)
"""Meng et al. 2021, sections 3.1 and 3.3."""

DEBERTA = Objective(
    NGramMasking(rate=0.15, max_ngram=3),
    MaskInPlace(mask_probability=0.8, random_token_probability=0.1),
)
"""He et al. 2021, arXiv:2006.03654, appendix A.3: spans of up to three words.

The paper does not give the distribution of lengths; in the released code, `NGramMaskGenerator`, it
is ALBERT's.
Deviates: there, one run of n words is somewhere in each window of 6 n words, from the front of the
text to its end or until 15 % of the tokens are hidden. Here runs are anywhere.
"""

DEBERTA_V3 = Objective(
    WholeWordMasking(rate=0.15), MaskInPlace(mask_probability=1.0, random_token_probability=0.0)
)
"""He et al. 2021, arXiv:2111.09543, section 3.1; whole words, all of them masked: released code."""

MODERNBERT = Objective(
    TokenMasking(rate=0.3), MaskInPlace(mask_probability=0.8, random_token_probability=0.1)
)
"""Warner et al. 2024, section 2.2.1: 30 % of the tokens, no second task."""

CANINE_C = Objective(WholeWordMasking(rate=0.15), AutoregressiveMasking(mask_probability=0.9))
"""Clark et al. 2022, section 3.2.1: words, bounded by white space, character by character.

Deviates: 15 % of the characters are in hidden words, there 15 % of the words are hidden; and the
space before a word is part of it.
"""

CANINE_S = SubwordMasking(MASKED_LM)
"""Clark et al. 2022, section 3.2.2; how many subwords, as BERT's tokens: section 4.1.3.

Deviates: the paper has at most 80 targets in a text.
"""

MASKED_DIFFUSION = Objective(AllTokens(), DiffusionMasking())
"""Sahoo et al. 2024, arXiv:2406.07524; Nie et al. 2025, arXiv:2502.09992, section 2.2."""

_UNILM_MASKING = Objective(
    TokenSpanMasking(rate=0.15, length_weights=(0.8, 0.1, 0.1)),
    MaskInPlace(mask_probability=0.8, random_token_probability=0.1),
)

UNILM = ObjectiveMixture(
    (
        (2.0, SentencePairObjective(_UNILM_MASKING, NextSentencePrediction())),
        (2.0, Seq2SeqLM(_UNILM_MASKING, segment_ids=(4, 5))),
        (1.0, UnidirectionalLM(_UNILM_MASKING, "forward", segment_id=2)),
        (1.0, UnidirectionalLM(_UNILM_MASKING, "backward", segment_id=3)),
    ),
    component_names=("both_ways", "source_target", "forward", "backward"),
)
"""Dong et al. 2019, arXiv:1905.03197, section 2.3, and the shares and rates of 2.4.

The segment ids of the objectives are those of the released code, `BertForPreTrainingLossMask`.
Deviates: a bigram is as likely as a trigram, which the paper does not say; so it is in the released
code for fine-tuning. Objectives are sampled for each text, in the paper for each batch.
"""

CAUSAL_LM = Objective(AllTokens(), CausalLM())
"""Radford et al. 2018, section 3.1, equation 1; Radford et al. 2019, section 2."""

GPT_BERT = ObjectiveMixture(
    (
        (
            15.0,
            Objective(
                ScheduledRate(0.3, TokenSpanMasking(0.15, (1.0, 1.0, 1.0))),
                MaskedNextToken(0.8, 0.1, whole_spans=True),
            ),
        ),
        (1.0, CAUSAL_LM),
    ),
    component_names=("masked", "forward"),
)
"""Charpentier and Samuel 2024, arXiv:2410.24159, section 2: masked next tokens, and one text of
sixteen read forward; how tokens are hidden, and how many: released code, `SpanMaskingStrategy`.

Deviates: tokens that were hidden less often are not preferred. Each token asked counts alike;
there, each text does, so that those read forward have a smaller share of the loss.
"""

PREFIX_LM = Objective(SuffixMasking(), CausalLM())
"""Raffel et al. 2020, section 3.2.1: a language model whose prefix is read in both directions."""

T5 = Objective(RandomSpanMasking(rate=0.15, mean_span_length=3.0), ReplaceSpans())
"""Raffel et al. 2020, sections 3.1.4 and 3.3.4; spans of 3 tokens: section 3.7."""

BART = DenoisingObjective((SentencePermutation(), TextInfilling(rate=0.3, mean_span_length=3.0)))
"""Lewis et al. 2020, arXiv:1910.13461, section 5.1: 30 % of the tokens, and all sentences.

Sentences come first (released code, `DenoisingDataset`), so that a span may go across two that were
apart.
"""

T5_OBJECTIVES: Mapping[str, ObjectiveSpec] = {
    "prefix_language_model": Objective(SuffixMasking(), DropTokens()),
    "bert_style": DenoisingObjective(
        (TokenMaskingNoise(TokenMasking(0.15), random_token_probability=0.1),)
    ),
    "deshuffling": DenoisingObjective((TokenPermutation(),)),
    "mass_style": DenoisingObjective((TokenMaskingNoise(TokenMasking(0.15)),)),
    "replaced_spans": Objective(TokenMasking(0.15), ReplaceSpans()),
    "dropped_tokens": Objective(TokenMasking(0.15), DropTokens()),
    "random_spans": T5,
}
"""The seven objectives of Raffel et al. 2020, table 3, in its order.

In the released code: `prefix_lm`, `iid_15_r10s90_f`, `all_permute`, `iid_15_m_f`, `iid_15_u_u`,
`iid_15_d_d`, `span_3_15_u_u`. The mask is there, as here, the first sentinel.
Deviates: of n tokens round(rate n) are hidden, at least one; there each is hidden by a chance of
its own (`iid_noise_mask`). Random tokens are not special; there, they may be sentinels.
"""

T5_BY_RATE: Mapping[float, ObjectiveSpec] = {
    rate: Objective(TokenMasking(rate), ReplaceSpans()) for rate in (0.1, 0.15, 0.25, 0.5)
}
"""Corruption rates of Raffel et al. 2020, section 3.3.3 and table 6."""

T5_BY_SPAN_LENGTH: Mapping[float, ObjectiveSpec] = {
    mean: Objective(RandomSpanMasking(0.15, mean), ReplaceSpans()) for mean in (2.0, 3.0, 5.0, 10.0)
}
"""Mean lengths of spans of Raffel et al. 2020, section 3.3.4 and table 7; 15 % are hidden."""

MASS = Objective(
    FragmentMasking(0.5), MaskedSeq2Seq(mask_probability=0.8, random_token_probability=0.1)
)
"""Song et al. 2019, arXiv:1905.02450, section 4.1: half of a text, in one fragment.

Deviates: all places of the fragment are equally likely, as section 3.2 has it; in the released code
it begins or ends the sentence more often (`mask_start`), and that for summaries hides a fragment of
each 64 tokens of a row, 15 % of them (`mask_s2s_prob`, of `MaskedLanguagePairDataset`).
"""

SKIP_THOUGHTS = AdjacentSentences()
"""Kiros et al. 2015, section 2.1: the sentence before and the one after, word by word."""

QUICK_THOUGHTS = AdjacentSentences(reconstruct=False)
"""Logeswaran and Lee 2018, section 3: which sentences they are."""

UL2 = ObjectiveMixture(
    (
        (1.0, ModeSwitching(Objective(RandomSpanMasking(0.15, 3.0), ReplaceSpans()), "R")),
        (1.0, ModeSwitching(Objective(RandomSpanMasking(0.15, 8.0), ReplaceSpans()), "R")),
        (1.0, ModeSwitching(Objective(SuffixMasking(rate=0.25), DropTokens()), "S")),
        (1.0, ModeSwitching(Objective(RandomSpanMasking(0.5, 3.0), ReplaceSpans()), "X")),
        (1.0, ModeSwitching(Objective(RandomSpanMasking(0.5, 8.0), ReplaceSpans()), "X")),
        (1.0, ModeSwitching(Objective(RandomSpanMasking(0.15, 64.0), ReplaceSpans()), "X")),
        (1.0, ModeSwitching(Objective(RandomSpanMasking(0.5, 64.0), ReplaceSpans()), "X")),
    ),
    component_names=("R_3", "R_8", "S", "X_half_3", "X_half_8", "X_64", "X_half_64"),
)
"""Tay et al. 2022, arXiv:2205.05131, table 1: seven denoisers, equally often.

Their names: the denoiser, whether half of the text is hidden (of R and X else 15 %), and the mean
length of a span.

Deviates: the tail is a quarter of every text, as table 1 has it; in the code of the appendix it
begins anywhere (`prefix_lm`). And rows are as long for all of them; there, each fills what the
encoder reads. The parts are sampled for each text.
"""


def components_of(objective: AnyObjective) -> Mapping[str, MixtureComponent]:
    """Return the parts of a mixture that has names for them, also of one that is hidden static."""
    if isinstance(objective, StaticMasking):
        return components_of(objective.objective)
    return objective.components_by_name if isinstance(objective, ObjectiveMixture) else {}


def objective_at_progress(objective: ObjectiveT, progress: float) -> ObjectiveT:
    """Return an objective as it is for a step before which `progress` of all steps were taken.

    The same object where nothing of it changes in training; else what it is made of is replaced.
    """
    if isinstance(objective, ScheduledRate):
        return cast("ObjectiveT", objective.at_progress(progress))
    if isinstance(objective, tuple):
        parts = tuple(objective_at_progress(part, progress) for part in objective)
        same = all(new is old for new, old in zip(parts, objective, strict=True))
        return objective if same else cast("ObjectiveT", parts)
    if not is_dataclass(objective):
        return objective
    old = {f.name: getattr(objective, f.name) for f in fields(objective)}
    new = {name: objective_at_progress(part, progress) for name, part in old.items()}
    changed: dict[str, Any] = {name: part for name, part in new.items() if part is not old[name]}
    return cast("ObjectiveT", replace(cast("Any", objective), **changed)) if changed else objective


def changes_during_training(objective: AnyObjective) -> bool:
    """Return whether an objective changes during training."""
    return objective_at_progress(objective, 0.0) is not objective


def stream_step(objective: AnyObjective, row_length: int, special_ids: SpecialTokenIds) -> int:
    """Count the tokens after which a stream's next row of `row_length` begins: all, or fewer."""
    step = objective.reuse_len(row_length, special_ids) if isinstance(objective, TwoSegments) else 0
    return step or row_length
