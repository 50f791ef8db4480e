"""The first tokens of a long text are those of all of it, and little of it is read."""

import json
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from tokenizer_cases import EVERY, learned

from unmask.finetuning.formulations.formulation import encode_texts, truncate_longest_first
from unmask.tasks.task import TaskExample
from unmask.tokenizers import encode
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.splitting import long_texts

KINDS: dict[str, Callable[[random.Random], str]] = {
    "words": lambda r: r.choice(["the old king ", "a fox, ", "don't\n", "12 gates ", "café "]),
    "one letter": lambda _: "x",
    "two letters": lambda r: r.choice("aab"),
    "pieces of words": lambda r: r.choice(["the", "in", "ing", "er", "re", "her", "ther"]),
    "Chinese": lambda r: chr(0x4E00 + r.randrange(3000)),
    "Cyrillic": lambda r: r.choice("абвгде"),
    "base64": lambda r: r.choice("ABCabcdefgthe0123456789+/"),
    "Hindi": lambda r: r.choice(["क", "खा", "गि ", "घु", "च्"]),
    "Thai": lambda r: r.choice("กขคงจิี้"),
    "marks": lambda r: r.choice(["\u0301", "\u0323"]),
    "marked": lambda r: r.choice(["e\u0301", "a", "o\u0323\u0301 "]),
    "spaces": lambda r: r.choice([" " * r.randrange(400), "a", "b\n"]),
    "nothing": lambda r: "\x00" * r.randrange(200) + r.choice("ab"),
    "emoji": lambda r: r.choice(["😀", "🇦", "🇧", "👨\u200d👩", "👍🏽"]),
    "signs": lambda r: r.choice("!?.,;-'("),
    "names of special tokens": lambda r: r.choice(["[MASK]", "</s>", " <extra_id_0> ", "a", "##a"]),
}
CUT = {"words", "pieces of words", "Chinese", "marks", "spaces", "names of special tokens"}
LEARNED = ("wordpiece", "bytebpe", "pieces", "unigram", "code points", "words", "apart", "bytes")


def _text(kind: str, n: int = 6000, seed: int = 0) -> str:
    r, write = random.Random(seed), KINDS[kind]

    def parts() -> Iterator[str]:
        size = 0
        while size < n:
            part = write(r)
            size += len(part)
            yield part

    return "".join(parts())


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (long_texts, encode):
        monkeypatch.setattr(module, "LONG_TEXT_CHARACTERS", 100)
    monkeypatch.setattr("unmask.finetuning.formulations.formulation.LONG_TEXT_CHARACTERS", 100)


def _cases() -> Iterator[object]:
    for name in EVERY:
        for kind in KINDS:
            few = name in LEARNED and kind in CUT
            yield pytest.param(name, kind, marks=() if few else pytest.mark.slow)


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "kind"), list(_cases()))
def test_first_tokens_equal_those_of_the_whole_text(name: str, kind: str) -> None:
    known = learned(name)
    text = _text(kind)
    for special in (False, True):
        whole = known.encode_ids_batch([text], allow_special=special)[0]
        for n in (1, 40, 500):
            (first,) = known.encode_prefix_batch([text], n, special=special)
            assert len(first) >= min(n, len(whole))
            assert first.tolist() == whole[: len(first)].tolist()


@pytest.fixture(name="short_parts")
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have texts read in short parts, or whole."""
    monkeypatch.setattr(long_texts, "_PART_CHARACTERS", 100)
    monkeypatch.setattr(long_texts, "_CONTEXT_CHARACTERS", 30)

    def switch(parts: bool) -> None:
        for module in (long_texts, encode):
            monkeypatch.setattr(module, "MAX_WHOLE_CHARACTERS", 60 if parts else 2**40)

    return switch


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "kind"), list(_cases()))
def test_encoding_in_parts_equals_whole_text(
    name: str, kind: str, short_parts: Callable[[bool], None]
) -> None:
    known = learned(name)
    some = _text(kind, 700)
    for text in (some, some + " " + _text("words", 700, 1) + some[:90]):
        found: list[list[object]] = []
        for parts in (False, True):
            short_parts(parts)
            tokens = known.encode(text)
            found.append(
                [
                    *(
                        known.encode_ids_batch([text], allow_special=s)[0].tolist()
                        for s in (False, True)
                    ),
                    (tokens.ids.tolist(), tokens.boundaries.tolist()),
                    known.offset_array(text).tolist(),
                    [list(span) for span in known.offsets(text)],
                ]
            )
        assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["words", "base64", "Chinese"])
@pytest.mark.parametrize("name", ["wordpiece", "bytebpe", "pieces"])
def test_parts_are_short_or_reported(
    name: str,
    kind: str,
    short_parts: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    short_parts(True)
    known, text = learned(name), _text(kind, 1000)
    assert len(known.encode_ids_batch([text])[0])
    cuts = long_texts.SplitPoints.of(known._backend, json.loads(known._backend.to_str()))
    read = [end - lead for lead, _, end in cuts.parts(text)]
    if kind == "words" or (name, kind) == ("bytebpe", "base64"):
        assert max(read) < 300
        assert not caplog.records
    else:
        assert f"{len(text):,} characters of a text are encoded at once" in caplog.text


@pytest.mark.parametrize("kind", ["words", "Chinese", "base64"])
@pytest.mark.parametrize("name", ["wordpiece", "bytebpe", "pieces", "unigram", "code points"])
def test_only_the_start_of_a_long_text_is_encoded(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, kind) in (("wordpiece", "base64"), ("unigram", "Chinese")):
        pytest.skip("what is unknown is one token, however long")
    known = learned(name)
    some, read = _text(kind, 20_000), [0]
    one = Tokenizer.encode_ids_batch

    def counted(
        self: Tokenizer, texts: Sequence[str], *, allow_special: bool = False
    ) -> list[np.ndarray]:
        read[0] += sum(map(len, texts))
        return one(self, texts, allow_special=allow_special)

    monkeypatch.setattr(Tokenizer, "encode_ids_batch", counted)
    counts: list[int] = []
    for times in (2, 10):
        read[0] = 0
        known.encode_prefix_batch([some * times], 100)
        counts.append(read[0])
    assert counts[0] == counts[1]  # it does not depend on how long the text is
    assert counts[0] < 300_000


@pytest.mark.thorough
@pytest.mark.parametrize("room", [1, 2, 39, 40, 41])
@pytest.mark.parametrize("name", ["wordpiece", "bytebpe", "unigram", "words"])
def test_pairs_are_truncated_as_if_encoded_whole(name: str, room: int) -> None:
    known = learned(name)
    long, longer = _text("words", 5000), _text("words", 5100, 1)
    some = ["a", "the old king " * 4, "a fox, " * 60, long, longer, _text("Chinese", 900)]
    pairs = [TaskExample(texts=(a, b)) for a in some for b in some]
    found = encode_texts(known, pairs, room)
    for item, texts in zip(pairs, found, strict=True):
        whole = known.encode_ids_batch(item.texts)
        kept = truncate_longest_first([len(ids) for ids in texts], room)
        assert kept == truncate_longest_first([len(ids) for ids in whole], room)
        assert [ids[:n].tolist() for ids, n in zip(texts, kept, strict=True)] == [
            ids[:n].tolist() for ids, n in zip(whole, kept, strict=True)
        ]
        was_cut = kept != [len(ids) for ids in whole]
        assert (kept != [len(ids) for ids in texts]) is was_cut


def test_unencoded_rest_of_a_text_is_validated() -> None:
    with pytest.raises(ValueError, match="character 6000 of the text"):
        learned("wordpiece").encode_prefix_batch(["a " * 3000 + "\ud800"], 5)
