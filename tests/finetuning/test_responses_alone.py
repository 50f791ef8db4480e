"""Known errors of instruction tuning and of rewards: masks, padding, ends and counts of tokens."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, tokenizer
from test_instructions import CHAT, ROWS, formulation, item
from test_rewards import formulation as rewards_of
from test_rewards import item as comparison

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import collate, pack_examples, pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.conversations.messages import Message
from unmask.finetuning.data.batch_stream import BatchSize, make_batch_stream
from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.finetuning.results.predict import mean_loss, predict_scores
from unmask.heads.model import Model
from unmask.tasks.task import TaskExample

LONG = item(Message("user", "a dog"), Message("assistant", "the old king sees a fox " * 5))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    sizes: dict[str, dict[str, Any]] = {"gpt2": {"n_positions": 256}, "t5": {}}
    return {
        family: make(family, tmp_path_factory.mktemp(family), **more)
        for family, more in sizes.items()
    }


def examples_of(made: InstructionFormulation, items: list[TaskExample]) -> list[Example]:
    return [one.example for one in made.build_inputs(items)]


def n_targets(example: Example) -> int:
    return int((example.targets != IGNORE_INDEX).sum())


def losses_of_targets(model: Model, batch: Batch, row: int = 0) -> torch.Tensor:
    """Return the loss of each target of a row, in the order of its tokens."""
    own = batch.targets
    assert own is not None
    found: list[torch.Tensor] = []
    for at in np.flatnonzero(own[row].numpy() != IGNORE_INDEX).tolist():
        only = torch.full_like(own, IGNORE_INDEX)
        only[row, at] = own[row, at]
        where = only.flatten().ne(IGNORE_INDEX).nonzero()[:, 0]
        one = replace(batch, targets=only, target_positions=where)
        found.append(model(one).terms["next_token"].loss)
    return torch.stack(found)


def gradient(
    model: Model, made: InstructionFormulation, items: list[TaskExample], size: BatchSize
) -> tuple[int, float, torch.Tensor]:
    """Return the number of micro-batches, the sum of losses and the gradient of a batch."""
    stream = make_batch_stream(examples_of(made, items), made.special_ids, size, 0)
    micro, _ = next(stream(None))
    model.zero_grad()
    total = torch.zeros(())
    for batch in micro:
        (term,) = model(batch).terms.values()
        total = total + term.total
    total.backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return len(micro), float(total.detach()), found.clone()


# Packing


@torch.no_grad()
def test_a_packed_conversation_sees_neither_its_neighbors_nor_their_places(
    models: dict[str, tuple[Any, LoadedModel]],
) -> None:
    made, model = formulation(packing="pack"), models["gpt2"][1].model
    first, last = examples_of(made, [ROWS[1], ROWS[3]])
    packed = pack_examples([first, last], made.special_ids, 200)
    assert packed.inputs.shape == (1, 200)
    n = len(first.inputs)
    assert packed.inputs[0, n] == last.inputs[0]
    found = losses_of_targets(model, packed)
    assert len(found) == n_targets(first) + n_targets(last)
    alone = [losses_of_targets(model, pad_examples([e], made.special_ids)) for e in (first, last)]
    torch.testing.assert_close(found, torch.cat(alone), rtol=1e-5, atol=1e-6)
    other = replace(first, inputs=np.roll(first.inputs, 3))
    changed = losses_of_targets(model, pack_examples([other, last], made.special_ids, 200))
    assert not changed[: n_targets(first)].equal(found[: n_targets(first)])
    assert changed[n_targets(first) :].equal(found[n_targets(first) :])


def test_the_end_of_a_packed_conversation_does_not_predict_the_next_one() -> None:
    made = formulation(packing="pack")
    examples = examples_of(made, ROWS)
    packed = pack_examples(examples, made.special_ids, 200)
    assert packed.targets is not None
    ends = np.cumsum([len(e.inputs) for e in examples[:2]])
    # The end of a response is a target and no input; what follows in the row is another text.
    assert packed.targets[0, ends - 1].tolist() == [made.end_id] * 2
    assert (packed.targets[0, ends] == IGNORE_INDEX).all()
    assert (packed.targets != IGNORE_INDEX).sum() == sum(map(n_targets, examples))


def test_packed_encoder_decoders_have_the_gradient_of_separate_rows(
    models: dict[str, tuple[Any, LoadedModel]],
) -> None:
    made, model = formulation("t5", packing="pack"), models["t5"][1].model
    size = BatchSize(n_units=4, micro_batch_tokens=2000)
    _, loss, plain = gradient(model, made, ROWS, size)
    packed_size = replace(size, row_length=made.row_length)
    _, packed_loss, packed = gradient(model, made, ROWS, packed_size)
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-5)


# What has a loss


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_no_token_of_a_prompt_has_a_loss(family: str) -> None:
    made = formulation(family)
    (known,) = examples_of(made, [item(*CHAT[:3])])
    prompt = made.prompt_ids(known)
    n = len(prompt) if family == "gpt2" else 1
    assert (known.targets[: n - 1] == IGNORE_INDEX).all()
    assert (known.targets[n - 1 :] != IGNORE_INDEX).all()
    other = (Message("system", "the cat"), Message("user", "a dog sees"), CHAT[2])
    (asked,) = examples_of(made, [item(*other)])
    targets, same = known.targets, asked.targets
    assert targets[targets != IGNORE_INDEX].tolist() == same[same != IGNORE_INDEX].tolist()


@torch.no_grad()
def test_prompts_do_not_change_the_number_of_scored_tokens(
    models: dict[str, tuple[Any, LoadedModel]],
) -> None:
    for family, (_, loaded) in models.items():
        made = formulation(family)
        prompts = ("a dog", "the old cat sees a dog and the king")
        items = [item(Message("user", p), Message("assistant", "the king")) for p in prompts]
        inputs = made.build_inputs(items)
        scores = predict_scores(made, loaded.model, inputs, 4000).scores
        counts = [made.loss(items[0], one)[1] for one in scores]
        # "the king" and the end: neither what begins the decoder nor the token before a response.
        assert counts == [n_targets(one.example) for one in inputs]
        (text,) = {
            made.tokenizer.decode(e.targets[e.targets != IGNORE_INDEX]).strip()
            for e in (one.example for one in inputs)
        }
        assert text == "the king"
        assert len(set(counts)) == 1


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_the_end_of_a_response_is_scored_once_and_last(family: str) -> None:
    made = formulation(family)
    for example in examples_of(made, [ROWS[2], LONG]):
        targets = example.targets[example.targets != IGNORE_INDEX]
        assert np.flatnonzero(targets == made.end_id).tolist() == [len(targets) - 1]
        assert example.targets[-1] == made.end_id


# Lengths


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_a_response_is_whole_at_the_maximum_length_and_left_out_beyond(family: str) -> None:
    (whole,) = examples_of(formulation(family), [LONG])
    n_source = 0 if whole.source is None else len(whole.source)
    n = max(len(whole.inputs), n_source)
    (kept,) = formulation(family, n).build_inputs([LONG])
    assert kept.example.targets.tolist() == whole.targets.tolist()
    assert not kept.truncated
    items, reasons = formulation(family, n - 1).fitting_items([LONG])
    assert (list(items), len(reasons)) == ([], 1)


def test_turns_that_were_cut_away_are_not_counted() -> None:
    whole = formulation()
    (long,) = whole.build_inputs([item(*CHAT)])
    (shorter,) = formulation(length=len(long.example.inputs) - 1).build_inputs([item(*CHAT)])
    (alone,) = whole.build_inputs([item(CHAT[0], *CHAT[3:])])
    assert shorter.example.inputs.tolist() == alone.example.inputs.tolist()
    assert shorter.example.targets.tolist() == alone.example.targets.tolist()
    assert n_targets(shorter.example) < n_targets(long.example)


# Means


@torch.no_grad()
def test_the_loss_of_a_file_is_a_mean_over_tokens_and_not_over_conversations(
    models: dict[str, tuple[Any, LoadedModel]],
) -> None:
    made, model = formulation(), models["gpt2"][1].model
    items = [ROWS[2], LONG]
    together = predict_scores(made, model, made.build_inputs(items), 4000).scores
    alone = [
        losses_of_targets(model, pad_examples([e], made.special_ids))
        for e in examples_of(made, items)
    ]
    expected = float(torch.cat(alone).mean())
    assert mean_loss(made, items, together) == pytest.approx(expected, rel=1e-5)
    assert abs(float(torch.stack([one.mean() for one in alone]).mean()) - expected) > 1e-3


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_gradients_do_not_depend_on_micro_batches(
    family: str, models: dict[str, tuple[Any, LoadedModel]]
) -> None:
    made, model = formulation(family), models[family][1].model
    items = [*ROWS, LONG]
    one, loss, whole = gradient(model, made, items, BatchSize(n_units=5, micro_batch_tokens=10_000))
    many, same_loss, split = gradient(
        model, made, items, BatchSize(n_units=5, micro_batch_tokens=1)
    )
    assert (one, many) == (1, 5)
    assert same_loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-5)


# Padding with the end token, before and after


@torch.no_grad()
def test_what_is_written_does_not_depend_on_the_other_rows_of_a_batch(
    models: dict[str, tuple[Any, LoadedModel]],
) -> None:
    made, model = formulation(max_response_length=12), models["gpt2"][1].model
    assert made.special_ids.pad == made.special_ids.end
    asked = [
        CHAT[:-1],  # ends of responses within: no padding, though the same token
        (Message("user", "a dog"),),
        (Message("user", "the old cat sees a dog " * 3),),
    ]
    inputs = made.build_inputs([TaskExample(texts=(), turns=t, location="x:1") for t in asked])
    prompts = [made.prompt_ids(one.example) for one in inputs]
    assert (prompts[0] == made.special_ids.pad).sum() == 1
    assert made.generate(model, prompts) == [made.generate(model, [p])[0] for p in prompts]


@torch.no_grad()
def test_nothing_is_scored_after_the_end_of_a_written_response(
    models: dict[str, tuple[Any, LoadedModel]],
) -> None:
    made, model = formulation(max_response_length=12), models["gpt2"][1].model
    asked = [TaskExample(texts=(), turns=(Message("user", p),), location="x:1")
             for p in ("a dog", "the king", "the old cat sees a dog")]  # fmt: skip
    prompts = [made.prompt_ids(one.example) for one in made.build_inputs(asked)]
    free = made.generate(model, prompts)
    # The third token that the first row writes is now an end: its row stops, the others go on.
    end = free[0][2]
    ended = replace(made, end_id=end).generate(model, prompts)
    for before, after in zip(free, ended, strict=True):
        cut = before.index(end) if end in before else len(before)
        assert after == before[:cut]
    assert len(ended[0]) <= 2


@torch.no_grad()
def test_a_reward_is_read_at_the_last_token_where_ends_of_turns_are_padding_tokens(
    models: dict[str, tuple[Any, LoadedModel]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    reference, ours = make(
        "gpt2", tmp_path_factory.mktemp("reward"), "GPT2ForSequenceClassification",
        n_positions=256, num_labels=1,
    )  # fmt: skip
    made = rewards_of()
    special = made.special_ids
    chat = (*CHAT[1:3], CHAT[3])
    items = [comparison("the cat", "a dog runs and runs", prompt=chat)]
    examples = [one.example for one in made.build_inputs(items)]
    # The end of the first response is a padding token within the text.
    assert all((e.inputs == special.pad).sum() == 1 for e in examples)
    batch = collate([[e] for e in examples], special, min_width=64).to_batch()
    found = np.concatenate(made.compute_scores(ours.model, batch, []))
    for one, reward in zip(examples, found, strict=True):
        ids = torch.from_numpy(one.inputs)[None]
        hidden = reference.transformer(input_ids=ids).last_hidden_state
        assert reward == pytest.approx(float(reference.score(hidden[0, -1])), abs=2e-5)
        before = int(np.flatnonzero(one.inputs == special.pad)[0]) - 1
        assert abs(reward - float(reference.score(hidden[0, before]))) > 1e-4


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_side_of_padding_that_a_folder_names_changes_nothing_that_is_learned(
    side: str, models: dict[str, tuple[Any, LoadedModel]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp(side)
    models["gpt2"][0].save_pretrained(folder)
    tokenizer("gpt2").save(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": side}))
    opened = load_folder(folder)
    assert opened.tokenizer is not None
    made, reopened = formulation(), replace(formulation(), tokenizer=opened.tokenizer)
    for ours, theirs in zip(examples_of(made, ROWS), examples_of(reopened, ROWS), strict=True):
        assert ours.inputs.tolist() == theirs.inputs.tolist()
        assert ours.targets.tolist() == theirs.targets.tolist()
    batch = pad_examples(examples_of(reopened, ROWS), opened.tokenizer.special_ids)
    plain = pad_examples(examples_of(made, ROWS), made.special_ids)
    with torch.no_grad():
        found = opened.model(batch).terms["next_token"].loss
        expected = models["gpt2"][1].model(plain).terms["next_token"].loss
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
