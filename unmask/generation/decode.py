"""Text, token by token: greedy, sampled or searched for, with a cache of what was read."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.prefix import decoder, reader, room
from unmask.generation.beam import Said, search
from unmask.generation.reading import at_rest
from unmask.generation.rows import Rows
from unmask.generation.settings import Beam, Decoding, Greedy, Ranked, Sample
from unmask.generation.speculate import Draft, speculate
from unmask.generation.texts import NOTHING, Guide, Text, pick, restrained
from unmask.heads.model import Model
from unmask.hiding.collate import by_size
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.vocabulary import Special

T = TypeVar("T")

_log = logging.getLogger(__name__)

AT_ONCE = 8192
"""Tokens, read and new ones, whose keys and values are held at the same time."""


def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special: Special,
    how: Decoding = Decoding(),
    *,
    begun: Sequence[Sequence[int]] | None = None,
    guides: Sequence[Guide] | None = None,
    draft: Draft | None = None,
) -> list[list[int]]:
    """Continue each prompt (a decoder) or answer it (`Model.answers`); return the new tokens.

    A text ends before the model's end token, which is left out, with the last of `how.new_tokens`,
    where its guide says so, where nothing may follow, or where the positions end: n positions are
    read, so prompt and new tokens are at most n + 1; learned tokens before the prompt
    (`unmask.adapters.prefix`) have theirs, too. What a prompt becomes does not depend on the
    others, unless rounding, which differs with the shape of a batch, decides between two tokens;
    one that is given several times is drawn several times. An empty prompt is the start token. Ids
    beyond the vocabulary, which a table of round size has, are never said.

    Args:
        model: a decoder or an encoder-decoder.
        prompts: their tokens, special ones included.
        special: of the vocabulary.
        how: `stop` is the business of guides, since it is text.
        begun: for each prompt the tokens with which its answer begins. They are not returned, and
            do not count as new.
        guides: for each prompt what ends or restrains its text.
        draft: a smaller model that guesses what will be said (`unmask.generation.speculate`).

    Raises:
        ValueError: the model does not generate, or a prompt is longer than its positions.
    """
    if isinstance(how.by, Beam | Ranked):
        found = candidates(model, prompts, special, how, begun=begun, guides=guides, draft=draft)
        return [list(best[0].ids) for best in found]
    said: list[list[int]] = [[] for _ in prompts]
    with at_rest(model):
        some = texts(model, prompts, special, how, begun=begun, guides=guides)
        for i, token in spoken(model, some, special, how, draft=draft):
            said[i].append(token)
    return said


def candidates(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special: Special,
    how: Decoding,
    *,
    begun: Sequence[Sequence[int]] | None = None,
    guides: Sequence[Guide] | None = None,
    draft: Draft | None = None,
) -> list[list[Said]]:
    """Search for the best texts after each prompt, or draw some, as many as shall be returned.

    Args and errors are those of `generate`.

    Raises:
        ValueError: there are neither beams nor samples, more beams than tokens, or a draft, which
            is not for them.
    """
    if not isinstance(how.by, Beam | Ranked):
        raise ValueError("only beams or samples give several texts of a prompt: give one of them")
    if draft is not None:
        raise ValueError(
            f"a draft guesses one token after another: give {several(how.by)} or a draft, not both"
        )
    if isinstance(how.by, Ranked):
        return _ranked(model, prompts, special, how, how.by, begun, guides)
    if how.by.beams > special.size:
        raise ValueError(f"{how.by.beams} beams are more than the {special.size} tokens there are")
    asked = texts(model, prompts, special, how, begun=begun, guides=guides)
    found: list[list[Said]] = [[] for _ in asked]
    sizes = [len(text.read) + text.most for text in asked]
    with at_rest(model):
        for group in by_size(sizes, AT_ONCE, counts=[how.by.beams] * len(sizes)):
            best = search(model, [asked[i] for i in group], how, how.by, special)
            for i, one in zip(group, best, strict=True):
                found[i] = one
    _warn([len(best[0].ids) for best in found], asked, how)
    return found


def several(by: Beam | Ranked) -> str:
    """Name what one text is chosen of."""
    return "beams" if isinstance(by, Beam) else "samples"


def _ranked(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special: Special,
    how: Decoding,
    by: Ranked,
    begun: Sequence[Sequence[int]] | None,
    guides: Sequence[Guide] | None,
) -> list[list[Said]]:
    """Draw several texts of each prompt, and rank those that differ by their log-probability."""
    n = by.samples
    asked = texts(
        model,
        _each(prompts, n),
        special,
        how,
        begun=None if begun is None else _each(begun, n),
        guides=None if guides is None else _each(guides, n),
    )
    with at_rest(model):
        for _ in _spoken(model, asked, special, how, by.draw, counted=True):
            pass
    found: list[list[Said]] = []
    for i in range(0, len(asked), n):
        some = {tuple(text.said): Said(tuple(text.said), text.total) for text in asked[i : i + n]}
        found.append(sorted(some.values(), key=lambda one: -one.score)[: by.best])
    return found


def _each(some: Sequence[T], n: int) -> list[T]:
    return [one for one in some for _ in range(n)]


def spoken(
    model: Model,
    asked: Sequence[Text],
    special: Special,
    how: Decoding,
    *,
    draft: Draft | None = None,
) -> Iterator[tuple[int, int]]:
    """Say each text, by a model that is at rest; give which one it is, and the token, at once.

    Raises:
        ValueError: `how` is to choose one of several texts, which is known when they have ended.
    """
    if isinstance(how.by, Beam | Ranked):
        raise ValueError(f"{several(how.by)} end before a text is known: no stream")
    if draft is not None:
        draft.check(model)
    yield from _spoken(model, asked, special, how, how.by, draft=draft)


def _spoken(
    model: Model,
    asked: Sequence[Text],
    special: Special,
    how: Decoding,
    by: Greedy | Sample,
    *,
    draft: Draft | None = None,
    counted: bool = False,
) -> Iterator[tuple[int, int]]:
    """Say each text, as `spoken` does, also one of several; `counted`: with how likely it is."""
    waiting = list(range(len(asked)))
    while waiting:
        prompts = {i: asked[i].prompt() for i in waiting}
        if draft is not None:
            for i in waiting:
                for token in speculate(model, draft, asked[i], prompts[i], special, how, by):
                    yield i, token
        else:
            sizes = [len(prompts[i].read) + asked[i].most - len(asked[i].said) for i in waiting]
            for group in by_size(sizes, AT_ONCE):
                rows = {waiting[g]: asked[waiting[g]] for g in group}
                read = Rows(model, [prompts[i] for i in rows], special)
                yield from _say(read, rows, special, how, by, counted)
        waiting = [i for i in waiting if not asked[i].over]
    _warn([len(text.said) for text in asked], asked, how)


def _say(
    rows: Rows,
    asked: Mapping[int, Text],
    special: Special,
    how: Decoding,
    by: Greedy | Sample,
    counted: bool,
) -> Iterator[tuple[int, int]]:
    """Read what stands before, then token by token what is said; texts that halt are dropped."""
    going = list(asked.items())
    while True:
        here = [(text, text.said) for _, text in going]
        scores = restrained(rows.scores()[:, 0], here, how, special)
        picked = pick(scores, by, [text.dice for _, text in going])
        if counted:
            _count([text for _, text in going], scores, picked)
        for (i, text), token in zip(going, picked.tolist(), strict=True):
            if text.take(token, special.end):
                yield i, token
        on = [row for row, (_, text) in enumerate(going) if not text.halts]
        if not on:
            return
        if len(on) < len(going):
            kept = torch.tensor(on, device=picked.device)
            rows.keep(kept)
            picked, going = picked[kept], [going[row] for row in on]
        rows.say(picked[:, None])


def _count(said: Sequence[Text], scores: Float[Tensor, "b v"], picked: Int[Tensor, "b"]) -> None:
    """Add to each text how likely the model holds what was picked, if anything was."""
    logs = scores.log_softmax(-1).gather(-1, picked.clamp(min=0)[:, None])[:, 0].tolist()
    for text, token, log in zip(said, picked.tolist(), logs, strict=True):
        text.total += 0.0 if token == NOTHING else log


def texts(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special: Special,
    how: Decoding,
    *,
    begun: Sequence[Sequence[int]] | None = None,
    guides: Sequence[Guide] | None = None,
) -> list[Text]:
    """Make of each prompt a text of which nothing was said; args and errors as in `generate`."""
    if not model.writes:
        raise ValueError("this model reads in both directions and does not generate; use `fill`")
    encoder = isinstance(model.backbone, EncoderDecoder)
    given = [list(prompt) or [special.start] for prompt in prompts]
    said = [list(ids) for ids in begun] if begun is not None else [[] for _ in given]
    if encoder:
        _check_lengths(given, room(model, reader(model)), "")
    answer = (special.start, *special.lead)
    before = [list(answer)] * len(given) if encoder else given
    read = [[*ids, *more] for ids, more in zip(before, said, strict=True)]
    length = room(model, decoder(model))
    if length is not None and model.by_mask is not None:
        length -= 1  # where the mask stands
    sources = model.answers and not encoder
    if not how.window:
        _check_lengths(read, length, ": `window` reads the last of it" if not sources else "")
    elif sources and length is not None:
        _check_lengths(given, length - 1, "")  # what is said has to be read beside it
    dice = _dice([[*ids, *more] for ids, more in zip(given, said, strict=True)], how.seed)
    head = answer if encoder else special.before
    wholes = [len(ids) * sources for ids in given]
    return [
        Text(
            read=ids,
            source=source if encoder else None,
            whole=whole,
            led=len(special.lead) if encoder else 0,
            most=how.new_tokens
            if length is None or how.window
            else min(how.new_tokens, length + 1 - len(ids)),
            room=length,
            head=whole or (len(head) if tuple(ids[: len(head)]) == head else 0),
            dice=one,
            guide=guide,
        )
        for source, ids, whole, one, guide in zip(
            given, read, wholes, dice, guides or [None] * len(given), strict=True
        )
    ]


def _warn(said: Sequence[int], asked: Sequence[Text], how: Decoding) -> None:
    """Tell of texts that have as many tokens as there was room for, and were to have more."""
    full = [text for n, text in zip(said, asked, strict=True) if n == text.most < how.new_tokens]
    if full:
        _log.warning(
            "%s ended after %d new tokens, at the model's last position, before the %d that were "
            "asked for%s",
            "a text" if len(full) == 1 else f"{len(full):,} texts",
            min(text.most for text in full),
            how.new_tokens,
            "" if isinstance(how.by, Beam) else "; `window` reads the last of it, and goes on",
        )


def _check_lengths(prompts: Sequence[Sequence[int]], most: int | None, hint: str) -> None:
    for i, prompt in enumerate(prompts, 1):
        if most is not None and len(prompt) > most:
            raise ValueError(
                f"prompt {i} has {len(prompt)} tokens, but the model only {most} positions for it"
                f"{hint}"
            )


def _dice(prompts: Sequence[Sequence[int]], seed: int) -> list[np.random.Generator]:
    """Give each prompt a generator of its own, whatever stands beside it."""
    seen: Counter[tuple[int, ...]] = Counter()
    found: list[np.random.Generator] = []
    for prompt in map(tuple, prompts):
        found.append(np.random.default_rng([seed, seen[prompt], *prompt]))
        seen[prompt] += 1
    return found
