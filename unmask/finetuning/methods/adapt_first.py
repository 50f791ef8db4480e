"""Task-adaptive pretraining: further pretraining on the text of the task, before fine-tuning."""

from dataclasses import dataclass

from unmask.config import check_number_fields

MAX_EPOCHS = 1e6
"""Maximum number of epochs; even on two rows, more take days."""
ADAPTATION_FOLDER = "in-domain"
"""Name of the pretraining run's folder, within that of the fine-tuning run."""


@dataclass(frozen=True, kw_only=True)
class TaskAdaptivePretraining:
    """Continued pretraining on the text of the task, without labels, before fine-tuning.

    The second of ULMFiT's three stages (Howard and Ruder 2018, arXiv:1801.06146, section 3.2):
    discriminative learning rates, lower for lower layers, and a slanted triangular schedule. For
    encoders it is known as task-adaptive pretraining and, with `unlabeled` text of the same kind,
    as domain-adaptive pretraining (Gururangan et al. 2020, arXiv:2004.10964).
    """

    unlabeled: tuple[str, ...] = ()
    """Additional text, as for `unmask pretrain --data`. Records have it in the same column as the
    training rows."""
    epochs: float = 10.0
    """Number of passes over the text. (Not measured; the papers use a different number for each
    task.)"""
    min_count: int | None = 2
    """Minimum count of new words that are added to a word-level vocabulary; their embeddings are
    initialized to the mean of all (the released scripts; their notebook: 3). None: no new words."""
    max_vocab_size: int = 60_000
    """Maximum size of the extended vocabulary (the released notebook; the scripts: 30,000); the
    most frequent words are added."""
    changes: tuple[str, ...] = ()
    """Settings `key=value` of the recipe, as for `unmask pretrain --set`: "learning_rate=1e-3"."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        check_number_fields(self)
        if not 0 < self.epochs <= MAX_EPOCHS:
            raise ValueError(
                f"adapt_first.epochs must be above 0 and at most {MAX_EPOCHS:,.0f}, got "
                f"{self.epochs}"
            )
        for name, value in (("min_count", self.min_count), ("max_vocab_size", self.max_vocab_size)):
            if value is not None and value < 1:
                raise ValueError(f"adapt_first.{name} must be at least 1, got {value}")
