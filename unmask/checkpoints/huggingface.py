"""Read and write folders in the Hugging Face layout.

That is config.json, model.safetensors and the tokenizer's files.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from unmask.box import BOX
from unmask.checkpoints import bilm, llama2c
from unmask.checkpoints.declared import check_depth, check_missing, check_tied
from unmask.checkpoints.tensors import (
    SAFETENSORS,
    as_weight,
    read_json,
    read_model_tensors,
    write_tensors,
)
from unmask.checkpoints.written import check_written
from unmask.config import from_dict, to_dict
from unmask.files import utf8
from unmask.heads.both_sides import BothSides
from unmask.heads.characters import CharactersInTurn
from unmask.heads.labels import AnyOf, Choice, Labels, OneOf, Pool, TokenLabels
from unmask.heads.language import AfterSource, ByMask, ByNext, Language
from unmask.heads.model import HeadSpec, Model, kept_with
from unmask.heads.pooler import Pooler
from unmask.heads.recurrent import RecurrentTags
from unmask.heads.spans import Spans
from unmask.hiding.objectives import GPT, MASKED, XLNET, Objective
from unmask.model.architecture import source_of
from unmask.model.decoder import MaskDecoder
from unmask.model.elmo import ElmoArchitecture
from unmask.model.names import Names, Read
from unmask.published.card import Published, longest, resized, spans, token_labels
from unmask.published.catalogue import MODELS, family
from unmask.published.own import OWN as OWN_WORDS
from unmask.published.own import unsaid
from unmask.published.unread import UNREAD, why_not
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special
from unmask.vectors.learning import METHODS, Method

HUB = "hf:"
SEVERAL_LABELS = "multi_label_classification"
"""The `problem_type` of a model whose labels may hold together."""
POOLER = "pooler.dense.weight"
OWN = "unmask"
"""Where config.json says heads that no class of transformers has; their tensors have our names."""
SOURCE = "source"
"""The folder in a model's with the tokenizer of sources that have a vocabulary of their own."""
WANTED_FILES = ("*.json", "*.safetensors", "pytorch_model*.bin", "*.txt", "*.model")


@dataclass(frozen=True)
class _Own:
    """What stands under `OWN`."""

    heads: Mapping[str, HeadSpec]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model as a folder holds it."""

    card: Published
    """The family's card with this folder's architecture and heads."""
    model: Model
    tokenizer: Tokenizer | None
    labels: tuple[str, ...]
    """Names of the classes, for a model that classifies."""
    missing: tuple[str, ...]
    """Weights that the folder does not have: they are freshly initialized."""
    extra: tuple[str, ...]
    """Tensors of the folder that this model has no place for."""


def locate(name: str | Path) -> Path:
    """Return the folder of a path, a model in the package, or `hf:owner/name` of the Hub, fetched.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
    """
    text = str(name)
    if not text.startswith(HUB):
        folder = Path(name) if Path(name).is_dir() else BOX.get(text)
        if folder is None:
            raise FileNotFoundError(f"{name}: no such folder")
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    owner, _, revision = text.removeprefix(HUB).partition("@")
    try:
        found = snapshot_download(
            owner, revision=revision or None, allow_patterns=list(WANTED_FILES)
        )
    except HFValidationError as error:
        raise ValueError(f"{text}: {str(error).splitlines()[0]}") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        why = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{text}: cannot be fetched from the Hub: {why}") from None
    return Path(found)


def open_folder(
    folder: Path,
    heads: Mapping[str, HeadSpec] | None = None,
    seed: int = 0,
    *,
    over: Mapping[str, Tensor] | None = None,
) -> Opened:
    """Open a model of any family of the catalogue.

    Args:
        folder: has config.json and weights, or a .bin file of llama2.c, or ELMo's options.json and
            .hdf5 file; a tokenizer if there is one.
        heads: what the model shall have; None: what `architectures` in config.json says.
        seed: fills the weights that the folder does not have.
        over: tensors, named as in the folder, that stand in place of the folder's own.

    Raises:
        FileNotFoundError: config.json or the weights are missing.
        ValueError: a file is damaged, the family is unknown, or weights, configuration and
            tokenizer do not fit.
    """
    check_written(folder)
    card, theirs = described(folder)
    check_depth(folder, card, theirs)
    state = _tensors(folder, card) | dict(over or {})
    labels = label_names(theirs)
    specs = dict(_heads(card, theirs, labels, folder) if heads is None else heads)
    check_tied(folder, card, theirs, state, language="language" in specs and over is None)
    specs = _as_stored(specs, card.names, state, card.fields.language(theirs))
    card = replace(card, pooled=_pooled(card.names, specs, state))
    model, read = _fill(card, specs, state, folder, seed)
    tokenizer = _tokenizer(folder, model.vocab_size)
    source = source_of(card.architecture)
    if tokenizer is not None and source is not None:
        tokenizer = tokenizer.reading(_source_tokenizer(folder / SOURCE, source.vocab_size))
    objective = _objective(card, specs) if heads is None else card.objective
    return Opened(
        card=replace(card, heads=specs, objective=objective),
        model=model.eval(),
        tokenizer=tokenizer,
        labels=labels if any(map(labels_named, specs.values())) else (),
        missing=read.missing,
        extra=read.extra,
    )


_OBJECTIVES = {"masked": MASKED, "next_token": GPT, "permuted": XLNET.objective}
"""By what a language head is asked."""


def _objective(card: Published, specs: Mapping[str, HeadSpec]) -> Objective | Method:
    """Return what a model was asked, as far as its heads tell that it is not what its card asks."""
    asked = [spec.term for spec in specs.values() if isinstance(spec, Language)]
    if isinstance(card.objective, METHODS) or not set(asked) - set(card.objective.asks):
        return card.objective
    return _OBJECTIVES.get(asked[0], card.objective)


def is_model(folder: Path) -> bool:
    """Say whether a folder has what `configuration` reads."""
    return (folder / "config.json").is_file() or any(one.find(folder) for one in _OTHERS)


def configuration(folder: Path) -> Mapping[str, Any]:
    """Read what config.json says, or what it would say of a folder in another layout.

    Those are llama2.c's, and that of ELMo's released code.

    Raises:
        FileNotFoundError: it is neither.
        ValueError: the file is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        for one in _OTHERS:
            if (other := one.find(folder)) is not None:
                return one.configuration(other)
    return read_json(path)


_OTHERS = (llama2c, bilm)


def _tensors(folder: Path, card: Published) -> dict[str, Tensor]:
    if not (folder / "config.json").is_file():
        if (other := llama2c.find(folder)) is not None:
            return llama2c.tensors(other)
        if (other := bilm.find(folder)) is not None:
            return bilm.tensors(other, cast(ElmoArchitecture, card.architecture))
    return {_modern(name): x for name, x in read_model_tensors(folder).items()}


def described(folder: Path) -> tuple[Published, dict[str, Any]]:
    """Return what a folder says of its model: its card, and the configuration, keys filled in.

    Raises:
        FileNotFoundError: it has no configuration.
        ValueError: the family is unknown, or a key holds what it may not hold.
    """
    said = configuration(folder)
    try:
        card = family(said)
        theirs = card.fields.keys.complete(said)
        architecture, labels = card.fields.read(theirs), _labels(card, theirs)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    name = str(theirs.get("_name_or_path") or folder.name)
    return replace(card, architecture=architecture, name=name, labels=labels), theirs


def _labels(card: Published, theirs: Mapping[str, Any]) -> Labels | None:
    """Return the card's head of labels, reading what their configuration says."""
    if card.labels is None:
        return None
    labels = replace(card.labels, **card.fields.labels(theirs))
    if card.fields.pools is None or theirs.get(card.fields.pools[0]) is None:
        return labels
    key, pools = card.fields.pools
    return replace(labels, pool=cast(Pool, pools[theirs[key]]))


def _modern(name: str) -> str:
    """Rename what the first releases called gamma and beta."""
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def label_names(theirs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the labels that a configuration of theirs says."""
    table = theirs.get("id2label")
    if isinstance(table, dict):
        return tuple(str(table[k]) for k in sorted(table, key=int))
    return tuple(f"LABEL_{i}" for i in range(theirs.get("num_labels") or 2))


def labels_named(spec: HeadSpec) -> bool:
    """Say whether a head scores labels that have names."""
    return isinstance(spec, Labels | TokenLabels | RecurrentTags)


def heads_without_class(card: Published, specs: Mapping[str, HeadSpec]) -> dict[str, str]:
    """Describe the heads that no class of transformers has, by name.

    The class is the one that has the most of the others.
    """
    own = {n: said for n, s in specs.items() if (said := _without_class(card, s)) is not None}
    left = [n for n, s in specs.items() if n not in own and kept_with(s)]
    classes = card.fields.classes_of(card.architecture)
    class_of = max((k for k in classes if set(k) <= set(left)), key=len)
    return own | {n: type(specs[n]).__name__ for n in left if n not in class_of}


def differs_there(card: Published, specs: Mapping[str, HeadSpec]) -> str | None:
    """Say what transformers does otherwise than a model that it opens; None: all is equal."""
    there = card.fields.in_transformers
    return card.fields.differs(card.architecture, specs) if there else None


def opens_where(card: Published, specs: Mapping[str, HeadSpec]) -> str | None:
    """Say what opens a model of which transformers lacks something; None: it opens all of it."""
    if not card.fields.in_transformers:
        return f"{_why_ours(card)}transformers has no class of this network: `unmask.load` opens it"
    other = differs_there(card, specs)
    own = heads_without_class(card, specs)
    said = [line for line in (_lacking(card, specs, own), other) if line is not None]
    return "; ".join(said) or None


def _lacking(card: Published, specs: Mapping[str, HeadSpec], own: Mapping[str, str]) -> str | None:
    """Say which head of a model transformers does not open, and, where it has a class, why not."""
    if not own:
        return next((said for spec in specs.values() if (said := _otherwise(spec))), None)
    which, rest = ("its", "model below the head") if len(own) == len(specs) else ("a", "rest")
    name, head = next(iter(own.items()))
    why = why_not(name, card.fields.classes[()])
    return (
        f"{which} head is {head}, which transformers does not have"
        f"{'' if why is None else f' ({why})'}: that opens the {rest}, `unmask.load` opens both"
    )


def _why_ours(card: Published) -> str:
    """Say which keys of a network its family's format cannot say; nothing: the format is ours."""
    if not card.fields.model_type.startswith(OWN_WORDS):
        return ""
    keys = unsaid(card, next(one for one in MODELS.values() if one.family == card.family))
    said = ", ".join(f"architecture.{key}" for key in keys) or "this architecture"
    return f"the format of {card.family} cannot say {said}, so it is in our words: "


def _otherwise(spec: HeadSpec) -> str | None:
    """Say what the other library does otherwise with a head that it has."""
    forward = spec.forward if isinstance(spec, Language) else None
    if isinstance(forward, ByMask) and forward.source is not None:
        return "transformers fills masks with it and does not write; `unmask.load` does both"
    if isinstance(forward, ByNext):
        return (
            "each place names the token after its own, which transformers takes for its own; "
            "`unmask.load` fills masks as they were learned"
        )
    if isinstance(forward, AfterSource) and forward.whole:
        return (
            "it sees a prompt as a whole, which transformers reads forward; `unmask.load` does as "
            "it was learned"
        )
    return None


def _without_class(card: Published, spec: HeadSpec) -> str | None:
    if isinstance(spec, RecurrentTags | CharactersInTurn):
        return type(spec).__name__
    if isinstance(spec, TokenLabels | Spans):
        usual = token_labels(card) if isinstance(spec, TokenLabels) else spans(card)
        return None if spec.map == usual.map else f"{type(spec).__name__}(map={spec.map})"
    if not isinstance(spec, Labels) or card.labels is None:
        return None
    pools = {} if card.fields.pools is None else card.fields.pools[1]
    pool = {} if spec.pool in pools.values() else {"pool": spec.pool}
    read = {**pool, "layers": spec.layers}
    other = [f"{n}={x!r}" for n, x in read.items() if x != getattr(card.labels, n)]
    return f"{type(spec).__name__}({', '.join(other)})" if other else None


def _heads(
    card: Published, theirs: Mapping[str, Any], labels: tuple[str, ...], folder: Path
) -> Mapping[str, HeadSpec]:
    """Find which heads the configuration's class of theirs has, or which of ours it says.

    The card's own where it says none or an unknown one.
    """
    if OWN in theirs:
        return from_dict(_Own, theirs[OWN], f"{folder / 'config.json'}: {OWN}").heads
    wanted = (cast("Sequence[str]", theirs.get("architectures")) or ("",))[0]
    if wanted in UNREAD and card.fields.heads_of(wanted) is None:
        raise ValueError(
            f"{folder / 'config.json'}: architectures: {wanted} is not read: {UNREAD[wanted]}"
        )
    kept = tuple(name for name, spec in card.heads.items() if kept_with(spec))
    found = card.fields.heads_of(wanted)
    names = kept if found is None else found
    made = heads_named(names, card, theirs, len(labels))
    forward = wanted in card.fields.forward.values()
    return {name: reading_forward(s) for name, s in made.items()} if forward else made


def as_large(heads: Mapping[str, HeadSpec], folder: Path) -> dict[str, HeadSpec]:
    """Return heads, those of a vocabulary of their own with as many words as a folder's have.

    Raises:
        FileNotFoundError, ValueError: as `open_folder`.
    """
    theirs = described(folder)[1]
    if OWN not in theirs:
        return dict(heads)
    own = from_dict(_Own, theirs[OWN], f"{folder / 'config.json'}: {OWN}").heads
    return {n: _as_large(spec, own.get(n)) for n, spec in heads.items()}


def _as_large(spec: HeadSpec, own: HeadSpec | None) -> HeadSpec:
    if isinstance(spec, BothSides) and isinstance(own, BothSides):
        return replace(spec, size=own.size)
    return spec


def heads_named(
    names: Collection[str], card: Published, theirs: Mapping[str, Any], n_labels: int
) -> dict[str, HeadSpec]:
    """Return the heads of a class of theirs, by our names, as a configuration of theirs says."""
    made: dict[str, HeadSpec] = {}
    for name in names:
        if name == "label" and card.labels is not None:
            several = theirs.get("problem_type") == SEVERAL_LABELS
            loss = AnyOf() if several else OneOf()
            made[name] = replace(card.labels, n_labels=n_labels, loss=loss)
        elif name == "choice" and card.labels is not None:
            made[name] = replace(card.labels, term=name, n_labels=1, loss=Choice())
        elif name == "token_label":
            made[name] = replace(token_labels(card), n_labels=n_labels)
        elif name == "spans":
            made[name] = spans(card)
        else:
            made[name] = {**card.others, **card.heads}[name]
    return made


def reading_forward(spec: HeadSpec) -> HeadSpec:
    """Return a head as a network that reads forward has it."""
    if not isinstance(spec, Language):
        return spec
    return replace(spec, term="next_token", decoder=None, forward=None)


def _as_stored(
    heads: Mapping[str, HeadSpec],
    names: Names,
    state: Mapping[str, Tensor],
    said: Mapping[str, Any],
) -> dict[str, HeadSpec]:
    """Read off the tensors whether scores have a matrix or a bias of their own, a decoder places.

    Configurations are not to be trusted here. A bias that is all zeros is none: most families that
    can have one never learn it.
    """
    own = names.theirs_of("heads.language.out.weight", state)
    table = names.theirs_of("backbone.tokens.weight", state)
    tied = own is None or table is None or torch.equal(own, table)
    bias = names.theirs_of("heads.language.bias", state)
    biased = bias is not None and bool(bias.any())

    def found(spec: HeadSpec) -> HeadSpec:
        if not isinstance(spec, Language):
            return spec
        read = replace(spec, **said, tied=tied, bias=spec.bias or biased)
        return replace(read, decoder=None) if _placeless(read.decoder, names, state) else read

    return {name: found(spec) for name, spec in heads.items()}


def _pooled(
    names: Names, heads: Mapping[str, HeadSpec], state: Mapping[str, Tensor]
) -> Pooler | None:
    """Return the map above the first token that a folder has, if no head holds it."""
    if names.theirs_of(POOLER, state) is None:
        return None
    dense = [n for n, spec in heads.items() if isinstance(spec, Labels) and spec.dense]
    held = {one for name in dense for one in names.names_of(f"heads.{name}.dense.weight")}
    return None if held.intersection(names.names_of(POOLER)) else Pooler()


def _placeless(decoder: Any, names: Names, state: Mapping[str, Tensor]) -> bool:
    table = "heads.language.decoder.table"
    there = names.theirs_of(f"{table}.weight", state) is not None
    return isinstance(decoder, MaskDecoder) and not (there and names.laid_out_for(table, state))


def _fill(
    card: Published,
    heads: Mapping[str, HeadSpec],
    state: Mapping[str, Tensor],
    folder: Path,
    seed: int,
) -> tuple[Model, Read]:
    with torch.device("meta"):
        model = _built(folder, card, heads)
    wanted = {n: p.shape for n, p in model.named_parameters()}
    try:
        read = _read(card, state, wanted)
        tensors = {name: as_weight(name, x).clone() for name, x in read.tensors.items()}
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    if any(name.startswith("backbone.") for name in read.missing):
        lacking = [name for name in read.missing if name.startswith("backbone.")]
        raise ValueError(
            f"{folder}: the weights lack {len(lacking)} tensors of the configuration's network: "
            f"{', '.join(lacking[:3])}"
        )
    check_missing(folder, wanted, read)
    computed = any(True for _ in model.buffers())  # of no file
    if read.missing or computed:
        model = card.build(heads).initialize(seed, known=read.tensors)
    model.load_state_dict(tensors, strict=False, assign=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith("pooler."))
    return model, read


def _built(folder: Path, card: Published, heads: Mapping[str, HeadSpec]) -> Model:
    try:
        return card.build(heads)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    except RuntimeError as error:  # a product of sizes that is no number of bytes
        raise ValueError(f"{folder / 'config.json'}: no machine holds it: {error}") from None


def _read(card: Published, state: Mapping[str, Tensor], wanted: Mapping[str, torch.Size]) -> Read:
    """Find our tensors: of heads that theirs lack by our names, all others by theirs."""
    own = {n: x for n, x in state.items() if n.startswith("heads.") and n in wanted}
    for name, tensor in own.items():
        if tensor.shape != wanted[name]:
            raise ValueError(
                f"tensor {name} has shape {list(tensor.shape)}, "
                f"the configuration says {list(wanted[name])}"
            )
    read = card.names.from_theirs(
        {n: x for n, x in state.items() if n not in own},
        {n: shape for n, shape in wanted.items() if n not in own},
    )
    return replace(read, tensors={**read.tensors, **own})


def _tokenizer(folder: Path, rows: int) -> Tokenizer | None:
    try:
        tokenizer = Tokenizer.load(folder)
    except FileNotFoundError:
        if bilm.find(folder) is None:
            return None
        tokenizer = bilm.tokenizer()
    check_fit(tokenizer, rows, folder)
    return tokenizer


def _source_tokenizer(folder: Path, rows: int) -> Tokenizer:
    """Read the tokenizer of sources, without which the model reads nothing."""
    found = _tokenizer(folder, rows)
    if found is None:
        raise ValueError(f"{folder}: has no tokenizer, with which the model would read sources")
    return found


def check_fit(tokenizer: Tokenizer, rows: int, where: Path | str) -> None:
    """Refuse a tokenizer that knows more ids than the model has vectors.

    Raises:
        ValueError: so it is.
    """
    if tokenizer.size > rows:
        raise ValueError(
            f"{where}: the tokenizer has {tokenizer.size:,} ids, "
            f"but the model only {rows:,} token vectors"
        )


def write_folder(
    folder: Path,
    model: Model,
    card: Published,
    tokenizer: Tokenizer | None,
    labels: Sequence[str] = (),
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model into `folder`.

    config.json, generation_config.json, model.safetensors and the tokenizer's files. The files are
    written one after another: the caller makes the folder whole. Of heads that transformers has no
    class for it opens the backbone only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    theirs = config_of(model, card, tokenizer, labels)
    _write_json(folder / "config.json", theirs | {"dtype": str(dtype).removeprefix("torch.")})
    weights = {k: v.to(dtype) for k, v in model.kept().items()}
    others = heads_without_class(card, model.specs)
    own = {k: v for k, v in weights.items() if k.startswith(tuple(f"heads.{n}." for n in others))}
    named = {k: v for k, v in weights.items() if k not in own}
    state = card.names.to_theirs(named)
    if theirs.get("tie_word_embeddings") is False and not card.fields.always_tied(theirs):
        state |= card.names.copies(named)
    if set(model.specs) - set(others) <= {"language"}:
        state = card.names.zeros(weights) | state
    if all(n in others or not kept_with(s) for n, s in model.specs.items()):
        state = card.names.without_prefix(state)
    if theirs["architectures"][0] in card.fields.aliased:
        state = card.names.aliased(state)
    write_tensors(folder / SAFETENSORS, {**state, **own})
    if tokenizer is not None:
        tokenizer.save(folder, segments=None if model.stack.tells_segments else False)
        if tokenizer.source is not None:
            tokenizer.source.save(folder / SOURCE)
        if "language" in model.specs and (model.stack.causal):
            _write_json(folder / "generation_config.json", _generating(tokenizer.special, model))


def config_of(
    model: Model,
    card: Published,
    tokenizer: Tokenizer | None = None,
    labels: Sequence[str] = (),
) -> dict[str, Any]:
    """Return their config.json of a model of ours."""
    own = heads_without_class(card, model.specs)
    classes = card.fields.classes_of(card.architecture)
    specs = {n: s for n, s in model.specs.items() if kept_with(s)}
    has = specs.keys() - own.keys()
    heads = next(k for k in classes if set(k) == has)
    theirs = card.fields.write(resized(model.architecture, model.vocab_size))
    theirs |= {"model_type": card.fields.model_type, "architectures": [classes[heads]]}
    if own or not _tells(card, specs):
        theirs[OWN] = {"heads": to_dict(specs)}
    language = model.specs.get("language")
    if isinstance(language, Language):
        theirs["tie_word_embeddings"] = language.tied
        if "scaled" in card.fields.language({}):
            theirs["scale_decoder_outputs"] = language.scaled
        theirs |= card.fields.of_language(language)
    if labels:
        theirs["id2label"] = {str(i): name for i, name in enumerate(labels)}
        theirs["label2id"] = {name: i for i, name in enumerate(labels)}
    theirs |= _pool(model.specs, card)
    if labels and (problem := _problem(model.specs)) is not None:
        theirs["problem_type"] = problem
    if tokenizer is not None:
        theirs |= _special_ids(tokenizer.special, model)
    return theirs


def _tells(card: Published, specs: Mapping[str, HeadSpec]) -> bool:
    """Say whether their configuration tells what a language head is asked, and how it says text."""
    spec = specs.get("language")
    cards = (one for one in MODELS.values() if one.family == card.family)
    usual = next(cards, card)
    theirs = {**usual.others, **usual.heads}.get("language")
    if not isinstance(spec, Language) or not isinstance(theirs, Language):
        return True
    if isinstance(spec.forward, ByMask):  # UniLM's format says so
        return spec.term == theirs.term
    return (spec.term, spec.forward) == (theirs.term, theirs.forward)


def _problem(specs: Mapping[str, HeadSpec]) -> str | None:
    """Return their `problem_type`: by which loss their class learns, and what its scores mean."""
    spec = specs.get("label")
    if not isinstance(spec, Labels) or isinstance(spec.loss, Choice):
        return None
    if isinstance(spec.loss, AnyOf):
        return SEVERAL_LABELS
    return "regression" if spec.n_labels == 1 else "single_label_classification"


def _pool(specs: Mapping[str, HeadSpec], card: Published) -> dict[str, str]:
    """Return what their configuration says of the pool of a head of labels."""
    if card.fields.pools is None:
        return {}
    key, pools = card.fields.pools
    used = [spec.pool for spec in specs.values() if isinstance(spec, Labels)]
    said = [theirs for theirs, ours in pools.items() if ours in used]
    return {key: said[0]} if said else {}


def _special_ids(special: Special, model: Model) -> dict[str, int]:
    ids = {"pad_token_id": special.pad}
    if model.stack.causal:
        if special.end is not None:
            ids["eos_token_id"] = special.end
        if model.stack.cross:
            ids["decoder_start_token_id"] = special.start
            if special.lead:
                ids["bos_token_id"] = special.lead[0]
        else:
            ids["bos_token_id"] = special.start
    return ids


def _generating(special: Special, model: Model) -> dict[str, int]:
    """Return their generation_config.json: what is read before an answer is said by force there."""
    forced = {"forced_bos_token_id": special.lead[0]} if model.stack.cross and special.lead else {}
    return _special_ids(special, model) | forced


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_bytes(utf8(json.dumps(data, indent=2, ensure_ascii=False) + "\n"))


def longest_text(card: Published) -> int | None:
    """Return how many tokens a text may have for this model; None where there is no such limit."""
    return longest(card.architecture)
