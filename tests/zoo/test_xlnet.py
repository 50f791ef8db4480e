"""XLNet against transformers: two streams, orders, a memory, rows that are read backward."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import V, saved, xlnet

from unmask.batch import Batch, Visibility
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.evaluation.likelihood import ContextContinuation, token_likelihoods
from unmask.finetuning.formulations.formulation import InputTemplate
from unmask.generation.fill_mask import fill
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture
from unmask.objectives.features import Recurrence, RecurrenceMemory, TwoStream
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import XLNET, TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.catalogue import MODELS

B, T, ASKED = 2, 12, [2, 5, 7, 8]
RANK = torch.zeros(B, T, dtype=torch.long)
RANK[0, ASKED] = torch.tensor([3, 1, 4, 2])
RANK[1, ASKED] = torch.tensor([1, 2, 3, 4])
SEGMENTS = torch.tensor([[0] * 6 + [1] * 6] * B)
IDS, MORE = (torch.randint(V, (B, T), generator=torch.Generator().manual_seed(i)) for i in (1, 2))
THEIRS = {
    # 1: may not see; themselves apart, those of rank 0 see each other
    "perm_mask": (
        (RANK[:, None, :] >= RANK[:, :, None]) & ((RANK[:, None, :] > 0) | (RANK[:, :, None] > 0))
    ).float()
    * ~((RANK[:, None, :] == 0) & (RANK[:, :, None] > 0)),
    "target_mapping": torch.nn.functional.one_hot(torch.tensor([ASKED] * B), T).float(),
    "token_type_ids": SEGMENTS,
}
ORDERED = Batch(
    inputs=IDS, segments=SEGMENTS, visibility=Visibility(rank=RANK), features=(TwoStream(),)
)


@pytest.fixture(params=[{}, {"clamp_len": 5}], ids=["all distances", "clamped"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Model, torch.nn.Module]:
    reference = xlnet(**request.param)
    return load_folder(saved(reference, tmp_path)).model, reference


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours - theirs).abs().max() < 1e-5 * max(1.0, float(theirs.abs().max()))


@torch.no_grad()
def test_two_stream_attention_equals_reference(both) -> None:
    ours, reference = both
    hidden = ours.language_head.logits(ours.hidden_states(ORDERED))[:, ASKED]
    close(hidden, reference(IDS, **THEIRS).logits)


@torch.no_grad()
def test_memory_equals_reference(both) -> None:
    ours, reference = both
    memory, theirs = RecurrenceMemory(8), None
    for ids in (IDS, MORE, IDS):
        hidden = ours.hidden_states(
            replace(ORDERED, inputs=ids).with_feature(Recurrence(memory=memory))
        )[:, ASKED]
        out = reference.transformer(ids, mems=theirs, use_mems=True, **THEIRS)
        close(hidden, out.last_hidden_state)
        theirs = out.mems


@torch.no_grad()
def test_rows_with_reused_part_equal_reference(tmp_path: Path) -> None:
    """`reuse_len` decides the memory, the order decides the parts; and three segments."""
    reference = xlnet(reuse_len=6)
    ours = load_folder(saved(reference, tmp_path)).model
    rank = torch.tensor([[0, 0, 2, 0, 0, 1, 3, 5, 4, 3, 3, 3]] * B)
    segments = torch.tensor([[0] * 8 + [1] * 3 + [2]] * B)
    hidden = torch.zeros(B, T, dtype=torch.bool)
    hidden[:, ASKED] = True
    unseen = (rank[:, None, :] > rank[:, :, None]) | (
        (rank[:, None, :] == rank[:, :, None]) & hidden[:, :, None]
    )
    output = {**THEIRS, "perm_mask": unseen.float(), "token_type_ids": segments}
    memory, theirs = RecurrenceMemory(8), None
    for ids in (IDS, MORE, IDS):
        batch = Batch(
            inputs=ids, segments=segments, visibility=Visibility(rank=rank),
            features=(TwoStream(), Recurrence(memory=memory, reuse_len=6)),
        )  # fmt: skip
        out = reference.transformer(ids, mems=theirs, use_mems=True, **output)
        close(ours.hidden_states(batch)[:, ASKED], out.last_hidden_state)
        theirs = out.mems
        assert [len(x) for x in theirs] == [len(memory)] * len(theirs)


@pytest.mark.parametrize("texts", [("ax by cz",), ("ax by cz", "by ez")], ids=["one", "two"])
def test_segments_equal_reference_tokenizer(texts: tuple[str, ...], tmp_path: Path) -> None:
    """In what is read, and in what transformers makes of our files: <cls> is of neither text."""
    from transformers import AutoTokenizer, XLNetTokenizer

    words = [f"{a}{b}" for a in "abcde" for b in "xyz"]
    tokenizer = train_tokenizer(TokenizerSpec(Unigram(60), XLNET), [" ".join(words) * 20])
    tokenizer.save(tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    reference = XLNetTokenizer([tuple(piece) for piece in vocabulary])
    theirs = reference(*texts, return_token_type_ids=True)
    saved_ = AutoTokenizer.from_pretrained(tmp_path)(*texts)  # says by itself that they are read
    around = InputTemplate.from_architecture(
        tokenizer.special_ids, MODELS["xlnet-mini"].architecture, 64
    )
    example, _ = around.build_example([tokenizer.encode(text).ids for text in texts])
    ours = pad_examples([example], tokenizer.special_ids)
    assert ours.inputs[0].tolist() == theirs["input_ids"] == saved_["input_ids"]
    assert ours.segments is not None
    assert ours.segments[0].tolist() == theirs["token_type_ids"] == saved_["token_type_ids"]
    assert ours.segments[0].unique().tolist() == ([0, 2] if len(texts) == 1 else [0, 1, 2])


@torch.no_grad()
def test_reversed_rows_equal_reference(both) -> None:
    """There the second half of a batch is read backward if `bi_data`."""
    ours, reference = both
    reference.transformer.bi_data = True
    backward = torch.tensor([False, True])
    hidden = ours.hidden_states(Batch(inputs=IDS, features=(Recurrence(reversed_rows=backward),)))
    close(hidden, reference.transformer(IDS).last_hidden_state)
    close(hidden[1:].flip(1), ours.hidden_states(Batch(inputs=IDS[1:].flip(1))))


@torch.no_grad()
def test_padded_classification_equals_reference(tmp_path: Path) -> None:
    """There texts are padded in front, so that <cls> is last; only distances count."""
    reference = xlnet("ForSequenceClassification", num_labels=3)
    ours = load_folder(saved(reference, tmp_path)).model
    lengths = torch.tensor([12, 5])
    there = torch.arange(T)[None] < lengths[:, None]
    batch = Batch(
        inputs=IDS,
        visibility=Visibility(document=torch.where(there, 0, -1)),
        last_token_positions=lengths - 1,
        labels=torch.tensor([0, 2]),
    )
    turned = torch.stack([ids.roll(T - int(n)) for ids, n in zip(IDS, lengths, strict=True)])
    out = reference(turned, attention_mask=there.flip(1).long())
    close(ours(batch, return_logits=True).logits["label"], out.logits)


def test_query_stream_sees_neither_its_token_nor_later_ones(both) -> None:
    ours, _ = both
    seen: list[torch.Tensor] = []

    def keep(module, inputs, output):
        seen.append(output.detach().requires_grad_(True))
        return seen[-1]

    hook = ours.backbone.embedding_table.register_forward_hook(keep)
    hidden = ours.hidden_states(ORDERED)
    hook.remove()
    for position in ASKED:
        (slope,) = torch.autograd.grad(hidden[0, position].sum(), seen[0], retain_graph=True)
        moved = slope[0].abs().sum(-1) > 1e-12
        assert torch.equal(moved, RANK[0] < RANK[0, position])


@torch.no_grad()
def test_blank_is_predicted_as_in_pretraining() -> None:
    """What may stand at one of two blanks: all else is seen, neither of the two is."""
    words = [f"{a}{b}" for a in "abcde" for b in "xyz"]
    tokenizer = train_tokenizer(TokenizerSpec(Unigram(60), XLNET), [" ".join(words) * 20])
    preset = MODELS["xlnet-mini"].with_vocabulary(tokenizer.special_ids)
    assert isinstance(preset.architecture, Architecture)
    a = replace(preset.architecture, d_model=32, n_layers=2, n_heads=2, d_ff=32)
    model = replace(preset, architecture=a).build().initialize(0).eval()
    (filled,) = fill(model, tokenizer, ["ax [MASK] by [MASK] cz"], top_k=3)
    special = tokenizer.special_ids
    ids = tokenizer.encode_ids_batch(["ax <mask> by <mask> cz"], allow_special=True)[0]
    read = torch.tensor([[*ids.tolist(), *special.suffix]])
    blank = read == special.mask
    for stands in (special.mask, 7):
        inputs = torch.where(blank, stands, read)
        batch = Batch(
            inputs=inputs, visibility=Visibility(rank=blank.long()), features=(TwoStream(),)
        )
        probabilities = model.language_head.logits(model.hidden_states(batch)[blank]).softmax(-1)
        probabilities[:, list(special.all_ids)] = 0  # no answers
        for output, some in zip(filled.blanks, probabilities.topk(3).values, strict=True):
            assert [c.probability for c in output] == pytest.approx(some.tolist(), rel=1e-4)
    # and how likely a text is: each token by the others, whatever stands in its place
    before, token = (tokenizer.encode(text).ids.tolist() for text in ("ax", "by"))
    pair = ContextContinuation(
        context=tuple(before), continuation=tuple(token[:1]), word_starts=(True,)
    )
    (likely,) = token_likelihoods(model, special, [pair])
    ids = torch.tensor([[*before, 9, *special.suffix]])
    rank = torch.zeros_like(ids)
    rank[0, len(before)] = 1
    batch = Batch(inputs=ids, visibility=Visibility(rank=rank), features=(TwoStream(),))
    logs = model.language_head.logits(model.hidden_states(batch)[0, len(before)]).log_softmax(-1)
    assert likely.log_likelihood == pytest.approx(float(logs[token[0]]), rel=1e-4)
