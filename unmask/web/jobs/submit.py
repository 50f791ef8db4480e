"""From a form to a queued job: paths stay below the folder of the runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from unmask.web.commands.arguments import FieldError, command_arguments
from unmask.web.commands.forms import FormField, describe_form
from unmask.web.jobs.queue import JobQueue
from unmask.web.jobs.record import JobRecord
from unmask.web.workplace import Workplace

_PATH_KINDS = frozenset(("path", "model"))
_RESUMED_BY_FOLDER = frozenset(("pretrain", "finetune"))
"""Commands that continue a folder without being told again how it began."""


def queue_command(
    workplace: Workplace, queue: JobQueue, command: str, values: Mapping[str, Any]
) -> JobRecord:
    """Queue a command.

    Raises:
        FieldError: a value is not possible.
        FileExistsError: its folder is there, or another job writes it.
    """
    form = describe_form(command)
    for name, value in values.items():
        field = form.field(name)
        if field is not None:
            check_paths(workplace.root, field, value)
    run = None if form.out is None else str(values.get(form.out) or "") or None
    if run is not None and not values.get("resume"):
        try:
            workplace.new_run_path(run)
        except (ValueError, FileExistsError) as error:
            raise FieldError(form.out, str(error)) from None
    return queue.add(command_arguments(command, values), run)


def check_paths(root: Path, field: FormField, value: Any) -> None:
    """Check that what a field names is below the folder of the runs.

    Raises:
        FieldError: it is elsewhere.
    """
    several = value.values() if isinstance(value, Mapping) else value
    words = several if isinstance(value, Mapping | list | tuple) else [value]
    for word in words:
        text = str(word)
        if field.kind == "assignments" or "=" in text:
            text = text.partition("=")[2] or text
        elif not {field.kind, field.items} & _PATH_KINDS:
            continue
        if leads_out(root, text):
            raise FieldError(
                field.name,
                f"{field.flag}: {text[:100]!r} is not below the folder of the runs; upload files, "
                "or start unmask serve with a folder that holds them",
            )


def leads_out(root: Path, text: str) -> bool:
    """Return whether a path is not below a folder, links followed."""
    path = PurePosixPath(text.replace("\\", "/"))
    if path.is_absolute() or text.startswith("~") or ".." in path.parts:
        return True
    fixed = Path(*[part for part in path.parts if not set(part) & set("*?[")])
    try:
        return not (root / fixed).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError):  # a name that no file can have
        return True


def resume_arguments(workplace: Workplace, job: JobRecord) -> list[str]:
    """Return the command line that goes on with a job that did not finish."""
    command, *words = job.arguments
    is_there = job.run is not None and workplace.path_of(job.run).is_dir()
    if not is_there or "--resume" in words:
        return [command, *words]
    if command in _RESUMED_BY_FOLDER:
        return [command, "--out", str(job.run), "--resume"]
    can_resume = describe_form(command).field("resume") is not None
    return [command, *words, *(["--resume"] if can_resume else [])]


def resume_run_arguments(
    jobs: Sequence[JobRecord], kind: str, run: str, steps: int | None
) -> list[str]:
    """Return the command line that goes on with a run, whoever started it.

    Raises:
        ValueError: it cannot go on from its folder alone, or not for more steps.
    """
    if kind in _RESUMED_BY_FOLDER:
        if steps is not None and kind != "pretrain":
            raise FieldError("steps", "only pretraining can go on for more steps")
        longer = [] if steps is None else ["--steps", str(steps)]
        return [kind, "--out", run, *longer, "--resume"]
    started = [one for one in jobs if one.run == run]
    if not started:
        raise ValueError(
            f"{run}: was started in a terminal; the same command with --resume continues it there"
        )
    command, *words = max(started, key=lambda one: one.created).arguments
    return [command, *words, *([] if "--resume" in words else ["--resume"])]
