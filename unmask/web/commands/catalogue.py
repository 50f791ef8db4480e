"""The commands of the workbench: their options, and where a form shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from unmask.jobs.options.shell.from_dataclass import ShellOptions, parser_of
from unmask.jobs.options.shell.summaries import SUMMARIES

_JOBS, _SHELL = "unmask.jobs.options", "unmask.jobs.options.shell"
_QUIET = "unmask.options:QuietOptions"
_JSON = "unmask.jobs.options.shell.shared_options:JsonOption"
_MORE = "unmask.jobs.options.shell.shared_options:MoreData"

HIDDEN_FIELDS = frozenset(("quiet", "as_json", "more", "stream"))
"""Options that a form lacks: what a terminal shows, and a second spelling of data."""


@dataclass(frozen=True, kw_only=True)
class NeededField:
    """A field that a command needs, though its command line can do without in some cases."""

    name: str
    unless: tuple[str, ...] = ()
    """Fields, any of which stands for it."""
    unless_recipe: bool = False
    """Whether a recipe file as the model has it."""
    line: str | None = None
    """What is said when it is missing. None: as of any required option."""


@dataclass(frozen=True, kw_only=True)
class WebCommand:
    """A command as the workbench offers it."""

    name: str
    options: tuple[str, ...]
    """Classes of its options, `module:Class`, as the command line has them."""
    essential: tuple[str, ...]
    """Fields that a form shows first."""
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Replacements of the fields' defaults, as the command line has them."""
    needed: tuple[NeededField, ...] = ()
    out: str | None = None
    """Field of the folder or file that it writes."""
    suggested_out: str | None = None
    """Name of that folder or file, until the user gives another."""

    @property
    def summary(self) -> str:
        """One sentence on the command."""
        return SUMMARIES[self.name]


_NEEDED = "--{} must be given, or a suite of benchmarks by --tasks"
_TEXTS = (NeededField(name="texts", unless=("input",)),)

_COMMANDS = (
    WebCommand(
        name="demo",
        options=(f"{_JOBS}.demo:DemoOptions", _JSON),
        essential=("out", "minutes", "seeds"),
        out="out",
        suggested_out="demo",
    ),
    WebCommand(
        name="prepare",
        options=(f"{_JOBS}.prepare:PrepareOptions", _JSON),
        essential=("corpus", "model", "out"),
        out="out",
        suggested_out="tokens",
    ),
    WebCommand(
        name="plan",
        options=(f"{_JOBS}.plan:PlanOptions", _JSON),
        essential=("model", "steps", "hardware", "devices"),
    ),
    WebCommand(
        name="pretrain",
        options=(f"{_JOBS}.pretrain:PretrainOptions", _MORE, _JSON),
        essential=("model", "data", "steps", "minutes", "out"),
        defaults={"out": "runs/pretrained"},
        needed=(
            NeededField(name="model", unless=("resume",)),
            NeededField(name="data", unless=("resume",), unless_recipe=True),
        ),
        out="out",
        suggested_out="pretrained",
    ),
    WebCommand(
        name="finetune",
        options=(
            "unmask.finetuning.options.finetune:FinetuneOptions",
            f"{_SHELL}.finetune:SuiteOptions",
            f"{_SHELL}.finetune:AdaptationOptions",
            _QUIET,
            _JSON,
        ),
        essential=("base", "task", "train", "dev", "tune", "out"),
        defaults={"base": None, "task": None, "train": None, "out": "runs/finetuned"},
        needed=(
            NeededField(name="base", unless=("resume",), line="MODEL is missing"),
            NeededField(name="task", unless=("tasks", "resume"), line=_NEEDED.format("task")),
            NeededField(name="train", unless=("tasks", "resume"), line=_NEEDED.format("train")),
        ),
        out="out",
        suggested_out="finetuned",
    ),
    WebCommand(
        name="prefer",
        options=("unmask.preferences.options:PreferOptions", _QUIET, _JSON),
        essential=("base", "train", "dev", "method", "out"),
        defaults={"out": "runs/preferred"},
        out="out",
        suggested_out="preferred",
    ),
    WebCommand(
        name="augment",
        options=(f"{_JOBS}.augment:AugmentOptions", _QUIET, _JSON),
        essential=("model", "method", "train", "out"),
        out="out",
        suggested_out="augmented.jsonl",
    ),
    WebCommand(
        name="evaluate",
        options=(f"{_SHELL}.evaluate:EvaluateOptions",),
        essential=("model", "data", "task"),
    ),
    WebCommand(
        name="predict",
        options=(f"{_SHELL}.inference:PredictOptions",),
        essential=("model", "texts", "input"),
        needed=_TEXTS,
    ),
    WebCommand(
        name="fill",
        options=(f"{_SHELL}.inference:FillOptions", _JSON),
        essential=("model", "texts", "top_k"),
        needed=_TEXTS,
    ),
    WebCommand(
        name="generate",
        options=(f"{_SHELL}.generate:GenerateOptions",),
        essential=("model", "prompt", "max_new_tokens", "temperature"),
        needed=(NeededField(name="prompt", unless=("input", "pictures")),),
    ),
    WebCommand(
        name="embed",
        options=(f"{_SHELL}.inference:EmbedOptions",),
        essential=("model", "texts", "input", "out"),
        needed=_TEXTS,
        out="out",
        suggested_out="vectors.npy",
    ),
    WebCommand(
        name="convert",
        options=(f"{_SHELL}.convert:ConvertOptions", _JSON),
        essential=("model", "to", "target"),
        out="target",
        suggested_out="converted",
    ),
    WebCommand(
        name="compress",
        options=(f"{_JOBS}.compress:CompressOptions", _JSON),
        essential=("model", "method", "data", "out"),
        out="out",
        suggested_out="compressed",
    ),
    WebCommand(
        name="probe",
        options=(f"{_JOBS}.probe:ProbeOptions", _QUIET, _JSON),
        essential=("model", "analysis", "data", "out"),
        out="out",
        suggested_out="probed",
    ),
    WebCommand(
        name="study",
        options=("unmask.studies.options:StudyOptions", _MORE, _QUIET, _JSON),
        essential=("study", "data", "base", "out"),
        defaults={"out": "runs/study", "data": ()},
        out="out",
        suggested_out="study",
    ),
    WebCommand(
        name="align",
        options=(f"{_JOBS}.align:AlignOptions", _QUIET, _JSON),
        essential=("source", "target", "dictionary", "test", "out"),
        out="out",
        suggested_out="aligned",
    ),
    WebCommand(
        name="hide",
        options=(f"{_JOBS}.hide:HideOptions", f"{_SHELL}.hide:PageOption", _JSON),
        essential=("model", "text", "objective"),
    ),
)

WEB_COMMANDS: Mapping[str, WebCommand] = {one.name: one for one in _COMMANDS}
"""By name."""

GROUPS: Mapping[str, str] = {
    "essential": "",
    "data": "corpus data train dev test input texts pictures prompt text text_column label labels "
    "choices choice columns document_separator encoding_errors sampling_exponent source_weights "
    "rows where by data_cache data_cache_size data_retries clean deduplicate decontaminate "
    "language source_language target_language tasks tasks_data unlabeled template case limit "
    "white_space dictionary seed_pairs numerals identical anchors lowercase min_count "
    "calibration_texts",
    "model": "model base source target init_from initialize tokenizer vocabulary vocab_size "
    "character_coverage sequence_length memory_length ensemble mixture_task draft draft_tokens "
    "pooling layer reward judge reads reference chat_template average vectors to dtype int8",
    "training": "task method tune task_options objective changes steps tokens minutes epochs "
    "batch_size batch_tokens micro_batch_tokens learning_rate warmup schedule optimizer "
    "weight_decay max_grad_norm dropout class_weights lm_loss_weight max_length "
    "max_response_length cut_reward text_weight adapt_first adapt_set baseline search patience "
    "task_name map normalize self_learning refine vocabulary_cutoff csls_k semantic_shift cells "
    "study",
    "evaluation": "metric evaluate_every dev_prompts shots stride pll_masking analysis control",
    "decoding": "chat system output_prefix max_new_tokens min_new_tokens stop temperature top_k "
    "top_p min_p typical_p samples beams n_best length_penalty early_stopping repetition_penalty "
    "no_repeat_ngram_size window",
    "compression": "compression teacher distill",
    "cost": "hardware peak_tflops memory_gb devices strategy checkpoint_activations utilization "
    "watts load pue grid_kg_per_kwh price_per_hour device_mtbf_hours checkpoint_seconds "
    "restart_seconds",
    "run": "out page resume seed seeds checkpoint_every device workers threads precision "
    "tensorboard",
}
"""Fields of each part of a form, in its order; `essential` depends on the command."""
_GROUP_OF_FIELD = {name: group for group, names in GROUPS.items() for name in names.split()}


def group_of(command: WebCommand, field_name: str) -> str:
    """Return the part of a form in which a field is."""
    return "essential" if field_name in command.essential else _GROUP_OF_FIELD[field_name]


def find_command(name: str) -> WebCommand:
    """Return a command by its name.

    Raises:
        ValueError: there is none.
    """
    if name not in WEB_COMMANDS:
        raise ValueError(f"command must be one of {', '.join(WEB_COMMANDS)}, got {name!r}")
    return WEB_COMMANDS[name]


@cache
def options_of(name: str) -> ShellOptions:
    """Return the options of a command; their classes are imported now."""
    command = find_command(name)
    places = (one.partition(":") for one in command.options)
    classes = [getattr(import_module(module), kind) for module, _, kind in places]
    return ShellOptions(*classes, defaults=command.defaults)


@cache
def parser_of_command(name: str) -> Any:
    """Return the typer command that reads the words of a command line, and does nothing."""
    parser = parser_of(options_of(name))
    parser.add_help_option = False
    return parser
