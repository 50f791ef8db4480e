"""Adapters that PEFT makes on tiny bases of many families, and outputs of both libraries."""

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from reference import (
    V,
    albert,
    bart,
    bert,
    deberta,
    deberta_v2,
    distilbert,
    electra,
    flaubert,
    gemma2,
    gemma3,
    gpt2,
    llama,
    longformer,
    modernbert,
    neox,
    roberta,
    saved,
    t5,
    xlnet,
)
from torch import Tensor, nn

from unmask.adapters.folder import open_adapter
from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import LoadedModel

N, END = 9, 2


def _small(build: Callable[..., Any], start: str, **changes: Any) -> Any:
    return partial(_built, build, start, changes)


def _built(build: Any, start: str, changes: dict[str, Any], kind: str, n: int) -> Any:
    whole = build in (bert, gpt2, t5, bart)
    return build(f"{start}{kind}" if whole else kind, num_labels=n, **changes)


@dataclass(frozen=True)
class Family:
    """How the tiny models of a family are made."""

    build: Callable[[str, int], Any]
    """From the end of a class's name, and a number of labels."""
    pretrained: str
    """The class in which its models are published."""
    reads: str = "encoder"


FAMILIES = {
    "bert": Family(_small(bert, "Bert", num_hidden_layers=2), "ForPreTraining"),
    "roberta": Family(_small(roberta, "", num_hidden_layers=2), "ForMaskedLM"),
    "albert": Family(_small(albert, "", num_hidden_layers=2), "ForPreTraining"),
    "modernbert": Family(_small(modernbert, "", num_hidden_layers=2), "ForMaskedLM"),
    "distilbert": Family(_small(distilbert, "", n_layers=2), "ForMaskedLM"),
    "electra": Family(_small(electra, "", num_hidden_layers=2), "ForPreTraining"),
    "deberta": Family(_small(deberta, "", num_hidden_layers=2), "ForMaskedLM"),
    "gpt2": Family(_small(gpt2, "GPT2", n_layer=2), "LMHeadModel", "decoder"),
    "llama": Family(_small(llama, "", num_hidden_layers=2), "ForCausalLM", "decoder"),
    "t5": Family(_small(t5, "T5", num_layers=2), "ForConditionalGeneration", "both"),
    "bart": Family(
        _small(
            bart, "Bart", encoder_layers=2, decoder_layers=2, decoder_start_token_id=0,
            forced_eos_token_id=None,
        ),
        "ForConditionalGeneration",
        "both",
    ),
    "deberta-v2": Family(_small(deberta_v2, "", num_hidden_layers=2), "ForMaskedLM"),
    "longformer": Family(
        _small(longformer, "", num_hidden_layers=2, attention_window=[4, 8]), "ForMaskedLM"
    ),
    "xlnet": Family(_small(xlnet, "", n_layer=2), "LMHeadModel"),
    "neox": Family(_small(neox, "", num_hidden_layers=2), "ForCausalLM", "decoder"),
    "mistral": Family(
        _small(llama, "", name="Mistral", num_hidden_layers=2, sliding_window=None),
        "ForCausalLM", "decoder",
    ),
    "mistral with a window": Family(
        _small(llama, "", name="Mistral", num_hidden_layers=2, sliding_window=6),
        "ForCausalLM", "decoder",
    ),
    "gemma": Family(
        _small(llama, "", name="Gemma", head_dim=12, num_hidden_layers=2), "ForCausalLM", "decoder"
    ),
    "gemma2": Family(_small(gemma2, "", num_hidden_layers=2), "ForCausalLM", "decoder"),
    "gemma3": Family(
        _small(gemma3, "", num_hidden_layers=2, layer_types=["full_attention"] * 2),
        "ForCausalLM", "decoder",
    ),
    "qwen3": Family(
        _small(llama, "", name="Qwen3", head_dim=12, num_hidden_layers=2), "ForCausalLM", "decoder"
    ),
    "flaubert": Family(_small(flaubert, "", n_layers=2), "WithLMHeadModel"),
    "electra, even": Family(
        _small(electra, "", num_hidden_layers=2, embedding_size=32), "ForMaskedLM"
    ),
    "camembert": Family(
        _small(roberta, "", name="Camembert", num_hidden_layers=2), "ForMaskedLM"
    ),
}  # fmt: skip
TASKS = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "FEATURE_EXTRACTION": "AutoModel",
}
BASES = ("plain", "pretrained", "classifier")
METHODS = ("lora", "lora of all", "ia3", "prefix", "prompt")


@dataclass(frozen=True)
class Case:
    """One adapter."""

    family: str
    task: str
    method: str
    base: str = "pretrained"
    n_labels: int = 3

    def __str__(self) -> str:
        return f"{self.family}-{self.task}-{self.method}-{self.base}-{self.n_labels}"


def base_of(case: Case, folder: Path) -> Path:
    """Write the base as its library does."""
    return _base(case.family, case.base, folder)


@cache
def _base(family: str, base: str, folder: Path) -> Path:
    one = FAMILIES[family]
    kind = {"plain": "Model", "pretrained": one.pretrained}.get(base, "ForSequenceClassification")
    return saved(one.build(kind, 7), folder / f"{family}-{base}")


def theirs_of(case: Case, base: Path, seed: int) -> Any:
    """Open the base as somebody does who trains an adapter."""
    import transformers as hf

    torch.manual_seed(seed)
    labeled = case.task in ("SEQ_CLS", "TOKEN_CLS")
    count = {"num_labels": case.n_labels if labeled else 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = getattr(hf, TASKS[case.task])
        return kind.from_pretrained(base, ignore_mismatched_sizes=True, **count).eval()


_TARGETS = {
    "decoder": ["q_proj", "v_proj", "c_attn", "query_key_value"],
    "both": ["q", "v", "q_proj", "v_proj"],
    "encoder": ["query", "value", "query_proj", "value_proj", "q_lin", "v_lin", "Wqkv", "in_proj"],
}
_WIDE = {
    "decoder": ["down_proj", "mlp.c_proj", "dense_4h_to_h"],
    "both": ["wo", "fc2", "k", "k_proj"],
    "encoder": ["output.dense", "ffn_output", "lin2", "mlp.Wo", "layer_2", "Wqkv", "value"],
}
_INNER = {
    "decoder": _WIDE["decoder"], "both": ["wo", "fc2"], "encoder": _WIDE["encoder"][:-2],
}  # fmt: skip


def config_of(case: Case, **more: Any) -> Any:
    """Return PEFT's configuration of a case."""
    import peft

    reads, task = FAMILIES[case.family].reads, case.task
    if case.method == "lora":
        return peft.LoraConfig(
            task_type=task, **({"r": 4, "lora_alpha": 6, "target_modules": _TARGETS[reads]} | more)
        )
    if case.method == "lora of all":
        return peft.LoraConfig(
            task_type=task, r=3, lora_alpha=9, target_modules=_WIDE[reads], lora_dropout=0.1,
            use_rslora=True, **more,
        )  # fmt: skip
    if case.method == "ia3":
        return peft.IA3Config(
            task_type=task, target_modules=_WIDE[reads], feedforward_modules=_INNER[reads], **more
        )
    if case.method == "prefix":
        return peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=5, **more)
    return peft.PromptTuningConfig(task_type=task, num_virtual_tokens=5, **more)


def randomize_weights(parameters: Any, seed: int = 0) -> None:
    """Give weights a size at which differences show."""
    generator = torch.Generator().manual_seed(seed)
    for weight in parameters:
        nn.init.normal_(weight, mean=0.2, std=0.4, generator=generator)


def trained(case: Case, config: Any, base: Path, folder: Path) -> Any:
    """Let PEFT write an adapter, and return its model."""
    from peft import get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(theirs_of(case, base, 11), config).eval()
        randomize_weights(p for p in model.parameters() if p.requires_grad)
        model.save_pretrained(folder)
    return model


def again(case: Case, base: Path, folder: Path, seed: int) -> Any:
    """Let PEFT open an adapter that it wrote."""
    from peft import PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PeftModel.from_pretrained(theirs_of(case, base, seed), folder).eval()


def _texts() -> Tensor:
    return torch.randint(5, V, (3, N), generator=torch.Generator().manual_seed(0))


def _read(case: Case) -> tuple[Tensor, Tensor]:
    """Return what the encoder reads, or the decoder alone, and what the other one reads."""
    text = _texts()
    if case.family == "bart" and case.task in ("SEQ_CLS", "QUESTION_ANS"):
        text[:, -1] = END
        return text, torch.cat((torch.zeros(3, 1, dtype=torch.long), text[:, :-1]), 1)
    if case.family == "bart" and case.task == "FEATURE_EXTRACTION":
        return text, torch.cat((torch.full((3, 1), 0), text[:, :-1]), 1)
    return text, torch.tensor([[0, 4, 5]]).expand(3, -1)


def peft_outputs(case: Case, model: Any) -> Tensor:
    """Outputs of PEFT for some texts."""
    text, inputs = _read(case)
    given = {"input_ids": text, "attention_mask": torch.ones_like(text)}
    if FAMILIES[case.family].reads == "both":
        given["decoder_input_ids"] = inputs
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = model(**given)
    if case.task == "QUESTION_ANS":
        out = torch.stack((outputs.start_logits, outputs.end_logits), -1)
    else:
        out = outputs.last_hidden_state if case.task == "FEATURE_EXTRACTION" else outputs.logits
    return out if out.dim() == 2 else out[:, -inputs.shape[1] :] if _two(case) else out[:, -N:]


def _two(case: Case) -> bool:
    return FAMILIES[case.family].reads == "both"


def our_outputs(case: Case, loaded: LoadedModel) -> Tensor:
    """Outputs of our model for the same texts."""
    text, inputs = _read(case)
    model, everything = loaded.model, torch.zeros_like(text)
    if _two(case):
        batch = Batch(
            inputs=inputs,
            last_token_positions=torch.full((3,), inputs.shape[1] - 1),
            visibility=Visibility(causal=True),
            source=text,
            source_visibility=Visibility(document=everything),
        )
    else:
        batch = Batch(
            inputs=text,
            last_token_positions=torch.full((3,), N - 1),
            segments=torch.zeros_like(text) if model.decoder_architecture.uses_segments else None,
            visibility=Visibility(causal=model.decoder_architecture.causal, document=everything),
        )
    with torch.no_grad():
        hidden = model.hidden_states(batch)
        if not model.head_specs:
            return hidden
        name, head = next(iter(model.heads.items()))
        return head.logits(hidden) if name == "language" else head.logits(hidden, batch)


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference, against the largest number."""
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-9))


def outcome(case: Case, folder: Path, **more: Any) -> tuple[bool, list[float | str]]:
    """Say whether PEFT gives the same for each seed, and how far we are from it, or why we refuse.

    For two seeds, each.
    """
    base, adapter = base_of(case, folder), Path(tempfile.mkdtemp(dir=folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = config_of(case, **more)
    trained(case, config, base, adapter)
    theirs = [peft_outputs(case, again(case, base, adapter, seed)) for seed in (1, 2)]
    ours: list[float | str] = []
    for seed in (0, 1):
        try:
            loaded = open_adapter(adapter, seed=seed)
        except ValueError as error:
            ours.append(str(error))
        else:
            ours.append(difference(our_outputs(case, loaded), theirs[0]))
    return torch.equal(*theirs), ours
