"""Runs of thirty steps, one a family, whose weights and losses are recorded.

A change of the code that should change no number leaves every one of them as it is. They are made
by the public face alone (`unmask.pretrain`, `unmask.finetune`); the names that it may give its
options stand here at the top, once.

Record them anew with `python tests/golden/golden_runs.py [NAME ...]`, and say in the commit why.
"""

import hashlib
import json
import os
import platform
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import unmask

HERE = Path(__file__).parent
STEPS, EVERY, STOP = 30, 5, 15
"""Steps of a run, steps between two losses that are recorded, and where the resumed ones stop."""

# The names of options and keys of the recipe: a renaming is made in this block and nowhere else.
PRETRAIN = {
    "data": "data", "out": "out", "steps": "steps", "changes": "changes", "resume": "resume",
    "threads": "threads", "quiet": "quiet",
}  # fmt: skip
FINETUNE = {
    "task": "task", "train": "train", "dev": "dev", "out": "out", "method": "tune",
    "learning_rate": "learning_rate", "epochs": "epochs", "batch": "batch_size",
    "precision": "precision", "terminal": "terminal",
}  # fmt: skip
RECIPE = {
    "vocab_size": "vocab_size", "length": "sequence_length", "batch_tokens": "batch_tokens",
    "log_every": "log_every", "evaluate_every": "evaluate_every", "dev": "dev_fraction",
    "precision": "precision", "memory": "memory_length",
    "architecture": "architecture", "objective": "objective", "dropout": "dropout",
    "optimizer": "optimizer", "kind": "kind", "learning_rate": "learning_rate",
    "packing": "packing", "micro_tokens": "micro_batch_tokens",
}  # fmt: skip
OPTIMIZERS = {"adamw": "AdamW", "lamb": "LAMB", "sgd": "SGD", "adafactor": "Adafactor"}
"""Where none is named, it is the small card's: of most of them Muon."""
PACKED = "pack"
ARCHITECTURE = {
    "width": "d_model", "inner": "d_ff", "layers": "n_layers", "heads": "n_heads",
    "kv_heads": "n_kv_heads", "head_width": "head_dim", "embed": "embedding_size",
    "window": "attention_window", "block": "local_attention_block",
    "encoder": "encoder", "decoder": "decoder",
    "characters": "character_cnn", "filters": "filters",
    "dropout": "dropout", "input_dropout": "input_dropout", "token_dropout": "embedding_dropout",
    "weight_dropout": "weight_dropout",
}  # fmt: skip
OBJECTIVE = {"epochs": "epochs"}
LOG = "log.jsonl"
"""Each line has `step` and `loss`, or `step` and `evaluation`."""
# Up to here.

SIZE = {"width": 32, "inner": 64, "layers": 2, "heads": 2}
SETTINGS = {
    "vocab_size": 300, "length": 32, "batch_tokens": 256, "log_every": EVERY,
    "evaluate_every": STOP, "dev": 0.1, "precision": "float32", "dropout": None,
}  # fmt: skip
"""float32: bfloat16 is rounded differently by different processors. Dropout is the network's own,
which the small cards' recipes turn off."""
PIECES, SMALL_PIECES = {"vocab_size": 140}, {"vocab_size": 64}
"""As many as the text has enough for, of the kinds that are learned from its words."""
VECTORS = {"log_every": 1}
BOTH = {**SIZE, "layers": 1, "head_width": 16}


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One run."""

    card: str
    architecture: Mapping[str, Any] = field(default_factory=dict[str, Any])
    objective: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settings: Mapping[str, Any] = field(default_factory=lambda: SETTINGS)
    steps: int | None = STEPS
    """None: the method has steps of its own, as counted vectors have."""
    resumed: bool = False
    """Stop in the middle and resume: the results must be equal."""
    finetune: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the run is fine-tuned, which then is what is recorded."""


def _run(card: str, architecture: Mapping[str, Any] | None = None, **more: Any) -> Golden:
    """Give a run of a Transformer of a small card."""
    settings = SETTINGS | more.pop("settings", {})
    return Golden(card=card, architecture=architecture or SIZE, settings=settings, **more)


def _vectors(card: str, **more: Any) -> Golden:
    return Golden(card=card, architecture={"width": 12}, settings=VECTORS, steps=None, **more)


def _optimizer(name: str) -> dict[str, Any]:
    return {"optimizer": {"kind": OPTIMIZERS[name]}}


_LSTM = {"width": 32, "inner": 48, "layers": 2}
_STACKS = {"encoder": BOTH, "decoder": BOTH}
RUNS: Mapping[str, Golden] = {
    "word2vec": _vectors("word2vec-skipgram-mini", objective={"epochs": 3}),
    "glove": _vectors("glove-mini", objective={"epochs": 6}),
    "svd": _vectors("svd-ppmi-mini"),
    "lstm": _run("lstm-mini", _LSTM, resumed=True),
    "elmo": _run(
        "elmo-mini",
        {
            "width": 32,
            "embed": 16,
            "inner": 48,
            "characters": {"filters": [[1, 8], [3, 8]]},
        },
        settings={"length": 96},
    ),
    "ulmfit": _run(
        "ulmfit-mini",
        {
            **_LSTM,
            "layers": 3,
            "dropout": 0.1,
            "input_dropout": 0.1,
            "token_dropout": 0.1,
            "weight_dropout": 0.2,
        },
        settings={**_optimizer("sgd"), "learning_rate": 1.0},
    ),
    "skip-thoughts": _run(
        "skip-thoughts-mini",
        {"width": 32, "inner": 32},
        settings={**PIECES, "length": 128, "batch_tokens": 512},
    ),
    "bert": _run("bert-tiny", settings={**PIECES, "micro_tokens": 128}, resumed=True),
    "roberta": _run("roberta-mini", settings=_optimizer("adamw")),
    "albert": _run(
        "albert-mini",
        {**SIZE, "embed": 16},
        settings={**SMALL_PIECES, **_optimizer("lamb"), "learning_rate": 0.03},
    ),
    "electra": _run("electra-mini", {**SIZE, "embed": 16}, settings=PIECES),
    "deberta-v1": _run("deberta-mini"),
    "deberta-v3": _run("deberta-v3-mini", settings=SMALL_PIECES),
    "canine": _run("canine-mini", {**SIZE, "layers": 1, "block": 16}, settings={"length": 96}),
    "longformer": _run("longformer-mini", {**SIZE, "window": [4]}),
    "modernbert": _run("modernbert-mini"),
    "coco-lm": _run("coco-lm-mini", settings=SMALL_PIECES),
    "gpt2": _run("gpt2-mini", settings={"packing": PACKED, **_optimizer("adamw")}),
    "llama": _run("llama-mini", {**SIZE, "heads": 4, "kv_heads": 2}),
    "transformer-xl": _run("transformer-xl-mini", settings={"memory": 16}),
    "xlnet": _run("xlnet-mini", settings={**SMALL_PIECES, "memory": 16}),
    "unilm": _run("unilm-mini", settings=PIECES),
    "bart": _run("bart-mini", _STACKS),
    "t5": _run("t5-mini", _STACKS, settings=SMALL_PIECES),
    "ul2": _run("ul2-mini", _STACKS, settings=SMALL_PIECES),
    "lora": _run("bert-tiny", settings=PIECES, finetune={"task": "classify", "method": "lora"}),
    "tagging": _run("roberta-mini", finetune={"task": "tag"}),
}


QUICK = ("svd", "lstm", "bert", "electra", "xlnet", "t5", "lora", "tagging")
"""Of each kind of network and of learning one: these the default suite makes, all the slow one."""


def _named(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Give a table, and those in it, the names of today."""
    return {
        names[key]: _named(value, names) if isinstance(value, Mapping) else value
        for key, value in table.items()
    }


def _changes(run: Golden) -> dict[str, Any]:
    made = _named(run.settings, RECIPE)
    made[RECIPE["architecture"]] = _named(run.architecture, ARCHITECTURE)
    if run.objective:
        made[RECIPE["objective"]] = _named(run.objective, OBJECTIVE)
    return made


def texts(folder: Path) -> dict[str, Path]:
    """Write what the runs read: text, labelled texts, and tagged words."""
    from toy_text import corpus  # beside the tests, which a script has to be told

    made = {name: folder / name for name in ("text.txt", "labelled.tsv", "tagged.conll")}
    made["text.txt"].write_text(corpus(40))
    draw = random.Random(1)
    sentences = corpus(12, seed=2).replace("\n", " ").replace(". ", " .\n").split("\n")
    sentences = [line.strip() for line in sentences if line.strip()]
    rows = [f"{line}\t{'past' if 'after' in line else 'other'}" for line in sentences]
    draw.shuffle(rows)
    made["labelled.tsv"].write_text("\n".join(["text\tlabel", *rows[:80]]) + "\n")
    tags = {"king": "B-WHO", "fox": "B-WHO", "brother": "B-WHO", "gate": "B-WHAT", "ring": "B-WHAT"}
    tagged = [
        "\n".join(f"{word} {tags.get(word, 'O')}" for word in line.split())
        for line in sentences[:80]
    ]
    made["tagged.conll"].write_text("\n\n".join(tagged) + "\n")
    return made


def pretrain(run: Golden, text: Path, out: Path, *, resume: bool = False) -> None:
    """Make one run, or go on with it."""
    output: dict[str, Any] = {
        "data": text, "out": out, "changes": [_changes(run)], "resume": resume, "threads": 1,
        "quiet": True,
    }  # fmt: skip
    if run.steps is not None:
        output["steps"] = run.steps
    unmask.pretrain(run.card, **_named(output, PRETRAIN))


def finetune(run: Golden, files: Mapping[str, Path], base: Path, out: Path) -> None:
    """Fine-tune a run for so many steps."""
    train = files["tagged.conll" if run.finetune["task"] == "tag" else "labelled.tsv"]
    output: dict[str, Any] = {
        **run.finetune, "train": train, "dev": train, "out": out, "epochs": STEPS * 8 / 80,
        "batch": 8, "learning_rate": 3e-3, "precision": "float32", "terminal": None,
    }  # fmt: skip
    unmask.finetune(base, **_named(output, FINETUNE))


def stopped(begin: Callable[[], object], out: Path) -> int:
    """Send a run Ctrl-C as soon as its log has step `STOP`; return the last step that it took.

    Raises:
        AssertionError: it had ended before.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.001):
            if any(line["step"] >= STOP for line in _lines(out)):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        begin()
    except KeyboardInterrupt:
        return max(line["step"] for line in _lines(out))
    finally:
        ended.set()
        watching.join()
    raise AssertionError(f"the run had ended before it could be stopped after step {STOP}")


def _lines(out: Path) -> list[dict[str, Any]]:
    """Read the log's whole lines."""
    path = out / LOG
    text = path.read_text() if path.is_file() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def measured(out: Path) -> dict[str, Any]:
    """Say what a run's folder holds: digests of its weights, and its losses.

    `values` is of all tensors' bytes in the order of their names; `tensors` of the sorted digests
    of each, which no renaming changes; `names` of the names, with their shapes and types. `norm` is
    the root of the sum of all squares, to compare where bits are not.
    """
    made: dict[str, Any] = {"weights": {}}
    for path in sorted(out.glob("*.safetensors")):
        held = dict(sorted(load_file(path).items()))
        data = {name: _bytes(tensor) for name, tensor in held.items()}
        made["weights"][path.name] = {
            "count": len(held),
            "values": _digest([*data.values()]),
            "tensors": _digest(sorted(hashlib.sha256(one).digest() for one in data.values())),
            "names": _digest([f"{n} {list(x.shape)} {x.dtype}".encode() for n, x in held.items()]),
            "norm": sum(x.double().square().sum().item() for x in held.values()) ** 0.5,
        }
    lines = _lines(out)
    made["losses"] = {
        str(line["step"]): line["loss"] for line in lines if line.get("loss") is not None
    }
    made["held_out"] = {
        str(line["step"]): line["evaluation"]["loss"] for line in lines if "evaluation" in line
    }
    return made


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def machine() -> dict[str, str]:
    """Name what the bits of a float depend on."""
    versions = {name: _version(name) for name in ("torch", "numpy", "numba", "tokenizers")}
    return {"processor": processor(), **versions}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def processor() -> str:
    """Name this machine's processor, with what torch makes of it."""
    path, name = Path("/proc/cpuinfo"), platform.processor() or platform.machine()
    if path.is_file():
        content = dict(
            (part.strip() for part in line.split(":", 1))
            for line in path.read_text().splitlines()
            if ":" in line
        )
        keys = ("model name", "cpu family", "model")
        name = " ".join(content[key] for key in keys if key in content) or name
    limits = (os.environ.get(key) for key in ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR"))
    return ", ".join([name, torch.backends.cpu.get_cpu_capability(), *filter(None, limits)])


def make(name: str, files: Mapping[str, Path], folder: Path) -> tuple[dict[str, Any], Path]:
    """Make a run, and return what it contains."""
    run, out = RUNS[name], folder / name
    pretrain(run, files["text.txt"], out)
    if run.finetune:
        base, out = out, folder / f"{name}-tuned"
        finetune(run, files, base, out)
    return measured(out), out


def inputs(files: Mapping[str, Path]) -> str:
    """Give the digest of all that the runs read."""
    return _digest([path.read_bytes() for _, path in sorted(files.items())])


def recorded(name: str) -> dict[str, Any]:
    """Read what was recorded of a run."""
    return json.loads((HERE / f"{name}.json").read_text())


def main(names: list[str]) -> None:
    """Record runs anew, all of them where none is named.

    Raises:
        ValueError: there is no such run.
    """
    for name in names:
        if name not in RUNS:
            raise ValueError(f"{name!r} is not one of {', '.join(RUNS)}")
    with tempfile.TemporaryDirectory() as temporary:
        files = texts(Path(temporary))
        for name in names or RUNS:
            found, _ = make(name, files, Path(temporary))
            about = {"card": RUNS[name].card, **machine(), "inputs": inputs(files)}
            text = json.dumps(about | found, indent=1, sort_keys=False)
            (HERE / f"{name}.json").write_text(text + "\n")
            print(name, found["losses"])


if __name__ == "__main__":
    sys.path.append(str(HERE.parent))
    torch.set_num_threads(1)
    main(sys.argv[1:])
