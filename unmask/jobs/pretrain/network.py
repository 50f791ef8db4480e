"""The initial network of a run: random, or from given weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import torch

from unmask.checkpoints.generator import load_generator_weights
from unmask.checkpoints.huggingface.read import (
    LoadedModel,
    as_large,
    load_folder,
    resolve_model_folder,
)
from unmask.checkpoints.huggingface.tokenizer import check_vocabulary_size
from unmask.checkpoints.subword_head import fill_subwords
from unmask.config import to_dict
from unmask.heads.model import Model
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.model.backbones.transformer import Architecture
from unmask.model.previous_token_heads import init_previous_token_heads
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.tokenizers.vocabulary import CodePointsWithSubwords, WordBytesWithWords
from unmask.training.config import Recipe
from unmask.training.optimizers.layerwise import (
    layerwise_lr_decay,
    parameters_by_layer_with_tied_output,
)
from unmask.zoo.preset import Published


def load_initial_model(recipe: Recipe, preset: Published) -> LoadedModel | None:
    """Load the initial weights of a run into the network of its recipe.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: the weights are of another family, lack a tokenizer, or do not fit the network.
    """
    if recipe.init_from is None:
        return None
    folder = resolve_model_folder(recipe.init_from)
    opened = _convert_family(
        load_folder(folder, as_large(preset.heads, folder), recipe.seed), preset
    )
    filled = load_generator_weights(folder, opened.model) | fill_subwords(folder, opened.model)
    opened = replace(opened, missing=tuple(n for n in opened.missing if n not in filled))
    if opened.preset.family != preset.family:
        raise ValueError(
            f"{recipe.init_from}: is a {opened.preset.family} model, but the recipe's is "
            f"{preset.family}"
        )
    if opened.tokenizer is not None:
        opened.tokenizer.check_single_vocabulary(f"pretraining on from {recipe.init_from}")
    if opened.tokenizer is None and recipe.tokenizer is None and preset.reads_texts:
        raise ValueError(f"{recipe.init_from}: has no tokenizer; give one with --tokenizer")
    if _lacks_output_vocabulary(opened.tokenizer, preset):  # not published: trained anew
        opened = replace(opened, tokenizer=None)
    preset_of_run = replace(
        preset, architecture=opened.preset.architecture, heads=opened.model.head_specs
    )
    preset_of_run = apply_recipe(
        replace(preset_of_run, unused_pooler=opened.preset.unused_pooler), recipe
    )
    model = preset_of_run.build_without_memory()
    weights = opened.model.state_dict()
    shapes = {name: x.shape for name, x in model.state_dict().items()}
    if mismatched := [
        n for n in shapes.keys() | weights.keys() if shapes.get(n) != _weight_shape(weights, n)
    ]:
        given, requested = to_dict(opened.preset.architecture), to_dict(preset_of_run.architecture)
        differences = [
            f"{name} {value} (it has {given.get(name)})"
            for name, value in requested.items()
            if value != given.get(name)
        ]
        raise ValueError(
            f"{recipe.init_from}: its weights do not fit the recipe's architecture: "
            f"{', '.join(differences) or min(mismatched)}; leave that out, or train from scratch"
        )
    model.load_state_dict(weights, assign=True)
    learned = model.requires_grad_(True)
    if learned.pooler is not None:
        learned.pooler.requires_grad_(False)
    return replace(opened, preset=preset_of_run, model=learned)


def _lacks_output_vocabulary(tokenizer: Tokenizer | None, preset: Published) -> bool:
    """Return whether a tokenizer lacks the output vocabulary of a preset's loss."""
    needs_vocabulary = isinstance(
        preset.tokenizer.vocabulary, CodePointsWithSubwords | WordBytesWithWords
    )
    return (
        needs_vocabulary
        and tokenizer is not None
        and tokenizer.special_ids.output_vocabulary is None
    )


def _convert_family(loaded_model: LoadedModel, preset: Published) -> LoadedModel:
    """Convert a model of the family that the preset is initialized from."""
    conversion, target_family = (
        preset.weight_converters.get(loaded_model.preset.family),
        preset.architecture,
    )
    if conversion is None or not isinstance(target_family, Architecture):
        return loaded_model
    model = conversion(loaded_model.model, target_family)
    result = replace(
        preset,
        architecture=model.architecture,
        heads=model.head_specs,
        unused_pooler=model.unused_pooler,
    )
    return replace(loaded_model, preset=result, model=model)


def _weight_shape(weights: Mapping[str, torch.Tensor], name: str) -> torch.Size | None:
    return weights[name].shape if name in weights else None


def learning_rate_factors(recipe: Recipe, model: Model) -> dict[str, float] | None:
    """Return the learning-rate factor of each parameter; None if all are 1."""
    if recipe.layerwise_lr_decay == 1:
        return None
    return layerwise_lr_decay(
        parameters_by_layer_with_tied_output(model), recipe.layerwise_lr_decay
    )


def build_network(
    preset: Published,
    recipe: Recipe,
    special_ids: SpecialTokenIds,
    initial_model: LoadedModel | None = None,
) -> Model:
    """Build the initial network of a run for the special tokens of its data.

    Raises:
        ValueError: the tokenizer has more ids than the weights have embeddings; or the network does
            not support previous-token heads or a memory.
    """
    own = preset.with_vocabulary(special_ids)
    if initial_model is None:
        model = own.build().initialize(recipe.seed)
        if recipe.memory_length:
            model.check_supports_memory()
        if recipe.init_previous_token_heads:
            init_previous_token_heads(model.networks, recipe.init_previous_token_heads)
        return model
    check_vocabulary_size(
        special_ids.vocab_size, initial_model.model.vocab_size, str(recipe.init_from)
    )
    model = initial_model.model
    if recipe.memory_length:
        model.check_supports_memory()
    other = {name: spec for name, spec in own.heads.items() if spec != model.head_specs[name]}
    for name, spec in other.items():
        model.add_head(name, spec)
    if other:
        new = tuple(f"heads.{name}." for name in other)
        model.initialize(recipe.seed, [n for n in model.own_weights() if not n.startswith(new)])
    return model.train()


def reinitialized_heads(
    preset: Published, initial_model: LoadedModel, special_ids: SpecialTokenIds
) -> list[str]:
    """Return the heads with given weights for another output vocabulary."""
    wanted = preset.with_vocabulary(special_ids).heads
    heads = [n for n, spec in wanted.items() if spec != initial_model.model.head_specs[n]]
    return [n for n in heads if not any(x.startswith(f"heads.{n}.") for x in initial_model.missing)]


def freeze_parameters(model: Model, patterns: Sequence[str]) -> None:
    """Freeze parameters.

    Raises:
        ValueError: no parameter matches, or none is left to train.
    """
    names = dict(model.named_parameters())
    for pattern in patterns:
        frozen = [name for name in names if fnmatchcase(name, pattern)]
        if not frozen:
            raise ValueError(
                f"frozen: no parameter is called {pattern!r} (they are {', '.join(names)})"
            )
        for name in frozen:
            names[name].requires_grad_(False)
    if not any(p.requires_grad for p in names.values()):
        raise ValueError(f"frozen: {', '.join(patterns)} leaves nothing to train")
