"""Texts with blanks: multiple choice (oLMpics, BabyLM) and facts by relation (LAMA)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from unmask.analysis.behavior.blanks import ClozeItem, encode_answers
from unmask.analysis.behavior.minimal_pairs import data_files, data_stem
from unmask.evaluation.prompting import evenly_spaced
from unmask.generation.fill_mask import MASK_PLACEHOLDER
from unmask.tasks.readers.tables import Table, read_table
from unmask.text.formats.records import describe_value, format_names
from unmask.text.lines import EncodingErrors
from unmask.tokenizers.encode import Tokenizer

_FACT_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "relation": ("relation", "predicate_id"),
    "object": ("object", "obj_label"),
}
_SUBJECT_COLUMNS = ("subject", "sub_label")
_SUBJECT, _OBJECT = "[X]", "[Y]"
"""Marks in the templates of LAMA."""


@dataclass(frozen=True, kw_only=True)
class ClozeData:
    """Texts with blanks of one kind."""

    items: tuple[ClozeItem, ...]
    are_facts: bool
    """Whether answers are all objects of a relation, of which those of one token are scored."""


def read_cloze(
    path: str | Path, templates: Path | None = None, encoding_errors: EncodingErrors = "strict"
) -> ClozeData:
    """Read the texts of a file, or of all .jsonl files of a folder, optionally compressed.

    Multiple choice (Talmor et al. 2020, arXiv:1912.13283) has the columns question, with a stem
    that has [MASK] and choices of a label and a text, and answerKey; a file is a task. Entity
    tracking (Kim and Schuster 2023, arXiv:2305.02363, in BabyLM's layout) has input_prefix,
    options, of which the first is right, and numops; a file and a number of operations are a task,
    and the blank is at the end. Facts
    (Petroni et al. 2019, arXiv:1909.01066) have relation, subject, object and sentence, with
    [MASK] for the object, or predicate_id, sub_label and obj_label; answers are all objects of the
    relation.

    Args:
        path: of the data.
        templates: file with columns relation and template, "[X] was born in [Y] .", from which the
            texts of facts are made. None: the column sentence.
        encoding_errors: treatment of invalid UTF-8.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is empty, of no kind, or lacks a value or a blank.
    """
    tables = [read_table(one, encoding_errors=encoding_errors) for one in data_files(Path(path))]
    readers = {_choices_reader(table) for table in tables}
    if None in readers and len(readers) > 1:
        raise ValueError(f"{path}: multiple choice and facts must be in different folders")
    if None not in readers:
        if templates is not None:
            raise ValueError(f"templates ({templates}) are for facts, got multiple choice: {path}")
        found = ((_choices_reader(table), table) for table in tables)
        items = [item for read, table in found if read is not None for item in read(table)]
        return ClozeData(items=tuple(items), are_facts=False)
    by_relation = None if templates is None else _read_templates(templates, encoding_errors)
    facts = [fact for table in tables for fact in _read_facts(table, by_relation)]
    objects: dict[str, dict[str, None]] = {}
    for relation, answer, _, _ in facts:
        objects.setdefault(relation, {})[answer] = None
    choices = {relation: tuple(found) for relation, found in objects.items()}
    ranks = {relation: {a: i for i, a in enumerate(found)} for relation, found in choices.items()}
    return ClozeData(
        items=tuple(
            ClozeItem(before, after, choices[relation], ranks[relation][answer], relation)
            for relation, answer, before, after in facts
        ),
        are_facts=True,
    )


def single_token_items(tokenizer: Tokenizer, items: Sequence[ClozeItem]) -> list[ClozeItem]:
    """Return the items whose right answer is one token, with all such answers of their group.

    Answers that are the same token, as of a tokenizer without case, are one. Groups with one such
    answer are left out: nothing can be chosen.
    """
    found = encode_answers(
        tokenizer, [one.before for one in items], [one.choices[one.target] for one in items]
    )
    kept = [(item, int(ids[0])) for item, ids in zip(items, found, strict=True) if len(ids) == 1]
    answers: dict[str, dict[int, str]] = {}
    for item, token in kept:
        answers.setdefault(item.group, {}).setdefault(token, item.choices[item.target])
    choices = {group: tuple(some.values()) for group, some in answers.items()}
    ranks = {group: {token: i for i, token in enumerate(some)} for group, some in answers.items()}
    return [
        replace(item, choices=choices[item.group], target=ranks[item.group][token])
        for item, token in kept
        if len(choices[item.group]) > 1
    ]


def count_multi_token_items(tokenizer: Tokenizer, items: Sequence[ClozeItem]) -> int:
    """Count the items with an answer of several tokens."""
    befores = [item.before for item in items for _ in item.choices]
    answers = iter(encode_answers(tokenizer, befores, [c for one in items for c in one.choices]))
    lengths = [[len(next(answers)) for _ in item.choices] for item in items]
    return sum(max(one) > 1 for one in lengths)


def sample_items(items: Sequence[ClozeItem], per_group: int | None) -> list[ClozeItem]:
    """Choose as many items of each group, evenly spaced in its order; None: all."""
    by_group: dict[str, list[ClozeItem]] = {}
    for item in items:
        by_group.setdefault(item.group, []).append(item)
    return [some[i] for some in by_group.values() for i in evenly_spaced(len(some), per_group)]


def _choices_reader(table: Table) -> Callable[[Table], list[ClozeItem]] | None:
    """Return what reads multiple choice of this layout; None: they are facts."""
    if "question" in table.columns:
        return _read_choices
    return _read_options if "input_prefix" in table.columns else None


def _read_options(table: Table) -> list[ClozeItem]:
    """Read texts and what may follow them; the first option is right."""
    task, names = data_stem(table.path), ("input_prefix", "options", "numops")
    items: list[ClozeItem] = []
    for i, row in enumerate(zip(*(table.column(name) for name in names), strict=True)):
        text, given, n_operations = row
        options = cast("list[object]", given) if isinstance(given, list) else []
        right = isinstance(text, str) and isinstance(n_operations, int) and len(options) > 1
        if not right or not all(isinstance(one, str) and one.strip() for one in options):
            raise ValueError(
                f"{table.location(i)}: entity tracking needs input_prefix (a text), options (two "
                "or more texts) and numops (a whole number), got "
                + ", ".join(map(describe_value, row))
            )
        group = f"{task}, {n_operations} operations"
        items.append(ClozeItem(str(text), "", tuple(map(str, options)), 0, group))
    return items


def _read_choices(table: Table) -> list[ClozeItem]:
    table.check_column("answerKey")
    task = data_stem(table.path)
    rows = zip(table.column("question"), table.column("answerKey"), strict=True)
    return [
        _read_question(question, key, table.location(i), task)
        for i, (question, key) in enumerate(rows)
    ]


def _read_question(question: object, key: object, location: str, task: str) -> ClozeItem:
    """Read a stem and its choices, "A" to "E"."""
    fields = cast("Mapping[str, object]", question) if isinstance(question, dict) else {}
    stem, choices = fields.get("stem"), fields.get("choices")
    if not isinstance(stem, str) or not isinstance(choices, list):
        raise ValueError(
            f"{location}: question must have a stem and choices, got {describe_value(question)}"
        )
    texts: dict[object, str] = {}
    for choice in cast("list[object]", choices):
        named = cast("Mapping[str, object]", choice) if isinstance(choice, dict) else {}
        text = named.get("text")
        if not isinstance(text, str) or not text.strip() or "label" not in named:
            raise ValueError(
                f"{location}: a choice must have a label and a text, got {describe_value(choice)}"
            )
        texts[named["label"]] = text
    if key not in texts or len(texts) < 2:
        raise ValueError(
            f"{location}: answerKey must be one of two or more labels "
            f"({', '.join(map(str, texts))}), got {key!r}"
        )
    before, after = _split_at_blank(stem, location)
    return ClozeItem(before, after, tuple(texts.values()), list(texts).index(key), task)


def _read_facts(
    table: Table, templates: Mapping[str, tuple[str, str]] | None
) -> list[tuple[str, str, str, str]]:
    """Return name of the relation, object, and the texts before and after the object."""
    names = {kind: _find_column(table, options) for kind, options in _FACT_COLUMNS.items()}
    text_name = _find_column(table, ("sentence",) if templates is None else _SUBJECT_COLUMNS)
    columns = [table.column(name) for name in (*names.values(), text_name)]
    facts: list[tuple[str, str, str, str]] = []
    for i, values in enumerate(zip(*columns, strict=True)):
        location = table.location(i)
        for name, value in zip((*names.values(), text_name), values, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{location}: {name} must be a text, got {describe_value(value)}")
        relation, answer, text = map(str, values)
        if templates is not None:
            if relation not in templates:
                raise ValueError(f"{location}: there is no template of relation {relation!r}")
            relation, template = templates[relation]
            before, after = template.split(_OBJECT)
            before, after = (side.replace(_SUBJECT, text) for side in (before, after))
        else:
            before, after = _split_at_blank(text, location)
        facts.append((relation, answer, before, after))
    return facts


def _read_templates(path: Path, encoding_errors: EncodingErrors) -> dict[str, tuple[str, str]]:
    """Return the name of each relation, with its label if there is one, and its template."""
    table = read_table(path, encoding_errors=encoding_errors)
    for name in ("relation", "template"):
        table.check_column(name)
    labels = table.column("label") if "label" in table.columns else [None] * len(table)
    templates: dict[str, tuple[str, str]] = {}
    rows = zip(table.column("relation"), table.column("template"), labels, strict=True)
    for i, (relation, template, label) in enumerate(rows):
        text = str(template)
        if text.count(_SUBJECT) != 1 or text.count(_OBJECT) != 1:
            raise ValueError(
                f"{table.location(i)}: template must have one {_SUBJECT} and one {_OBJECT}, "
                f"got {describe_value(template)}"
            )
        name = str(relation) if label is None else f"{relation} {label}"
        templates[str(relation)] = (name, text)
    return templates


def _find_column(table: Table, options: Sequence[str]) -> str:
    name = next((one for one in options if one in table.columns), None)
    if name is None:
        raise ValueError(
            f"{table.path}: texts with blanks need the columns question and answerKey, or "
            "input_prefix, options and numops, or "
            f"relation, object, and sentence or subject; there is no {' or '.join(options)} "
            f"(columns: {format_names(table.columns)})"
        )
    return name


def _split_at_blank(text: str, location: str) -> tuple[str, str]:
    parts = text.split(MASK_PLACEHOLDER)
    if len(parts) != 2:
        raise ValueError(
            f"{location}: a text must have one {MASK_PLACEHOLDER}, got {len(parts) - 1}"
        )
    return parts[0], parts[1]
