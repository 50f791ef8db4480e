"""Fill in what is hidden: [MASK] in an encoder's text, a span in an encoder-decoder's."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.adapters.prefix import decoder, room
from unmask.batch import Batch
from unmask.generation.decode import generate
from unmask.generation.reading import at_rest, check_scores, padded
from unmask.generation.settings import Decoding
from unmask.heads.characters import CharactersInTurn
from unmask.heads.corrected import Corrected
from unmask.heads.model import Model
from unmask.heads.replaced import Replaced
from unmask.hiding.collate import by_size
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.beginning import LONG
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import sentinels

BLANK = "[MASK]"
"""What marks a hidden place in a text, for every model; a tokenizer's own marks do too."""
SPAN = 12
"""Tokens that an encoder-decoder says at most, times the number of blanks."""
_NEAR = 16
"""Tokens before one that say whether a space is between."""


@dataclass(frozen=True)
class Candidate:
    """One way to fill a blank."""

    text: str
    """What continues a word in BERT's way keeps its ##; what is gone on with, where pieces tell
    words' ends and not their beginnings, has it behind."""
    probability: float | None
    """None where a whole span is said, token by token."""


@dataclass(frozen=True)
class Filled:
    """A text whose blanks are filled."""

    text: str
    """With the likeliest candidate in each blank; all else is as it was written."""
    blanks: tuple[tuple[Candidate, ...], ...]
    """For each blank its candidates, the likeliest first."""


def fill(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    top_k: int = 5,
    batch_tokens: int = 4096,
) -> list[Filled]:
    """Say what may stand at each blank of each text.

    Blanks are written [MASK], as the tokenizer's own mask, or, for T5, as <extra_id_0> and so on.
    An encoder says one token for each blank, and its probability; several blanks are filled each on
    its own, as if the others stayed hidden. Special tokens are no candidates, though they have a
    share of the probability. An encoder-decoder says one candidate for each blank, of any number of
    tokens. One that says whole texts (BART, or T5 where it has learned that: it begins with no
    sentinel) begins with what is shown, one blank after the other.

    Args:
        model: an encoder with a head that names tokens, or an encoder-decoder.
        tokenizer: the model's own.
        texts: in any order; what is said of one does not depend on the others.
        top_k: candidates for each blank of an encoder.
        batch_tokens: read at once.

    Raises:
        ValueError: a text has no blank, or more tokens than the model has positions, or the model
            fills none.
    """
    tokenizer.check_reads("fill")
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if (why := why_not(model, tokenizer)) is not None:
        raise ValueError(why)
    cut = [_cut(text, tokenizer) for text in texts]
    for i, pieces in enumerate(cut, 1):
        if len(pieces) < 2:
            shown = pieces[0] if len(pieces[0]) <= 80 else f"{pieces[0][:80]}..."
            raise ValueError(f"text {i} has no blank: {shown!r}; write {BLANK} where one is")
    if isinstance(model.backbone, EncoderDecoder):
        by_name = tokenizer.frame.n_sentinels or tokenizer.frame.mask is None
        found = _spans(model, tokenizer, cut) if by_name else [None] * len(cut)
        whole = iter(_restored(model, tokenizer, [cut[i] for i, f in enumerate(found) if not f]))
        return [one or next(whole) for one in found]
    return _masks(model, tokenizer, cut, top_k, batch_tokens)


def why_not(model: Model, tokenizer: Tokenizer) -> str | None:
    """Say why a model fills no blanks; None: it does."""
    frame = tokenizer.frame
    if isinstance(model.backbone, EncoderDecoder):
        if not model.names_tokens:
            return _without_language(model)
        if frame.mask is None and not frame.n_sentinels:
            return (
                "this model's texts have no blanks: its tokenizer has neither a mask nor "
                "sentinels; use `generate`"
            )
        return None
    if model.stack.causal:
        return "this model only reads forward and does not fill blanks; use `generate`"
    if not model.names_tokens:
        return _without_language(model)
    if frame.mask is None or tokenizer.special.mask is None:
        return "the tokenizer has no mask token, so this model fills no blanks"
    return None


def _without_language(model: Model) -> str:
    """Say what else there is, where a model has no head that names tokens."""
    heads = ", ".join(model.specs) or "none"
    if any(isinstance(spec, Replaced | Corrected) for spec in model.specs.values()):
        other = "the generator that it was trained with does: the folder generator inside its own"
    elif any(isinstance(spec, CharactersInTurn) for spec in model.specs.values()):
        other = "it reads characters and fills no blanks; `embed` or `finetune` it"
    else:
        other = "`embed` or `finetune` it, or name a model with one"
    return f"this model has no language-model head (heads: {heads}): {other}"


def _cut(text: str, tokenizer: Tokenizer) -> list[str]:
    """Cut a text at its blanks."""
    frame = tokenizer.frame
    marks = {BLANK, *sentinels(frame)} | ({frame.mask} if frame.mask is not None else set())
    return re.split("|".join(re.escape(mark) for mark in sorted(marks)), text)


@dataclass(frozen=True)
class _Said:
    """What an encoder says at one blank, the likeliest first."""

    ids: Int[np.ndarray, "k"]
    shares: Float[np.ndarray, "k"]


def _masks(
    model: Model,
    tokenizer: Tokenizer,
    cut: Sequence[Sequence[str]],
    top_k: int,
    batch_tokens: int,
) -> list[Filled]:
    special, mask, late = tokenizer.special, tokenizer.frame.mask, int(model.ahead)
    assert mask is not None, "`why_not` has asked"
    assert special.mask is not None, "`why_not` has asked"
    before = special.before or (special.start,) * late
    texts, most = [mask.join(pieces) for pieces in cut], room(model, decoder(model))
    more = None if most is None else most + 1
    inner = tokenizer.first_batch(texts, more, special=True)
    framed = [np.array([*before, *ids, *special.after], np.int64) for ids in inner]
    _check_lengths(framed, most, texts)
    reserved = torch.tensor(sorted(special.ids), device=model.device)
    top_k = min(top_k, tokenizer.size - len(reserved))
    said: list[list[_Said]] = [[] for _ in cut]
    with at_rest(model):
        for rows in by_size([len(ids) for ids in framed], batch_tokens):
            batch = padded([framed[i] for i in rows], special).to(model.device)
            blank = (batch.inputs == special.mask).roll(-late, 1)
            batch = model.unseen(batch, special.mask)
            scores = model.language.scores(_at(model, batch, blank)).float()[:, : tokenizer.size]
            check_scores(scores)
            shares, best = scores.softmax(-1).index_fill(-1, reserved, -1).topk(top_k)
            row_of = blank.nonzero()[:, 0].tolist()
            for row, ids, some in zip(
                row_of, best.cpu().numpy(), shares.cpu().numpy(), strict=True
            ):
                said[rows[row]].append(_Said(ids, some))
    return [
        Filled(
            _filled(tokenizer, pieces, ids, some),
            tuple(_candidates(tokenizer, one) for one in some),
        )
        for pieces, ids, some in zip(cut, framed, said, strict=True)
    ]


def _at(model: Model, batch: Batch, blank: Bool[Tensor, "b t"]) -> Float[Tensor, "n d"]:
    """Return hidden states at blanks; where each text has one, the last layer makes no other."""
    if model.narrows and bool((blank.sum(1) == 1).all()):
        return model.hidden(replace(batch, only=blank.long().argmax(1)))[:, 0]
    return model.hidden(batch)[blank]


def _check_lengths(
    framed: Sequence[Int[np.ndarray, "_"]], most: int | None, texts: Sequence[str]
) -> None:
    for i, (ids, text) in enumerate(zip(framed, texts, strict=True), 1):
        more = " or more" if len(text) > LONG else ""
        if most is not None and len(ids) > most:
            raise ValueError(
                f"text {i} has {len(ids):,} tokens{more}, special ones included, but the model "
                f"only {most:,} positions: give the sentences around the blank"
            )


def _candidates(tokenizer: Tokenizer, said: _Said) -> tuple[Candidate, ...]:
    pieces = tokenizer.pieces(said.ids)
    if (end := tokenizer.end_of_word) is not None:
        pieces = [_by_its_end(piece, end) for piece in pieces]
    return tuple(
        Candidate(piece.strip() or piece, float(share))
        for piece, share in zip(pieces, said.shares, strict=True)
    )


def _by_its_end(piece: str, end: str) -> str:
    """Write what ends a word plainly, and what does not with ## behind it."""
    return piece.removesuffix(end) if piece.endswith(end) else f"{piece}##"


def _filled(
    tokenizer: Tokenizer,
    pieces: Sequence[str],
    framed: Int[np.ndarray, "t"],
    said: Sequence[_Said],
) -> str:
    """Put the likeliest token into each blank."""
    ids, text = framed.copy(), pieces[0]
    blanks = np.flatnonzero(framed == tokenizer.special.mask)
    for at, one, piece in zip(blanks, said, pieces[1:], strict=True):
        ids[at] = one.ids[0]
        text = _with(tokenizer, text, ids[:at], int(ids[at])) + piece
    return text


def _with(tokenizer: Tokenizer, text: str, before: Int[np.ndarray, "t"], token: int) -> str:
    """Add a token to a text, with a space or without as the tokenizer reads it.

    Args:
        tokenizer: which knows what begins a word.
        text: so far, as it was written.
        before: its tokens.
        token: that follows.
    """
    near = before[-_NEAR:]
    old, new = tokenizer.decode(near), tokenizer.decode([*near, token])
    said = new[len(old) :] if new.startswith(old) else f" {tokenizer.decode([token])}"
    if said[:1].isspace():  # it begins a word
        parted = text[-1:].isalnum() and said.lstrip()[:1].isalnum()
        return text + " " * parted + said.lstrip()
    if not old or old[-1].isspace():
        return text + said
    return text.rstrip() + said


def _spans(model: Model, tokenizer: Tokenizer, cut: Sequence[Sequence[str]]) -> list[Filled | None]:
    """Let an encoder-decoder say each hidden span after its sentinel, as it was trained to (T5).

    None where it begins with a word instead: it has learned to say whole texts.
    """
    special, names = tokenizer.special, sentinels(tokenizer.frame)
    for i, pieces in enumerate(cut, 1):
        if len(pieces) - 1 > len(names):
            raise ValueError(
                f"text {i} has {len(pieces) - 1} blanks, but the tokenizer only {len(names)} "
                "sentinels to tell them apart"
            )
    hidden = [
        "".join(f"{name}{piece}" for name, piece in zip(("", *names), pieces, strict=False))
        for pieces in cut
    ]
    sources = tokenizer.ids_batch(hidden, special=True)
    most = [SPAN * (len(pieces) - 1) for pieces in cut]
    said = generate(
        model,
        [[*source.tolist(), *special.after] for source in sources],
        special,
        Decoding(new_tokens=max(most, default=1)),
    )
    return [
        _put(tokenizer, pieces, ids[:n]) if not ids or ids[0] in special.sentinels else None
        for pieces, ids, n in zip(cut, said, most, strict=True)
    ]


def _put(tokenizer: Tokenizer, pieces: Sequence[str], said: Sequence[int]) -> Filled:
    """Cut what was said at the sentinels, and put each span into its blank."""
    number = {sentinel: i for i, sentinel in enumerate(tokenizer.special.sentinels)}
    spans: list[list[int]] = [[] for _ in pieces[1:]]
    blank = len(spans)  # what stands before the first sentinel belongs to none
    for token in said:
        blank = number.get(token, blank)
        if token not in number and blank < len(spans):
            spans[blank].append(token)
    words = [tokenizer.decode(span).strip() for span in spans]
    text = pieces[0] + "".join(w + p for w, p in zip(words, pieces[1:], strict=True))
    return Filled(text, tuple((Candidate(word, None),) for word in words))


def _restored(model: Model, tokenizer: Tokenizer, cut: Sequence[Sequence[str]]) -> list[Filled]:
    """Let an encoder-decoder that says whole texts (BART) go on where a text is shown no more.

    It has read all that is shown, with masks between (`Special.blank`). What it says in a blank
    ends where it comes to the first word that is shown behind that; otherwise, with what it says at
    most.
    """
    special, mask = tokenizer.special, tokenizer.frame.mask or sentinels(tokenizer.frame)[0]
    inner = tokenizer.ids_batch([mask.join(pieces) for pieces in cut], special=True)
    sources = [[*special.before, *ids.tolist(), *special.after] for ids in inner]
    texts = [pieces[0] for pieces in cut]
    words: list[list[str]] = [[] for _ in cut]
    for blank in range(1, max(map(len, cut), default=1)):
        rows = [i for i, pieces in enumerate(cut) if blank < len(pieces)]
        begun = [ids.tolist() for ids in tokenizer.ids_batch([texts[i].rstrip() for i in rows])]
        how = Decoding(new_tokens=SPAN)
        said = generate(model, [sources[i] for i in rows], special, how, begun=begun)
        for i, before, ids in zip(rows, begun, said, strict=True):
            whole = tokenizer.decode([*before, *ids])[len(tokenizer.decode(before)) :]
            last = blank == len(cut[i]) - 1
            words[i].append(_until_shown(whole, cut[i][blank], last=last))
            texts[i] += words[i][-1] + cut[i][blank]
    return [
        Filled(text, tuple((Candidate(word, None),) for word in some))
        for text, some in zip(texts, words, strict=True)
    ]


def _until_shown(said: str, shown: str, *, last: bool) -> str:
    """Cut what was said in a blank before the first word that is shown behind it.

    Where nothing but another blank follows, its first word is kept.
    """
    first = re.match(r"\w+|\S", shown.strip())
    if first is None:
        return said.strip() if last else " ".join(said.split()[:1])
    word = re.escape(first[0])
    found = re.search(rf"\b{word}\b" if first[0][0].isalnum() else word, said)
    return (said if found is None else said[: found.start()]).strip()
