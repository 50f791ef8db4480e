"""Streaming: stop strings across tokens, and pieces that no later token changes."""

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import llama, saved
from small_models import tokenizer
from toy_text import corpus

from unmask.generation.prompts import decode_continuation
from unmask.generation.streaming import TextStreamer, count_settled_tokens
from unmask.inference.open_model import load
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import GEMMA, LLAMA, TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE


def spelled(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", "replace")


def pieces(wording: TextStreamer, tokens: Sequence[int]) -> list[str]:
    """Let a text grow token by token; return what was settled each time, the whole at the end."""
    return [
        *(wording.stable_text(tokens[: n + 1]) for n in range(len(tokens))),
        wording.final_text(tokens),
    ]


def test_stop_string_ends_text_at_any_token_boundary() -> None:
    output = list(b"one. two\n\nthree\n\nfour")
    for stop, expected in (
        (("\n\n",), "one. two"),
        (("three", "two"), "one. "),
        (("o",), ""),
        (("never",), spelled(output)),
        (("\n\n\n",), spelled(output)),
        ((), spelled(output)),
    ):
        wording = TextStreamer(spelled, stop)
        assert wording.final_text(output) == expected
        ends = [n for n in range(len(output) + 1) if wording.is_finished(output[:n])]
        whole = expected == spelled(output)
        assert ends == ([] if whole else list(range(ends[0], len(output) + 1)))
        if not whole:  # it ends with the last token of the stop string, not later
            assert any(spelled(output[: ends[0]]) == expected + one for one in stop)


@example(text="aba", stop=["aba", "b"])
@given(
    text=st.text(alphabet="ab\n é☃😀", max_size=12),
    stop=st.lists(st.text(alphabet="ab\né☃", min_size=1, max_size=4), max_size=2),
)
def test_streamed_pieces_concatenate_to_the_text(text: str, stop: list[str]) -> None:
    wording = TextStreamer(spelled, tuple(stop))
    ids = list(text.encode())
    over = next((n for n in range(len(ids) + 1) if wording.is_finished(ids[:n])), len(ids))
    grown = pieces(wording, ids[:over])
    for before, after in pairwise(grown):
        assert after.startswith(before)
    # The stop string that is whole first counts, even if another one began before it.
    first = next((n for n in range(len(text)) if any(s in text[: n + 1] for s in stop)), len(text))
    read = text[: first + 1]
    assert grown[-1] == read[: min((read.find(s) for s in stop if s in read), default=None)]
    assert not any("�" in piece for piece in grown)


def test_multi_byte_characters_are_streamed_whole() -> None:
    wording = TextStreamer(spelled)
    ids = list("é☃".encode())
    assert pieces(wording, ids) == ["", "é", "é", "é", "é☃", "é☃"]
    assert pieces(wording, [*b"a", 0xE2, 0x98]) == ["a", "a", "a", "a�"]


FRAMES = {"llama": LLAMA, "gemma": GEMMA}


@cache
def known(family: str) -> Tokenizer:
    """Return a small tokenizer; Llama's and Gemma's write rare characters as bytes."""
    if family not in FRAMES:
        return tokenizer(family)
    kind = SentencePieceBPE(340, add_dummy_prefix=family == "llama")
    return train_tokenizer(TokenizerSpec(kind, FRAMES[family]), corpus(20).splitlines())


def tokens(words: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Draw any tokens: of words, bytes, whole characters, special ones, and ids without one."""
    # Encoded here: type checks draw random numbers, which strategies may not.
    whole = [words.encode(text).ids.tolist() for text in ("é", "☃", "😀", "�", "e\u0301")]
    any_token = st.integers(0, words.vocab_size + 2).map(lambda i: [i])
    early = st.integers(0, min(words.vocab_size - 1, 260)).map(lambda i: [i])  # bytes, in some
    parts = st.lists(any_token | early | st.sampled_from(whole), max_size=8)
    return parts.map(lambda lists: [i for one in lists for i in one])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma", "t5", "bert"])
@settings(max_examples=150)
@given(data=st.data())
def test_pieces_of_any_tokens_concatenate_to_the_text(family: str, data: st.DataObject) -> None:
    words = known(family)
    prompt = data.draw(st.sampled_from(["", "the cat", "a é", "😀", " "]))
    stop = data.draw(st.lists(st.sampled_from(["a", "é", "☃ ", "��", "the "]), max_size=2))
    before = [] if family == "t5" else words.encode(prompt).ids.tolist()
    wording = TextStreamer(
        partial(decode_continuation, words, before, []),
        tuple(stop),
        partial(count_settled_tokens, words),
    )
    output = data.draw(tokens(words))
    over = next((n for n in range(len(output)) if wording.is_finished(output[:n])), len(output))
    grown = pieces(wording, output[:over])
    for earlier, later in pairwise(grown):
        assert later.startswith(earlier)
    if not stop:
        assert grown[-1] == decode_continuation(words, before, [], output)


def test_bytes_are_held_back_until_their_run_ends() -> None:
    words = known("llama")
    ids = [words.encode("é☃ a").ids.tolist(), words.encode("é").ids.tolist()[1:2]]
    wording = TextStreamer(words.decode, (), partial(count_settled_tokens, words))
    shown = pieces(wording, ids[0])
    assert shown[-2:] == ["é☃ a", "é☃ a"]
    assert set(shown[:-2]) == {"", " "} or set(shown[:-2]) == {""}
    invalid = [*ids[0][:-1], *ids[1]]  # the last byte makes all of the run invalid
    assert pieces(wording, invalid)[-1] == "�" * 6
    assert {*pieces(wording, invalid)[:-1]} <= {"", " "}


def test_a_stream_of_random_bytes_is_what_is_generated(tmp_path: Path) -> None:
    words = known("llama")
    special = words.special_ids
    saved(
        llama(
            vocab_size=words.vocab_size, bos_token_id=special.start, eos_token_id=special.end,
            pad_token_id=special.end, max_position_embeddings=64,
        ),
        tmp_path,
    )  # fmt: skip
    words.save(tmp_path)
    model = load(tmp_path)
    n_held = 0
    for seed in range(4):
        options: dict[str, Any] = {"max_new_tokens": 24, "temperature": 3.0, "seed": seed}
        whole = model.generate("the é☃", **options)
        found = list(model.stream("the é☃", **options))
        assert "".join(found) == whole
        n_held += "�" in whole
    assert n_held > 1  # else no run of bytes was invalid
