"""What transformers reads of the tokenizer of each card, by its model_type: the same ids."""

import functools
import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
import tokenizers
from tokenizer_cases import story

from unmask.tokenizers import pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.count import count_words
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.learn.train import chunker_for
from unmask.tokenizers.vocabulary import PreTokenization
from unmask.zoo.catalogue import TEXT_MODELS
from unmask.zoo.preset import Published

ODD = [
    "in 2024 there were 1234567 of 3.14 and 12 345",
    "a  b   c\t\td \n\n e\r\nf \n\n", "x.\n\n  \ny",
    "中文字符日本語。한국어", "👨\u200d👩\u200d👧 ok 👍🏽",
    "don't DON'T I'LL they've It's it’s O'NEIL",
    "हिन्दी में शब्द தமிழ் مُحَمَّد שָׁלוֹם", "Việt Nam cafe\u0301 café ﬁ ½", "Tiếng Việt",
    "a\x07c\x1cd\x85e\u200bf\u2028g\ufeffh\xa0i", " lead", "trail ", "", "foo_bar(baz)=x==3;// c",
    "A.B,C;D--E...F!!", "The old king saw 12 quiet houses", "``so'' said",
]  # fmt: skip
LIKE_SPECIAL = "a [MASK] b<mask>c <s> </s> <pad> <|endoftext|> [CLS] x"


def cards() -> dict[str, Published]:
    """Give one card of each kind of model and tokenizer, whatever its size."""
    kinds: dict[object, Published] = {}
    for preset in TEXT_MODELS.values():
        spec = preset.tokenizer
        kinds.setdefault(
            (preset.config_mapping.model_type, sized(preset).vocabulary, spec.special_tokens),
            preset,
        )
    return {preset.name: preset for preset in kinds.values()}


def sized(card: Published):
    spec = card.tokenizer
    if "vocab_size" not in [f.name for f in fields(spec.vocabulary)]:
        return spec
    return replace(spec, vocabulary=replace(spec.vocabulary, vocab_size=900))


CARDS = cards()
SHORT = (
    "roberta-mini", "xlm-roberta-mini", "albert-mini", "bert-tiny", "bert-base-cased", "xlnet-mini",
    "deberta-mini", "modernbert-mini", "gpt-neox-mini", "gpt2-mini", "llama-mini", "llama-7b",
    "qwen2-mini", "qwen3-mini", "gemma-mini", "olmo-2-mini", "t5-mini", "bart-mini", "elmo-mini",
    "gpt-mini", "awd-lstm", "canine-mini", "byt5-mini",
)  # fmt: skip
"""One for each way of cutting; the others are slow, since there are so many."""
NAMED = [
    pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in sorted(CARDS)
]


@functools.cache
def learned(name: str) -> Tokenizer:
    return train_tokenizer(sized(CARDS[name]), [f"{story()}\n" + "\n".join(ODD * 3)])


def saved(name: str, folder: Path) -> Tokenizer:
    learned(name).save(folder, max_length=64)
    kind = CARDS[name].config_mapping.model_type
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return learned(name)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMED)
def test_transformers_encodes_as_we_do(name: str, tmp_path: Path):
    from transformers import AutoTokenizer

    ours = saved(name, tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    # ByT5's sentinels, and names of CANINE's special tokens in a text, are ours alone.
    typed = [] if CARDS[name].family in ("canine", "byt5") else [LIKE_SPECIAL]
    for text in [*ODD, *typed]:
        ids = ours.encode(text, allow_special=True).ids.tolist()
        output = theirs(text, add_special_tokens=False).input_ids
        if ours.special_tokens.backward:  # texts from their end, which transformers does not know
            assert sorted(ids) == sorted(output)
            continue
        assert ids == output, text
        assert theirs.decode(ids) == ours.decode(ids, skip_special_tokens=False), text


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("bert-base-cased", "BertTokenizer"), ("bert-tiny", "BertTokenizer"),
        ("roberta-mini", "RobertaTokenizer"), ("gpt2-mini", "GPT2Tokenizer"),
        ("deberta-mini", "DebertaTokenizer"), ("gpt-neox-mini", "GPTNeoXTokenizer"),
        ("qwen2-mini", "Qwen2Tokenizer"), ("qwen3-mini", "Qwen2Tokenizer"),
        ("gemma-mini", "GemmaTokenizer"), ("gpt-mini", "OpenAIGPTTokenizer"),
        ("bart-mini", "BartTokenizer"),
    ],
)  # fmt: skip
def test_family_class_of_transformers_encodes_as_we_do(name: str, cls: str, tmp_path: Path):
    """Of families whose class is a pipeline of its own, with the vocabulary of the folder."""
    import transformers

    ours = saved(name, tmp_path)
    theirs = getattr(transformers, cls).from_pretrained(tmp_path)
    for text in ODD:
        output = theirs(text, add_special_tokens=False).input_ids
        assert ours.encode(text).ids.tolist() == output, text


@pytest.mark.parametrize("cut", ["gpt2", "llama3", "qwen2"])
@pytest.mark.parametrize("text", ["a.\n\nb 12345 6", "x \n\n  \n y.\n z", "it'S 7\r\n  z!\n"])
def test_chunked_word_counts_equal_whole_text_counts(cut: PreTokenization, text: str):
    """A text is cut into chunks before its words are counted; that changes none of them."""
    shell = pipeline.byte_bpe_pipeline(
        {c: i for i, c in enumerate(pipeline.byte_characters())}, [], pre_tokenization=cut
    )
    assert shell.pre_tokenizer is not None
    whole = Counter(word for word, _ in shell.pre_tokenizer.pre_tokenize_str(text))
    assert counted(cut, text, shell) == whole
    longest = max((sum(c.isdigit() for c in word) for word in whole), default=0)
    assert longest <= {"gpt2": 5, "llama3": 3, "qwen2": 1}[cut]


def counted(cut: PreTokenization, text: str, shell: tokenizers.Tokenizer) -> Counter[str]:
    return Counter(count_words([text], shell, (), chunks=chunker_for(cut)))
