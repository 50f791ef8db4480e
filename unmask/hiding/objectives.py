"""The published objectives, and all kinds that a recipe can hold."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from unmask.hiding.beside import Apart, BesideCrop, Pair, Sentences
from unmask.hiding.choose import (
    Contexts,
    Everything,
    Falling,
    Fragment,
    NGrams,
    Spans,
    Tail,
    TokenRuns,
    Tokenwise,
    Words,
    WordSpans,
)
from unmask.hiding.conceal import (
    Dropped,
    Future,
    InPlace,
    InSource,
    InTurn,
    Order,
    PlaceBefore,
    Sentinels,
)
from unmask.hiding.denoise import Denoise, InMode
from unmask.hiding.hide import AnyObjective, Hide
from unmask.hiding.in_part import OneWay, SourceTarget
from unmask.hiding.mixture import Mixture, Part, Static
from unmask.hiding.noise import SentencePermutation, TextInfilling, TokenMasking, TokenPermutation
from unmask.hiding.one_stack import InOneStack
from unmask.hiding.questions import NextSentence, SentenceOrder
from unmask.hiding.spelled import FromBothSides, Spelled
from unmask.hiding.two_segments import TwoSegments
from unmask.tokens.vocabulary import Special

T = TypeVar("T")

Objective = (
    Hide
    | Pair
    | Apart
    | Sentences
    | BesideCrop
    | TwoSegments
    | OneWay
    | SourceTarget
    | Denoise
    | InMode
    | Mixture
    | Static
    | Spelled
    | FromBothSides
    | InOneStack
)
"""The kinds of objective that a recipe can hold."""

MASKED = Hide(Tokenwise(rate=0.15), InPlace(mask=0.8, random=0.1))
"""Masked tokens alone: Devlin et al. 2019, section 3.1, task 1; Liu et al. 2019, section 4.2."""

BERT = Pair(MASKED, NextSentence())
"""Devlin et al. 2019, section 3.1, both tasks."""

WHOLE_WORD = Pair(Hide(Words(rate=0.15), InPlace(mask=0.8, random=0.1)), NextSentence())
"""BERT with whole words hidden: README of the released code, 31 May 2019."""

ALBERT = Pair(Hide(NGrams(rate=0.15), InPlace(mask=0.8, random=0.1)), SentenceOrder())
"""Lan et al. 2020, section 3.1 and 4.1: n-grams of words are hidden, and the order is asked."""

SPANBERT = Hide(WordSpans(rate=0.15), InPlace(mask=0.8, random=0.1, together=True))
"""Joshi et al. 2020, sections 3.1 and 3.3: spans, and no second text."""

XLNET = TwoSegments(Hide(Contexts(), Order()))
"""Yang et al. 2019, sections 2.3, 2.5 and 3.1: spans, 1 of 6 tokens, are asked in a random order.

Half of a row is kept (released code, `reuse_len`), half of the second texts are from elsewhere.
"""

ELECTRA = Hide(Tokenwise(rate=0.15), InPlace(mask=0.85, random=0.0))
"""Clark et al. 2020, section 2; of the hidden tokens 15 % are left as they are (released code,
`mask`)."""

COCO_LM = BesideCrop(Hide(Tokenwise(rate=0.15), InPlace(mask=1.0, random=0.0)), keep=0.9)
"""Meng et al. 2021, sections 3.1 and 3.3."""

DEBERTA = Hide(NGrams(rate=0.15, longest=3), InPlace(mask=0.8, random=0.1))
"""He et al. 2021, arXiv:2006.03654, appendix A.3: runs of up to three words are hidden, too.

How long they are drawn is not said; in the released code, `NGramMaskGenerator`, as ALBERT's.
Deviates: there, one run of n words stands somewhere in each window of 6 n words, from the front of
the text to its end or until 15 % of the tokens are hidden. Here runs stand anywhere.
"""

DEBERTA_V3 = Hide(Words(rate=0.15), InPlace(mask=1.0, random=0.0))
"""He et al. 2021, arXiv:2111.09543, section 3.1; whole words, all of them masked: released code."""

MODERNBERT = Hide(Tokenwise(rate=0.3), InPlace(mask=0.8, random=0.1))
"""Warner et al. 2024, section 2.2.1: 30 % of the tokens, no second task."""

CANINE_C = Hide(Words(rate=0.15), InTurn(mask=0.9))
"""Clark et al. 2022, section 3.2.1: words, bounded by white space, character by character.

Deviates: 15 % of the characters are in hidden words, there 15 % of the words are hidden; and the
space before a word is part of it.
"""

CANINE_S = Spelled(MASKED)
"""Clark et al. 2022, section 3.2.2; how many subwords, as BERT's tokens: section 4.1.3.

Deviates: at most 80 are asked of a text there.
"""

_CLOZE = Hide(TokenRuns(rate=0.15, shares=(0.8, 0.1, 0.1)), InPlace(mask=0.8, random=0.1))

UNILM = Mixture(
    (
        (2.0, Pair(_CLOZE, NextSentence())),
        (2.0, SourceTarget(_CLOZE, segments=(4, 5))),
        (1.0, OneWay(_CLOZE, "forward", segment=2)),
        (1.0, OneWay(_CLOZE, "backward", segment=3)),
    ),
    names=("both_ways", "source_target", "forward", "backward"),
)
"""Dong et al. 2019, arXiv:1905.03197, section 2.3, and the shares and rates of 2.4.

Which segment tells which part is in the released code, `BertForPreTrainingLossMask`.
Deviates: a bigram is as likely as a trigram, which the paper does not say; so it is in the released
code for fine-tuning. The parts are drawn for each text, there for each batch.
"""

GPT = Hide(Everything(), Future())
"""Radford et al. 2018, section 3.1, equation 1; Radford et al. 2019, section 2."""

GPT_BERT = Mixture(
    (
        (
            15.0,
            Hide(
                Falling(0.3, TokenRuns(0.15, (1.0, 1.0, 1.0))),
                PlaceBefore(0.8, 0.1, together=True),
            ),
        ),
        (1.0, GPT),
    ),
    names=("masked", "forward"),
)
"""Charpentier and Samuel 2024, arXiv:2410.24159, section 2: masked next tokens, and one text of
sixteen read forward; how tokens are hidden, and how many: released code, `SpanMaskingStrategy`.

Deviates: tokens that were hidden less often are not preferred. Each token asked counts alike;
there, each text does, so that those read forward have a smaller share of the loss.
"""

PREFIX = Hide(Tail(), Future())
"""Raffel et al. 2020, section 3.2.1: a language model whose prefix is read in both directions."""

T5 = Hide(Spans(rate=0.15, mean=3.0), Sentinels())
"""Raffel et al. 2020, sections 3.1.4 and 3.3.4; spans of 3 tokens: section 3.7."""

BART = Denoise((SentencePermutation(), TextInfilling(rate=0.3, mean=3.0)))
"""Lewis et al. 2020, arXiv:1910.13461, section 5.1: 30 % of the tokens, and all sentences.

Sentences come first (released code, `DenoisingDataset`), so that a span may go across two that were
apart.
"""

T5_OBJECTIVES: Mapping[str, Objective] = {
    "prefix_language_model": Hide(Tail(), Dropped()),
    "bert_style": Denoise((TokenMasking(Tokenwise(0.15), random=0.1),)),
    "deshuffling": Denoise((TokenPermutation(),)),
    "mass_style": Denoise((TokenMasking(Tokenwise(0.15)),)),
    "replaced_spans": Hide(Tokenwise(0.15), Sentinels()),
    "dropped_tokens": Hide(Tokenwise(0.15), Dropped()),
    "random_spans": T5,
}
"""The seven objectives of Raffel et al. 2020, table 3, in its order.

In the released code: `prefix_lm`, `iid_15_r10s90_f`, `all_permute`, `iid_15_m_f`, `iid_15_u_u`,
`iid_15_d_d`, `span_3_15_u_u`. The mask is there, as here, the first sentinel.
Deviates: of n tokens round(rate n) are hidden, at least one; there each is hidden by a chance of
its own (`iid_noise_mask`). Random tokens are not special; there, they may be sentinels.
"""

T5_RATES: Mapping[float, Objective] = {
    rate: Hide(Tokenwise(rate), Sentinels()) for rate in (0.1, 0.15, 0.25, 0.5)
}
"""Corruption rates of Raffel et al. 2020, section 3.3.3 and table 6."""

T5_SPANS: Mapping[float, Objective] = {
    mean: Hide(Spans(0.15, mean), Sentinels()) for mean in (2.0, 3.0, 5.0, 10.0)
}
"""Mean lengths of spans of Raffel et al. 2020, section 3.3.4 and table 7; 15 % are hidden."""

MASS = Hide(Fragment(0.5), InSource(mask=0.8, random=0.1))
"""Song et al. 2019, arXiv:1905.02450, section 4.1: half of a text, in one fragment.

Deviates: all places of the fragment are equally likely, as section 3.2 has it; in the released code
it begins or ends the sentence more often (`mask_start`), and that for summaries hides a fragment of
each 64 tokens of a row, 15 % of them (`mask_s2s_prob`, of `MaskedLanguagePairDataset`).
"""

SKIP_THOUGHTS = Sentences()
"""Kiros et al. 2015, section 2.1: the sentence before and the one after, word by word."""

QUICK_THOUGHTS = Sentences(said=False)
"""Logeswaran and Lee 2018, section 3: which sentences they are."""

UL2 = Mixture(
    (
        (1.0, InMode(Hide(Spans(0.15, 3.0), Sentinels()), "R")),
        (1.0, InMode(Hide(Spans(0.15, 8.0), Sentinels()), "R")),
        (1.0, InMode(Hide(Tail(rate=0.25), Dropped()), "S")),
        (1.0, InMode(Hide(Spans(0.5, 3.0), Sentinels()), "X")),
        (1.0, InMode(Hide(Spans(0.5, 8.0), Sentinels()), "X")),
        (1.0, InMode(Hide(Spans(0.15, 64.0), Sentinels()), "X")),
        (1.0, InMode(Hide(Spans(0.5, 64.0), Sentinels()), "X")),
    ),
    names=("R_3", "R_8", "S", "X_half_3", "X_half_8", "X_64", "X_half_64"),
)
"""Tay et al. 2022, arXiv:2205.05131, table 1: seven denoisers, equally often.

Their names: the denoiser, whether half of the text is hidden (of R and X else 15 %), and the mean
length of a span.

Deviates: the tail is a quarter of every text, as table 1 has it; in the code of the appendix it
begins anywhere (`prefix_lm`). And rows are as long for all of them; there, each fills what the
encoder reads. The parts are drawn for each text.
"""


def parts_of(objective: AnyObjective) -> Mapping[str, Part]:
    """Return the parts of a mixture that has names for them, also of one that is hidden static."""
    if isinstance(objective, Static):
        return parts_of(objective.objective)
    return objective.named if isinstance(objective, Mixture) else {}


def objective_after(objective: T, share: float) -> T:
    """Return an objective as it is for a step before which `share` of all steps were taken.

    The same object where nothing of it changes in training; else what it is made of is replaced.
    """
    if isinstance(objective, Falling):
        return cast("T", objective.after(share))
    if isinstance(objective, tuple):
        parts = tuple(objective_after(part, share) for part in objective)
        same = all(new is old for new, old in zip(parts, objective, strict=True))
        return objective if same else cast("T", parts)
    if not is_dataclass(objective):
        return objective
    old = {f.name: getattr(objective, f.name) for f in fields(objective)}
    new = {name: objective_after(part, share) for name, part in old.items()}
    changed: dict[str, Any] = {name: part for name, part in new.items() if part is not old[name]}
    return cast("T", replace(cast("Any", objective), **changed)) if changed else objective


def changes(objective: AnyObjective) -> bool:
    """Say whether an objective is not the same in the whole of a training."""
    return objective_after(objective, 0.0) is not objective


def step_of(objective: AnyObjective, length: int, special: Special) -> int:
    """Count the tokens after which the next piece of a stream of `length` begins: all, or fewer."""
    step = objective.step(length, special) if isinstance(objective, TwoSegments) else 0
    return step or length
