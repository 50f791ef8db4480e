"""`unmask hide`: inputs and targets of an objective for a text."""

from pathlib import Path

import pytest
from toy_text import corpus

from unmask.jobs.catalogue import hide as module
from unmask.jobs.catalogue.hide import hide, sample_tokenizer
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.zoo.catalogue import get_preset

TEXT = "What does this model see, and what is it asked? It is asked for the words that are hidden."


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Keep tokenizers that are learned here out of the user's cache, and learn each once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(module, "TOKENIZER_SAMPLE_CHARACTERS", 100_000)
        patch.setattr(module, "MAX_SAMPLE_VOCAB_SIZE", 800)
        yield


def shown_targets(model: str, **more) -> list[tuple[int, str]]:
    cells = hide(model, TEXT, **more).inputs
    return [(i, cell.target) for i, cell in enumerate(cells) if cell.target is not None]


@pytest.mark.parametrize(
    "model", ["bert-mini", "gpt2", "t5-small", "canine-mini", "canine-s-mini", "elmo-mini"]
)
def test_same_seed_masks_the_same_positions(model: str) -> None:
    assert shown_targets(model, seed=3) == shown_targets(model, seed=3)
    assert shown_targets(model)


@pytest.mark.parametrize("model", ["bert-mini", "t5-small"])
def test_other_seed_masks_other_positions(model: str) -> None:
    assert len({tuple(shown_targets(model, seed=seed)) for seed in range(4)}) > 1


def test_gpt_has_a_target_at_every_token_and_t5_an_encoder() -> None:
    gpt, t5 = hide("gpt2", TEXT), hide("t5-small", TEXT)
    assert gpt.source is None
    assert all(cell.target is not None for cell in gpt.inputs)
    assert t5.source is not None
    assert any(cell.role == "sentinel" for cell in t5.source)


@pytest.mark.thorough
def test_other_objective_can_be_shown_and_modes_have_own_tokenizer() -> None:
    order = ['objective={kind="DenoisingObjective",noises=[{kind="TokenPermutation"}]}']
    moved = hide("t5-small", TEXT, changes=order)
    assert moved.source is not None
    assert [c.piece for c in moved.source] != [c.target for c in moved.inputs]
    assert sorted(c.piece for c in moved.source) == sorted(str(c.target) for c in moved.inputs)
    with pytest.raises(ValueError, match=r"objective\.kind must be one of"):
        hide("t5-small", TEXT, changes=['objective={kind="Shuffle"}'])
    first = {hide("ul2-mini", TEXT, seed=seed).source[0].piece for seed in range(12)}
    assert first == {"[NLU]", "[S2S]", "[NLG]"}
    assert hide("mass-mini", TEXT).visibility.endswith("its positions are those in the text")
    assert "[NLG]" not in str(hide("t5-mini", TEXT).source)


@pytest.mark.thorough
def test_objective_setting_can_be_changed() -> None:
    changes = ["select.rate=0.9"]
    few, many = shown_targets("bert-mini"), shown_targets("bert-mini", changes=changes)
    assert len(many) > 2 * len(few)
    assert shown_targets("bert-mini", changes=["objective.select.rate=0.9"]) == many
    assert shown_targets("bert-mini", changes=["objective.objective.select.rate=0.9"]) == many
    assert shown_targets("t5-small", changes=["objective.select.rate=0.9"])
    assert len(shown_targets("canine-s-mini", changes=changes)) > 2 * len(
        shown_targets("canine-s-mini")
    )
    random = ["sentence_task.random_probability=1.0"]
    always = [hide("bert-mini", TEXT, seed=s, changes=random) for s in range(5)]
    assert {output.label for output in always} == {"1: B is from another text"}


@pytest.mark.thorough
def test_xlnet_reads_two_segments_in_either_relation() -> None:
    two = [f"A king saw a fox. {i} foxes saw a king." for i in range(4)]
    shown = [hide("xlnet-mini", " ".join(two), seed=seed) for seed in range(8)]
    seconds = {
        "".join(c.piece for c in e.inputs if c.segment and c.role != "special") for e in shown
    }
    assert all([c.piece for c in e.inputs[-2:]] == ["<sep>", "<cls>"] for e in shown)
    assert all("read first, and attend to none of the others" in e.visibility for e in shown)
    changes = ["random_probability=0.0", "reuse_fraction=0.0"]
    whole = hide("xlnet-mini", " ".join(two), changes=changes)
    assert "read first" not in whole.visibility
    text = "".join(c.piece for c in whole.inputs if c.role != "special")
    assert {second in text for second in seconds} == {True, False}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("select.rat=0.9", "--set select.rat=0.9: unknown key .* did you mean 'rate'"),
        ("select=Wrods", "must be one of .*'WholeWordMasking'.* got 'Wrods'"),
        ("select.rate=2.0", "rate"),
        ("select", "must be key=value"),
    ],
)
def test_invalid_setting_is_one_clear_error(change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hide("bert-mini", TEXT, changes=[change])


def test_empty_text_and_negative_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to hide"):
        hide("bert-mini", "  ")
    with pytest.raises(ValueError, match="seed must be at least 0"):
        hide("bert-mini", TEXT, seed=-1)
    with pytest.raises(ValueError, match="did you mean 'bert-mini'"):
        hide("bret-mini", TEXT)


def test_tokenizer_is_trained_once(monkeypatch) -> None:
    before = shown_targets("gpt2-mini")

    def fail(*arguments: object) -> None:
        raise AssertionError("it was learned again")

    monkeypatch.setattr("unmask.tokenizers.learn.tokenizer.train_tokenizer", fail)
    assert shown_targets("gpt2-mini") == before


@pytest.mark.parametrize(
    ("first", "second"),
    [("ulmfit-mini", "ulmfit-mini-backward"), ("mbart-large-cc25", "mbart-large-50"),
     ("t5-mini", "ul2-mini"), ("gemma-mini", "llama-7b"), ("bert-base-cased", "mpnet-mini")],
)  # fmt: skip
def test_each_kind_of_tokenizer_has_its_own_in_the_cache(first: str, second: str) -> None:
    for model in (first, second):
        sample_tokenizer(get_preset(model))
        kept = sample_tokenizer(get_preset(model)).special_tokens
        wanted = get_preset(model).tokenizer.special_tokens
        assert (kept.backward, kept.languages, kept.language_first, kept.prefix, kept.modes) == (
            wanted.backward, wanted.languages, wanted.language_first, wanted.prefix, wanted.modes
        )  # fmt: skip


def test_tokenizer_can_be_named_and_is_told() -> None:
    facts = dict(hide("bert-base-uncased", "In 2010 she won.").facts)
    assert facts["tokenizer"].startswith("that of unmask-mini-en, 8,192 pieces")
    assert "2010" in [c.target or c.piece for c in hide("bert-mini", "In 2010 she won.").inputs]
    named = hide("roberta-mini", "In 2010 she won.", tokenizer="unmask-mini-en")
    assert named.inputs[0].piece == "[CLS]"
    assert dict(named.facts)["tokenizer"] == "that of unmask-mini-en, 8,192 pieces"
    with pytest.raises(ValueError, match="unmask-mini-en has its own; leave it out"):
        hide("unmask-mini-en", "x", tokenizer="unmask-mini-en")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        hide("bert-mini", "x", tokenizer="nowhere")


def test_unwritable_cache_folder_is_tolerated(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    before = shown_targets("bert-mini")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert shown_targets("bert-mini") == before


def test_folder_uses_its_own_tokenizer_and_objective(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(corpus())
    pretrain(
        "bert-tiny",
        data=tmp_path / "text.txt",
        out=tmp_path / "run",
        steps=1,
        quiet=True,
        vocab_size=100,
        sequence_length=32,
        threads=1,
        changes=[
            "batch_tokens=64",
            "architecture={d_model=32,d_ff=64,n_layers=1,n_heads=2}",
            "objective={kind='Objective', select={kind='WholeWordMasking', rate=0.5}, "
            "corrupt={kind='MaskInPlace'}}",
        ],
    )
    shown = hide(tmp_path / "run", "the old king saw the gate")
    assert shown.loss_terms == ("masked",)
    assert shown.label is None
    assert "".join(cell.target or cell.piece for cell in shown.inputs).startswith("[CLS]the")


def test_overlong_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has 1,048,577 characters; at most 1,048,576 are shown"):
        hide("bert-mini", "a" * (module.MAX_CHARACTERS + 1))
