"""Texts of several languages: each has the token of its own, and no text is without one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

from unmask.batch import IGNORE_INDEX
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.text.mixtures import NamedSource, parse_source, source_names
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import MBART, MBART_50, SpecialTokens, TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.training.config import Recipe
from unmask.training.data.sources import check_languages, open_documents
from unmask.training.data.texts import TrainingData, build_training_data
from unmask.zoo.catalogue import MODELS

NOISE = MODELS["mbart-mini"].objective


def tokenizer(frame=MBART) -> Tokenizer:
    return train_tokenizer(TokenizerSpec(Unigram(130), frame), corpus(20).splitlines())


def make_training_data(folder: Path, frame=MBART, **more) -> TrainingData:
    (folder / "en.txt").write_text("\n\n".join(corpus(3) for _ in range(12)))
    (folder / "de.txt").write_text("\n\n".join(corpus(2) for _ in range(5)))
    data = (f"en_XX={folder / 'en.txt'}", f"de_DE={folder / 'de.txt'}")
    recipe = Recipe(model="mbart-mini", data=data, dev_fraction=0.1, batch_tokens=512, **more)
    if not (folder / "shards").exists():
        write_shards(open_documents(recipe), tokenizer(frame), folder / "shards")
    return build_training_data(TokenShards.open(folder / "shards"), recipe, NOISE, 64)


@pytest.mark.parametrize("packing", ["bucket", "pack"])
def test_source_and_target_carry_the_language_token(tmp_path: Path, packing: str) -> None:
    data = make_training_data(tmp_path, packing=packing)
    special = data.shards.tokenizer.special_ids
    codes = dict(special.languages)
    stream = data.batches(None)
    seen = set()
    for _ in range(3):
        for batch in next(stream)[0]:
            for source, inputs, targets in zip(
                batch.source.tolist(), batch.inputs.tolist(), batch.targets.tolist(), strict=True
            ):
                read = [i for i in source if i in codes.values()]
                started = [i for i in inputs if i in codes.values()]
                output = [i for i in targets if i in codes.values()]
                assert read
                assert read == started == output
                assert packing == "pack" or len(read) == 1
                if packing == "bucket":
                    text = [i for i in source if i != special.pad]
                    assert text[-2:] == [special.end, read[0]]
                    assert inputs[0] == read[0]
                    assert [i for i in targets if i not in (IGNORE_INDEX, special.pad)][-2:] == [
                        special.end, read[0],
                    ]  # fmt: skip
                seen |= set(read)
    assert seen == {codes["en_XX"], codes["de_DE"]}


def test_rows_fit_with_their_language_token(tmp_path: Path) -> None:
    data = make_training_data(tmp_path)
    for batch in data.dev_batches():
        assert batch.inputs.shape[1] <= 64
        assert batch.source.shape[1] <= 64


def test_mbart_50_puts_the_language_before_the_text() -> None:
    known = tokenizer(MBART_50)
    special = known.special_ids.with_languages("de_DE", "he_IL")
    codes = dict(special.languages)
    text = known.encode("the cat runs .")
    same = known.special_ids.with_languages("de_DE")
    example = DenoisingObjective(())(text, same, np.random.default_rng(0))
    assert example.source.tolist() == [codes["de_DE"], *text.ids, special.end]
    assert example.inputs.tolist() == [special.end, codes["de_DE"], *text.ids]
    assert example.targets.tolist() == [codes["de_DE"], *text.ids, special.end]
    assert (special.prefix, special.decoder_prefix) == ((codes["de_DE"],), (codes["he_IL"],))


@pytest.mark.parametrize("frame", [MBART, MBART_50])
def test_saved_tokenizer_has_language_tokens_for_transformers(
    frame: SpecialTokens, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    known = tokenizer(frame)
    output = known.with_languages("de_DE", "en_XX")
    output.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    special, ids = output.special_ids, output.encode("the cat runs .").ids.tolist()
    assert theirs("the cat runs .")["input_ids"] == [*special.prefix, *ids, *special.suffix]
    again = load_tokenizer(tmp_path)
    assert again.special_ids == known.special_ids  # here they are told anew
    assert again.with_languages("de_DE", "en_XX").special_ids == special


def test_language_can_be_changed_and_is_saved_with_the_tokenizer(tmp_path: Path) -> None:
    known = tokenizer()
    codes = dict(known.special_ids.languages)
    assert list(codes) == list(MBART.languages)
    once = known.with_languages("en_XX", "ro_RO")
    assert once.special_ids.suffix == (known.special_ids.end, codes["en_XX"])
    assert (once.special_ids.start, once.special_ids.decoder_prefix) == (codes["ro_RO"], ())
    assert once.with_languages("de_DE").special_ids == known.with_languages("de_DE").special_ids
    assert known.special_ids.needs_languages
    assert not once.special_ids.needs_languages
    known.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.special_ids == known.special_ids
    assert again.decode(again.with_languages("en_XX").special_ids.suffix) == ""


@pytest.mark.parametrize("kind", ["MBartTokenizer", "MBart50Tokenizer"])
def test_transformers_folder_keeps_its_languages(kind: str, tmp_path: Path) -> None:
    import transformers as hf

    first = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [(f"▁{w}", -2.0 - i / 9) for i, w in enumerate(("the", "cat", "runs", "in", "a"))]
    frame = {"MBartTokenizer": MBART, "MBart50Tokenizer": MBART_50}[kind]
    last = [(name, 0.0) for name in (*frame.languages, "<mask>")]
    theirs = getattr(hf, kind)(vocab=[*first, *pieces, *last], src_lang="ro_RO")
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.special_tokens.languages == frame.languages
    assert ours.special_tokens.language_first == frame.language_first
    special = ours.with_languages("ro_RO").special_ids
    text = "the cat runs in a cat"
    ids = [*special.prefix, *ours.encode(text).ids.tolist(), *special.suffix]
    assert ids == theirs(text)["input_ids"]
    assert ours.special_ids.pad == theirs.pad_token_id
    assert ours.special_ids.mask == theirs.mask_token_id


def test_source_names_are_parsed(tmp_path: Path) -> None:
    assert parse_source("de_DE=a/*.txt") == NamedSource(("de_DE",), ("a/*.txt",))
    assert parse_source("he=x.txt") == NamedSource(("he",), ("x.txt",))
    assert parse_source("a/b=c.txt") == NamedSource((), ("a/b=c.txt",))
    assert parse_source("de=a+b.de+en=c.en") == NamedSource(("de", "en"), ("a+b.de", "c.en"))
    there = tmp_path / "de=x.txt"
    there.write_text("x")
    assert parse_source(str(there)) == NamedSource((), (str(there),))
    assert source_names(["de=a.de+en=a.en", "en=b.txt", "de+en"]) == ["de+en", "en", "./de+en"]
    assert source_names(["de_DE=a.txt", "en_XX=b.txt", "de_DE=c.txt"]) == [
        "de_DE", "en_XX", "de_DE",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (("en.txt",), "got one without a language"),
        (("en_XX=en.txt", "xx_XX=de.txt"), "got 'xx_XX'"),
    ],
)
def test_unknown_language_is_named(data: tuple[str, ...], got: str) -> None:
    recipe = Recipe(model="mbart-mini", data=data)
    with pytest.raises(ValueError, match=rf"LANGUAGE=PATH with one of ar_AR, .*; {got}"):
        check_languages(recipe, MBART, None)
    check_languages(recipe, MODELS["bart-mini"].tokenizer.special_tokens, None)
    with pytest.raises(ValueError, match=r"must be one of ar_AR, .*, got 'xx_XX'"):
        tokenizer().with_languages("xx_XX")
    with pytest.raises(ValueError, match="no language tokens"):
        train_tokenizer(MODELS["bert-mini"].tokenizer, ["a b c"] * 9).with_languages("de_DE")


def test_batches_do_not_depend_on_workers(tmp_path: Path) -> None:
    data = make_training_data(tmp_path)
    plain, other = (next(replace(data, n_workers=n).batches(None))[0] for n in (0, 2))
    assert json.dumps([b.source.tolist() for b in plain]) == json.dumps(
        [b.source.tolist() for b in other]
    )
