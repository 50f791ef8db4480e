"""What an encoder would read and a decoder say, one after the other in a single stack."""

import numpy as np

from unmask.batch import IGNORE, Example


def joined(example: Example, *, whole: bool) -> Example:
    """Lay a source and what is said of it in one text, of which only the latter is asked.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1: inputs and targets are concatenated. The
    last token of the source is asked for the first of the target, so nothing stands between.

    Args:
        example: with a source, whose inputs are a start token and then the target.
        whole: all of the source is seen by all of it (a prefix language model); otherwise each
            token sees those before it.

    Raises:
        ValueError: there is no source.
    """
    if example.source is None:
        raise ValueError("only an objective that gives an encoder a source can be in one stack")
    n = len(example.source)
    inputs = np.concatenate((example.source, example.inputs[1:]))
    rank = np.arange(len(inputs))
    return Example(
        inputs=inputs,
        targets=np.concatenate((np.full(n - 1, IGNORE), example.targets)),
        rank=(rank - n + 1).clip(min=0) if whole else rank,
        ahead=True,
    )
