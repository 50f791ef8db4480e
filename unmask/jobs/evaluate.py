"""Evaluation on prompted tasks, by name or from files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unmask.analysis.attention.captions import attention_over_picture
from unmask.evaluation.answer_methods import PromptedModel
from unmask.evaluation.captions import CaptionEvaluation, DescribedPicture
from unmask.evaluation.prompting import MetricValue, PromptingConfig, TaskScore, find_task_file
from unmask.evaluation.word_perplexity import WordPerplexityTask, is_causal_model
from unmask.evaluation.zero_shot import ALL_TASKS, ZERO_SHOT, ZeroShotTask, find_task
from unmask.files import write_atomically
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.options.evaluate import EvaluateTasksOptions
from unmask.options import takes_options
from unmask.output import OutputStream, ProgressLine, print_line
from unmask.reports.analysis.captions_page import WordMaps, render_captions_page

_JSON_KEYS = {
    "primary_metric": "measure",
    "metrics": "figures",
    "n_examples": "items",
    "n_truncated": "cut",
}
"""Names of score fields in plain data, where they differ."""
_TABLE_HEADER: tuple[str, ...] = ("task", "shots", "measure", "score", "±", "items", "cut")


@takes_options(EvaluateTasksOptions)
def evaluate_tasks(options: EvaluateTasksOptions) -> list[TaskScore]:
    """Evaluate a model on tasks by prompting, with or without in-context examples.

    The fields of `EvaluateTasksOptions` are its keywords.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: a task is unknown or not supported by the model, or a data file does not fit.
    """
    model, tasks, shots, terminal = options.model, options.tasks, options.shots, options.terminal
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    counts = [shots] if isinstance(shots, int) else list(shots)
    if not names or not counts:
        raise ValueError(f"{'tasks' if not names else 'shots'} must not be empty")
    pipeline = model if isinstance(model, Pipeline) else load(model)
    chosen = [
        task
        for name in names
        for task in _select_tasks(name, options.data, counts, pipeline, terminal)
    ]
    options_of_files = {"stride": options.stride, "memory_length": options.memory_length}
    given_options = [name for name, n in options_of_files.items() if n is not None]
    if given_options and not any(isinstance(task, WordPerplexityTask) for task, _, _ in chosen):
        raise ValueError(
            f"{given_options[0]} is for tasks of whole files, and none is given; leave it out"
        )
    prompted = PromptedModel(
        model=pipeline.model,
        tokenizer=pipeline.tokenizer,
        pll_masking=options.pll_masking,
        sequence_length=pipeline.resolve_sequence_length(options.sequence_length),
        memory_length=pipeline.resolve_memory_length(
            0
            if options.memory_length is None and options.stride is not None
            else options.memory_length
        ),
    )
    scores: list[TaskScore] = []
    for task, folder, n in chosen:
        tell = _progress_callback(task.name, terminal)
        how = PromptingConfig(
            shots=n, seed=options.seed, rows=options.rows, stride=options.stride, on_progress=tell
        )
        scores.append(task.score(prompted, folder, how))
        for note in _score_notes(scores[-1], prompted):
            _print_if_shown(terminal, note)
    return scores


def _select_tasks(
    name: str,
    data: str | Path | None,
    shots: Sequence[int],
    pipeline: Pipeline,
    terminal: OutputStream | None,
) -> list[tuple[ZeroShotTask, Path, int]]:
    """Return tasks with the folders of their files, and their numbers of shots."""
    if name != ALL_TASKS:
        one = find_task(name)
        own = data is None and name not in ZERO_SHOT
        folder = _data_folder(Path(name).parent if own else data, name)
        once = isinstance(one, WordPerplexityTask) and 0 in shots  # whole texts have no shots
        return [(one, folder, n) for n in ((0,) if once else shots)]
    folder = _data_folder(data, name)
    available: list[tuple[ZeroShotTask, Path, int]] = []
    left_out: list[str] = []
    for one in ZERO_SHOT.values():
        try:
            find_task_file(folder, one.test, one.name)
        except FileNotFoundError as error:
            left_out.append(f"{one.name} is left out: {error}")
            continue
        if not isinstance(one, WordPerplexityTask):
            available += [(one, folder, n) for n in shots]
        elif is_causal_model(pipeline.model):
            available.append((one, folder, 0))
        else:
            left_out.append(f"{one.name} is left out: it needs a causal model")
    if not available:
        raise FileNotFoundError(f"{folder}: has no files of any task")
    for line in left_out:
        _print_if_shown(terminal, line)
    return available


def _data_folder(data: str | Path | None, name: str) -> Path:
    if data is None:
        raise ValueError(f"no data: give the folder with the files of {name}")
    if not Path(data).is_dir():
        raise FileNotFoundError(f"{data}: no such folder")
    return Path(data)


def _progress_callback(
    name: str, terminal: OutputStream | None
) -> Callable[[int, int], None] | None:
    """Return a callback that shows the progress of a task on one line of a terminal."""
    if terminal is None:
        return None
    progress = ProgressLine(terminal)

    def show(done: int, total: int) -> None:
        def status() -> str:
            return f"{name}: {done:,} of {total:,}{progress.rate(done)}"

        last = done >= total
        progress.show(status, last=last and progress.is_terminal)
        if last:
            progress.finish()

    return show


def _score_notes(score: TaskScore, prompted_model: PromptedModel) -> Iterable[str]:
    yield from score.notes
    if score.n_truncated:
        yield (
            f"{score.task}: of {score.n_truncated:,} of {score.n_examples:,} prompts the "
            "beginning was cut to fit "
            f"{prompted_model.sequence_length:,} tokens"
        )


def _print_if_shown(terminal: OutputStream | None, text: str) -> None:
    if terminal is not None:
        print_line(text, terminal)


def task_score_to_dict(score: TaskScore) -> dict[str, Any]:
    """Return a score as plain data."""
    plain = {_JSON_KEYS.get(name, name): value for name, value in asdict(score).items()}
    figures = {
        name: {"value": metric.value, "error": metric.standard_error}
        for name, metric in score.metrics.items()
    }
    return plain | {
        "figures": figures,
        "score": score.score.value,
        "standard_error": score.score.standard_error,
    }


def format_task_scores(scores: Sequence[TaskScore]) -> list[str]:
    """Format scores as lines, accuracies in percent, with scores by group, if any."""
    rows = [_TABLE_HEADER]
    for score in scores:
        figures = {score.primary_metric: score.score} | dict(score.metrics)
        for name, figure in figures.items():
            first = name == score.primary_metric
            rows.append(
                (
                    score.task if first else "",
                    str(score.shots) if first else "",
                    name.replace("_", " "),
                    *_format_figure(name, figure),
                    f"{score.n_examples:,}" if first else "",
                    f"{score.n_truncated:,}" if first and score.n_truncated else "",
                )
            )
        groups = sorted(score.groups.items())
        rows += [("", "", f"  {name}", f"{100 * v:.1f}", "", "", "") for name, v in groups]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(n) if i in (0, 2) else cell.rjust(n)
            for i, (cell, n) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _format_figure(name: str, figure: MetricValue) -> tuple[str, str]:
    """Format a metric and its error: perplexities plain, accuracies in percent."""
    if name in ("accuracy", "exact_match", "f1"):
        error = "" if figure.standard_error is None else f"{100 * figure.standard_error:.1f}"
        return f"{100 * figure.value:.1f}", error
    return (
        f"{figure.value:,.2f}",
        "" if figure.standard_error is None else f"{figure.standard_error:,.2f}",
    )


def write_captions_page(pipeline: Pipeline, evaluation: CaptionEvaluation, path: Path) -> None:
    """Write a page of captions: their scores, and pictures with the attention of each word.

    There is none of networks without attention, such as Show and Tell.

    Raises:
        ValueError: the model does not describe pictures.
    """
    preprocessing = pipeline.loaded_model.preprocessing
    if preprocessing is None or not pipeline.describes_pictures:
        raise ValueError(f"{pipeline.preset.name} does not describe pictures")

    def attention(one: DescribedPicture) -> WordMaps:
        if not pipeline.model.decoder_architecture.attends_to_encoder:
            return []
        numbers = preprocessing.normalize(one.pixels)
        return attention_over_picture(pipeline.model, pipeline.tokenizer, numbers, one.caption)

    page = render_captions_page(pipeline.preset.name, evaluation, attention)
    write_atomically(path, page)
