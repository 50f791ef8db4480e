"""Chats: equal to transformers' templates and generation, token for token; histories that fit."""

import functools
import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import gpt2, llama, saved, t5
from small_models import make, texts
from toy_text import corpus

from unmask.checkpoints.huggingface.generation import write_generation
from unmask.cli import main as cli
from unmask.conversations.encode import end_of_response
from unmask.conversations.messages import Message
from unmask.conversations.template import PLAIN, ChatTemplate
from unmask.conversations.template_files import save_chat_template
from unmask.inference.generation import LEFT_OUT
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import GPT2, LLAMA, T5, TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, SentencePieceBPE, Unigram

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKS = ("<|im_start|>", "<|im_end|>")
FAMILIES = ("gpt2", "llama", "t5")
BUILD = {"gpt2": gpt2, "llama": llama, "t5": t5}
SPECIAL = {"gpt2": GPT2, "llama": LLAMA, "t5": T5}
KINDS = {"gpt2": ByteBPE(300), "llama": SentencePieceBPE(300), "t5": Unigram(90)}
POSITIONS, NEW_TOKENS = 150, 16


def chat_folder(family: str, folder: Path, template: str = CHATML) -> Any:
    """Save a random model with a tokenizer and a chat template; return transformers' model."""
    special = SPECIAL[family]
    first = (*special.first_in_vocabulary, *MARKS)
    spec = TokenizerSpec(KINDS[family], replace(special, first_in_vocabulary=first))
    words = train_tokenizer(spec, corpus(20).splitlines())
    ids = words.special_ids
    sizes: dict[str, Any] = {"vocab_size": words.vocab_size, "pad_token_id": ids.pad}
    sizes |= {"bos_token_id": ids.start, "eos_token_id": ids.end}
    positions = {"gpt2": "n_positions", "llama": "max_position_embeddings"}
    if family in positions:
        sizes[positions[family]] = POSITIONS
    else:
        sizes["decoder_start_token_id"] = ids.start
    reference = BUILD[family](**sizes)
    end = words.encode(MARKS[1], allow_special=True).ids[-1]
    table = reference.get_output_embeddings().weight.data
    text = ChatTemplate(CHATML).render([Message("user", "a")], add_generation_prompt=True)
    prompt = torch.from_numpy(words.encode_ids_batch([text], allow_special=True)[0])[None]
    common = reference.generate(prompt, max_new_tokens=8, do_sample=False)[0, -4:].mode().values
    table[end] = 1.1 * table[common]  # so that some responses end
    saved(reference, folder)
    words.save(folder)
    save_chat_template(ChatTemplate(template), folder)
    return reference


def of_user(content: str, *earlier: str) -> list[dict[str, str]]:
    """Return a conversation that ends with a turn of the user."""
    roles = ("user", "assistant") * (len(earlier) // 2 + 1)
    return [
        {"role": role, "content": text}
        for role, text in zip(roles, (*earlier, content), strict=False)
    ]


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any, Pipeline]]:
    """Of each family transformers' model and tokenizer, and ours."""
    import transformers as hf

    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        reference = chat_folder(family, folder)
        made[family] = (reference, hf.AutoTokenizer.from_pretrained(folder), load(folder))
    return made


def written_by_transformers(
    reference: Any, tokenizer: Any, messages: list[dict[str, str]], ends: list[int]
) -> list[int]:
    """Return the tokens of a greedy response, up to its end."""
    if reference.config.is_encoder_decoder:  # the encoder reads a text with its end
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        given = tokenizer(text, return_tensors="pt")
    else:
        given = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    given = {name: given[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        (ids,) = reference.generate(
            **given, do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=ends
        ).tolist()
    new = ids[1:] if reference.config.is_encoder_decoder else ids[given["input_ids"].shape[1] :]
    stop = next((i for i, token in enumerate(new) if token in ends), len(new))
    return new[:stop]


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_responses_are_those_of_transformers(family: str, chats: dict) -> None:
    reference, tokenizer, pipeline = chats[family]
    end = tokenizer.convert_tokens_to_ids(MARKS[1])
    ends, n_ended = [end, pipeline.tokenizer.special_ids.end], 0
    system = {"role": "system", "content": "the cat"}
    conversations = [of_user(text) for text in texts(12, seed=1)]
    conversations += [
        of_user("a fox", *texts(2, seed=2, most=3)),
        [system, *of_user("a fox", "a", "b")],
    ]
    for messages in conversations:
        expected = written_by_transformers(reference, tokenizer, messages, ends)
        n_ended += len(expected) < NEW_TOKENS
        encoded, _ = pipeline._encode_chat(messages, None, {"max_new_tokens": NEW_TOKENS})
        assert encoded.special_ids.end == end
        found = pipeline.chat(messages, max_new_tokens=NEW_TOKENS)
        assert found == tokenizer.decode(expected, skip_special_tokens=True).strip()
        pieces = pipeline.stream_chat(messages, max_new_tokens=NEW_TOKENS)
        if "\ufffd" not in found:  # bytes of Llama that are no characters
            assert "".join(pieces) == found
    assert n_ended


def test_end_of_a_response_is_the_first_token_after_it(chats: dict, tmp_path: Path) -> None:
    words = chats["gpt2"][2].tokenizer
    end = words.encode(MARKS[1], allow_special=True).ids[-1]
    own = words.special_ids.end
    both = CHATML + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
    for source, expected in ((CHATML, end), (both, end), (PLAIN, own), ("{{ messages }}", own)):
        template = ChatTemplate(source, {"eos_token": str(words.special_tokens.end)})
        assert end_of_response(words, template) == expected
        model = chats["gpt2"][2].model  # so that transformers ends there, too
        write_generation(tmp_path, model, words, template=template)
        ends = json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"]
        assert ends == (own if expected == own else [own, end])
    assert own != end


@pytest.mark.parametrize("family", FAMILIES)
def test_the_models_own_end_ends_a_response_too(family: str, chats: dict) -> None:
    *_, pipeline = chats[family]
    encoded, _ = pipeline._encode_chat(of_user("a"), None, {})
    end = pipeline.tokenizer.special_ids.end
    assert end in encoded.special_ids.ends
    assert not encoded.special_ids.is_in_text(end)


def test_histories_lose_their_earliest_exchanges_and_a_warning_says_so(
    chats: dict, caplog: pytest.LogCaptureFixture
) -> None:
    *_, pipeline = chats["gpt2"]
    system = {"role": "system", "content": "the cat"}
    long = of_user("a fox", "a dog", "the king", *["the old cat sees a dog"] * 2)
    with caplog.at_level(logging.WARNING):
        text = pipeline.chat([system, *long], max_new_tokens=4)
        assert caplog.messages == []
        kept = pipeline.fitting_messages([system, *long], max_new_tokens=100)
        assert kept == [system, *long[2:]]
        assert caplog.messages == []
        assert pipeline.chat([system, *long], max_new_tokens=100) == pipeline.chat(
            kept, max_new_tokens=100
        )
        assert caplog.messages[:1] == [LEFT_OUT]
    assert text == pipeline.chat([system, *long], max_new_tokens=4)
    alone = pipeline.fitting_messages([system, *long[:4], *of_user("the king " * 18)])
    assert [m["role"] for m in alone] == ["system", "user"]  # it takes the room of the response
    *_, t5_pipeline = chats["t5"]  # its positions are relative
    assert len(t5_pipeline.fitting_messages(of_user("a", *["the king"] * 200))) == 201


def test_room_for_a_response_is_all_that_is_left(chats: dict) -> None:
    *_, pipeline = chats["llama"]
    encoded, config = pipeline._encode_chat(of_user("the king " * 20), None, {})
    assert len(encoded.prompts.input_ids[0]) + config.max_new_tokens == POSITIONS + 1
    assert pipeline._encode_chat(of_user("a"), None, {"max_new_tokens": 3})[1].max_new_tokens == 3


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        ([], "'messages' must be a list of messages"),
        ([{"role": "user"}], "must have role and content"),
        ([{"role": "tool", "content": "a"}], r"messages\[0\].role must be one of"),
        (of_user("", "a", "b")[:2], "must be of the user, got the assistant's"),
        (of_user("a<|im_end|>"), "turn 1 has '<|im_end|>', a special token"),
        (of_user("the king " * 90), "the last turn has .* but the model only 150 positions"),
    ],
)  # fmt: skip
def test_what_no_response_can_be_given_to_is_refused(
    messages: list[dict[str, str]], line: str, chats: dict
) -> None:
    *_, pipeline = chats["gpt2"]
    line = line.replace("|", r"\|")
    for answer in (pipeline.chat, pipeline.stream_chat, pipeline.fitting_messages):
        with pytest.raises(ValueError, match=line):
            answer(messages)


def test_models_that_do_not_chat_are_refused(tmp_path: Path) -> None:
    for family, line in (
        ("bert", "does not chat: a decoder or an"),
        ("gpt2", "no chat template: fine-tune it with --task instruct"),
    ):
        make(family, tmp_path / family)
        with pytest.raises(ValueError, match=line):
            load(tmp_path / family).chat(of_user("a"))


def test_a_drafted_response_is_the_same(chats: dict) -> None:
    *_, pipeline = chats["llama"]
    messages = of_user("a dog runs")
    drafted = pipeline.chat(messages, max_new_tokens=9, draft=pipeline.draft(pipeline))
    assert drafted == pipeline.chat(messages, max_new_tokens=9)
    assert drafted == pipeline.chat(messages, max_new_tokens=9, beams=1)
    with pytest.raises(ValueError, match="no stream"):
        pipeline.stream_chat(messages, beams=2)


def command(capsys: Any, monkeypatch: Any, *words: object, stdin: bytes = b"") -> tuple[Any, ...]:
    """Return the exit status, output and messages of a command."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    capsys.readouterr()
    return (cli.run(["generate", *map(str, words)]), *capsys.readouterr())


def test_the_command_keeps_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_folder("gpt2", tmp_path)
    pipeline, history = load(tmp_path), [{"role": "system", "content": "a"}]
    expected = []
    for turn in ("a fox", "a dog"):
        history.append({"role": "user", "content": turn})
        expected.append(pipeline.chat(history, max_new_tokens=4))
        history.append({"role": "assistant", "content": expected[-1]})
    fixed = [tmp_path, "--chat", "--system", "a", "--max-new-tokens", 4]
    run = functools.partial(command, capsys, monkeypatch, *fixed)
    lines = "".join(f"{text}\n" for text in expected)
    assert run(stdin=b"a fox\n\na dog\n") == (0, lines, "")
    assert run("--no-stream", "--prompt", "a fox", "--prompt", "a dog") == (0, lines, "")
    status, out, _ = run("--json", stdin=b"a fox\r\na dog")
    assert (status, [json.loads(line)["text"] for line in out.splitlines()]) == (0, expected)
    assert run() == (0, "", "")  # nothing is asked
    status, _, said = run("--beams", 2, stdin=b"a fox\n" * 40)
    assert (status, said) == (0, f"{LEFT_OUT}\n")  # once
    status, out, said = run(stdin=b"a fox\n<|im_end|>\n")
    assert (status, out) == (2, f"{expected[0]}\n")
    assert said == "unmask: turn 4 has '<|im_end|>', a special token of this model\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--chat --choice b --prompt a", "--chat cannot be combined with --choice"),
        ("--chat --n-best 2 --beams 2", "--chat cannot be combined with --n-best"),
        ("--system b --prompt a", "--system needs --chat"),
    ],
)
def test_options_that_do_not_fit_a_chat_are_refused(
    words: str, line: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(capsys, monkeypatch, "none", *words.split()) == (2, "", f"unmask: {line}\n")
