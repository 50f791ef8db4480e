"""The promises of the loop, kept by the real models, objectives and loader."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.batch import PARAGRAPH_START, SENTENCE_START, WORD_START, Tokens
from unmask.batching.loader import BatchLoader
from unmask.batching.plan import DataCursor
from unmask.checkpoints import folder as checkpoints
from unmask.config import from_dict, to_dict
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.log import TrainingLog
from unmask.training.optimizers import build
from unmask.training.optimizers.config import AdamW, Muon
from unmask.training.resume import restore_run, save_checkpoint, trained_tensors
from unmask.zoo.catalogue import MODELS

V = 70
FAMILIES = ("bert-mini", "gpt2-mini", "gemma-2-mini", "t5-mini", "bart-mini")
STOPPED = (
    "canine-mini", "coco-lm-mini", "meena-mini", "mass-mini", "ul2-mini", "awd-lstm",
    "skip-thoughts-mini", "quick-thoughts-mini",
)  # fmt: skip
SPECIALS = {
    "bert-mini": SpecialTokenIds(
        vocab_size=V,
        pad=0,
        start=1,
        end=2,
        mask=3,
        unknown=4,
        prefix=(1,),
        separator=(2,),
        suffix=(2,),
        all_ids=frozenset(range(5)),
    ),
    "canine-mini": SpecialTokenIds(
        vocab_size=V,
        pad=0,
        start=1,
        end=2,
        mask=3,
        prefix=(1,),
        separator=(2,),
        suffix=(2,),
        all_ids=frozenset(range(4)),
    ),
    "coco-lm-mini": SpecialTokenIds(
        vocab_size=V,
        pad=1,
        start=0,
        end=2,
        mask=4,
        unknown=3,
        prefix=(0,),
        separator=(2, 2),
        suffix=(2,),
        all_ids=frozenset(range(5)),
    ),
    "gpt2-mini": SpecialTokenIds(vocab_size=V, pad=0, start=0, end=0, all_ids=frozenset({0})),
    "gemma-2-mini": SpecialTokenIds(vocab_size=V, pad=0, start=0, end=0, all_ids=frozenset({0})),
    "t5-mini": SpecialTokenIds(
        vocab_size=V,
        pad=0,
        start=0,
        end=1,
        unknown=2,
        separator=(1,),
        suffix=(1,),
        sentinels=tuple(range(V - 1, V - 21, -1)),
        all_ids=frozenset([0, 1, 2, *range(V - 20, V)]),
    ),
    "meena-mini": SpecialTokenIds(
        vocab_size=V,
        pad=0,
        start=0,
        end=1,
        unknown=2,
        separator=(1,),
        suffix=(1,),
        all_ids=frozenset(range(3)),
    ),
    "bart-mini": SpecialTokenIds(
        vocab_size=V,
        pad=1,
        start=2,
        end=2,
        mask=4,
        unknown=3,
        prefix=(0,),
        separator=(2, 2),
        suffix=(2,),
        all_ids=frozenset(range(5)),
    ),
}
SPECIALS["awd-lstm"] = SPECIALS["gpt2-mini"]
for _name in ("mass-mini", "skip-thoughts-mini", "quick-thoughts-mini"):
    SPECIALS[_name] = SPECIALS["bert-mini"]
SPECIALS["ul2-mini"] = replace(
    SPECIALS["t5-mini"], modes=(3, 4, 48), all_ids=SPECIALS["t5-mini"].all_ids | {3, 4, 48}
)


class Text:
    """Words that follow each other by a simple rule, in memory."""

    def read_tokens(self, start: int, end: int) -> Tokens:
        at = np.arange(start, end)
        marks = (
            np.where(at % 2, 0, WORD_START)
            | np.where(at % 6, 0, SENTENCE_START)
            | np.where(at % 30, 0, PARAGRAPH_START)
        )
        return Tokens(5 + (at * at % 91 + at % 7) % 43, marks.astype(np.uint8))


def small(stack):
    if not isinstance(stack, Architecture):
        return replace(stack, vocab_size=V, d_model=16, n_layers=2, d_ff=32, dropout=0.1)
    return replace(
        stack,
        vocab_size=V,
        d_model=16,
        n_layers=2,
        n_heads=2,
        d_ff=32,
        head_dim=8,
        n_kv_heads=stack.n_kv_heads and 1,
        dropout=0.1,
    )


def batches_of(loader):
    """Take a run's data from a loader."""

    def since(cursor):
        start = loader.start_cursor if cursor is None else from_dict(DataCursor, cursor)
        for micro, after in replace(loader, start_cursor=start):
            yield micro, to_dict(after)

    return since


def run(name, micro_tokens=100, **changes):
    preset = MODELS[name]
    a = preset.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        a = replace(a, encoder=small(a.encoder), decoder=small(a.decoder))
    else:
        a = small(a)
    model = replace(preset, architecture=a).build().initialize(0)
    cuts = np.cumsum(np.random.default_rng(0).integers(5, 25, 300))
    loader = BatchLoader(
        token_source=Text(), row_spans=np.stack((cuts[:-1], cuts[1:]), 1),
        objective=preset.objective, special_ids=SPECIALS[name],
        max_length=60, batch_tokens=256, micro_batch_tokens=micro_tokens, seed=5,
    )  # fmt: skip
    recipe = Recipe(model=name, steps=6, learning_rate=1e-2, log_every=4, seed=5)
    return loop.start_run(replace(recipe, **changes), model, batches_of(loader))


def state(run):
    return {**trained_tensors(run), **run.optimizer.state_tensors()}


@pytest.mark.thorough
@pytest.mark.quick(
    "float32-optimizer0-bert-mini",
    "bfloat16-optimizer1-t5-mini",
    "float32-optimizer0-awd-lstm",
    "float32-optimizer0-quick-thoughts-mini",
    "float32-optimizer0-coco-lm-mini",
)
@pytest.mark.parametrize("name", FAMILIES + STOPPED)
@pytest.mark.parametrize(("precision", "optimizer"), [("float32", AdamW()), ("bfloat16", Muon())])
def test_resumed_run_is_bitwise_equal(tmp_path, name, precision, optimizer):
    changes = dict(precision=precision, optimizer=optimizer)
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    straight = run(name, **changes)
    assert any(getattr(module, "rate", 0) for module in straight.model.modules())  # dropout is on
    with TrainingLog(a) as log:
        for report in loop.train(straight):
            log(report)
    again = run(name, **changes)
    for stop in (1, 3, 6):
        with TrainingLog(b) as log:
            for report in loop.train(again):
                log(report)
                if report.step == stop:
                    break
        save_checkpoint(again, b)
        again = run(name, **changes)
        restore_run(again, checkpoints.newest_checkpoint(b)[0])
    assert straight.progress == again.progress
    mine, theirs = state(straight), state(again)
    assert mine.keys() == theirs.keys()
    assert [n for n in mine if not torch.equal(mine[n], theirs[n])] == []
    assert (a / "log.jsonl").read_bytes() == (b / "log.jsonl").read_bytes()


@pytest.mark.parametrize("name", FAMILIES)
def test_micro_batches_do_not_change_a_step(name):
    found = []
    for limit in (100, None):
        one = run(name, limit, precision="float32", steps=1)
        for module in one.model.modules():
            if hasattr(module, "rate"):
                module.rate = 0.0
        found.append((next(loop.train(one)), one.weights.flat_gradient.clone()))
    (a, ours), (b, theirs) = found
    assert a.sums.n_targets == b.sums.n_targets
    assert a.n_tokens == b.n_tokens
    assert a.loss == pytest.approx(b.loss, rel=1e-5)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_run_learns():
    reports = list(loop.train(run("gpt2-mini", steps=40, precision="float32")))
    first = sum(r.loss for r in reports[:5]) / 5
    last = sum(r.loss for r in reports[-5:]) / 5
    assert last < first - 0.5


@pytest.mark.parametrize("name", FAMILIES)
def test_muon_updates_hidden_matrices_but_no_embedding(name):
    model = run(name).model
    chosen = build.hidden_matrix_names(model)
    assert all(n.startswith("backbone.") and ".layers." in n for n in chosen)
    assert any("attention.q" in n for n in chosen)
    assert any("feed_forward" in n for n in chosen)
    left = {n for n, p in model.named_parameters() if p.ndim == 2} - chosen
    assert not any(".layers." in n for n in left if not n.startswith("heads."))


@pytest.mark.parametrize("name", FAMILIES)
def test_weight_decay_applies_to_matrices_and_embeddings(name):
    model = run(name).model
    for n, p in model.named_parameters():
        assert build.uses_weight_decay(n, p) == (p.ndim == 2), n


@pytest.mark.parametrize("name", FAMILIES)
def test_evaluation_is_reproducible(name):
    one = run(name, precision="bfloat16")
    micro, _ = next(one.batches(None))
    first = loop.evaluate_batches(one.model, micro)
    assert first == loop.evaluate_batches(one.model, micro)
    assert first["loss"] > 1
    next(loop.train(one))
    assert first != loop.evaluate_batches(one.model, micro)


def test_loader_resumes_from_plain_data():
    batches = run("bert-mini").batches
    straight = [micro for (micro, _), _ in zip(batches(None), range(5), strict=False)]
    for (_, cursor), _ in zip(batches(None), range(2), strict=False):
        assert set(cursor) == {"kind", "epoch", "window", "batch", "n_batches"}
    again = [micro for (micro, _), _ in zip(batches(cursor), range(3), strict=False)]
    for a, b in zip(straight[2:], again, strict=True):
        assert [x.inputs.tolist() for x in a] == [x.inputs.tolist() for x in b]


def test_loader_resumes_after_the_last_step():
    stream = run("bart-mini").batches
    steps = list(itertools.islice(stream(None), 3))
    batches, _ = next(iter(stream(steps[1][1])))
    for step, same in ((steps[0], False), (steps[2], True)):
        pairs = zip(batches, step[0], strict=False)
        assert all(torch.equal(a.inputs, b.inputs) for a, b in pairs) == same
