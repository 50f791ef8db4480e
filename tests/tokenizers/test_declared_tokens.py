"""Added tokens and their flags, in every file that can declare them: ids are transformers'."""

import itertools
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizer_cases import learned

from unmask.tokenizers.load import load_tokenizer

FLAGS: tuple[dict[str, bool], ...] = (
    {}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"normalized": True},
    {"single_word": True}, {"normalized": True, "lstrip": True}, {"normalized": False},
)  # fmt: skip
LAYOUTS = {
    "bert": ("wordpiece", "bert", "json"), "cased": ("cased", "bert", "json"),
    "gpt2": ("bytebpe", "gpt2", "json"), "roberta": ("roberta", "roberta", "json"),
    "t5": ("unigram", "t5", "json"), "llama": ("pieces", "llama", "json"),
    "vocab.txt": ("wordpiece", "bert", "BertTokenizer"),
    "roberta's merges": ("roberta", "roberta", "RobertaTokenizer"),
    "gpt2's merges": ("bytebpe", "gpt2", "GPT2Tokenizer"),
}  # fmt: skip
"""A learned tokenizer, a model's type, and the class where the folder has no tokenizer.json."""


@dataclass(frozen=True)
class Folder:
    path: Path
    n: int
    """The first id that is free."""
    mask: str
    mask_id: int

    def edit(self, file: str, **values: Any) -> None:
        path = self.path / file
        old = json.loads(path.read_text("utf-8")) if path.exists() else {}
        path.write_text(json.dumps(old | values), "utf-8")

    def in_json(self, i: int, token: dict[str, Any]) -> None:
        state = json.loads((self.path / "tokenizer.json").read_text("utf-8"))
        kept = [t for t in state["added_tokens"] if t["content"] != token["content"]]
        tokens = sorted([*kept, {"id": i, **token}], key=lambda t: t["id"])
        self.edit("tokenizer.json", added_tokens=tokens)

    def in_decoder(self, i: int, token: dict[str, Any]) -> None:
        self.edit("tokenizer_config.json", added_tokens_decoder={str(i): token})

    def in_map(self, token: dict[str, Any]) -> None:
        self.edit("special_tokens_map.json", mask_token=token)


def token(name: str, flags: dict[str, bool], *, special: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": name, **plain, "special": special, **flags}


Change = Callable[[Folder], None]


def changes() -> Iterator[tuple[str, Change]]:
    yield "nothing", lambda _: None
    for flags in FLAGS:
        named = " ".join(f"{k}={v}" for k, v in flags.items())
        for what, change in flagged(flags):
            yield f"{what} {named}", change
    yield "added_tokens.json", lambda f: f.edit("added_tokens.json", NewWord=f.n, other=f.n + 1)
    yield "added_tokens.json sign", lambda f: f.edit("added_tokens.json", **{"[NEW]": f.n})
    for file, key in itertools.product(
        ("tokenizer_config.json", "special_tokens_map.json"),
        ("additional_special_tokens", "extra_special_tokens"),
    ):
        yield f"{key} of {file}", lambda f, a=file, b=key: f.edit(a, **{b: ["[NEW]"]})
        yield (
            f"{key} of {file}, with added_tokens.json",
            lambda f, a=file, b=key: (
                f.edit("added_tokens.json", **{"[NEW]": f.n}),
                f.edit(a, **{b: ["[NEW]"]}),
            )[0],
        )
    new = token("[NEW]", {"lstrip": True}, special=True)
    del new["special"]
    yield "extra tables", lambda f: f.edit("special_tokens_map.json", extra_special_tokens=[new])
    for key, value in KEYS:
        yield f"{key}={value}", lambda f, k=key, v=value: f.edit("tokenizer_config.json", **{k: v})
    yield "truncation", lambda f: f.edit("tokenizer.json", truncation=TRUNCATION)


TRUNCATION = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
KEYS: tuple[tuple[str, Any], ...] = (
    ("mask_token", "[NEW]"), ("do_lower_case", True), ("do_lower_case", False),
    ("strip_accents", True), ("strip_accents", False), ("tokenize_chinese_chars", False),
    ("add_prefix_space", True), ("add_prefix_space", False), ("add_bos_token", True),
    ("add_bos_token", False), ("add_eos_token", True), ("clean_up_tokenization_spaces", True),
    ("model_max_length", 8), ("split_special_tokens", True), ("legacy", True), ("legacy", False),
    ("padding_side", "left"), ("keep_accents", True), ("extra_ids", 3), ("unk_token", "[NEW]"),
    ("bos_token", None), ("never_split", ["king"]), ("do_basic_tokenize", False),
    ("max_input_chars_per_word", 3), ("errors", "strict"), ("trim_offsets", False),
)  # fmt: skip


def flagged(flags: dict[str, bool]) -> Iterator[tuple[str, Change]]:
    """Declare flags of a token in each place where they can be, and in two at once."""
    sign, word = token("[NEW]", flags, special=True), token("NewWord", flags, special=False)
    usual, strips = token("[NEW]", {}, special=True), {"rstrip": True}

    def mask(f: Folder, flags: dict[str, bool] = flags) -> dict[str, Any]:
        return token(f.mask, flags, special=True)

    yield "json, the mask", lambda f: f.in_json(f.mask_id, mask(f))
    yield "json, a sign", lambda f: f.in_json(f.n, sign)
    yield "json, a word", lambda f: f.in_json(f.n, word)
    yield "decoder, the mask", lambda f: f.in_decoder(f.mask_id, mask(f))
    yield "decoder, a sign", lambda f: f.in_decoder(f.n, sign)
    yield "decoder, a word", lambda f: f.in_decoder(f.n, word)
    yield "map", lambda f: f.in_map(mask(f))
    yield (
        "config",
        lambda f: f.edit("tokenizer_config.json", mask_token={"__type": "AddedToken", **mask(f)}),
    )
    yield "json and decoder", lambda f: (f.in_json(f.n, usual), f.in_decoder(f.n, sign))[0]
    yield "json and map", lambda f: (f.in_json(f.mask_id, mask(f, strips)), f.in_map(mask(f)))[0]
    yield (
        "decoder and map",
        lambda f: (
            f.in_decoder(f.mask_id, mask(f, strips)),
            f.in_map(mask(f)),
        )[0],
    )


def folder(name: str, path: Path) -> Folder:
    """Write a folder of a layout, as transformers or its users would."""
    kind, model_type, cls = LAYOUTS[name]
    ours = learned(kind)
    ours.save(path)
    made = Folder(
        path, ours.vocab_size, ours.special_tokens.mask or str(ours.special_tokens.end), 0
    )
    mask_id = ours.special_ids.end if ours.special_ids.mask is None else ours.special_ids.mask
    made = Folder(path, ours.vocab_size, made.mask, int(mask_id or 0))
    made.edit("config.json", model_type=model_type)
    config = json.loads((path / "tokenizer_config.json").read_text("utf-8"))
    del config["unmask"]
    config.pop("extra_special_tokens", None)
    if cls != "json":
        model = json.loads((path / "tokenizer.json").read_text("utf-8"))["model"]
        (path / "tokenizer.json").unlink()
        config = {"tokenizer_class": cls}
        if cls == "BertTokenizer":
            config["do_lower_case"] = True
            lines = sorted(model["vocab"], key=model["vocab"].get)
            (path / "vocab.txt").write_text("\n".join(lines) + "\n", "utf-8")
        else:
            (path / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
            lines = ["#version: 0.2", *map(" ".join, model["merges"])]
            (path / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return made


def texts(mask: str) -> list[str]:
    found = [
        "The old king saw 12 quiet houses, café 中文. x",
        "",
        "A  don't  Mr. Fox said : no ! 1",
    ]
    for name in ("[NEW]", "[new]", "NewWord", "newword", "NEWWORD", "OTHER", mask, mask.upper()):
        found += [
            f"the {name} king",
            f"the{name}king",
            f"the  {name}  king",
            f" {name} {name}{name}.",
        ]
    return found


CASES = [(layout, change) for layout in LAYOUTS for change, _ in changes()]
USUAL = re.compile(
    r"nothing|added_tokens.json$|(decoder, the mask|map|json and decoder) (lstrip=True|)$"
    r"|add_bos_token=True|split_special|additional_special_tokens of special"
)


def marked() -> Iterator[Any]:
    for layout, change in CASES:
        needs_json = "json" in change.split(" ")[0].split(",")[0] or change == "truncation"
        if needs_json and "added" not in change and LAYOUTS[layout][2] != "json":
            continue
        marks = () if USUAL.match(change) else pytest.mark.slow
        yield pytest.param(layout, change, marks=marks, id=f"{layout}: {change}")


DIFFERENT = {("t5", "split_special_tokens=True"): "a unigram model of theirs knows </s> as a piece"}
REFUSED = (("vocab.txt", "unk_token=[NEW]"),)
CHANGES = dict(changes())


@pytest.mark.sample(12)
@pytest.mark.parametrize(("layout", "change"), list(marked()))
def test_ids_equal_transformers_or_the_folder_is_refused(layout: str, change: str, tmp_path: Path):
    if (layout, change) in DIFFERENT:
        pytest.skip(DIFFERENT[layout, change])
    made = folder(layout, tmp_path / "a")
    CHANGES[change](made)
    theirs = transformers.AutoTokenizer.from_pretrained(made.path)
    if (layout, change) in REFUSED:
        with pytest.raises(ValueError, match=re.escape(f"{made.path}/vocab.txt: ")):
            load_tokenizer(made.path)
        return
    ours = load_tokenizer(made.path)
    special = ours.special_ids
    for text in texts(made.mask):
        ids = ours.encode(text, allow_special=not theirs.split_special_tokens).ids.tolist()
        assert ids == theirs(text, add_special_tokens=False).input_ids, text
        assert theirs.decode(ids, clean_up_tokenization_spaces=False) == ours.decode(
            ids, skip_special_tokens=False
        )
        if text:
            assert [*special.prefix, *ids, *special.suffix] == theirs(text).input_ids
    # What is written is read as the same again.
    ours.save(tmp_path / "b")
    again = load_tokenizer(tmp_path / "b")
    for text in texts(made.mask):
        assert (
            again.encode(text, allow_special=True).ids == ours.encode(text, allow_special=True).ids
        ).all()
    shutil.rmtree(made.path)


def test_bpe_dropout_is_ignored_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It is for training; transformers keeps it, and gives other ids at each call."""
    made = folder("gpt2", tmp_path)
    model = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))["model"]
    made.edit("tokenizer.json", model=model | {"dropout": 0.5})
    with caplog.at_level(logging.WARNING):
        ours = load_tokenizer(tmp_path)
    assert f"{tmp_path / 'tokenizer.json'}: model.dropout is 0.5" in caplog.text
    text = "the old king saw twelve quiet houses"
    for _ in range(5):
        assert ours.encode(text).ids.tolist() == learned("bytebpe").encode(text).ids.tolist()


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("added_tokens.json", {"x": -1}, "added_tokens.json must map tokens to ids, got 'x': -1"),
        ("added_tokens.json", {"x": 2**31}, "must map tokens to ids, got 'x': 2147483648"),
        ("added_tokens.json", {"x": 9999}, "added_tokens.json: 'x' must have the id 9999, but"),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"9999": {"content": "x"}}},
            "tokenizer_config.json: added_tokens_decoder: 'x' must have the id 9999",
        ),
        ("tokenizer_config.json", {"added_tokens_decoder": {"²": {"content": "x"}}}, "got '²'"),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"7": {"content": "x", "lstrip": 1}}},
            "added_tokens_decoder.7.lstrip must be true or false, got 1",
        ),
        ("tokenizer_config.json", {"extra_special_tokens": "x"}, "extra_special_tokens must be a"),
        ("special_tokens_map.json", {"pad_token": [1]}, "special_tokens_map.json: pad_token must"),
    ],
)
def test_invalid_declarations_are_named_with_file_and_key(
    file: str, values: dict[str, Any], message: str, tmp_path: Path
):
    folder("gpt2", tmp_path).edit(file, **values)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load_tokenizer(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
