"""The CRF against all sequences there are, written out one by one."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.heads.tagging.crf import BOUNDARY, CRF

CLOSE = 1e-4  # float32, sums of a few hundred terms near 10


def random_crf(n_labels, seed, impossible=()):
    torch.manual_seed(seed)
    crf = CRF(n_labels, impossible)
    for p in crf.parameters():
        torch.nn.init.normal_(p)
    return crf


def total(crf, scores, path):
    """The score of a sequence, as the paper defines it."""
    if not path:
        return 0.0
    output = sum(float(scores[i, label]) for i, label in enumerate(path))
    steps = sum(float(crf.transitions[a, b]) for a, b in pairwise(path))
    return output + steps + float(crf.begin[path[0]]) + float(crf.end[path[-1]])


def every(n_labels, n):
    return list(product(range(n_labels), repeat=n))


cases = st.tuples(
    st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 10**6)
)


@settings(max_examples=40)
@given(cases)
def test_likelihoods_marginals_and_paths_equal_enumeration(case) -> None:
    n_labels, lengths, seed = case
    crf = random_crf(n_labels, seed).requires_grad_(False)
    t = max(*lengths, 1)
    scores = 2 * torch.randn(len(lengths), t, n_labels)
    labels = torch.randint(0, n_labels, (len(lengths), t))
    sizes = torch.tensor(lengths)
    likelihood = crf.log_likelihood(scores, labels, sizes)
    partition = crf.log_partition(scores, sizes)
    marginals = crf.log_marginals(scores, sizes)
    best = crf.decode(scores, sizes)
    for b, n in enumerate(lengths):
        paths = every(n_labels, n)
        totals = torch.tensor([total(crf, scores[b], path) for path in paths])
        log_all = totals.logsumexp(0) if n else torch.tensor(0.0)
        assert float(partition[b]) == pytest.approx(float(log_all), abs=CLOSE)
        right = total(crf, scores[b], tuple(labels[b, :n].tolist())) - float(log_all)
        assert float(likelihood[b]) == pytest.approx(right, abs=CLOSE)
        shares = (totals - log_all).exp()
        for i in range(n):
            for label in range(n_labels):
                share = sum(float(s) for s, p in zip(shares, paths, strict=True) if p[i] == label)
                assert float(marginals[b, i, label].exp()) == pytest.approx(share, abs=CLOSE)
        log_likelihood = total(crf, scores[b], tuple(best[b, :n].tolist()))
        assert log_likelihood == pytest.approx(float(totals.max()), abs=CLOSE)


def test_sequence_probabilities_sum_to_one() -> None:
    crf = random_crf(3, 0)
    scores = torch.randn(1, 4, 3)
    labels = torch.tensor(every(3, 4))
    many = scores.expand(len(labels), -1, -1)
    likelihoods = crf.log_likelihood(many, labels, torch.full((len(labels),), 4))
    assert float(likelihoods.detach().exp().sum()) == pytest.approx(1, abs=1e-5)


def test_marginals_are_gradients_of_the_log_partition() -> None:
    crf = random_crf(3, 1)
    scores = torch.randn(2, 5, 3, requires_grad=True)
    lengths = torch.tensor([5, 3])
    (gradient,) = torch.autograd.grad(crf.log_partition(scores, lengths).sum(), scores)
    marginals = crf.log_marginals(scores, lengths).detach().exp()
    assert torch.allclose(gradient[0], marginals[0], atol=1e-5)
    assert torch.allclose(gradient[1, :3], marginals[1, :3], atol=1e-5)
    assert not gradient[1, 3:].any()


def test_labels_are_independent_at_initialization() -> None:
    crf = CRF(4)
    scores, labels = torch.randn(2, 6, 4), torch.randint(0, 4, (2, 6))
    lengths = torch.tensor([6, 6])
    logs = scores.log_softmax(-1)
    expected = logs.gather(2, labels[..., None]).sum((1, 2))
    likelihoods = crf.log_likelihood(scores, labels, lengths).detach()
    assert torch.allclose(likelihoods, expected, atol=1e-5)
    assert torch.allclose(crf.log_marginals(scores, lengths).detach(), logs, atol=1e-5)
    assert torch.equal(crf.decode(scores, lengths), scores.argmax(-1))


def test_padding_after_a_sequence_changes_nothing() -> None:
    crf = random_crf(3, 2)
    scores, labels = torch.randn(2, 3, 3), torch.randint(0, 3, (2, 3))
    lengths = torch.tensor([3, 2])
    longer = torch.cat([scores, torch.full((2, 4, 3), 1e6)], 1)
    behind = torch.cat([labels, torch.full((2, 4), -100)], 1)
    one = crf.log_likelihood(scores, labels, lengths)
    other = crf.log_likelihood(longer, behind, lengths)
    assert torch.equal(one, other)
    assert torch.equal(crf.decode(scores, lengths), crf.decode(longer, lengths)[:, :3])
    alone = crf.log_likelihood(scores[1:, :2], labels[1:, :2], lengths[1:])
    assert torch.allclose(alone, one[1:])
    marginals = crf.log_marginals(longer, lengths)
    assert torch.allclose(marginals[:, :3], crf.log_marginals(scores, lengths))


def test_gradients_equal_finite_differences_and_stay_finite() -> None:
    crf = random_crf(3, 3)
    scores = torch.randn(2, 4, 3, requires_grad=True)
    labels, lengths = torch.randint(0, 3, (2, 4)), torch.tensor([4, 0])
    loss = -crf.log_likelihood(scores, labels, lengths).sum()
    found = torch.autograd.grad(loss, [scores, *crf.parameters()])
    step = 1e-2
    for p, gradient in zip(crf.parameters(), found[1:], strict=True):
        at = (0,) * p.ndim
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                p[at] += sign * step
                sides.append(-float(crf.log_likelihood(scores, labels, lengths).sum()))
                p[at] -= sign * step
        slope = (sides[0] - sides[1]) / (2 * step)
        assert float(gradient[at]) == pytest.approx(slope, abs=1e-3)
    assert not found[0][1].any()  # of a sequence of no words
    large = -crf.log_likelihood(1e4 * scores, labels, lengths).sum()
    assert all(x.isfinite().all() for x in torch.autograd.grad(large, [scores, *crf.parameters()]))


BIO = ((BOUNDARY, 2), (0, 2))
"""Of O, B, I: an I neither begins a sentence nor follows an O."""


@settings(max_examples=25)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 10**6))
def test_decoding_finds_the_best_allowed_sequence(lengths, seed) -> None:
    crf = random_crf(3, seed, BIO).requires_grad_(False)
    scores = 3 * torch.randn(len(lengths), max(lengths), 3)
    best = crf.decode(scores, torch.tensor(lengths))
    for b, n in enumerate(lengths):
        possible = [
            path
            for path in every(3, n)
            if not set(pairwise((BOUNDARY, *path, BOUNDARY))) & set(BIO)
        ]  # fmt: skip
        most = max(total(crf, scores[b], path) for path in possible)
        found = tuple(best[b, :n].tolist())
        assert found in possible
        assert total(crf, scores[b], found) == pytest.approx(most, abs=CLOSE)


def test_end_transitions_can_be_forbidden() -> None:
    crf = CRF(2, ((1, BOUNDARY),))
    scores = torch.tensor([[[0.0, 9.0], [0.0, 9.0]]])
    assert crf.decode(scores, torch.tensor([2])).tolist() == [[1, 0]]
    assert crf.decode(scores, torch.tensor([1]))[0, 0] == 0


def test_decoding_breaks_fewest_constraints_if_none_is_allowed() -> None:
    crf = CRF(2, ((BOUNDARY, 0), (BOUNDARY, 1), (0, 0), (1, 1)))
    scores = torch.tensor([[[5.0, 0.0], [5.0, 0.0]]])
    assert crf.decode(scores, torch.tensor([2])).tolist() in ([[0, 1]], [[1, 0]])


def test_forbidden_labels_have_finite_log_likelihood() -> None:
    crf = CRF(3, BIO)
    labels = torch.tensor([[2, 0, 2]])
    likelihoods = crf.log_likelihood(torch.randn(1, 3, 3), labels, torch.tensor([3]))
    assert -20 < float(likelihoods.detach()) < 0


def test_transition_with_unknown_label_is_refused() -> None:
    with pytest.raises(ValueError, match=r"from -1 \(the boundary\) to 1, got \(0, 2\)"):
        CRF(2, ((0, 2),))
    with pytest.raises(ValueError, match=r"\(-2, 0\)"):
        CRF(2, ((-2, 0),))


def test_useful_transitions_are_learned() -> None:
    """Labels go round: 0, 1, 2, 0, ...; a word shows its own only now and then."""
    torch.manual_seed(0)
    n, t = 32, 6
    labels = (torch.arange(t) + torch.randint(0, 3, (n, 1))) % 3
    shown = torch.rand(n, t, 1) < 0.3
    scores = torch.where(shown, 4 * torch.nn.functional.one_hot(labels, 3).float(), 0.0)
    lengths = torch.full((n,), t)
    crf = CRF(3)
    optimizer = torch.optim.Adam(crf.parameters(), lr=0.3)
    for _ in range(40):
        loss = -crf.log_likelihood(scores, labels, lengths).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    some = shown.any(1)[:, 0]  # of a row where nothing is shown nothing is known
    independent = (scores.argmax(-1) == labels)[some].float().mean()
    together = (crf.decode(scores, lengths) == labels)[some].float().mean()
    assert float(independent) < 0.65
    assert float(together) == 1
