"""A head that reads all layers reads the reference library's hidden states, side by side."""

from pathlib import Path

import pytest
import torch
from reference import V, bert, gpt2, saved

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.model.requested_states import RequestedStates


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@torch.no_grad()
def test_hidden_states_of_all_layers_equal_reference(family: str, tmp_path: Path) -> None:
    kinds = {"bert": (bert, "BertModel"), "gpt2": (gpt2, "GPT2Model")}
    make, kind = kinds[family]
    reference = make(kind)
    ours = load_folder(saved(reference, tmp_path)).model
    ids = torch.randint(0, V, (2, 7), generator=torch.Generator().manual_seed(0))
    batch = Batch(inputs=ids, visibility=Visibility(causal=family == "gpt2"))
    *below, last = reference(ids, output_hidden_states=True).hidden_states
    if family == "gpt2":  # there the norm is only of the last one
        below = [reference.ln_f(x) for x in below]
    hidden = ours.hidden_states(batch.with_feature(RequestedStates(all_layers=True)))
    torch.testing.assert_close(hidden, torch.cat((*below, last), -1), rtol=0, atol=1e-4)
    assert torch.equal(hidden[..., -ours.decoder_architecture.d_model :], ours.hidden_states(batch))


def test_head_of_last_layer_ignores_head_of_all_layers(tmp_path: Path) -> None:
    preset = load_folder(saved(bert("BertForMaskedLM"), tmp_path)).preset
    language = preset.heads["language"]
    heads = {
        "language": language,
        "label": SequenceClassification(pooling="mean", pooled_layers="all", dense_layer=False),
    }
    both = Model(preset.architecture, heads).initialize().eval()
    alone = Model(preset.architecture, {"language": language}).initialize().eval()
    ids = torch.randint(0, V, (2, 7), generator=torch.Generator().manual_seed(0))
    batch = Batch(inputs=ids, targets=ids, labels=torch.tensor([0, 1]))
    assert both(batch).terms["masked"].total.equal(alone(batch).terms["masked"].total)
    n = preset.architecture.n_layers + 1
    assert both.heads["label"].out.in_features == n * preset.architecture.d_model
