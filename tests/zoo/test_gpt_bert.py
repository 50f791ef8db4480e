"""GPT-BERT against the released code's formulas, in float64, its layout, and both of its ways."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import tokenizer
from test_leak import build, depends
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch, Tokens, Visibility
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.evaluation.likelihood import ContextContinuation, token_likelihoods
from unmask.evaluation.word_perplexity import is_causal_model
from unmask.generation.decode import generate
from unmask.generation.fill_mask import fill
from unmask.generation.settings import generation_config
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.depth_weighted_average import DepthWeightedAverage
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS, preset_for_config

V, D, H, E, FF, LAYERS, T = 50, 24, 4, 6, 40, 3, 90
BUCKETS, LONGEST = 8, 100
EPS = 1e-5


def small(**changes) -> Model:
    """Make a small one whose every weight shows; texts are longer than the exact buckets."""
    preset = MODELS["gpt-bert-mini"]
    a = preset.architecture
    assert isinstance(a, Architecture)
    position = replace(a.position, max_distance=LONGEST, max_positions=LONGEST, n_buckets=BUCKETS)
    sizes = {"vocab_size": V, "d_model": D, "n_heads": H, "d_ff": FF, "n_layers": LAYERS}
    a = replace(a, **sizes, position=position, **changes)
    model = replace(preset, architecture=a).build().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, mean=0.5 if p.dim() == 1 else 0.0, std=0.3)
    return model


def theirs(model: Model) -> dict[str, Tensor]:
    """The weights by the released code's names, in float64."""
    return {
        n: x.double()
        for n, x in MODELS["gpt-bert-mini"]
        .weight_names.to_external(model.trained_weights())
        .items()
    }


def norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + EPS).sqrt()


def bucket(away: int) -> int:
    """Distances up to half of the buckets are their own, then as many share one as there are."""
    middle = BUCKETS // 2
    if abs(away) <= middle:
        return away
    share = math.log(min(abs(away), LONGEST - 1) / middle) / math.log((LONGEST - 1) / middle)
    return int(math.copysign(middle + math.ceil(share * (middle - 1) - 1e-12), away))


def by_formula(w: dict[str, Tensor], ids: Tensor, seen: Tensor) -> Tensor:
    """What leaves the last sum, before the heads' first norm."""
    t = ids.shape[1]
    rows = torch.tensor([[BUCKETS - 1 + bucket(q - k) for k in range(t)] for q in range(t)])
    distances = F.layer_norm(
        w["embedding.relative_embedding"], (D,), w["embedding.relative_layer_norm.weight"],
        w["embedding.relative_layer_norm.bias"], EPS,
    )  # fmt: skip
    x = norm(w["embedding.word_embedding.weight"][ids])
    stream = [x]

    def mixed(x: Tensor) -> Tensor:
        stream.append(x)
        alphas = w[f"transformer.dwa_modules.alphas.{len(stream) - 2}"]
        return sum((a * y for a, y in zip(alphas, stream, strict=True)), torch.zeros_like(x))

    for i in range(LAYERS):
        at = f"transformer.attention_layers.{i}"

        def of(x: Tensor, name: str, at: str = at) -> Tensor:
            return F.linear(x, w[f"{at}.{name}.weight"], w[f"{at}.{name}.bias"])

        n = norm(x)
        q, k = of(n, "in_proj_qk").unflatten(-1, (2, H, E)).unbind(2)
        v, gate = of(n, "in_proj_vg").chunk(2, -1)
        q_of, k_of = of(distances, "in_proj_qk")[rows].unflatten(-1, (2, H, E)).unbind(2)
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k)
        scores = scores + torch.einsum("bqhe,qkhe->bhqk", q, k_of)
        scores = scores + torch.einsum("bkhe,qkhe->bhqk", k, q_of)
        probabilities = (scores / math.sqrt(3 * E)).masked_fill(~seen, -torch.inf).softmax(-1)
        y = torch.einsum("bhqk,bkhe->bqhe", probabilities, v.unflatten(-1, (H, E))).flatten(2)
        x = mixed(x + of(norm(y * F.gelu(gate)), "out_proj"))
        up, gate = (norm(x) @ w[f"transformer.mlp_layers.{i}.mlp.1.weight"].T).chunk(2, -1)
        y = norm(up * F.gelu(gate, approximate="tanh"))
        x = mixed(x + y @ w[f"transformer.mlp_layers.{i}.mlp.4.weight"].T)
    return x


def classified(w: dict[str, Tensor], x: Tensor) -> Tensor:
    """Scores: norm, linear, gelu, norm, linear by the table of tokens."""
    first = F.linear(norm(x), *(w[f"classifier.nonlinearity.1.{p}"] for p in ("weight", "bias")))
    bias = w["classifier.nonlinearity.5.bias"]
    return F.linear(norm(F.gelu(first)), w["embedding.word_embedding.weight"], bias)


def close(ours: Tensor, expected: Tensor) -> None:
    assert float((ours.double() - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_hidden_states_and_scores_equal_released_formulas(causal: bool) -> None:
    model = small()
    ids = torch.randint(0, V, (2, T), generator=torch.Generator().manual_seed(1))
    seen = torch.ones(T, T, dtype=torch.bool)
    expected = by_formula(theirs(model), ids, seen.tril() if causal else seen)
    hidden = model.hidden_states(Batch(inputs=ids, visibility=Visibility(causal=causal)))
    close(hidden, norm(expected))
    close(model.language_head.logits(hidden), classified(theirs(model), expected))


def test_weights_have_the_released_layout_and_round_trip() -> None:
    model, names = small(), MODELS["gpt-bert-mini"].weight_names
    state = names.to_external(model.trained_weights())
    shapes = {
        "embedding.word_embedding.weight": (V, D),
        "embedding.relative_embedding": (2 * BUCKETS - 1, D),
        "embedding.relative_layer_norm.weight": (D,),
        "embedding.relative_layer_norm.bias": (D,),
        "classifier.nonlinearity.1.weight": (D, D),
        "classifier.nonlinearity.1.bias": (D,),
        "classifier.nonlinearity.5.bias": (V,),
    }
    for i in range(LAYERS):
        at = f"transformer.attention_layers.{i}"
        for name, rows in (("in_proj_qk", 2 * D), ("in_proj_vg", 2 * D), ("out_proj", D)):
            shapes |= {f"{at}.{name}.weight": (rows, D), f"{at}.{name}.bias": (rows,)}
        shapes |= {f"transformer.mlp_layers.{i}.mlp.1.weight": (2 * FF, D)}
        shapes |= {f"transformer.mlp_layers.{i}.mlp.4.weight": (D, FF)}
    for i in range(2 * LAYERS):
        shapes |= {f"transformer.dwa_modules.alphas.{i}": (i + 2,)}
    assert {n: tuple(x.shape) for n, x in state.items()} == shapes
    kept = model.trained_weights()
    beside = {
        "classifier.nonlinearity.5.weight": state["embedding.word_embedding.weight"],
        "transformer.attention_layers.0.position_indices": torch.zeros(LONGEST, LONGEST).long(),
    }
    read = names.from_external({**state, **beside}, {n: x.shape for n, x in kept.items()})
    assert (read.missing, read.unexpected) == ((), ())
    assert all(torch.equal(read.tensors[n], x) for n, x in kept.items())


def test_folder_round_trips_and_nameless_config_is_recognized(tmp_path: Path) -> None:
    preset, model = MODELS["gpt-bert-mini"], MODELS["gpt-bert-mini"].build().initialize(0)
    write_folder(tmp_path, model, preset, None)
    loaded = load_folder(tmp_path)
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert loaded.preset.architecture == preset.architecture
    assert loaded.model.head_specs == preset.heads
    released = {
        "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1, "hidden_size": 384,
        "intermediate_size": 1280, "max_position_embeddings": 512, "position_bucket_size": 32,
        "num_attention_heads": 6, "num_hidden_layers": 12, "vocab_size": 8192,
        "layer_norm_eps": 1.0e-5,
    }  # fmt: skip
    assert preset_for_config(released).family == "gpt-bert"
    small_one = MODELS["gpt-bert-small"]
    assert small_one.config_mapping.to_architecture(released) == small_one.architecture
    with pytest.raises(ValueError, match="has only GPT-BERT's positions"):
        preset.config_mapping.from_architecture(MODELS["deberta-mini"].architecture)


def test_layer_sums_start_as_identity_with_exact_gradients() -> None:
    torch.manual_seed(0)
    mix = DepthWeightedAverage(2)
    x, y, z = (torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mixed = mix.double().start(x)
    assert torch.equal(mixed(y), y)
    assert torch.equal(mixed(z), z)
    for weight in mix.parameters():
        torch.nn.init.normal_(weight)

    def ours(x: Tensor, y: Tensor, z: Tensor, *weights: Tensor) -> Tensor:
        mixed = mix.start(x)
        return mixed(z * mixed(y))

    assert torch.autograd.gradcheck(ours, (x, y, z, *mix.parameters()), atol=1e-5)
    first, second = mix.parameters()
    a = first[0] * x + first[1] * y
    assert torch.allclose(ours(x, y, z), second[0] * x + second[1] * y + second[2] * z * a)


SPECIAL = SpecialTokenIds(
    vocab_size=50, pad=3, start=1, end=2, mask=4, unknown=0, prefix=(1,), separator=(1,),
    all_ids=frozenset({0, 1, 2, 3, 4}),
)  # fmt: skip


@pytest.mark.parametrize("part", MODELS["gpt-bert-mini"].objective.component_names)
def test_no_position_sees_its_target(part: str) -> None:
    text = Tokens(np.arange(10, 30), np.ones(20, np.int64))
    model, objective = build("gpt-bert"), MODELS["gpt-bert-mini"].objective.components_by_name[part]
    e = objective(text, SPECIAL, np.random.default_rng(1))
    seen = depends(model, pad_examples([e], SPECIAL))
    expected = torch.ones_like(seen) if part == "masked" else torch.ones_like(seen).tril()
    assert torch.equal(seen, expected)
    is_target = np.flatnonzero(e.targets != IGNORE_INDEX)
    assert len(is_target)
    known = [1, *text.ids]  # as it would be read, were nothing hidden
    assert e.targets[is_target].tolist() == [known[i + 1] for i in is_target]
    if part == "masked":
        assert (e.inputs[is_target + 1] == SPECIAL.mask).mean() > 0.5


@torch.no_grad()
def test_blank_is_predicted_one_position_earlier() -> None:
    preset, words = MODELS["gpt-bert-mini"], tokenizer("bert")
    model = preset.with_vocabulary(words.special_ids).build().initialize(3).eval()
    texts = ["the old [MASK] sleeps", "[MASK] king", "the [MASK] and the [MASK]"]
    filled = fill(model, words, texts, top_k=3)
    special = words.special_ids
    for text, one in zip(texts, filled, strict=True):
        ids = [
            *special.prefix,
            *words.encode(text, allow_special=True).ids.tolist(),
            *special.suffix,
        ]
        scores = model.language_head.logits(model.hidden_states(Batch(inputs=torch.tensor([ids]))))[
            0
        ]
        positions = [i for i, token in enumerate(ids) if token == special.mask]
        assert len(positions) == len(one.blanks)
        for position, blank in zip(positions, one.blanks, strict=True):
            probabilities = scores[position - 1, : words.vocab_size].softmax(-1)
            probabilities[list(special.all_ids)] = 0  # no answers
            best = probabilities.topk(3)
            output = [c.probability for c in blank]
            assert output == pytest.approx(best.values.tolist(), rel=1e-4)


@torch.no_grad()
def test_likelihood_is_that_of_causal_tokens() -> None:
    model = build("gpt-bert")
    assert is_causal_model(model)
    assert not model.decoder_architecture.causal
    for ids in ([9, 7, 30, 11, 4], [8, 21, 13, 40, 22, 31, 5, 17, 29]):
        pair = ContextContinuation(context=tuple(ids[:2]), continuation=tuple(ids[2:]))
        (likelihoods,) = token_likelihoods(model, SPECIAL, [pair])
        read = torch.tensor([[1, *ids]])
        batch = Batch(inputs=read, visibility=Visibility(causal=True))
        logs = model.language_head.logits(model.hidden_states(batch))[0].log_softmax(-1)
        expected = sum(float(logs[i, ids[i]]) for i in range(2, len(ids)))
        assert likelihoods.log_likelihood == pytest.approx(expected, rel=1e-4)


def test_model_generates_causally_and_encodes_bidirectionally() -> None:
    model = build("gpt-bert")
    (generated,) = generate(
        model, [[1, 9, 7]], replace(SPECIAL, end=None), generation_config(max_new_tokens=4)
    )
    read = torch.tensor([[1, 9, 7, *generated]])
    batch = Batch(inputs=read, visibility=Visibility(causal=True))
    best = model.language_head.logits(model.hidden_states(batch))[0].detach().argmax(-1)
    assert generated == best[2:-1].tolist()
    both = depends(model, Batch(inputs=read))
    assert both.all()
