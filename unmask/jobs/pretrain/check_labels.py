"""Do the rows have labels for tasks about two texts, or about sentences?"""

from unmask.batch import IGNORE_INDEX
from unmask.heads.model import Model
from unmask.heads.pretraining.contrastive import ContrastiveLoss
from unmask.heads.pretraining.sentence_reconstruction import SentenceLayout
from unmask.objectives.published import components_of
from unmask.objectives.sentence_pairs.tasks import ADJACENT_SENTENCE_TERMS
from unmask.training.data import TrainingData

MIN_LABELED_ROWS = 12
"""Rows of which one in two would have the other answer: all alike by chance in 1 of 2,000 runs."""
LOW_LABELED_SHARE = 0.1
"""Of rows: where fewer can be asked, that is told."""


def check_sequence_labels(
    training_data: TrainingData, model: Model, *, has_initial_weights: bool
) -> str | None:
    """Look at some rows: is each question asked, and are there several answers?

    Args:
        training_data: has the rows.
        model: has the heads.
        has_initial_weights: with weights that have learned to answer already: then it is told, and
            not refused.

    Returns:
        What a person should know; None: nothing.

    Raises:
        ValueError: a question is never asked, so that its head would learn nothing.
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
        why = (
            f"{rows_text} none has two parts to ask about (row_unit = {unit}): documents are to "
            "have several sentences; a greater length or another unit may help, or an objective "
            "without a question (--objective mlm)"
        )
        if has_initial_weights:
            return why
        raise ValueError(why)
    if len(labels) >= MIN_LABELED_ROWS and len(set(labels)) == 1:
        return (
            f"{rows_text} {len(labels)} are asked, and the answer is always {labels[0]}: nothing "
            "can be learned of it; a greater length may have other answers"
        )
    if len(labels) < LOW_LABELED_SHARE * rows and not _is_mixture(training_data):
        return f"{rows_text} only {len(labels)} have two parts to ask about"
    return None


def _is_mixture(training_data: TrainingData) -> bool:
    """Return whether a task is one of several that a row may have."""
    return bool(components_of(training_data.objective))


def _contrastive_note(training_data: TrainingData, model: Model) -> tuple[str, bool] | None:
    """Say that no text has two parts to be found among others, or none other to choose from.

    Returns:
        What to say, and whether nothing at all can be learned; None: all is well.
    """
    specs = [spec for spec in model.head_specs.values() if isinstance(spec, ContrastiveLoss)]
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
            f"{specs[0].term}: a batch holds one text, which has none to choose from but its own; "
            "a greater batch_tokens (or micro_batch_tokens) has more"
        ), False
    return None


def _check_adjacent_sentences(training_data: TrainingData) -> None:
    """Check that there are sentences beside each other, and several to choose from.

    Raises:
        ValueError: none of some rows has two, or no batch of them three.
    """
    terms = [name for name in ADJACENT_SENTENCE_TERMS if name in training_data.objective.loss_terms]
    if not terms:
        return
    batches = training_data.sample_batches()
    found = [one for one in map(SentenceLayout.from_batch, batches) if one is not None]
    if not any(len(one.with_next) for one in found):
        rows = sum(len(batch.inputs) for batch in batches)
        raise ValueError(
            f"{terms[0]}: of {rows} rows of at most {training_data.max_length} tokens none has "
            f"two sentences (row_unit = {training_data.recipe.row_unit}): documents are to have "
            "several; a greater length or row_unit = sentences may help"
        )
    most = max(len(one.has_next) + 1 for one in found)
    if ADJACENT_SENTENCE_TERMS[1] in terms and most < 3:
        raise ValueError(
            f"{terms[0]}: a batch holds {most} sentences at most, of which each has but one to "
            "choose from; a greater batch_tokens (or micro_batch_tokens) has more"
        )
