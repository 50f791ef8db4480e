"""What a tokenizer's file may do to a text, and what the library's own failures become."""

import base64
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizer_cases import SPECS, learned
from tokenizers import Regex, Tokenizer, models, normalizers

from unmask.tokenizers.formats import limits
from unmask.tokenizers.load import load_tokenizer


def replaces(*rules: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"String": a}, "content": b} for a, b in rules
        ],
    }


def regex(rule: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": rule}, "content": content}


def charsmap(longest: int) -> str:
    table = b"\0" * 8
    data = len(table).to_bytes(4, "little") + table + b"a" * longest + b"\0"
    return base64.b64encode(data).decode()


DOUBLES = [("a", "aa")] * 30
BAD: dict[str, tuple[str, Any, str]] = {
    "doubling": ("normalizer", replaces(*DOUBLES), "normalizer can make a text 1,073,741,824"),
    "one rule": (
        "normalizer",
        replaces(("a", "b" * 10**6)),
        "can make a text 1,000,000 times",
    ),
    "two letters": ("normalizer", replaces(*[("a", "bb"), ("b", "aa")] * 9), "can make a text"),
    "any place": (
        "normalizer",
        {"type": "Sequence", "normalizers": [regex("", "xy")] * 6},
        "normalizer can make a text 729 times",
    ),
    "any letter": ("normalizer", regex(".", "x" * 101), "normalizer can make a text 101 times"),
    "bytes": (
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 8},
        "normalizer can make a text 256 times",
    ),
    "before": (
        "normalizer",
        {"type": "Prepend", "prepend": "x" * 10_001},
        "normalizer prepends 10,001 characters to each text",
    ),
    "charsmap": (
        "normalizer",
        {"type": "Precompiled", "precompiled_charsmap": charsmap(500)},
        "normalizer can make a text 500 times",
    ),
    "no base64": (
        "normalizer",
        {"type": "Precompiled", "precompiled_charsmap": "abc"},
        "precompiled_charsmap is not base64",
    ),
    "steps": (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}] * 501},
        "pre_tokenizer must have at most 500 steps, got 501",
    ),
    "decoder": (
        "decoder",
        {"type": "Sequence", "decoders": replaces(*DOUBLES)["normalizers"]},
        "decoder can make a text 1,073,741,824",
    ),
    "around": (
        "post_processor",
        {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * 60
            + [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1] * 9, "tokens": ["[CLS]"] * 9}},
        },
        "post_processor adds 549 special tokens to a text",
    ),
    "bad regex": ("normalizer", regex("(", "x"), "the regular expression '('"),
}


def with_part(folder: Path, key: str, part: Any) -> Path:
    learned("wordpiece").save(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {key: part}), "utf-8")
    return path


@pytest.mark.parametrize("name", BAD)
def test_expanding_rules_are_refused_with_file_and_key(name: str, tmp_path: Path):
    key, part, message = BAD[name]
    path = with_part(tmp_path, key, part)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load_tokenizer(tmp_path)
    assert str(error.value).startswith(f"{path}: {key}")
    assert "\n" not in str(error.value)


GOOD: tuple[Any, ...] = (
    replaces(*[(c, f" word{i} ") for i, c in enumerate("①②③④⑤⑥⑦⑧⑨")]),  # none makes another's
    replaces(("``", '"'), ("''", '"'), (" ", "▁")),
    {"type": "Sequence", "normalizers": [regex(" {2,}", " ")] * 20},
    {"type": "Sequence", "normalizers": [regex(r"(?<=\S)(?=\s|\z)", "</w>"), {"type": "NFKC"}]},
)


@pytest.mark.parametrize("part", GOOD)
def test_non_expanding_rules_are_read(part: Any, tmp_path: Path):
    with_part(tmp_path, "normalizer", part)
    load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", SPECS)
def test_every_learned_tokenizer_is_within_limits(name: str, tmp_path: Path):
    learned(name).save(tmp_path)
    load_tokenizer(tmp_path)


def test_expansion_bound_holds_for_the_library():
    """Of strings and regular expressions, on the texts that they make longest."""
    for rules in ([("a", "aa")] * 5, [("a", "bc"), ("b", "aa"), ("c", "bb")], [("ab", "abab")] * 3):
        part = replaces(*rules)
        bound = limits._max_growth("x", part["normalizers"])
        done = normalizers.Sequence([normalizers.Replace(a, b) for a, b in rules])
        for text in ("a" * 50, "ab" * 50, "abc" * 30):
            assert len(done.normalize_str(text)) <= bound * len(text)
    for rule in (".", "", r"\s*", "(?=a)", "a|b"):
        bound = limits._max_growth("x", [regex(rule, "xyz")])
        done = normalizers.Replace(Regex(rule), "xyz")
        for text in ("a b", "aaaa", "b b b "):
            assert len(done.normalize_str(text)) <= bound * len(text) + 3


def test_library_panic_is_one_line():
    class PanicException(BaseException):
        pass

    PanicException.__module__ = "pyo3_runtime"
    output = pytest.raises(ValueError, match=r"^x/tokenizer.json: called `unwrap` on None$")
    with output, limits.tokenizers_errors_as_value_error("x/tokenizer.json"):
        raise PanicException("called `unwrap`\non None")


def test_panic_output_is_suppressed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """A real one: rules of no bytes, of which the library takes the first four."""
    rules = {"type": "Precompiled", "precompiled_charsmap": ""}
    path = with_part(tmp_path, "normalizer", rules)
    with pytest.raises(ValueError, match=re.escape(f"{path} is no tokenizer file: ")) as error:
        load_tokenizer(tmp_path)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_other_output_meanwhile_is_kept(capfd: pytest.CaptureFixture[str]):
    with limits.tokenizers_errors_as_value_error("x", hide_output=True):
        os.write(2, b"something else")
    assert capfd.readouterr().err == "something else"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_process_ending_exceptions_are_not_swallowed(error: type[BaseException]):
    with pytest.raises(error), limits.tokenizers_errors_as_value_error("x"):
        raise error


def test_failure_while_encoding_names_the_file(tmp_path: Path):
    backend = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1}, unk_token="[UNK]"))
    backend.add_special_tokens(["[PAD]"])
    tokenizer = learned("wordpiece")
    tokenizer.save(tmp_path)
    ours = load_tokenizer(tmp_path)
    ours._text_pipeline = backend  # its model knows no [UNK], which the library finds only here
    calls: tuple[Callable[[str], object], ...] = (
        ours.encode, ours.offsets, lambda text: ours.encode_ids_batch([text]),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path} fails on a text: ")):
            call("unknown")


@pytest.mark.parametrize("depth", [150, 100_000])
def test_deeply_nested_files_are_refused(depth: int, tmp_path: Path):
    path = with_part(tmp_path, "normalizer", None)
    nested = '{"type":"Sequence","normalizers":[' * depth + "]}" * depth
    text = path.read_text("utf-8").replace('"normalizer": null', f'"normalizer": {nested}')
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load_tokenizer(tmp_path)


def test_file_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from unmask.tokenizers.formats import declared_tokens

    learned("wordpiece").save(tmp_path)
    monkeypatch.setattr(declared_tokens, "MAX_JSON_BYTES", 1000)
    with pytest.raises(ValueError, match=r"tokenizer.json: must have at most [0-9,]+ bytes"):
        load_tokenizer(tmp_path)
