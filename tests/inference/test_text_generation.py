"""Text generation: named settings, stop strings, prefixes, choices, drafts and streams."""

from pathlib import Path

import pytest
import torch
from small_models import make, tokenizer

from unmask.generation.decode import generate
from unmask.generation.settings import BeamSearch, GenerationConfig
from unmask.generation.streaming import stream_pieces
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline

FAMILIES = ("gpt2", "t5")


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pipeline]:
    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        make(family, folder)
        made[family] = load(folder)
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_keyword_settings_equal_config(family: str, pipelines: dict) -> None:
    model = pipelines[family]
    config = GenerationConfig(strategy=BeamSearch(beams=3), max_new_tokens=6)
    several = ["the old king", "", "a"]
    assert model.generate(several, beams=3, max_new_tokens=6) == model.generate(several, config)
    best = model.generate_candidates(several[0], beams=3, n_best=3, max_new_tokens=6)
    assert len(best) == 3
    assert best[0].text == model.generate(several[0], config)
    assert best[0].score >= best[1].score >= best[2].score
    each = model.generate_candidates(several, beams=3, n_best=3, max_new_tokens=6)
    assert [some[0].text for some in each] == model.generate(several, config)
    assert [one.text for one in each[0]] == [one.text for one in best]
    with pytest.raises(ValueError, match=r"settings by name, not both: got \['beams'\]"):
        model.generate("a", config, beams=2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_stop_string_truncates_generated_text(family: str, pipelines: dict) -> None:
    model = pipelines[family]
    prompts = ["the old king", "the gate"]
    for more in ({}, {"temperature": 1.0}, {"beams": 2}):
        whole = model.generate(prompts, max_new_tokens=16, **more)
        assert model.generate(prompts, max_new_tokens=16, stop="~never~", **more) == whole
    whole = model.generate(prompts, max_new_tokens=16)
    for n in (1, 3):
        stop = next(w[len(w) // 2 :][:n] for w in whole if len(w) > 8)
        cut = model.generate(prompts, max_new_tokens=16, stop=["~never~", stop])
        assert cut == [w[: w.find(stop)] if stop in w else w for w in whole]


@pytest.mark.parametrize("family", FAMILIES)
def test_answer_starts_with_given_prefix(family: str, pipelines: dict) -> None:
    model = pipelines[family]
    generated = model.generate(["the king", "a"], output_prefix=" of the", max_new_tokens=8)
    assert all(text.startswith(" of the") for text in generated)
    if family == "gpt2":
        expected = model.generate(["the king of the", "a of the"], max_new_tokens=8)
        assert generated == [" of the" + text for text in expected]
    assert (
        "".join(model.stream("the king", output_prefix=" of the", max_new_tokens=8)) == generated[0]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_streamed_text_equals_generated_text(family: str, pipelines: dict) -> None:
    model = pipelines[family]
    for prompt in ("the old king", "", "un\u00e9 \u2603"):
        for how in ({}, {"temperature": 1.5}, {"stop": ["e", " "]}):
            how = how | {"max_new_tokens": 9}
            pieces = list(model.stream(prompt, **how))
            assert "".join(pieces) == model.generate(prompt, **how)
            assert "" not in pieces
    assert len(list(model.stream("the", temperature=1.0, max_new_tokens=12))) > 5


def test_stream_is_lazy_and_leaves_the_model_unchanged(pipelines: dict) -> None:
    model = pipelines["gpt2"]
    model.model.train()
    pieces = model.stream("the", max_new_tokens=16)
    first = next(pieces)
    assert model.model.training
    assert torch.is_grad_enabled()
    model.model.eval()
    assert model.generate("the", max_new_tokens=16) == first + "".join(pieces)


def test_stream_raises_errors_immediately(pipelines: dict) -> None:
    model = pipelines["gpt2"]
    for how, message in (
        ({"beams": 2}, "no stream"),
        ({"top_k": 2}, "give a temperature above 0"),
        ({}, "prompt 1 has"),
    ):
        with pytest.raises(ValueError, match=message):
            model.stream("the old king " * (1 if how else 40), **how)


def test_multi_token_characters_are_streamed_whole(tmp_path: Path) -> None:
    _, loaded = make("gpt2", tmp_path)
    model = load(tmp_path)
    known, snowman = tokenizer("gpt2"), "\u2603"
    ids = known.encode(snowman * 3).ids.tolist()
    assert len(ids) > 3  # several tokens a character
    assert loaded.tokenizer is not None
    output, pieces = list[int](), list[str]()

    def steps():
        for token in ids:
            output.append(token)
            yield token

    wording = model._encode_prompts(["a"], "", None).streamers[0]
    pieces = list(stream_pieces(model.model, steps(), output, wording))
    assert pieces == [snowman] * 3


@pytest.mark.parametrize("family", FAMILIES)
def test_choices_are_ordered_by_likelihood(family: str, pipelines: dict) -> None:
    model = pipelines[family]
    choices = [" king", " gate", " old sea"]
    found = model.rank_choices("the old", choices)
    assert sorted(one.text for one in found) == sorted(choices)
    assert found[0].score >= found[1].score >= found[2].score
    assert [one.text for one in model.rank_choices("the old", choices, beams=3)] == [
        one.text for one in found
    ]
    (greedy,) = model.rank_choices("the old", choices, beams=1)
    assert greedy.text in choices
    for some, message in (([" king", ""], "choice 2 has no token"), ([], "there is no choice")):
        with pytest.raises(ValueError, match=message):
            model.rank_choices("the", some)


def test_unknown_text_is_refused_as_choice(pipelines: dict) -> None:
    model = pipelines["t5"]
    for ask in (
        lambda: model.generate("the king", output_prefix="\u2603"),
        lambda: model.rank_choices("the", ["king", "\u2603"]),
    ):
        with pytest.raises(ValueError, match="has what the tokenizer does not know"):
            ask()


@pytest.mark.parametrize("family", FAMILIES)
def test_draft_of_same_vocabulary_is_accepted(family: str, pipelines: dict, tmp_path: Path) -> None:
    model = pipelines[family]
    other = {"gpt2": "t5", "t5": "gpt2"}[family]
    with pytest.raises(ValueError, match=r"has another vocabulary \(\d+ tokens\)"):
        model.draft(pipelines[other])
    draft = model.draft(model, draft_tokens=3)
    text = model.generate("the king", max_new_tokens=9)
    assert model.generate("the king", max_new_tokens=9, draft=draft) == text
    assert draft.acceptance_rate == 1
    assert "".join(model.stream("the king", max_new_tokens=9, draft=draft)) == text


def test_prompt_beyond_positions_is_read_in_a_window(pipelines: dict) -> None:
    model = pipelines["gpt2"]  # of 40 positions
    long = "the old king saw the gate " * 20
    with pytest.raises(ValueError, match="`window` reads the last of it"):
        model.generate(long)
    text = model.generate(long, window=True, max_new_tokens=50)
    ids = tokenizer("gpt2").encode(long).ids.tolist()
    (new,) = generate(
        model.model,
        [ids],
        model.tokenizer.special_ids,
        GenerationConfig(window=True, max_new_tokens=50),
    )
    assert text == model.tokenizer.decode([*ids, *new])[len(long) :]
