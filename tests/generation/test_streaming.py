"""Streaming: stop strings across tokens, and pieces that no later token changes."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_models import tokenizer

from unmask.generation.streaming import TextStreamer


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


@pytest.mark.parametrize("family", ["gpt2", "t5", "bert"])
@settings(max_examples=40)
@given(data=st.data())
def test_pieces_of_any_tokens_concatenate_to_the_text(family: str, data: st.DataObject) -> None:
    known = tokenizer(family)
    some = st.integers(0, known.vocab_size - 1).filter(lambda i: i not in known.special_ids.all_ids)
    output = data.draw(st.lists(some, max_size=12))
    wording = TextStreamer(known.decode)
    shown = ""
    for now in pieces(wording, output):
        if now.startswith(shown):
            shown = now
    assert shown == known.decode(output)
