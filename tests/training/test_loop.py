import json
import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints import folder as checkpoints
from unmask.heads.prediction import Prediction, Term
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.device.distributed import World
from unmask.training.interrupt import interrupt_on_signal, stop_after_step, stop_exit_status
from unmask.training.log import TrainingLog
from unmask.training.optimizers.config import LAMB, AdamW, Muon
from unmask.training.resume import restore_run, save_checkpoint, trained_tensors
from unmask.training.schedules import Constant
from unmask.training.step_report import LossSums, RecentSteps

HERE = Path(__file__).parent
KINDS = [
    (precision, optimizer)
    for precision in ("float32", "bfloat16")
    for optimizer in (AdamW(), LAMB(), Muon())
]


def state(run):
    return {
        n: t.clone() for n, t in {**trained_tensors(run), **run.optimizer.state_tensors()}.items()
    }


def assert_equal(a, b):
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


def trained(run, folder=None, until=None, save_at=()):
    if folder is None:
        for report in loop.train(run):
            if report.step == until:
                break
        return run
    with TrainingLog(folder) as log:
        for report in loop.train(run):
            log(report)
            if report.step in save_at:
                save_checkpoint(run, folder)
            if report.step == until:
                break
    return run


@pytest.mark.trials("signals and clocks")
@pytest.mark.sample(2)
@pytest.mark.parametrize(("precision", "optimizer"), KINDS)
def test_ten_steps_and_ten_resumed_equal_twenty(tmp_path, precision, optimizer):
    """Weights, optimizer, progress, log, bit for bit; with dropout and two micro-batches a step."""
    changes = dict(
        precision=precision, optimizer=optimizer, steps=20, learning_rate=1e-2, log_every=3
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    straight = trained(toy.run(**changes), tmp_path / "a", save_at=[20])
    trained(toy.run(**changes), tmp_path / "b", until=13, save_at=[10])
    again = trained(toy.resume_run(tmp_path / "b", **changes), tmp_path / "b", save_at=[20])
    assert_equal(state(straight), state(again))
    assert straight.progress == again.progress
    a, b = (tmp_path / name for name in "ab")
    assert (a / "log.jsonl").read_bytes() == (b / "log.jsonl").read_bytes()
    last = "checkpoints/step-00000020"
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (a / last / name).read_bytes() == (b / last / name).read_bytes()
    moved = toy.run(**changes)
    assert not torch.equal(state(moved)["backbone.up.weight"], state(again)["backbone.up.weight"])


@pytest.mark.trials("signals and clocks")
@settings(max_examples=12)
@given(
    stops=st.lists(st.integers(1, 11), unique=True).map(sorted),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**63 - 1),
)
def test_repeatedly_resumed_run_equals_uninterrupted(tmp_path_factory, stops, kind, seed):
    changes = dict(
        precision=kind[0], optimizer=kind[1], steps=12, learning_rate=1e-2, log_every=5, seed=seed
    )
    a, b = (tmp_path_factory.mktemp(name) for name in "ab")
    straight = trained(toy.run(**changes), a)
    again = toy.run(**changes)
    for stop in stops:
        trained(again, b, until=stop, save_at=[stop])
        again = toy.resume_run(b, **changes)
    trained(again, b)
    assert_equal(state(straight), state(again))
    assert (a / "log.jsonl").read_bytes() == (b / "log.jsonl").read_bytes()


def python(arguments):
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, check=True, timeout=300, env=environment, capture_output=True, text=True
    )


def killed(tmp_path, kills, seed, precision, model="toy"):
    python([str(HERE / "killed.py"), str(tmp_path), str(kills), str(seed), precision, model])
    a, b = tmp_path / "straight", tmp_path / "killed"
    assert (a / "log.jsonl").read_bytes() == (b / "log.jsonl").read_bytes()
    names = sorted(p.name for p in (a / "checkpoints").iterdir())
    assert names == ["step-00000039", "step-00000040"]
    assert sorted(p.name for p in (b / "checkpoints").iterdir()) == names
    for name in names:
        for file in ("model.safetensors", "optimizer.safetensors", "progress.json"):
            path = f"checkpoints/{name}/{file}"
            mine, theirs = (a / path).read_bytes(), (b / path).read_bytes()
            if file == "progress.json":  # the lengths of the timings differ
                mine, theirs = (json.loads(x) | {"logs": 0} for x in (mine, theirs))
            assert mine == theirs, path
    return json.loads((tmp_path / "said.json").read_text())


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_repeatedly_killed_run_equals_uninterrupted(tmp_path, trials):
    died = killed(tmp_path, 6, 0, "bfloat16")["died"]
    assert died >= 2
    trials.count("kills", died)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("model", ["bart-mini"])
def test_killed_encoder_decoder_run_equals_uninterrupted(tmp_path, model, trials):
    died = killed(tmp_path, 3, 0, "bfloat16", model)["died"]
    assert died >= 1
    trials.count("kills", died)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("seed", range(3))
def test_run_killed_twenty_times_equals_uninterrupted(tmp_path, precision, seed, trials):
    output = killed(tmp_path, 20, seed, precision)
    assert output["died"] >= 5
    assert output["half"] >= 1
    trials.count("kills", output["died"])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_micro_batching_does_not_change_a_step(precision):
    def one(cut, rows=8):
        recipe = Recipe(
            model="toy",
            steps=5,
            precision=precision,
            optimizer=AdamW(eps=1e-2),
            schedule=Constant(),
        )
        model = toy.model()
        model.backbone.dropout = 0.0
        run = loop.start_run(recipe, model, toy.batches(cut))
        return run, list(loop.train(run))

    whole, reports = one((0, 8))
    for cut in ((0, 3, 8), tuple(range(9)), (0, 0, 8, 8)):
        run, others = one(cut)
        # Sums in another order; in bfloat16 each micro-batch's gradient is rounded by itself.
        rough = dict(rtol=1e-5, atol=1e-6) if precision == "float32" else dict(rtol=0.02, atol=2e-4)
        for a, b in zip(reports, others, strict=True):
            assert a.loss == pytest.approx(b.loss, rel=rough["rtol"])
            assert a.gradient_norm == pytest.approx(b.gradient_norm, rel=rough["rtol"])
            assert (a.n_tokens, a.sums.n_targets) == (b.n_tokens, b.sums.n_targets)
        for name, t in whole.weights.masters.items():
            torch.testing.assert_close(run.weights.masters[name], t, **rough)


COMPILED = """
import toy
from unmask.training import loop
from unmask.training.config import Recipe

for compiled in (True, False):
    recipe = Recipe(model="toy", steps=4, precision="float32", compile=compiled)
    model = toy.model()
    model.backbone.dropout = 0.0
    print(*(report.loss for report in loop.train(loop.start_run(recipe, model, toy.batches()))))
"""


@pytest.mark.slow
def test_compiled_model_takes_equal_steps_up_to_rounding():
    """In a process of its own: the compiler cannot read through the checks of shapes."""
    output = python(["-c", COMPILED]).stdout.splitlines()
    compiled, plain = ([float(loss) for loss in line.split()] for line in output)
    assert len(plain) == 4
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_step_loss_equals_the_models_loss():
    recipe = Recipe(model="toy", steps=1, precision="float32")
    model = toy.model()
    model.backbone.dropout = 0.0
    expected = model(toy.rows(0)).loss.item()
    (report,) = loop.train(loop.start_run(recipe, model, toy.batches()))
    assert report.loss == pytest.approx(expected, rel=1e-6)
    assert set(report.mean_losses) == {"masked", "label"}
    assert report.accuracy.keys() == {"masked", "label"}
    assert report.step_tokens == report.n_tokens == 8 * toy.T


def test_run_learns_a_fixed_distribution():
    def same(cursor):
        while True:
            yield [toy.part(toy.rows(0), 0, 4)], None

    recipe = Recipe(
        model="toy", steps=300, learning_rate=0.03, precision="float32", schedule=Constant()
    )
    model = toy.model()
    model.backbone.dropout = 0.0
    reports = list(loop.train(loop.start_run(recipe, model, same)))
    assert reports[0].loss > 3
    # What is hidden looks the same everywhere, so the best is the frequency of each answer.
    answers = toy.rows(0).targets[:4]
    answers = answers[answers != IGNORE_INDEX]
    share = answers.unique(return_counts=True)[1] / len(answers)
    entropy = -(share * share.log()).sum().item()
    assert reports[-1].loss < entropy + 0.75


def spoiled(run, steps, how):
    """Let the model answer nonsense in some steps."""
    forward = run.forward

    def spoil(batch):
        prediction = forward(batch)
        if run.progress.step + 1 not in steps:
            return prediction
        weight = run.weights.parameters["backbone.up.bias"]
        terms = {
            name: Term(how(term.total, weight), term.count, term.n_correct)
            for name, term in prediction.terms.items()
        }
        return Prediction(terms=terms)

    run.forward = spoil
    return run


HOW = {
    "the loss is no number": lambda total, weight: total * math.nan,
    "the loss is infinite": lambda total, weight: total + math.inf,
    "the gradient alone is no number": lambda total, weight: (
        total + (weight * 0).abs().sum().sqrt()
    ),
}


@pytest.mark.trials("numbers")
@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_non_finite_step_is_skipped_and_counted(tmp_path, how, precision):
    run = spoiled(toy.run(steps=9, precision=precision, log_every=3), {4, 5}, how)
    before, reports = state(run), []
    for report in loop.train(run):
        reports.append(report)
        after = state(run)
        same = all(torch.equal(before[n], after[n]) for n in before if n != "seen")
        assert same == (report.step in (4, 5))
        before = after
    assert [r.was_skipped for r in reports] == [False] * 3 + [True] * 2 + [False] * 4
    assert reports[-1].n_skipped == run.progress.n_skipped == 2
    assert not math.isfinite(reports[3].loss) or not math.isfinite(reports[3].gradient_norm)
    assert all(math.isfinite(r.loss) for r in reports if not r.was_skipped)
    since = [r.sums_since_log for r in reports if r.sums_since_log is not None]
    assert all(s.is_finite for s in since)
    # Of steps 4, 5 and 6, only the last counts.
    assert since[1].n_targets == reports[5].sums.n_targets


@pytest.mark.trials("numbers")
def test_too_many_consecutive_skips_end_the_run_with_the_step(tmp_path):
    how = HOW["the loss is no number"]
    run = spoiled(toy.run(steps=20, max_skipped_steps=3, precision="float32"), {2, 3, 5, 6, 7}, how)
    output = r"step 7: .* not finite in 3 steps in a row \(loss nan"
    with pytest.raises(FloatingPointError, match=output):
        trained(run, tmp_path, save_at=[6])
    assert run.progress.step == 7
    again = spoiled(
        toy.resume_run(tmp_path, steps=20, max_skipped_steps=3, precision="float32"), {7}, how
    )
    with pytest.raises(FloatingPointError, match="step 7"):
        trained(again)


SPIKE = {"the loss is far above": lambda total, weight: total * 50}


@pytest.mark.trials("numbers")
def test_spike_is_skipped_and_resumed_exactly(tmp_path):
    steps, how = {131, 133}, SPIKE["the loss is far above"]
    options = dict(steps=135, precision="float32", skip_spikes=6.0, log_every=1)
    run = spoiled(toy.run(**options), steps, how)
    before, skipped = state(run), []
    for report in loop.train(run):
        after = state(run)
        same = all(torch.equal(before[n], after[n]) for n in before if n != "seen")
        assert same == report.was_skipped
        before = after
        if report.was_skipped:
            skipped.append(report.step)
        if report.step == 132:
            save_checkpoint(run, tmp_path)
    assert skipped == [131, 133]
    again = spoiled(toy.resume_run(tmp_path, **options), steps, how)
    assert again.progress.n_skipped == 1
    assert [r.step for r in loop.train(again) if r.was_skipped] == [133]
    assert all(torch.equal(state(run)[n], state(again)[n]) for n in state(run))
    assert again.progress == run.progress


def test_spikes_are_not_skipped_unless_asked_for():
    run = spoiled(toy.run(steps=133, precision="float32"), {131}, SPIKE["the loss is far above"])
    assert not any(r.was_skipped for r in loop.train(run))
    assert run.progress.recent.losses == ()


def test_level_that_stays_is_soon_no_spike():
    recent = RecentSteps()
    for i in range(128):
        recent = recent.add(1 + i % 2 / 10, 1.0)
    n = 0
    while recent.is_spike(3.0, 1.0, 6):
        recent, n = recent.add(3.0, 1.0), n + 1
    assert 1 <= n < 10
    assert not RecentSteps().is_spike(1e9, 1e9, 6)


@pytest.mark.trials("numbers")
def test_step_without_targets_has_zero_loss():
    def nothing(cursor):
        yield [replace(toy.rows(0), targets=torch.full((8, toy.T), IGNORE_INDEX), labels=None)], 1
        yield [], 2
        yield [toy.rows(0)], 3

    run = toy.run(steps=3, precision="float32")
    run.batches = nothing
    a, b, c = loop.train(run)
    assert (a.loss, a.gradient_norm, a.accuracy, a.n_skipped) == (0, 0, {}, 0)
    assert (b.loss, b.gradient_norm, b.n_tokens, b.n_skipped) == (0, 0, a.n_tokens, 0)
    assert c.loss > 1
    assert all(torch.isfinite(t).all() for t in state(run).values())


def test_data_ending_too_early_is_an_error():
    run = toy.run(steps=3, precision="float32")
    run.batches = lambda cursor: iter([([toy.rows(0)], 1)])
    with pytest.raises(ValueError, match="the data ended before step 2 of 3"):
        trained(run)


def test_finished_run_takes_no_more_steps():
    run = trained(toy.run(steps=2, precision="float32"))
    assert list(loop.train(run)) == []


def test_abandoned_generator_can_be_continued():
    straight = trained(toy.run(steps=6))
    left = toy.run(steps=6)
    for until in (2, 3, None):
        trained(left, until=until)
    assert_equal(state(straight), state(left))


def test_dropout_depends_on_the_seed_only():
    def losses(**changes):
        run = loop.start_run(
            Recipe(model="toy", steps=3, precision="float32", **changes), toy.model(), toy.batches()
        )
        torch.manual_seed(hash(str(changes)) % 1000)
        return [report.loss for report in loop.train(run)]

    assert losses(seed=1) == losses(seed=1, log_every=7)
    assert losses(seed=1) != losses(seed=2)


def test_seeds_are_portable_and_distinct():
    assert loop.derive_seed(0, 1, 0, 0) == 10414705469639538944
    seeds = {
        loop.derive_seed(seed, step, i, rank)
        for seed in range(5)
        for step in range(5)
        for i in range(5)
        for rank in range(5)
    }
    assert len(seeds) == 5**4


def test_model_computes_in_the_recipes_precision():
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        run = toy.run(precision=precision, steps=1)
        assert {p.dtype for p in run.model.parameters()} == {dtype}
        assert run.recipe.precision == precision
    assert toy.run(precision="auto").recipe.precision in ("float32", "bfloat16")


def test_finished_model_is_float32_in_evaluation_mode():
    run = trained(toy.run(precision="bfloat16", steps=2))
    masters = {n: t.clone() for n, t in run.weights.masters.items()}
    model = loop.finish_run(run)
    assert not model.training
    assert all(torch.equal(p, masters[n]) for n, p in model.named_parameters())


def test_tokens_are_counted_without_padding():
    ids = torch.zeros(2, 5, dtype=torch.int64)
    document = torch.tensor([[0, 0, 1, 1, -1], [0, -1, -1, -1, -1]])
    assert loop.count_tokens(Batch(inputs=ids)) == 10
    assert loop.count_tokens(Batch(inputs=ids, visibility=Visibility(document=document))) == 5
    both = Batch(inputs=ids, source=ids, source_visibility=Visibility(document=document))
    assert loop.count_tokens(both) == 15


def test_evaluation_sums_batches_and_leaves_the_model_unchanged():
    model = toy.model().train()
    generator = torch.get_rng_state()
    whole = loop.evaluate_batches(model, [toy.rows(1, 12)])
    cut = loop.evaluate_batches(
        model, [toy.part(toy.rows(1, 12), a, b) for a, b in ((0, 1), (1, 7), (7, 12))]
    )
    assert whole.keys() == cut.keys() == {
        "loss", "masked_loss", "masked_accuracy", "masked_asked",
        "label_loss", "label_accuracy", "label_asked",
    }  # fmt: skip
    assert whole == pytest.approx(cut, rel=1e-6)
    assert whole["loss"] == pytest.approx(whole["masked_loss"] + whole["label_loss"])
    assert model.training
    assert torch.equal(generator, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())
    assert model.seen == 0


def test_failed_evaluation_restores_the_mode():
    model = toy.model().train()
    with pytest.raises(AssertionError):
        loop.evaluate_batches(model, [Batch(inputs=torch.zeros(1, 1, dtype=torch.int64))])
    assert model.training


def test_evaluation_of_no_batches_is_zero():
    nothing = replace(toy.rows(0), targets=torch.full((8, toy.T), IGNORE_INDEX), labels=None)
    assert loop.evaluate_batches(toy.model(), [nothing]) == {
        "loss": 0,
        "masked_loss": 0,
        "masked_asked": 0,
    }
    assert loop.evaluate_batches(toy.model(), []) == {"loss": 0}


def test_mixture_component_loss_has_its_own_name() -> None:
    model, rows = toy.model(), [toy.rows(1, 12)]
    whole, part = (
        loop.evaluate_batches(model, rows),
        loop.evaluate_batches(model, rows, component="forward"),
    )
    assert set(part) == {f"{name}_forward_{what}" for name in _terms(whole) for what in WHAT}
    for name in _terms(whole):
        for what in WHAT:
            assert part[f"{name}_forward_{what}"] == whole[f"{name}_{what}"]


WHAT = ("loss", "accuracy", "asked")


def _terms(result: dict[str, float]) -> list[str]:
    return [name.removesuffix("_asked") for name in result if name.endswith("_asked")]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", [AdamW(), LAMB(), Muon()])
def test_step_estimation_leaves_the_run_unchanged(precision, optimizer):
    changes = dict(precision=precision, optimizer=optimizer, steps=6)
    plain, measured = toy.run(**changes), toy.run(**changes)
    before = state(measured)
    assert loop.estimate_steps(measured, minutes=0.5, max_trial_steps=4) >= 1
    assert_equal(before, state(measured))
    assert measured.progress == plain.progress
    assert measured.recipe == plain.recipe
    assert_equal(state(trained(plain)), state(trained(measured)))


def test_step_estimation_exceeds_a_short_recipe():
    assert loop.estimate_steps(toy.run(steps=1, precision="float32"), minutes=0.1) > 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 1}, "seed was 0, the recipe says 1"),
        ({"precision": "bfloat16"}, "precision was 'float32', the recipe says 'bfloat16'"),
        ({"optimizer": LAMB()}, "optimizer was 'AdamW', the recipe says 'LAMB'"),
    ],
)
def test_checkpoint_of_another_recipe_is_an_error(tmp_path, changes, says):
    trained(toy.run(steps=2, precision="float32"), tmp_path, save_at=[2])
    with pytest.raises(ValueError, match=rf"step-00000002: {says}"):
        toy.resume_run(tmp_path, **({"precision": "float32"} | changes))


def test_checkpoint_of_another_model_is_an_error(tmp_path):
    trained(toy.run(steps=1, precision="float32"), tmp_path, save_at=[1])
    checkpoint, _ = checkpoints.newest_checkpoint(tmp_path)
    recipe = Recipe(model="toy", precision="float32")
    for spoil, says in (
        (lambda m: setattr(m.backbone, "up", None), r"another model: .* backbone\.up"),
        (
            lambda m: setattr(m.backbone, "unused", torch.nn.Linear(4, 3)),
            r"unused\.weight is \[3, 3\], not \[3, 4\]",
        ),
    ):
        model = toy.model()
        spoil(model)
        with pytest.raises(ValueError, match=says):
            restore_run(loop.start_run(recipe, model, toy.batches()), checkpoint)


@pytest.mark.parametrize(("precision", "optimizer"), KINDS)
def test_frozen_weights_are_not_saved_and_must_be_unchanged(tmp_path, precision, optimizer):
    def begun(shift=0.0):
        model = toy.model()
        model.backbone.requires_grad_(False)
        with torch.no_grad():
            model.backbone.up.bias.add_(shift)
        recipe = Recipe(model="toy", steps=8, log_every=3, precision=precision, optimizer=optimizer)
        return loop.start_run(recipe, model, toy.batches())

    whole = trained(begun())
    trained(begun(), tmp_path, until=4, save_at=[4])
    checkpoint, _ = checkpoints.newest_checkpoint(tmp_path)
    held = checkpoint.tensors("model")
    assert set(held) == {"heads.masked.bias", "heads.label.weight", "heads.label.bias", "seen"}
    again = begun()
    restore_run(again, checkpoint)
    assert_equal(state(trained(again)), state(whole))
    with pytest.raises(ValueError, match="that are not trained have changed since this run began"):
        restore_run(begun(1e-3), checkpoint)


def test_model_buffers_are_saved(tmp_path):
    run = trained(toy.run(steps=3, precision="float32"), tmp_path, save_at=[2])
    assert run.model.seen == 6
    assert toy.resume_run(tmp_path, precision="float32").model.seen == 4


def test_aborted_step_is_not_saved(tmp_path):
    run = toy.run(steps=3, precision="float32")

    def broken(rate):
        raise KeyboardInterrupt

    for report in loop.train(run):
        if report.step == 2:
            break
    run.optimizer.step, step = broken, run.optimizer.step
    with pytest.raises(KeyboardInterrupt):
        trained(run)
    with pytest.raises(RuntimeError, match="step 3 was broken off"):
        save_checkpoint(run, tmp_path)
    assert not (tmp_path / "checkpoints").exists()
    run.optimizer.step = step


def test_progress_round_trips_as_json(tmp_path):
    trained(toy.run(steps=9, log_every=4, precision="float32"), tmp_path, until=7, save_at=[7])
    run = toy.resume_run(tmp_path, steps=9, log_every=4, precision="float32")
    assert run.progress.step == 7
    assert run.progress.cursor == {"row": 56}
    assert isinstance(run.progress.sums_since_log, LossSums)
    assert run.progress.sums_since_log.n_targets["label"] == 8 + 1 + 8  # of steps 5 to 7


@pytest.mark.trials("signals and clocks")
def test_first_ctrl_c_requests_stop_and_second_interrupts():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    seen = []

    def asked_twice():
        with stop_after_step() as stop:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                seen.append(stop.is_requested_anywhere(World()))
                os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        asked_twice()
    assert seen == [False, True, True, True]  # a closed terminal may send several
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_terminal_is_told_that_the_step_is_finished_first(monkeypatch, capfd):
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda known=is_terminal: known, raising=False)
        monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
        with stop_after_step() as stop:
            for _ in range(2):  # said once
                os.kill(os.getpid(), signal.SIGTERM)
            assert stop.is_requested
        assert capfd.readouterr().err.count("Ctrl-C again stops at once") == is_terminal


@pytest.mark.trials("signals and clocks")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_requests_stop_unless_ignored(number):
    with stop_after_step() as stop:
        os.kill(os.getpid(), number)
        assert stop.is_requested
    assert stop_exit_status() == 128 + number
    before = signal.signal(number, signal.SIG_IGN)  # as under nohup
    try:
        with stop_after_step() as stop, interrupt_on_signal():
            os.kill(os.getpid(), number)
        assert not stop.is_requested
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.trials("signals and clocks")
def test_request_that_came_after_the_last_look_interrupts_at_the_end():
    steps = []

    def asked_late():
        with stop_after_step() as stop:
            assert not stop.is_requested
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("last")

    with pytest.raises(KeyboardInterrupt):
        asked_late()
    assert steps == ["last"]
    assert stop_exit_status() == 128 + signal.SIGTERM


@pytest.mark.trials("signals and clocks")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_outside_steps_each_signal_interrupts_once(number):
    def asked_twice():
        with interrupt_on_signal():
            try:
                os.kill(os.getpid(), number)
            finally:
                if number != signal.SIGINT:
                    os.kill(os.getpid(), number)  # does not break off what is said at the end

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        asked_twice()
    assert signal.getsignal(number) is before


def test_handled_signal_is_left_to_the_program():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with interrupt_on_signal():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


@pytest.mark.trials("signals and clocks")
def test_stop_request_finishes_the_step_and_run_is_resumable(tmp_path):
    straight = trained(toy.run(steps=6))
    run = toy.run(steps=6)
    with stop_after_step() as stop:
        for report in loop.train(run):
            if report.step == 2:
                os.kill(os.getpid(), signal.SIGINT)
            if stop.is_requested_anywhere(run.world):
                save_checkpoint(run, tmp_path)
                break
    assert run.progress.step == 2
    assert_equal(state(straight), state(trained(toy.resume_run(tmp_path, steps=6))))


def test_signals_are_left_alone_in_other_threads():
    seen = []

    def other():
        with stop_after_step() as stop:
            seen.append((stop.is_requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [(False, signal.getsignal(signal.SIGINT))]
