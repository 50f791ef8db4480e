"""Filled blanks: those of encoders equal a forward of the reference; T5 generates spans."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, texts, tokenizer

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.generation.decode import generate
from unmask.generation.fill_mask import (
    TOKENS_PER_BLANK,
    BlankCandidate,
    _append_token,
    _insert_spans,
    _split_at_blanks,
    fill,
)
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import BERT, ROBERTA, XLM, TokenizerSpec
from unmask.tokenizers.vocabulary import BPE, ByteBPE, CharacterLevel, WordPiece
from unmask.zoo.catalogue import MODELS


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    made = {family: make(family, tmp_path_factory.mktemp(family)) for family in ("bert", "t5")}
    return made | {"gpt2": make("gpt2", tmp_path_factory.mktemp("gpt2"))}


def with_blanks(n: int, seed: int = 0) -> list[str]:
    """Hide some words of texts: the first, the last, two in a row, all."""
    rng = np.random.default_rng(seed)
    made = []
    for i, text in enumerate(texts(n, seed, most=9)):
        words = text.split()
        hidden = {0: [0], 1: [-1], 2: range(len(words))}.get(i, rng.integers(0, len(words), 2))
        for at in hidden:
            words[at] = "[MASK]"
        made.append(" ".join(words))
    return made


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["BertForPreTraining", "BertForMaskedLM"])
@torch.no_grad()
def test_candidates_equal_reference_forward(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    reference, loaded = make("bert", tmp_path, kind)
    reader = AutoTokenizer.from_pretrained(tmp_path)
    some = with_blanks(20)
    for batch_tokens in (1, 100, 4096):
        filled = fill(loaded.model, tokenizer("bert"), some, top_k=7, batch_tokens=batch_tokens)
        for text, one in zip(some, filled, strict=True):
            read = reader(text, return_tensors="pt")
            out = reference(**read)
            logits = out.logits if kind == "BertForMaskedLM" else out.prediction_logits
            at = (read["input_ids"][0] == reader.mask_token_id).nonzero()[:, 0]
            output = logits[0, at].softmax(-1)
            output[:, list(tokenizer("bert").special_ids.all_ids)] = 0  # no answers
            best = output.topk(7)
            assert len(one.blanks) == len(at) == text.count("[MASK]")
            for blank, shares, ids in zip(one.blanks, best.values, best.indices, strict=True):
                assert [c.text for c in blank] == reader.convert_ids_to_tokens(ids.tolist())
                assert [c.probability for c in blank] == pytest.approx(shares.tolist(), rel=1e-4)


def test_text_outside_blanks_is_unchanged(models: dict) -> None:
    _, loaded = models["bert"]
    text = "The  OLD king\n[MASK] followed, un\u00e9 \u2603 [MASK]!"
    (one,) = fill(loaded.model, tokenizer("bert"), [text])
    first, second = (blank[0].text.removeprefix("##") for blank in one.blanks)
    assert one.text.replace(" ", "").replace("\n", "") == (
        f"TheOLDking{first}followed,un\u00e9\u2603{second}!"
    )
    assert "  OLD king" in one.text


def test_blank_is_mask_or_the_tokenizers_own_mask(models: dict) -> None:
    roberta = train_tokenizer(TokenizerSpec(ByteBPE(300), ROBERTA), texts(50))
    assert _split_at_blanks("a <mask> b [MASK]", roberta) == ["a ", " b ", ""]
    t5 = tokenizer("t5")
    assert _split_at_blanks("<extra_id_0> a [MASK] b <extra_id_1>", t5) == ["", " a ", " b ", ""]
    assert _split_at_blanks("<extra_id_0> [MASK]", tokenizer("bert")) == ["<extra_id_0> ", ""]


def with_token(tokenizer: Tokenizer, text: str, token: str) -> str:
    """Put a token, as the vocabulary writes it, behind a text."""
    ids = tokenizer.encode(text).ids
    number = next(i for i in range(tokenizer.vocab_size) if tokenizer.pieces([i]) == [token])
    return _append_token(tokenizer, text, ids, number)


@pytest.mark.parametrize(
    ("text", "token", "expected"),
    [
        ("the king ", "fox", "the king fox"),
        ("the king ", "##s", "the kings"),  # it continues a word, whatever stands before the blank
        ("the king", "##s", "the kings"),
        ("the king", "fox", "the king fox"),
        ("the king, (", "fox", "the king, (fox"),
        ("the king ", ".", "the king."),
        ("", "fox", "fox"),
        ("\n", "fox", "\nfox"),
    ],
)
def test_word_piece_is_joined_as_decoded(text: str, token: str, expected: str) -> None:
    known = train_tokenizer(
        TokenizerSpec(WordPiece(60), BERT), ["the king fox s kings foxs , . ( ) the fox king"] * 9
    )
    assert with_token(known, text, token) == expected


@pytest.mark.parametrize(
    ("text", "token", "expected"),
    [
        ("the king ", " fox", "the king fox"),
        ("the king", " fox", "the king fox"),
        ("the king ", "s", "the kings"),
        ("(", "s", "(s"),
    ],
)
def test_byte_piece_is_joined_as_decoded(text: str, token: str, expected: str) -> None:
    known = train_tokenizer(
        TokenizerSpec(ByteBPE(300), ROBERTA), ["the king fox s kings ( fox king"] * 9
    )
    read = text.rstrip()  # the mask takes the space before it
    number = next(i for i in range(known.vocab_size) if known.pieces([i]) == [token])
    assert _append_token(known, text, known.encode(read).ids, number) == expected


def test_character_is_joined_as_decoded() -> None:
    known = train_tokenizer(
        TokenizerSpec(CharacterLevel(40), BERT), ["the king fox s kings ( fox king"] * 9
    )
    assert with_token(known, "the f", "o") == "the fo"
    assert with_token(known, "the ", "f") == "the f"


def test_ids_beyond_the_tokenizer_are_no_candidates(tmp_path: Path) -> None:
    size, special = tokenizer("bert").vocab_size, tokenizer("bert").special_ids.all_ids
    _, loaded = make("bert", tmp_path, vocab_size=size + 29)
    (one,) = fill(loaded.model, tokenizer("bert"), ["the [MASK] king"], top_k=10_000)
    assert len(one.blanks[0]) == size - len(special)
    assert 0.5 < sum(c.probability or 0 for c in one.blanks[0]) < 1  # special tokens have the rest


def test_invalid_fill_requests_are_refused(models: dict) -> None:
    (_, bert), (_, gpt2), (_, t5) = models["bert"], models["gpt2"], models["t5"]
    known = tokenizer("bert")
    assert fill(bert.model, known, []) == []
    assert fill(t5.model, tokenizer("t5"), []) == []
    for loaded, family in ((bert, "bert"), (t5, "t5")):
        with pytest.raises(ValueError, match=r"text 2 has no blank: 'the king'; write \[MASK\]"):
            fill(loaded.model, tokenizer(family), ["[MASK]", "the king"])
    with pytest.raises(ValueError, match="top_k must be at least 1, got 0"):
        fill(bert.model, known, ["[MASK]"], top_k=0)
    with pytest.raises(ValueError, match="only reads forward and does not fill blanks"):
        fill(gpt2.model, tokenizer("gpt2"), ["[MASK]"])
    long = ["the [MASK]", "[MASK] " + "king " * 60]
    message = r"^text 2 has \d+ tokens, special ones included, but the model only 40 positions"
    with pytest.raises(ValueError, match=message):
        fill(bert.model, known, long)
    just = "[MASK] " * 38
    assert len(fill(bert.model, known, [just])[0].blanks) == 38
    with pytest.raises(ValueError, match="text 1 has 41 tokens"):
        fill(bert.model, known, [just + "[MASK]"])
    with pytest.raises(ValueError, match="has no mask token"):
        fill(bert.model, tokenizer("gpt2"), ["[MASK]"])


def test_model_without_language_head_is_refused(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, "BertForSequenceClassification")
    with pytest.raises(ValueError, match=r"no language-model head \(heads: label\)"):
        fill(loaded.model, tokenizer("bert"), ["[MASK]"])


# Encoder-decoders


def test_spans_are_decoder_text_after_sentinels() -> None:
    known = tokenizer("t5")
    zero, one, two = known.special_ids.sentinels[:3]
    king, fox, ring = (known.encode(word).ids.tolist() for word in ("king", "fox", "ring"))
    pieces = ["the ", " saw ", "!"]
    filled = _insert_spans(known, pieces, [zero, *king, one, *fox, *ring, two])
    assert filled.text == "the king saw fox ring!"
    assert filled.blanks == ((BlankCandidate("king", None),), (BlankCandidate("fox ring", None),))
    # What stands before the first sentinel, or after one that is not in the text, is left out.
    assert _insert_spans(known, pieces, [*ring, one, *fox, two, *king]).text == "the  saw fox!"
    assert _insert_spans(known, pieces, []).text == "the  saw !"
    assert _insert_spans(known, pieces, [zero, *king, zero, *fox]).text == "the king fox saw !"


def test_source_equals_reference_tokenizer(models: dict, tmp_path: Path, monkeypatch: Any) -> None:
    from transformers import AutoTokenizer

    from unmask.generation import fill_mask as module

    known = tokenizer("t5")
    known.save(tmp_path)
    reader = AutoTokenizer.from_pretrained(tmp_path)
    sources: list[list[int]] = []

    def record(model: Any, prompts: Any, *rest: Any, **started: Any) -> Any:
        sources.extend([] if started else prompts)
        return generate(model, prompts, *rest, **started)

    monkeypatch.setattr(module, "generate", record)
    some = ["[MASK] king [MASK] saw", "the old[MASK]king [MASK]", *with_blanks(10)]
    filled = fill(models["t5"][1].model, known, some)
    for text, source, one in zip(some, sources, filled, strict=True):
        pieces = text.split("[MASK]")
        assert len(one.blanks) == len(pieces) - 1
        hidden = "".join(f"<extra_id_{i}>{p}" for i, p in enumerate(pieces, -1)).removeprefix(
            "<extra_id_-1>"
        )
        assert source == reader(hidden)["input_ids"]


def test_spans_do_not_depend_on_other_texts(models: dict) -> None:
    _, loaded = models["t5"]
    some = with_blanks(8)
    together = fill(loaded.model, tokenizer("t5"), some)
    assert [fill(loaded.model, tokenizer("t5"), [text])[0] for text in some] == together


def test_more_blanks_than_sentinels_are_refused(models: dict, monkeypatch: Any) -> None:
    from unmask.generation import fill_mask as module

    _, loaded = models["t5"]
    known = tokenizer("t5")
    monkeypatch.setattr(module, "generate", lambda model, prompts, *rest: [[] for _ in prompts])
    assert len(fill(loaded.model, known, ["[MASK]" * 100])[0].blanks) == 100
    with pytest.raises(ValueError, match="text 1 has 101 blanks, but the tokenizer only 100"):
        fill(loaded.model, known, ["[MASK]" * 101])


def test_token_budget_grows_with_the_blanks(models: dict, monkeypatch: Any) -> None:
    from unmask.generation import fill_mask as module

    known = tokenizer("t5")
    sentinel, king = known.special_ids.sentinels[0], known.encode("king").ids.tolist()

    def talk(model: Any, prompts: Any, special: Any, how: Any) -> list[list[int]]:
        return [[sentinel, *king * 500][: how.max_new_tokens] for _ in prompts]

    monkeypatch.setattr(module, "generate", talk)
    one, two = fill(models["t5"][1].model, known, ["[MASK]", "[MASK] [MASK]"])
    for filled, blanks in ((one, 1), (two, 2)):
        ids = known.encode(filled.blanks[0][0].text).ids
        assert TOKENS_PER_BLANK * blanks - len(king) <= len(ids) + 1 <= TOKENS_PER_BLANK * blanks


def test_whole_text_decoder_continues_where_text_is_hidden(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from unmask.generation import fill_mask as module

    _, loaded = make("bart", tmp_path)
    known = tokenizer("bart")
    special, read = known.special_ids, []

    def talk(
        model: Any, prompts: Any, special: Any, how: Any, *, output_prefixes: Any
    ) -> list[list[int]]:
        read.append((prompts, [known.decode(ids) for ids in output_prefixes]))
        return [known.encode(" old king saw him saw.").ids.tolist() for _ in prompts]

    monkeypatch.setattr(module, "generate", talk)
    some = ["the [MASK] saw a <mask>.", "a [MASK] [MASK]", "the [MASK] boy"]
    one, two, three = fill(loaded.model, known, some)
    assert one.text == "the old king saw a old king saw him saw."
    assert [[c.text for c in blank] for blank in one.blanks] == [
        ["old king"], ["old king saw him saw"],
    ]  # fmt: skip
    assert [[c.text for c in blank] for blank in two.blanks] == [["old"], ["old king saw him saw."]]
    assert three.blanks[0][0].text == "old king saw him saw."
    (first, started), (_, later) = read
    assert started == ["the", "a", "the"]
    assert later == ["the old king saw a", "a old"]
    assert all([ids[0], ids[-1]] == [special.prefix[0], special.end] for ids in first)
    assert [ids.count(special.mask) for ids in first] == [2, 2, 1]


def test_whole_text_decoder_with_sentinels_fills_blanks(models: dict, monkeypatch: Any) -> None:
    from unmask.generation import fill_mask as module

    known = tokenizer("t5")
    whole, read = known.encode("the old king saw him.").ids.tolist(), []
    spans = [known.special_ids.sentinels[0], *known.encode("boy").ids.tolist()]

    def talk(
        model: Any, prompts: Any, special: Any, how: Any, *, output_prefixes: Any = None
    ) -> list[list[int]]:
        if output_prefixes is None:
            return [whole, spans, []]
        read.extend(zip(prompts, output_prefixes, strict=True))
        return [whole[len(ids) :] for ids in output_prefixes]

    monkeypatch.setattr(module, "generate", talk)
    some = ["the [MASK] saw him.", "the [MASK] saw him.", "the [MASK]."]
    filled = fill(models["t5"][1].model, known, some)
    assert [f.text for f in filled] == ["the old king saw him.", "the boy saw him.", "the ."]
    ((source, started),) = read
    assert source.count(known.special_ids.mask_or_sentinel) == 1
    assert known.decode(started) == "the"


@pytest.mark.thorough
def test_whole_text_blanks_are_filled_next_to_any_text(tmp_path: Path) -> None:
    _, loaded = make("bart", tmp_path)
    some = ["the [MASK] saw a [MASK].", "a [MASK]", "[MASK] the king"]
    together = fill(loaded.model, tokenizer("bart"), some)
    assert [fill(loaded.model, tokenizer("bart"), [text])[0] for text in some] == together
    for text, filled in zip(some, together, strict=True):
        pieces, words = text.split("[MASK]"), [blank[0].text for blank in filled.blanks]
        whole = pieces[0] + "".join(w + p for w, p in zip(words, pieces[1:], strict=True))
        assert filled.text == whole


def test_end_of_word_pieces_are_marked_in_continuations(tmp_path: Path) -> None:
    known = train_tokenizer(
        TokenizerSpec(BPE(vocab_size=120), XLM), ["the king saw the gate and the kingdom"] * 4
    )
    preset = MODELS["flaubert-mini"].with_vocabulary(known.special_ids)
    (one,) = fill(preset.build().initialize(0).eval(), known, ["the <special1> king"], top_k=200)
    output = {candidate.text for candidate in one.blanks[0]}
    assert not any("</w>" in text for text in output)
    assert {"d", "d##"} <= output
    assert output.isdisjoint(known.pieces(known.special_ids.all_ids)), (
        "special tokens are no answers"
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [("electra-mini", "the folder generator"), ("canine-mini", "it reads characters")],
)
def test_model_without_token_head_is_refused_with_alternative(name: str, instead: str) -> None:
    heads = {n: spec for n, spec in MODELS[name].heads.items() if spec.is_kept_after_pretraining}
    with torch.device("meta"):
        model = MODELS[name].build(heads)
    with pytest.raises(ValueError, match=f"no language-model head .*: .*{instead}"):
        fill(model, tokenizer("bert"), ["the [MASK] king"])


def test_text_exceeding_attention_memory_is_refused(
    models: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, loaded), known = models["t5"], tokenizer("t5")
    heads = loaded.model.decoder_architecture.n_heads
    monkeypatch.setattr("unmask.generation.text_batches.MAX_SCORES", heads * 30**2)
    text = "[MASK] " + with_blanks(1)[0].replace("[MASK]", "a") * 40
    with pytest.raises(ValueError, match=r"text 1 has .* tokens.*, but the model only 30 "):
        fill(loaded.model, known, [text])
    assert fill(loaded.model, known, ["a [MASK]"])[0].text
