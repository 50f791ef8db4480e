"""The most probable tokens of teachers, and their scores on disk."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from kills import instants, put
from test_distillation import STUDENT, TEACHER, batch, forward, opened
from trials import Trials

from unmask.batch import Batch
from unmask.compression.distillation.store import ScoreStore, batch_hash
from unmask.compression.distillation.terms import SoftTargets
from unmask.heads.language.top_k import TopKDistribution


def logits(seed: int, n: int = 4, v: int = 20) -> torch.Tensor:
    return 3 * torch.randn(n, v, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n_teachers", [1, 3])
def test_the_divergence_is_that_of_k_tokens_and_a_bucket(n_teachers: int) -> None:
    teachers, student, t = [logits(i) for i in range(n_teachers)], logits(9), 2.0
    p = torch.stack([(x.double() / t).softmax(-1) for x in teachers]).mean(0)
    q = (student.double() / t).softmax(-1)
    expected: list[float] = []
    for row in range(len(p)):
        best = p[row].topk(5).indices.tolist()
        rest = [i for i in range(20) if i not in best]
        pairs = [(float(p[row, i]), float(q[row, i])) for i in best]
        pairs.append((float(p[row, rest].sum()), float(q[row, rest].sum())))
        expected.append(sum(a * math.log(a / b) for a, b in pairs))
    found = TopKDistribution.of(teachers, 5, t).divergence(student, t)
    # probabilities are in float16, with 11 bits of their logarithms
    torch.testing.assert_close(
        found.double(), torch.tensor(expected).double(), rtol=5e-3, atol=5e-3
    )
    whole = (p * (p / q).log()).sum(-1)
    assert (found <= whole + 5e-3).all()
    every = TopKDistribution.of(teachers, 20, t).divergence(student, t)
    torch.testing.assert_close(every.double(), whole, rtol=5e-3, atol=5e-3)


def test_the_bucket_has_a_gradient_and_none_where_it_is_empty() -> None:
    student = logits(1).requires_grad_()
    for k in (3, 20):
        TopKDistribution.of([logits(0)], k, 1.0).divergence(student, 1.0).sum().backward()
    sharp = torch.zeros(4, 20)
    sharp[:, 0] = 1e4  # all other tokens have no probability at all
    TopKDistribution.of([sharp], 1, 1.0).divergence(student, 1.0).sum().backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()


def test_all_tokens_are_compared(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    b, soft = batch(), SoftTargets(tokens="all", temperature=1.0)
    distill = forward(student, [teacher], soft)
    terms = distill(b).terms
    assert distill.count_targets(b) == {"masked": 5, "masked_soft": int(b.is_token().sum())}
    with torch.no_grad():
        logs = [
            m.model.language_head.logits(m.model.hidden_states(b)).double().log_softmax(-1)
            for m in (student, teacher)
        ]
    q, p = logs
    expected = (p.exp() * (p - q)).sum(-1)[b.is_token()].sum()
    assert float(terms["masked_soft"].total.detach()) == pytest.approx(float(expected), rel=1e-4)
    torch.testing.assert_close(terms["masked"].total, student.model(b).terms["masked"].total)


def soft_loss(distill: Any, b: Batch) -> torch.Tensor:
    return distill(b).terms["masked_soft"].total.detach()


def test_stored_scores_are_those_of_the_teacher_bit_for_bit(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    soft, b = SoftTargets(top_k=7), batch()
    with_store: dict[str, Any] = {"store": str(tmp_path / "store")}
    distill = forward(student, [teacher], soft, **with_store)
    plain = soft_loss(distill, b)
    distill.use_store(ScoreStore(tmp_path / "store", {"seed": 0}))
    assert torch.equal(soft_loss(distill, b), plain)
    again = ScoreStore(tmp_path / "store", {"seed": 0})
    distill.use_store(again)
    with torch.no_grad():
        for weight in teacher.model.parameters():
            weight.zero_()  # it is not run
    assert torch.equal(soft_loss(distill, b), plain)
    assert (again.n_found, again.n_added, len(again)) == (1, 0, 1)
    with pytest.raises(ValueError, match="was made with seed 0, this run has 1"):
        ScoreStore(tmp_path / "store", {"seed": 1})


def test_a_record_that_was_cut_short_is_removed_and_a_damaged_one_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, keys = ScoreStore(tmp_path / "store", {}), [bytes([i] * 16) for i in range(3)]
    for i, key in enumerate(keys):
        store.add(key, {"x": torch.full((4,), float(i))})
    store.close()
    path = tmp_path / "store" / "scores.bin"
    whole = path.read_bytes()
    for n in (1, 20, len(whole) // 3 - 1):
        path.write_bytes(whole[:-n])
        store = ScoreStore(tmp_path / "store", {})
        assert len(store) == 2
        assert "was cut short" in caplog.text
        store.add(keys[2], {"x": torch.full((4,), 2.0)})
        store.close()
        assert path.read_bytes() == whole
    damaged = bytearray(whole)
    damaged[40] ^= 1
    path.write_bytes(damaged)
    store = ScoreStore(tmp_path / "store", {})
    with pytest.raises(ValueError, match=r"scores.bin: the record at byte 0 is damaged"):
        store.get(keys[0])
    found = store.get(keys[1])
    assert found is not None
    assert torch.equal(found["x"], torch.full((4,), 1.0))


def test_store_that_was_killed_as_it_began_is_begun_again(tmp_path: Path, trials: Trials) -> None:
    found = instants(
        tmp_path / "store", lambda: ScoreStore(tmp_path / "store", {"seed": 1}).close()
    )
    assert len(found) > 3
    for _, there in found:
        put(there, tmp_path / "store")
        store = ScoreStore(tmp_path / "store", {"seed": 1})
        assert len(store) == 0
        store.close()
        trials.count("kills")
    (tmp_path / "store" / "store.json").unlink()
    with pytest.raises(ValueError, match="holds files, but no teacher's scores"):
        ScoreStore(tmp_path / "store", {"seed": 1})


@pytest.mark.trials("full disk")
def test_full_disk_leaves_no_part_of_a_record(tmp_path: Path) -> None:
    store, keys = ScoreStore(tmp_path / "store", {}), [bytes([i] * 16) for i in range(2)]
    store.add(keys[0], {"x": torch.zeros(4)})
    path = tmp_path / "store" / "scores.bin"
    whole, file = path.read_bytes(), store._file

    class Full:
        fileno = file.fileno

        @staticmethod
        def write(data: bytes) -> int:
            return file.write(data[:30])

    store._file = Full()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OSError, match=r"No space left on device: .*scores\.bin"):
        store.add(keys[1], {"x": torch.zeros(4)})
    assert path.read_bytes() == whole
    assert store.get(keys[1]) is None


def test_the_hash_is_of_all_that_a_batch_holds() -> None:
    b = batch()
    assert batch_hash(b) == batch_hash(batch())
    assert b.targets is not None
    assert b.visibility.document is not None
    changed = b.inputs.clone()
    changed[0, 0] += 1
    others = [
        {"inputs": changed},
        {"targets": None},
        {"target_positions": torch.tensor([0, 3, 10, 14, 21])},
        {"visibility": type(b.visibility)(document=b.visibility.document, causal=True)},
        {"inputs": b.inputs.int()},
    ]
    hashes = {batch_hash(Batch(**(vars(b) | change))) for change in others}
    assert len(hashes | {batch_hash(b)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("soft", "kind", "store", "message"),
    [
        ({"top_k": 1000}, "BertForMaskedLM", None, "top_k must be at most the 100 tokens"),
        ({}, "BertForMaskedLM", "s", "100 probabilities of each token are too many"),
        ({"top_k": 2}, "BertForSequenceClassification", None, "top_k is for language models"),
        ({"tokens": "all"}, "BertForSequenceClassification", None, "tokens is for language models"),
    ],
)
def test_what_does_not_fit_is_refused(
    soft: dict[str, Any], kind: str, store: str | None, message: str, tmp_path: Path
) -> None:
    student = opened(tmp_path / "s", kind, **STUDENT)
    teacher = opened(tmp_path / "t", kind, **TEACHER)
    with pytest.raises(ValueError, match=message):
        forward(student, [teacher], SoftTargets(**soft), store=store)
