"""Check that rows have labels for sentence-pair and sentence objectives."""

from unmask.batch import IGNORE_INDEX
from unmask.heads.model import Model
from unmask.heads.pretraining.contrastive import ContrastiveLoss
from unmask.heads.pretraining.sentence_reconstruction import SentenceLayout
from unmask.heads.vision.picture_text_contrast import PictureTextContrast
from unmask.objectives.published import components_of
from unmask.objectives.sentence_pairs.tasks import ADJACENT_SENTENCE_TERMS
from unmask.training.data.pictures import RunData

MIN_LABELED_ROWS = 12
"""Rows of which half should have each label: all equal by chance in 1 of 2,000 runs."""
LOW_LABELED_SHARE = 0.1
"""Minimum share of rows with a label; below it a note is returned."""


def check_sequence_labels(
    training_data: RunData, model: Model, *, has_initial_weights: bool
) -> str | None:
    """Check on sampled rows that labels exist and vary.

    Args:
        training_data: data with the rows.
        model: model with the heads.
        has_initial_weights: whether the heads are pretrained; then missing labels are a note, not
            an error.

    Returns:
        A note for the user, or None.

    Raises:
        ValueError: there are no labels, so that the head is not trained.
    """
    _check_adjacent_sentences(training_data)
    if (note := _contrastive_note(training_data, model)) is not None:
        if note[1] and not has_initial_weights:
            raise ValueError(note[0])
        return note[0]
    terms = [spec.objective_term for spec in model.head_specs.values() if spec.labels_texts]
    if not terms:
        return None
    batches = training_data.sample_batches()
    classes = [x for b in batches if b.labels is not None for x in b.labels.flatten().tolist()]
    labels = [x for x in classes if x != IGNORE_INDEX]
    rows = sum(len(b.inputs) for b in batches)
    unit, length = training_data.recipe.row_unit, training_data.max_length
    rows_text = f"{' and '.join(terms)}: of {rows} rows of at most {length} tokens"
    if not labels:
        message = (
            f"{rows_text} none has two parts to label (row_unit = {unit}): documents must "
            "have several sentences; a greater length or another unit may help, or an objective "
            "without sentence pairs (--objective mlm)"
        )
        if has_initial_weights:
            return message
        raise ValueError(message)
    if len(labels) >= MIN_LABELED_ROWS and len(set(labels)) == 1:
        return (
            f"{rows_text} {len(labels)} have a label, which is always {labels[0]}: nothing "
            "can be learned from it; a greater length may have other labels"
        )
    if len(labels) < LOW_LABELED_SHARE * rows and not _is_mixture(training_data):
        return f"{rows_text} only {len(labels)} have two parts to label"
    return None


def _is_mixture(training_data: RunData) -> bool:
    """Return whether rows are of several objectives."""
    return bool(components_of(training_data.objective))


def _contrastive_note(training_data: RunData, model: Model) -> tuple[str, bool] | None:
    """Return a note if contrastive pairs or negatives are missing.

    Returns:
        The note, and whether nothing can be learned; None: no problem.
    """
    kinds = (ContrastiveLoss, PictureTextContrast)
    specs = [spec for spec in model.head_specs.values() if isinstance(spec, kinds)]
    if not specs:
        return None
    batches = training_data.sample_batches()
    most = max((model.count_targets(batch).get(specs[0].term, 0) for batch in batches), default=0)
    rows = sum(len(batch.inputs) for batch in batches)
    if most == 0:
        return (
            f"{specs[0].term}: of {rows} rows of at most {training_data.max_length} tokens none "
            f"has two parts (row_unit = {training_data.recipe.row_unit}); a greater length or "
            "longer documents may help"
        ), True
    if most == 1 and rows > 1:
        return (
            f"{specs[0].term}: a batch has one pair, hence no negatives; "
            "a greater batch_tokens (or micro_batch_tokens) has more"
        ), False
    return None


def _check_adjacent_sentences(training_data: RunData) -> None:
    """Check that there are adjacent sentences, and negatives.

    Raises:
        ValueError: no sampled row has two, or no batch three.
    """
    terms = [name for name in ADJACENT_SENTENCE_TERMS if name in training_data.objective.loss_terms]
    if not terms:
        return
    batches = training_data.sample_batches()
    counts = [count for count in map(SentenceLayout.from_batch, batches) if count is not None]
    if not any(len(count.with_next) for count in counts):
        rows = sum(len(batch.inputs) for batch in batches)
        raise ValueError(
            f"{terms[0]}: of {rows} rows of at most {training_data.max_length} tokens none has "
            f"two sentences (row_unit = {training_data.recipe.row_unit}): documents must have "
            "several; a greater length or row_unit = sentences may help"
        )
    most = max(len(count.has_next) + 1 for count in counts)
    if ADJACENT_SENTENCE_TERMS[1] in terms and most < 3:
        raise ValueError(
            f"{terms[0]}: a batch has at most {most} sentences, so that each has only one to "
            "choose from; a greater batch_tokens (or micro_batch_tokens) has more"
        )
