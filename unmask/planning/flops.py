"""FLOPs of training: counted from the network, and by the rule of six to compare."""

from collections.abc import Collection

from unmask.heads.model import Model

TOKENS_PER_PARAMETER = 20
"""Of a compute-optimal language model: Hoffmann et al. 2022, arXiv:2203.15556, table 3, whose rows
have 20.0 to 22.4."""


def default_target_fraction(loss_terms: Collection[str]) -> float:
    """Return the fraction of tokens with a target, where no rows are at hand: BERT's, or all."""
    return 0.15 if "masked" in loss_terms else 1.0


def training_flops_per_token(
    model: Model,
    length: int,
    target_fraction: int | float,
    teachers: Collection[Model] = (),
) -> float:
    """Count FLOPs of a training step per token: forward, and backward as twice that.

    Teachers of distillation have a forward alone. The models may be on the meta device. See
    `Model.flops`; word vectors, which have no network, have none.
    """
    forwards = (teacher.flops(length, target_fraction) / 3 for teacher in teachers)
    return model.flops(length, target_fraction) + sum(forwards)


def six_nd(n_parameters: int | float, n_tokens: int | float) -> float:
    """Return 6 N D, without attention (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).

    >>> f"{six_nd(174.6e9, 300e9):.2e}"  # GPT-3, arXiv:2005.14165, appendix D
    '3.14e+23'
    """
    return 6.0 * n_parameters * n_tokens


def compute_optimal_tokens(n_parameters: int | float) -> float:
    """Return the tokens with which a model of this size is compute-optimal, by Chinchilla's rule.

    For decoders that read each token once; Hoffmann et al. 2022, section 3.4.
    """
    return float(TOKENS_PER_PARAMETER * n_parameters)
