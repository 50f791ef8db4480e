"""One step of TRL's trainers and of ours, by plain gradient descent: equal weights after it.

Both read the tokens that TRL made, so that templates play no part. The reference is another model
than the policy, so that margins and divergences are not 0 at the first step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import llama
from small_models import tokenizer
from tiny_runs import gradient_step

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.heads.classification.label_losses import CORRECT, PairwiseRanking
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction
from unmask.preferences.data.encode import with_response
from unmask.preferences.data.rows import PreferenceRow
from unmask.preferences.online import stream
from unmask.preferences.online.estimates import policy_loss_of
from unmask.preferences.online.policy import PolicyForward
from unmask.preferences.online.rollouts import Rollout
from unmask.preferences.online.stream import RolloutStream
from unmask.preferences.online.values import VALUE, add_value_network, values_of
from unmask.preferences.pair_losses import DPO, IPO, KTO, HingeLoss, PairLoss, RobustDPO
from unmask.preferences.pair_training import Desirability, KTOForward, PairForward
from unmask.preferences.policy_gradient import PPO
from unmask.preferences.reference import FrozenCopy
from unmask.tasks.task import Task, TaskColumns
from unmask.zoo.catalogue import MODELS

trl = pytest.importorskip("trl")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.thorough]

RATE = 0.02
PROMPTS = ("the cat sees", "a dog", "the old king and the fox", "a fox runs to")
BETTER = (" the dog runs", " runs", " see a dog", " the old cat, and sees it")
WORSE = (" a fox", " and the cat sees the king and a fox", " run", " a dog sees")
PAIRS = [
    {"prompt": p, "chosen": w, "rejected": r}
    for p, w, r in zip(PROMPTS, BETTER, WORSE, strict=True)
]


@pytest.fixture
def words(tmp_path: Path) -> Any:
    """Return the tokenizer as transformers opens it; it pads with a token of its own."""
    import transformers as hf

    tokenizer("gpt2").save(tmp_path / "words")
    found: Any = hf.AutoTokenizer.from_pretrained(tmp_path / "words")
    return found


def made(folder: Path, seed: int, kind: str = "ForCausalLM", **changes: Any) -> Any:
    """Make a random Llama of two layers, and save it with our tokenizer."""
    end = tokenizer("gpt2").special_ids.end
    usual: dict[str, Any] = {
        "vocab_size": tokenizer("gpt2").vocab_size, "num_hidden_layers": 2,
        "max_position_embeddings": 64, "bos_token_id": end, "eos_token_id": end,
        "pad_token_id": end,
    }  # fmt: skip
    model = llama(kind, **(usual | changes))
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(folder)
    tokenizer("gpt2").save(folder)
    return model


def arguments(kind: Any, folder: Path, **changes: Any) -> Any:
    """Make the arguments of a trainer: one step of one batch."""
    usual: dict[str, Any] = {
        "output_dir": str(folder), "per_device_train_batch_size": 4, "max_steps": 1,
        "learning_rate": RATE, "lr_scheduler_type": "constant", "max_grad_norm": 0.0,
        "optim": "sgd", "weight_decay": 0.0, "report_to": [], "save_strategy": "no", "bf16": False,
        "use_cpu": True, "gradient_checkpointing": False, "disable_tqdm": True, "seed": 0,
    }  # fmt: skip
    return kind(**(usual | changes))


def rows_of(examples: Sequence[dict[str, Any]]) -> Any:
    from datasets import Dataset

    return Dataset.from_list(list(examples))


def check_equal(ours: Model, theirs: Any, folder: Path, before: LoadedModel) -> None:
    """Check that weights are equal, and the change of each tensor, too."""
    theirs.save_pretrained(folder)
    tokenizer("gpt2").save(folder)
    check_tensors(
        dict(ours.named_parameters()),
        dict(load_folder(folder).model.named_parameters()),
        dict(before.model.named_parameters()),
    )


def check_tensors(ours: dict[str, Any], theirs: dict[str, Any], before: dict[str, Any]) -> None:
    assert ours.keys() >= theirs.keys()
    moved = 0.0
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name].detach(), tensor.detach(), rtol=1e-5, atol=1e-6)
        change = (tensor - before[name]).detach().norm()
        error = (ours[name] - tensor).detach().norm()
        # The rounding of a sum of weight and change is up to 2^-24 of the weight.
        assert error <= 1e-3 * change + 1e-7 * tensor.numel() ** 0.5, name
        moved = max(moved, float(change))
    assert moved > 1e-3  # else all would be equal


def prompt_example(ids: Sequence[int]) -> Example:
    n = len(ids)
    return Example(
        inputs=np.array(ids, np.int64), targets=np.full(n, IGNORE_INDEX), rank=np.arange(n)
    )


def pair_batch(pairs: Sequence[tuple[Example, ...]]) -> Batch:
    """Return a batch of pairs, each in two rows."""
    examples = [e.with_feature(ChoiceGroup(i)) for i, pair in enumerate(pairs) for e in pair]
    return pad_examples(examples, tokenizer("gpt2").special_ids)


LOSSES: dict[str, tuple[PairLoss, dict[str, Any]]] = {
    "dpo": (DPO(beta=0.3), {"beta": 0.3, "loss_type": ["sigmoid"]}),
    "robust": (
        RobustDPO(beta=0.3, flip_probability=0.2),
        {"beta": 0.3, "loss_type": ["robust"], "label_smoothing": 0.2},
    ),
    "hinge": (HingeLoss(beta=0.3), {"beta": 0.3, "loss_type": ["hinge"]}),
    "ipo": (IPO(beta=0.3), {"beta": 0.3, "loss_type": ["ipo"]}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_of_pairs_equals_that_of_dpo_trainer(name: str, words: Any, tmp_path: Path) -> None:
    loss, settings = LOSSES[name]
    policy = made(tmp_path / "policy", 1)
    trainer = trl.DPOTrainer(
        model=policy, ref_model=made(tmp_path / "reference", 2), processing_class=words,
        args=arguments(trl.DPOConfig, tmp_path / "out", **settings), train_dataset=rows_of(PAIRS),
    )  # fmt: skip
    batch = pair_batch([
        tuple(
            with_response(prompt_example(row["prompt_ids"]), row[name], None)
            for name in ("chosen_ids", "rejected_ids")
        )
        for row in trainer.train_dataset
    ])  # fmt: skip
    trainer.train()
    ours = load_folder(tmp_path / "policy")
    reference = FrozenCopy.of(load_folder(tmp_path / "reference").model, torch.float32)
    gradient_step(ours.model, batch, PairForward(ours.model, loss, reference))
    check_equal(ours.model, policy, tmp_path / "after", load_folder(tmp_path / "policy"))


def test_a_step_of_kto_equals_that_of_kto_trainer(words: Any, tmp_path: Path) -> None:
    rows = [
        {"prompt": p, "completion": w if i % 2 else r, "label": bool(i % 2)}
        for i, (p, w, r) in enumerate(zip(PROMPTS, BETTER, WORSE, strict=True))
    ]
    settings = {"beta": 0.3, "desirable_weight": 1.5, "undesirable_weight": 0.5}
    policy = made(tmp_path / "policy", 13)
    trainer = trl.KTOTrainer(
        model=policy, ref_model=made(tmp_path / "reference", 2), processing_class=words,
        args=arguments(trl.KTOConfig, tmp_path / "out", **settings), train_dataset=rows_of(rows),
    )  # fmt: skip
    batch = pair_batch([
        tuple(
            with_response(prompt_example(row["prompt_ids"]), row[name], None).with_feature(
                Desirability(int(row["label"]))
            )
            for name in ("completion_ids", "KL_completion_ids")
        )
        for row in trainer.train_dataset
    ])  # fmt: skip
    trainer.train()
    ours = load_folder(tmp_path / "policy")
    reference = FrozenCopy.of(load_folder(tmp_path / "reference").model, torch.float32)
    forward = KTOForward(ours.model, KTO(**settings), reference)
    assert float(forward(batch).terms["divergence"].total) > 0  # else it would not be tested
    gradient_step(ours.model, batch, forward)
    check_equal(ours.model, policy, tmp_path / "after", load_folder(tmp_path / "policy"))


def test_a_step_of_a_reward_model_equals_that_of_reward_trainer(words: Any, tmp_path: Path) -> None:
    policy = made(tmp_path / "reward", 4, "ForSequenceClassification", num_labels=1)
    trainer = trl.RewardTrainer(
        model=policy, processing_class=words, args=arguments(trl.RewardConfig, tmp_path / "out"),
        train_dataset=rows_of(PAIRS),
    )  # fmt: skip
    rows = list(trainer.train_dataset)
    trainer.train()
    spec = load_folder(tmp_path / "reward").preset.heads["label"]
    ours = load_folder(tmp_path / "reward", {"label": replace(spec, loss=PairwiseRanking())})
    special = tokenizer("gpt2").special_ids
    assert special.pad == special.end
    # Of texts that are padded with their end, transformers reads the token before it.
    assert all(
        row[name][-1] == special.end for row in rows for name in ("chosen_ids", "rejected_ids")
    )
    batch = pad_examples(
        [
            replace(prompt_example(row[name][:-1]), label=label).with_feature(ChoiceGroup(i))
            for i, row in enumerate(rows)
            for name, label in (("chosen_ids", CORRECT), ("rejected_ids", CORRECT - 1))
        ],
        special,
    )
    gradient_step(ours.model, batch)
    check_equal(ours.model, policy, tmp_path / "after", load_folder(tmp_path / "reward"))


ENDS: dict[str, tuple[int | None, ...]] = {
    "never": (None,) * 4, "at the limit": (5, None, 5, None), "before it": (2, None, 0, 4),
}  # fmt: skip
"""Place of the end in each response of six tokens."""


@pytest.mark.parametrize("ends", ENDS)
def test_a_step_of_ppo_equals_that_of_ppo_trainer(
    ends: str, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

    scalar = {"kind": "ForSequenceClassification", "num_labels": 1}
    policy = made(tmp_path / "policy", 5)
    # Without a padding token: transformers' embeddings give no gradient to that, which is the end.
    value = made(tmp_path / "value", 6, pad_token_id=None, **scalar)
    reward = made(tmp_path / "reward", 7, **scalar)
    prompts = [words(text)["input_ids"] for text in PROMPTS]
    padding = next(i for i in range(9, 300) if not any(i in ids for ids in prompts))
    words.pad_token = words.convert_ids_to_tokens(padding)
    seen: dict[str, Any] = {}
    _capture(monkeypatch, ppo_trainer, seen, reward, ENDS[ends])
    parameters = [*policy.parameters(), *value.parameters()]
    descent = torch.optim.SGD(parameters, RATE)
    settings = {
        "num_ppo_epochs": 1, "temperature": 1.0, "response_length": 6, "kl_coef": 0.2,
        "cliprange": 0.1, "vf_coef": 0.4, "cliprange_value": 0.3, "gamma": 0.97, "lam": 0.9,
        "total_episodes": 4, "num_sample_generations": 0, "max_steps": -1,
        "stop_token": None if ends == "never" else "eos", "missing_eos_penalty": 1.5,
    }  # fmt: skip
    if ends == "before it":  # see `PPO.advantages`
        settings |= {"gamma": 1.0, "lam": 1.0}
    words.padding_side = "left"
    trainer = PPOTrainer(
        args=arguments(PPOConfig, tmp_path / "out", **settings), processing_class=words,
        model=policy, ref_model=made(tmp_path / "reference", 2), reward_model=reward,
        value_model=value, train_dataset=rows_of([{"input_ids": ids} for ids in prompts]),
        optimizers=(descent, torch.optim.lr_scheduler.ConstantLR(descent, 1.0)),
    )  # fmt: skip
    trainer.train()
    n_prompt = max(map(len, prompts))
    written = _rollouts(seen["written"].tolist(), n_prompt, padding)
    assert [one.length - 1 for one in written if not one.is_cut] == [
        place for place in seen["ends"] if place is not None
    ]
    scores = seen["scores"] - 1.5 * torch.tensor([one.is_cut for one in written])
    ours = load_folder(tmp_path / "policy")
    model = ours.model
    add_value_network(model, shared=False)
    _load_value(model, tmp_path / "value")
    values_before = {k: x.clone() for k, x in model.training_modules[VALUE].state_dict().items()}
    method = PPO(
        epochs=1, kl_weight=0.2, clip_range=0.1, value_weight=0.4, value_clip_range=0.3,
        discount=settings["gamma"], gae_lambda=settings["lam"],
    )  # fmt: skip
    batches = _written(model, tmp_path, method, monkeypatch, written, scores)
    forward: Any = PolicyForward(model, policy_loss_of(method))
    if ends == "before it":
        forward = ValuesAfterEnds(forward, written, scores)
    gradient_step(model, batches, forward)
    after = dict(model.training_modules[VALUE].named_parameters())
    model.remove_training_modules()
    check_equal(model, policy, tmp_path / "after", load_folder(tmp_path / "policy"))
    value.save_pretrained(tmp_path / "value-after")
    tokenizer("gpt2").save(tmp_path / "value-after")
    other = load_folder(tmp_path / "policy").model
    add_value_network(other, shared=False)
    _load_value(other, tmp_path / "value-after")
    theirs = dict(other.training_modules[VALUE].named_parameters())
    del theirs["out.bias"]  # theirs has none
    check_tensors(after, theirs, values_before)


def _capture(
    monkeypatch: pytest.MonkeyPatch, module: Any, seen: dict[str, Any], reward: Any,
    ends: Sequence[int | None],
) -> None:  # fmt: skip
    """Keep what TRL writes, with ends at some places, and its scores."""
    write, rate = module.batch_generation, module.get_reward
    end = tokenizer("gpt2").special_ids.end

    def kept_writing(policy: Any, queries: Any, size: int, padding: int, config: Any) -> Any:
        found, _ = write(policy, queries, size, padding, config)
        start = queries.shape[1]
        assert found.shape[1] == start + 6
        responses = found[:, start:]
        responses[(responses == padding) | (responses == end)] = 7
        for row, place in zip(responses, ends, strict=True):
            if place is not None:
                row[place], row[place + 1 :] = end, padding
        seen["written"], seen["ends"] = found.clone(), ends
        logits = module.forward(policy, found, padding).logits[:, start - 1 : -1]
        return found, logits / (config.temperature or 1.0)

    def kept_scores(model: Any, *given: Any) -> Any:
        found = rate(model, *given)
        if model is reward:
            seen["scores"] = found[1].clone()
        return found

    monkeypatch.setattr(module, "batch_generation", kept_writing)
    monkeypatch.setattr(module, "get_reward", kept_scores)


def _load_value(model: Model, folder: Path) -> None:
    """Give the value network the weights of a model with one label."""
    found = load_folder(folder).model
    network: Any = model.training_modules[VALUE]
    network.backbone.load_state_dict(found.backbone.state_dict())
    head: Any = found.heads["label"]
    with torch.no_grad():
        network.out.weight.copy_(head.out.weight)


@dataclass(frozen=True)
class ValuesAfterEnds:
    """A loss to which that of the values after the ends is added, as TRL does; see `PPO`."""

    forward: PolicyForward
    rollouts: Sequence[Rollout]
    scores: Any

    def count_targets(self, batch: Batch) -> dict[str, int]:
        found = dict(self.forward.count_targets(batch))
        return found | {"value": found["value"] + sum(not one.is_cut for one in self.rollouts)}

    def __call__(self, batch: Batch) -> Prediction:
        assert len(batch.inputs) == len(self.rollouts)  # all in one batch
        special, model = tokenizer("gpt2").special_ids, self.forward.model
        ended = [i for i, one in enumerate(self.rollouts) if not one.is_cut]
        examples = [prompt_example([*self.rollouts[i].example.inputs, special.end]) for i in ended]
        after = pad_examples(examples, special)
        last = torch.tensor([len(one.inputs) - 1 for one in examples])
        values = values_of(model, after, model.hidden_states(after))[range(len(ended)), last]
        found = self.forward(batch)
        known = found.terms["value"]
        total = known.total + (values - self.scores[ended]).square().sum() / 2
        term = replace(known, total=total, count=known.count + len(ended))
        return replace(found, terms={**found.terms, "value": term})


def _rollouts(rows: Sequence[Sequence[int]], n_prompt: int, padding: int) -> list[Rollout]:
    """Return what TRL wrote; each response ends with its end, or is cut."""
    found: list[Rollout] = []
    end = tokenizer("gpt2").special_ids.end
    for row in rows:
        prompt = prompt_example([i for i in row[:n_prompt] if i != padding])
        response = [i for i in row[n_prompt:] if i != padding]
        found.append(
            Rollout(
                prompt=(), text="", length=len(response), is_cut=response[-1] != end,
                example=with_response(prompt, response, None),
            )
        )  # fmt: skip
    return found


def _written(
    model: Model, folder: Path, method: PPO, monkeypatch: pytest.MonkeyPatch,
    rollouts: Sequence[Rollout], scores: Any,
) -> RolloutStream:  # fmt: skip
    """Return a stream of one batch, whose responses and scores are those of TRL."""
    words = tokenizer("gpt2")
    task = Task(
        task_kind="instruct", columns=TaskColumns(texts=("messages",), label="last turn"),
        max_length=64, metric="loss",
    )  # fmt: skip
    card = MODELS["gpt2-mini"].with_vocabulary(words.special_ids)
    formulation = formulate(task, card, words)
    assert isinstance(formulation, InstructionFormulation)
    monkeypatch.setattr(stream, "write_responses", lambda *_: rollouts)
    rows = [PreferenceRow(prompt=()) for _ in rollouts]
    reference = FrozenCopy.of(load_folder(folder / "reference").model, torch.float32)
    return RolloutStream(
        policy=model, reference=reference, formulation=formulation, method=method, rows=rows,
        reward=lambda *_: scores.double().numpy(),
        prompts=[one.example for one in rollouts], batch_size=4, micro_batch_tokens=400, seed=0,
    )  # fmt: skip
