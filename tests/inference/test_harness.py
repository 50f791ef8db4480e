"""lm-evaluation-harness with our models: results equal those of its class for transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_models import make, texts

import unmask
from unmask.analysis.behavior.built_in_pairs import built_in_pairs

pytest.importorskip("lm_eval", reason="lm_eval is not installed (pip install '.[lm-eval]')")
pytestmark = pytest.mark.filterwarnings("ignore")

PAIRS = [("The old king", " saw the gate."), ("", "The sea"), ("A young fox ", "at night")]
GREEDY = {"until": ["."], "max_gen_toks": 8, "do_sample": False}


def requests(kind: str, arguments: list[tuple]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [
        Instance(request_type=kind, doc={}, arguments=one, idx=i)  # type: ignore[arg-type]
        for i, one in enumerate(arguments)
    ]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    from lm_eval.models.huggingface import HFLM

    from unmask.inference.lm_eval import UnmaskLM

    folder = tmp_path_factory.mktemp("gpt2")
    make("gpt2", folder)
    return UnmaskLM(str(folder), device="cpu"), HFLM(str(folder), device="cpu", batch_size=2)


def test_likelihoods_equal_those_of_hflm(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    instances = requests("loglikelihood", [*PAIRS, ("the old king " * 20, "saw the sea")])
    found, expected = (
        ours.loglikelihood(instances),
        theirs.loglikelihood(instances, disable_tqdm=True),
    )
    for (a, greedy), (b, so) in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        assert greedy == so


def test_rolling_likelihoods_equal_those_of_hflm(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    instances = requests("loglikelihood_rolling", [(" ".join(texts(20)),), ("the sea",)])
    found = ours.loglikelihood_rolling(instances)
    assert found == pytest.approx(
        theirs.loglikelihood_rolling(instances, disable_tqdm=True), rel=1e-5
    )
    assert ours.loglikelihood_rolling(requests("loglikelihood_rolling", [("",)])) == [0.0]


def test_texts_are_generated_until_stop(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    prompts = ["The old king saw", "A young fox", "the old king " * 20]
    instances = requests("generate_until", [(p, dict(GREEDY)) for p in prompts])
    assert ours.generate_until(instances) == theirs.generate_until(instances, disable_tqdm=True)
    drawn = {"until": [], "max_gen_toks": 4, "do_sample": True, "temperature": 0.9, "top_k": 5}
    assert len(ours.generate_until(requests("generate_until", [("The sea", drawn)]))) == 1
    with pytest.raises(ValueError, match="'num_beams' is unknown"):
        ours.generate_until(requests("generate_until", [("a", {"num_beams": 3})]))


def test_model_is_registered_by_name(both: tuple[Any, Any], tmp_path: Path) -> None:
    from lm_eval.api.registry import get_model

    assert get_model("unmask") is type(both[0])


def test_minimal_pairs_have_the_accuracy_of_the_harness(
    both: tuple[Any, Any], tmp_path: Path
) -> None:
    """A task as the harness's BLiMP, without the space that it puts before each sentence."""
    import lm_eval

    path = tmp_path / "pairs.jsonl"
    pairs = built_in_pairs()[::16]
    rows = [
        {"sentence_good": one.good, "sentence_bad": one.bad, "UID": str(i)}
        for i, one in enumerate(pairs)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = {
        "task": "pairs",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}, "cache_dir": str(tmp_path)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "",
        "doc_to_target": 0,
        "doc_to_choice": "{{[sentence_good, sentence_bad]}}",
        "target_delimiter": "",
    }
    found = unmask.probe(
        both[1].pretrained, analysis="pairs:shown=100", data=path, control=False,
        out=tmp_path / "out", device="cpu",
    )["pairs"].findings  # fmt: skip
    own = found.accuracies[0].overall
    assert own.n_ties == 0  # of which the harness counts all as right, the good sentence is first
    assert 0 < own.accuracy < 1
    for model in both:
        ask: Any = lm_eval.simple_evaluate
        output = ask(model, tasks=[task], bootstrap_iters=0, log_samples=True)
        assert output["results"]["pairs"]["acc,none"] == pytest.approx(own.accuracy)
        each = {
            doc["doc_id"]: [r[0] for r in doc["filtered_resps"]]
            for doc in output["samples"]["pairs"]
        }
        for shown in found.errors:
            good, bad = each[int(shown.pair.paradigm)]
            assert good - bad == pytest.approx(shown.margin, abs=1e-4)
