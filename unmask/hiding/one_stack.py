"""What an encoder would read and a decoder say, one after the other in a single stack."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE, Example, Tokens
from unmask.hiding.conceal import Dropped, Future, InPlace, InTurn, Order, PlaceBefore
from unmask.hiding.denoise import WITH_SOURCE, Denoise, InMode, has_source
from unmask.hiding.hide import Hide, longest_text
from unmask.hiding.mixture import Mixture
from unmask.tokens.vocabulary import Special


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


@dataclass(frozen=True)
class InOneStack:
    """What an encoder-decoder is asked, of a stack that reads the source and goes on with the rest.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1: a language model, or with `whole` a prefix
    language model, under a denoising objective; see `joined`.
    """

    objective: Hide | Denoise | InMode | Mixture
    whole: bool = False
    """The source is seen as a whole."""

    def __post_init__(self) -> None:
        of_one = InPlace | PlaceBefore | InTurn | Order | Future
        if isinstance(self.objective, Mixture) and not has_source(self.objective.parts[0][1]):
            raise ValueError(
                "only what is read in two stacks can be in one: the parts of objective must be "
                f"{WITH_SOURCE}, got {type(self.objective.parts[0][1]).__name__}"
            )
        if isinstance(self.objective, Hide) and isinstance(self.objective.conceal, of_one):
            raise ValueError(
                "only what is read in two stacks can be in one: objective.conceal must be "
                f"Sentinels, got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """Unless the source is seen as a whole."""
        return not self.whole

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of both sides, at most: twice the longer one, or what spans take.

        Where hidden tokens are gone, each token is on one side.
        """
        n = np.asarray(n)
        longer = self.objective.size(n, special)
        if not isinstance(self.objective, Hide):
            return 2 * longer
        if isinstance(self.objective.conceal, Dropped):
            return longer + len(special.after)
        folded = self.objective.choose.folded(n)
        short = len(special.after) + np.where(n >= self.objective.choose.least, folded.hidden, 0)
        return longer + np.minimum(short, longer)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: both sides share the length."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide as the objective does, and lay both sides in one text.

        Raises:
            ValueError: the objective makes no source.
        """
        return joined(self.objective(text, special, rng), whole=self.whole)
