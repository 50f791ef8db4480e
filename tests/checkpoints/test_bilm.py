"""ELMo's released layout: what bilm-tf said of its own small model, and what is written comes back.

The reference: https://github.com/allenai/bilm-tf, tests/fixtures/model, Apache-2.0.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import unmask
from unmask.batch import Batch
from unmask.checkpoints import elmo
from unmask.checkpoints.huggingface.read import load_folder
from unmask.heads.model import Model
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.layers.embeddings.character_cnn import CharacterCNN
from unmask.tokenizers.output_vocabularies.words import starts_word

h5py = pytest.importorskip("h5py")
FIXTURE = Path(__file__).parents[3] / "shared" / "data" / "checkpoints" / "bilm-tf-elmo-fixture"
SMALL = ElmoArchitecture(
    d_model=8,
    embedding_size=4,
    n_layers=2,
    d_ff=12,
    cell_clip=3.0,
    character_cnn=CharacterCNN(
        character_embedding_size=3, filters=((1, 3), (3, 5)), activation="tanh"
    ),
)


def written(folder: Path, a: ElmoArchitecture = SMALL) -> Model:
    model = Model(a, {}).initialize(0)
    for p in model.parameters():
        torch.nn.init.normal_(p)
    elmo.write_elmo(folder, a, model.own_weights())
    return model


def without_dropout(a: ElmoArchitecture) -> ElmoArchitecture:
    none = {"dropout": 0.0, "input_dropout": 0.0, "final_dropout": 0.0}
    return replace(a, **none)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"cell_clip": None, "n_layers": 1, "residual": False},
        {"character_cnn": replace(SMALL.character_cnn, n_highway_layers=0, activation="relu")},
    ],
)
def test_written_model_reads_back(change: dict, tmp_path: Path) -> None:
    a = replace(SMALL, **change)
    model = written(tmp_path, a)
    loaded = load_folder(tmp_path)
    assert (loaded.missing, loaded.unexpected, loaded.model.head_specs) == ((), (), {})
    assert without_dropout(loaded.preset.architecture) == without_dropout(a)
    for name, x in model.own_weights().items():
        # 1 is taken from biases of forget gates, and added again
        torch.testing.assert_close(loaded.model.own_weights()[name], x, rtol=0, atol=2**-22)
    again = unmask.load(tmp_path).save(tmp_path / "again", format="elmo")
    with (
        h5py.File(tmp_path / elmo.WEIGHTS_FILE) as one,
        h5py.File(again / elmo.WEIGHTS_FILE) as other,
    ):
        names: list[str] = []
        one.visititems(lambda n, x: names.append(n) if isinstance(x, h5py.Dataset) else None)
        for name in names:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=2**-22)
    assert (tmp_path / elmo.OPTIONS_FILE).read_text() == (again / elmo.OPTIONS_FILE).read_text()


def test_gate_order_is_that_of_released_code(tmp_path: Path) -> None:
    model = written(tmp_path)
    cell = model.backbone.backward_layers[1]
    with h5py.File(tmp_path / elmo.WEIGHTS_FILE) as file:
        group = file["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"]
        w, b = torch.from_numpy(group["W_0"][()]), torch.from_numpy(group["B"][()])
        assert (w.shape, group["W_P_0"].shape) == ((4 + 4, 4 * 6), (6, 4))
    x, h = torch.randn(1, 4), torch.randn(1, 4)
    i, new, forget, out = (torch.cat((x, h), -1) @ w + b).chunk(4, -1)
    ours = cell.reads(x) + cell.recalls(h)
    torch.testing.assert_close(ours, torch.cat((i, forget + 1, new, out), -1))


def test_folder_reads_tokenized_texts(tmp_path: Path) -> None:
    written(tmp_path)
    model = unmask.load(tmp_path)
    text = "The U.S. , they 're seventh-seeded ."
    ids = model.tokenizer.encode(text).ids
    assert int(starts_word(ids).sum()) == len(text.split())
    (rows,) = model.embed([text], pooling="none")
    assert rows.shape == (len(ids) + 2, 8)
    model.save(tmp_path / "ours")
    again = unmask.load(tmp_path / "ours")
    np.testing.assert_array_equal(again.embed([text], pooling="none")[0], rows)


@pytest.mark.parametrize(
    ("part", "key", "value", "output"),
    [
        ("lstm", "proj_clip", 5, "must be the same"),
        ("char_cnn", "activation", "selu", "activation must be one of relu, tanh"),
        ("char_cnn", "n_characters", 300, "n_characters must be"),
        ("char_cnn", "filters", [[1, 4], [3, 5]], "has shape"),
        ("lstm", "projection_dim", 6, "projection_dim must be below"),
        ("lstm", "n_layers", 3, "lacks RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0"),
        ("lstm", "dim", None, "options.json: "),
    ],
)
def test_contradicting_options_are_named(
    part: str, key: str, value: object, output: str, tmp_path: Path
) -> None:
    written(tmp_path)
    options = json.loads((tmp_path / elmo.OPTIONS_FILE).read_text())
    options[part][key] = value
    (tmp_path / elmo.OPTIONS_FILE).write_text(json.dumps(options))
    with pytest.raises(ValueError, match=output):
        load_folder(tmp_path)


def test_damaged_files_and_links_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / elmo.WEIGHTS_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_folder(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.hdf5").write_bytes(whole)
    changes = {
        "is a link": h5py.ExternalLink("elsewhere/other.hdf5", "char_embed"),
        "must be an array of": np.zeros((261, 3), np.int64),
        r"lacks char_embed": None,
    }
    for output, value in changes.items():
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            del file["char_embed"]
            if value is not None:
                file["char_embed"] = value
        with pytest.raises(ValueError, match=output):
            load_folder(tmp_path)


def test_missing_h5py_names_the_extra(tmp_path: Path, monkeypatch) -> None:
    written(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ModuleNotFoundError, match=r"unmask\[elmo\]"):
        load_folder(tmp_path)


def test_other_families_are_not_written_as_bilm(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of ELMo alone, got a bert model"):
        unmask.load("unmask-mini-en").save(tmp_path / "x", format="elmo")


def theirs() -> Iterator[tuple[int, int, str, Tensor]]:
    """Yield position, list, sentence, and bilm-tf's vectors of its words, batch by batch."""
    lists = json.loads((FIXTURE / "lm_embeddings_sentences.json").read_text())
    output = [h5py.File(FIXTURE / f"lm_embeddings_{k}.hdf5") for k in range(len(lists))]
    for i in range(len(lists[0])):
        for k, file in enumerate(output):
            yield i, k, lists[k][i], torch.cat(list(torch.from_numpy(file[str(i)][()])), -1)


@pytest.mark.skipif(not FIXTURE.is_dir(), reason="bilm-tf's fixture is not here")
@torch.no_grad()
def test_layers_equal_released_code() -> None:
    """Its network continues from sentence to sentence of a list, which ours never does.

    So the first sentence of each list is read as ours reads any; those after it by the same cells,
    from the states which these were left in.
    """
    model = unmask.load(FIXTURE)
    network = model.model.backbone
    stacks = (network.layers, network.backward_layers)
    states: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}
    for i, k, sentence, expected in theirs():
        ids = model.tokenizer.encode(sentence).ids
        starts = 1 + np.flatnonzero(starts_word(ids))
        batch = Batch(inputs=torch.tensor([[1, *ids.tolist(), 2]]))
        if i == 0:
            alone = network(batch)[0, starts]
            torch.testing.assert_close(alone, expected, rtol=0, atol=1e-5)
        x, words = network.lay_out(batch)
        ways: list[Tensor] = []
        for way, stack in enumerate(stacks):
            y = words.reverse_texts(x) if way else x
            for j, cell in enumerate(stack):
                y, states[k, way, j] = cell(y, states.get((k, way, j), cell.initial_state(y)))
            ways.append(words.reverse_texts(y) if way else y)
        found = words.to_batch(torch.cat(ways, -1))[0, starts]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
