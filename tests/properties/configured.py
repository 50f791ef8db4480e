"""Folders whose config.json was written by hand, opened by the reference library and by ours."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import reference
import torch

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.model.backbones.captioning.two_towers import TwoTowerArchitecture
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.objectives.inputs.pictures import MASK_ID, Pictures

LLAMAS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3",
          "gemma": "Gemma", "olmo2": "Olmo2"}  # fmt: skip
_LABEL = "ForSequenceClassification"
MAKERS: dict[str, dict[str, Callable[..., Any]]] = {
    "bert": {
        "language": lambda **x: reference.bert("BertForMaskedLM", **x),
        "label": lambda **x: reference.bert(f"Bert{_LABEL}", **x),
    },
    **{
        key: {
            "language": lambda n=name, **x: reference.roberta(name=n, **x),
            "label": lambda n=name, **x: reference.roberta(_LABEL, n, **x),
        }
        for key, name in (
            ("roberta", "Roberta"), ("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert"),
        )
    },
    **{
        key: {
            "language": lambda n=name, **x: reference.llama(name=n, **x),
            "label": lambda n=name, **x: reference.llama(_LABEL, n, **x),
        }
        for key, name in LLAMAS.items()
    },
    "gemma2": {"language": reference.gemma2, "label": lambda **x: reference.gemma2(_LABEL, **x)},
    "gemma3_text": {"language": reference.gemma3},
    "gpt_neox": {"language": reference.neox, "label": lambda **x: reference.neox(_LABEL, **x)},
    "gpt2": {
        "language": reference.gpt2, "label": lambda **x: reference.gpt2(f"GPT2{_LABEL}", **x),
    },
    "openai-gpt": {
        "language": reference.gpt, "label": lambda **x: reference.gpt(f"OpenAIGPT{_LABEL}", **x),
    },
    "albert": {
        "language": lambda **x: reference.albert("ForMaskedLM", **x),
        "label": lambda **x: reference.albert(_LABEL, **x),
    },
    "electra": {
        "language": lambda **x: reference.electra("ForMaskedLM", **x),
        "label": lambda **x: reference.electra(_LABEL, **x),
    },
    "distilbert": {
        "language": reference.distilbert, "label": lambda **x: reference.distilbert(_LABEL, **x),
    },
    "flaubert": {
        "language": reference.flaubert, "label": lambda **x: reference.flaubert(_LABEL, **x),
    },
    "xlm": {"language": reference.xlm, "label": lambda **x: reference.xlm(_LABEL, **x)},
    "deberta": {
        "language": lambda **x: reference.deberta(**{"position_biased_input": True} | x),
        "label": lambda **x: reference.deberta(_LABEL, **x),
    },
    "deberta-v2": {
        "language": lambda **x: reference.deberta_v2(**{"position_biased_input": True} | x),
        "label": lambda **x: reference.deberta_v2(_LABEL, **x),
    },
    "canine": {"label": lambda **x: reference.canine(_LABEL, **x)},
    "mpnet": {
        "language": reference.mpnet, "label": lambda **x: reference.mpnet(_LABEL, **x),
    },
    "longformer": {
        "language": reference.longformer, "label": lambda **x: reference.longformer(_LABEL, **x),
    },
    "modernbert": {
        "language": reference.modernbert, "label": lambda **x: reference.modernbert(_LABEL, **x),
    },
    "xlnet": {"language": reference.xlnet, "label": lambda **x: reference.xlnet(_LABEL, **x)},
    "vit": {"label": reference.vit},
    "deit": {"label": reference.deit},
    "vit_mae": {"patches": reference.vit_mae},
    "vision-encoder-decoder": {"language": reference.vision_encoder_decoder},
    "clip": {"contrast": reference.clip},
    "t5": {"language": reference.t5},
    "mt5": {"language": reference.mt5},
    "bart": {"language": reference.bart},
    "mbart": {"language": reference.mbart},
    "marian": {"language": reference.marian},
}  # fmt: skip
"""By model_type and head: what makes a tiny model of the reference library."""
del MAKERS["olmo2"]["label"]  # our format of it has no such class
TOLERANCE = 1e-4


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the reference library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rewrite(folder: Path, change: Mapping[str, Any], drop: tuple[str, ...] = ()) -> None:
    """Change keys of a folder's config.json by hand."""
    path = folder / "config.json"
    facts = json.loads(path.read_text())
    facts = {k: x for k, x in (facts | dict(change)).items() if k not in drop}
    path.write_text(json.dumps(facts))


def texts(t: int, b: int = 2, seed: int = 1) -> torch.Tensor:
    """Draw ids of no special token."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(6, reference.V, (b, t), generator=draw)


def pictures(config: Mapping[str, Any]) -> torch.Tensor:
    """Draw two pictures of the size that a configuration names."""
    side, channels = config["image_size"], config["num_channels"]
    sides = (side, side) if isinstance(side, int) else tuple(side)
    return torch.randn(2, channels, *sides, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def theirs(made: Any, folder: Path, t: int) -> torch.Tensor:
    """Return the outputs of the reference's class after loading a folder."""
    with quiet():
        model = type(made).from_pretrained(folder, dtype=torch.float32).eval()
        if model.config.model_type == "flaubert" and model.config.pre_norm:
            model.transformer.register_forward_pre_hook(reference.without_cache, with_kwargs=True)
        return reference_outputs(model, t)


@torch.no_grad()
def reference_outputs(model: Any, t: int) -> torch.Tensor:
    """Return the logits of a model of the reference library."""
    if model.config.model_type in ("vit", "deit"):
        return model(pixel_values=pictures(model.config.to_dict())).logits
    if model.config.model_type == "vit_mae":
        facts = model.config.to_dict()
        out = model(pixel_values=pictures(facts), noise=_noise(facts))
        side, channels = facts["patch_size"], facts["num_channels"]
        made = out.logits[out.mask.bool()].unflatten(-1, (side, side, channels))
        return torch.cat((out.loss[None], made.movedim(-1, -3).flatten()))
    if model.config.model_type == "vision-encoder-decoder":
        pixels = pictures(model.config.encoder.to_dict())
        return model(pixel_values=pixels, decoder_input_ids=texts(t)).logits
    if model.config.model_type == "clip":
        pixels = pictures(model.config.vision_config.to_dict())
        ids = _ended(texts(t), model.config.text_config.eos_token_id)
        return model(input_ids=ids, pixel_values=pixels).logits_per_image
    ids, source = texts(t), texts(t - 2, seed=2)
    if model.config.is_encoder_decoder:
        given = {"input_ids": source, "decoder_input_ids": ids}
    else:
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return model(**given, return_dict=True).logits


@torch.no_grad()
def ours(folder: Path, t: int) -> torch.Tensor:
    """Return our outputs."""
    model = load_folder(folder).model
    if isinstance(a := model.architecture, VisionArchitecture):
        own = {"image_size": a.image_size, "num_channels": a.n_channels}
        if "patches" in model.head_specs:
            return _reconstruction(model, a, pictures(own), folder)
        batch = picture_batch(pictures(own), a)
        return model(batch, return_logits=True).logits["label"]
    ids, more = texts(t), {}
    b = len(ids)
    if isinstance(a, TwoTowerArchitecture):
        seen = pictures({"image_size": a.vision.image_size, "num_channels": a.vision.n_channels})
        # The greatest id, as the end token has none
        ids = _ended(ids, reference.V - 1 if a.end_id is None else a.end_id)
        batch = Batch(inputs=ids, visibility=Visibility(causal=True), features=(Pictures(seen),))
        return model(batch, return_logits=True).logits["contrast"]
    if (stack := model.architecture.picture_stack) is not None:
        seen = pictures({"image_size": stack.image_size, "num_channels": stack.n_channels})
        batch = picture_batch(seen, stack)
        more = {"source": batch.inputs, "features": batch.features}
    elif model.decoder_architecture.attends_to_encoder:
        more = {"source": texts(t - 2, seed=2)}
    seen = Visibility(causal=model.decoder_architecture.causal)
    if "label" in model.head_specs:
        more |= {
            "last_token_positions": torch.full((b,), t - 1),
            "features": (GlobalTokens(torch.zeros(b, 1, dtype=torch.long)),),
        }
        batch = Batch(inputs=ids, visibility=seen, **more)
        return model(batch, return_logits=True).logits["label"]
    everywhere = torch.arange(b * t)
    batch = Batch(inputs=ids, visibility=seen, targets=ids, target_positions=everywhere, **more)
    (scores,) = model(batch, return_logits=True).logits.values()
    return scores.unflatten(0, (b, t))


def _ended(ids: torch.Tensor, end: int) -> torch.Tensor:
    """Put the end token behind texts, of the first before its last word."""
    ids = torch.cat((ids, torch.full((len(ids), 1), end)), 1)
    ids[0, -2] = end
    return ids


def _noise(config: Mapping[str, Any]) -> torch.Tensor:
    """Draw by which patches a masked autoencoder hides: those with the largest numbers."""
    side = config["image_size"]
    height, width = (side, side) if isinstance(side, int) else side
    n = (height // config["patch_size"]) * (width // config["patch_size"])
    return torch.rand(2, n, generator=torch.Generator().manual_seed(2))


def _reconstruction(
    model: Any, a: VisionArchitecture, pixels: torch.Tensor, folder: Path
) -> torch.Tensor:
    """Return our loss of hidden patches, and the numbers in their places."""
    from transformers import ViTMAEConfig

    facts = ViTMAEConfig.from_pretrained(folder).to_dict()
    noise = _noise(facts)
    n_seen = int(noise.shape[1] * (1 - facts["mask_ratio"]))
    hidden = torch.ones_like(noise).scatter(1, noise.argsort(1)[:, :n_seen], 0.0).long()
    batch = picture_batch(pixels, a, hidden)
    batch = replace(batch, targets=torch.where(batch.inputs == MASK_ID, 0, IGNORE_INDEX))
    found = model(batch, return_logits=True)
    return torch.cat((found.loss[None], found.logits["masked"].flatten()))


def differ(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return how far two logits are apart, in parts of their size."""
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1.0))
