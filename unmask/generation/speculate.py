"""A smaller model guesses the next tokens, and the larger one reads all guesses at once.

Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; Chen et al. 2023, arXiv:2302.01318, algorithm
2. What is said has the distribution of the larger model alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.adapters.prefix import decoder, room
from unmask.generation.reading import at_rest
from unmask.generation.rows import Prompt, Rows
from unmask.generation.settings import Decoding, Greedy, Sample
from unmask.generation.texts import NOTHING, Text, restrained
from unmask.heads.model import Model
from unmask.tokens.vocabulary import Special


@dataclass(kw_only=True)
class Draft:
    """A smaller model of the same vocabulary, and how well it guessed."""

    model: Model
    guesses: int = 4
    """Tokens that are guessed before the larger model reads them (gamma in Leviathan et al.)."""
    guessed: int = 0
    """Tokens that the larger model has judged so far."""
    accepted: int = 0
    """Of these, the ones it accepted."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.guesses < 1:
            raise ValueError(f"guesses must be at least 1, got {self.guesses}")

    @property
    def share(self) -> float:
        """The share of guesses that were accepted; 0 where there were none."""
        return self.accepted / max(self.guessed, 1)

    def check(self, model: Model) -> None:
        """Refuse a model for which this one cannot guess.

        Raises:
            ValueError: one of them says text by masks; this one does not generate, is an
                encoder-decoder where that is none (or the other way round), has another number of
                tokens, or fewer positions.
        """
        if model.by_mask is not None or self.model.by_mask is not None:
            raise ValueError("a model that says text by masks reads no guesses: give no draft")
        if not self.model.writes or type(self.model.backbone) is not type(model.backbone):
            raise ValueError("the draft must be a decoder as the model is, or an encoder-decoder")
        if self.model.vocab_size != model.vocab_size:
            raise ValueError(
                f"the draft has {self.model.vocab_size} tokens and the model {model.vocab_size}: "
                "they must have the same vocabulary"
            )
        mine, its = room(self.model, decoder(self.model)), room(model, decoder(model))
        if mine is not None and (its is None or mine < its):
            raise ValueError(
                f"the draft has {mine} positions and the model {its or 'any number'}: it must have "
                "as many"
            )

    def judged(
        self,
        guesses: Sequence[int],
        expected: Sequence[Float[np.ndarray, "v"]],
        wanted: Sequence[Float[np.ndarray, "v"]] | Float[np.ndarray, "_ v"],
        dice: np.random.Generator,
    ) -> list[int]:
        """Return the guesses up to the first that is not accepted, and one more token.

        Args:
            guesses: tokens drawn from the shares expected.
            expected: the probabilities of all tokens in this model, for each guess.
            wanted: in the larger model, for each guess and for what follows the last.
            dice: which draw.
        """
        n = 0
        while n < len(guesses) and accept(wanted[n], expected[n], guesses[n], dice):
            n += 1
        self.guessed += min(n + 1, len(guesses))
        self.accepted += n
        rest = wanted[n] if n == len(guesses) else residual(wanted[n], expected[n])
        return [*guesses[:n], _draw(rest, dice)]


def speculate(
    model: Model,
    draft: Draft,
    text: Text,
    prompt: Prompt,
    special: Special,
    how: Decoding,
    by: Greedy | Sample,
) -> Iterator[int]:
    """Say a text until it halts, and give each token; one text at a time."""
    rows, guessing = (
        Rows(one, [prompt], special, back=draft.guesses) for one in (model, draft.model)
    )
    while not text.halts:
        most = text.most if text.fits is None else min(text.most, text.fits)
        guesses, expected = list[int](), list[np.ndarray]()
        with at_rest(draft.model):
            # One fewer than may be said: the last is the model's own.
            while len(guesses) < min(draft.guesses, most - len(text.said) - 1):
                scores = guessing.scores()[:, 0]
                share = _shares(scores, [(text, [*text.said, *guesses])], how, by, special)[0]
                if not share.any():
                    break
                expected.append(share)
                guesses.append(_draw(share, text.dice))
                guessing.say(_column(guesses[-1], scores))
                if guesses[-1] == special.end:
                    break
        for guess in guesses:
            rows.say(_column(guess, model.backbone.table.weight))
        scores = rows.scores(len(guesses) + 1)[0]
        here = [(text, [*text.said, *guesses[:n]]) for n in range(len(guesses) + 1)]
        shares = _shares(scores, here, how, by, special)
        said = draft.judged(guesses, expected, shares, text.dice)
        for token in said:
            if text.over or not text.take(token, special.end):
                break
            yield token
        if text.halts:
            return
        for one in (rows, guessing):
            one.cut(len(guesses) + 1 - len(said))
            one.say(_column(said[-1], scores))


def _column(token: int, like: Tensor) -> Tensor:
    return torch.tensor([[token]], device=like.device)


def _shares(
    scores: Float[Tensor, "b v"],
    here: Sequence[tuple[Text, Sequence[int]]],
    how: Decoding,
    by: Greedy | Sample,
    special: Special,
) -> Float[np.ndarray, "b v"]:
    """Return the probability of each token; 0 of all where none may follow."""
    scores = restrained(scores, here, how, special)
    stuck = scores.amax(-1, keepdim=True) == -torch.inf
    share = by.shares(scores.masked_fill(stuck, 0)).masked_fill(stuck, 0).double()
    return (share / share.sum(-1, keepdim=True).clamp(min=1e-300)).cpu().numpy()


def accept(
    wanted: Float[np.ndarray, "v"],
    expected: Float[np.ndarray, "v"],
    token: int,
    dice: np.random.Generator,
) -> bool:
    """Accept a token drawn from `expected` with probability min(1, wanted / expected)."""
    return bool(dice.random() * expected[token] < wanted[token])


def residual(
    wanted: Float[np.ndarray, "v"], expected: Float[np.ndarray, "v"]
) -> Float[np.ndarray, "v"]:
    """Return what a token is drawn from when one was not accepted: max(0, wanted - expected)."""
    rest = np.maximum(wanted - expected, 0)
    return rest / rest.sum() if rest.sum() > 0 else wanted  # rounding alone leaves nothing


def _draw(share: Float[np.ndarray, "v"], dice: np.random.Generator) -> int:
    sums = share.cumsum()
    if sums[-1] == 0:
        return NOTHING
    return int(np.searchsorted(sums, (1 - dice.random()) * sums[-1]))
