"""Read a tokenizer from a folder in the Hugging Face layout: pipeline and special tokens.

Four layouts are supported, in this order: tokenizer.json; vocab.txt; vocab.json with merges.txt; a
SentencePiece file. Values that only newer folders declare (the end token, the template) are
inferred; where that fails it is an error.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from unmask.config import from_dict
from unmask.files import read_bytes
from unmask.tokenizers import pipeline
from unmask.tokenizers.characters.byte_pipelines import lowercase_byte_bpe_pipeline
from unmask.tokenizers.formats import declared_tokens as declared_tokens_module
from unmask.tokenizers.formats import (
    limits,
    sentencepiece,
    sentencepiece_families,
    vocab_and_merges,
)
from unmask.tokenizers.formats.declared_tokens import DeclaredTokens
from unmask.tokenizers.formats.tokenizer_json import load_tokenizer_json
from unmask.tokenizers.spec import (
    MBART,
    SpecialTokens,
    sentinel_names,
    special_token_names,
)

SENTENCEPIECE_FILES = (
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "sentencepiece.model",
)
"""Names of published SentencePiece files; a single .model file may have any name."""

_LANGUAGE_TOKEN = re.compile(r"[a-z]{2,3}_[A-Z]{2}")
"""Pattern of language tokens: de_DE, en_XX."""

_log = logging.getLogger(__name__)

_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>"),
    "unk": ("[UNK]", "<unk>", "<|endoftext|>"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
}
"""Usual names of special tokens by role, for folders that do not declare them."""

_BERT_CLASSES = ("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "SqueezeBert")
_MASK_TAKES_SPACE = ("XLNet", "MBart", "MBart50", "Camembert")
"""Classes in transformers whose mask absorbs the spaces before it, if given by name only."""


def read_pipeline(folder: Path) -> tuple[Tokenizer, SpecialTokens]:
    """Read the pipeline and the special tokens from `folder`.

    Raises:
        FileNotFoundError: there is no tokenizer file.
        ValueError: a file is damaged or lacks required values; the message names it.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    beside = declared_tokens_module.read_declared_tokens(folder)
    backend, frame = _read_first_layout(folder, beside)
    return backend, replace(
        frame,
        punctuation_starts_words=frame.punctuation_starts_words
        or sentencepiece_families.punctuation_starts_words(
            beside.tokenizer_class, beside.model_type
        ),
    )


def _read_first_layout(
    folder: Path, declared_tokens: DeclaredTokens
) -> tuple[Tokenizer, SpecialTokens]:
    """Read the first layout found."""
    if (path := folder / "tokenizer.json").is_file():
        return _read_tokenizer_json(path, declared_tokens)
    if (path := folder / "vocab.txt").is_file():
        return _read_vocab_txt(path, declared_tokens)
    if (path := folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _read_vocab_and_merges(path, folder / "merges.txt", declared_tokens)
    for name in SENTENCEPIECE_FILES:
        if (path := folder / name).is_file():
            return _read_sentencepiece(path, declared_tokens)
    if len(model_files := sorted(p for p in folder.glob("*.model") if p.is_file())) == 1:
        return _read_sentencepiece(model_files[0], declared_tokens)
    raise FileNotFoundError(
        f"{folder} has no tokenizer: looked for tokenizer.json, vocab.txt, "
        f"vocab.json with merges.txt, {', '.join(SENTENCEPIECE_FILES)}"
    )


def _read_tokenizer_json(
    path: Path, declared_tokens: DeclaredTokens
) -> tuple[Tokenizer, SpecialTokens]:
    """Read the pipeline from tokenizer.json; roles are in other files, or inferred."""
    backend = load_tokenizer_json(path, declared_tokens)
    declared_tokens_module.add_declared_tokens(path, backend, declared_tokens)
    if (native := _native_special_tokens(declared_tokens, backend)) is not None:
        if native.languages and not native.language_embeddings:  # they are chosen after loading
            pipeline.set_template(backend, native)
        return backend, native
    special = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
    roles = _token_roles(declared_tokens, backend, special)
    before, between, after = _probe_template(path, backend)
    frame = _special_tokens_of_roles(
        path, roles, declared_tokens, backend, (before, between, after)
    )
    frame = _with_language_embeddings(
        path, _without_language_tokens(frame, special, backend), declared_tokens.model_config
    )
    # A piece that a template or a start token names, but no role, is as plain as in transformers.
    pipeline.make_special(
        backend,
        [n for n in special_token_names(frame) if n in {*declared_tokens.roles.values()} - special],
    )
    if frame.languages and not frame.language_embeddings:
        pipeline.set_template(backend, frame)
    return backend, frame


def _read_vocab_txt(path: Path, declared_tokens: DeclaredTokens) -> tuple[Tokenizer, SpecialTokens]:
    """Read BERT's vocab.txt: one piece per line; its id is the line number, from 0."""
    _check_class(path, declared_tokens, _BERT_CLASSES)
    lines = declared_tokens_module.read_utf8(path).rstrip("\n").split("\n")
    vocab = {line.rstrip("\r"): i for i, line in enumerate(lines)}
    roles = _token_roles(declared_tokens, None, set(vocab))
    missing = [role for role in ("pad", "unk", "cls", "sep") if roles.get(role) not in vocab]
    if missing:
        usual_names = ", ".join(_USUAL_NAMES[role][0] for role in missing)
        raise ValueError(
            f"{path}: the vocabulary lacks {usual_names} (or set names in tokenizer_config.json)"
        )
    lowercase = declared_tokens.config.get("do_lower_case")
    if lowercase is None:
        role_tokens = set(roles.values())
        lowercase = not any(
            p != p.lower() for p in vocab if p not in role_tokens and not p.startswith("[unused")
        )
        _log.warning(
            "%s: do_lower_case is not set in tokenizer_config.json; "
            "assumed %s, as the vocabulary has %s capitals",
            path, str(lowercase).lower(), "no" if lowercase else "some",
        )  # fmt: skip
    backend = pipeline.wordpiece_pipeline(
        vocab,
        roles["unk"],
        lowercase=bool(lowercase),
        strip_accents=declared_tokens.config.get("strip_accents"),
        split_chinese_characters=bool(declared_tokens.config.get("tokenize_chinese_chars", True)),
    )
    sep = (roles["sep"],)
    frame = _special_tokens_of_roles(
        path, roles, declared_tokens, backend, ((roles["cls"],), sep, sep)
    )
    return _add_tokens(path, backend, frame, declared_tokens), frame


def _read_vocab_and_merges(
    path: Path, merges_path: Path, declared_tokens: DeclaredTokens
) -> tuple[Tokenizer, SpecialTokens]:
    """Read vocab.json and merges.txt: byte-level as GPT-2 or CLIP, or characters as GPT."""
    vocab = declared_tokens_module.read_json_mapping(path)
    if not vocab or not all(type(i) is int and 0 <= i < 2**31 for i in vocab.values()):
        raise ValueError(f"{path} must map every piece to its id, an integer")
    if len(set(vocab.values())) < len(vocab):
        raise ValueError(f"{path}: two pieces have the same id")
    merges = vocab_and_merges.read_merges(merges_path, vocab)
    marked = sum(piece.endswith("</w>") for piece in vocab) > len(vocab) / 10
    roles = _token_roles(declared_tokens, None, set(vocab))
    around: tuple[tuple[str, ...], ...] = ((), (), ())
    if marked:
        if {"<special0>", "<special1>"} <= set(vocab):  # XLM, FlauBERT
            raise FileNotFoundError(
                f"{path}: Moses pre-tokenization is not supported; choose a tokenizer of "
                "another kind, or save it as tokenizer.json"
            )
        if declared_tokens.tokenizer_class == "CLIP" or declared_tokens.model_type == "clip":
            vocab_and_merges.check_bytes(path, vocab)
            frame = vocab_and_merges.clip_special_tokens(path, roles, vocab)
            backend = lowercase_byte_bpe_pipeline(vocab, merges, roles["unk"])
            return _add_tokens(path, backend, frame, declared_tokens), frame
        _check_class(path, declared_tokens, ("OpenAIGPT",))
        lowercase = not any(p != p.lower() for p in vocab)
        backend = pipeline.bpe_pipeline(
            vocab, merges, roles.get("unk"), end_of_word="</w>", lowercase=lowercase
        )
    else:
        vocab_and_merges.check_bytes(path, vocab)
        backend = vocab_and_merges.byte_level_pipeline(path, declared_tokens, vocab, merges)
        around = vocab_and_merges.byte_level_template(declared_tokens, roles, set(vocab))
    frame = _special_tokens_of_roles(path, roles, declared_tokens, backend, around)
    return _add_tokens(path, backend, frame, declared_tokens), frame


def _read_sentencepiece(
    path: Path, declared_tokens: DeclaredTokens
) -> tuple[Tokenizer, SpecialTokens]:
    """Read a SentencePiece file, with the additions of its family's code."""
    try:
        model = sentencepiece.parse_sentencepiece(read_bytes(path))
        family = sentencepiece_families.family_of(
            model,
            declared_tokens.tokenizer_class,
            declared_tokens.model_type,
            numbered_elsewhere=(path.parent / "dict.txt").is_file(),
        )
        model = sentencepiece_families.renumber_pieces(family, model)
        backend = pipeline.sentencepiece_pipeline(
            model, sentencepiece_families.normalizer_rules(family, declared_tokens.config)
        )
        frame = sentencepiece_families.special_tokens_of(family, model, declared_tokens.config)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a SentencePiece model: {error}") from error
    added = {token.content for token in declared_tokens.added_tokens.values()}
    for name in special_token_names(frame):
        if (
            backend.token_to_id(name) is None
            and name not in added
            and name not in family.added_tokens
        ):
            raise ValueError(
                f"{path}: the vocabulary lacks {name!r}, which models of this kind need"
            )
    return _add_tokens(path, backend, frame, declared_tokens), frame


def _add_tokens(
    path: Path, backend: Tokenizer, special_tokens: SpecialTokens, declared_tokens: DeclaredTokens
) -> Tokenizer:
    """Add the tokens of other files to a vocabulary, then the special tokens."""
    own = (special_tokens.mask,) if declared_tokens.tokenizer_class in _MASK_TAKES_SPACE else ()
    declared_tokens_module.add_declared_tokens(path, backend, declared_tokens, lstrip=own)
    return pipeline.add_special_tokens(backend, special_tokens, lstrip=own)


def _native_special_tokens(
    declared_tokens: DeclaredTokens, backend: Tokenizer
) -> SpecialTokens | None:
    """Return the special tokens written by Unmask."""
    written = declared_tokens.config.get("unmask")
    location = declared_tokens.folder / "tokenizer_config.json"
    frame = written_special_tokens(written, location) if isinstance(written, dict) else None
    if frame is None:
        return None
    for name in (*special_token_names(frame), *sentinel_names(frame)):
        if backend.token_to_id(name) is None:
            raise ValueError(
                f"{location}: unmask names {name!r}, which tokenizer.json does not have"
            )
    return frame


def written_special_tokens(written: Mapping[str, Any], location: Path) -> SpecialTokens | None:
    """Read special tokens written by Unmask.

    Raises:
        ValueError: they are not special tokens, or of format 1.
    """
    if "frame" in written:
        raise ValueError(f"{location}: unmask.frame is of format 1, which is not read")
    if "special_tokens" in written:
        return from_dict(
            SpecialTokens, written["special_tokens"], f"{location}: unmask.special_tokens"
        )
    return None


def _token_roles(
    declared_tokens: DeclaredTokens, backend: Tokenizer | None, special: set[str]
) -> dict[str, str]:
    """Return the token of each role: as declared, otherwise by usual names in `special`."""
    names = special if backend is None else set(backend.get_vocab(with_added_tokens=True))
    names = names | {token.content for token in declared_tokens.added_tokens.values()}
    names |= {name for name in declared_tokens.roles.values() if name is not None}
    roles: dict[str, str] = {}
    for role, usual in _USUAL_NAMES.items():
        if role in declared_tokens.roles:
            name = declared_tokens.roles[role]
            if name is not None and name in names:
                roles[role] = name
        elif name := next((n for n in usual if n in special), None):
            roles[role] = name
    return roles


def _special_tokens_of_roles(
    path: Path,
    roles: Mapping[str, str],
    declared_tokens: DeclaredTokens,
    backend: Tokenizer,
    template: tuple[tuple[str, ...], ...],
) -> SpecialTokens:
    """Build special tokens from roles and the template (before, between and after texts)."""
    before, between, after = template
    if not roles:
        raise ValueError(
            f"{path}: no special tokens are known; "
            "tokenizer_config.json must name them (pad_token, eos_token, ...)"
        )
    end = roles.get("eos") or roles.get("sep")
    # Padding is masked, so that any token serves where a model has none, as in GPT-2.
    pad = roles.get("pad") or end or next(iter(roles.values()))
    start = _decoder_start(declared_tokens, backend) or roles.get("bos") or roles.get("cls")
    if start is None:
        # T5 starts with padding; a decoder without a start token, with the end of the previous
        # text.
        start = pad if after or end is None else end
    vocab = _token_names(declared_tokens, backend)
    n_sentinels = 0
    while f"<extra_id_{n_sentinels}>" in vocab:
        n_sentinels += 1
    return SpecialTokens(
        pad=pad,
        start=start,
        end=end,
        mask=roles.get("mask"),
        unknown=roles.get("unk"),
        prefix=before,
        separator=between,
        suffix=after,
        n_sentinels=n_sentinels,
    )


def _token_names(declared_tokens: DeclaredTokens, backend: Tokenizer) -> set[str]:
    """Return the tokens added to a vocabulary; of T5, whose class adds its sentinels, all."""
    if declared_tokens.tokenizer_class == "T5" or (
        not declared_tokens.tokenizer_class and declared_tokens.model_type == "t5"
    ):
        return set(backend.get_vocab(with_added_tokens=True))
    added = (*backend.get_added_tokens_decoder().values(), *declared_tokens.added_tokens.values())
    return {token.content for token in (*added, *declared_tokens.extra_special_tokens)}


def _without_language_tokens(
    special_tokens: SpecialTokens, special: set[str], backend: Tokenizer
) -> SpecialTokens:
    """Remove language tokens, which are chosen for each text, from the template.

    Their position distinguishes mBART from mBART-50.
    """
    around, vocab = (
        {*special_tokens.prefix, *special_tokens.suffix},
        backend.get_vocab(with_added_tokens=True),
    )
    languages = tuple(name for name in special if _LANGUAGE_TOKEN.fullmatch(name))
    if not around & set(languages):
        return special_tokens
    return replace(
        special_tokens,
        start=special_tokens.end or special_tokens.start,
        prefix=tuple(name for name in special_tokens.prefix if name not in languages),
        separator=MBART.separator,
        suffix=tuple(name for name in special_tokens.suffix if name not in languages),
        languages=tuple(sorted(languages, key=lambda name: vocab[name])),
        language_first=bool(set(special_tokens.prefix) & set(languages)),
    )


def _with_language_embeddings(
    path: Path, special_tokens: SpecialTokens, model_config: Mapping[str, Any]
) -> SpecialTokens:
    """Add the names of language embeddings (`lang2id` of XLM's config.json), if there are any.

    Raises:
        ValueError: they are not numbered from 0.
    """
    named = model_config.get("lang2id")
    if model_config.get("model_type") != "xlm" or not isinstance(named, Mapping) or len(named) < 2:
        return special_tokens
    if model_config.get("use_lang_emb") is False:
        return special_tokens
    ids: Mapping[str, Any] = {str(name): i for name, i in named.items()}
    if sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise ValueError(
            f"{path.parent / 'config.json'}: lang2id must number {len(ids)} languages from 0, got "
            f"{sorted(map(str, ids.values()))}"
        )
    names = tuple(sorted(ids, key=lambda name: int(ids[name])))
    return replace(special_tokens, languages=names, language_embeddings=True)


def _decoder_start(declared_tokens: DeclaredTokens, backend: Tokenizer) -> str | None:
    i = declared_tokens.model_config.get("decoder_start_token_id")
    return backend.id_to_token(i) if isinstance(i, int) and i >= 0 else None


def _probe_template(path: Path, backend: Tokenizer) -> tuple[tuple[str, ...], ...]:
    """Find the tokens that a pipeline adds before, between and after texts, by probing it."""
    with limits.tokenizers_errors_as_value_error(f"{path} fails on a text"):
        probes = (
            t for t in ("a", "1", ".", "the") if backend.encode(t, add_special_tokens=False).ids
        )
        probe = next(probes, None)
    if probe is None:
        raise ValueError(f"{path}: even 'a' and '1' have no tokens")
    with limits.tokenizers_errors_as_value_error(f"{path} fails on a text"):
        single, pair = backend.encode(probe), backend.encode(probe, probe)
    order = [
        list(dict.fromkeys(i for i in x.sequence_ids if i is not None)) for x in (single, pair)
    ]
    if order != [[0], [0, 1]]:
        raise ValueError(f"{path}: post_processor must keep one text, or two in their order")
    before, after = _tokens_outside(single.tokens, single.sequence_ids, 0, 0)
    start, end = _tokens_outside(pair.tokens, pair.sequence_ids, 0, 1)
    if (before, after) != (start, end):
        raise ValueError(f"{path}: the special tokens around one text and around two must agree")
    last = len(pair.sequence_ids) - 1 - pair.sequence_ids[::-1].index(0)
    return before, tuple(pair.tokens[last + 1 : pair.sequence_ids.index(1)]), after


def _tokens_outside(
    tokens: list[str], sequence: list[int | None], first: int, last: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    end = len(sequence) - sequence[::-1].index(last)
    return tuple(tokens[: sequence.index(first)]), tuple(tokens[end:])


def _check_class(
    path: Path, declared_tokens: DeclaredTokens, allowed_classes: tuple[str, ...]
) -> None:
    """Reject a folder whose tokenizer class treats such a file differently."""
    if declared_tokens.tokenizer_class not in (*allowed_classes, ""):
        raise ValueError(
            f"{path}: a {declared_tokens.config['tokenizer_class']} does more than this file says; "
            "save it with transformers as tokenizer.json first"
        )
