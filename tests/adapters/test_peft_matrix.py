"""An adapter that PEFT made gives PEFT's numbers, whatever the seed, or is refused in one line."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import transformers as hf
from peft_cases import (
    BASES,
    FAMILIES,
    METHODS,
    TASKS,
    Case,
    again,
    base_of,
    difference,
    our_outputs,
    outcome,
    peft_outputs,
    randomize_weights,
)

from unmask.adapters.folder import open_adapter
from unmask.adapters.peft_format.folder import CONFIG_FILE

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

DRAWN = r"random weights that were not saved|neither this adapter nor its model has an output"
BY_HEAD = r"joined by head are not supported"
NO_CLASS = r"no class of \w+ for it is supported|tensor transformer\.\S+ does not belong"
NO_CACHE = r"take no keys and values before a text"
WINDOW = r"an attention window hides them"
REFUSED = {
    "deberta": BY_HEAD,
    "neox": BY_HEAD,
    "xlnet": f"{BY_HEAD}|{NO_CACHE}|{DRAWN}",
    "modernbert": f"{NO_CLASS}|{NO_CACHE}|{WINDOW}",
    "longformer": f"{NO_CACHE}|{WINDOW}",
    "mistral with a window": f"{NO_CLASS}|{WINDOW}",
    "gemma2": f"{NO_CLASS}|{WINDOW}",
    "albert": NO_CACHE,
    "distilbert": NO_CACHE,
    "deberta-v2": NO_CACHE,
    "flaubert": NO_CACHE,
    # their class of labels calls its network otherwise than all the others
    "t5": rf"{NO_CLASS}|the weights lack \d+ tensors",
    "bart": rf"{NO_CLASS}|the weights lack \d+ tensors",
    **{name: NO_CLASS for name in ("llama", "mistral", "gemma", "gemma3", "qwen3", "gpt2")},
}
"""What is refused of a family where PEFT does it."""
PEFT_CANNOT = (ValueError, TypeError, RuntimeError, AttributeError, AssertionError, IndexError)
"""What PEFT and transformers raise for what they do not do."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peft")


def check(case: Case, folder: Path, **more: Any) -> str:
    """Compare both libraries; return "equal" or "refused"."""
    same, ours = outcome(case, folder, **more)
    if all(isinstance(one, str) for one in ours):
        known = f"{DRAWN}|{REFUSED.get(case.family, DRAWN)}" if same else ".*"
        assert re.search(REFUSED.get(case.family, DRAWN) if same else known, str(ours[0])), ours
        assert "\n" not in str(ours[0])
        return "refused"
    assert same, f"PEFT's own numbers depend on its seed, and ours are {ours} away"
    assert all(isinstance(one, float) and one < 1e-5 for one in ours), ours
    return "equal"


CUT = {
    "equal": [
        Case("bert", "SEQ_CLS", "lora", "plain", 2),
        Case("bert", "SEQ_CLS", "ia3", "pretrained", 5),
        Case("bert", "SEQ_CLS", "prefix", "classifier", 3),
        Case("bert", "SEQ_CLS", "prompt", "plain", 4),
        Case("bert", "TOKEN_CLS", "prefix", "pretrained", 5),
        Case("bert", "QUESTION_ANS", "lora", "plain"),
        Case("bert", "CAUSAL_LM", "lora"),
        Case("bert", "FEATURE_EXTRACTION", "prompt", "classifier"),
        Case("roberta", "SEQ_CLS", "lora of all", "plain", 4),
        Case("roberta", "SEQ_CLS", "prompt", "classifier", 2),
        Case("roberta", "QUESTION_ANS", "ia3"),
        Case("albert", "SEQ_CLS", "lora", "plain", 5),
        Case("albert", "TOKEN_CLS", "ia3", "classifier", 2),
        Case("modernbert", "SEQ_CLS", "lora of all", "pretrained", 3),
        Case("modernbert", "SEQ_CLS", "ia3", "classifier", 4),
        Case("distilbert", "TOKEN_CLS", "lora", "classifier", 3),
        Case("distilbert", "SEQ_CLS", "lora", "pretrained", 2),
        Case("electra", "SEQ_CLS", "prefix", "plain", 3),
        Case("electra, even", "TOKEN_CLS", "prompt", "pretrained", 4),
        Case("deberta-v2", "TOKEN_CLS", "lora", "plain", 5),
        Case("gpt2", "SEQ_CLS", "lora of all", "plain", 5),
        Case("gpt2", "TOKEN_CLS", "prefix", "classifier", 3),
        Case("gpt2", "CAUSAL_LM", "ia3", "plain"),
        Case("llama", "SEQ_CLS", "prompt", "plain", 4),
        Case("llama", "CAUSAL_LM", "lora"),
        Case("gemma3", "CAUSAL_LM", "prompt"),
        Case("llama", "QUESTION_ANS", "prompt", "plain"),
        Case("t5", "SEQ_2_SEQ_LM", "prefix"),
        Case("bart", "SEQ_CLS", "lora", "classifier", 7),
        Case("bart", "SEQ_2_SEQ_LM", "ia3", "plain"),
    ],
    "refused": [
        Case("roberta", "CAUSAL_LM", "lora", "plain"),
        Case("modernbert", "SEQ_CLS", "lora", "plain", 3),
        Case("modernbert", "FEATURE_EXTRACTION", "prompt"),
        Case("deberta-v2", "SEQ_CLS", "ia3", "pretrained", 3),
        Case("deberta", "TOKEN_CLS", "lora", "pretrained", 3),
        Case("llama", "CAUSAL_LM", "lora", "plain"),
        Case("llama", "QUESTION_ANS", "prefix", "pretrained"),
        Case("bart", "SEQ_CLS", "lora", "pretrained", 3),
        Case("mistral with a window", "CAUSAL_LM", "prefix"),
    ],
}
"""Of all families, tasks, numbers of labels, methods and bases some; the rest is slow."""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("case", "kind"), [(case, does) for does, some in CUT.items() for case in some], ids=str
)
def test_peft_adapter_gives_equal_outputs_or_is_refused(
    case: Case, kind: str, folder: Path
) -> None:
    assert check(case, folder) == kind


ALL = [
    Case(family, task, method, base, 2 + (i + j + k) % 4)
    for family in FAMILIES
    for i, task in enumerate(TASKS)
    for j, method in enumerate(METHODS)
    for k, base in enumerate(BASES)
]


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_peft_adapter_gives_equal_outputs_or_is_refused(case: Case, folder: Path) -> None:
    if case.family == "longformer" and case.task in ("SEQ_CLS", "QUESTION_ANS"):
        pytest.skip("their classes choose by themselves which tokens see everything")
    if case.family == "bart" and case.task == "SEQ_CLS":  # PEFT keeps the head of the base
        case = replace(case, n_labels=7)
    try:
        check(case, folder)
    except PEFT_CANNOT as error:
        if any(
            "unmask" in str(entry.path)
            for entry in pytest.ExceptionInfo.from_exc_info(
                (type(error), error, error.__traceback__)  # type: ignore[arg-type]
            ).traceback
        ):
            raise
        pytest.skip(f"PEFT does not: {str(error).splitlines()[0][:80]}")


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "biases of all modules": ("equal", {"bias": "all"}),
    "biases of the adapted modules": ("equal", {"bias": "lora_only"}),
    "ranks and factors by patterns": (
        "equal", {"rank_pattern": {r".*\.0\..*": 2}, "alpha_pattern": {r".*\.1\..*": 9}},
    ),
    "factors by the root of the rank": ("equal", {"use_rslora": True}),
    "one layer": ("equal", {"layers_to_transform": 1}),
    "layers by their list's name": (
        "equal", {"layers_to_transform": [0], "layers_pattern": ["layer", "h", "layers"]},
    ),
    "modules left out": ("equal", {"exclude_modules": ["value", "v_proj"]}),
    "modules left out by a pattern": ("equal", {"exclude_modules": r".*\.0\..*"}),
    "modules by a pattern": ("equal", {"target_modules": r".*\.(query|c_attn|q_proj)"}),
    "norms beside": (
        "equal", {"modules_to_save": ["LayerNorm", "ln_1", "ln_f", "input_layernorm", "norm"]},
    ),
    **{
        f"init_lora_weights {one}": ("equal", {"init_lora_weights": one})
        for one in ("gaussian", "eva", "orthogonal", "mica", False)
    },
    **{
        f"init_lora_weights {one}": ("init_lora_weights must be", {"init_lora_weights": one})
        for one in ("pissa", "pissa_niter_4", "lora_ga")
    },
    "DoRA": ("use_dora = True is not supported, only False", {"use_dora": True}),
    "biases of B": ("lora_bias = True is not supported", {"lora_bias": True}),
    "QALoRA": ("use_qalora = True is not supported", {"use_qalora": True}),
    "some tokens": (r"trainable_token_indices = \[5", {"trainable_token_indices": [5, 6]}),
    "activated": (r"alora_invocation_tokens = \[5, 6\]", {"alora_invocation_tokens": [5, 6]}),
    "embeddings": (  # of LLaMA these alone are chosen
        r"(tensor|lora_A\.weight\), only) \S+\.lora_embedding_A",
        {"target_modules": ["word_embeddings", "wte", "embed_tokens", "query", "c_attn"]},
    ),
}  # fmt: skip
BASES_OF_OPTIONS = [
    Case("bert", "SEQ_CLS", "lora"), Case("gpt2", "CAUSAL_LM", "lora"),
    Case("llama", "SEQ_CLS", "lora"),
]  # fmt: skip
PAIRS = [
    pytest.param(case, name, id=f"{case.family}-{name}", marks=[pytest.mark.slow] * (i > 0))
    for name in OPTIONS
    for i, case in enumerate(BASES_OF_OPTIONS)
]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_every_peft_lora_setting_gives_equal_outputs_or_is_refused(
    case: Case, name: str, folder: Path
) -> None:
    kind, more = OPTIONS[name]
    _, ours = outcome(case, folder, **more)
    if kind == "equal":
        assert all(isinstance(one, float) and one < 1e-5 for one in ours), ours
    else:
        assert all(isinstance(one, str) and re.search(kind, one) for one in ours), ours


@pytest.mark.thorough
def test_embeddings_of_adapter_are_those_peft_reads(folder: Path) -> None:
    """PEFT changes the table that is read, and leaves the one that scores."""
    beside = {"modules_to_save": ["word_embeddings", "wte"]}
    assert check(Case("bert", "TOKEN_CLS", "lora"), folder, **beside) == "equal"
    _, ours = outcome(Case("gpt2", "CAUSAL_LM", "lora"), folder, **beside)
    assert "has trained embeddings, but PEFT leaves those of the scores" in str(ours[0])


def test_output_matrix_of_adapter_is_read(folder: Path) -> None:
    beside = {"modules_to_save": ["lm_head"]}
    assert check(Case("gpt2", "CAUSAL_LM", "lora"), folder, **beside) == "equal"


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_prompt_for_two_stacks_is_refused(family: str, folder: Path) -> None:
    """PEFT puts all of its vectors there, under a mask that counts half of them."""
    case = Case(family, "SEQ_CLS", "prompt")
    _, ours = outcome(case, folder, num_transformer_submodules=2)
    assert all("num_transformer_submodules must be at most 1" in str(one) for one in ours)


def test_adapter_without_task_uses_class_named_in_config(folder: Path) -> None:
    case = Case("bert", "CAUSAL_LM", "lora")  # says the same as the class for masks
    base, adapter = base_of(case, folder), folder / "masked"
    plain = hf.BertForMaskedLM.from_pretrained(base)
    model = peft.get_peft_model(plain, peft.LoraConfig(target_modules=["query"])).eval()
    randomize_weights(p for p in model.parameters() if p.requires_grad)
    model.save_pretrained(adapter)
    loaded = open_adapter(adapter)
    assert (
        difference(our_outputs(case, loaded), peft_outputs(case, again(case, base, adapter, 1)))
        < 1e-5
    )
    config = json.loads((adapter / CONFIG_FILE).read_text())
    for task, message in (
        (None, "auto_mapping.base_model_class None is not one of BertForPreTraining"),
        ("SEQ_2_SEQ_LM", "task_type SEQ_2_SEQ_LM: no class of bert"),
        ("RANKING", "task_type 'RANKING' is not one of SEQ_CLS"),
    ):
        (adapter / CONFIG_FILE).write_text(
            json.dumps(config | {"task_type": task, "auto_mapping": {}})
        )
        with pytest.raises(ValueError, match=message):
            open_adapter(adapter)
