"""Saving of fine-tuned models in folders that other libraries can open."""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.adapters.folder import ADAPTER_NAME, merged
from unmask.adapters.peft_format.compatibility import peft_incompatibility
from unmask.adapters.peft_format.folder import CONFIG_FILE, write_adapter
from unmask.checkpoints.activations import ACTIVATIONS_FILE
from unmask.checkpoints.checksums import record_files
from unmask.checkpoints.huggingface.differences import opening_note
from unmask.checkpoints.huggingface.generation import write_generation
from unmask.checkpoints.huggingface.preprocessing import save_preprocessing
from unmask.checkpoints.huggingface.read import HUB_PREFIX, LoadedModel
from unmask.checkpoints.huggingface.write import to_external_config, write_folder
from unmask.conversations.template_files import save_chat_template
from unmask.files import encode_utf8, merge_folder
from unmask.finetuning.formulations.formulation import LANGUAGE_HEAD, uses_word_labels
from unmask.finetuning.results.predict import RUN_FILE
from unmask.model.layers.quantized_inputs import describe_quantized_inputs
from unmask.output import escape_markdown, markdown_code, python_literal
from unmask.saved_format import FORMAT
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task
from unmask.training.best_effort import best_effort
from unmask.training.resume import library_versions

_PIPELINE_TAGS = {
    "label": "text-classification",
    "token_label": "token-classification",
    "choice": "multiple-choice",
    "spans": "question-answering",
}


def save_into_run_folder(
    folder: Path,
    loaded_model: LoadedModel,
    task: Task,
    summary_lines: Sequence[str],
    base: str | None,
) -> dict[str, Any]:
    """Write a model into a folder with other files; with a `base`, only the trained parameters.

    Return notes on the files.
    """
    beside = folder / ".final"
    if beside.exists():
        shutil.rmtree(beside)
    if base is None:
        write_model(beside, loaded_model, task, summary_lines)
    else:
        write_tuned_weights(beside, loaded_model, task, summary_lines, base)
    files = record_files(beside)
    merge_folder(beside, folder, last_name="config.json" if base is None else CONFIG_FILE)
    return files


def write_tuned_weights(
    folder: Path, loaded_model: LoadedModel, task: Task, summary_lines: Sequence[str], base: str
) -> None:
    """Write the trained parameters, in PEFT's layout if PEFT has the method, and a model card.

    Args:
        folder: the folder; created if missing.
        loaded_model: the model; trained parameters have gradients enabled.
        task: the task.
        summary_lines: lines for the model card.
        base: the base model.
    """
    model = loaded_model.model
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    also = [n for n in names if not n.startswith("adapters.")]
    where = str(Path(base).resolve()) if Path(base).is_dir() else base.removeprefix(HUB_PREFIX)
    name = ADAPTER_NAME if model.adapters else None
    write_adapter(
        folder,
        model,
        loaded_model.preset,
        name,
        base=where,
        extra_parameters=also,
        labels=loaded_model.label_names,
    )
    lines = [
        f"what was tuned is here, the model below it is {escape_markdown(base)}; `unmask.load` "
        "opens both",
    ]
    why = peft_incompatibility(model, loaded_model.preset, name, also)
    if why is not None:
        lines.append(f"not for PEFT: {escape_markdown(why)}")
    with best_effort("README.md"):
        card = _model_card(loaded_model, task, [*map(escape_markdown, summary_lines), *lines])
        card += "" if why is not None else _peft_instructions(loaded_model, base, where)
        (folder / "README.md").write_bytes(encode_utf8(card))


def _peft_instructions(loaded_model: LoadedModel, base: str, base_location: str) -> str:
    """Return instructions to load the adapter with PEFT, and the base model with transformers."""
    kind = to_external_config(loaded_model.model, loaded_model.preset)["architectures"][0]
    above = "PEFT opens it too:"
    if not base.startswith(HUB_PREFIX) and not (Path(base) / "config.json").is_file():
        command = markdown_code(f"unmask convert {shlex.quote(base)} BASE")
        above = f"PEFT opens it too, with the folder that {command} makes:"
        base_location = "BASE"
    labels = f", num_labels={len(loaded_model.label_names)}" if loaded_model.label_names else ""
    lines = [
        "",
        above,
        "",
        "```python",
        "from peft import PeftModel",
        f"from transformers import {kind}",
        "",
        f"base = {kind}.from_pretrained({python_literal(base_location)}{labels})",
        'model = PeftModel.from_pretrained(base, "this folder")',
        "```",
    ]
    return "\n".join(lines) + "\n"


def write_model_record(
    folder: Path, loaded_model: LoadedModel, extra_facts: Mapping[str, Any]
) -> None:
    """Write unmask.json of a model outside a run folder: its origin and, for example, its task."""
    facts = {
        "format": FORMAT,
        "kind": "model",
        "card": loaded_model.preset.name,
        "versions": library_versions(),
    }
    text = json.dumps(facts | dict(extra_facts), indent=2, ensure_ascii=False) + "\n"
    (folder / RUN_FILE).write_bytes(encode_utf8(text))


def _generation_pipeline_tag(loaded_model: LoadedModel) -> str:
    """Return the pipeline tag of a text-generating model."""
    if loaded_model.model.is_sequence_to_sequence:
        return "text2text-generation"
    return "text-generation" if loaded_model.model.decoder_architecture.causal else "fill-mask"


def write_model(
    folder: Path, loaded_model: LoadedModel, task: Task, summary_lines: Sequence[str]
) -> None:
    """Write the model in the Hugging Face layout, and a model card.

    The caller makes the folder appear whole or not at all.

    Args:
        folder: the folder; created if missing.
        loaded_model: the model.
        task: the task.
        summary_lines: lines for the model card: training and scores.
    """
    with merged(loaded_model.model):
        write_folder(
            folder,
            loaded_model.model,
            loaded_model.preset,
            loaded_model.tokenizer,
            loaded_model.label_names,
        )
        save_preprocessing(loaded_model.preprocessing, folder)
        save_chat_template(loaded_model.chat_template, folder)
        template = loaded_model.chat_template
        write_generation(folder, loaded_model.model, loaded_model.tokenizer, template=template)
    with best_effort("README.md"):
        rounding = describe_quantized_inputs(loaded_model.model)
        rounded = f"computes with {rounding}, as other libraries do not ({ACTIVATIONS_FILE})"
        known = summary_lines if rounding is None else [*summary_lines, rounded]
        card = _model_card(loaded_model, task, [*map(escape_markdown, known)])
        (folder / "README.md").write_bytes(encode_utf8(card))


def _model_card(loaded_model: LoadedModel, task: Task, summary_lines: Sequence[str]) -> str:
    """Return the model card; `summary_lines` are Markdown."""
    kind = to_external_config(loaded_model.model, loaded_model.preset)["architectures"][0]
    head = next(iter(loaded_model.model.head_specs))
    note = opening_note(loaded_model.preset, loaded_model.model.head_specs)
    wording = TASK_KINDS[task.task_kind].wording
    lines = [
        "---",
        f"library_name: {'transformers' if note is None else 'unmask'}",
        "tags: [unmask]",
        f"pipeline_tag: {_pipeline_tag(loaded_model, head)}",
        "---",
        f"# {escape_markdown(f'{loaded_model.preset.name}, fine-tuned to {wording.purpose}')}",
        "",
        f"A {kind} with {loaded_model.model.parameter_count():,} parameters, made with Unmask.",
        "",
        *(f"- {line}" for line in summary_lines),
    ]
    if note is not None:
        lines.append(f"- {note}")
    if task.labels:
        lines.append(f"- {escape_markdown('labels: ' + ', '.join(task.labels))}")
    if head == LANGUAGE_HEAD and task.labels and uses_word_labels(loaded_model.preset):
        lead = " ".join(f"{name}: ..." for name in task.columns.texts)
        lines.append(f"- it reads {markdown_code(f'{task.task_name} {lead}')} and says a label")
    return "\n".join([*lines, *_usage(task, wording.example)]) + "\n"


def _pipeline_tag(loaded_model: LoadedModel, head: str) -> str:
    """Return what the Hugging Face Hub calls the task of a model."""
    if head == "label" and not loaded_model.preset.reads_texts:
        return "image-classification"
    return _PIPELINE_TAGS.get(head) or _generation_pipeline_tag(loaded_model)


def _usage(task: Task, example: str) -> list[str]:
    """Return the lines of a program that opens the model, and predicts or answers."""
    is_pair = len(task.columns.texts) == 2 and task.task_kind not in ("answer", "choose", "prefer")
    given = '("a text", "another")' if is_pair and example == '"a text"' else example
    return [
        "",
        "```python",
        "import unmask",
        "",
        'model = unmask.load("this folder")',
        f"print(model.predict([{given}]))",
        "```",
    ]
