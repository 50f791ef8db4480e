import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from toy_text import corpus
from trials import Trials

from unmask.batch import Batch
from unmask.batching.plan import DataCursor
from unmask.config import to_dict
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain import train
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.objectives.published import CANINE_S, MASKED_LM
from unmask.reports.report_data import Fill, ReportSample
from unmask.shards.read import TokenShards
from unmask.training.config import Recipe
from unmask.training.data.texts import build_training_data, source_of_rows
from unmask.training.device import distributed

SMALL = {
    "bert-tiny": ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"],
    "gpt2-mini": ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"],
    "roberta-mini": ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"],
    "longformer-mini": ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"],
    "t5-mini": [
        "architecture={encoder={d_model=32,d_ff=64,n_layers=1,n_heads=2,head_dim=16},"
        "decoder={d_model=32,d_ff=64,n_layers=1,n_heads=2,head_dim=16}}"
    ],
    "elmo-mini": [
        "architecture={d_model=32,embedding_size=16,d_ff=48,character_cnn={filters=[[1,8],[3,8]]}}",
        "sequence_length=96",
    ],
}
CHARACTERS = {
    name: [
        "architecture={d_model=32,d_ff=64,n_layers=1,n_heads=2,local_attention_block=16}",
        "sequence_length=96",
    ]
    for name in ("canine-mini", "canine-s-mini")
}
"""Of the latter the head is not kept: it is not evaluated."""
COMMON = [
    "vocab_size=300",
    "sequence_length=32",
    "batch_tokens=256",
    "log_every=3",
    "evaluate_every=6",
    "dev_fraction=0.1",
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(corpus())
    return path


def run(name: str, text: Path | list[Path], out: Path, steps: int = 12, **more):
    more.setdefault("checkpoint_every", 5)
    return pretrain(
        name,
        data=text,
        out=out,
        steps=steps,
        quiet=True,
        changes=[*COMMON, *{**SMALL, **CHARACTERS}[name]],
        threads=1,
        **more,
    )


def learned(out: Path) -> dict[str, bytes]:
    """Give all that must be equal bit for bit: weights, optimizer, log."""
    newest = max((out / "checkpoints").iterdir())
    files = [
        newest / "model.safetensors",
        newest / "optimizer.safetensors",
        out / "model.safetensors",
        out / "log.jsonl",
    ]
    return {f.name + f.parent.name * (f.parent != out): f.read_bytes() for f in files}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SMALL)
def test_run_makes_a_folder_that_opens_and_works(name: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    made = run(name, text, out)
    loaded = load(out)
    assert loaded.loaded_model.missing == ()
    assert loaded.loaded_model.unexpected == ()
    mine, theirs = made.model.own_weights(), loaded.model.own_weights()
    assert all(np.array_equal(mine[n].numpy(), theirs[n].numpy()) for n in mine)
    for file in (
        "config.json",
        "tokenizer.json",
        "README.md",
        "unmask.json",
        "log.jsonl",
        "timing.jsonl",
        "report.html",
    ):
        assert (out / file).stat().st_size > 0
    assert json.loads((out / "unmask.json").read_text())["finished"] is True
    assert loaded.embed(["the old king", "her brother saw the sea"]).shape[0] == 2
    result = loaded.evaluate(text)
    assert np.isfinite(list(result.loss.values())).all()


@pytest.mark.trials("data and workers")
@pytest.mark.sample(1)
@pytest.mark.quick("0-bert-tiny", "1-t5-mini", "3-elmo-mini", "0-canine-s-mini")
@pytest.mark.parametrize("name", [*SMALL, "canine-s-mini"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_interrupted_and_resumed_run_equals_uninterrupted(
    name: str, workers: int, text: Path, tmp_path: Path, monkeypatch
) -> None:
    if workers and name != "bert-tiny" and (name, workers) != ("canine-s-mini", 1):
        pytest.skip("the workers are the same for every model, but for subwords, which travel")
    run(name, text, tmp_path / "whole")
    broken = tmp_path / "broken"

    class Killed(Exception):
        pass

    from unmask.training import log

    original = log.TrainingLog.__call__

    def call(self, report):
        original(self, report)
        if report.step in (7, 11):
            raise Killed

    monkeypatch.setattr(log.TrainingLog, "__call__", call)
    for i in range(2):
        with pytest.raises(Killed):
            run(name, text, broken, resume=i > 0, workers=workers)
        monkeypatch.setattr(
            log.TrainingLog,
            "__call__",
            lambda self, report, i=i: (
                call(self, report) if report.step != 7 else original(self, report)
            ),
        )
    monkeypatch.setattr(log.TrainingLog, "__call__", original)
    run(name, text, broken, resume=True, workers=workers)
    assert learned(broken) == learned(tmp_path / "whole")


PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from test_pretrain import run
text, out, workers = Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5])
run("bert-tiny", text, out, steps=4000, resume=True, checkpoint_every=20, workers=workers)
"""
DEATHS = 20


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_run_killed_at_random_instants_equals_uninterrupted(
    workers: int, text: Path, tmp_path: Path, trials: Trials
) -> None:
    here = Path(__file__).parent
    program = [sys.executable, "-c", PROGRAM, str(here), str(here.parent), str(text)]
    subprocess.run([*program, str(tmp_path / "whole"), "0"], check=True)
    killed, draw = tmp_path / "killed", np.random.default_rng(workers)
    deaths = 0
    while True:
        process = subprocess.Popen([*program, str(killed), str(workers)], stderr=subprocess.PIPE)
        try:
            # About two seconds go by before the first step: some die before it, most after it.
            wait = None if deaths == DEATHS else 1 + 3 * draw.random()
            _, output = process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            deaths += 1
            continue
        assert process.returncode == 0, output.decode()
        break
    assert deaths > DEATHS // 4
    assert learned(killed) == learned(tmp_path / "whole")
    trials.count("kills", deaths)


@pytest.mark.thorough
def test_run_depends_on_the_seed(text: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("bert-tiny", text, tmp_path / name, seed=seed)
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in "abc"]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_micro_batches_do_not_change_the_loss(text: Path, tmp_path: Path) -> None:
    losses = []
    for name, micro in (("whole", 256), ("parts", 64)):
        out = tmp_path / name
        changes = [
            *COMMON,
            *SMALL["bert-tiny"],
            f"micro_batch_tokens={micro}",
            "dropout=0.0",
            "precision=float32",
        ]
        pretrain("bert-tiny", data=text, out=out, steps=6, quiet=True, changes=changes, threads=1)
        facts = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        losses.append([x["loss"] for x in facts if "loss" in x])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.thorough
def test_step_larger_than_the_text_is_reported(
    text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    changes = [*COMMON, *SMALL["gpt2-mini"], "batch_tokens=1000000000000", "dev_fraction=0.5"]
    pretrain("gpt2-mini", data=text, out=out, steps=1, quiet=True, changes=changes, threads=1)
    (messages,) = [r.getMessage() for r in caplog.records if "batch_tokens" in r.getMessage()]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    held = next(x["tokens"] for x in log if "tokens" in x)
    assert messages.startswith(
        f"batch_tokens = 1,000,000,000,000: a step holds all of the text to train on, {held:,} "
    )


@pytest.mark.thorough
def test_minutes_fix_the_number_of_steps_before_the_first(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [*COMMON, *SMALL["bert-tiny"]]
    pretrain("bert-tiny", data=text, out=out, minutes=0.03, quiet=True, changes=changes, threads=1)
    recipe = json.loads((out / "unmask.json").read_text())["recipe"]
    assert recipe["steps"] >= 1
    last = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()][-1]
    assert last["step"] == recipe["steps"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("objective.sentence_task.random_probability=1.0", "have a label, which is always 1"),
        ("sequence_length=24", None),
    ],
)
def test_objective_the_rows_cannot_teach_is_reported(
    change: str, message: str | None, text: Path, tmp_path: Path, capsys
) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"], change]
    pretrain("bert-tiny", data=text, out=tmp_path / "run", steps=1, changes=changes, threads=1)
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("next_sentence: ")]
    assert len(lines) == (message is not None)
    assert message is None or message in lines[0]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (None, "next_sentence: of .* none has two parts to label .row_unit = document"),
        ("mlm+nsp", "next_sentence: of .* none has two parts .*--objective mlm"),
        ("neighbor:shortest=40", "neighbor: of .* rows of at most 32 tokens none has two parts"),
        ("quick-thoughts", "sentences_found: of .* none has two sentences"),
    ],
)
def test_single_sentence_documents_refuse_sentence_pairs(
    objective: str | None, message: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text(corpus().replace(". ", ".\n").replace("\n\n", "\n"))
    changes = [*COMMON, *SMALL["bert-tiny"]]
    with pytest.raises(ValueError, match=message):
        pretrain(
            "bert-tiny",
            data=lines,
            document_separator="line",
            out=tmp_path / "run",
            steps=1,
            quiet=True,
            objective=objective,
            changes=changes,
            threads=1,
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("objective", ["mlm", "sop"])
def test_single_sentence_documents_suit_other_objectives(objective: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text(corpus().replace(". ", ".\n").replace("\n\n", "\n"))
    pretrain(
        "bert-tiny",
        data=lines,
        document_separator="line",
        out=tmp_path / "run",
        steps=1,
        quiet=True,
        objective=objective,
        changes=[*COMMON, *SMALL["bert-tiny"]],
        threads=1,
    )
    assert (tmp_path / "run" / "config.json").is_file()


def test_training_continues_from_given_weights(text: Path, tmp_path: Path) -> None:
    first = run("bert-tiny", text, tmp_path / "first")
    second = pretrain(
        "bert-tiny", data=text, out=tmp_path / "second", init_from=tmp_path / "first", steps=1,
        quiet=True, changes=[*COMMON, "learning_rate=1e-9"], threads=1,
    )  # fmt: skip
    a, b = first.model.own_weights(), second.model.own_weights()
    assert all(np.allclose(a[n].numpy(), b[n].numpy(), atol=1e-5) for n in a)
    assert second.model.decoder_architecture.d_model == 32


@pytest.mark.thorough
def test_subwords_and_their_scores_are_saved_with_the_run(text: Path, tmp_path: Path) -> None:
    first = run("canine-s-mini", text, tmp_path / "first", steps=2)
    pieces = (tmp_path / "first" / "subwords.txt").read_text()
    assert first.model.head_specs["subwords"].output_vocab_size == len(pieces.splitlines()) < 300
    loaded = load(tmp_path / "first")
    assert (loaded.loaded_model.missing, loaded.loaded_model.unexpected) == ((), ())
    assert loaded.model.head_specs == first.model.head_specs
    kept = loaded.model.own_weights()
    assert all(torch.equal(x, kept[n]) for n, x in first.model.own_weights().items())
    assert not any(n.startswith("heads.") for n in loaded.model.trained_weights())
    assert loaded.preset.objective == CANINE_S
    assert loaded.tokenizer.special_ids.output_vocabulary is not None
    _reads_as_the_reference(loaded, tmp_path / "first")
    assert loaded.evaluate(text).loss["subwords"] > 0
    more = {"data": text, "steps": 1, "quiet": True, "threads": 1}
    changes = [*COMMON, "sequence_length=96", "learning_rate=1e-9"]
    second = pretrain(
        "canine-s-mini", out=tmp_path / "on", init_from=tmp_path / "first", changes=changes, **more
    )
    assert (tmp_path / "on" / "subwords.txt").read_text() == pieces
    again = second.model.own_weights()
    assert kept.keys() == again.keys()
    assert all(np.allclose(kept[n].numpy(), again[n].numpy(), atol=1e-5) for n in kept)
    assert second.model.head_specs == first.model.head_specs


@torch.no_grad()
def _reads_as_the_reference(loaded: Pipeline, folder: Path) -> None:
    from transformers import AutoModel, CanineModel

    special = loaded.tokenizer.special_ids
    text = loaded.tokenizer.encode("The old king saw the gate.").ids
    ids = torch.tensor([[*special.prefix, *text, *special.suffix]])
    reference = AutoModel.from_pretrained(folder).eval()
    assert isinstance(reference, CanineModel)
    theirs = reference(ids).last_hidden_state
    torch.testing.assert_close(
        loaded.model.hidden_states(Batch(inputs=ids)), theirs, rtol=1e-4, atol=1e-5
    )


@pytest.mark.thorough
def test_model_without_subwords_trains_some(text: Path, tmp_path: Path) -> None:
    first = run("canine-mini", text, tmp_path / "first", steps=1)
    changes = [*COMMON, "sequence_length=96", "learning_rate=1e-9"]
    more = {"steps": 1, "quiet": True, "threads": 1}
    start = {"init_from": tmp_path / "first"}
    made = pretrain(
        "canine-s-mini", data=text, out=tmp_path / "on", changes=changes, **start, **more
    )
    a, b = first.model.own_weights(), made.model.own_weights()
    below = [n for n in b if n.startswith("backbone.")]
    assert all(np.allclose(a[n].numpy(), b[n].numpy(), atol=1e-5) for n in below)
    n = len((tmp_path / "on" / "subwords.txt").read_text().splitlines())
    assert b["heads.subwords.out.weight"].shape == (n, 32)
    changes = [c for c in changes if not c.startswith("vocab_size")]
    ready = prepare(text, out=tmp_path / "p", model="canine-s-mini", vocab_size=200, quiet=True)
    made = pretrain(
        "canine-s-mini", data=tmp_path / "p", out=tmp_path / "from-prepared", changes=changes,
        **start, **more,
    )  # fmt: skip
    assert (
        made.model.head_specs["subwords"].output_vocab_size
        == ready.tokenizer.special_ids.output_vocabulary.special_ids.vocab_size
    )
    prepare(text, out=tmp_path / "plain", model="canine-mini", quiet=True)
    with pytest.raises(ValueError, match="this tokenizer knows none beside its characters"):
        pretrain(
            "canine-s-mini", data=tmp_path / "plain", out=tmp_path / "no", changes=changes, **more
        )
    assert not (tmp_path / "no").exists()


@pytest.mark.thorough
def test_released_elmo_weights_train_on_a_new_word_list(text: Path, tmp_path: Path) -> None:
    first = run("elmo-mini", text, tmp_path / "first", steps=1)
    load(tmp_path / "first").save(tmp_path / "released", format="elmo")
    changes = [*COMMON, "sequence_length=96", "learning_rate=1e-9", "vocab_size=20"]
    on = {"data": text, "steps": 1, "quiet": True, "threads": 1, "changes": changes}
    second = pretrain("elmo-mini", out=tmp_path / "on", init_from=tmp_path / "released", **on)
    assert second.model.head_specs["both_sides"].output_vocab_size == 20
    assert len((tmp_path / "on" / "words.txt").read_text().splitlines()) == 20
    a, b = first.model.own_weights(), second.model.own_weights()
    below = [n for n in b if n.startswith("backbone.")]
    assert all(np.allclose(a[n].numpy(), b[n].numpy(), atol=1e-5) for n in below)


def test_recipe_may_change_a_head(text: Path, tmp_path: Path) -> None:
    changes = [
        *COMMON, *SMALL["bert-tiny"], "architecture.embedding_size=none",
        "heads.generator={width_factor=1.0,embedding_sharing='none'}",
    ]  # fmt: skip
    done = pretrain(
        "electra-mini", data=text, out=tmp_path / "run", steps=2, changes=changes, quiet=True
    )
    generator = done.model.head_specs["generator"]
    assert (generator.width_factor, generator.embedding_sharing) == (1.0, "none")
    assert load(tmp_path / "run" / "generator").model.decoder_architecture.d_model == 32


@pytest.mark.thorough
def test_longformer_starts_from_roberta_weights(text: Path, tmp_path: Path) -> None:
    first = run("roberta-mini", text, tmp_path / "first", steps=2)
    second = pretrain(
        "longformer-mini",
        data=text,
        out=tmp_path / "second",
        init_from=tmp_path / "first",
        steps=1,
        quiet=True,
        changes=[*COMMON, "learning_rate=1e-9", "architecture.attention_window=[8]"],
        threads=1,
    )
    a, b = first.model.own_weights(), second.model.own_weights()
    table = "backbone.position.table.weight"
    assert all(np.allclose(a[n].numpy(), b[n].numpy(), atol=1e-5) for n in a if n != table)
    assert b[table].shape == (1024 + 2, 32)
    assert np.allclose(a[table][2:], b[table][2 + 512 :], atol=1e-5)
    again = load(tmp_path / "second")
    assert again.model.decoder_architecture.attention_window == (8,)
    assert again.model.decoder_architecture.d_model == 32
    with pytest.raises(ValueError, match="is a longformer model, but the recipe's is roberta"):
        pretrain(
            "roberta-mini",
            data=text,
            out=tmp_path / "third",
            init_from=tmp_path / "second",
            steps=1,
            quiet=True,
            changes=COMMON,
        )


def test_untrained_global_projections_are_copied_on_save(text: Path, tmp_path: Path) -> None:
    weights = run("longformer-mini", text, tmp_path / "run", steps=2).model.own_weights()
    for part in ("q.weight", "k.weight", "v.weight", "v.bias"):
        learned = weights[f"backbone.layers.1.attention.{part}"]
        assert np.array_equal(learned, weights[f"backbone.layers.1.attention.wide.{part}"])


@pytest.mark.thorough
def test_recipe_dropout_applies_to_given_weights(text: Path, tmp_path: Path) -> None:
    run("bert-tiny", text, tmp_path / "first", steps=2)
    made = pretrain(
        "bert-tiny", data=text, out=tmp_path / "second", init_from=tmp_path / "first", steps=1,
        quiet=True, changes=[*COMMON, "dropout=0.25"], threads=1,
    )  # fmt: skip
    assert made.model.decoder_architecture.dropout == 0.25
    assert (
        json.loads((tmp_path / "second" / "config.json").read_text())["hidden_dropout_prob"] == 0.25
    )


@pytest.mark.thorough
def test_incompatible_weights_are_refused(text: Path, tmp_path: Path) -> None:
    run("bert-tiny", text, tmp_path / "bert", steps=1)
    run("gpt2-mini", text, tmp_path / "gpt", steps=1)
    output = {"data": text, "out": tmp_path / "new", "quiet": True, "steps": 1}
    with pytest.raises(ValueError, match="is a gpt2 model, but the recipe's is bert"):
        pretrain("bert-tiny", init_from=tmp_path / "gpt", changes=COMMON, **output)
    changes = [*COMMON, "architecture.d_ff=128"]
    with pytest.raises(ValueError, match=r"recipe.s architecture: d_ff 128 \(it has"):
        pretrain("bert-tiny", init_from=tmp_path / "bert", changes=changes, **output)
    prepare(text, out=tmp_path / "p", vocab_size=60, quiet=True)
    output["data"] = tmp_path / "p"
    changes = [c for c in COMMON if not c.startswith("vocab_size")]
    with pytest.raises(ValueError, match="was prepared with another tokenizer"):
        pretrain("bert-tiny", init_from=tmp_path / "bert", changes=changes, **output)
    assert not (tmp_path / "new").exists()


def test_run_takes_smaller_micro_batches_or_is_refused(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice is recorded, and the run continues with it where there is more memory."""
    out, free = tmp_path / "run", "unmask.jobs.pretrain.fit_memory.free_memory_bytes"
    own = [*SMALL["bert-tiny"], *COMMON]
    monkeypatch.setattr(free, lambda _: 100_000)
    with pytest.raises(ValueError, match="memory: a step of bert-tiny with one row of 32 tokens"):
        pretrain("bert-tiny", data=text, out=out, steps=2, changes=own, quiet=True)
    assert not out.exists()
    monkeypatch.setattr(free, lambda _: 2**22)
    pretrain("bert-tiny", data=text, out=out, steps=2, changes=own, quiet=True)
    monkeypatch.setattr(free, lambda _: 2**40)
    pretrain("bert-tiny", data=text, out=out, steps=2, changes=own, resume=True, quiet=True)
    recipe = json.loads((out / "unmask.json").read_text())["recipe"]
    assert (recipe["micro_batch_tokens"], recipe["batch_tokens"]) == (32, 256)


def test_run_is_resumed_by_its_folder_alone(text: Path, tmp_path: Path, monkeypatch) -> None:
    run("bert-tiny", text, tmp_path / "whole")
    stop_after(monkeypatch, 7)
    with pytest.raises(
        KeyboardInterrupt, match="stopped after step 7 of 12; continue with --resume"
    ):
        run("bert-tiny", text, tmp_path / "run")
    monkeypatch.undo()
    pretrain(out=tmp_path / "run", resume=True, quiet=True)
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")
    with pytest.raises(ValueError, match="has no run to continue"):
        pretrain(out=tmp_path / "none", resume=True)
    with pytest.raises(ValueError, match="this run has steps = 12, not 8; a resumed run must"):
        pretrain(out=tmp_path / "run", resume=True, steps=8)
    pretrain(out=tmp_path / "run", resume=True, checkpoint_every=3, quiet=True)


CONSTANT = 'schedule={kind="Constant",warmup=4}'
STABLE = 'schedule={kind="WSD",warmup=2,decay=6}'


def longer(text: Path, out: Path, monkeypatch, change: str, steps: int, stop: int | None) -> None:
    """Begin a run of 12 steps, and stop it or not."""
    changes = [*COMMON, *SMALL["bert-tiny"], change]
    output = {"data": text, "quiet": True, "threads": 1, "checkpoint_every": 5, "changes": changes}
    if stop is None:
        pretrain("bert-tiny", out=out, steps=steps, **output)
        return
    with monkeypatch.context() as patch:
        stop_after(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain("bert-tiny", out=out, steps=steps, **output)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "stop"), [(CONSTANT, 7), (CONSTANT, None), (STABLE, 6)], ids=str
)
def test_run_extended_by_steps_equals_longer_run(
    change: str, stop: int | None, text: Path, tmp_path: Path, monkeypatch
) -> None:
    out = tmp_path / "run"
    longer(text, tmp_path / "whole", monkeypatch, change, 18, None)
    longer(text, out, monkeypatch, change, 12, stop)
    with monkeypatch.context() as patch:
        stop_after(patch, 14)
        with pytest.raises(KeyboardInterrupt, match="stopped after step 14 of 18"):
            pretrain(out=out, resume=True, steps=18, quiet=True)
    facts = json.loads((out / "unmask.json").read_text())
    assert (facts["recipe"]["steps"], facts["finished"]) == (18, False)
    pretrain(out=out, resume=True, quiet=True)
    facts = json.loads((out / "unmask.json").read_text())
    assert (facts["recipe"]["steps"], facts["finished"]) == (18, True)
    assert learned(out) == learned(tmp_path / "whole")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "stop", "says"),
    [
        (
            "schedule=Linear",
            7,
            r"step 1 of 7 completed ones had the rate 0\.\d+, not 0\.\d+; ",
        ),
        (STABLE, 9, r"step 7 of 9 .*; when finished, a new run .*: --from .*run$"),
        (
            'schedule={kind="Constant",warmup=0.25}',
            7,
            r"step 1 of 7 .*; --set schedule\.warmup=3 keeps its warm-up$",
        ),
    ],
)
def test_run_whose_past_depends_on_steps_is_not_extended(
    change: str, stop: int, says: str, text: Path, tmp_path: Path, monkeypatch
) -> None:
    out = tmp_path / "run"
    longer(text, out, monkeypatch, change, 12, stop)
    with pytest.raises(ValueError, match=f"has steps = 12, not 18: its schedule .*{says}"):
        pretrain(out=out, resume=True, steps=18, quiet=True)
    assert json.loads((out / "unmask.json").read_text())["recipe"]["steps"] == 12
    if "--set" in says:
        again = {"resume": True, "steps": 18, "quiet": True, "changes": ["schedule.warmup=3"]}
        pretrain(out=out, **again)
        warm = 'schedule={kind="Constant",warmup=3}'
        longer(text, tmp_path / "whole", monkeypatch, warm, 18, None)
        assert learned(out) == learned(tmp_path / "whole")
    else:
        pretrain(out=out, resume=True, quiet=True)


FALLING = (
    'objective={kind="Objective",select={kind="ScheduledRate",initial_rate=0.6,'
    'final_selection={kind="TokenMasking",rate=0.1}},'
    'corrupt={kind="MaskInPlace",mask_probability=0.8,random_token_probability=0.1}}'
)


@pytest.mark.thorough
def test_run_with_scheduled_masking_rate_is_not_extended(
    text: Path, tmp_path: Path, monkeypatch
) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"], CONSTANT, FALLING]
    output = {"data": text, "quiet": True, "threads": 1, "checkpoint_every": 5, "changes": changes}
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            pretrain("bert-tiny", out=tmp_path / "run", steps=12, **output)
    with pytest.raises(ValueError, match="has steps = 12, not 18: its objective depends on that"):
        pretrain(out=tmp_path / "run", resume=True, steps=18, quiet=True)
    pretrain(out=tmp_path / "run", resume=True, quiet=True)
    pretrain("bert-tiny", out=tmp_path / "whole", steps=12, **output)
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


@pytest.mark.thorough
def test_masking_rate_schedule_in_minutes_equals_steps(
    text: Path, tmp_path: Path, monkeypatch
) -> None:
    from unmask.training import loop

    changes = [*COMMON, *SMALL["bert-tiny"], CONSTANT, FALLING]
    output = {"data": text, "quiet": True, "threads": 1, "changes": changes}
    monkeypatch.setattr(loop, "estimate_steps", lambda run, minutes: 6)
    pretrain("bert-tiny", out=tmp_path / "minutes", minutes=0.02, **output)
    pretrain("bert-tiny", out=tmp_path / "steps", steps=6, **output)
    assert learned(tmp_path / "minutes") == learned(tmp_path / "steps")


@pytest.mark.thorough
def test_run_of_minutes_extended_by_steps_becomes_one_of_steps(
    text: Path, tmp_path: Path, monkeypatch
) -> None:
    from unmask.training import loop

    changes = [*COMMON, *SMALL["bert-tiny"], CONSTANT]
    output = {
        "data": text,
        "out": tmp_path / "run",
        "quiet": True,
        "threads": 1,
        "changes": changes,
    }
    monkeypatch.setattr(loop, "estimate_steps", lambda run, minutes: 6)
    pretrain("bert-tiny", minutes=0.02, **output)
    assert json.loads((tmp_path / "run" / "unmask.json").read_text())["minutes"] == 0.02
    pretrain(out=tmp_path / "run", resume=True, steps=9, quiet=True)
    facts = json.loads((tmp_path / "run" / "unmask.json").read_text())
    assert facts["recipe"]["steps"] == 9
    assert "minutes" not in facts


@pytest.mark.thorough
def test_run_stopped_before_its_first_step_resumes(text: Path, tmp_path: Path, monkeypatch) -> None:
    from unmask.jobs.corpus import prepare as preparing

    def stop(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    run("bert-tiny", text, tmp_path / "whole")
    monkeypatch.setattr(preparing, "write_shards", stop)
    with pytest.raises(KeyboardInterrupt, match="interrupted; continue with --resume"):
        run("bert-tiny", text, tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="holds a run already"):
        run("bert-tiny", text, tmp_path / "run")
    pretrain(out=tmp_path / "run", resume=True, quiet=True, threads=1)
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Press Ctrl-C after a step."""
    from unmask.training.log import TrainingLog

    log = TrainingLog.__call__

    def call(self, report):
        log(self, report)
        if report.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingLog, "__call__", call)


@pytest.mark.thorough
def test_minutes_are_kept_until_measured(text: Path, tmp_path: Path, monkeypatch) -> None:
    from unmask.training import loop

    def stop(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    changes = [*COMMON, *SMALL["bert-tiny"]]
    output = {
        "data": text,
        "out": tmp_path / "run",
        "quiet": True,
        "threads": 1,
        "changes": changes,
    }
    monkeypatch.setattr(loop, "estimate_steps", stop)
    with pytest.raises(KeyboardInterrupt):
        pretrain("bert-tiny", minutes=0.02, **output)
    facts = json.loads((tmp_path / "run" / "unmask.json").read_text())
    assert (facts["recipe"]["steps"], facts["minutes"]) == (None, 0.02)
    given = []

    def measure(run, minutes):
        given.append(minutes)
        return 5

    monkeypatch.setattr(loop, "estimate_steps", measure)
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        pretrain(out=tmp_path / "run", resume=True, quiet=True)
    monkeypatch.setattr(loop, "estimate_steps", stop)  # once is enough
    pretrain("bert-tiny", minutes=0.02, resume=True, **output)
    assert given == [0.02]
    facts = json.loads((tmp_path / "run" / "unmask.json").read_text())
    assert (facts["recipe"]["steps"], facts["finished"]) == (5, True)


@pytest.mark.thorough
def test_resumed_run_uses_the_same_number_of_threads(
    text: Path, tmp_path: Path, monkeypatch
) -> None:
    run("bert-tiny", text, tmp_path / "run", steps=1)
    requested = []
    monkeypatch.setattr(distributed, "set_threads", lambda n: requested.append(n) or 1)
    pretrain(out=tmp_path / "run", resume=True, quiet=True)
    pretrain(out=tmp_path / "run", resume=True, quiet=True, threads=2)
    assert requested == [1, 2]


@pytest.mark.thorough
def test_options_and_changes_are_applied_together(text: Path, tmp_path: Path) -> None:
    """On its own, neither would fit the card's batches of 4,096 tokens or rows of 128."""
    changes = ["batch_tokens=64", "dev_fraction=0.1", *SMALL["bert-tiny"]]
    pretrain(
        "bert-tiny",
        data=text,
        out=tmp_path / "run",
        sequence_length=32,
        vocab_size=100,
        tokens=129,
        quiet=True,
        changes=changes,
        threads=1,
    )
    recipe = json.loads((tmp_path / "run" / "unmask.json").read_text())["recipe"]
    assert (recipe["sequence_length"], recipe["batch_tokens"], recipe["steps"]) == (32, 64, 3)


@pytest.mark.parametrize("key", ["objective.objective.select.rate", "objective.select.rate"])
def test_recipe_is_a_difference_to_the_presets_objective(
    key: str, text: Path, tmp_path: Path
) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"], f"{key}=0.4"]
    made = pretrain(
        "bert-tiny", data=text, out=tmp_path / "r", steps=1, quiet=True, changes=changes, threads=1
    )
    assert made.preset.objective.objective.select.rate == 0.4
    assert made.preset.objective.sentence_task is not None
    assert load(tmp_path / "r").preset.objective == made.preset.objective


APART = (
    'objective={kind="SplitTextObjective",objective={kind="Objective",'
    'select={kind="TokenMasking",rate=0.2},'
    'corrupt={kind="MaskInPlace",mask_probability=0.8,random_token_probability=0.1}}}'
)


@pytest.mark.thorough
@pytest.mark.parametrize("packing", ["bucket", "pack"])
def test_any_encoder_can_be_trained_on_contrastive_parts(
    packing: str, text: Path, tmp_path: Path
) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"], APART, f'packing="{packing}"', "batch_tokens=1024"]
    made = pretrain(
        "bert-tiny", data=text, out=tmp_path / "r", steps=40, quiet=True, changes=changes,
        threads=1, seed=1,
    )  # fmt: skip
    lines = (tmp_path / "r" / "log.jsonl").read_text().splitlines()
    first, *_, last = (
        line["evaluation"] for line in map(json.loads, lines) if "evaluation" in line
    )
    assert last["neighbor_asked"] > 8
    assert last["neighbor_loss"] < first["neighbor_loss"]
    loaded = load(tmp_path / "r")
    assert loaded.preset.objective == made.preset.objective
    assert set(loaded.evaluate(text).loss) == {"masked", "neighbor"}
    assert (tmp_path / "r" / "config.json").read_text().count("BertForMaskedLM") == 1
    on = pretrain(
        "bert-tiny", data=text, out=tmp_path / "on", steps=1, init_from=str(tmp_path / "r"),
        quiet=True, changes=changes, threads=1,
    )  # fmt: skip
    assert set(on.model.head_specs) == {"language", "neighbor"}


def test_frozen_parameters_stay_bitwise_equal(text: Path, tmp_path: Path, monkeypatch) -> None:
    more = {"seed": 3, "threads": 1, "quiet": True, "data": text, "checkpoint_every": 3}
    changes = [*COMMON, *SMALL["bert-tiny"], 'frozen=["backbone.tokens.*", "*.layers.0.*"]']
    made = pretrain("bert-tiny", out=tmp_path / "r", steps=8, changes=changes, **more)
    once = pretrain("bert-tiny", out=tmp_path / "once", steps=1, changes=changes, **more)
    first, last = once.model.own_weights(), made.model.own_weights()
    same = {name for name in last if torch.equal(first[name], last[name])}
    assert same == {n for n in last if n.startswith(("backbone.tokens", "backbone.layers.0."))}
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            pretrain("bert-tiny", out=tmp_path / "broken", steps=8, changes=changes, **more)
    pretrain(out=tmp_path / "broken", resume=True, threads=1, quiet=True)
    assert learned(tmp_path / "broken") == learned(tmp_path / "r")


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        ('["backbone.token.*"]', r"frozen: no parameter is called 'backbone\.token\.\*'"),
        ('["*"]', r"frozen: \* leaves nothing to train"),
    ],
)
def test_frozen_pattern_must_match_some_and_leave_some(
    frozen: str, message: str, text: Path, tmp_path: Path
) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"], f"frozen={frozen}"]
    with pytest.raises(ValueError, match=message):
        pretrain("bert-tiny", data=text, out=tmp_path / "r", steps=2, quiet=True, changes=changes)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("skip-thoughts-mini", [], "sentences_said: of 39 rows of at most 128 tokens none has two"),
        ("quick-thoughts-mini", [], r"none has two sentences \(row_unit = sentences\)"),
        (
            "quick-thoughts-mini",
            ["batch_tokens=128"],
            "a batch has at most 2 sentences, so that each has only one to choose from",
        ),
    ],
)
def test_neighbor_objectives_without_neighbors_are_refused(
    name: str, changes: list[str], message: str, tmp_path: Path
) -> None:
    long = f"The {'the ' * 30}end."
    output = f"{long} {long}" if changes else long
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([output] * 40) + "\n")
    sizes = ("d_model", "embedding_size", "d_ff")
    small = ["vocab_size=60", *(f"architecture.{name}=8" for name in sizes)]
    with pytest.raises(ValueError, match=message):
        pretrain(
            name, data=text, out=tmp_path / "run", steps=1, quiet=True, changes=[*small, *changes]
        )
    assert not (tmp_path / "run").exists()


def test_run_that_cannot_start_leaves_nothing(text: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(text.read_bytes() + b"\xff")
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "new", tmp_path / "empty", tmp_path / "new" / "in" / "new"):
        with pytest.raises(ValueError, match="invalid UTF-8"):
            run("bert-tiny", bad, out)
        assert not out.exists() or not list(out.iterdir())
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "empty").exists()
    run("bert-tiny", bad, tmp_path / "new", steps=1, encoding_errors="replace")


@pytest.mark.thorough
def test_invalid_byte_late_in_text_keeps_earlier_shards(
    text: Path, tmp_path: Path, monkeypatch
) -> None:
    from unmask.jobs.corpus import prepare as preparing
    from unmask.shards import workers

    second = tmp_path / "second.txt"
    second.write_text(corpus(3, seed=1))
    run("bert-tiny", [text, second], tmp_path / "whole")
    write = preparing.write_shards
    monkeypatch.setattr(preparing, "write_shards", lambda *a, **k: write(*a, **k, shard_tokens=500))
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 1000)
    second.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="invalid UTF-8"):
        run("bert-tiny", [text, second], tmp_path / "run", tokenizer=tmp_path / "whole")
    tokens = tmp_path / "run" / "data" / "00000.tokens"
    before = tokens.stat().st_mtime_ns
    second.write_text(corpus(3, seed=1))
    pretrain(out=tmp_path / "run", resume=True, quiet=True)
    assert tokens.stat().st_mtime_ns == before
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [name for name in SMALL if name != "elmo-mini"])
def test_report_has_samples_before_and_after(name: str, text: Path, tmp_path: Path) -> None:
    run(name, text, tmp_path / "run")
    samples = json.loads((tmp_path / "run" / "samples.json").read_text())
    assert samples
    assert all(sample["before"] and sample["after"] for sample in samples)
    baselines = tmp_path / "run" / "baselines.json"
    assert baselines.exists() == (name != "t5-mini")


@pytest.mark.quick("bert-tiny")
@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-mini"])
def test_samples_of_a_run_that_goes_on_leave_its_curve_as_it_is(
    name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    whole = train.save_samples

    def save(folder: Path, samples: Sequence[ReportSample]) -> Path:
        seen.append(all(one.before and one.after for one in cast("Sequence[Fill]", samples)))
        return whole(folder, samples)

    run(name, text, tmp_path / "plain")
    monkeypatch.setattr(train, "save_samples", save)
    monkeypatch.setattr(train, "FIRST_SAMPLES_SECONDS", 0.0)
    monkeypatch.setattr(train, "MAX_SAMPLING_FRACTION", math.inf)
    run(name, text, tmp_path / "sampled")
    assert len(seen) > 2
    assert seen == [False, *[True] * (len(seen) - 1)]
    assert learned(tmp_path / "sampled") == learned(tmp_path / "plain")


@pytest.mark.sample(4)
@pytest.mark.quick("two words", "bert-tiny")
@pytest.mark.parametrize("words", ["word", "two words", "one text\n\nand another"])
@pytest.mark.parametrize("name", SMALL)
def test_few_words_suffice_except_for_next_sentence(name: str, words: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(words)
    if name == "bert-tiny":
        with pytest.raises(ValueError, match=r"next_sentence: of [12] rows .* none has two parts"):
            run(name, text, tmp_path / "run", steps=2)
        return
    made = run(name, text, tmp_path / "run", steps=2)
    assert made.evaluate(text).tokens > 0


@pytest.mark.thorough
def test_without_held_out_text_there_is_no_evaluation(text: Path, tmp_path: Path) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"], "dev_fraction=0.0"]
    pretrain("bert-tiny", data=text, out=tmp_path / "r", steps=7, quiet=True, changes=changes)
    assert not (tmp_path / "r" / "samples.json").exists()
    assert "evaluation" not in (tmp_path / "r" / "log.jsonl").read_text()


@pytest.mark.parametrize(
    ("expected_message", "message"),
    [
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"minutes": 0}, "minutes must be above 0, got 0"),
        ({"minutes": float("nan")}, "minutes must be above 0, got nan"),
        ({"steps": 1, "tokens": 1, "minutes": 1}, "got steps and tokens and minutes"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"workers": 10**6}, "workers must be at most .* here, with .* cores, got 1000000"),
        ({"threads": 10**6}, "threads must be at most 1,024, got 1000000"),
        ({"sequence_length": 0}, "sequence_length must be at least 1, got 0"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_invalid_number_is_one_clear_error(
    expected_message: dict, message: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        pretrain("bert-tiny", data=text, out=tmp_path / "run", quiet=True, **expected_message)
    assert not (tmp_path / "run").exists()


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sequence_lenght=3", "did you mean 'sequence_length'"),
        ("sequence_length=1024", "at most the model's 512 positions"),
        ("architecture={d_modle=3}", "did you mean 'd_model'"),
        ("architecture={n_heads=3}", "not a multiple"),
        ({"architecture": {"n_heads": 3}}, "not a multiple"),
        ("heads.langauge.bias=false", "heads: unknown key 'langauge'; did you mean 'language'"),
        ("heads.language=false", "heads.language: must be a table, got False"),
        ("heads.language.sise=2", "unknown key 'heads.language.sise'"),
        ("learning_rate=fast", "rate"),
        (
            "objective={kind='Objective', select={kind='ContextSpanMasking'}, "
            "corrupt={kind='PermutationLM'}}",
            "positions must be in the attention scores",
        ),
    ],
)
def test_invalid_recipe_is_one_clear_error_and_leaves_nothing(
    change: str | dict[str, object], message: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        pretrain(
            "bert-tiny",
            data=text,
            out=tmp_path / "run",
            steps=1,
            changes=["batch_tokens=2048", change],
            quiet=True,
        )
    assert not (tmp_path / "run").exists()


def test_unsuitable_folders_are_refused(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("bert-tiny", text, out, steps=2)
    before = learned(out)
    with pytest.raises(ValueError, match="holds a run already"):
        run("bert-tiny", text, out, steps=2)
    with pytest.raises(ValueError, match=r"this run has seed = 0, not 5"):
        run("bert-tiny", text, out, steps=2, resume=True, seed=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds files, but not a run"):
        run("bert-tiny", text, tmp_path / "other", steps=2)
    with pytest.raises(ValueError, match="is a file"):
        run("bert-tiny", text, text, steps=2)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run("bert-tiny", tmp_path / "nowhere.txt", tmp_path / "new", steps=2)
    assert learned(out) == before


@pytest.fixture
def languages(tmp_path: Path) -> list[Path]:
    """Text of one language, and an eighth as much of another."""
    for name, n in (("en", 48), ("fr", 6)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text(corpus(n, seed=n))
    return [tmp_path / "en", tmp_path / "fr"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", SMALL)
def test_any_model_reads_rows_of_several_documents(name: str, text: Path, tmp_path: Path) -> None:
    masked = json.dumps(to_dict(MASKED_LM)).replace('": ', '" = ')
    changes = [*COMMON, *SMALL[name], "row_unit=corpus", "packing=pack"]
    changes += [f"objective={masked}"] if name == "bert-tiny" else []
    made = pretrain(name, data=text, out=tmp_path / "run", steps=3, changes=changes, quiet=True)
    recipe = json.loads((tmp_path / "run" / "unmask.json").read_text())["recipe"]
    assert recipe["row_unit"] == "corpus"
    assert np.isfinite(list(made.evaluate(text).loss.values())).all()


def test_roberta_rows_join_documents_and_bert_rows_do_not() -> None:
    for name in ("roberta-mini", "roberta-large", "xlm-roberta-base", "longformer-base-4096"):
        assert preset_recipe(name).row_unit == "corpus"
    for name in ("bert-base-cased", "bertweet-base"):
        assert preset_recipe(name).row_unit == "document"


@pytest.mark.thorough
@pytest.mark.quick("0")
@pytest.mark.parametrize("workers", [0, 2])
def test_sampled_run_resumed_within_an_epoch_equals_uninterrupted(
    workers: int, languages: list[Path], tmp_path: Path, monkeypatch
) -> None:
    more = {"sampling_exponent": 0.3, "checkpoint_every": 7}
    run("bert-tiny", languages, tmp_path / "whole", steps=60, **more)
    stop_after(monkeypatch, 31)
    with pytest.raises(KeyboardInterrupt, match="stopped after step 31 of 60"):
        run("bert-tiny", languages, tmp_path / "broken", steps=60, workers=workers, **more)
    monkeypatch.undo()
    newest = max((tmp_path / "broken" / "checkpoints").iterdir())
    cursor = json.loads((newest / "progress.json").read_text())["cursor"]
    assert cursor["batch"] > 0
    run("bert-tiny", languages, tmp_path / "broken", steps=60, resume=True, **more)
    assert learned(tmp_path / "broken") == learned(tmp_path / "whole")
    run("bert-tiny", languages, tmp_path / "plain", steps=60, checkpoint_every=7)
    assert learned(tmp_path / "plain") != learned(tmp_path / "whole")


def test_sampled_run_reports_share_of_each_source(
    languages: list[Path], tmp_path: Path, capsys
) -> None:
    changes = [*COMMON, *SMALL["bert-tiny"]]
    pretrain(
        "bert-tiny",
        data=languages,
        out=tmp_path / "run",
        steps=2,
        changes=changes,
        sampling_exponent=0.5,
        threads=1,
    )
    lines = capsys.readouterr().err.split("\n")
    (line,) = [x for x in lines if x.startswith("sampling_exponent = ")]
    assert f"{languages[0]} has 8" in line
    sources = json.loads((tmp_path / "run" / "unmask.json").read_text())["sources"]
    small, large = sources[str(languages[1])], sources[str(languages[0])]
    assert small["share"] + large["share"] == pytest.approx(1)
    odds = (small["share"] / large["share"]) ** 0.5
    assert small["gets"] / large["gets"] == pytest.approx(odds)
    assert f"{small['gets']:.1%}" in line
    assert 0.05 < small["share"] < 0.2 < small["gets"]


def test_epoch_of_sampled_run_has_the_reported_shares(
    languages: list[Path], tmp_path: Path
) -> None:
    prepare(languages, out=tmp_path / "data", model="bert-tiny", vocab_size=300, quiet=True)
    shards = TokenShards.open(tmp_path / "data")
    recipe = Recipe(
        model="bert-tiny",
        data=(str(tmp_path / "data"),),
        sampling_exponent=0.3,
        dev_fraction=0.1,
        batch_tokens=256,
    )
    data = build_training_data(shards, recipe, MASKED_LM, 32)
    n = len(data.train_rows.row_spans)
    of = source_of_rows(shards, data.train_rows)
    plan = data.make_loader(data.train_rows, DataCursor(), sample_sources=True).plan
    sizes = data.train_rows.row_lengths
    for epoch in range(3):
        rows = plan.row_order(epoch) % n
        got = np.bincount(of[rows], sizes[rows])
        assert got / got.sum() == pytest.approx(
            [s.sampling_share for s in data.source_shares], abs=0.02
        )
        assert got.sum() == pytest.approx(sizes.sum(), rel=0.05)
    dev = source_of_rows(shards, data.dev_rows)
    assert set(dev.tolist()) == {0, 1}, "both are evaluated"


def test_sampling_without_sources_is_one_clear_error(
    text: Path, languages: list[Path], tmp_path: Path
) -> None:
    message = r"sampling_exponent = 0.3 needs several sources, and .*text"
    with pytest.raises(ValueError, match=message):
        run("bert-tiny", text, tmp_path / "run", sampling_exponent=0.3)
    prepare(text, out=tmp_path / "data", model="bert-tiny", vocab_size=120, quiet=True)
    with pytest.raises(ValueError, match="does not say of several sources which document"):
        pretrain(
            "bert-tiny",
            data=tmp_path / "data",
            out=tmp_path / "run",
            steps=2,
            sampling_exponent=0.3,
        )
    with pytest.raises(ValueError, match="sampling_exponent must be from 0 to 1, got -1"):
        run("bert-tiny", languages, tmp_path / "run", sampling_exponent=-1)
    assert not (tmp_path / "run").exists()
