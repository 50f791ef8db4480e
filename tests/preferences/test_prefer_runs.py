"""Whole runs of `unmask prefer`: every method, reference and way of tuning; folders that open."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import (
    LABELED,
    PAIRS,
    PROMPTS,
    make_base,
    make_classifier,
    make_reward_model,
    prefer,
    weights,
    write_rows,
)

from unmask.adapters.attach import use_adapters
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.generation.text_batches import evaluation_mode
from unmask.inference.open_model import load
from unmask.jobs.finetune import finetune
from unmask.preferences.config import make_prefer_config
from unmask.preferences.job.prepare import prepare_prefer_job
from unmask.preferences.options import PreferOptions
from unmask.preferences.reference import FrozenCopy, reference_of
from unmask.preferences.responses import score_tokens
from unmask.training.device.distributed import World

SIZES = ("--max-length", 96, "--max-response-length", 5, "--batch-size", 4, "--dev-prompts", 3)
METHODS = {
    "dpo": "pairs", "robust_dpo": "pairs", "hinge": "pairs", "ipo": "pairs", "orpo": "pairs",
    "kto": "labeled", "ppo:epochs=2,minibatches=2": "prompts", "rloo:responses=2": "prompts",
    "best_of_n:responses=2": "prompts",
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for family in ("gpt2", "t5"):
        make_base(family, folder / "base" / family)
    make_classifier(folder)
    make_reward_model(folder)
    for name, rows in (("pairs", PAIRS), ("labeled", LABELED), ("prompts", PROMPTS)):
        write_rows(folder / f"{name}.jsonl", rows)
    return folder


def words(home: Path, method: str, out: Path, family: str = "gpt2", *more: object) -> list[object]:
    """Return the words of a run on the rows of a method."""
    data = home / f"{METHODS[method]}.jsonl"
    given = [home / "base" / family, "--method", method, "--train", data, "--dev", data, *SIZES]
    if METHODS[method] == "prompts":
        given += ["--reward", home / "reward", "--judge", f"{home / 'classifier'}:good"]
    return [*given, "--out", out, "--quiet", *more]


def measures(out: Path) -> tuple[dict[str, float], dict[str, float]]:
    found = json.loads((out / "measures.json").read_text())
    return found["before"], found["after"]


@pytest.mark.quick("gpt2-dpo", "t5-dpo", "gpt2-kto", "t5-ppo:epochs=2,minibatches=2")
@pytest.mark.sample(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_every_method_trains_a_model_that_opens(
    method: str, family: str, home: Path, tmp_path: Path
) -> None:
    import transformers as hf

    out = tmp_path / "run"
    assert prefer(*words(home, method, out, family, "--learning-rate", "1e-3")) == 0
    base, found = weights(home / "base" / family), weights(out)
    assert any(not np.array_equal(found[name], base[name]) for name in found if name in base)
    tuned = load(out)
    (answer,) = tuned.predict(["the cat sees"])
    assert isinstance(answer, dict)
    assert isinstance(answer["answer"], str)
    kind: Any = hf.AutoModelForCausalLM if family == "gpt2" else hf.AutoModelForSeq2SeqLM
    reference = kind.from_pretrained(out).eval()
    ids = torch.tensor([[5, 9, 12]])
    with torch.no_grad():
        theirs = reference(input_ids=ids, **({} if family == "gpt2" else {"labels": ids})).loss
    assert theirs is None or torch.isfinite(theirs)
    assert hf.AutoTokenizer.from_pretrained(out).chat_template
    before, after = measures(out)
    assert all(np.isfinite(value) for value in (*before.values(), *after.values()))
    assert (out / "report.html").is_file()
    assert not (out / "checkpoints").exists()
    if METHODS[method] == "prompts":
        assert before["kl"] == pytest.approx(0, abs=1e-5)
        assert {"reward", "judge", "length", "cut", "distinct_2"} <= before.keys()
        assert "win_rate" in after
        rows = [json.loads(row) for row in (out / "responses.jsonl").read_text().splitlines()]
        assert len(rows) == 3
        assert {"prompt", "before", "after", "reward_before", "judge_after"} <= rows[0].keys()


@pytest.mark.quick("dpo")
@pytest.mark.parametrize(("method", "loss"), [("dpo", np.log(2)), ("hinge", 1.0), ("ipo", 25.0)])
def test_before_the_first_step_the_policy_is_the_reference(
    method: str, loss: float, home: Path, tmp_path: Path
) -> None:
    assert prefer(*words(home, method, tmp_path / "run")) == 0
    before, after = measures(tmp_path / "run")
    assert before["loss"] == pytest.approx(loss, rel=1e-6)
    assert before["margin"] == before["chosen"] == before["rejected"] == pytest.approx(0, abs=1e-5)
    assert before["accuracy"] == pytest.approx(0, abs=0.26)  # of ties, up to rounding
    assert after["margin"] > 0.01
    logged = [json.loads(row) for row in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    first = next(row for row in logged if row.get("step") == 1 and "loss" in row)
    assert first["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.quick("dpo")
@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_kept_scores_of_the_reference_give_the_same_weights(
    method: str, home: Path, tmp_path: Path
) -> None:
    for name in ("compute", "cache"):
        more = ("--reference", name, "--learning-rate", "1e-3")
        assert prefer(*words(home, method, tmp_path / name, "gpt2", *more)) == 0
    one, other = weights(tmp_path / "compute"), weights(tmp_path / "cache")
    for name, tensor in one.items():
        # Rows are padded otherwise when they are scored at once: sums differ by rounding.
        np.testing.assert_allclose(tensor, other[name], rtol=1e-4, atol=1e-6)
    assert (tmp_path / "cache" / "reference-train.safetensors").is_file()
    assert not (tmp_path / "compute" / "reference-train.safetensors").exists()


def prepared(home: Path, out: Path, **more: Any) -> Any:
    data = str(home / "pairs.jsonl")
    options = PreferOptions(
        home / "base" / "gpt2", train=data, dev=data, out=out, max_length=96, **more
    )
    return prepare_prefer_job(make_prefer_config(options), out, World(), 1, None)


@pytest.mark.parametrize("tune", ["lora:rank=2", "prefix", "pfeiffer", "ia3"])
def test_the_reference_of_an_adapter_is_the_base_whatever_the_adapter_learns(
    tune: str, home: Path, tmp_path: Path
) -> None:
    job = prepared(home, tmp_path / "run", tune=tune, dropout=0.5)
    model = job.build_model()
    batch = pad_examples(job.train.examples[:6], job.formulation.special_ids)
    base = FrozenCopy.of(load_folder(home / "base" / "gpt2").model, torch.float32).score_batch(
        batch
    )
    torch.manual_seed(0)
    for parameter in model.adapters.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    model.train()
    found = reference_of(model, torch.float32).score_batch(batch)  # without dropout, too
    torch.testing.assert_close(found.log_probabilities, base.log_probabilities)
    assert model.training
    with evaluation_mode(model):
        own = score_tokens(model, batch).log_probabilities
        assert (own - base.log_probabilities).abs().max() > 0.1
        with use_adapters(model, None):
            off = score_tokens(model, batch).log_probabilities
    torch.testing.assert_close(off, base.log_probabilities)


def test_a_frozen_copy_stays_when_the_policy_moves_and_has_no_dropout(
    home: Path, tmp_path: Path
) -> None:
    job = prepared(home, tmp_path / "run", dropout=0.5)
    model = job.build_model().train()
    batch = pad_examples(job.train.examples[:6], job.formulation.special_ids)
    reference = reference_of(model, torch.float32)
    first = reference.score_batch(batch).log_probabilities
    for parameter in model.parameters():
        parameter.data += 0.1
    torch.testing.assert_close(
        reference.score_batch(batch).log_probabilities, first, rtol=0, atol=0
    )
    assert not first.requires_grad
    assert not any(p.requires_grad for p in reference.model.parameters())  # type: ignore[attr-defined]
    base = FrozenCopy.of(load_folder(home / "base" / "gpt2").model, torch.float32)
    torch.testing.assert_close(base.score_batch(batch).log_probabilities, first)


@pytest.mark.quick("dpo")
@pytest.mark.parametrize("method", ["dpo", "ppo:epochs=2,minibatches=2"])
def test_an_adapter_is_saved_as_such_and_opens_again(
    method: str, home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    more = ("--tune", "lora:rank=2", "--learning-rate", "1e-2")
    assert prefer(*words(home, method, out, "gpt2", *more)) == 0
    assert (out / "adapter_config.json").is_file()
    assert not (out / "model.safetensors").exists()
    names = weights(out)
    assert all("lora" in name for name in names)  # no value network, no base
    tuned = load(out)
    assert isinstance(tuned.predict(["the cat sees"])[0], dict)
    before, after = measures(out)
    key = "margin" if method == "dpo" else "kl"
    assert before[key] == pytest.approx(0, abs=1e-5)
    assert abs(after[key]) > 1e-3


@pytest.mark.quick("gpt2")
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_prompt_and_response_are_joined_as_they_are_where_a_model_continues_texts(
    family: str, home: Path, tmp_path: Path
) -> None:
    method = "ppo:epochs=2,minibatches=2"
    more = ("--chat-template", "none", "--cut-reward", "-3")
    assert prefer(*words(home, method, tmp_path / "run", family, *more)) == 0
    job = prepared(home, tmp_path / "none", chat_template="none")
    tokenizer = job.formulation.tokenizer
    example = job.train.examples[0]
    assert tokenizer.decode(example.inputs).startswith(PAIRS[0]["prompt"])
    assert "###" not in tokenizer.decode(example.inputs)


@pytest.mark.quick("best_of_n:responses=2")
@pytest.mark.parametrize("method", ["ppo:epochs=2,minibatches=2", "best_of_n:responses=2"])
def test_plain_text_is_learned_beside_the_responses(
    method: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("the cat runs\n\na dog sees the fox and runs\n")
    out = tmp_path / "run"
    more = ("--text", tmp_path / "text.txt", "--text-weight", "0.5", "--learning-rate", "1e-3")
    assert prefer(*words(home, method, out, "gpt2", *more)) == 0
    rows = [json.loads(row) for row in (out / "log.jsonl").read_text().splitlines()]
    shown = [row["parts"]["pretraining"] for row in rows if "parts" in row]
    assert shown[-1] < shown[0]


@pytest.mark.thorough
def test_a_run_after_instructions_and_on_an_own_tenth(home: Path, tmp_path: Path) -> None:
    rows = [{"instruction": row["prompt"], "output": row["chosen"]} for row in PAIRS]
    data = str(write_rows(tmp_path / "instruct.jsonl", rows))
    finetune(
        str(home / "base" / "gpt2"), task="instruct", train=data, dev=data, epochs=1.0,
        out=str(tmp_path / "assistant"), max_length=96, terminal=None,
    )  # fmt: skip
    out = tmp_path / "run"
    given = ("--train", home / "pairs.jsonl", "--out", out, "--quiet", *SIZES)
    assert prefer(tmp_path / "assistant", *given) == 0
    facts = json.loads((out / "unmask.json").read_text())
    counts = [facts["data"][name]["rows"] for name in ("train", "dev")]
    assert sum(counts) == 12
    assert counts[1] == 3  # the rows of one of four prompts: none is in both
