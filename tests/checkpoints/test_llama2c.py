"""Files of llama2.c: a small Llama whose pairs of turning numbers are neighbors."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import V, llama, saved

import unmask
from unmask.batch import Batch, Visibility
from unmask.checkpoints import llama2c
from unmask.checkpoints.huggingface.read import load_folder
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig

STORIES = Path(__file__).parents[3] / "shared" / "data" / "checkpoints" / "stories260K"


def neighbors(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Lay the two halves of each head out as pairs of neighbors, row by row."""
    half = x.shape[0] // heads // 2
    rows = [h * 2 * half + i + j * half for h in range(heads) for i in range(half) for j in (0, 1)]
    return x[rows]


def written(model, path: Path, *, tied: bool) -> Path:
    """Write a model of transformers as llama2.c does."""
    c, state = model.config, model.state_dict()
    header = struct.pack(
        "<7i", c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads,
        c.num_key_value_heads, V if tied else -V, c.max_position_embeddings,
    )  # fmt: skip

    def layers(name: str, heads: int = 0) -> list[torch.Tensor]:
        found = [state[f"model.layers.{i}.{name}.weight"] for i in range(c.num_hidden_layers)]
        return [neighbors(x, heads) for x in found] if heads else found

    angles = torch.full((2 * c.max_position_embeddings * c.head_dim // 2,), 7.0)
    blocks = [
        state["model.embed_tokens.weight"],
        *layers("input_layernorm"),
        *layers("self_attn.q_proj", c.num_attention_heads),
        *layers("self_attn.k_proj", c.num_key_value_heads),
        *layers("self_attn.v_proj"),
        *layers("self_attn.o_proj"),
        *layers("post_attention_layernorm"),
        *layers("mlp.gate_proj"),
        *layers("mlp.down_proj"),
        *layers("mlp.up_proj"),
        state["model.norm.weight"],
        angles,
        *([] if tied else [state["lm_head.weight"]]),
    ]
    numbers = torch.cat([x.flatten() for x in blocks]).numpy().astype("<f4")
    path.write_bytes(header + numbers.tobytes())
    return path


@pytest.mark.parametrize("tied", [False, True])
@torch.no_grad()
def test_file_opens_as_the_written_model(tied: bool, tmp_path: Path) -> None:
    reference = llama(rms_norm_eps=1e-5, tie_word_embeddings=tied)
    same = load_folder(saved(reference, tmp_path / "theirs"))
    folder = tmp_path / "bin"
    folder.mkdir()
    written(reference, folder / "model.bin", tied=tied)
    loaded = load_folder(folder)
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert loaded.preset.architecture == same.preset.architecture
    weights = same.model.own_weights()
    assert weights.keys() == loaded.model.own_weights().keys()
    assert all(torch.equal(x, weights[n]) for n, x in loaded.model.own_weights().items())


def test_truncated_or_foreign_file_is_not_recognized(tmp_path: Path) -> None:
    path = written(llama(), tmp_path / "model.bin", tied=False)
    whole = path.read_bytes()
    assert llama2c.find_weights(tmp_path) == path
    for damaged in (whole[:-4], whole + b"\0", whole[:20], b"", b"\xff" * 28 + whole[28:]):
        path.write_bytes(damaged)
        assert llama2c.find_weights(tmp_path) is None
        with pytest.raises(ValueError, match=r"model\.bin: not a file of llama2\.c"):
            llama2c.read_weights(path)
        with pytest.raises(FileNotFoundError, match=r"config\.json: no such file"):
            load_folder(tmp_path)
    assert np.frombuffer(whole[:4], "<i4")[0] == 32


@pytest.fixture(scope="module")
def stories():
    if not STORIES.is_dir():
        pytest.skip(f"{STORIES.name}: the published checkpoint is not beside this repository")
    return unmask.load(STORIES)


@pytest.mark.thorough
def test_published_model_generates_its_published_story(stories) -> None:
    (generated,) = generate(
        stories.model, [[1]], stories.tokenizer.special_ids, GenerationConfig(max_new_tokens=256)
    )
    story = (STORIES / "greedy_reference.txt").read_text()
    # the published text has one token more than the model has positions
    assert stories.tokenizer.decode(generated) == story[:-1]
    assert stories.generate("", GenerationConfig(max_new_tokens=256)) == story[:-1]


@torch.no_grad()
def test_published_model_has_its_published_loss(stories) -> None:
    text = (
        "Once upon a time, there was a little boy named Tim. "
        "He liked to play with his red ball in the park."
    )
    ids = torch.tensor([[1, *stories.tokenizer.encode(text).ids.tolist()]])
    assert ids.shape == (1, 33)
    batch = Batch(
        inputs=ids[:, :-1], visibility=Visibility(causal=True), targets=ids[:, 1:].contiguous()
    )
    assert stories.model(batch).loss.item() == pytest.approx(0.6032, abs=5e-5)
