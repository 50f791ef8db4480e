"""Task-adaptive pretraining: further pretraining on the text of the task, before fine-tuning."""

from dataclasses import dataclass

from unmask.config import check_number_fields

MAX_EPOCHS = 1e6
"""Of any run: so many passes over two rows take days."""
ADAPTATION_FOLDER = "in-domain"
"""Of that run, within the folder of the run of fine-tuning."""


@dataclass(frozen=True, kw_only=True)
class TaskAdaptivePretraining:
    """A model is asked what pretraining asked of it, on the text of the task without its labels.

    The second of ULMFiT's three stages (Howard and Ruder 2018, arXiv:1801.06146, section 3.2): each
    layer learns more slowly than the one above, under a slanted triangle. Of encoders it is known
    as task-adaptive pretraining, and with `unlabeled` text of the same kind as domain-adaptive
    pretraining (Gururangan et al. 2020, arXiv:2004.10964).
    """

    unlabeled: tuple[str, ...] = ()
    """More text than that of the training rows: as for `unmask pretrain --data`. Records have their
    text in the column in which the rows have it."""
    epochs: float = 10.0
    """Passes over all of it. (Not measured; the papers have other numbers for each task.)"""
    min_count: int | None = 2
    """So often a word is there that a model whose tokens are words learns it, too; its vector
    begins as the mean of all (the released scripts; their notebook: 3). None: the model's words
    stay."""
    max_vocab_size: int = 60_000
    """Words that it may have in the end (the released notebook; the scripts: 30,000); the most
    frequent are added."""
    changes: tuple[str, ...] = ()
    """`key=value` of the recipe, as for `unmask pretrain --set`: "learning_rate=1e-3"."""

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
