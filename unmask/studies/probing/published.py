"""WHAT_LAYERS_KNOW: one network under each pretraining objective, probed in every layer."""

from unmask.studies.probing.study import ProbedFile, ProbingStudy
from unmask.studies.study import StudyCell

_SIZES = {"d_model": 128, "n_layers": 4, "n_heads": 2, "d_ff": 512}
_LSTM_SIZES = {"d_model": 128, "n_layers": 2, "d_ff": 128}


def _cell(name: str, model: str, *stacks: str, sizes: dict[str, int] = _SIZES) -> StudyCell:
    """Return a cell whose stacks, or whose only one, have the sizes of all."""
    prefixes = stacks or ("",)
    return StudyCell(
        name=name,
        model=model,
        changes=tuple(
            f"architecture.{stack}{key}={value}"
            for stack in prefixes
            for key, value in sizes.items()
        ),
    )


_TREES = "ud_english_ewt/en_ewt-ud-dev.conllu"
_ENTITIES = "conll2003/testa.txt"

WHAT_LAYERS_KNOW = ProbingStudy(
    name="what-layers-know",
    question="Which knowledge does each pretraining objective teach, and in which layers?",
    paper="Tenney et al. 2019, arXiv:1905.06316, and Liu et al. 2019, arXiv:1903.08855, table 5",
    cells=(
        _cell("masked", "roberta-mini"),
        _cell("causal", "gpt2-mini"),
        _cell("replaced", "electra-mini"),
        _cell("permuted", "xlnet-mini"),
        _cell("spans", "t5-mini", "encoder.", "decoder."),
        _cell("denoising", "bart-mini", "encoder.", "decoder."),
        _cell("lstm", "lstm-mini", sizes=_LSTM_SIZES),
    ),
    changes=("sequence_length=128", "batch_tokens=1024"),
    tokens=4_000_000,
    tasks=(
        ProbedFile(name="parts-of-speech", file=_TREES, task="tags"),
        ProbedFile(name="relations", file=_TREES, task="relations"),
        ProbedFile(name="chunks", file=_ENTITIES, task="spans", label_column=3),
        ProbedFile(name="entities", file=_ENTITIES, task="spans"),
    ),
)
"""Four layers with hidden size 128; of encoder-decoders, the encoder is probed. The LSTM has two
layers, and reads from left to right, as `causal`."""
