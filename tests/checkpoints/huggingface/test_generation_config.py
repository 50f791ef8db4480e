"""generation_config.json of a folder: texts are those of transformers, or a key is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from reference import V, bart, gpt2, saved

import unmask
from unmask.checkpoints.huggingface.generation import GENERATION_KEYS, read_generation
from unmask.cli import main as cli
from unmask.web.worker.calls import generation as calls

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDS = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), V))]
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
STARTS = {"gpt2": {}, "bart": {"decoder_start_token_id": 2}}
PROMPTS = [" ".join(f"w{(n * i) % 90 + 5}" for i in range(1, 2 + n % 5)) for n in (1, 4, 8)]
ENDS = {"eos_token_id": [2, *range(10, 40)]}
N = 10


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any, Any, Any]]:
    made = {}
    for name, build in (("gpt2", gpt2), ("bart", bart)):
        model = build(**IDS)
        with torch.no_grad():  # biases would drown what is read: every text would be the same
            for part, weight in model.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(0.0 if part.endswith("bias") else 1.0)
        folder = saved(model, tmp_path_factory.mktemp("models") / name)
        words = tokenizers.Tokenizer(
            tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>")
        )
        words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        if name == "bart":
            words.post_processor = tokenizers.processors.TemplateProcessing(
                single="<s> $A </s>",
                pair="<s> $A </s> </s> $B </s>",
                special_tokens=[("<s>", 0), ("</s>", 2)],
            )
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
            unk_token="<unk>", mask_token="<mask>",
        )  # fmt: skip
        tokenizer.save_pretrained(folder)
        made[name] = folder, model, tokenizer, unmask.load(folder)
    return made


def reopened(pipeline: Any, folder: Path) -> Any:
    """Read what a folder says of generation now, and no weights again."""
    generation = read_generation(folder, pipeline.model)
    return type(pipeline)(replace(pipeline.loaded_model, generation=generation))


def expected_texts(model: Any, tokenizer: Any, keys: dict[str, Any], **chosen: Any) -> list[str]:
    model.generation_config = transformers.GenerationConfig(**keys)
    texts = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        out = model.generate(ids, **chosen)[0]
        new = out[1 if model.config.is_encoder_decoder else ids.shape[1] :]
        texts.append(tokenizer.decode(new, skip_special_tokens=True))
    return texts


@pytest.fixture(scope="module")
def plain_texts(folders: dict[str, Any]) -> dict[str, list[str]]:
    return {
        family: expected_texts(model, tokenizer, IDS | STARTS[family], max_new_tokens=N)
        for family, (_, model, tokenizer, _) in folders.items()
    }


def write_keys(folder: Path, family: str, keys: dict[str, Any]) -> dict[str, Any]:
    keys = {k: v for k, v in (IDS | STARTS[family] | keys).items() if v is not None}
    (folder / "generation_config.json").write_text(json.dumps(keys))
    return keys


USED: list[dict[str, Any]] = [
    {"eos_token_id": None, "suppress_tokens": [-1, 10, 33, V]},
    ENDS,
    {"max_length": 6},
    {"max_length": 9, "forced_eos_token_id": 2},
    {"max_new_tokens": 5},
    {"max_new_tokens": 5, "max_length": 4},
    ENDS | {"min_length": 9},
    ENDS | {"min_new_tokens": 8},
    {"repetition_penalty": 1.8},
    {"no_repeat_ngram_size": 1},
    {"suppress_tokens": list(range(5, 60))},
    ENDS | {"begin_suppress_tokens": list(range(2, 60))},
    ENDS | {"bad_words_ids": [[i] for i in range(2, 60)]},
    {"bad_words_ids": [[i, j] for i in range(5, 40) for j in range(5, 99)]},
    ENDS | {"use_cache": False, "disable_compile": True, "num_assistant_tokens": 3},
    {"num_beams": 3},
    ENDS | {"num_beams": 3},
    ENDS | {"num_beams": 2, "length_penalty": 2.0, "early_stopping": True},
    ENDS | {"num_beams": 3, "length_penalty": -1.0, "early_stopping": "never", "max_length": 11},
    ENDS | {"num_beams": 2, "forced_eos_token_id": 2, "repetition_penalty": 1.5},
    ENDS | {"num_beams": 2, "min_length": 6, "no_repeat_ngram_size": 2, "max_new_tokens": 9},
    ENDS | {"do_sample": True, "top_k": 1, "temperature": 3.0},
    ENDS | {"do_sample": True, "top_k": 0, "top_p": 1e-6},
    ENDS | {"do_sample": True, "min_p": 1.0},
    ENDS | {"temperature": 0.5, "top_p": 0.1, "top_k": 3, "top_h": 0.5, "epsilon_cutoff": 0.5},
]  # fmt: skip
OF_ANSWERS: list[dict[str, Any]] = [
    {"forced_bos_token_id": 0},
    ENDS | {"forced_bos_token_id": 0, "min_new_tokens": 4, "begin_suppress_tokens": [9, 11]},
    {"forced_bos_token_id": 0, "max_length": 8, "forced_eos_token_id": 2},
    ENDS | {"forced_bos_token_id": 0, "num_beams": 3},
    {"decoder_start_token_id": 7},
    {"decoder_start_token_id": None, "max_new_tokens": 7},
]


@pytest.mark.parametrize(
    ("family", "keys"),
    [*((f, k) for f in STARTS for k in USED), *(("bart", k) for k in OF_ANSWERS)],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_texts_are_those_of_transformers(
    family: str, keys: dict[str, Any], folders: dict[str, Any], plain_texts: dict[str, list[str]]
) -> None:
    folder, model, tokenizer, _ = folders[family]
    chosen = {} if keys.keys() & {"max_length", "max_new_tokens"} else {"max_new_tokens": N}
    keys = write_keys(folder, family, keys)
    expected = expected_texts(model, tokenizer, keys, **chosen)
    assert expected != plain_texts[family]
    pipeline = reopened(folders[family][3], folder)
    assert [text.strip() for text in pipeline.generate(PROMPTS, **chosen)] == expected
    if not pipeline.resolve_config(None, {}).chooses_text:
        pieces = pipeline.stream(PROMPTS[0], **chosen)
        assert "".join(pieces).strip() == expected[0]
        draft = pipeline.draft(pipeline, draft_tokens=3)
        assert pipeline.generate(PROMPTS[0], draft=draft, **chosen).strip() == expected[0]


REFUSED: dict[str, Any] = {
    "guidance_scale": 1.5,
    "sequence_bias": [[[5], -1.0]],
    "encoder_repetition_penalty": 1.2,
    "encoder_no_repeat_ngram_size": 2,
    "exponential_decay_length_penalty": [3, 1.1],
    "watermarking_config": {"greenlist_ratio": 0.25},
    "remove_invalid_values": True,
    "renormalize_logits": True,
    "stop_strings": ["w7"],
    "token_healing": True,
    "max_time": 1.0,
    "is_assistant": True,
    "cache_implementation": "quantized",
    "num_beam_groups": 2,
    "diversity_penalty": 0.5,
    "num_return_sequences": 2,
    "penalty_alpha": 0.6,
    "dola_layers": "high",
    "constraints": [1],
    "force_words_ids": [[5]],
    "assistant_early_exit": 1,
    "prompt_lookup_num_tokens": 3,
    "use_mtp": True,
    "max_length": 1,
    "max_new_tokens": "many",
    "eos_token_id": "</s>",
    "forced_eos_token_id": V,
    "bad_words_ids": [5],
    "repetition_penalty": 0,
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_is_not_computed_is_refused_where_text_is_generated(
    key: str, folders: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, *_, pipeline = folders["gpt2"]
    write_keys(folder, "gpt2", {key: REFUSED[key]})
    pipeline = reopened(pipeline, folder)
    assert len(pipeline.embed(["w7 w8"])) == 1
    with pytest.raises(ValueError, match=rf"generation_config\.json: {key}\b"):
        pipeline.generate("w7")
    if key == "guidance_scale":
        assert cli.run(["generate", str(folder), "--prompt", "w7"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "keys",
    [{"top_h": 0.5}, {"epsilon_cutoff": 0.1}, {"eta_cutoff": 0.1}, {"num_beams": 2}],
    ids=str,
)
def test_drawing_is_refused_with(keys: dict[str, Any], folders: dict[str, Any]) -> None:
    folder, *_, pipeline = folders["gpt2"]
    write_keys(folder, "gpt2", {"do_sample": True} | keys)
    pipeline = reopened(pipeline, folder)
    with pytest.raises(ValueError, match=rf"generation_config\.json: .*{next(iter(keys))}"):
        pipeline.generate("w7")
    assert pipeline.generate("w7", beams=2)  # a strategy replaces that of the file
    assert pipeline.generate("w7", temperature=0) == pipeline.generate("w7", beams=1)


def test_a_first_token_cannot_be_forced_after_a_prompt(folders: dict[str, Any]) -> None:
    folder, *_ = folders["gpt2"]
    write_keys(folder, "gpt2", {"forced_bos_token_id": 0})
    with pytest.raises(ValueError, match="forced_bos_token_id"):
        unmask.load(folder).generate("w7")


def test_every_key_of_transformers_has_a_line() -> None:
    assert not transformers.GenerationConfig().to_dict().keys() - GENERATION_KEYS.keys()


def test_command_and_page_begin_with_the_settings_of_the_folder(
    folders: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model, tokenizer, _ = folders["gpt2"]
    keys = write_keys(folder, "gpt2", ENDS | {"num_beams": 3, "max_length": 9, "min_length": 7})
    (text, *_) = expected_texts(model, tokenizer, keys)
    assert cli.run(["generate", str(folder), "--prompt", PROMPTS[0]]) == 0
    assert capsys.readouterr().out.split() == [*PROMPTS[0].split(), *text.split()]
    (piece,) = calls.generate({"model": str(folder), "prompt": PROMPTS[0]})
    assert piece["text"].strip() == text
    write_keys(folder, "gpt2", {"max_time": 1.0})
    with pytest.raises(ValueError, match="max_time"):
        list(calls.generate({"model": str(folder), "prompt": PROMPTS[0]}))


def test_settings_replace_those_of_the_folder(folders: dict[str, Any]) -> None:
    folder, model, tokenizer, _ = folders["gpt2"]
    keys = write_keys(folder, "gpt2", ENDS | {"num_beams": 3, "max_length": 9, "min_length": 5})
    pipeline = unmask.load(folder)
    chosen = expected_texts(model, tokenizer, keys, num_beams=1, max_new_tokens=4)
    assert [
        x.strip() for x in pipeline.generate(PROMPTS, temperature=0, max_new_tokens=4)
    ] == chosen
    whole = unmask.GenerationConfig(max_new_tokens=6)
    expected = expected_texts(model, tokenizer, IDS | ENDS, max_new_tokens=6)
    assert [x.strip() for x in pipeline.generate(PROMPTS, whole)] == expected
    with pytest.raises(ValueError, match="max_length"):
        pipeline.generate(" ".join(PROMPTS))


@pytest.mark.parametrize("family", STARTS)
def test_without_the_file_config_json_is_read_and_what_is_read_is_saved(
    family: str, folders: dict[str, Any], tmp_path: Path
) -> None:
    folder, _, tokenizer, _ = folders[family]
    (folder / "generation_config.json").unlink(missing_ok=True)
    before = (folder / "config.json").read_text()
    keys = ENDS | {"num_beams": 2, "max_length": 12, "forced_eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(json.loads(before) | keys))
    auto = transformers.AutoModelForCausalLM
    if family == "bart":
        auto = transformers.AutoModelForSeq2SeqLM
    reference = auto.from_pretrained(folder)
    expected = expected_texts(reference, tokenizer, reference.generation_config.to_dict())
    pipeline = unmask.load(folder)
    copy = pipeline.save(tmp_path / "copy")
    (folder / "config.json").write_text(before)
    assert [text.strip() for text in pipeline.generate(PROMPTS)] == expected
    assert [text.strip() for text in unmask.load(copy).generate(PROMPTS)] == expected
    reference = auto.from_pretrained(copy)
    assert expected == expected_texts(reference, tokenizer, reference.generation_config.to_dict())
