"""Can what is asked about two texts, or about sentences, be asked of the rows that there are?"""

from unmask.batch import IGNORE
from unmask.heads.beside import Sentences
from unmask.heads.labels import Labels
from unmask.heads.model import Model, asked_by
from unmask.heads.neighbors import Neighbors
from unmask.hiding.objectives import parts_of
from unmask.hiding.questions import OF_SENTENCES
from unmask.training.data import Data

ASKED = 12
"""Rows of which one in two would have the other answer: all alike by chance in 1 of 2,000 runs."""
FEW = 0.1
"""Of rows: where fewer can be asked, that is told."""


def check_questions(data: Data, model: Model, *, begun: bool) -> str | None:
    """Look at some rows: is each question asked, and are there several answers?

    Args:
        data: has the rows.
        model: has the heads.
        begun: with weights that have learned to answer already: then it is told, and not refused.

    Returns:
        What a person should know; None: nothing.

    Raises:
        ValueError: a question is never asked, so that its head would learn nothing.
    """
    _check_sentences(data)
    if (note := _parts(data, model)) is not None:
        if note[1] and not begun:
            raise ValueError(note[0])
        return note[0]
    terms = [asked_by(n, spec) for n, spec in model.specs.items() if isinstance(spec, Labels)]
    if not terms:
        return None
    batches = data.sample()
    said = [x for b in batches if b.labels is not None for x in b.labels.flatten().tolist()]
    labels = [x for x in said if x != IGNORE]
    rows = sum(len(b.inputs) for b in batches)
    told = f"{' and '.join(terms)}: of {rows} rows of at most {data.length} tokens"
    if not labels:
        why = (
            f"{told} none has two parts to ask about (unit = {data.recipe.unit}): documents are to "
            "have several sentences; a greater length or another unit may help, or an objective "
            "without a question (--objective mlm)"
        )
        if begun:
            return why
        raise ValueError(why)
    if len(labels) >= ASKED and len(set(labels)) == 1:
        return (
            f"{told} {len(labels)} are asked, and the answer is always {labels[0]}: nothing can be "
            "learned of it; a greater length may have other answers"
        )
    if len(labels) < FEW * rows and not _mixed(data):
        return f"{told} only {len(labels)} have two parts to ask about"
    return None


def _mixed(data: Data) -> bool:
    """Say whether a question is one of several things that a row may be asked."""
    return bool(parts_of(data.objective))


def _parts(data: Data, model: Model) -> tuple[str, bool] | None:
    """Say that no text has two parts to be found among others, or none other to choose from.

    Returns:
        What to say, and whether nothing at all can be learned; None: all is well.
    """
    specs = [spec for spec in model.specs.values() if isinstance(spec, Neighbors)]
    if not specs:
        return None
    batches = data.sample()
    most = max((model.count(batch).get(specs[0].term, 0) for batch in batches), default=0)
    rows = sum(len(batch.inputs) for batch in batches)
    if most == 0:
        return (
            f"{specs[0].term}: of {rows} rows of at most {data.length} tokens none has two parts "
            f"(unit = {data.recipe.unit}); a greater length or longer documents may help"
        ), True
    if most == 1 and rows > 1:
        return (
            f"{specs[0].term}: a batch holds one text, which has none to choose from but its own; "
            "a greater batch_tokens (or micro_tokens) has more"
        ), False
    return None


def _check_sentences(data: Data) -> None:
    """Check that there are sentences beside each other, and several to choose from.

    Raises:
        ValueError: none of some rows has two, or no batch of them three.
    """
    asked = [name for name in OF_SENTENCES if name in data.objective.asks]
    if not asked:
        return
    batches = data.sample()
    found = [one for one in map(Sentences.of, batches) if one is not None]
    if not any(len(one.pairs) for one in found):
        rows = sum(len(batch.inputs) for batch in batches)
        raise ValueError(
            f"{asked[0]}: of {rows} rows of at most {data.length} tokens none has two sentences "
            f"(unit = {data.recipe.unit}): documents are to have several; a greater length or "
            "unit = sentences may help"
        )
    most = max(len(one.followed) + 1 for one in found)
    if OF_SENTENCES[1] in asked and most < 3:
        raise ValueError(
            f"{asked[0]}: a batch holds {most} sentences at most, of which each has but one to "
            "choose from; a greater batch_tokens (or micro_tokens) has more"
        )
