"""A fine-tuned model as a folder that other libraries open."""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.adapters.folder import NAME, folded
from unmask.adapters.peft import CONFIG, why_not_peft, write_adapter
from unmask.channels import code, literal, markdown
from unmask.checkpoints.huggingface import HUB, Opened, config_of, opens_where, write_folder
from unmask.checkpoints.written import written
from unmask.files import move_into, utf8
from unmask.finetuning.ask import LANGUAGE, in_words
from unmask.finetuning.predict import FACTS
from unmask.tasks.task import Task
from unmask.training.aside import for_the_report
from unmask.training.loop import versions

_PIPELINES = {
    "label": "text-classification",
    "token_label": "token-classification",
    "choice": "multiple-choice",
    "spans": "question-answering",
}


def put(
    folder: Path, opened: Opened, task: Task, figures: Sequence[str], base: str | None
) -> dict[str, Any]:
    """Write a model into a folder that holds other files; of a `base`, only what was tuned.

    Return what is to be known of the files that were written.
    """
    beside = folder / ".final"
    if beside.exists():
        shutil.rmtree(beside)
    if base is None:
        write_model(beside, opened, task, figures)
    else:
        write_part(beside, opened, task, figures, base)
    files = written(beside)
    move_into(beside, folder, last="config.json" if base is None else CONFIG)
    return files


def write_part(folder: Path, opened: Opened, task: Task, figures: Sequence[str], base: str) -> None:
    """Write what was tuned, in PEFT's layout where PEFT has the method, and a card.

    Args:
        folder: made if it is not there.
        opened: the model, where what has gradients is what was tuned.
        task: what it does.
        figures: lines for the card.
        base: the model below it.
    """
    model = opened.model
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    also = [n for n in names if not n.startswith("adapters.")]
    where = str(Path(base).resolve()) if Path(base).is_dir() else base.removeprefix(HUB)
    name = NAME if model.adapters else None
    write_adapter(folder, model, opened.card, name, base=where, also=also, labels=opened.labels)
    lines = [
        f"what was tuned is here, the model below it is {markdown(base)}; `unmask.load` opens both",
    ]
    why = why_not_peft(model, opened.card, name, also)
    if why is not None:
        lines.append(f"not for PEFT: {markdown(why)}")
    with for_the_report("README.md"):
        said = _card(opened, task, [*map(markdown, figures), *lines])
        said += "" if why is not None else _with_peft(opened, base, where)
        (folder / "README.md").write_bytes(utf8(said))


def _with_peft(opened: Opened, base: str, where: str) -> str:
    """Show how PEFT opens a part, with the model below it in a folder that transformers opens."""
    kind = config_of(opened.model, opened.card)["architectures"][0]
    above = "PEFT opens it too:"
    if not base.startswith(HUB) and not (Path(base) / "config.json").is_file():
        command = code(f"unmask convert {shlex.quote(base)} BASE")
        above = f"PEFT opens it too, with the folder that {command} makes:"
        where = "BASE"
    labels = f", num_labels={len(opened.labels)}" if opened.labels else ""
    lines = [
        "",
        above,
        "",
        "```python",
        "from peft import PeftModel",
        f"from transformers import {kind}",
        "",
        f"base = {kind}.from_pretrained({literal(where)}{labels})",
        'model = PeftModel.from_pretrained(base, "this folder")',
        "```",
    ]
    return "\n".join(lines) + "\n"


def write_record(folder: Path, opened: Opened, more: Mapping[str, Any]) -> None:
    """Write unmask.json of a model that is no run: what made it, and `more`, such as its task."""
    facts = {"format": 1, "kind": "model", "card": opened.card.name, "versions": versions()}
    text = json.dumps(facts | dict(more), indent=2, ensure_ascii=False) + "\n"
    (folder / FACTS).write_bytes(utf8(text))


def _of_words(opened: Opened) -> str:
    """Name what a model does that says words."""
    if opened.model.answers:
        return "text2text-generation"
    return "text-generation" if opened.model.stack.causal else "fill-mask"


def write_model(folder: Path, opened: Opened, task: Task, figures: Sequence[str]) -> None:
    """Write the model in the Hugging Face layout, and a card; the caller makes the folder whole.

    Args:
        folder: made if it is not there.
        opened: the model.
        task: what it does.
        figures: lines for the card: how it was made, how good it is.
    """
    with folded(opened.model):
        write_folder(folder, opened.model, opened.card, opened.tokenizer, opened.labels)
    with for_the_report("README.md"):
        said = _card(opened, task, [*map(markdown, figures)])
        (folder / "README.md").write_bytes(utf8(said))


def _card(opened: Opened, task: Task, figures: Sequence[str]) -> str:
    """Write what a stranger must know before using these weights; `figures` are Markdown."""
    kind = config_of(opened.model, opened.card)["architectures"][0]
    head = next(iter(opened.model.specs))
    note = opens_where(opened.card, opened.model.specs)
    lines = [
        "---",
        f"library_name: {'transformers' if note is None else 'unmask'}",
        "tags: [unmask]",
        f"pipeline_tag: {_PIPELINES.get(head) or _of_words(opened)}",
        "---",
        f"# {markdown(f'{opened.card.name}, fine-tuned to {task.does}')}",
        "",
        f"A {kind} with {opened.model.parameter_count():,} parameters, made with Unmask.",
        "",
        *(f"- {line}" for line in figures),
    ]
    if note is not None:
        lines.append(f"- {note}")
    if task.labels:
        lines.append(f"- {markdown('labels: ' + ', '.join(task.labels))}")
    if head == LANGUAGE and task.labels and in_words(opened.card):
        lead = " ".join(f"{name}: ..." for name in task.columns.texts)
        lines.append(f"- it reads {code(f'{task.name} {lead}')} and says a label")
    return "\n".join(lines) + "\n"
