"""ZERO_SHOT: the explicit table of published tasks that are done unlearned, by name.

Files have the columns of MosaicML's llm-foundry (`query`, `choices`, `gold`) where it hands them
out; prompts are those of Brown et al. 2020, arXiv:2005.14165, appendix G, unless it says otherwise.
"""

from collections.abc import Mapping
from pathlib import Path

from unmask.evaluation.answers import Choose, Complete, Normalize, Say
from unmask.evaluation.prompts import PromptTask, read_task
from unmask.evaluation.word_perplexity import TextTask

AnyTask = PromptTask | TextTask

ALL = "zero-shot"
"""Names all that are in a folder."""


def _choose(name: str, query: str, paper: str, normalize: Normalize = "token") -> PromptTask:
    file = f"{name.replace('-', '_')}.jsonl"
    return PromptTask(
        name=name,
        test=(f"multiple_choice/{file}", file),
        query=query,
        answer=Choose(choices="{choices}", right="{gold}", normalize=normalize),
        paper=paper,
    )


def _completed(name: str, file: str, paper: str) -> PromptTask:
    return PromptTask(
        name=name,
        test=(f"zero_shot/{file}", file),
        answer=Complete(
            contexts="{context_options}", continuation="{continuation}", right="{gold}"
        ),
        paper=paper,
    )


_TASKS: tuple[AnyTask, ...] = (
    PromptTask(
        name="lambada",
        test=("zero_shot/lambada/test.jsonl", "lambada/test.jsonl", "lambada.jsonl"),
        query="{context}",
        answer=Say(text="{continuation}"),
        paper="Paperno et al. 2016, arXiv:1606.06031",
    ),
    PromptTask(
        name="blimp",
        test=("zero_shot/blimp.jsonl", "blimp.jsonl"),
        # The sentence itself, without a prompt: each pair differs in little and is equally long.
        answer=Choose(choices=("{good}", "{bad}"), right="0"),
        group="{term}",
        paper="Warstadt et al. 2020, arXiv:1912.00582",
    ),
    _completed("winograd", "winograd_wsc273.jsonl", "Levesque et al. 2012; Trinh and Le 2018"),
    _completed("winogrande", "winogrande_dev.jsonl", "Sakaguchi et al. 2019, arXiv:1907.10641"),
    PromptTask(
        name="story-cloze",
        test=("multiple_choice/roc_story_cloze/test.jsonl", "roc_story_cloze/test.jsonl"),
        train=("multiple_choice/roc_story_cloze/dev.jsonl", "roc_story_cloze/dev.jsonl"),
        query="{context}",
        answer=Choose(choices="{choices}", right="{answer}", normalize="token"),
        paper="Mostafazadeh et al. 2016, arXiv:1604.01696",
    ),
    _choose("copa", "{query}", "Roemmele et al. 2011; Wang et al. 2019, arXiv:1905.00537"),
    _choose("arc-easy", "{query}\nAnswer:", "Clark et al. 2018, arXiv:1803.05457", "unconditional"),
    _choose(
        "arc-challenge", "{query}\nAnswer:", "Clark et al. 2018, arXiv:1803.05457", "unconditional"
    ),
    _choose("piqa", "{query}Answer:", "Bisk et al. 2019, arXiv:1911.11641"),
    _choose("openbookqa", "{query}", "Mihaylov et al. 2018, arXiv:1809.02789", "unconditional"),
    _choose("siqa", "{query}", "Sap et al. 2019, arXiv:1904.09728"),
    _choose("commonsense-qa", "{query}", "Talmor et al. 2019, arXiv:1811.00937"),
    _choose("boolq", "{query}\nAnswer:", "Clark et al. 2019, arXiv:1905.10044"),
    _choose("hellaswag", "{query}", "Zellers et al. 2019, arXiv:1905.07830"),
    TextTask(
        name="wikitext-2",
        test=("wikitext-2/test.txt", "wiki.test.tokens"),
        paper="Merity et al. 2016, arXiv:1609.07843",
    ),
    TextTask(
        name="penn-treebank",
        test=("penn-treebank-lm/ptb.test.txt", "ptb.test.txt"),
        paper="Mikolov et al. 2010",
    ),
)
ZERO_SHOT: Mapping[str, AnyTask] = {task.name: task for task in _TASKS}


def task(name: str) -> AnyTask:
    """Return the task of a name, or of a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such task, or the file is not one.
    """
    if name in ZERO_SHOT:
        return ZERO_SHOT[name]
    if name.endswith(".toml"):
        return read_task(Path(name))
    known = ", ".join([ALL, *ZERO_SHOT])
    raise ValueError(f"unknown task {name!r} (known: {known}, and files that end in .toml)")
