"""tokenizer_config.json of tokenizers without training: code points, and ByT5's bytes."""

from pathlib import Path

from unmask.tokenizers.characters import code_points
from unmask.tokenizers.formats import declared_tokens as declared_tokens_module
from unmask.tokenizers.formats import sentencepiece_families
from unmask.tokenizers.formats.folder import written_special_tokens
from unmask.tokenizers.spec import (
    BYT5,
    CANINE,
    SpecialTokens,
    special_token_names,
)


def code_point_special_tokens(folder: Path) -> SpecialTokens | None:
    """Return the special tokens of a folder with code points as tokens; None: it has others.

    Raises:
        ValueError: the special tokens are not those of the published models.
    """
    beside = declared_tokens_module.read_declared_tokens(folder)
    tokenizer_class = beside.tokenizer_class
    bare = not tokenizer_class and not (folder / "tokenizer.json").is_file()
    if tokenizer_class != "Canine" and not (bare and beside.model_type == "canine"):
        return None
    location = folder / "tokenizer_config.json"
    written = beside.config.get("unmask")
    frame = CANINE
    if isinstance(written, dict):
        frame = written_special_tokens(written, location) or frame
    usual = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    for role, name in usual.items():
        declared = beside.roles.get(role)
        if declared not in (None, name, chr(code_points.SPECIAL_CODE_POINTS[name])):
            raise ValueError(
                f"{location}: {role}_token must be U+{code_points.SPECIAL_CODE_POINTS[name]:04X}"
            )
    return frame


def byt5_special_tokens(folder: Path) -> tuple[SpecialTokens, int] | None:
    """Return the special tokens of a folder with ByT5's bytes, and the number of unused ids.

    None: it has other tokens. The reference library calls the unused ids <extra_id_0> and so on,
    but the published models are not trained on them.

    Raises:
        ValueError: the files contradict this.
    """
    beside = declared_tokens_module.read_declared_tokens(folder)
    if beside.tokenizer_class != "ByT5" or (folder / "tokenizer.json").is_file():
        return None
    location = folder / "tokenizer_config.json"
    for role, name in {"pad": BYT5.pad, "eos": BYT5.end, "unk": BYT5.unknown}.items():
        if beside.roles.get(role) not in (None, name):
            raise ValueError(f"{location}: {role}_token must be {name}, got {beside.roles[role]!r}")
    written = beside.config.get("unmask")
    frame = BYT5
    if isinstance(written, dict):
        frame = written_special_tokens(written, location) or frame
    bytes_end = len(special_token_names(frame)) + 256
    spare = sentencepiece_families.read_count(beside.config, "extra_ids", 125)
    return frame, max(spare, *(i + 1 - bytes_end for i in beside.added_tokens), 0)
