"""Cross-attention as word alignment, against links that a dictionary gives.

Alignment error rate: Och and Ney 2003, doi:10.1162/089120103321337421. Attention as
alignment: Koehn and Knowles 2017, arXiv:1706.03872, section 3.5.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.attention.record import attention_maps
from unmask.analysis.attention.sentences import HeadName
from unmask.analysis.words import SPECIAL, WordPieces, merge_to_words, split_words
from unmask.batch import Batch, Visibility
from unmask.generation.text_batches import pad_texts
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds

Link = tuple[int, int]
"""A word of the source and one of the target."""
AttentionStep = Literal["predicting", "reading"]
"""Which row of a decoder is taken for a word: that of the step which predicts it, or of the step
which reads it, one later (Chen et al. 2020, arXiv:2004.14837)."""
STEPS: tuple[AttentionStep, ...] = ("predicting", "reading")


@dataclass(frozen=True)
class WordAlignment:
    """Links between the words of two sentences."""

    sure: frozenset[Link]
    """Where both words occur once."""
    possible: frozenset[Link]
    """All; the sure ones among them."""


def align_by_dictionary(
    source: Sequence[str], target: Sequence[str], dictionary: Mapping[str, set[str]]
) -> WordAlignment:
    """Link words that a dictionary translates into each other, regardless of case.

    ```python
    >>> align_by_dictionary(["a", "dog"], ["ein", "Hund"], {"dog": {"hund"}}).sure
    frozenset({(1, 1)})

    ```
    """
    sources, targets = ([w.lower() for w in words] for words in (source, target))
    links = [
        (i, j)
        for i, word in enumerate(sources)
        for j, other in enumerate(targets)
        if other in dictionary.get(word, ())
    ]
    of_source, of_target = Counter(i for i, _ in links), Counter(j for _, j in links)
    sure = [(i, j) for i, j in links if of_source[i] == of_target[j] == 1]
    return WordAlignment(frozenset(sure), frozenset(links))


def alignment_error_rate(found: Iterable[tuple[set[Link], WordAlignment]]) -> float:
    """Return 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), over all sentences.

    Args:
        found: for each sentence the links A of a method, and those of the reference, sure (S) and
            possible (P).

    Raises:
        ValueError: no sentence has a sure link.
    """
    hits = total = n_sure = 0
    for links, reference in found:
        hits += len(links & reference.sure) + len(links & reference.possible)
        total += len(links) + len(reference.sure)
        n_sure += len(reference.sure)
    if not n_sure:
        raise ValueError("no two words of a pair of sentences are linked by the dictionary")
    return 1 - hits / total


@dataclass(frozen=True)
class AlignedPair:
    """A pair of sentences whose words the dictionary links."""

    source: WordPieces
    target: WordPieces
    reference: WordAlignment

    @property
    def linked(self) -> list[int]:
        """Words of the target with a link: only of these is the right source word known."""
        return sorted({j for _, j in self.reference.possible})


@dataclass(frozen=True, kw_only=True)
class HeadAlignment:
    """Alignment error rates of the heads of a decoder's cross-attention."""

    heads: tuple[HeadName, ...]
    error_rates: Mapping[AttentionStep, tuple[float, ...]]
    """Of each head, where the source word with the most attention is linked."""
    diagonal: float
    """Of the source word at the same relative position, which needs no model."""
    n_words: int
    """Target words with a link."""


def measure_alignment(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[AlignedPair]
) -> HeadAlignment:
    """Score the cross-attention of each head over pairs of sentences; the decoder reads the target.

    Words without a link of the dictionary are left out: it is incomplete, and a link of such a word
    is not wrong.

    Raises:
        ValueError: the model has no cross-attention, or no pair has a sure link.
    """
    if not model.architecture.is_encoder_decoder:
        raise ValueError("alignments are of cross-attention, which only encoder-decoders have")
    found: dict[AttentionStep, list[Tensor]] = {step: [] for step in STEPS}
    heads: list[HeadName] = []
    for pair in pairs:
        maps = cross_attention_maps(model, tokenizer, pair)
        heads = [name for name, _ in maps]
        stacked = torch.stack([one for _, one in maps])  # [k steps w]
        for step, rows in zip(STEPS, (stacked[:, 0], stacked[:, 1]), strict=True):
            found[step].append(rows.argmax(-1))
    error_rates: dict[AttentionStep, tuple[float, ...]] = {
        step: tuple(
            alignment_error_rate(
                ({(int(index[k][j]), j) for j in pair.linked}, pair.reference)
                for index, pair in zip(indices, pairs, strict=True)
            )
            for k in range(len(heads))
        )
        for step, indices in found.items()
    }
    return HeadAlignment(
        heads=tuple(heads),
        error_rates=error_rates,
        diagonal=alignment_error_rate((_diagonal(pair), pair.reference) for pair in pairs),
        n_words=sum(len(pair.linked) for pair in pairs),
    )


def cross_attention_maps(
    model: Model, tokenizer: Tokenizer, pair: AlignedPair
) -> list[tuple[HeadName, Float[Tensor, "2 w v"]]]:
    """Return, for each head, attention from target words to source words, for both `STEPS`."""
    special = tokenizer.special_ids
    targets = pair.target.token_ids[pair.target.word_of_token != SPECIAL]
    words = pair.target.word_of_token[pair.target.word_of_token != SPECIAL]
    lead = [special.start, *special.decoder_prefix]
    batch = _pair_batch(pair.source, [*lead, *targets.tolist()], special)
    decoder = attention_maps(model, batch.to(model.device))[-1].cross_attention
    is_word = torch.from_numpy(pair.source.word_of_group != SPECIAL)
    read = WordPieces(pair.target.words, targets, words)
    found: list[tuple[HeadName, Tensor]] = []
    for layer, maps in enumerate(decoder):
        for head, one in enumerate(maps[0].float().cpu()):
            predicting = one[len(lead) - 1 : -1]
            reading = one[len(lead) :]
            steps = torch.stack((predicting, reading))
            merged = merge_to_words(steps, read, pair.source)[:, :, is_word]
            found.append((HeadName(layer + 1, head + 1), merged))
    return found


def _pair_batch(source: WordPieces, inputs: Sequence[int], special: SpecialTokenIds) -> Batch:
    read = pad_texts([source.token_ids], special)
    return Batch(
        inputs=torch.tensor([list(inputs)]),
        visibility=Visibility(causal=True),
        source=read.inputs,
        source_visibility=read.visibility,
    )


def _diagonal(pair: AlignedPair) -> set[Link]:
    """Link each target word to the source word at the same relative position."""
    n, m = len(pair.source.words), len(pair.target.words)
    return {(min(int((j + 0.5) * n / m), n - 1), j) for j in pair.linked}


def read_pairs(
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    dictionary: Mapping[str, set[str]],
    max_tokens: int | None,
) -> list[AlignedPair]:
    """Encode pairs of sentences; those that are too long or without a link are left out."""
    sources = split_words(tokenizer.input_tokenizer, [a for a, _ in pairs], max_tokens)
    targets = split_words(tokenizer, [b for _, b in pairs], max_tokens)
    found: list[AlignedPair] = []
    for source, target in zip(sources, targets, strict=True):
        if source is None or target is None:
            continue
        reference = align_by_dictionary(source.words, target.words, dictionary)
        if reference.possible:
            found.append(AlignedPair(source, target, reference))
    return found


def split_text(text: str) -> tuple[str, ...]:
    """Split a text into words and signs.

    ```python
    >>> split_text("Zwei Hunde, im Schnee.")
    ('Zwei', 'Hunde', ',', 'im', 'Schnee', '.')

    ```
    """
    return tuple(re.findall(r"\w+|[^\w\s]", text))


@dataclass(frozen=True, kw_only=True)
class NetworkAlignment:
    """Error rates of the heads of a network, and of the one that was chosen on other pairs."""

    name: str
    """trained, or random."""
    test: HeadAlignment
    head: HeadName
    step: AttentionStep
    error_rate: float
    """Of the chosen head and step, on the test pairs."""


@dataclass(frozen=True, kw_only=True)
class AlignmentFindings:
    """Alignment error rates of a network and its control, on the same pairs."""

    model: str
    data: str
    n_train: int
    """Pairs on which heads are chosen."""
    n_test: int
    """Pairs on which they are scored."""
    networks: tuple[NetworkAlignment, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {name: value for name, value in vars(self).items() if name != "networks"}
        return facts | {
            "networks": {
                one.name: {
                    "head": str(one.head),
                    "step": one.step,
                    "error_rate": one.error_rate,
                    "diagonal": one.test.diagonal,
                    "words": one.test.n_words,
                    "heads": [str(head) for head in one.test.heads],
                    "error_rates": {k: list(v) for k, v in one.test.error_rates.items()},
                }
                for one in self.networks
            }
        }


def analyze_alignment(
    name: str,
    model: Model,
    tokenizer: Tokenizer,
    train: Sequence[AlignedPair],
    test: Sequence[AlignedPair],
) -> NetworkAlignment:
    """Choose the head and the step with the lowest error rate on `train`, and score it on `test`.

    Raises:
        ValueError: the model has no cross-attention, or no pair has a sure link.
    """
    chosen = measure_alignment(model, tokenizer, train)
    scored = measure_alignment(model, tokenizer, test)
    choices: list[tuple[AttentionStep, int]] = [
        (step, k) for step in STEPS for k in range(len(chosen.heads))
    ]
    step, k = min(choices, key=lambda choice: chosen.error_rates[choice[0]][choice[1]])
    return NetworkAlignment(
        name=name,
        test=scored,
        head=scored.heads[k],
        step=step,
        error_rate=scored.error_rates[step][k],
    )
