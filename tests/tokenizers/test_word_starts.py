"""Words are masked as a whole, in any script, by every kind of tokenizer."""

import functools
import json
import random
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import EVERY, story
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors

from unmask.batch import IGNORE_INDEX, WORD_START
from unmask.finetuning.formulations.formulation import InputTemplate
from unmask.finetuning.formulations.token_classification_head import TokenClassificationFormulation
from unmask.objectives.select import NGramMasking, SpanMasking, WholeWordMasking
from unmask.objectives.text_units import maskable_tokens
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.tokenizers.boundaries import word_start_characters, word_starts_at_white_space
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import ALBERT, DEBERTA, ELMO, GPT2, TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, Unigram, WordBytesWithWords

SCRIPTS = {
    "Latin": "cà phê sữa đá ở việt nam người ta uống mỗi buổi sáng",
    "Devanagari": "मैं हिन्दी में किताबें पढ़ता हूँ क्योंकि ज़िन्दगी छोटी है",
    "Tamil": "நான் தமிழில் புத்தகங்களைப் படிக்கிறேன் வாழ்க்கை சிறியது",
    "Arabic": "مُحَمَّدٌ يَقْرَأُ كِتَابًا جَدِيدًا فِي الْمَكْتَبَةِ",
    "Hebrew": "שָׁלוֹם לְכֻלָּם אֲנִי קוֹרֵא סֵפֶר חָדָשׁ",
    "Thai": "ฉันอ่านหนังสือ ทุกวันที่บ้าน เพราะชีวิตสั้นนัก",
    "Chinese": "我每天 在家里读书 因为生命短暂",
    "Japanese": "わたしは 毎日本を よみます",
    "Korean": "나는 매일 집에서 책을 읽습니다",
    "Persian": "می\u200cخواهم کتاب\u200cهای تازه بخوانم",
    "emoji": "👨\u200d👩\u200d👧\u200d👦 👍🏽 ❤️\u200d🔥 family 🏳️\u200d🌈 ok",
    "digits": "in 1234567 rooms a2b3 10½ x² ①② k8s",
}
TEXTS = {
    name: unicodedata.normalize("NFD" if name == "Latin" else "NFC", text)
    for name, text in SCRIPTS.items()
}
KINDS = EVERY | {
    "spelled": TokenizerSpec(WordBytesWithWords(60), ELMO),
    "albert": TokenizerSpec(Unigram(500), ALBERT),
    "deberta": TokenizerSpec(ByteBPE(500), DEBERTA),
}
SIGNS = "'a ,b )c;d "
CUT_AT_SIGNS = ("wordpiece", "cased", "bpe", "spelled", "signs")
"""Kinds that make words of punctuation marks."""


@functools.cache
def letters() -> str:
    """Give the letters of all scripts in other words, so that theirs have several pieces."""
    draw = random.Random(0)
    shown = [c for text in TEXTS.values() for c in text if not c.isspace()] * 6
    draw.shuffle(shown)
    return " ".join("".join(shown[i : i + 3]) for i in range(0, len(shown), 3))


@functools.cache
def learned(name: str) -> Tokenizer:
    spec = KINDS[name]
    vocabulary = spec.vocabulary
    if name not in ("words", "signs", "bytes", "code points", "spelled"):
        vocabulary = replace(vocabulary, vocab_size=700 if name != "pieces" else 900)
    return train_tokenizer(replace(spec, vocabulary=vocabulary), [story(), letters(), SIGNS * 9])


BERTS = ("wordpiece", "cased", "bpe")
ONE_TOKEN = ("Chinese", "emoji")
"""Scripts of which BERT's kinds make a word of each character, or an unknown one of each word."""


def words(name: str, text: str) -> list[tuple[int, int]]:
    """Find the words of a text by a second rule: white space, and BERT's for its own kinds."""
    if name not in CUT_AT_SIGNS:
        return [found.span() for found in re.finditer(r"\S+", text)]
    spans, start = list[tuple[int, int]](), None
    for i, character in enumerate(f"{text} "):
        alone = _alone(name, character)
        if start is not None and (character.isspace() or alone):
            spans.append((start, i))
            start = None
        if alone:
            spans.append((i, i + 1))
        elif start is None and not character.isspace():
            start = i
    return spans


def _alone(name: str, c: str) -> bool:
    sign = unicodedata.category(c)[0] == "P" or (c.isascii() and not c.isalnum() and c > " ")
    chinese = name in BERTS and "\u4e00" <= c <= "\u9fff"
    return sign or chinese


def cut(name: str, text: str, hidden: np.ndarray) -> tuple[int, int]:
    """Count the words hidden in part, and those hidden wholly, that have several tokens."""
    spans = learned(name).offsets(text)
    part = whole = 0
    for start, end in words(name, text):
        inside = [
            bool(h)
            for (a, b), h in zip(spans, hidden, strict=True)
            if not text[a:b].isspace() and a < end and b > start
        ]
        part += any(inside) and not all(inside)
        whole += len(inside) > 1 and all(inside)
    return part, whole


CHOOSERS = {"words": WholeWordMasking(0.5), "n-grams": NGramMasking(0.5), "spans": SpanMasking(0.5)}


@pytest.mark.sample(24)
@pytest.mark.parametrize("script", TEXTS)
@pytest.mark.parametrize("name", KINDS)
def test_selected_words_are_masked_whole(name: str, script: str):
    tokenizer, text = learned(name), " ".join([TEXTS[script]] * 4)
    if name == "spelled" and script == "emoji":
        text = text.replace("ok", "good")  # a sign is a word there: see the test below
    tokens = tokenizer.encode(text)
    free = maskable_tokens(tokens.ids, tokenizer.special_ids)
    wholly = 0
    for chooser in CHOOSERS.values():
        for seed in range(4):
            hidden = chooser(tokens, free, np.random.default_rng(seed))
            part, whole = cut(name, text, hidden)
            assert not part
            wholly += whole
    single = name in ("words", "signs") or (script in ONE_TOKEN and name in BERTS)
    assert single or wholly  # there were words of several tokens


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
byte_level = functools.partial(pre_tokenizers.ByteLevel, add_prefix_space=False)
PIPELINES = {
    "gpt2": ([byte_level(use_regex=True)], True, False),
    "trimmed": ([byte_level(use_regex=True)], True, True),
    "llama 3": (
        [pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), byte_level(use_regex=False)],
        True,
        False,
    ),
    "digits": ([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True)], False, False),
    "scripts": ([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.UnicodeScripts()], False, False),
    "whitespace": ([pre_tokenizers.Whitespace()], False, False),
    "clip": ([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True)], False, False),
    "metaspace": ([pre_tokenizers.Metaspace(split=True)], False, False),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_pre_tokenization_does_not_split_words(name: str):
    splits, of_bytes, trimmed = PIPELINES[name]
    characters = {c for text in TEXTS.values() for c in text}
    alphabet = pre_tokenizers.ByteLevel.alphabet() if of_bytes else sorted({*characters, "▁"})
    vocab = {c: i for i, c in enumerate(["<|endoftext|>", *sorted(alphabet)])}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token="<|endoftext|>"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    backend.add_special_tokens(["<|endoftext|>"])
    if trimmed:
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer = Tokenizer(backend, GPT2)
    for script in TEXTS.values():
        text = f"{script}  {script}\n\n{script}"
        marks, spans = tokenizer.encode(text).boundaries, tokenizer.offsets(text)
        shown = [(a, b, m) for (a, b), m in zip(spans, marks, strict=True) if text[a:b].strip()]
        assert len(shown) > 3 * len(script.split())
        for found in re.finditer(r"\S+", text):
            inside = [m for a, b, m in shown if a < found.end() and b > found.start()]
            assert not any(inside[1:])


@settings(max_examples=200)
@given(st.text(alphabet=" \n\t\xa0\u3000\u2028ab\u0301中", max_size=30), st.data())
def test_word_starts_equal_definition(text: str, data: st.DataObject):
    begins = word_start_characters(text)
    assert np.flatnonzero(begins).tolist() == [m.start() for m in re.finditer(r" ?\S+|\s", text)]
    if not text:
        return
    borders = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=9))})
    starts, ends = np.array(borders[:-1]), np.array(borders[1:])
    word = np.cumsum(begins)
    reached, expected = 0, list[bool]()
    for a, b in zip(starts, ends, strict=True):
        expected.append(bool(word[a] > reached))
        reached = word[b - 1]
    assert word_starts_at_white_space(text, starts, ends).tolist() == expected


@pytest.mark.parametrize("name", ["albert", "deberta"])
def test_punctuation_starts_a_word_as_in_the_released_code(name: str):
    text = "the king's gate, silver) ring"
    starts = [text[a:].lstrip()[:1] for a in _begins(name, text)]
    assert starts == ["t", "k", "'", "g", ",", "s", ")", "r"]
    other = "unigram" if name == "albert" else "bytebpe"
    assert [text[a:].lstrip()[:1] for a in _begins(other, text)] == ["t", "k", "g", "s", "r"]


def test_published_family_determines_punctuation_words(tmp_path: Path):
    learned("albert").save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["unmask"]
    path.write_text(json.dumps(config | {"tokenizer_class": "AlbertTokenizerFast"}))
    assert load_tokenizer(tmp_path).special_tokens.punctuation_starts_words
    path.write_text(json.dumps(config | {"tokenizer_class": "BertTokenizer"}))
    assert not load_tokenizer(tmp_path).special_tokens.punctuation_starts_words
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    assert load_tokenizer(tmp_path).special_tokens.punctuation_starts_words


def _begins(name: str, text: str) -> list[int]:
    tokens, spans = learned(name).encode(text), learned(name).offsets(text)
    return [a for (a, _), mark in zip(spans, tokens.boundaries, strict=True) if mark & WORD_START]


def test_emoji_sequence_is_one_word():
    for name in ("spelled", "signs"):
        text = "ok 👨\u200d👩\u200d👧!👍🏽 ❤️ می\u200cخواهم don’t"
        found = [text[a:].lstrip()[:1] for a in _begins(name, text)]
        assert found == ["o", "👨", "!", "👍", "❤", "م", "d"]


TASK = Task(task_kind="tag", columns=TaskColumns(texts=("words",), label="labels"), labels=("O",))


def test_each_word_of_a_sentence_is_labelled_at_its_own_tokens():
    """A tagger labels the first token of each word, which is one of that word or its space."""
    for name in KINDS:
        tokenizer = learned(name)
        around = InputTemplate(
            special_ids=tokenizer.special_ids,
            prefix=(),
            separator=(),
            suffix=(),
            causal=False,
            max_length=999,
        )
        question = TokenClassificationFormulation(task=TASK, tokenizer=tokenizer, template=around)
        for text in TEXTS.values():
            item = TaskExample(texts=(*text.split(),))
            (one_input,) = question.build_inputs([item])
            first = np.flatnonzero(np.asarray(one_input.example.label) != IGNORE_INDEX)
            spans, start = tokenizer.offsets(text), 0
            assert len(spans) == len(one_input.example.inputs)
            for word, i in zip(item.texts, first.tolist(), strict=True):
                assert max(start - 1, 0) <= spans[i][0] < start + len(word)
                start += len(word) + 1
