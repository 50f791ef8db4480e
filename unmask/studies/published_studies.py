"""STUDIES: small-scale versions of published comparisons."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from unmask.config import unknown_key_message
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.noise import (
    DocumentRotation,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMaskingNoise,
)
from unmask.objectives.denoising.replace_spans import DropTokens
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.objective import Objective
from unmask.objectives.published import (
    T5,
    T5_BY_RATE,
    T5_BY_SPAN_LENGTH,
    T5_OBJECTIVES,
    ObjectiveSpec,
)
from unmask.objectives.select import AllTokens, TokenMasking
from unmask.studies.compression.published import SMALLER
from unmask.studies.lottery.published import LOTTERY_STUDIES
from unmask.studies.probing.published import WHAT_LAYERS_KNOW
from unmask.studies.read_study import AnyStudy, read_study
from unmask.studies.study import Study, StudyCell
from unmask.studies.transfer.published import TRANSFER

BATCH_ROWS = 16
"""Batch size in tokens: on one or two cores many small steps train better than few."""
N_LAYERS = 2


def _tiny_stacks(*stacks: str, n_layers: int = N_LAYERS) -> tuple[str, ...]:
    """Return changes that make every stack 128 wide."""
    sizes = {"d_model": 128, "n_layers": n_layers, "n_heads": 2, "d_ff": 512}
    return tuple(
        f"architecture.{stack}{key}={value}" for stack in stacks for key, value in sizes.items()
    )


def _row_changes(length: int) -> tuple[str, ...]:
    return (f"sequence_length={length}", f"batch_tokens={BATCH_ROWS * length}")


STACK_PREFIXES = ("encoder.", "decoder.")
TEXT_TOKENS = 128
"""Tokens of a row; with two stacks, of the longer side."""
TINY_ENCODER_DECODER = (*_tiny_stacks(*STACK_PREFIXES), *_row_changes(TEXT_TOKENS))


def _without_pretraining(model: str) -> StudyCell:
    """Return the baseline: fine-tuned without pretraining."""
    return StudyCell(name="no-pretraining", model=model, token_factor=0.0)


BART_NOISE_STUDY = Study(
    name="bart-noises",
    question="Which corruption of the input pretrains a denoising autoencoder best?",
    paper="Lewis et al. 2020, arXiv:1910.13461, table 1",
    cells=(
        _without_pretraining("bart-mini"),
        *(
            StudyCell(name=name, model="bart-mini", objective=DenoisingObjective(noises))
            for name, noises in {
                "masking": (TokenMaskingNoise(TokenMasking(0.15)),),
                "deletion": (TokenDeletion(TokenMasking(0.15)),),
                "infilling": (TextInfilling(rate=0.3, mean_span_length=3.0),),
                "rotation": (DocumentRotation(),),
                "shuffling": (SentencePermutation(),),
                "infilling+shuffling": (
                    SentencePermutation(),
                    TextInfilling(rate=0.3, mean_span_length=3.0),
                ),
            }.items()
        ),
    ),
    changes=TINY_ENCODER_DECODER,
    tasks="text-to-text",
    tokens=8_000_000,
)


def _objective_study(
    name: str, table: int, question: str, name_of_each: Mapping[str, ObjectiveSpec]
) -> Study:
    return Study(
        name=name,
        question=question,
        paper=f"Raffel et al. 2020, arXiv:1910.10683, table {table}",
        cells=(
            _without_pretraining("t5-mini"),
            *(StudyCell(name=n, model="t5-mini", objective=o) for n, o in name_of_each.items()),
        ),
        changes=TINY_ENCODER_DECODER,
        tasks="text-to-text",
        tokens=8_000_000,
    )


T5_OBJECTIVE_STUDIES = (
    _objective_study(
        "t5-objectives", 3, "Which pretraining objective is best for an encoder-decoder?",
        T5_OBJECTIVES,
    ),
    _objective_study(
        "t5-rates", 6, "Which corruption rate is best for span corruption?",
        {f"rate-{rate:g}": objective for rate, objective in T5_BY_RATE.items()},
    ),
    _objective_study(
        "t5-spans", 7, "Which mean span length is best for span corruption?",
        {f"span-{mean:g}": objective for mean, objective in T5_BY_SPAN_LENGTH.items()},
    ),
)  # fmt: skip


_PREDICT_ALL = Objective(AllTokens(), DropTokens())
_PREDICT_REST = cast("Objective", T5_OBJECTIVES["prefix_language_model"])


def _both_objectives(architecture: str) -> tuple[StudyCell, StudyCell]:
    """Return an architecture of T5's table 2 under both of its objectives.

    In units of L layers: two stacks of L, the same with shared layers, two of L / 2, and language
    models of L layers, which cost as much as two stacks (section 3.2.2).
    """
    one = {"lm": False, "prefix-lm": True}.get(architecture)
    name = "enc-dec" if architecture == "" else architecture
    model = f"t5-{architecture}-mini".replace("--", "-")
    if one is None:
        sizes = _tiny_stacks(
            *STACK_PREFIXES, n_layers=N_LAYERS // 2 if architecture == "half" else N_LAYERS
        )
        rows = dict.fromkeys(("denoising", "language"), TEXT_TOKENS)
        objectives: tuple[Objective, Objective] = T5, _PREDICT_REST
    else:
        # As much text as two stacks in 128: 141 tokens with span corruption, else 127 and two ends.
        sizes, rows = _tiny_stacks(""), {"denoising": 157, "language": 129}
        objectives = T5, _PREDICT_REST if one else _PREDICT_ALL
    denoising, language = (
        StudyCell(
            name=f"{name}+{what}",
            model=model,
            objective=objective
            if one is None
            else SingleStackSeq2Seq(objective, bidirectional_source=one),
            changes=(*sizes, *_row_changes(length)),
            token_factor=length / TEXT_TOKENS,
        )
        for (what, length), objective in zip(rows.items(), objectives, strict=True)
    )
    return denoising, language


T5_ARCHITECTURE_STUDY = Study(
    name="t5-architectures",
    question="Is one stack or two better at equal parameters or equal computation?",
    paper="Raffel et al. 2020, arXiv:1910.10683, table 2",
    cells=tuple(
        cell
        for kind in ("", "shared", "half", "lm", "prefix-lm")
        for cell in _both_objectives(kind)
    ),
    tasks="as-text",
    tokens=8_000_000,
)
"""A standard language model predicts the whole text; others the rest after a prefix (section
3.2.3)."""


SUMMARIZATION_STUDY = Study(
    name="summaries",
    question="How much does pretraining improve summarization?",
    paper="Raffel et al. 2020, arXiv:1910.10683, table 1",
    cells=(
        *(
            StudyCell(name=f"{family}{name}", model=f"{family}-mini", token_factor=reads)
            for family in ("bart", "t5")
            for name, reads in (("-random", 0.0), ("", 1.0))
        ),
        StudyCell(name="t5-mass-style", model="t5-mini", objective=T5_OBJECTIVES["mass_style"]),
    ),
    changes=_row_changes(TEXT_TOKENS),
    tasks="summaries",
    tokens=8_000_000,
)
"""The mini presets with smaller batches; T5 also with an objective of its table 3 whose decoder
predicts the whole text, as BART's."""


ELMO_TAGGING_STUDY = Study(
    name="elmo-tags",
    question="How much do contextual word vectors improve tagging?",
    paper="Peters et al. 2018, arXiv:1802.05365, table 1",
    cells=(
        StudyCell(
            name="random-words", model="word2vec-skipgram-mini", token_factor=0.0,
            changes=("objective.epochs=1",),  # only for the vocabulary
        ),
        StudyCell(name="words", model="word2vec-skipgram-mini"),
        StudyCell(name="random-elmo", model="elmo-mini", token_factor=0.0, tune="scalar_mix"),
        StudyCell(name="elmo", model="elmo-mini", tune="scalar_mix"),
    ),
    tasks="tagger",
    tokens=24_000_000,
    epochs=10.0,
)  # fmt: skip
"""A BiLSTM-CRF over word vectors, which are fine-tuned, or over a scalar mix of ELMo's frozen
layers. ELMo's tokens are bytes, five or six per word."""


def _stage_study(name: str, tasks: str, text: tuple[str, ...], token_factor: float) -> Study:
    """Ablate the stages of ULMFiT, on a task with few labels.

    Each layer has 1 / 2.6 of the rate of the layer above (section 3.2), in all five groups, as in
    the released code, in fine-tuning too.
    """
    gradual, slower, full = "gradual", "layerwise_lr_decay=0.3846", "all-stages"
    tuned = {
        "not-gradual": f"{gradual}:unfreeze_fraction=0,{slower}",
        "one-rate": f"{gradual}:layerwise_lr_decay=1",
    }
    return Study(
        name=name,
        question="How much does each stage of ULMFiT improve accuracy with few labels?",
        paper="Howard and Ruder 2018, arXiv:1801.06146, figure 3 and tables 4 to 7",
        cells=(
            _without_pretraining("ulmfit-mini"),
            StudyCell(name="no-domain", model="ulmfit-mini", tune=f"{gradual}:{slower}"),
            StudyCell(
                name=full,
                model="ulmfit-mini",
                init_from="no-domain",
                text=text,
                token_factor=token_factor,
                changes=("schedule=SlantedTriangular", slower),
                tune=f"{gradual}:{slower}",
            ),
            *(
                StudyCell(name=n, model="ulmfit-mini", init_from=full, token_factor=0.0, tune=tune)
                for n, tune in (tuned | {"plain": "full"}).items()
            ),
        ),
        changes=(
            "architecture.d_model=128",
            "architecture.d_ff=256",
            *_row_changes(TEXT_TOKENS),
        ),
        tasks=tasks,
        tokens=8_000_000,
        rows=None,
        epochs=None,
    )


ULMFIT_STUDIES = (
    _stage_study("ulmfit-stages", "imdb-few", ("imdb/unsup.jsonl", "imdb/train.jsonl"), 1.0),
    _stage_study("ulmfit-stages-trec", "trec-few", ("classification/TREC/train.tsv",), 0.1),
)
"""All text of the task is used without labels, as in the paper's semi-supervised setting."""

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        BART_NOISE_STUDY,
        *T5_OBJECTIVE_STUDIES,
        T5_ARCHITECTURE_STUDY,
        SUMMARIZATION_STUDY,
        ELMO_TAGGING_STUDY,
        *ULMFIT_STUDIES,
    )
}


ALL_STUDIES: Mapping[str, AnyStudy] = {
    **STUDIES,
    SMALLER.name: SMALLER,
    **LOTTERY_STUDIES,
    WHAT_LAYERS_KNOW.name: WHAT_LAYERS_KNOW,
    TRANSFER.name: TRANSFER,
}


def find_study(name: str | Path) -> AnyStudy:
    """Return a study by name, or read a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such study, or its file is invalid.
    """
    name = str(name)
    if name in ALL_STUDIES:
        return ALL_STUDIES[name]
    if name.endswith(".toml"):
        return read_study(Path(name))
    message = unknown_key_message(name, ALL_STUDIES).replace("unknown key", "unknown study", 1)
    raise ValueError(f"{message}; or give a TOML file")
