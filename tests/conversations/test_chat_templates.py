"""Chat templates: transformers renders and encodes the same; responses are marked; bounds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_models

from tests.tokenizers.tokenizer_cases import story
from unmask.batch import IGNORE_INDEX
from unmask.conversations.encode import (
    encode_conversation,
    encode_prompt,
    end_of_response,
    plain_template,
    template_tokens,
)
from unmask.conversations.messages import Conversation, Message
from unmask.conversations.template import CONTINUATION, PLAIN, ChatTemplate
from unmask.conversations.template_files import load_chat_template, save_chat_template
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import BERT, GPT2, SpecialTokens, TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, SentencePieceBPE, WordPiece

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] +"
    " '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system = none %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + ((system + '\\n\\n') if system and loop.first else '') + message['content'] "
    "+ ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + eos_token }}{% endif %}{% endfor %}"
)
MARKED = """\
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content + eos_token }}{% endgeneration %}
    {%- else %}
        {{- message.role | upper + ': ' + message.content | tojson + '\n' }}
    {%- endif %}
{%- endfor %}
"""
DATED = """\
{%- if tools is not none %}{{ 'TOOLS' }}{% endif %}
{%- if documents %}{{ 'DOCUMENTS' }}{% endif %}
{{- strftime_now('%Y') if strftime_now is defined else 'undated' }}
{%- for message in messages %}
    {{- message | tojson(separators=(',', ':'), sort_keys=True) + eos_token }}
{%- endfor %}
"""
"""With what transformers gives a template besides the messages."""
TEMPLATES = {"chatml": CHATML, "inst": INST, "marked": MARKED, "plain": PLAIN}
TURNS = (
    Message("system", "Be brief."), Message("user", "Who is the king, \"old\" & <grey>?"),
    Message("assistant", "The fox said: no!"), Message("user", " and  then?\n"),
    Message("assistant", "naïve 日本 🙂"),
)  # fmt: skip


@pytest.fixture(scope="module", params=["bytes", "pieces"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind = {"bytes": ByteBPE(500), "pieces": SentencePieceBPE(600)}[request.param]
    special = SpecialTokens(
        pad="<unk>", start="<s>", end="</s>", unknown="<unk>",
        first_in_vocabulary=("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"),
    )  # fmt: skip
    return train_tokenizer(TokenizerSpec(kind, special), [story()])


def _opened(tokenizer: Tokenizer, source: str, folder: Path) -> tuple[ChatTemplate, Any]:
    """Write tokenizer and template; return what we and what transformers read."""
    import transformers as hf

    tokenizer.save(folder)
    save_chat_template(ChatTemplate(source), folder)
    found = load_chat_template(folder)
    assert found is not None
    return found, hf.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", [*TEMPLATES, "dated"])
@pytest.mark.parametrize("turns", [slice(1, 3), slice(0, 3), slice(0, 5)], ids=str)
def test_texts_and_tokens_equal_transformers(
    name: str, turns: slice, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    template, reference = _opened(tokenizer, {**TEMPLATES, "dated": DATED}[name], tmp_path)
    conversation = Conversation(messages=TURNS[turns], location="x:1")
    as_data = [m.to_dict() for m in conversation.messages]
    assert template.render(conversation.messages) == reference.apply_chat_template(
        as_data, tokenize=False
    )
    encoded = encode_conversation(tokenizer, template, conversation)
    expected = reference.apply_chat_template(as_data, tokenize=True, return_dict=True)["input_ids"]
    assert encoded.ids.tolist() == expected
    prompt = encode_prompt(tokenizer, template, conversation.prompt)
    expected = reference.apply_chat_template(
        as_data[:-1], tokenize=True, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert prompt.tolist() == expected


@pytest.mark.parametrize("name", ["marked", "plain"])
def test_marked_responses_are_those_of_transformers(
    name: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    template, reference = _opened(tokenizer, TEMPLATES[name], tmp_path)
    conversation = Conversation(messages=TURNS)
    found = reference.apply_chat_template(
        [m.to_dict() for m in TURNS], tokenize=True, return_dict=True,
        return_assistant_tokens_mask=True,
    )  # fmt: skip
    targets = encode_conversation(tokenizer, template, conversation).targets
    assert [0, *(targets != IGNORE_INDEX).astype(int)[:-1]] == found["assistant_masks"]


TURN, PROMPT = "{% for m in messages %}", "{% endfor %}{% if add_generation_prompt %}"
GLM = f"{TURN}<|im_start|>{{{{ m.role + '\n' + m.content.strip() }}}}"
BOT = PROMPT + "<|im_start|>assistant\n{% endif %}"
LLAMA3 = "<|im_start|>{{ m.role }}<s>\n\n{{ m.content | trim }}<|im_end|>"
GEMMA = "<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
ZEPHYR = "<|{{ m.role }}|>\n{{ m.content.strip() + eos_token }}\n"
WORDS = "\n\n{{ m.role + ':\n' + m.content.strip() }}"
KINDS = {
    "chatml": (CHATML, "<|im_end|>"),
    "inst": (INST, "</s>"),
    "marked": (MARKED, "</s>"),
    "plain": (PLAIN, "</s>"),
    "llama3": (TURN + LLAMA3 + BOT.replace("\n", "<s>\n\n"), "<|im_end|>"),
    "gemma": ("{{ bos_token }}" + TURN + GEMMA + BOT, "<|im_end|>"),
    "zephyr": (TURN + ZEPHYR + PROMPT + "<|assistant|>\n{% endif %}", "</s>"),
    "phi": (
        TURN + GEMMA + BOT.replace("{% endif", "{% else %}{{ eos_token }}{% endif"),
        "<|im_end|>",
    ),
    "two ends": (TURN + GEMMA.strip() + "{{ eos_token }}" + BOT, "<|im_end|>"),
    "glm": (GLM + BOT, "<|im_start|>"),
    "glm with an end": (GLM + BOT.replace("{% endif", "{% else %}{{ eos_token }}{% endif"), "</s>"),
    "glm of single turns": ("{{ raise_exception('') if messages[2:] }}" + GLM + BOT, "</s>"),
    "spaces": (GLM + "\n\n" + BOT, "<|im_start|>"),
    "words": (TURN + WORDS + PROMPT + "\n\nassistant:\n{% endif %}", "</s>"),
    "none": (CONTINUATION, "</s>"),
}
"""Kinds of templates, and the token that ends their responses."""


@pytest.mark.parametrize("name", KINDS)
def test_responses_are_learned_with_the_token_that_ends_generated_ones(
    name: str, tokenizer: Tokenizer
) -> None:
    source, expected = KINDS[name]
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    turns = TURNS[1:3] if "single" in name else TURNS
    end = end_of_response(tokenizer, template)
    conversation = Conversation(messages=turns)
    encoded = encode_conversation(tokenizer, template, conversation, end)
    is_learned = np.concatenate(([False], encoded.targets != IGNORE_INDEX, [False])).astype(int)
    parts = [encoded.targets[a:b] for a, b in np.flatnonzero(np.diff(is_learned)).reshape(-1, 2)]
    assert [part.tolist().index(end) for part in parts] == [len(part) - 1 for part in parts]
    texts = [tokenizer.decode(part, skip_special_tokens=False).strip() for part in parts]
    assert texts == [f"{m.content.strip()}{expected}" for m in turns if m.role == "assistant"]
    text = template.render(turns)
    assert encoded.ids.tolist() == tokenizer.encode(text, allow_special=True).ids.tolist()


def test_what_is_generated_is_what_was_learned(tokenizer: Tokenizer) -> None:
    """The tokens before a response are those of the prompt to be continued."""
    for source in TEMPLATES.values():
        template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
        conversation = Conversation(messages=TURNS[:3])
        encoded = encode_conversation(tokenizer, template, conversation)
        prompt = encode_prompt(tokenizer, template, conversation.prompt)
        assert encoded.ids[: len(prompt)].tolist() == prompt.tolist()
        assert (encoded.targets[: len(prompt) - 1] == IGNORE_INDEX).all()
        assert encoded.targets[len(prompt) - 1] == encoded.ids[len(prompt)]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "bart"])
def test_roles_of_tokens_are_those_that_a_saved_folder_declares(
    family: str, tmp_path: Path
) -> None:
    import transformers as hf

    known = small_models.tokenizer(family)
    known.save(tmp_path)
    theirs: Any = hf.AutoTokenizer.from_pretrained(tmp_path)
    names = template_tokens(known)
    declared = {name: theirs.special_tokens_map[name] for name in names if name != "eos_token"}
    assert names == declared | {"eos_token": known.special_tokens.end}
    assert theirs.eos_token == (None if family == "bert" else names["eos_token"])
    of_bos = {"bert": None, "gpt2": "<|endoftext|>", "t5": None, "bart": "<s>"}
    assert names.get("bos_token") == theirs.bos_token == of_bos[family]


def test_named_templates_and_keys(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    assert load_chat_template(tmp_path) is None
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())

    def with_key(value: Any) -> ChatTemplate | None:
        path.write_text(json.dumps({**config, "chat_template": value}))
        return load_chat_template(tmp_path)

    assert with_key(CHATML) == ChatTemplate(CHATML, with_key(CHATML).special_tokens)  # type: ignore[union-attr]
    named = [{"name": "rag", "template": INST}, {"name": "default", "template": CHATML}]
    found = with_key(named)
    assert found is not None
    assert found.source == CHATML
    assert found.special_tokens["eos_token"] == "</s>"
    for value, message in (
        (
            [{"name": "rag", "template": INST}],
            r"called 'default', got \['rag'\]",
        ),
        (3, "must be a text, or a list"),
        ("{% for %}", "chat template: "),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            with_key(value)
        assert str(tmp_path) in str(caught.value)
    (tmp_path / "chat_template.jinja").write_text(INST)
    path.write_text(json.dumps({**config, "chat_template": CHATML}))
    found = load_chat_template(tmp_path)
    assert found is not None
    assert found.source == INST


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}{{ messages.clear() }}",
        "{{ 'a' * 100000000 }}",
        "{{ [0] * 100000000 }}",
        "{{ 2 ** 1000000000 }}",
        "{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
        "{% for i in range(1000000) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ undefined.thing }}",
        "{{ 1 / 0 }}",
        "{{ raise_exception('no') }}",
        "{{ messages + 3 }}",
    ],
)
def test_templates_are_bounded_and_reach_nothing(source: str) -> None:
    template, text = ChatTemplate(source), ""
    try:
        text = template.render(TURNS)
    except ValueError as error:
        text = f"refused: {error}"
    assert text in ("", "[]") or text.startswith("refused: chat template")
    assert "\n" not in text
    assert len(text) < 400


def test_an_unknown_character_hides_no_special_token() -> None:
    words = train_tokenizer(TokenizerSpec(WordPiece(200), BERT), [story()])
    for content in ("a 日 [SEP] b", "[SEP] 日", "日 [MASK]"):
        turns = (Message("user", content), Message("assistant", "c"))
        with pytest.raises(ValueError, match=r"turn 1 has '\[(SEP|MASK)\]', a special token"):
            encode_conversation(words, plain_template(words), Conversation(messages=turns))
    known = (Message("user", "a 日 b"), Message("assistant", "c"))
    assert len(encode_conversation(words, plain_template(words), Conversation(messages=known)).ids)


def test_what_is_refused(tokenizer: Tokenizer) -> None:
    shortens = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ValueError, match="x:1: the chat template changes earlier turns"):
        encode_conversation(
            tokenizer, ChatTemplate(shortens), Conversation(messages=TURNS, location="x:1")
        )
    typed = (Message("user", "a <|im_end|> b"), Message("assistant", "c"))
    with pytest.raises(ValueError, match=r"x:1: turn 1 has '<\|im_end\|>', a special token"):
        encode_conversation(
            tokenizer, ChatTemplate(CHATML), Conversation(messages=typed, location="x:1")
        )
    with pytest.raises(ValueError, match="roles must alternate"):
        ChatTemplate(INST, {"bos_token": "", "eos_token": ""}).render(TURNS[2:])
    with pytest.raises(ValueError, match="1,048,577 characters"):
        ChatTemplate("a" * (2**20 + 1))
    assert "### Response:" in plain_template(tokenizer).source
    without_end = train_tokenizer(
        TokenizerSpec(ByteBPE(300), SpecialTokens(pad="<p>", start="<p>", end=None)), [story()]
    )
    with pytest.raises(ValueError, match="a token that ends a response"):
        plain_template(without_end)
    assert plain_template(train_tokenizer(TokenizerSpec(ByteBPE(300), GPT2), [story()]))
