"""Labels of words -> labels of tokens -> labels of words, for any words and every tokenizer."""

from collections.abc import Sequence

import numpy as np
import pytest
import toy_models as toy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_cases import LOSSLESS, SPECS, learned

from unmask.batch import IGNORE_INDEX
from unmask.finetuning.formulations.formulation import InputTemplate
from unmask.finetuning.formulations.token_classification_head import TokenClassificationFormulation
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.tokenizers.encode import Tokenizer

ODD = (
    "", " ", "\u200b", "\x00", "\u0301", "e\u0301", "é", "É", "ﬁ", "½", "İ", "ß", "ǅ", "¨", "´",
    "中文", "日本語。", "한국어", "ไทย", "\u05e2\u05b4\u05d1", "\U0001f642", "a\U0001f642b",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f44d\U0001f3fd", "don't", "U.S.", "3.14", "1,000", "12-13", "...", "(", "##a", "a</w>",
    "_", "▁", "a▁b", "[MASK]", "</s>", "<pad>", "x y", "a\u00a0b", "the", "king", "kings",
    "unheard-of", "a" * 120,
)  # fmt: skip
WORDS = st.lists(
    st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    max_size=10,
)
LABELS = tuple(map(str, range(len(ODD))))


def make_formulation(name: str, length: int, *, causal: bool) -> TokenClassificationFormulation:
    tokenizer = learned(name)
    preset = toy.card("gpt2" if causal else "bert")
    task = Task(
        task_kind="tag",
        columns=TaskColumns(texts=("a",), label="b"),
        labels=LABELS,
        max_length=length,
    )
    around = InputTemplate.from_architecture(tokenizer.special_ids, preset.architecture, length)
    return TokenClassificationFormulation(task=task, tokenizer=tokenizer, template=around)


def writable(tokenizer: Tokenizer, words: Sequence[str]) -> bool:
    """Say whether the text holds nothing that the tokenizer can only write as a special token."""
    try:
        tokenizer.encode(" ".join(words))
    except ValueError:
        return False
    return True


@pytest.mark.sample(6)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=40)
@given(words=WORDS, length=st.sampled_from([12, 30, 4000]))
@example(words=list(ODD[:10]), length=12)
def test_word_labels_round_trip(name: str, causal: bool, words: list[str], length: int) -> None:
    if not writable(learned(name), words):
        return
    ask = make_formulation(name, length, causal=causal)
    truth = LABELS[: len(words)]
    questions = ask.build_inputs([TaskExample(texts=tuple(words), label=truth)])
    back: list[str] = []
    for question in questions:
        label = question.example.label
        assert len(question.example.inputs) == len(label) <= length
        back += [LABELS[i] for i in label[label != IGNORE_INDEX]]
    assert tuple(back) == truth


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=60)
@given(words=WORDS)
@example(words=list(ODD[:20]))
@example(words=list(ODD[20:]))
def test_each_word_is_labelled_at_its_own_tokens(name: str, words: list[str]) -> None:
    """Each word has its label at the first or last of the tokens that it would have alone."""
    tokenizer = learned(name)
    if not writable(tokenizer, words):
        return
    plain = [" ".join(word.split()) for word in words]
    pieces = {}
    for causal in (False, True):
        ask = make_formulation(name, 4000, causal=causal)
        (question,) = ask.build_inputs(
            [TaskExample(texts=tuple(words), label=LABELS[: len(words)])]
        )
        positions = np.flatnonzero(question.example.label != IGNORE_INDEX).tolist()
        pieces[causal] = question.example.inputs.tolist(), positions
    assert pieces[False][0] == pieces[True][0]
    ids, firsts = pieces[False]
    lasts = pieces[True][1]
    spans = list(zip(firsts, [n + 1 for n in lasts], strict=True))
    lead, end = len(tokenizer.special_ids.prefix), len(ids) - len(tokenizer.special_ids.suffix)
    if words:  # no token is between two words
        assert [lead, *(b for _, b in spans)] == [*(a for a, _ in spans), end]
    # Where a space is a token of its own, it belongs to the word behind it.
    between = tokenizer.encode("a b").ids.tolist()[1:-1] if name == "characters" else []
    for i, (word, (a, b)) in enumerate(zip(plain, spans, strict=True)):
        own = ids[a:b]
        alone = tokenizer.encode(word).ids.tolist()
        if name == "pieces":  # ▁ is a space to it, of which none is said before what comes first
            assert tokenizer.decode(own).strip(" ") == word.replace("▁", " ").strip(" ")
        elif name in LOSSLESS:
            space = " " if i else ""
            assert tokenizer.decode(own) == space + word or (not word and len(own) == 1)
        else:
            alone = [*between, *alone] if i else alone
            assert own == alone or (not alone and own == [tokenizer.special_ids.unknown])
