"""Perplexity per word of whole files, counted as is customary for each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from unmask.adapters.prefix import decoder, room
from unmask.batch import Memory
from unmask.evaluation.answers import Prompted
from unmask.evaluation.continuations import Pair, at_most, token_likelihoods
from unmask.evaluation.likelihood import going_on
from unmask.evaluation.prompts import Asking, Figure, TaskScore, find
from unmask.generation.reading import at_rest
from unmask.heads.language import LanguageHead
from unmask.heads.model import Model
from unmask.model.transformer import EncoderDecoder
from unmask.text.lines import lines
from unmask.tokens.tokenizer import Tokenizer

LONGEST = 2**22
"""Characters that a line may have."""
WINDOWS = 64
"""Windows that are read before it is told how far it is."""


@dataclass(frozen=True, kw_only=True)
class TextTask:
    """A file that is read as one stream, lines in their order.

    `word_perplexity` is exp of all nats by all words, which stand between white space, plus one
    <eos> for each line: as WikiText and the Penn Treebank are counted (Merity et al. 2016,
    arXiv:1609.07843; Mikolov et al. 2010). The model is asked for the text as it is written, <unk>
    letter by letter where that is not a token of its own, and for each line's end: the newline, or,
    where its tokenizer writes none, the token that ends a text.

    A model that remembers what stood before reads the file from its beginning to its end, piece by
    piece (`Prompted.memory`), as is customary for LSTMs and Transformer-XL; any other in windows.
    """

    name: str
    test: str | tuple[str, ...]
    """The file, by its path within the folder of data; of several, the first that is there."""
    paper: str = ""

    def score(self, model: Prompted, folder: Path, how: Asking) -> TaskScore:
        """Ask a model that reads forward for the whole file; `how.rows` is of its first lines.

        Raises:
            FileNotFoundError: the file is not in the folder.
            ValueError: the model does not read forward, or the file has no words.
        """
        if not reads_forward(model.model):
            raise ValueError(f"{self.name}: is of models that only read forward")
        if how.shots:
            raise ValueError(f"{self.name}: has no shots, got {how.shots}")
        path = find(folder, self.test, self.name)
        text = [line for _, line, _ in lines(path, LONGEST)][: how.rows]
        words = sum(len(line.split()) for line in text)
        if not words:
            raise ValueError(f"{path}: has no words")
        ids = _stream(model.tokenizer, text)
        nats = _remembered(model, ids, how) if model.memory else _nats(model, ids, how)
        n_bytes = sum(len(line.encode()) + 1 for line in text)
        return TaskScore(
            task=self.name,
            shots=0,
            measure="word_perplexity",
            figures={
                "word_perplexity": _exp(nats / (words + len(text))),
                "token_perplexity": _exp(nats / len(ids)),
                "bits_per_byte": Figure(nats / math.log(2) / n_bytes),
            },
            items=words + len(text),
            notes=(
                f"{self.name}: {words:,} words and {len(text):,} ends of lines are counted; "
                f"{len(ids):,} tokens were asked",
            ),
        )


def reads_forward(model: Model) -> bool:
    """Say whether a model reads and says one text, from left to right."""
    return model.reads_forward and not isinstance(model.backbone, EncoderDecoder)


def _exp(nats: float) -> Figure:
    return Figure(float(np.exp(np.float64(min(nats, 700.0)))))


def _stream(tokenizer: Tokenizer, text: Sequence[str]) -> Int[np.ndarray, "t"]:
    """Write lines in tokens, with their ends.

    Raises:
        ValueError: there is no token for an end.
    """
    if "\n" in tokenizer.decode(tokenizer.ids_batch(["a\na"])[0]):
        return tokenizer.ids_batch(["".join(f"{line}\n" for line in text)])[0]
    end = tokenizer.special.end
    if end is None:
        raise ValueError("this tokenizer has no token for the end of a line, or of a text")
    return np.concatenate([np.append(ids, end) for ids in tokenizer.ids_batch(text)])


def _at_once(model: Prompted) -> int:
    """Return how many tokens are read together.

    Raises:
        ValueError: as many as one likes.
    """
    most = at_most(room(model.model, decoder(model.model)), model.length)
    if most is None:
        raise ValueError("this model's positions do not end: say by length how much is read")
    return most


def _remembered(model: Prompted, ids: Int[np.ndarray, "t"], how: Asking) -> float:
    """Ask for all tokens in pieces, each of which goes on where the one before ended.

    Raises:
        ValueError: windows are asked for as well, or the model can remember nothing.
    """
    if how.stride is not None:
        raise ValueError(
            f"stride is of windows, and this model remembers {model.memory} places before each "
            "piece; leave out stride, or say memory 0"
        )
    try:
        model.model.check_recalls()
    except ValueError as error:
        raise ValueError(f"memory: {error}; leave it out, or 0") from None
    most = _at_once(model)
    naming = [h for h in model.model.heads.values() if isinstance(h, LanguageHead)]
    if not naming:
        raise ValueError("this model has no head that names tokens")
    memory, total, before = Memory(model.memory), 0.0, model.tokenizer.special.start
    with at_rest(model.model):
        for at in range(0, len(ids), most):
            piece = ids[at : at + most].astype(np.int64)
            batch = going_on(before, piece, piece, memory).to(model.model.device)
            term = model.model(batch).terms[naming[0].spec.term]
            total, before = total + float(term.total), int(piece[-1])
            if how.tell is not None and at // most % WINDOWS == 0:
                how.tell(min(at + most, len(ids)), len(ids))
    return total


def _nats(model: Prompted, ids: Int[np.ndarray, "t"], how: Asking) -> float:
    """Ask for all tokens, some windows at a time; return how unlikely they are together."""
    special = model.tokenizer.special
    most = _at_once(model)
    stride = most if how.stride is None else how.stride
    total, at = 0.0, 0
    while at < len(ids):
        # Cut where windows are cut, so that the parts have the windows of the whole.
        stop = at + WINDOWS * stride if at else most + WINDOWS * stride
        pair = Pair(
            context=tuple(ids[max(0, at - most) : at].tolist()),
            continuation=tuple(ids[at:stop].tolist()),
        )
        one = token_likelihoods(
            model.model, special, [pair], length=model.length, stride=how.stride
        )[0]
        total, at = total - one.total, min(stop, len(ids))
        if how.tell is not None:
            how.tell(at, len(ids))
    return total
