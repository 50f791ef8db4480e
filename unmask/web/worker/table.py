"""CALLS: where the function of each call is; a module is imported when its call is made first."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_PACKAGE = "unmask.web.worker.calls"
CALLS: Mapping[str, str] = {
    "describe": "models.facts:describe_model",
    "models": "models.facts:list_models",
    "preset_choices": "models.choices:preset_choices",
    "objective_choices": "models.choices:objective_choices",
    "studies": "models.facts:list_studies",
    "check_study": "models.studies:check_study",
    "fill": "generation:fill",
    "generate": "generation:generate",
    "chat": "generation:chat",
    "predict": "predictions:predict",
    "predict_file": "tables.predicting:predict_file",
    "embed": "vectors:embed",
    "neighbors": "vectors:neighbors",
    "analogy": "vectors:analogy",
    "attention": "analysis:attention",
    "saliency": "analysis:saliency",
    "hide": "hiding:hide",
    "hide_answers": "hiding:hide_answers",
    "tokenize": "tokens:tokenize",
    "plan": "planning:plan",
    "check_options": "models.checking:check_options",
    "preview_text": "text_preview:preview_text",
    "preview_images": "text_preview:preview_images",
    "preview_table": "table_preview:preview_table",
    "rewrite_table": "tables.rewriting:rewrite_table",
    "leave_out_rows": "tables.rewriting:leave_out_rows",
    "guess_encoding": "tables.rewriting:guess_encoding",
    "preview_pictures": "table_preview:preview_pictures",
    "export": "export:export",
    "export_formats": "export:export_formats",
}
"""Name of a call -> "module:function". A generator function is a stream."""
SLOW_CALLS = frozenset((
    "export", "predict_file", "preview_text", "preview_images", "preview_table", "rewrite_table",
    "leave_out_rows", "guess_encoding", "preview_pictures",
))  # fmt: skip
"""Those that read or write large files; a process of their own answers them."""


def load_call(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function of a call.

    Raises:
        ValueError: there is no such call.
    """
    if name not in CALLS:
        raise ValueError(f"call: no call {name!r}; there are {', '.join(CALLS)}")
    module, function = CALLS[name].split(":")
    return getattr(import_module(f"{_PACKAGE}.{module}"), function)
