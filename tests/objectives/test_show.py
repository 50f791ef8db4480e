import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import BERT, GPT, T5, text, texts

from unmask.batch import IGNORE_INDEX, Example
from unmask.heads.pretraining.sentence_reconstruction import SkipThoughts
from unmask.objectives import published
from unmask.objectives.corrupt import MaskedNextToken, MaskInPlace
from unmask.objectives.explain import (
    AboutModel,
    display_width,
    explain_example,
    visible_piece,
)
from unmask.objectives.objective import Objective
from unmask.objectives.select import TokenMasking
from unmask.objectives.sentence_pairs.pairs import SplitTextObjective
from unmask.objectives.unified_lm.visibility import Seq2SeqLM, UnidirectionalLM
from unmask.tokenizers.spec import SpecialTokenIds

SPECIAL_PIECES = {0: "[PAD]", 1: "[UNK]", 2: "[CLS]", 3: "[SEP]", 4: "[MASK]"}


@dataclass
class Words:
    """A tokenizer that knows the pieces w10, w11, ..."""

    special_ids: SpecialTokenIds

    def pieces(self, ids: Iterable[int]) -> list[str]:
        if self.special_ids is BERT:
            return [SPECIAL_PIECES.get(i, f"w{i}") for i in ids]
        return [f"<{i}>" if i in self.special_ids.all_ids else f"w{i}" for i in ids]


def explain(objective, special, tokens, seed=0):
    e = objective(tokens, special, np.random.default_rng(seed))
    return explain_example(e, Words(special), objective)


def in_place() -> Example:
    return Example(
        inputs=np.array([2, 10, 4, 55, 13, 3]),
        targets=np.array([IGNORE_INDEX, IGNORE_INDEX, 11, 12, 13, IGNORE_INDEX]),
    )


def test_each_token_shows_its_role():
    x = explain_example(in_place(), Words(BERT), published.MASKED_LM)
    assert [c.role for c in x.inputs] == [
        "special", "shown", "masked", "replaced", "kept", "special",
    ]  # fmt: skip
    assert [c.target for c in x.inputs] == [None, None, "w11", "w12", "w13", None]
    assert x.source is None
    assert x.loss_terms == ("masked",)
    assert x.visibility == "every token attends to every token"


def test_neighboring_sentences_are_shown_with_their_targets():
    tokens = text(range(10, 22), sentences=[0, 4, 9])
    x = explain(published.SKIP_THOUGHTS, BERT, tokens)
    assert [c.segment for c in x.inputs] == [0] * 6 + [1] * 7 + [2] * 5
    assert {c.target for c in x.inputs} == {None}
    about = AboutModel(heads=[SkipThoughts()])
    e = published.SKIP_THOUGHTS(tokens, BERT, np.random.default_rng(0))
    after, before = explain_example(e, Words(BERT), published.SKIP_THOUGHTS, about).further
    assert [c.segment for c in after.tokens] == [1] * 7 + [2] * 5
    assert [c.segment for c in before.tokens] == [0] * 6 + [1] * 7
    assert [c.target for c in before.tokens[:6]] == ["w10", "w11", "w12", "w13", "[SEP]", None]
    assert {c.role for c in x.inputs} == {"shown", "special"}
    assert x.label == (
        "each sentence predicts the one before it and the one after it, word by word"
    )
    assert "C [CLS] w19 w20" in x.to_text()
    x = explain(published.QUICK_THOUGHTS, BERT, tokens)
    assert {c.target for c in x.inputs} == {None}
    assert x.label.startswith("each sentence finds its neighbors")
    assert explain(published.QUICK_THOUGHTS, BERT, tokens[:3]).label == (
        "none: there is but one sentence"
    )


def test_targets_are_printed_under_their_inputs():
    x = explain_example(in_place(), Words(BERT), published.MASKED_LM)
    assert x.to_text(110).splitlines() == [
        "inputs of the model, targets below",
        "  [CLS] w10 [MASK] w55 w13 [SEP]",
        "            w11    w12 w13",
        "",
        "sees           every token attends to every token",
        "targets        3 of 6 tokens, 1 masked, 1 replaced, 1 kept",
        "               masked: replaced by the mask token; replaced: replaced by "
        "another token; kept: left as it is",
    ]


def test_causal_model_shows_next_token_targets():
    x = explain(published.CAUSAL_LM, GPT, text([10, 11, 12]))
    assert x.to_text().splitlines() == [
        "inputs of the model, targets below",
        "  <99> w10 w11",
        "  w10  w11 w12",
        "",
        "sees           each token attends to itself and those before it",
        "targets        3 of 3 tokens",
    ]
    assert {c.role for c in x.inputs} == {"special", "shown"}


def test_prefix_is_described():
    x = explain(published.PREFIX_LM, GPT, text(range(10, 20)), 1)
    n = 1 + sum(c.target is None for c in x.inputs)
    assert (
        x.visibility
        == f"the first {n} tokens attend to each other, each later one also to those before it"
    )


def test_seq2seq_row_shows_source_and_masked_target():
    tokens = text(range(10, 22), sentences=[0, 6])
    backward = explain(UnidirectionalLM(published.MASKED_LM, "backward", 3), BERT, tokens)
    assert backward.visibility == "each token attends to itself and those after it"
    assert {cell.segment for cell in backward.inputs} == {0}
    assert {c.role for c in backward.inputs if c.target} <= {"masked", "replaced", "kept"}
    x = explain(Seq2SeqLM(published.MASKED_LM, (4, 5)), BERT, tokens)
    assert (
        x.visibility
        == "the first 8 tokens attend to each other, each later one also to those before it"
    )
    assert [cell.segment for cell in x.inputs] == [0] * 8 + [1] * 7
    lines = x.to_text().splitlines()
    assert [line[:2] for line in lines if line[:2] in ("A ", "B ")] == ["A ", "B "]


def test_shifted_targets_are_shown_one_position_earlier():
    objective = Objective(
        TokenMasking(0.3), MaskedNextToken(mask_probability=1.0, random_token_probability=0.0)
    )
    x = explain(objective, BERT, text(range(10, 30)))
    masked = [i for i, cell in enumerate(x.inputs) if cell.role == "masked"]
    assert len(masked) == 7
    assert [i for i, cell in enumerate(x.inputs) if cell.target] == [i - 1 for i in masked]
    assert [x.inputs[i - 1].target for i in masked] == [f"w{9 + i}" for i in masked]
    assert x.visibility.endswith("; a masked token is predicted at the position before it")


def test_encoder_and_decoder_are_shown_separately():
    x = explain(published.T5, T5, text(range(10, 30)), 1)
    assert [c.role for c in x.source].count("sentinel") == 1
    assert x.source[-1].role == "special"
    assert x.inputs[1].role == "sentinel"
    assert x.inputs[0].target == x.inputs[1].piece
    assert x.inputs[-1].target == "<1>"
    plain = x.to_text()
    assert plain.startswith("inputs of the encoder\n  w10")
    assert "\ninputs of the decoder, targets below\n  <0> " in plain
    assert x.visibility.startswith(
        "encoder: every token attends to every token; decoder: each token attends"
    )


def test_pair_is_shown_in_two_parts_with_its_label():
    tokens = replace(text(range(10, 22), sentences=[0, 3, 8]), other_text=text(range(40, 52)))
    seen = {}
    for seed in range(20):
        x = explain(published.BERT, BERT, tokens, seed)
        seen[x.label] = x
        lines = x.to_text().splitlines()
        assert [line[:2] for line in lines if line[:2] in ("A ", "B ")] == ["A ", "B "]
    assert set(seen) == {"0: B follows A", "1: B is from another text"}
    output = {explain(published.ALBERT, BERT, tokens, seed).label for seed in range(20)}
    assert output == {"0: A and B are in order", "1: A and B are swapped"}
    alone = explain(published.BERT, BERT, text([10, 11]))
    assert alone.label == "none: there is but one text"
    assert "text label     none: there" in alone.to_text()


def test_two_parts_of_a_text_are_shown():
    x = explain(
        SplitTextObjective(published.MASKED_LM), BERT, text(range(10, 22), sentences=[0, 6])
    )
    lines = x.to_text().splitlines()
    assert [line[:2] for line in lines if line[:2] in ("A ", "B ")] == ["A ", "B "]
    assert x.label == "B is what followed A, to be found among those of other texts"
    assert x.visibility == "every token attends to every token of its own part"
    alone = explain(SplitTextObjective(published.MASKED_LM), BERT, text([10, 11]))
    assert alone.label == "none: the text is too short for two parts"
    assert alone.visibility == "every token attends to every token"


def test_crop_is_shown_as_part_of_its_text():
    x = explain(published.COCO_LM, BERT, text(range(10, 22)))
    assert x.label == "B is a crop of A, to be found among those of other texts"
    assert x.visibility == "every token attends to every token of its own part"


def test_long_texts_are_wrapped_to_the_width():
    x = explain(published.BERT, BERT, text(range(10, 80), sentences=range(0, 70, 7)), 3)
    for width in (60, 80, 200):
        lines = x.to_text(width).splitlines()
        assert max(map(display_width, lines)) <= width
        assert sum(line.count("[MASK]") for line in lines) >= 1
    assert len(x.to_text(60).splitlines()) > len(x.to_text(200).splitlines())


@settings(max_examples=40)
@given(texts(), st.integers(0, 1000))
def test_every_target_is_shown_once_under_its_position(tokens, seed):
    for objective, special in (
        (published.MASKED_LM, BERT),
        (published.T5, T5),
        (published.CAUSAL_LM, GPT),
    ):
        e = objective(tokens, special, np.random.default_rng(seed))
        x = explain_example(e, Words(special), objective)
        answers = [c.target for c in x.inputs if c.target is not None]
        assert answers == Words(special).pieces(e.targets[e.targets != IGNORE_INDEX].tolist())
        assert [c.piece for c in x.inputs] == Words(special).pieces(e.inputs.tolist())
        lines = x.to_text(60).split("\nsees ")[0].splitlines()
        start = next(
            i
            for i, line in enumerate(lines)
            if line.startswith(("inputs of the model", "inputs of the dec"))
        )
        for i, line in enumerate(lines[start + 1 :], start + 1):
            if not line.startswith("  "):
                continue
            below = lines[i + 1] if i + 1 < len(lines) else ""
            for word in re.finditer(r"\S+", below if below.startswith("  ") else ""):
                assert line[word.start() : word.start() + 1].strip(), (line, below)


def test_json_has_the_same_content():
    x = explain_example(in_place(), Words(BERT), published.MASKED_LM)
    data = json.loads(x.to_json())
    assert data["inputs"][2] == {
        "piece": "[MASK]",
        "role": "masked",
        "asked": "w11",
        "segment": None,
    }
    assert list(data) == [
        "source", "inputs", "asks", "sees", "label", "weighting", "facts", "losses", "reader",
        "further", "words", "note",
    ]  # fmt: skip
    assert data["asks"] == ["masked"]
    assert data["sees"] == x.visibility
    assert "\n" not in x.to_json()


def test_target_weights_are_described():
    x = explain(published.MASKED_DIFFUSION, BERT, text(range(10, 30)), seed=1)
    rate = np.random.default_rng(1).uniform(1e-3, 1)
    assert (
        x.weighting == f"that of each target times {1 / rate:.3g}, divided by all 20 tokens "
        "that may be targets"
    )
    assert x.weighting in " ".join(x.to_text().split())
    assert explain_example(in_place(), Words(BERT), published.MASKED_LM).weighting is None


def test_color_adds_nothing_but_color():
    from rich.console import Console

    x = explain_example(in_place(), Words(BERT), published.MASKED_LM)
    plain, colored = io.StringIO(), io.StringIO()
    Console(file=plain, width=60, no_color=True).print(x.to_rich(60))
    Console(file=colored, width=60, force_terminal=True, color_system="standard").print(
        x.to_rich(60)
    )
    lines = [line.rstrip() for line in plain.getvalue().splitlines()]
    assert lines == x.to_text(60).splitlines()
    assert "\x1b[1;35m[MASK]" in colored.getvalue()
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", colored.getvalue())
    assert [line.rstrip() for line in stripped.splitlines()] == lines


def test_markup_in_text_is_escaped():
    x = explain_example(in_place(), Words(BERT), published.MASKED_LM)
    assert "[MASK]" in x.to_rich().plain


@pytest.mark.parametrize(
    ("piece", "seen"),
    [
        (" the", "▁the"), ("a\nb", "a⏎b"), ("\x1b[31m", "\\x1b[31m"), ("\u202eabc", "\\u202eabc"),
        ("", "∅"), ("日本", "日本"), ("é", "é"), ("e\u0301", "e\u0301"), ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"), ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)  # fmt: skip
def test_pieces_cannot_control_the_terminal(piece, seen):
    assert visible_piece(piece) == seen


def test_wide_and_combining_characters_have_display_width():
    assert display_width("abc") == 3
    assert display_width("日本") == 4
    assert display_width("e\u0301") == 1


def test_mask_typed_in_text_is_not_a_target():
    e = Example(inputs=np.array([2, 4, 3]), targets=np.full(3, IGNORE_INDEX))
    x = explain_example(e, Words(BERT), published.MASKED_LM)
    assert [c.role for c in x.inputs] == ["special"] * 3
    assert "targets        0 of 3 tokens" in x.to_text()


def test_seeds_show_different_masks():
    tokens = text(range(10, 60))
    objective = Objective(TokenMasking(0.15), MaskInPlace())
    assert (
        explain(objective, BERT, tokens, 1).to_text()
        != explain(objective, BERT, tokens, 2).to_text()
    )
    assert explain(objective, BERT, tokens, 1) == explain(objective, BERT, tokens, 1)


def test_noisy_encoder_input_shows_its_masks():
    bart = replace(BERT, start=3)
    x = explain(published.BART, bart, text(range(10, 40)))
    assert x.source is not None
    assert {"masked", "shown", "special"} == {cell.role for cell in x.source}
    assert [cell.target for cell in x.inputs[1:-1]] == [f"w{i}" for i in range(10, 40)]
