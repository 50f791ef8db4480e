"""Longformer's global attention as in the reference library, and starting from a RoBERTa."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import V, longformer, roberta, saved
from test_leak import build, depends
from test_parity import close, documents, texts

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.heads.model import Model
from unmask.model.layers.attention import attention
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.model.layers.attention.block_local_mask import GlobalTokens, Window, columns_to_mask
from unmask.model.positions.learned import LearnedPositions
from unmask.model.requested_states import RequestedStates
from unmask.model.variants import AttentionVariant
from unmask.zoo.catalogue import get_preset
from unmask.zoo.encoders import longformer as card

T, LENGTHS = 21, [21, 13, 2]  # no multiples of a window
WIDE = {
    "none": None,
    "the first": [[0], [0], [0]],
    "some": [[0, 3, 20], [5, -1, -1], [1, 0, -1]],
    "neighbors": [[7, 8, 9], [7, 8, 12], [-1, -1, 0]],
    "one text's only": [[-1], [4], [-1]],
    "all": [[*range(21)], [*range(13), *[-1] * 8], [0, 1, *[-1] * 19]],
}


@pytest.fixture(params=[True, False], ids=["in blocks", "with a mask"])
def banded(request, monkeypatch) -> None:
    monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", -1000 if request.param else 1000)


def padded(reference) -> tuple[torch.Tensor, torch.Tensor]:
    document = documents(LENGTHS, T)
    ids = texts(1, 3, T)
    ids[ids >= V - 2] = 6  # the separator, which is what it is only where a test says so
    return torch.where(document >= 0, ids, reference.config.pad_token_id), document


@pytest.mark.sample(4)
@pytest.mark.usefixtures("banded")
@pytest.mark.parametrize("wide", WIDE)
@torch.no_grad()
def test_hidden_states_with_global_tokens_equal_reference(wide: str, tmp_path: Path) -> None:
    reference = longformer("Model")
    ours = load_folder(saved(reference, tmp_path)).model
    ids, document = padded(reference)
    columns = None if WIDE[wide] is None else torch.tensor(WIDE[wide])
    more = {}
    if columns is not None:
        more["global_attention_mask"] = columns_to_mask(columns, T).long()
    batch = Batch(inputs=ids, visibility=Visibility(document=document))
    if columns is not None:
        batch = batch.with_feature(GlobalTokens(columns))
    out = reference(input_ids=ids, attention_mask=(document >= 0).long(), **more)
    close(ours.hidden_states(batch), out.last_hidden_state, document >= 0)
    for at in ([0, 0, 0], [7, 5, 1], [20, 12, 0]):
        only = torch.tensor(at)
        one = ours.hidden_states(batch.with_feature(RequestedStates(selected_column=only)))
        close(one[:, 0], out.last_hidden_state[torch.arange(3), only])


@pytest.mark.usefixtures("banded")
@torch.no_grad()
def test_span_scores_equal_reference(tmp_path: Path) -> None:
    """There a question's tokens, all before the first of three separators, are global."""
    reference = longformer("ForQuestionAnswering")
    ours = load_folder(saved(reference, tmp_path)).model
    ids, document = padded(reference)
    ids[2], document[2] = ids[0], document[0]
    ends = torch.tensor([6, 4, 9])
    for row, (end, n) in enumerate(zip(ends, (21, 13, 21), strict=True)):
        ids[row, [end, end + 1, n - 1]] = reference.config.sep_token_id
    wide = torch.where(torch.arange(9) < ends[:, None], torch.arange(9), -1)
    out = reference(input_ids=ids, attention_mask=(document >= 0).long())
    batch = Batch(
        inputs=ids, visibility=Visibility(document=document), features=(GlobalTokens(wide),)
    )
    logits = ours(batch, return_logits=True).logits["span"]
    close(logits, torch.stack((out.start_logits, out.end_logits), -1), document >= 0)


@pytest.mark.usefixtures("banded")
def test_gradients_with_global_tokens_equal_reference(tmp_path: Path) -> None:
    reference = longformer("Model")
    ours = load_folder(saved(reference, tmp_path)).model
    ids, document = padded(reference)
    columns = torch.tensor(WIDE["some"])
    pull = torch.randn(3, T, 32) * (document >= 0)[..., None]
    out = reference(
        input_ids=ids,
        attention_mask=(document >= 0).long(),
        global_attention_mask=columns_to_mask(columns, T).long(),
    )
    (out.last_hidden_state * pull).sum().backward()
    batch = Batch(
        inputs=ids, visibility=Visibility(document=document), features=(GlobalTokens(columns),)
    )
    (ours.hidden_states(batch) * pull).sum().backward()
    theirs = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    mine = {n: p.grad for n, p in ours.named_parameters() if p.grad is not None}
    read = card.WEIGHT_NAMES.from_external(theirs, {n: x.shape for n, x in mine.items()})
    assert len(read.tensors) > 60
    for name, gradient in read.tensors.items():
        if not name.endswith("backbone.tokens.weight"):
            scale = float(gradient.abs().max())
            assert float((mine[name] - gradient).abs().max()) < 1e-4 * max(scale, 1.0), name


def small(window: tuple[int, ...], layers: int) -> Model:
    model = build("longformer")
    a = replace(model.architecture, attention_window=window, n_layers=layers)
    model = Model(a, {}).eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model.double()


@pytest.mark.usefixtures("banded")
@pytest.mark.parametrize(("window", "layers"), [((2,), 1), ((2,), 3), ((1, 3), 2), ((1, 3, 2), 3)])
def test_receptive_field_is_the_sum_of_the_windows(window, layers) -> None:
    model = small(window, layers)
    t, reach = 19, sum(window[i % len(window)] for i in range(layers))
    document = torch.tensor([[0] * 12 + [1] * 4 + [-1] * 3])
    torch.manual_seed(1)
    batch = Batch(inputs=torch.randint(0, 50, (1, t)), visibility=Visibility(document=document))
    position = torch.arange(t)
    near = (position[:, None] - position).abs() <= reach
    same = document[0][:, None] == document[0]
    assert torch.equal(depends(model, batch), near & same)


@pytest.mark.usefixtures("banded")
def test_global_tokens_connect_everything_within_their_text() -> None:
    t = 19
    document = torch.tensor([0] * 12 + [1] * 7)
    same = document[:, None] == document
    position = torch.arange(t)
    near = ((position[:, None] - position).abs() <= 2) & same
    torch.manual_seed(1)
    batch = Batch(
        inputs=torch.randint(0, 50, (1, t)),
        visibility=Visibility(document=document[None]),
        features=(GlobalTokens(torch.tensor([[3, -1]])),),
    )
    one = near.clone()
    one[3] |= same[3]
    one[:, 3] |= same[3]
    assert torch.equal(depends(small((2,), 1), batch), one)
    two = (one.float() @ one.float()) > 0
    assert torch.equal(depends(small((2,), 2), batch), two)
    assert two[:12, :12].all()
    assert not two[12, 15:].all() or not two[12, 18]


def test_global_tokens_use_their_own_projections() -> None:
    model = small((2,), 2)
    torch.manual_seed(1)
    batch = Batch(
        inputs=torch.randint(0, 50, (1, 9)), features=(GlobalTokens(torch.tensor([[4]])),)
    )
    own = [p for n, p in model.named_parameters() if ".wide." in n]
    narrow = torch.autograd.grad(
        model.hidden_states(batch.without(GlobalTokens)).sum(), own, allow_unused=True
    )
    assert all(g is None for g in narrow)
    hidden = model.hidden_states(batch)[0]
    first = [p for n, p in model.named_parameters() if "layers.1.attention.wide" in n]
    at_4 = torch.autograd.grad(hidden[4].square().sum(), first, retain_graph=True)
    assert all(g.abs().max() > 0 for g in at_4[::2])
    elsewhere = torch.autograd.grad(hidden[5].square().sum(), first)
    assert all(g.abs().max() == 0 for g in elsewhere)


def test_global_projections_start_as_copies_unless_given() -> None:
    mini = get_preset("longformer-mini")
    a = replace(mini.architecture, vocab_size=50)
    weights = Model(a, {}).initialize(3).own_weights()
    for part in "qkv":
        name = f"backbone.layers.1.attention.{{}}{part}.weight"
        assert torch.equal(weights[name.format("wide.")], weights[name.format("")])
    known = Model(a, {})
    name = "backbone.layers.0.attention.wide.q"
    q = known.own_weights()[f"{name}.weight"].fill_(7.0)
    known.initialize(3, [f"{name}.weight", f"{name}.bias"])
    assert (q == 7.0).all()
    copy_to_global_attention(known)
    assert torch.equal(q, known.own_weights()["backbone.layers.0.attention.q.weight"])


@torch.no_grad()
def test_text_within_the_window_equals_its_initial_roberta(tmp_path) -> None:
    reference = roberta()  # 40 places
    short = load_folder(saved(reference, tmp_path)).model
    wanted = replace(card.BASE, attention_window=(8,), position=LearnedPositions(100, 2))
    long = card.from_roberta(short, wanted)
    assert long.architecture.position == LearnedPositions(100, 2)
    assert long.parameter_count() > short.parameter_count()
    document = documents([9, 5], 9)
    batch = Batch(inputs=texts(1, 2, 9), visibility=Visibility(document=document))
    expected = short.hidden_states(batch)
    assert torch.allclose(long.hidden_states(batch), expected, atol=1e-6)
    wide = long.hidden_states(batch.with_feature(GlobalTokens(torch.tensor([[0, 3], [4, -1]]))))
    assert torch.allclose(wide, expected, atol=1e-6), "all see all, by the same projections"
    for start in (40, 80):  # the same positions again
        later = long.hidden_states(
            replace(batch, position_ids=torch.arange(start, start + 9).expand(2, -1))
        )
        assert torch.allclose(later, expected, atol=1e-6)
    targeted = replace(batch, targets=batch.inputs)
    logits, before = (
        model(targeted, return_logits=True).logits["masked"] for model in (long, short)
    )
    assert torch.allclose(logits, before, atol=1e-5)
    with pytest.raises(ValueError, match="need a position table"):
        card.from_roberta(short, get_preset("modernbert-mini").architecture)


def test_windows_the_format_cannot_express_are_refused() -> None:
    for changes in (
        {"attention_window": (None, 16)},
        {"attention_window": ()},
        {"attention": AttentionVariant()},
    ):
        with pytest.raises(ValueError, match="window in each layer and global attention"):
            card.CONFIG_MAPPING.from_architecture(replace(card.BASE, **changes))
    plain = card.CONFIG_MAPPING.from_architecture(replace(card.BASE, attention_window=(4, 8)))
    assert plain["attention_window"] == [8, 16] * 6
    assert card.CONFIG_MAPPING.to_architecture(plain).attention_window == (4, 8) * 6
    for bad in (7, [8] * 11, [0] * 12):
        with pytest.raises(ValueError, match="attention_window must be even"):
            card.CONFIG_MAPPING.to_architecture(plain | {"attention_window": bad})


def test_global_tokens_need_all_columns_at_once() -> None:
    with pytest.raises(ValueError, match="need all 9 columns at once, got 1"):
        attention.AttentionMask.from_visibility(
            Visibility(), 1, 9, Window(2, global_positions=torch.zeros(1, 1).long())
        )
