"""Show and Tell: equations 10 to 12 by torch's LSTM, captions with a cache and without, folders."""

from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.generation.captions import picture_prompts
from unmask.generation.decode import generate
from unmask.generation.settings import generation_config
from unmask.heads.model import Model
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import picture_batch
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

HOW = ImagePreprocessing(resize=(96, 96))
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), np.uint8)
PICTURES[1:] //= 9
SPECIAL = SpecialTokenIds(vocab_size=50, pad=0, start=0, end=0, all_ids=frozenset({0}))


@pytest.fixture(scope="module")
def model() -> Model:
    model = MODELS["show-and-tell-mini"].with_vocabulary(SPECIAL).build().eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def captioned(model: Model, ids: torch.Tensor) -> Batch:
    """Return the pictures with texts."""
    pixels = torch.from_numpy(np.stack([HOW(picture) for picture in PICTURES]))
    seen = picture_batch(pixels[: len(ids)], model.architecture.picture_stack)
    return Batch(
        inputs=ids,
        visibility=Visibility(causal=True),
        source=seen.inputs,
        features=seen.features,
    )


@torch.no_grad()
def test_the_picture_is_the_first_input_of_the_lstm(model: Model) -> None:
    batch = captioned(model, torch.randint(50, (3, 7)))
    network = model.backbone
    own = network.decoder.layers[0]
    theirs = torch.nn.LSTM(512, 512, batch_first=True)
    theirs.weight_ih_l0.copy_(own.reads.weight)
    theirs.weight_hh_l0.copy_(own.recalls.weight)
    theirs.bias_ih_l0.copy_(own.reads.bias)
    theirs.bias_hh_l0.zero_()
    states = network.encoder(network.source_of(batch))
    first = network.projection(states[:, :1])
    out, _ = theirs(torch.cat((first, network.embedding_table(batch.inputs)), 1))
    torch.testing.assert_close(network(batch), out[:, 1:], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_cached_captions_equal_those_read_anew(model: Model) -> None:
    found = generate(
        model, picture_prompts(model, list(PICTURES), HOW), SPECIAL,
        generation_config(max_new_tokens=8),
    )  # fmt: skip
    for i, caption in enumerate(found):
        ids = [0]
        for _ in range(8):
            hidden = model.backbone(captioned(model, torch.tensor([ids] * 3)))[i, -1:]
            token = int(model.language_head.logits(hidden).argmax())
            if token == 0:
                break
            ids.append(token)
        assert caption == ids[1:]
    assert len({tuple(caption) for caption in found}) > 1


def test_beams_of_a_batch_equal_those_of_each_picture(model: Model) -> None:
    config = generation_config(max_new_tokens=6, beams=20)  # section 4.3.1
    prompts = picture_prompts(model, list(PICTURES), HOW)
    together = generate(model, prompts, SPECIAL, config)
    assert together == [generate(model, [one], SPECIAL, config)[0] for one in prompts]


def test_folders_are_of_our_format(model: Model, tmp_path: Path) -> None:
    preset = MODELS["show-and-tell-mini"].with_vocabulary(SPECIAL)
    write_folder(tmp_path, model, preset, None)
    again = load_folder(tmp_path)
    assert again.preset.architecture == preset.architecture
    weights = again.model.own_weights()
    assert all(torch.equal(x, weights[n]) for n, x in model.own_weights().items())


def test_network_without_pictures_is_one_line(model: Model) -> None:
    with pytest.raises(ValueError, match="describes pictures, and the batch has none"):
        model.hidden_states(Batch(inputs=torch.zeros(1, 3, dtype=torch.long)))
