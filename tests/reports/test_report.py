import itertools
import json
import math
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.reports.markup import VOID_ELEMENTS, Html, escape_html, tag
from unmask.reports.page import write_report
from unmask.reports.report_data import (
    ArmScores,
    ConfusionMatrix,
    ErrorExample,
    Fill,
    FinetuningResults,
    Generate,
    LabelCounts,
    SearchTrialRecord,
    read_report_data,
    save_baselines,
    save_results,
    save_samples,
)
from unmask.tasks.metrics.calibration import Calibration, CalibrationBin

HOSTILE = "<script>alert('x')</script>\"'&</td><!--"


class Page(HTMLParser):
    """A page that must be well formed: every element closed in order, no attribute or id twice."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.text, self.ids, self.links, self.loads = [], [], [], [], []
        self.tags, self.attributes, self.text_of = [], [], {}
        self.source = path.read_text("utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        self.words = " ".join(" ".join(self.text).split())

    def handle_starttag(self, name, attributes):
        keys = [key for key, _ in attributes]
        assert len(keys) == len(set(keys)), (name, keys)
        found = dict(attributes)
        self.tags.append(name)
        self.attributes.append(found)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if name == "a" else []
        self.loads += [found[k] for k in ("src", "srcset", "action", "poster") if k in found]
        self.loads += [found["href"]] if name != "a" and "href" in found else []
        if name not in VOID_ELEMENTS:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)
            self.text_of.setdefault(self.open[-1], []).append(data)

    def handle_comment(self, data):
        raise AssertionError("a comment: some text was not escaped")


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def training(step, **more):
    return {
        "step": step,
        "tokens": 128 * step,
        "loss": 9.0 / step**0.2,
        "parts": {"masked": 8.0 / step**0.2, "next_sentence": 0.6},
        "accuracy": {"masked": 0.3, "next_sentence": 0.7},
        "rate": 1e-4,
        "gradient_norm": 1.0,
        "skipped": 0,
    } | more


def evaluation(step):
    return {"step": step, "evaluation": {"masked_loss": 5.0, "masked_accuracy": 0.25}}


def clock(step, seconds):
    return {
        "step": step,
        "seconds": seconds,
        "tokens_per_second": 1000.0,
        "matmul_share": 0.5,
        "memory_bytes": 2**30,
    }


FACTS = {
    "format": 2,
    "kind": "pretrain",
    "card": "bert-mini",
    "parameters": 11_000_000,
    "finished": True,
    "recipe": {
        "kind": "Recipe",
        "objective": {
            "kind": "Objective",
            "select": {"kind": "WholeWordMasking", "rate": 0.15},
            "corrupt": {
                "kind": "MaskInPlace",
                "mask_probability": 0.8,
                "random_token_probability": 0.1,
            },
        },
        "data": ["novels.txt"],
        "steps": 400,
        "learning_rate": 0.0005,
    },
    "defaults": {
        "kind": "Recipe",
        "objective": {
            "kind": "Objective",
            "select": {"kind": "WholeWordMasking", "rate": 0.15},
            "corrupt": {
                "kind": "MaskInPlace",
                "mask_probability": 0.8,
                "random_token_probability": 0.1,
            },
        },
        "data": ["novels.txt"],
        "steps": 1_000_000,
        "learning_rate": 0.0005,
    },
    "environment": {"machine": "a laptop", "cores": 2, "device": "cpu"},
    "versions": {"unmask": "0.1.0", "torch": "2.13.0"},
    "cost": {"energy_joules": 36_000.0},
}
SAMPLES = (
    Fill(
        text="The [MASK] barked at [MASK].",
        answers=("dog", "him"),
        before=((("wedge", 0.001),), (("the", 0.002),)),
        after=((("dog", 0.61), ("man", 0.08)), (("me", 0.4), ("him", None))),
    ),
    Generate(prompt="It was a", before=" of of", after=" dark night", settings="greedy"),
)
RESULTS = FinetuningResults(
    task="spam",
    metric="accuracy",
    arms=(
        ArmScores("pretrained", (0.981, 0.979), (0.98, 0.97)),
        ArmScores("not pretrained", (0.93, 0.94), (0.92, 0.93)),
    ),
    chance=0.866,
    confusion=ConfusionMatrix(("ham", "spam"), ((958, 8), (16, 133))),
    errors=(ErrorExample(text="call me later", truth="ham", predicted="spam", probability=0.71),),
)


def whole_run(folder, n=400):
    (folder / "unmask.json").write_text(json.dumps(FACTS))
    rows = [training(s) for s in range(1, n + 1)]
    lines(folder / "log.jsonl", rows + [evaluation(s) for s in (1, n // 2, n)])
    lines(folder / "timing.jsonl", [clock(s, 0.5 * s) for s in range(1, n + 1)])
    save_samples(folder, SAMPLES)
    save_results(folder, RESULTS)
    save_baselines(folder, {"masked_accuracy": {"unigram": 0.05, "bigram": 0.213}})
    return folder


def headings(page):
    return page.text_of.get("h2", [])


def test_complete_run_has_every_section_and_figure(tmp_path):
    page = Page(write_report(whole_run(tmp_path)))
    assert headings(page) == [
        "Curves",
        "Samples",
        "Errors",
        "Confusions",
        "Scores",
        "Recipe",
        "Cost",
        "Environment",
    ]
    assert "bert-mini, pretrained" in page.words
    masking = "MaskInPlace(mask_probability=0.8, random_token_probability=0.1)"
    assert f"Objective(WholeWordMasking(rate=0.15), {masking})" in page.words
    masked = "Masked accuracy on held-out data is 25.0 %; a bigram baseline reaches 21.3 %."
    assert masked in page.words
    assert "97.5 ± 0.7 %" in page.words
    assert "+5.0 points" in page.words
    assert "higher in 2 of 2 seeds" in page.words
    assert "10.0 Wh" in page.words
    assert "1.00 GiB" in page.words
    assert "published: 1,000,000" in page.words


@pytest.mark.parametrize(
    ("kind", "term", "has_perplexity"),
    [("pretrain", "masked", True), ("pretrain", "contrast", False), ("prefer", "pairs", False)],
)
def test_perplexity_is_that_of_tokens(tmp_path, kind, term, has_perplexity):
    (tmp_path / "unmask.json").write_text(json.dumps(FACTS | {"kind": kind}))
    rows = [{"step": s, "loss": 2.0, "parts": {term: 2.0}, "accuracy": {term: 0.1}} for s in (1, 2)]
    lines(tmp_path / "log.jsonl", rows)
    assert ("Perplexity 7.39" in Page(write_report(tmp_path)).words) == has_perplexity


def test_preference_runs_lead_with_what_their_responses_are_worth(tmp_path):
    recipe = {"kind": "PreferConfig", "train": "prompts.jsonl", "method": {"kind": "RLOO"}}
    facts = FACTS | {"kind": "prefer", "recipe": recipe}
    (tmp_path / "unmask.json").write_text(json.dumps(facts))
    more = {"parts": {"policy": -0.1}, "accuracy": {}, "measures": {"kl": 5.0}}
    rows = [{"step": s, "loss": -0.1, **more} for s in (1, 2)]
    after = {"reward": 1.1, "win_rate": 0.62, "win_rate_low": 0.5, "win_rate_high": 0.7, "kl": 5.5}
    evaluations = [{"step": 0, "evaluation": {"reward": 0.6, "kl": 0.0}}]
    lines(tmp_path / "log.jsonl", [*evaluations, *rows, {"step": 2, "evaluation": after}])
    words = Page(write_report(tmp_path)).words
    assert "bert-mini, trained on preferences" in words
    assert "step loss KL divergence" in words
    assert "Method RLOO() Data prompts.jsonl" in words
    assert "62.0 % Over the responses before the first step" in words
    assert "95 % interval: 50.0 % to 70.0 %" in words
    assert "1.10 Before the first step it was 0.600. KL divergence 5.50 nats." in words


def test_page_loads_no_external_resources(tmp_path):
    page = Page(write_report(whole_run(tmp_path)))
    assert page.loads == ["data:,"]
    assert all(link.startswith(("#", "https://arxiv.org/")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    style, script = (
        (files("unmask.reports") / "assets" / name).read_text("utf-8")
        for name in ("report.css", "report.js")
    )
    for banned in ("http:", "https:", "//cdn", "@import", "url("):
        assert banned not in style
    for banned in ("http:", "https:", "fetch(", "import(", "innerHTML", "eval("):
        assert banned not in script
    policy = next(a["content"] for a in page.attributes if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_text_is_escaped(tmp_path):
    whole_run(tmp_path)
    facts = FACTS | {"card": HOSTILE, "environment": {HOSTILE: HOSTILE}}
    (tmp_path / "unmask.json").write_text(json.dumps(facts | {"recipe": {HOSTILE: HOSTILE}}))
    guess = ((HOSTILE, 0.5),)
    save_samples(
        tmp_path,
        [
            Fill(text=f"{HOSTILE} [MASK]", answers=(HOSTILE,), before=(guess,), after=(guess,)),
            Generate(prompt=HOSTILE, before=HOSTILE, after=HOSTILE, settings=HOSTILE),
        ],
    )
    save_results(
        tmp_path,
        FinetuningResults(
            task=HOSTILE,
            metric=HOSTILE,
            arms=(ArmScores(HOSTILE, (0.5, 0.6)), ArmScores(HOSTILE, (0.1, 0.2))),
            confusion=ConfusionMatrix((HOSTILE, "b"), ((1, 2), (3, 4))),
            errors=(ErrorExample(text=HOSTILE, truth=HOSTILE, predicted=HOSTILE),),
        ),
    )
    save_baselines(tmp_path, {"masked_accuracy": {HOSTILE: 0.1}})
    names = {"parts": {HOSTILE: 1.0, "b": 2.0}, "accuracy": {HOSTILE: 0.5}}
    lines(tmp_path / "log.jsonl", [training(s, **names) for s in range(1, 9)] + [evaluation(8)])
    page = Page(write_report(tmp_path))
    assert page.tags.count("script") == 1
    assert page.source.count("</script") == 1
    assert "<script>alert('x')</script>" in page.words
    assert not any(key.startswith("on") for found in page.attributes for key in found)


@given(st.text())
def test_any_text_round_trips_through_elements_and_attributes(text):
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, name, attributes):
            found.append((name, dict(attributes)))

        def handle_data(self, data):
            found.append(data)

    reader = Reader(convert_charrefs=True)
    reader.feed(tag("p", text, title=text).source)
    reader.close()
    shown = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)
    assert found[0] == ("p", {"title": shown})
    assert "".join(found[1:]) == shown
    assert "<" not in escape_html(text)


def test_markup_is_not_escaped_twice():
    assert tag("p", Html("<b>a</b>"), " & b").source == "<p><b>a</b> &amp; b</p>"
    assert tag("br", hidden=True, id=None, title=False).source == "<br hidden>"
    assert tag("a", class_="x", aria_label="y").source == '<a class="x" aria-label="y"></a>'


@pytest.mark.parametrize(
    ("missing", "section"),
    [
        ("samples.json", "Samples"),
        ("results.json", "Errors"),
        ("baselines.json", None),
        ("timing.jsonl", None),
        ("log.jsonl", None),
        ("unmask.json", "Recipe"),
    ],
)
def test_missing_file_omits_its_section(tmp_path, missing, section):
    whole_run(tmp_path)
    (tmp_path / missing).unlink()
    page = Page(write_report(tmp_path))
    assert section not in headings(page)
    assert len(headings(page)) >= 4
    assert "nan" not in page.words.lower().split()
    assert "None" not in page.words.split()


def test_results_alone_make_a_report(tmp_path):
    save_results(
        tmp_path, FinetuningResults(task="spam", metric="mcc", arms=(ArmScores("tuned", (0.5,)),))
    )
    page = Page(write_report(tmp_path))
    assert headings(page) == []
    assert page.words.count("0.500") == 1
    assert "±" not in page.words


def test_folder_without_run_is_a_clear_error(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"is not a run folder: it has none of unmask\.json"
    ):
        write_report(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        write_report(tmp_path / "nowhere")


def test_empty_log_is_reported(tmp_path):
    (tmp_path / "log.jsonl").write_text("")
    page = Page(write_report(tmp_path))
    assert "Nothing is logged yet." in page.words
    assert headings(page) == []


def test_partial_last_line_of_a_live_log_is_ignored(tmp_path):
    lines(tmp_path / "log.jsonl", [training(s) for s in range(1, 6)])
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "loss": 2.1, "text": "\xc3')
    record = read_report_data(tmp_path)
    assert record.notes == ()
    assert record.training_log.steps.tolist() == [1, 2, 3, 4, 5]
    Page(write_report(tmp_path))


def test_invalid_line_is_skipped_and_reported(tmp_path):
    rows = [json.dumps(training(s)) for s in range(1, 6)]
    rows[2] = rows[2][:20] + rows[3]
    (tmp_path / "log.jsonl").write_text("\n".join(rows) + "\n")
    page = Page(write_report(tmp_path))
    assert "log.jsonl has one line that is not JSON; left out here." in page.words


def test_missing_and_non_finite_numbers_leave_gaps(tmp_path):
    odd = [math.nan, None, math.inf, "7", True, 10**400, [1], {"a": None}]
    rows = [training(s) for s in range(1, 60)]
    for row, value in zip(rows[20:], odd, strict=False):
        row |= {"loss": value, "parts": {"masked": value}, "rate": value, "gradient_norm": value}
    rows.append({"step": None, "loss": 1.0})
    rows.append({"loss": 1.0})
    lines(tmp_path / "log.jsonl", [*rows, {"step": 60, "evaluation": {"masked_loss": math.nan}}])
    record = read_report_data(tmp_path)
    assert len(record.training_log.steps) == 59
    assert record.training_log.columns["loss"][20:24].tolist() == pytest.approx(
        [math.nan] * 4, nan_ok=True
    )
    page = Page(write_report(tmp_path))
    raw = next(a["d"] for a in page.attributes if a.get("class", "").startswith("raw"))
    assert raw.count("M") == 3  # True counts as one, between two gaps
    for found in page.attributes:
        if "data-plot" in found:
            json.loads(found["data-plot"], parse_constant=pytest.fail)


def test_nothing_finite_is_not_plotted(tmp_path):
    lines(tmp_path / "log.jsonl", [{"step": s, "loss": math.nan} for s in range(5)])
    page = Page(write_report(tmp_path))
    assert "svg" not in page.tags


@pytest.mark.parametrize("n", [1, 3])
def test_few_steps_are_tables_without_plots(tmp_path, n):
    lines(tmp_path / "log.jsonl", [training(s, parts={"masked": 6.5}) for s in range(1, n + 1)])
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write(json.dumps(evaluation(n)) + "\n")
    page = Page(write_report(tmp_path))
    assert "svg" not in page.tags
    assert page.tags.count("table") == 2
    assert "step loss masked accuracy next sentence accuracy rate gradient norm" in page.words
    assert "On held-out data step masked loss masked accuracy" in page.words


def test_single_value_among_curves_is_a_point(tmp_path):
    lines(tmp_path / "log.jsonl", [*(training(s) for s in range(1, 9)), evaluation(8)])
    page = Page(write_report(tmp_path))
    dots = [a for a in page.attributes if a.get("class", "").startswith("dot")]
    assert len(dots) == 2  # the loss and the accuracy that were measured once
    assert "Trained for 8 steps on 1,020 tokens." in page.words


@pytest.mark.thorough
def test_very_long_run_stays_a_small_page(tmp_path):
    whole_run(tmp_path, 8000)
    path = write_report(tmp_path)
    assert path.stat().st_size < 300_000
    page = Page(path)
    points = [len(re.findall(r"\d+ \d+", a["d"])) for a in page.attributes if "d" in a]
    assert max(points) <= 500


@pytest.mark.thorough
def test_long_texts_and_lists_are_truncated_with_notice(tmp_path):
    (tmp_path / "unmask.json").write_text(json.dumps({"recipe": {"data": ["f.txt"] * 500}}))
    save_samples(tmp_path, [Generate(prompt="a", after="word " * 10**5)] * 30)
    errors = (ErrorExample(text="word " * 10**4, truth="a", predicted="b"),) * 500
    arms = (ArmScores("a", (0.5,) * 50),)
    results = FinetuningResults(task="t", metric="f1", arms=arms, errors=errors, wrong=500)
    save_results(tmp_path, results)
    path = write_report(tmp_path)
    assert path.stat().st_size < 300_000
    words = Page(path).words
    assert "(500 in all)" in words
    assert "6 more are in samples.json." in words
    assert "498,500 more characters" in words
    assert "20 more seeds are in results.json." in words
    assert "Wrong on the held-out examples: 500 rows; 25 are shown." in words


def test_resumed_run_sums_time_and_uses_last_line_of_a_step(tmp_path):
    lines(tmp_path / "log.jsonl", [training(s) for s in (1, 2, 3)] + [training(3, loss=1.5)])
    times = [(1, 10.0), (2, 20.0), (3, 30.0), (3, 12.0), (4, 25.0)]
    lines(tmp_path / "timing.jsonl", [clock(*t) for t in times])
    record = read_report_data(tmp_path)
    assert record.total_seconds == 55.0
    assert record.resumed_steps == (3,)
    assert record.timing_log.steps.tolist() == [1, 2, 3, 4]
    assert record.training_log.columns["loss"][-1] == 1.5
    page = Page(write_report(tmp_path))
    assert "Resumed once (dotted), first logged again at step 3." in page.words
    assert any(a.get("class") == "event" for a in page.attributes)


def test_sum_of_a_single_term_is_not_plotted_twice(tmp_path):
    held_out = {"loss": 5.0, "masked_loss": 5.0, "masked_accuracy": 0.2, "masked_asked": 900}
    rows = [{"step": s, "loss": 6.0, "parts": {"masked": 6.0}} for s in range(1, 9)]
    lines(tmp_path / "log.jsonl", [*rows, {"step": 8, "evaluation": held_out}])
    page = Page(write_report(tmp_path))
    plots = [json.loads(a["data-plot"]) for a in page.attributes if "data-plot" in a]
    assert [[s["n"] for s in plot["s"]] for plot in plots] == [
        ["training", "held out"],
    ]
    assert "Masked loss, held out" in page.words
    assert "masked asked" not in page.words.lower()


def test_skipped_steps_are_reported(tmp_path):
    rows = [training(s, skipped=2 if s > 4 else 0) for s in range(1, 9)]
    lines(tmp_path / "log.jsonl", rows)
    assert "2 steps were skipped because" in Page(write_report(tmp_path)).words


def test_unfinished_run_is_marked(tmp_path):
    whole_run(tmp_path, 100)
    (tmp_path / "unmask.json").write_text(json.dumps(FACTS | {"finished": False}))
    words = Page(write_report(tmp_path)).words
    assert "bert-mini, in pretraining" in words
    assert "Not finished: trained for 100 of 400 steps" in words


def test_written_data_reads_back(tmp_path):
    whole_run(tmp_path)
    record = read_report_data(tmp_path)
    assert record.samples == SAMPLES
    assert record.results == RESULTS
    assert record.baselines["masked_accuracy"]["bigram"] == 0.213


def test_handwritten_samples_are_read(tmp_path):
    rows = [
        {
            "kind": "fill",
            "text": "The [MASK].",
            "before": [[["cat", 0.1]]],
            "after": [[["dog", 1]]],
        },
        {"kind": "generate", "prompt": "a", "before": "b", "after": "c"},
    ]
    (tmp_path / "samples.json").write_text(json.dumps(rows))
    assert read_report_data(tmp_path).samples == (
        Fill(text="The [MASK].", before=((("cat", 0.1),),), after=((("dog", 1.0),),)),
        Generate(prompt="a", before="b", after="c"),
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("samples.json", "{", r"samples\.json: not JSON"),
        ("samples.json", '[{"kind": "fil", "text": ""}]', r"samples\.json: .*kind must be one of"),
        ("samples.json", '[{"kind": "fill", "txt": ""}]', r"did you mean 'text'"),
        ("results.json", '{"task": "a", "metric": "f1"}', r"results\.json: .*lacks arms"),
        ("results.json", "[]", r"results\.json: FinetuningResults must be a table"),
        ("baselines.json", '{"masked_accuracy": 1}', r"baselines\.json: .*must be a table"),
        ("unmask.json", "[1]", r"unmask\.json must be a table"),
    ],
)
def test_invalid_file_is_named(tmp_path, name, text, message):
    lines(tmp_path / "log.jsonl", [training(s) for s in range(1, 6)])
    (tmp_path / name).write_text(text)
    if name == "unmask.json":
        with pytest.raises(ValueError, match=message) as raised:
            write_report(tmp_path)
        assert "\n" not in str(raised.value)
        return
    (note,) = read_report_data(tmp_path).notes  # only the report shows it: it goes without
    assert re.search(message, note)
    assert note in Page(write_report(tmp_path)).words


def test_confusion_matrix_must_be_square():
    with pytest.raises(ValueError, match="2 rows of 2 numbers"):
        ConfusionMatrix(("a", "b"), ((1, 2),))


def test_many_labels_show_most_common_confusions(tmp_path):
    labels = tuple(f"label-{i}" for i in range(20))
    counts = tuple(tuple(99 if i == j else (i == 3) * j for j in range(20)) for i in range(20))
    results = FinetuningResults(
        task="t",
        metric="f1",
        arms=(ArmScores("a", (0.5,)),),
        confusion=ConfusionMatrix(labels, counts),
    )
    save_results(tmp_path, results)
    words = Page(write_report(tmp_path)).words
    assert "The commonest confusions of 20 labels" in words
    assert "label-3 label-19 19 label-3 label-18 18" in words


def test_many_labels_have_a_colored_matrix_with_tooltips(tmp_path):
    labels = tuple(f"label-{i}" for i in range(50))
    counts = tuple(tuple(9 * (i == j) + (i == 3) * (j == 5) for j in range(50)) for i in range(50))
    confusion = ConfusionMatrix(labels, counts)
    arms = (ArmScores("a", (0.5,)),)
    save_results(tmp_path, FinetuningResults(task="t", metric="f1", arms=arms, confusion=confusion))
    page = Page(write_report(tmp_path))
    titles = [a["title"] for a in page.attributes if "title" in a]
    assert "label-3 → label-3: 9" in titles
    assert "label-3 → label-5: 1" in titles
    assert len(titles) == 51
    assert page.tags.count("td") >= 2500
    assert len(page.source) < 400_000


def test_calibration_is_plotted_with_text_alternative(tmp_path):
    bins = (
        CalibrationBin(low=0.0, high=0.5, confidence=0.0, accuracy=0.0, count=0),
        CalibrationBin(low=0.5, high=0.75, confidence=0.6, accuracy=0.5, count=20),
        CalibrationBin(low=0.75, high=1.0, confidence=0.9, accuracy=0.95, count=60),
    )
    found = Calibration(ece=0.0625, brier=0.2, bins=bins)
    arms = (ArmScores("a", (0.8,)),)
    save_results(tmp_path, FinetuningResults(task="t", metric="f1", arms=arms, calibration=found))
    page = Page(write_report(tmp_path))
    assert "Of 80 rows, on the held-out examples." in page.words
    assert page.words.count("Expected calibration error 6.2 %") == 1
    assert "50.0 % to 75.0 % 20 60.0 % 50.0 %" in page.words
    spoken = "Reliability diagram: confidence 82.5 % on average, 83.8 % right"
    labels = [" ".join((a.get("aria-label") or "").split()) for a in page.attributes]
    assert spoken in labels
    assert "height:95.00%" in page.source
    empty = Calibration(ece=0.0, brier=0.0, bins=bins[:1])
    save_results(tmp_path, FinetuningResults(task="t", metric="f1", arms=arms, calibration=empty))
    assert "calibration" not in Page(write_report(tmp_path)).ids


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 3), ("mean_squared_error", 1)])
def test_trials_are_listed_with_the_best_marked(metric, best, tmp_path):
    scores = (0.5, None, 0.75)
    trials = tuple(
        SearchTrialRecord(number=n, rate=1e-3 / n, batch=8 * n, score=score, seconds=70.0)
        for n, score in enumerate(scores, 1)
    )
    arms = (ArmScores("a", (0.8,)),)
    save_results(tmp_path, FinetuningResults(task="t", metric=metric, arms=arms, search=trials))
    words = Page(write_report(tmp_path)).words
    assert "Search trial rate batch" in words
    assert "5.00e-04 16 diverged 1 min 10 s" in words
    assert words.count("← best") == 1
    assert f"{best} ← best" in words


def test_tuned_parameters_are_stated(tmp_path):
    facts = FACTS | {"kind": "finetune", "best": {"n_trainable_parameters": 1_234_567}}
    facts["recipe"] = {"kind": "FinetuneConfig", "tune": {"kind": "LoRA", "rank": 4}}
    (tmp_path / "unmask.json").write_text(json.dumps(facts))
    assert "Tuned 1.23 million numbers, by LoRA(rank=4)" in Page(write_report(tmp_path)).words


def test_errors_show_probability_of_prediction_and_truth(tmp_path):
    wrong = ErrorExample(
        text="x", truth="a", predicted="b", probability=0.75, truth_probability=0.125
    )
    arms = (ArmScores("a", (0.8,)),)
    save_results(tmp_path, FinetuningResults(task="t", metric="f1", arms=arms, errors=(wrong,)))
    assert "x a b 75.0 % 12.5 %" in Page(write_report(tmp_path)).words


def test_seeds_without_a_score_are_left_out_of_the_mean(tmp_path):
    arms = (ArmScores("one", (0.5, None, 0.7)), ArmScores("other", (0.1, 0.9, math.nan)))
    save_results(tmp_path, FinetuningResults(task="t", metric="accuracy", arms=arms))
    words = Page(write_report(tmp_path)).words
    assert "60.0 ± 14.1 %" in words
    assert "50.0 ± 56.6 %" in words
    assert "+40.0 points accuracy, held out, for one over other, one seed only." in words
    assert "2 scores are no number (–), and not in the means." in words


def test_lone_surrogates_are_replaced(tmp_path):
    (tmp_path / "log.jsonl").write_text("")
    (tmp_path / "samples.json").write_text('[{"kind": "generate", "prompt": "a\\ud800b"}]')
    Page(write_report(tmp_path))
    save_samples(tmp_path, [Generate(prompt="a\ud800b")])
    assert read_report_data(tmp_path).samples[0].prompt == "a?b"


def test_figures_and_tables_are_accessible(tmp_path):
    page = Page(write_report(whole_run(tmp_path)))
    spoken = [a.get("aria-label") for a in page.attributes if a.get("role") == "img"]
    assert all(spoken)
    loss = "Loss: sum from 9.00 nats at step 1 to "
    assert any(label.startswith(loss) for label in spoken)
    assert all("scope" in a for n, a in zip(page.tags, page.attributes, strict=True) if n == "th")
    assert all(
        a.get("aria-hidden") for n, a in zip(page.tags, page.attributes, strict=True) if n == "svg"
    )
    # No level of headings is skipped, and there is one title.
    levels = [int(n[1]) for n in page.tags if re.fullmatch("h[1-6]", n)]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_text_colors_have_enough_contrast():
    style = (files("unmask.reports") / "assets" / "palette.css").read_text("utf-8")
    palettes = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in style.split("{")]
    palettes = [p for p in palettes if "ink" in p]
    assert len(palettes) == 3
    assert palettes[1] == palettes[2]  # the system's dark and the switch's dark
    for palette in palettes:
        for name in ("ink", "soft", "c0", "c1", "c2", "c3", "c4", "c5"):
            # WCAG 2.2, criterion 1.4.3 (AA)
            assert contrast(palette[name], palette["paper"]) >= 4.5, (name, palette)
        assert contrast(palette["mark-ink"], palette["mark"]) >= 4.5


def test_report_is_reproducible(tmp_path):
    whole_run(tmp_path)
    first = write_report(tmp_path).read_bytes()
    assert write_report(tmp_path).read_bytes() == first
    assert sorted(p.name for p in Path(tmp_path).iterdir() if p.name.startswith(".")) == []


def tuned(folder, kind="classify", *, steps=8, log=(), best=None, **results):
    """Write a small run of fine-tuning."""
    recipe = {
        "kind": "FinetuneConfig",
        "task": kind,
        "task_name": kind,
        "train": "d/a.tsv",
        "seed": 7,
    }
    recipe |= {
        "dev": None,
        "class_weights": None,
        "tune": {"kind": "FullFinetuning", "layerwise_lr_decay": 1.0},
    }
    facts = {"kind": "finetune", "card": "bert-mini", "recipe": recipe, "parameters": 1000}
    facts["data"] = {"train": {"rows": 90}, "dev": {"rows": 10}, "test": {"rows": 0}}
    scores = best or {"accuracy": 0.5, "loss": 0.7}
    facts["best"] = {"seed": 8, "n_trainable_parameters": 900, "dev": scores}
    (folder / "unmask.json").write_text(json.dumps(facts))
    rows = [
        {"step": s, "loss": 1.0, "parts": {"label": 1.0}, "accuracy": {"label": 0.5}}
        for s in range(1, steps + 1)
    ]
    held_out = {"accuracy": 0.5, "loss": 0.7}
    lines(
        folder / "log.jsonl",
        [*(log or rows), *({"step": s, "evaluation": held_out} for s in range(1, steps + 1, 2))],
    )
    given = {"task": "t", "metric": "accuracy", "arms": (ArmScores("pretrained", (0.5,)),)}
    save_results(folder, FinetuningResults(**(given | results)))
    return facts


def changed(folder, facts, **recipe):
    (folder / "unmask.json").write_text(json.dumps(facts | {"recipe": facts["recipe"] | recipe}))
    return Page(write_report(folder))


BINS = (CalibrationBin(low=0.5, high=1.0, confidence=0.9, accuracy=0.5, count=20),)


def test_fine_tuning_report_starts_with_score_and_errors(tmp_path):
    tuned(
        tmp_path,
        confusion=ConfusionMatrix(("a", "b"), ((2, 3), (2, 3))),
        calibration=Calibration(ece=0.4, brier=0.5, bins=BINS),
        errors=(ErrorExample(text="x", truth="a", predicted="b", probability=0.75),),
        wrong=5,
    )
    page = Page(write_report(tmp_path))
    assert headings(page)[:5] == ["Errors", "Confusions", "Calibration", "Curves", "Recipe"]
    assert "Wrong on the held-out examples: 5 of 10 texts; 1 are shown." in page.words
    at = [
        page.words.index(output)
        for output in ("Accuracy, held out 50.0 %", "Trained for", "text truth")
    ]
    assert at == sorted(at)


def test_single_seed_has_no_dots_or_mean(tmp_path):
    tuned(tmp_path)
    page = Page(write_report(tmp_path))
    classes = [a.get("class") for a in page.attributes]
    assert "track" not in classes
    assert "DictionaryInductionScores" not in headings(page)
    assert "mean" not in page.words
    # In the opening; the rest are the curves' last values and the table below them.
    opening = page.words.split("Fine-tuning report")[1].split("Curves")[0]
    assert opening.count("50.0") == 1


def test_several_inits_on_dev_and_test_are_a_table(tmp_path):
    arms = (ArmScores("pretrained", (0.5,), (0.6,)), ArmScores("random", (0.25,), (0.3,)))
    tuned(tmp_path, arms=arms)
    page = Page(write_report(tmp_path))
    assert "held out test pretrained 50.0 % 60.0 % random 25.0 % 30.0 %" in page.words
    assert "+30.0 points accuracy, test, for pretrained over random, one seed only." in page.words


def test_seeds_are_numbered_as_in_the_terminal(tmp_path):
    tuned(tmp_path, arms=(ArmScores("pretrained", (0.5, 0.75)),))
    words = Page(write_report(tmp_path)).words
    assert "seed pretrained, held out 7 50.0 % 8 75.0 % mean" in words
    assert "The best run, seed 8, held out" in words


@pytest.mark.parametrize("value", [0.01, 0.35, 0.7, 0.99, 1.0])
def test_percent_axis_ends_at_100(tmp_path, value):
    found = {"accuracy": value, "macro_f1": value, "loss": 0.1}
    log = [{"step": s, "loss": 1.0, "parts": {"label": 1.0}} for s in range(1, 9)]
    log += [{"step": s, "evaluation": found} for s in range(1, 9)]
    tuned(tmp_path, log=log, arms=(ArmScores("pretrained", (value, value)),))
    page = Page(write_report(tmp_path))
    assert "F1" in page.words
    ticks = [float(t.split()[0]) for t in page.text_of["span"] if t.endswith("\u202f%")]
    assert ticks
    assert max(ticks) <= 100


@pytest.mark.parametrize(
    ("kind", "title", "usual"),
    [
        ("classify", "fine-tuned to label texts", "always the most frequent label"),
        ("answer", "fine-tuned to answer questions", "always the most frequent answer"),
        ("regress", "fine-tuned to score texts", "always the mean"),
        ("generate", "fine-tuned to write texts", "always the most frequent text"),
    ],
)
def test_task_vocabulary_is_used(tmp_path, kind, title, usual):
    facts = tuned(tmp_path, kind, chance=0.08)
    page = Page(write_report(tmp_path))
    assert f"bert-mini, {title}" in page.words
    assert f"{usual} 8.0 %" in page.words
    assert page.words.count("most frequent") == 1 - (kind == "regress")
    assert "Tuned everything" in page.words
    assert "90 rows of a.tsv; held out: 10 set aside" in page.words
    assert "FullFinetuning(" not in page.words.split("Errors")[0].split("Recipe All")[0]
    assert "bert-mini, fine-tuned on RTE" in changed(tmp_path, facts, task_name="RTE").words


def test_default_settings_of_a_method_are_omitted(tmp_path):
    facts = tuned(tmp_path)
    method = {"kind": "LoRA", "rank": 4, "alpha": 16.0, "dropout": 0.0}
    assert "900 numbers, by LoRA(rank=4)" in changed(tmp_path, facts, tune=method).words
    method = {"kind": "FullFinetuning", "layerwise_lr_decay": 0.9, "reinitialize_layers": 0}
    output = "900 numbers, by FullFinetuning(layerwise_lr_decay=0.9)"
    assert output in changed(tmp_path, facts, tune=method).words
    assert "900 numbers, by BitFit Data" in changed(tmp_path, facts, tune={"kind": "BitFit"}).words


def plots(page):
    return [json.loads(a["data-plot"]) for a in page.attributes if "data-plot" in a]


def test_only_comparable_losses_share_a_plot(tmp_path):
    def names(page):
        return [[curve["n"] for curve in plot["s"]] for plot in plots(page)]

    facts = tuned(tmp_path)
    assert names(Page(write_report(tmp_path)))[0] == ["training", "held out"]
    page = changed(tmp_path, facts, class_weights="balanced")
    assert names(page)[:2] == [["training"], ["held out"]]
    assert "in training, weighted by label, nats" in page.words
    page = changed(tmp_path, facts, task_options={"head": "recurrent", "use_crf": True})
    assert names(page)[:2] == [["training"], ["held out"]]


def test_regression_shows_squared_error_without_perplexity(tmp_path):
    log = [{"step": s, "loss": 1.0, "parts": {"label": 1.0}, "accuracy": {}} for s in range(1, 9)]
    best = {"pearson": 0.5, "mean_squared_error": 2.5, "loss": 2.5}
    arms = (ArmScores("pretrained", (0.5,)),)
    errors = (ErrorExample(text="x", truth="1", predicted="2"),) * 9
    results = {"metric": "pearson", "arms": arms, "errors": errors, "wrong": 9}
    tuned(tmp_path, "regress", log=log, best=best, **results)
    page = Page(write_report(tmp_path))
    assert [plot["u"] for plot in plots(page)][:2] == ["squared error"] * 2
    assert "erplexity" not in page.words
    assert "nats" not in page.words
    assert page.words.count("2.50") == 1
    assert (
        "Off on the held-out examples: 9 of 10 texts. The largest errors come first." in page.words
    )


def test_location_of_an_error_is_marked(tmp_path):
    wrong = ErrorExample(
        text="the <b> ran", truth="B", predicted="O", probability=0.9, marked=(4, 7)
    )
    tuned(tmp_path, "tag", errors=(wrong,), wrong=1)
    page = Page(write_report(tmp_path))
    assert page.text_of["mark"] == ["<b>"]
    assert "Wrong on the held-out examples: 1 words." in page.words


def test_multilabel_results_are_listed_per_label(tmp_path):
    found = (LabelCounts(label="a", found=5, missed=1, invented=3),)
    tuned(tmp_path, "multilabel", found=found)
    words = Page(write_report(tmp_path)).words
    assert "label texts it holds of found missed said wrongly a 6 5 1 3" in words
