"""Text, token by token: greedy, sampled or searched for, with a cache of what was read."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from unmask.adapters.prefix import decoder, reader, room
from unmask.generation.beam import Said, search
from unmask.generation.reading import at_rest
from unmask.generation.rows import Rows
from unmask.generation.settings import Beam, Decoding, Greedy, Sample
from unmask.generation.speculate import Draft, speculate
from unmask.generation.texts import Guide, Text, pick, restrained
from unmask.heads.model import Model
from unmask.hiding.collate import by_size
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.vocabulary import Special

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
    if isinstance(how.by, Beam):
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
    """Search for the best texts after each prompt, as many as the beams shall return.

    Args and errors are those of `generate`.

    Raises:
        ValueError: there are no beams, more than tokens, or a draft, which is not for them.
    """
    if not isinstance(how.by, Beam):
        raise ValueError("only beams find several texts of a prompt: give beams")
    if draft is not None:
        raise ValueError("a draft guesses one token after another: give beams or a draft, not both")
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
        ValueError: `how` is to search with beams, which say nothing before they have found it all.
    """
    if isinstance(how.by, Beam):
        raise ValueError("beams are searched to their end before a text is known: no stream")
    if draft is not None:
        draft.check(model)
    waiting = list(range(len(asked)))
    while waiting:
        prompts = {i: asked[i].prompt() for i in waiting}
        if draft is not None:
            for i in waiting:
                for token in speculate(model, draft, asked[i], prompts[i], special, how, how.by):
                    yield i, token
        else:
            sizes = [len(prompts[i].read) + asked[i].most - len(asked[i].said) for i in waiting]
            for group in by_size(sizes, AT_ONCE):
                rows = {waiting[g]: asked[waiting[g]] for g in group}
                read = Rows(model, [prompts[i] for i in rows], special)
                yield from _say(read, rows, special, how, how.by)
        waiting = [i for i in waiting if not asked[i].over]
    _warn([len(text.said) for text in asked], asked, how)


def _say(
    rows: Rows, asked: Mapping[int, Text], special: Special, how: Decoding, by: Greedy | Sample
) -> Iterator[tuple[int, int]]:
    """Read what stands before, then token by token what is said; texts that halt are dropped."""
    going = list(asked.items())
    while True:
        here = [(text, text.said) for _, text in going]
        scores = restrained(rows.scores()[:, 0], here, how, special)
        picked = pick(scores, by, [text.dice for _, text in going])
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
