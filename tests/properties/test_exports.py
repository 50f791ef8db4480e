"""Exports: each class of the reference library gives equal scores, or the difference is named."""

import importlib
import inspect
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.huggingface.differences import (
    heads_without_transformers_class,
    opening_note,
    transformers_difference,
)
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import to_external_config, write_folder
from unmask.finetuning.formulations.build import heads_for_task
from unmask.heads.classification.label_losses import ChoiceCrossEntropy
from unmask.heads.classification.sequence_classification import (
    PredictionHeadTransform,
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.inference.export import model_card
from unmask.inference.pipeline import Pipeline
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.backbones.captioning.two_towers import TwoTowerArchitecture
from unmask.model.backbones.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderArchitecture,
    TwoStackArchitecture,
)
from unmask.model.backbones.transformer import Architecture
from unmask.model.backbones.vision_transformer import (
    MaskedAutoencoder,
    VisionArchitecture,
    picture_batch,
)
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.model.layers.embeddings.patches import join_patches
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.inputs.pictures import MASK_ID, Pictures
from unmask.tasks.all_kinds import resolve_options
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.task import Task, TaskColumns
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published, question_answering_head, token_classification_head
from unmask.zoo.unsupported_classes import UNSUPPORTED_CLASSES

V, D = 210, 32
TOLERANCE = 2e-5  # relative to the largest number of the reference, float32
UNTRAINED = ("pooler.", "mask_emb")
"""Of their weights that an export may lack: no score reads them."""


def shrunk(a: Any) -> Any:
    """Return the same kind of network, so small that all of the catalogue fits."""
    if isinstance(a, TwoStackArchitecture):
        sides = {name: shrunk(getattr(a, name)) for name in ("encoder", "decoder")}
        if not isinstance(a, EncoderDecoderArchitecture):
            return replace(a, **sides)
        return replace(
            a,
            **sides,
            source_encoder=None if a.source_encoder is None else shrunk(a.source_encoder),
        )
    if isinstance(a, TwoTowerArchitecture):
        return replace(a, text=shrunk(a.text), vision=shrunk(a.vision), d_projection=16)
    small: dict[str, Any] = {
        "d_model": D, "d_ff": 4 * D, "n_heads": 4, "n_layers": 2,
        "embedding_size": None if a.embedding_size is None else 16,
    }  # fmt: skip
    if isinstance(a, CanineArchitecture):
        return replace(a, **small, n_hash_buckets=512, position=LearnedPositions(512))
    if isinstance(a, VisionArchitecture):
        return replace(a, **small, position=replace(a.position, rows=3, columns=3))
    assert isinstance(a, Architecture)
    schemes = getattr(a.position, "schemes", ())
    patterns = (len(a.attention_window), len(a.layers.types), len(schemes))
    small |= {
        "vocab_size": V,
        "n_layers": max(2, *patterns),
        "head_dim": None if a.head_dim is None else 12,
        "n_kv_heads": min(a.n_kv_heads, 2) if a.n_kv_heads is not None else None,
    }
    return replace(a, **small)


def specs_of(card: Published, names: tuple[str, ...]) -> dict[str, HeadSpec]:
    """Return the heads of a class of theirs."""
    assert card.classification_head is not None or not {"label", "choice"} & set(names)
    made: dict[str, HeadSpec] = {}
    for name in names:
        if name == "label":
            made[name] = replace(card.classification_head, n_labels=3)  # type: ignore[type-var]
        elif name == "choice":
            made[name] = replace(
                card.classification_head, term=name, n_labels=1, loss=ChoiceCrossEntropy()
            )  # type: ignore[type-var]
        elif name == "token_label":
            made[name] = replace(token_classification_head(card), n_labels=3)
        elif name == "spans":
            made[name] = question_answering_head(card)
        else:
            made[name] = {**card.extra_heads, **card.heads}[name]
    return made


@dataclass(frozen=True)
class Case:
    """A card, small, with the heads of one class of theirs."""

    card: Published
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.card.config_mapping.class_names[self.names]

    @property
    def head(self) -> str:
        return " and ".join(self.names) or "none"


def _cases() -> dict[str, Case]:
    """List all, each network of a family once."""
    found, seen = {}, set[tuple[Any, ...]]()
    for name, preset in MODELS.items():
        if not preset.config_mapping.in_transformers:
            continue
        preset = replace(preset, architecture=shrunk(preset.architecture))
        for names in preset.config_mapping.class_names:
            if not set(names) <= {*preset.heads, *preset.extra_heads, *HEADS}:
                continue  # SpanBERT asks for no next sentence
            if "patches" in names and not preset.architecture.mask_token:
                continue  # its class has a vector for hidden patches
            key = (preset.config_mapping.model_type, repr(preset.architecture), names)
            output = repr([preset.heads.get(n) for n in names])
            if (*key, output) not in seen:
                seen.add((*key, output))
                found[f"{name}: {' and '.join(names) or 'none'}"] = Case(preset, names)
    return found


HEADS = ("label", "choice", "token_label", "spans")
CASES = _cases()
QUICK = ("modernbert-mini: spans", "modernbert-mini: token_label", "xlnet-mini: choice",
         "llama-mini: spans", "mistral-mini: spans", "olmo-2-mini: label",
         "deberta-mini: language", "deberta-v3-mini: language", "canine-mini: label",
         "bart-mini: label", "xlnet-mini: label", "t5-v1_1-mini: language",
         "longformer-mini: label", "unilm-mini: language and next_sentence")  # fmt: skip
"""One of each kind, and all that is not plainly equal."""


def fill(model: Model) -> Model:
    """Give every weight a size at which differences show and rounding does not grow."""
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=drawn)
            if parameter.dim() > 1:
                parameter.copy_(0.15 * noise)
            else:
                parameter.add_(0.1 * noise)
    return model.eval()


def ours(model: Model, ids: Tensor, lengths: list[int], target_inputs: Tensor) -> dict[str, Tensor]:
    """Return the scores of each head; of none, the hidden states."""
    t = ids.shape[1]
    document = torch.where(torch.arange(t) < torch.tensor(lengths)[:, None], 0, -1)
    last = torch.tensor(lengths) - 1
    if isinstance(model.backbone, EncoderDecoder):
        batch = Batch(
            inputs=target_inputs, visibility=Visibility(causal=True), source=ids,
            source_visibility=Visibility(document=document), last_token_positions=last,
        )  # fmt: skip
        t = target_inputs.shape[1]
    else:
        sight = Visibility(document=document, causal=model.decoder_architecture.causal)
        whole = {"label", "spans", "choice"} & model.head_specs.keys()
        first = GlobalTokens(torch.zeros(len(ids), 1, dtype=torch.long))
        features = (first,) if whole else ()
        batch = Batch(inputs=ids, visibility=sight, last_token_positions=last, features=features)
        batch = model.pad_for_network(batch)
    hidden = model.hidden_states(batch)
    found: dict[str, Tensor] = {}
    for name, spec in model.head_specs.items():
        if isinstance(spec, LanguageModeling):
            found[name] = model.language_head.logits(hidden)[:, :t]
        elif spec.is_kept_after_pretraining:
            (term,) = {getattr(spec, "term", name), name} & set(
                model(batch, return_logits=True).logits
            )
            found[name] = model(batch, return_logits=True).logits[term]
    return found or {"hidden": hidden[:, :t]}


THEIRS = {
    "language": ("prediction_logits", "logits"),
    "next_sentence": ("seq_relationship_logits", "logits"),
    "sentence_order": ("sop_logits",),
    "hidden": ("last_hidden_state",),
}


def theirs(reference: Any, names: list[str], **given: Tensor) -> dict[str, Tensor]:
    """Return the same of a model of theirs."""
    if names == ["choice"]:
        given = {key: x[:, None] for key, x in given.items()}
    with torch.no_grad():
        out = reference(**given, output_hidden_states=names == ["hidden"])
    if out.get("decoder_hidden_states") is not None:
        out["last_hidden_state"] = out["decoder_hidden_states"][-1]
    found: dict[str, Tensor] = {}
    for name in names:
        if name == "spans":
            found[name] = torch.stack((out.start_logits, out.end_logits), -1)
        else:
            keys = THEIRS.get(name, ("logits",))
            found[name] = next(out[key] for key in keys if out.get(key) is not None)
    return found


def texts(case: Case, reference: Any, t: int, lengths: list[int]) -> dict[str, Tensor]:
    """Draw texts that end as their class expects, padded as the tokenizer of the export does."""
    drawn = torch.Generator().manual_seed(t)
    config = reference.config
    config.pad_token_id = 0 if config.pad_token_id is None else config.pad_token_id
    ids = torch.randint(10, V - 10, (len(lengths), t), generator=drawn)
    mask = (torch.arange(t) < torch.tensor(lengths)[:, None]).long()
    for row, n in enumerate(lengths):
        if config.is_encoder_decoder:
            ids[row, n - 1] = config.eos_token_id
        if config.model_type == "longformer" and case.names in (("spans",), ("choice",)):
            ids[row, [1, 2, n - 1]] = config.sep_token_id
        ids[row, n:] = config.pad_token_id
    return {"input_ids": ids, "attention_mask": mask}


def decoder_inputs(
    case: Case, reference: Any, given: dict[str, Tensor], lengths: list[int]
) -> Tensor:
    """Return what the decoder reads."""
    ids = given["input_ids"]
    start = reference.config.to_dict().get("decoder_start_token_id") or 0
    if case.names in (("label",), ("spans",)):
        return torch.cat((torch.full((len(ids), 1), start), ids[:, :-1]), 1)
    return torch.randint(10, V - 10, (len(ids), 5), generator=torch.Generator().manual_seed(5))


def greatest(case: Case, model: Model, reference: Any, t: int, lengths: list[int]) -> float:
    """Return the greatest difference of all scores, relative to the largest."""
    if case.card.reads_pictures:
        return _greatest_of_pictures(case, model, reference, len(lengths) + (t > 10))
    given = texts(case, reference, t, lengths)
    output = decoder_inputs(case, reference, given, lengths)
    mine = ours(model, given["input_ids"], lengths, output)
    real = given["attention_mask"].bool()
    if case.card.config_mapping.model_type == "xlnet":  # its export's tokenizer puts padding first
        given = {key: _first(x, lengths) for key, x in given.items()}
    more = {"decoder_input_ids": output} if reference.config.is_encoder_decoder else {}
    other = theirs(reference, list(mine), **given, **more)
    found = 0.0
    for name, x in mine.items():
        y = other[name]
        if case.card.config_mapping.model_type == "xlnet" and y.dim() > 2:
            y = torch.stack([_back(row, n) for row, n in zip(y, lengths, strict=True)])
        x, y = x[:, : y.shape[1]], y.reshape(x.shape) if y.numel() == x.numel() else y
        difference = (x - y).abs()
        tokens = difference.dim() > 1 and difference.shape[1] == t and not more
        found = max(found, float((difference[real] if tokens else difference).max()) / _scale(y))
    return found


def _greatest_of_pictures(case: Case, model: Model, reference: Any, b: int) -> float:
    """Return the same of a model of pictures; of hidden patches, of the pictures that it draws."""
    a = case.card.architecture.picture_stack
    assert isinstance(a, VisionArchitecture)
    pixels = torch.randn(b, a.n_channels, *a.image_size, generator=torch.Generator().manual_seed(b))
    if isinstance(a, MaskedAutoencoder):
        return _greatest_of_masked_pictures(case, model, reference, pixels)
    if isinstance(towers := case.card.architecture, TwoTowerArchitecture):
        ids = torch.arange(4 * b).view(b, 4)
        ids[:, -1] = V - 1 if towers.end_id is None else towers.end_id
        batch = Batch(inputs=ids, features=(Pictures(pixels),))
        y = reference(input_ids=ids, pixel_values=pixels).logits_per_image
        x = model(batch, return_logits=True).logits["contrast"]
        return float((x - y).abs().max()) / _scale(y)
    hidden = torch.arange(a.position.max_positions - a.position.n_special).expand(b, -1) % 3 == 1
    batch = picture_batch(pixels, a, hidden if "patches" in case.names else None)
    if a is not case.card.architecture:  # their class always has the language head
        ids = torch.arange(3 * b).view(b, 3)
        batch = replace(batch, inputs=ids, source=batch.inputs, visibility=Visibility(causal=True))
        y = reference(pixel_values=pixels, decoder_input_ids=ids).logits
        x = model.backbone(batch) @ model.backbone.embedding_table.weight.T
        return float((x - y).abs().max()) / _scale(y)
    states = model.hidden_states(batch)
    if "patches" not in case.names:
        (y,) = theirs(reference, list(case.names) or ["hidden"], pixel_values=pixels).values()
        x = model(batch, return_logits=True).logits["label"] if case.names else states
        return float((x - y).abs().max()) / _scale(y)
    with torch.no_grad():
        y = reference(pixel_values=pixels, bool_masked_pos=hidden).reconstruction
    numbers = model.heads["patches"].pixels(states[:, a.position.n_special :])
    x = join_patches(numbers, a.patch_size, a.position.rows, a.position.columns)
    return float((x - y).abs().max()) / _scale(y)


def _greatest_of_masked_pictures(case: Case, model: Model, reference: Any, pixels: Tensor) -> float:
    """Return the same where patches are left out: of pixels, or of states of the class token."""
    a = case.card.architecture
    assert isinstance(a, MaskedAutoencoder)
    noise = torch.rand(len(pixels), a.n_patches, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = reference(pixel_values=pixels, noise=noise)
        batch = picture_batch(pixels, a, theirs.mask.long())
        if not case.names:
            x, y = model.hidden_states(batch)[:, 0], theirs.last_hidden_state[:, 0]
            return float((x - y).abs().max()) / _scale(y)
        targets = torch.where(batch.inputs == MASK_ID, 0, IGNORE_INDEX)
        prediction = model(replace(batch, targets=targets), return_logits=True)
    y = theirs.logits[theirs.mask.bool()]
    y = y.unflatten(-1, (a.patch_size, a.patch_size, -1)).movedim(-1, -3).flatten(-3)
    term = prediction.terms["masked"]
    loss = abs(float(term.total / term.count) / float(theirs.loss) - 1)
    return max(loss, float((prediction.logits["masked"] - y).abs().max()) / _scale(y))


def _scale(x: Tensor) -> float:
    return max(1.0, float(x.abs().max()))


def _first(x: Tensor, lengths: list[int]) -> Tensor:
    """Put the padding of each row first."""
    return torch.stack([torch.cat((row[n:], row[:n])) for row, n in zip(x, lengths, strict=True)])


def _back(row: Tensor, n: int) -> Tensor:
    return torch.cat((row[len(row) - n :], row[: len(row) - n]))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]
)
def test_export_scores_equally_in_transformers_or_says_the_difference(
    name: str, tmp_path: Path
) -> None:
    import transformers as hf

    case = CASES[name]
    preset, specs = case.card, specs_of(case.card, case.names)
    model = fill(preset.build(specs).initialize(0))
    labels = ["a", "b", "c"] if {"label", "token_label"} & set(case.names) else []
    write_folder(tmp_path / "ours", model, preset, None, labels)
    facts = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert facts["architectures"] == [case.kind]
    reference, info = getattr(hf, case.kind).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    reference.eval()
    assert not [n for n in info["missing_keys"] if not any(x in n for x in UNTRAINED)]
    shapes = [(t, lengths) for t in (9, 67) for lengths in ([t, t], [t, t // 2])]
    try:
        with torch.no_grad():
            worst = max([greatest(case, model, reference, t, lengths) for t, lengths in shapes])
    except TypeError:  # theirs does not run
        worst = float("inf")
    differs = transformers_difference(preset, specs)
    assert (worst < TOLERANCE) == (differs is None), worst
    for other in (tmp_path / "ours", tmp_path / "theirs"):
        if differs is not None and "MaskedLM" in case.kind and other.name == "theirs":
            continue  # that class has dropped what it does not read
        if other.name == "theirs":
            reference.save_pretrained(other)
        again = load_folder(other)
        assert again.missing == ()
        assert case.names == () or again.model.head_specs.keys() == specs.keys()
        weights = again.model.own_weights()
        kept = model.trained_weights()
        if "patches" not in case.names and other.name == "theirs":
            kept.pop("backbone.tokens.mask_token", None)  # that class has dropped it
        assert all(torch.equal(x, weights[n]) for n, x in kept.items())


@pytest.mark.parametrize("head", ["label", "token_label", "none"])
def test_canine_equals_reference_with_documented_padding(head: str, tmp_path: Path) -> None:
    import transformers as hf

    case = CASES[f"canine-mini: {head}"]
    model = fill(case.card.build(specs_of(case.card, case.names)).initialize(0))
    write_folder(tmp_path, model, case.card, None, ["a", "b", "c"] if case.names else [])
    reference = getattr(hf, case.kind).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        for t, lengths in ((128, [9, 116]), (256, [130, 199]), (384, [5, 40])):
            assert greatest(case, model, reference, t, lengths) < TOLERANCE
    assert "multiple of 128 characters" in (opening_note(case.card, model.head_specs) or "")


def test_differing_export_is_stated_in_the_model_card(
    tmp_path: Path,
) -> None:
    from small_models import tokenizer

    words = tokenizer("bert")
    for name in ("deberta-mini", "deberta-v2-mini"):
        preset = replace(MODELS[name], architecture=shrunk(MODELS[name].architecture))
        preset = preset.with_vocabulary(words.special_ids)
        pipeline = Pipeline(_opened(preset, words))
        content = (pipeline.save(tmp_path / name) / "README.md").read_text()
        assert "no enhanced mask decoder" in content
        assert 'unmask.load("this folder")' in content
        assert "from transformers import" not in content
    plain = MODELS["bert-tiny"].with_vocabulary(words.special_ids)
    assert "from transformers import" in model_card(_opened(plain, words), {})


def _opened(card: Published, words: Any) -> Any:
    from unmask.checkpoints.huggingface.read import LoadedModel

    return LoadedModel(
        preset=card, model=card.build().initialize(0), tokenizer=words, label_names=(), missing=(),
        unexpected=(),
    )  # fmt: skip


FAMILIES = {
    card.config_mapping.model_type: card
    for card in MODELS.values()
    if card.config_mapping.in_transformers
}
BELOW = {"BartModel", "MBartModel", "MarianModel"}
"""What released folders name whose table is all that the head has."""


def _classes(model_type: str) -> list[str]:
    """Find the classes of a family that the library has."""
    import transformers as hf
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type]
    module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    found = [
        (name, one)
        for name, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, hf.PreTrainedModel) and hasattr(hf, name)
    ]
    own = [name for name, one in found if one.config_class is config]
    return [name for name in own if "pretrained" not in name.lower()]  # those are bases of them


@pytest.mark.parametrize("model_type", FAMILIES)
def test_each_transformers_class_is_written_or_has_a_reason(model_type: str) -> None:
    written = {
        kind
        for preset in MODELS.values()
        if preset.config_mapping.model_type == model_type
        for kind in (
            *preset.config_mapping.class_names.values(),
            *preset.config_mapping.causal_class_names.values(),
        )
    }
    there = set(_classes(model_type))
    assert not there - written - UNSUPPORTED_CLASSES.keys() - BELOW
    assert written <= there


def test_unreadable_classes_exist_and_are_refused_by_name(tmp_path: Path) -> None:
    there = {name for model_type in FAMILIES for name in _classes(model_type)}
    assert UNSUPPORTED_CLASSES.keys() <= there
    preset = replace(MODELS["bert-tiny"], architecture=shrunk(MODELS["bert-tiny"].architecture))
    write_folder(tmp_path, preset.build().initialize(0), preset, None)
    path = tmp_path / "config.json"
    theirs = json.loads(path.read_text())
    for name, why in UNSUPPORTED_CLASSES.items():
        path.write_text(json.dumps(theirs | {"architectures": [name]}))
        with pytest.raises(
            ValueError, match=f"config.json: architectures: {name} is not supported: "
        ):
            load_folder(tmp_path)
        assert why


AUTO_CLASSES: dict[TaskKindName, str] = {
    "classify": "SequenceClassification", "multilabel": "SequenceClassification",
    "pairs": "SequenceClassification", "regress": "SequenceClassification",
    "prefer": "SequenceClassification", "cloze": "SequenceClassification",
    "tag": "TokenClassification", "answer": "QuestionAnswering", "choose": "MultipleChoice",
    "pictures": "ImageClassification",
}  # fmt: skip
"""What a reader of the folder of a fine-tuned model tries first."""
TUNED = {
    card.family: replace(card, architecture=shrunk(card.architecture))
    for card in reversed(MODELS.values())
    if card.config_mapping.in_transformers
}


def head_without_class(spec: HeadSpec, preset: Published) -> HeadSpec:
    """Return a head for the same task that transformers lacks."""
    if isinstance(spec, SequenceClassification):
        pooling = "last" if preset.architecture.encoder_stack.has_summary else "max"
        return replace(spec, pooling=pooling, dense_layer=False)
    if isinstance(spec, TokenClassification):
        return BiLSTMCRF(n_labels=spec.n_labels)
    if isinstance(spec, QuestionAnswering):
        return replace(spec, transform=None if spec.transform else PredictionHeadTransform())
    return spec


@pytest.mark.quick(
    "roberta-pairs", "gpt2-classify", "gpt2-choose", "t5-classify", "flaubert-choose",
    "modernbert-tag", "bart-answer", "vit-pictures",
)  # fmt: skip
@pytest.mark.parametrize("kind", AUTO_CLASSES)
@pytest.mark.parametrize("family", TUNED)
def test_auto_class_opens_the_head_of_a_task_or_refuses_the_folder(
    family: str, kind: TaskKindName, tmp_path: Path
) -> None:
    """No head that was learned here is initialized at random there."""
    import transformers as hf

    preset, auto = TUNED[family], getattr(hf, f"AutoModelFor{AUTO_CLASSES[kind]}")
    columns = TaskColumns(texts=("a", "b")[: 1 + (kind == "pairs")], label="c")
    given = {"pattern": "{a} [MASK]", "label_words": {x: x for x in "xyz"}}
    options = resolve_options(kind, given if kind == "cloze" else {})
    labels = () if kind in ("regress", "prefer", "choose", "answer") else ("x", "y", "z")
    task = Task(task_kind=kind, columns=columns, labels=labels, options=options)
    if preset.reads_pictures != (kind == "pictures"):
        return
    try:
        ((name, usual),) = heads_for_task(task, preset).items()
    except ValueError:
        return  # refused before training
    names = (labels or ("c",)) if usual.has_label_names else ()
    for spec in (usual, head_without_class(usual, preset)):
        folder = tmp_path / str(spec is usual)
        write_folder(folder, preset.build({name: spec}).initialize(0), preset, None, names)
        loaded = load_folder(folder)
        assert (loaded.missing, loaded.unexpected) == ((), ())
        assert loaded.model.head_specs[name].term == spec.term
        class_name = preset.config_mapping.class_names.get((name,), "")
        if spec is usual and AUTO_CLASSES[kind] in class_name:
            reference, info = auto.from_pretrained(folder, output_loading_info=True)
            assert type(reference).__name__ == class_name
            assert not [n for n in info["missing_keys"] if not any(x in n for x in UNTRAINED)]
            assert heads_without_transformers_class(preset, {name: spec}) == {}
            continue
        with pytest.raises((RuntimeError, ValueError)):  # another shape, or no class of the family
            auto.from_pretrained(folder)
        note = opening_note(preset, {name: spec})
        assert note or kind == "choose", "choices may be scored by a class of labels"
        assert hf.AutoModel.from_pretrained(folder) is not None


def test_head_without_class_is_written_under_another() -> None:
    preset = MODELS["flaubert-mini"]
    output = opening_note(preset, specs_of(preset, ("choice",)))
    assert output is not None
    assert "FlaubertForMultipleChoice: it scores an option through a projection" in output
    modern = MODELS["modernbert-mini"]
    plain: dict[str, HeadSpec] = {"token_label": TokenClassification(n_labels=3)}
    assert heads_without_transformers_class(modern, plain) == {
        "token_label": "TokenClassification(transform=None)"
    }
    crf: dict[str, HeadSpec] = {"token_label": BiLSTMCRF(n_labels=3)}
    assert heads_without_transformers_class(modern, crf) == {"token_label": "BiLSTMCRF"}
    with torch.device("meta"):
        model = modern.build(plain)
    assert to_external_config(model, modern)["architectures"] == ["ModernBertModel"]
