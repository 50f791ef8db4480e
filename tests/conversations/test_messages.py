"""Conversations in the formats that data has."""

from typing import Any

import pytest

from unmask.conversations.messages import (
    Conversation,
    Message,
    parse_marked_turns,
    read_conversation,
    read_prompt,
    read_responses,
)

QUESTION, ANSWER = Message("user", "Who?"), Message("assistant", "I.")
SYSTEM = Message("system", "Be brief.")
UNLEARNED = Message("assistant", "I.", is_learned=False)


def exchange(user: dict[str, Any] | None = None, **response: Any) -> dict[str, Any]:
    """Return a row of two messages with more keys."""
    return {
        "messages": [
            {"role": "user", "content": "Who?", **(user or {})},
            {"role": "assistant", "content": "I.", **response},
        ]
    }


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [{"role": "user", "content": "Who?"},
                       {"role": "assistant", "content": "I."}]}, (QUESTION, ANSWER)),
        ({"conversations": [{"from": "system", "value": "Be brief."},
                            {"from": "human", "value": "Who?"}, {"from": "gpt", "value": "I."}]},
         (SYSTEM, QUESTION, ANSWER)),
        ({"instruction": "Who?", "input": "", "output": "I."}, (QUESTION, ANSWER)),
        ({"instruction": "Say it in French.", "input": "Who?", "output": "Qui ?"},
         (Message("user", "Say it in French.\n\nWho?"), Message("assistant", "Qui ?"))),
        ({"instruction": "Who?", "context": "A play.", "response": "I.", "category": "qa"},
         (Message("user", "Who?\n\nA play."), ANSWER)),
        ({"prompt": "Who?", "completion": "I."}, (QUESTION, ANSWER)),
        ({"prompt": [{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": "Who?"}],
          "completion": [{"role": "assistant", "content": "I."}]}, (SYSTEM, QUESTION, ANSWER)),
        (exchange(weight=0), (QUESTION, UNLEARNED)),
        (exchange(weight=1.0, name=None, tool_calls=[]), (QUESTION, ANSWER)),
        (exchange({"weight": 0}, train=False), (QUESTION, UNLEARNED)),
        (exchange(loss=True, weight=0), (QUESTION, UNLEARNED)),
        ({"system": "Be brief.", "instruction": "Who?", "output": "I."},
         (SYSTEM, QUESTION, ANSWER)),
        ({"system": "Be brief.", **exchange(), "tools": "[]"}, (SYSTEM, QUESTION, ANSWER)),
        ({"system_prompt": "Be brief.", "prompt": "Who?", "response": "I.", "history": None},
         (SYSTEM, QUESTION, ANSWER)),
    ],
    ids=["messages", "sharegpt", "alpaca", "alpaca with input", "dolly", "prompt", "lists",
         "weight 0", "weight 1", "train", "loss", "system", "system of messages", "system_prompt"],
)  # fmt: skip
def test_rows_of_every_format(row: dict[str, Any], messages: tuple[Message, ...]) -> None:
    assert read_conversation(row, "x.jsonl:1").messages == messages


def test_marked_turns_are_preferences_with_their_prompt() -> None:
    before = "\n\nHuman: Who?\n\nAssistant: I.\n\nHuman: Really?\n\nAssistant:"
    chosen, rejected = read_responses(
        {"chosen": f"{before} Yes.", "rejected": f"{before} No.\n\nHumans are odd."},
        ("chosen", "rejected"),
        "x.jsonl:1",
    )
    assert chosen.prompt == rejected.prompt == (QUESTION, ANSWER, Message("user", "Really?"))
    assert chosen.messages[-1].content == "Yes."
    assert rejected.messages[-1].content == "No.\n\nHumans are odd."


def test_turns_of_one_speaker_are_joined() -> None:
    text = "\n\nHuman: Who?\n\nHuman: Really?\n\nAssistant: \n\nAssistant: I."
    assert parse_marked_turns(text) == (Message("user", "Who?\n\nReally?"), ANSWER)


def test_responses_beside_a_prompt_or_an_instruction() -> None:
    for row in (
        {"prompt": "Who?"}, {"instruction": "Who?", "input": ""},
        {"prompt": [{"role": "user", "content": "Who?"}]},
    ):  # fmt: skip
        found = read_responses(
            {**row, "chosen": "I.", "rejected": "Me."}, ("chosen", "rejected"), "x"
        )
        assert found[0].messages == (QUESTION, ANSWER)
        assert found[1].messages == (QUESTION, Message("assistant", "Me."))
    assert read_prompt({"prompt": "Who?"}, "x") == (QUESTION,)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "x:3: the response must be in one of output, response, .*, got 'text'"),
        ({"instruction": "a", "output": "b", "response": "c"}, "got output and response"),
        ({"instruction": "a", "output": None}, "must be in one of"),
        ({"output": "b"}, "x:3: no messages, conversations, instruction or prompt, only 'output'"),
        ({"messages": []}, "x:3: 'messages' must be a list of messages, got list"),
        ({"messages": "a"}, "x:3: 'messages' must be a list of messages, got str 'a'"),
        ({"messages": [{"role": "user"}]}, r"x:3: messages\[0\] must have role and content"),
        ({"messages": [{"role": "tool", "content": "a"}]},
         r"x:3: messages\[0\]\.role must be one of .*, got str 'tool'"),
        ({"messages": [{"role": "user", "content": 3}]},
         r"x:3: messages\[0\]\.content must be text, got int 3"),
        ({"conversations": [{"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}]},
         "x:3: turns 1 and 2 are both of the assistant"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
         "x:3: turn 2 is of the system, which speaks first only"),
        ({"messages": [{"role": "user", "content": "a"}], "conversations": []}, "has both"),
        ({"messages": [["user", "a"]]}, r"messages\[0\] must be a message, got list"),
        (exchange(weight=0.5), r"x:3: messages\[1\]\.weight must be 0 or 1, .*, got float 0\.5"),
        (exchange(train="no"), r"messages\[1\]\.train must be 0 or 1"),
        (exchange({"train": True}), r"messages\[0\]\.train is True of a turn of the user"),
        (exchange(tool_calls=[{"id": "a"}]), r"messages\[1\]\.tool_calls is not read"),
        (exchange({"name": "Ann"}), r"messages\[0\]\.name is not read"),
        (exchange(reasoning_content="Hm."), r"messages\[1\]\.reasoning_content is not read"),
        ({**exchange(), "tools": [{"type": "function"}]}, "x:3: 'tools' is not read"),
        ({"instruction": "a", "output": "b", "history": [["c", "d"]]}, "'history' is not read"),
        ({"system": "a", "prompt": [SYSTEM.to_dict(), QUESTION.to_dict()], "completion": "b"},
         "x:3: 'system' and the first turn are both of the system"),
    ],
)  # fmt: skip
def test_wrong_rows_are_one_line(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_conversation(row, "x:3")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": "a"}, "x:3: no 'rejected', only 'chosen'"),
        ({"chosen": "a", "rejected": "b"}, "x:3: no prompt before 'chosen'"),
        ({"prompt": "p", "chosen": "a", "rejected": [{"role": "user", "content": "b"}]},
         "'rejected' does not end with"),
        ({"chosen": "\n\nHuman: p\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: a"},
         "'chosen' and 'rejected' differ before their last turn"),
        ({"chosen": "\n\nHuman: p", "rejected": "\n\nHuman: p"}, "no prompt before 'chosen'"),
    ],
)  # fmt: skip
def test_wrong_preferences_are_one_line(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_responses(row, ("chosen", "rejected"), "x:3")


def test_unlearned_responses_are_no_preferences_and_other_keys_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chosen = [QUESTION.to_dict(), {**ANSWER.to_dict(), "weight": 0}]
    with pytest.raises(ValueError, match="x:3: the response in 'chosen' has a weight of 0"):
        read_responses({"chosen": chosen}, ("chosen",), "x:3")
    for line in range(3):
        read_conversation(exchange(timestamp="today"), f"other.jsonl:{line}")
    assert caplog.messages == ["other.jsonl: 'timestamp' of messages is not read"]


def test_a_conversation_has_turns() -> None:
    with pytest.raises(ValueError, match=r"x\.jsonl: a conversation has no turn"):
        Conversation(messages=(), location="x.jsonl")
    assert not Conversation(messages=(QUESTION, Message("assistant", " "))).has_response
