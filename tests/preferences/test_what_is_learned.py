"""What a model learns of preferences: the last response of each row, whole, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, tokenizer
from tiny_runs import gradient_step, write_rows

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.conversations.messages import Message
from unmask.finetuning.data.batch_stream import BatchSize, make_batch_stream
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.heads.model import Model
from unmask.preferences.data.encode import encode_labeled, encode_pairs, encode_prompts
from unmask.preferences.data.rows import PreferenceRow, read_labeled, read_pairs, read_prompts
from unmask.preferences.methods import OnlineMethod, parse_preference_method
from unmask.preferences.online.estimates import policy_loss_of
from unmask.preferences.online.policy import PolicyForward, RolloutScore, RolloutTokens
from unmask.preferences.online.rollouts import write_responses
from unmask.preferences.online.stream import RolloutStream
from unmask.preferences.online.values import add_value_network
from unmask.preferences.pair_losses import DPO, ORPO
from unmask.preferences.pair_training import PairForward
from unmask.preferences.policy_gradient import PPO
from unmask.preferences.reference import FrozenCopy
from unmask.preferences.responses import score_tokens
from unmask.tasks.task import Task, TaskColumns
from unmask.zoo.catalogue import MODELS

CHAT = (
    Message("system", "the cat"), Message("user", "a dog runs"), Message("assistant", "the king"),
    Message("user", "a fox"),
)  # fmt: skip
NO_DROPOUT = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
CARDS = {"gpt2": "gpt2-mini", "t5": "t5-mini"}


def formulation(
    family: str = "gpt2", length: int = 200, response: int = 6, **options: Any
) -> InstructionFormulation:
    words = tokenizer(family)
    task = Task(
        task_kind="instruct", columns=TaskColumns(texts=("messages",), label="last turn"),
        max_length=length, metric="loss", options={"max_response_length": response, **options},
    )  # fmt: skip
    made = formulate(task, MODELS[CARDS[family]].with_vocabulary(words.special_ids), words)
    assert isinstance(made, InstructionFormulation)
    return made


def pair(chosen: str, rejected: str, prompt: tuple[Message, ...] = CHAT) -> PreferenceRow:
    return PreferenceRow(prompt=prompt, responses=(chosen, rejected), location="x:1")


def learned(made: InstructionFormulation, example: Example) -> str:
    """Return the text of the targets, which are one run of tokens."""
    is_target = np.concatenate(([0], example.targets != IGNORE_INDEX, [0])).astype(int)
    ((begin, end),) = np.flatnonzero(np.diff(is_target)).reshape(-1, 2)
    assert end == len(example.targets)
    return made.tokenizer.decode(example.targets[begin:end], skip_special_tokens=False).strip()


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_the_last_responses_and_their_ends_alone_are_targets(family: str) -> None:
    made = formulation(family)
    end = made.tokenizer.special_tokens.end
    examples, left_out = encode_pairs(made, [pair("the old cat sees a dog", "a king")])
    assert [learned(made, e).replace(" </s>", "</s>") for e in examples] == [
        f"the old cat sees a dog{end}", f"a king{end}",
    ]  # fmt: skip
    assert not left_out
    prompts = [made.prompt_ids(e).tolist() for e in examples]
    assert prompts[0] == prompts[1]
    (_,), (asked,), _ = encode_prompts(made, [PreferenceRow(prompt=CHAT)])
    assert made.prompt_ids(asked).tolist() == prompts[0]
    assert (asked.targets == IGNORE_INDEX).all()


def test_the_end_stays_a_target_where_padding_is_the_same_token() -> None:
    made = formulation()
    special = made.special_ids
    assert special.pad == special.end
    examples, _ = encode_pairs(made, [pair("the old cat sees a dog", "a king")])
    batch = pad_examples(examples, special)
    assert batch.targets is not None
    n = [int((e.targets != IGNORE_INDEX).sum()) for e in examples]
    assert batch.target_positions is not None
    assert batch.target_positions.numel() == sum(n)
    found = batch.targets.flatten()[batch.target_positions]
    assert [int(found[n[0] - 1]), int(found[-1])] == [special.end] * 2


def test_a_response_is_whole_or_left_out_and_counted() -> None:
    short = pair("the cat", "a dog", (Message("user", "a"),))
    whole, _ = encode_pairs(formulation(), [short])
    limit = max(len(e.inputs) for e in whole)
    made = formulation(length=limit)
    rows = [
        short, pair("the cat", "a dog " * 40), pair("the cat " * 40, "a dog"),
        pair("the cat", " "),
    ]  # fmt: skip
    examples, left_out = encode_pairs(made, rows)
    assert [e.inputs.tolist() for e in examples] == [e.inputs.tolist() for e in whole]
    assert left_out == [
        "1 without a response to learn", f"2 whose last turns are longer than {limit} tokens",
    ]  # fmt: skip
    assert all(e.targets[-1] == made.special_ids.end for e in examples)
    assert encode_pairs(formulation(length=limit - 1), rows)[0] == []


def test_equal_responses_are_left_out_and_counted() -> None:
    made = formulation()
    examples, left_out = encode_pairs(made, [pair("the cat", "the cat "), pair("a", "the")])
    assert len(examples) == 2
    assert left_out == ["1 whose responses are equal"]


@pytest.mark.parametrize("longer", [0, 1])
def test_both_responses_lose_the_same_turns(longer: int) -> None:
    whole, _ = encode_pairs(formulation(), [pair("the cat", "a dog")])
    responses = ["the cat", "a dog"]
    responses[longer] += " sees the old king and runs"
    examples, _ = encode_pairs(formulation(), [pair(*responses)])
    limit = max(len(e.inputs) for e in examples) - 1
    assert max(len(e.inputs) for e in whole) <= limit  # the other response alone would fit
    made = formulation(length=limit)
    short, left_out = encode_pairs(made, [pair(*responses)])
    assert not left_out
    prompts = [made.prompt_ids(e).tolist() for e in short]
    assert prompts[0] == prompts[1]
    text = made.tokenizer.decode(np.array(prompts[0]))
    assert "the cat" in text  # of the system
    assert "a dog runs" not in text
    assert "a fox" in text


def test_mismatched_responses_are_those_of_other_prompts() -> None:
    made = formulation()
    rows = [
        PreferenceRow(
            prompt=(Message("user", prompt),), responses=(response,), is_desirable=i % 2 == 0
        )
        for i, (prompt, response) in enumerate(
            [("a", "the cat"), ("a", "a dog"), ("the", "a king"), ("a fox", "the fox")]
        )
    ]
    examples, left_out = encode_labeled(made, rows)
    assert not left_out
    texts = [learned(made, e).replace("<|endoftext|>", "") for e in examples]
    assert texts[::2] == ["the cat", "a dog", "a king", "the fox"]
    assert texts[1::2] == ["a king", "a king", "the fox", "the cat"]
    prompts = [made.prompt_ids(e).tolist() for e in examples]
    assert prompts[::2] == prompts[1::2]


def test_what_has_no_token_before_its_response_is_left_out() -> None:
    made = formulation(chat_template="none")
    rows = [pair("the cat", "a dog", (Message("user", text),)) for text in ("", "a fox ")]
    examples, left_out = encode_pairs(made, rows)
    assert len(examples) == 2
    assert left_out == ["1 without a prompt"]
    kept, _, left_out = encode_prompts(
        made, [PreferenceRow(prompt=(Message("user", text),)) for text in ("", "a fox")]
    )
    assert [row.prompt[0].content for row in kept] == ["a fox"]
    assert left_out == ["1 whose prompts are empty or longer than 194 tokens"]


def test_rows_of_files(tmp_path: Path) -> None:
    ranked = {"prompt": "a", "responses": ["b", "c", "d"]}
    found = read_pairs(write_rows(tmp_path / "x.jsonl", [ranked]))
    assert [row.responses for row in found] == [("b", "c"), ("b", "d"), ("c", "d")]
    (tmp_path / "x.csv").write_text("prompt,completion,label\na,b,True\nc,d,false\ne,f,1\ng,h,0\n")
    rows = read_labeled(tmp_path / "x.csv")
    assert [row.is_desirable for row in rows] == [True, False, True, False]
    plain = {"prompt": "a", "chosen": "b", "rejected": "c"}
    rows = read_labeled(write_rows(tmp_path / "x.jsonl", [plain]))
    assert [(row.responses, row.is_desirable) for row in rows] == [(("b",), True), (("c",), False)]
    hh = "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant:"
    (row,) = read_pairs(
        write_rows(tmp_path / "x.jsonl", [{"chosen": f"{hh} d", "rejected": f"{hh} e"}])
    )
    assert [m.content for m in row.prompt] == ["a", "b", "c"]
    assert row.responses == ("d", "e")
    several: list[dict[str, Any]] = [
        {"prompt": "a"}, {"instruction": "a", "output": "b"}, plain, {"text": "a"},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ]  # fmt: skip
    for one in several:
        (row,) = read_prompts(write_rows(tmp_path / "x.jsonl", [one]))
        assert row.prompt == (Message("user", "a"),)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    make("gpt2", folder, n_positions=256, **NO_DROPOUT)
    return folder


ROWS = [
    pair("the cat", "a dog runs and runs"), pair("the old king sees", "a fox", CHAT[:2]),
    pair("a", "the king and the fox", CHAT[1:2]), pair("a dog", "the", CHAT[3:]),
]  # fmt: skip


def weights_after(base: Path, micro_batch_tokens: int, loss: Any) -> dict[str, torch.Tensor]:
    """Return the weights after a step on four pairs, in micro-batches of a size."""
    made, model = formulation(), load_folder(base).model
    reference = FrozenCopy.of(load_folder(base).model, torch.float32)
    for parameter in reference.model.parameters():
        parameter.data *= 1.1
    examples, _ = encode_pairs(made, ROWS)
    size = BatchSize(n_units=4, micro_batch_tokens=micro_batch_tokens)
    stream = make_batch_stream(examples, made.special_ids, size, 0)
    n = len(next(stream(None))[0])
    assert n == 4 if micro_batch_tokens == 1 else n < 4
    gradient_step(model, stream, PairForward(model, loss, reference))
    return dict(model.named_parameters())


@pytest.mark.parametrize("loss", [DPO(), ORPO()], ids=["dpo", "orpo"])
def test_micro_batches_do_not_change_a_step_of_pairs(loss: Any, base: Path) -> None:
    whole, parts = (weights_after(base, n, loss) for n in (10_000, 1))
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-5, atol=1e-6)


def rollout_stream(
    model: Model, base: Path, micro_batch_tokens: int, method: OnlineMethod
) -> RolloutStream:
    made = formulation()
    rows = [PreferenceRow(prompt=CHAT[:n]) for n in (2, 4)] + [PreferenceRow(prompt=CHAT[1:2])]
    kept, prompts, _ = encode_prompts(made, rows)
    return RolloutStream(
        policy=model, reference=FrozenCopy.of(load_folder(base).model, torch.float32),
        reward=lambda _, texts: np.array([float(len(text)) for text in texts]), formulation=made,
        method=method, rows=kept, prompts=prompts, batch_size=3,
        micro_batch_tokens=micro_batch_tokens, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["ppo", "rloo", "best_of_n"])
def test_micro_batches_do_not_change_a_step_of_written_responses(name: str, base: Path) -> None:
    more = ":responses=2" + (",epochs=1,kl_weight=0.3" if name == "ppo" else "")
    method = parse_preference_method(name + more)
    found: list[dict[str, torch.Tensor]] = []
    for micro_batch_tokens in (10_000, 1):
        model = load_folder(base).model
        for parameter in model.parameters():
            parameter.data *= 1.05
        if name == "ppo":
            torch.manual_seed(0)
            add_value_network(model, shared=False)
        stream = rollout_stream(model, base, micro_batch_tokens, method)  # type: ignore[arg-type]
        forward = PolicyForward(model, policy_loss_of(stream.method))
        gradient_step(model, stream, forward, 1e-3)
        found.append(dict(model.named_parameters()))
    for key, tensor in found[0].items():
        torch.testing.assert_close(found[1][key], tensor, rtol=1e-5, atol=1e-6)


def test_responses_are_those_of_the_policy_and_the_tokens_that_were_drawn(base: Path) -> None:
    model, made = load_folder(base).model, formulation(response=12)
    end = made.end_id
    rows = [PreferenceRow(prompt=CHAT)] * 6 + [PreferenceRow(prompt=CHAT[:2])] * 6
    _, prompts, _ = encode_prompts(made, rows)
    written = write_responses(model, made, rows, prompts, 3)
    texts = [tuple(one.example.inputs.tolist()) for one in written]
    assert len(set(texts)) == len(texts)  # one prompt has several responses
    again = write_responses(model, made, rows, prompts, 3)
    assert [tuple(one.example.inputs.tolist()) for one in again] == texts
    other = write_responses(model, made, rows, prompts, 4)
    assert [tuple(one.example.inputs.tolist()) for one in other] != texts
    for one, prompt in zip(written, prompts, strict=True):
        targets = one.example.targets[one.example.targets != IGNORE_INDEX]
        assert len(targets) == one.length <= 12
        assert one.is_cut == (targets[-1] != end or len(targets) > 12)
        assert end not in targets[:-1]
        n = len(prompt.inputs)
        assert one.example.inputs[:n].tolist() == prompt.inputs.tolist()
        assert one.example.inputs[n:].tolist() == targets[:-1].tolist()


def test_means_are_over_tokens_that_were_written(base: Path) -> None:
    model = load_folder(base).model
    stream = rollout_stream(model, base, 10_000, PPO(epochs=1))
    add_value_network(model, shared=True)
    ((batch,), _) = next(stream(None))
    known, score = batch.feature(RolloutTokens), batch.feature(RolloutScore)
    assert known is not None
    assert score is not None
    scored = score_tokens(model, batch)
    counts = PolicyForward(model, policy_loss_of(PPO())).count_targets(batch)
    n = int(scored.lengths.sum())
    assert counts["policy"] == counts["value"] == counts["entropy"] == n
    assert counts["reward"] == counts["kl"] == len(batch.inputs) == 3
    advantages = known.at(batch, "advantages")
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-6)  # whitened over these tokens
    assert float(advantages.var()) == pytest.approx(1, abs=1e-4)
    at_others = torch.ones(batch.inputs.numel(), dtype=torch.bool)
    assert batch.target_positions is not None
    at_others[batch.target_positions] = False
    for name in RolloutTokens.column_fields:
        assert not getattr(known, name).flatten()[at_others].any()
