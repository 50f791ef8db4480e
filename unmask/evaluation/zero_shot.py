"""ZERO_SHOT: published zero-shot tasks by name.

Files from MosaicML's llm-foundry have its columns (`query`, `choices`, `gold`); prompts are those
of Brown et al. 2020, arXiv:2005.14165, appendix G, or llm-foundry's.
"""

from collections.abc import Mapping
from pathlib import Path

from unmask.evaluation.answer_methods import (
    ChoiceNormalization,
    MultipleChoiceScoring,
    PartialScoring,
    TargetLikelihood,
)
from unmask.evaluation.prompting import PromptTask, read_prompt_task
from unmask.evaluation.word_perplexity import WordPerplexityTask

ZeroShotTask = PromptTask | WordPerplexityTask

ALL_TASKS = "zero-shot"
"""Stands for all tasks in a folder."""


def _multiple_choice_task(
    name: str, query: str, paper: str, normalization: ChoiceNormalization = "token"
) -> PromptTask:
    file = f"{name.replace('-', '_')}.jsonl"
    return PromptTask(
        name=name,
        test=(f"multiple_choice/{file}", file),
        query=query,
        answer=MultipleChoiceScoring(
            choices="{choices}", target="{gold}", normalization=normalization
        ),
        paper=paper,
    )


def _partial_scoring_task(name: str, file: str, paper: str) -> PromptTask:
    return PromptTask(
        name=name,
        test=(f"zero_shot/{file}", file),
        answer=PartialScoring(
            contexts="{context_options}", continuation="{continuation}", target="{gold}"
        ),
        paper=paper,
    )


_TASKS: tuple[ZeroShotTask, ...] = (
    PromptTask(
        name="lambada",
        test=("zero_shot/lambada/test.jsonl", "lambada/test.jsonl", "lambada.jsonl"),
        query="{context}",
        answer=TargetLikelihood(target="{continuation}"),
        paper="Paperno et al. 2016, arXiv:1606.06031",
    ),
    PromptTask(
        name="blimp",
        test=("zero_shot/blimp.jsonl", "blimp.jsonl"),
        # The sentence itself, without a prompt: pairs differ little and have equal lengths.
        answer=MultipleChoiceScoring(choices=("{good}", "{bad}"), target="0"),
        group="{term}",
        paper="Warstadt et al. 2020, arXiv:1912.00582",
    ),
    _partial_scoring_task(
        "winograd", "winograd_wsc273.jsonl", "Levesque et al. 2012; Trinh and Le 2018"
    ),
    _partial_scoring_task(
        "winogrande", "winogrande_dev.jsonl", "Sakaguchi et al. 2019, arXiv:1907.10641"
    ),
    PromptTask(
        name="story-cloze",
        test=("multiple_choice/roc_story_cloze/test.jsonl", "roc_story_cloze/test.jsonl"),
        train=("multiple_choice/roc_story_cloze/dev.jsonl", "roc_story_cloze/dev.jsonl"),
        query="{context}",
        answer=MultipleChoiceScoring(choices="{choices}", target="{answer}", normalization="token"),
        paper="Mostafazadeh et al. 2016, arXiv:1604.01696",
    ),
    _multiple_choice_task(
        "copa", "{query}", "Roemmele et al. 2011; Wang et al. 2019, arXiv:1905.00537"
    ),
    _multiple_choice_task(
        "arc-easy", "{query}\nAnswer:", "Clark et al. 2018, arXiv:1803.05457", "unconditional"
    ),
    _multiple_choice_task(
        "arc-challenge", "{query}\nAnswer:", "Clark et al. 2018, arXiv:1803.05457", "unconditional"
    ),
    _multiple_choice_task("piqa", "{query}Answer:", "Bisk et al. 2019, arXiv:1911.11641"),
    _multiple_choice_task(
        "openbookqa", "{query}", "Mihaylov et al. 2018, arXiv:1809.02789", "unconditional"
    ),
    _multiple_choice_task("siqa", "{query}", "Sap et al. 2019, arXiv:1904.09728"),
    _multiple_choice_task("commonsense-qa", "{query}", "Talmor et al. 2019, arXiv:1811.00937"),
    _multiple_choice_task("boolq", "{query}\nAnswer:", "Clark et al. 2019, arXiv:1905.10044"),
    _multiple_choice_task("hellaswag", "{query}", "Zellers et al. 2019, arXiv:1905.07830"),
    WordPerplexityTask(
        name="wikitext-2",
        test=("wikitext-2/test.txt", "wiki.test.tokens"),
        paper="Merity et al. 2016, arXiv:1609.07843",
    ),
    WordPerplexityTask(
        name="penn-treebank",
        test=("penn-treebank-lm/ptb.test.txt", "ptb.test.txt"),
        paper="Mikolov et al. 2010",
    ),
)
ZERO_SHOT: Mapping[str, ZeroShotTask] = {task.name: task for task in _TASKS}


def find_task(name: str) -> ZeroShotTask:
    """Return a task by name, or from a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such task, or the file is invalid.
    """
    if name in ZERO_SHOT:
        return ZERO_SHOT[name]
    if name.endswith(".toml"):
        return read_prompt_task(Path(name))
    names = ", ".join([ALL_TASKS, *ZERO_SHOT])
    raise ValueError(f"task must be one of {names}, or a .toml file, got {name!r}")
