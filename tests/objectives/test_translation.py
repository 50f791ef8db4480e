"""Translation pairs: read line by line, a row each, both sides hidden, with languages."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

from unmask.batch import IGNORE_INDEX, WORD_START, Tokens
from unmask.jobs.catalogue.hide import hide
from unmask.objectives.explain import explain_example
from unmask.objectives.published import MASKED_LM, TRANSLATION_LM
from unmask.shards.fertility import tokens_per_word
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.text.mixtures import read_documents_by_source
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer, with_language_names, with_text_language
from unmask.tokenizers.spec import NO_LANGUAGE, TextLanguages, TokenizerSpec
from unmask.tokenizers.vocabulary import BPE
from unmask.training.config import Recipe
from unmask.training.data.sources import (
    check_translation_pairs,
    open_documents,
    resolve_tokenizer_spec,
)
from unmask.training.data.texts import N_SAMPLE_ROWS, TrainingData, build_training_data
from unmask.zoo.catalogue import MODELS

XLM = MODELS["xlm-mini"]
DE, EN = 0, 1


def sources(folder: Path) -> tuple[str, ...]:
    sentences = [line for line in corpus(6).replace(". ", ".\n").splitlines() if line]
    for name in ("a.de", "a.en"):
        (folder / name).write_text("\n".join(sentences[:40]) + "\n")
    (folder / "en.txt").write_text(corpus(8, seed=1))
    pairs = f"de={folder / 'a.de'}+en={folder / 'a.en'}"
    return (f"en={folder / 'en.txt'}", pairs)


def make_data(folder: Path, **more) -> TrainingData:
    recipe = Recipe(
        model="xlm-mini", data=sources(folder), vocab_size=150, batch_tokens=512, **more
    )
    spec = resolve_tokenizer_spec(recipe, XLM)
    assert spec.special_tokens.languages == ("de", "en")
    known = train_tokenizer(spec, corpus(20).splitlines())
    if not (folder / "shards").exists():
        write_shards(open_documents(recipe), known, folder / "shards")
    shards = TokenShards.open(folder / "shards")
    return build_training_data(shards, recipe, TRANSLATION_LM, 64)


@pytest.mark.parametrize("packing", ["bucket", "pack"])
@pytest.mark.parametrize("unit", ["corpus", "document", "sentence"])
def test_pairs_are_whole_rows_with_both_languages(tmp_path: Path, unit: str, packing: str) -> None:
    data = make_data(tmp_path, row_unit=unit, packing=packing)
    special, n_pairs = data.shards.tokenizer.special_ids, 0
    for batch in data.sample_batches():
        given = batch.feature(TextLanguages)
        assert given is not None
        assert ((given.language == NO_LANGUAGE) == (~batch.is_token())).all()
        starts = batch.inputs == special.start
        assert set(given.language[starts].tolist()) <= {DE, EN}
        if batch.position_ids is None:
            continue
        assert (batch.position_ids[starts] == 0).all()
        n_pairs += int((given.language[starts] == DE).sum())
    rows = min(len(data.train_rows.row_spans), N_SAMPLE_ROWS)
    assert n_pairs == sum(_is_parallel_row(data)[:rows]) > 20


def _is_parallel_row(data: TrainingData) -> list[bool]:
    ids_by_source, of = data._special_ids_of_rows(data.train_rows) or ((), np.zeros(0))
    return [ids_by_source[int(i)].is_parallel for i in of]


def known_tokenizer() -> Tokenizer:
    frame = replace(XLM.tokenizer.special_tokens, languages=("de", "en"))
    return train_tokenizer(TokenizerSpec(BPE(vocab_size=150), frame), corpus(20).splitlines())


def test_both_sides_are_hidden_and_positions_start_anew() -> None:
    known = known_tokenizer()
    text = known.encode("The sea saw the gate at night.\nA young fox loved the long road.")
    special = replace(known.special_ids.with_languages("de", "en"), is_parallel=True)
    hidden = np.zeros(2, int)
    for seed in range(20):
        example = TRANSLATION_LM(text, special, np.random.default_rng(seed))
        language = example.feature(TextLanguages).language
        (second,) = np.flatnonzero(example.inputs == special.start)[1:]
        assert example.inputs[second - 1] == special.end
        assert language.tolist() == [DE] * second + [EN] * (len(language) - second)
        assert example.position_ids.tolist() == [*range(second), *range(len(language) - second)]
        assert (
            len(example.inputs)
            <= TRANSLATION_LM.max_example_length(np.array([len(text)]), special)[0]
        )
        where = np.flatnonzero(example.targets != IGNORE_INDEX)
        hidden += [(where < second).sum(), (where >= second).sum()]
    assert hidden.min() > 0
    shown = explain_example(example, known, TRANSLATION_LM)
    assert [t.language for t in shown.inputs] == ["de"] * second + ["en"] * (len(language) - second)
    assert "positions start anew" in shown.visibility


def test_text_of_one_language_is_masked_alone() -> None:
    known = known_tokenizer()
    text = known.encode("The sea saw the gate.\nA fox.")
    special = known.special_ids.with_languages("en")
    ours, plain = (o(text, special, np.random.default_rng(1)) for o in (TRANSLATION_LM, MASKED_LM))
    assert ours.inputs.tolist() == plain.inputs.tolist()
    assert not ours.has(TextLanguages)
    told = special.with_text_languages(ours).feature(TextLanguages)
    assert set(told.language.tolist()) == {EN}
    pair = special.with_text_languages(replace(ours, segments=np.arange(len(ours.inputs)) % 2))
    assert set(pair.feature(TextLanguages).language.tolist()) == {EN}
    assert known.special_ids.with_text_languages(ours) is ours


def test_language_of_texts_is_saved_with_the_tokenizer(tmp_path: Path) -> None:
    known = known_tokenizer()
    assert not {"de", "en"} & set(known.pieces(known.special_ids.all_ids))
    with_text_language(known, "de").save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.special_ids.text_languages == (DE,)
    assert again.with_languages("en").special_ids.text_languages == (EN,)
    assert again.without_languages().special_ids == known.special_ids
    with pytest.raises(ValueError, match=r"must be one of de, en, got 'fr'"):
        with_text_language(known, "fr")
    plain = train_tokenizer(MODELS["bert-mini"].tokenizer, ["a b c"] * 9)
    with pytest.raises(ValueError, match="language 'de': this model has no language embeddings"):
        with_text_language(plain, "de")
    named = with_language_names(plain, XLM.tokenizer.special_tokens, ("en=x", "fr=y+de=z"))
    assert dict(named.special_ids.languages) == {"de": 0, "en": 1, "fr": 2}


def test_unequal_numbers_of_lines_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nzwei\ndrei\n")
    (tmp_path / "a.en").write_text("one\ntwo\n")
    data = [f"de={tmp_path / 'a.de'}+en={tmp_path / 'a.en'}"]
    with pytest.raises(ValueError, match=r"a\.de has 3 lines and .*a\.en 2: translation pairs"):
        list(read_documents_by_source(data))
    (tmp_path / "a.en").write_text("one\n\nthree\n")
    found = list(read_documents_by_source(data))
    assert [(d.text, d.source) for d in found] == [
        ("eins\none", "de+en"), ("drei\nthree", "de+en"),
    ]  # fmt: skip


def test_pairs_need_an_objective_that_hides_both() -> None:
    recipe = Recipe(model="xlm-mini")
    check_translation_pairs(recipe, MASKED_LM, ["de", "./de+en"])
    check_translation_pairs(recipe, TRANSLATION_LM, ["de", "de+en"])
    with pytest.raises(ValueError, match=r"de\+en: translation pairs need an objective"):
        check_translation_pairs(recipe, MASKED_LM, ["de", "de+en"])
    with pytest.raises(ValueError, match=r"take another row_unit than stream"):
        check_translation_pairs(replace(recipe, row_unit="stream"), TRANSLATION_LM, ["de+en"])


def test_long_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    assert data.train_rows.n_long_pairs == 0
    with pytest.raises(ValueError, match=r"de\+en: none of its translation pairs has at most"):
        build_training_data(data.shards, data.recipe, TRANSLATION_LM, 8)


def test_tokens_per_word_are_counted_by_source(tmp_path: Path) -> None:
    shards = make_data(tmp_path).shards
    found = tokens_per_word(shards)
    assert found.keys() == {"en", "de+en"}
    text = (tmp_path / "a.de").read_text().splitlines()
    marks = [shards.tokenizer.encode(line).boundaries for line in text]
    words = sum(int(((m & WORD_START) > 0).sum()) for m in marks)
    assert found["de+en"] == pytest.approx(sum(map(len, marks)) / words)
    assert words == sum(len(line.split()) + line.count(".") for line in text)


def test_hide_refuses_languages_that_a_model_is_not_told() -> None:
    with pytest.raises(ValueError, match="language 'de': bert-mini is not told languages"):
        hide("bert-mini", "a text", language="de")


def test_empty_translation_is_a_text_of_the_first_language() -> None:
    known = known_tokenizer()
    special = replace(known.special_ids.with_languages("de", "en"), is_parallel=True)
    text = known.encode("The sea saw the gate.")
    example = TRANSLATION_LM(Tokens(text.ids, text.boundaries), special, np.random.default_rng(0))
    assert set(special.with_text_languages(example).feature(TextLanguages).language) == {DE}
