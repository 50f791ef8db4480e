"""Networks that the format of their family cannot say are kept all the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from unmask.batch import Batch
from unmask.checkpoints.huggingface import open_folder, opens_where, write_folder
from unmask.finetuning.kinds.kind import language_spec
from unmask.model.architecture import PRE, Architecture, EncoderDecoderArchitecture
from unmask.model.parts import RMSNorm
from unmask.model.positions import Rotary
from unmask.published.card import Published, resized
from unmask.published.catalogue import MODELS, family
from unmask.published.own import in_own_words, unsaid, worded

CHANGES: dict[str, dict[str, Any]] = {
    "a window": {"window": (4, None)},
    "holes in it": {"window": (4,), "dilation": (2,)},
    "other places": {"position": Rotary()},
    "norms elsewhere": {"norm_at": PRE, "norm_final": True},
    "other norms": {"norm": RMSNorm()},
    "shared layers": {"shared": frozenset({"attention"})},
}


def small(name: str) -> Published:
    card = MODELS[name]
    return replace(card, architecture=resized(card.architecture, 60))


@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith("-mini")])
def test_a_card_is_said_in_its_family_s_words(name: str) -> None:
    assert worded(MODELS[name]) is MODELS[name]


@pytest.mark.parametrize("change", CHANGES)
def test_what_bert_cannot_say_is_kept(change: str, tmp_path: Path) -> None:
    card = small("bert-tiny")
    assert isinstance(card.architecture, Architecture)
    card = worded(replace(card, architecture=replace(card.architecture, **CHANGES[change])))
    assert not card.fields.in_transformers
    assert opens_where(card, card.heads) is not None
    model = card.build().initialize(3).eval()
    write_folder(tmp_path, model, card, None)
    again = open_folder(tmp_path)
    assert again.card.architecture == card.architecture
    assert again.missing == again.extra == ()
    batch = Batch(inputs=torch.randint(60, (2, 20)))
    with torch.no_grad():
        assert torch.equal(again.model.backbone(batch), model.backbone(batch))
        scores = [m.language.scores(m.backbone(batch)) for m in (again.model, model)]
    assert torch.equal(*scores)


@pytest.mark.parametrize(
    ("name", "change", "keys"),
    [
        ("bert-tiny", CHANGES["a window"], ["window"]),
        ("bert-tiny", CHANGES["other places"], ["position"]),
        ("bert-tiny", CHANGES["norms elsewhere"], ["norm_at", "norm_final"]),
        ("bert-tiny", CHANGES["other places"] | {"d_model": 64, "dropout": 0.3}, ["position"]),
        ("bart-mini", {"window": (3,)}, ["encoder.window"]),
        ("t5-mini", {"tokens_scaled": True}, ["encoder.tokens_scaled"]),
    ],
)
def test_the_keys_that_a_format_cannot_say_are_named(
    name: str, change: dict[str, Any], keys: list[str]
) -> None:
    card = small(name)
    a = card.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        other = replace(a, encoder=replace(a.encoder, **change))
    else:
        assert isinstance(a, Architecture)
        other = replace(a, **change)
    ours = worded(replace(card, architecture=other))
    assert unsaid(ours, card) == keys
    said = opens_where(ours, ours.heads)
    named = ", ".join(f"architecture.{key}" for key in keys)
    assert said is not None
    assert said.startswith(f"the format of {card.family} cannot say {named}, so it is in our words")


def test_an_activation_that_the_format_gives_the_head_as_well_is_kept(tmp_path: Path) -> None:
    """One key of BERT's says both: its head would be read back with another activation."""
    card = small("bert-mini")
    assert isinstance(card.architecture, Architecture)
    card = worded(replace(card, architecture=replace(card.architecture, activation="relu")))
    assert card.fields.model_type == "unmask-bert"
    model = card.build().initialize(3).eval()
    write_folder(tmp_path, model, card, None)
    again = open_folder(tmp_path).model
    assert again.specs["language"] == model.specs["language"]
    roberta = small("roberta-base")  # its head has gelu whatever the network has
    assert isinstance(roberta.architecture, Architecture)
    a = replace(roberta.architecture, activation="relu")
    assert worded(replace(roberta, architecture=a)).fields is roberta.fields


def test_two_stacks_are_kept_too(tmp_path: Path) -> None:
    card = small("t5-mini")
    a = card.architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    changed = replace(a, encoder=replace(a.encoder, window=(3,)))
    card = worded(replace(card, architecture=changed))
    model = card.build().initialize(3).eval()
    write_folder(tmp_path, model, card, None)
    again = open_folder(tmp_path)
    assert again.card.architecture == changed
    ours, theirs = model.weights(), again.model.weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith("-mini")])
def test_a_network_in_our_words_stays_of_its_family(name: str) -> None:
    card = in_own_words(MODELS[name])
    theirs = card.fields.write(card.architecture) | {"model_type": card.fields.model_type}
    again = family(theirs)
    assert (again.family, again.finetuning) == (card.family, card.finetuning)
    assert again.fields.read(theirs) == card.architecture
    with pytest.raises(ValueError, match=f"{card.fields.model_type} has no family 'wrong'"):
        family(theirs | {"family": "wrong"})
    del theirs["family"]
    assert family(theirs).fields.model_type == card.fields.model_type


def test_a_unilm_that_answers_sources_still_does_and_learns_on(tmp_path: Path) -> None:
    card = small("unilm-mini")
    a = card.architecture
    assert isinstance(a, Architecture)
    card = worded(replace(card, architecture=replace(a, position=Rotary())))
    answers = card.finetuning.answers
    heads = {"language": replace(language_spec(card), forward=answers)}
    write_folder(tmp_path, card.build(heads).initialize(3), card, None)
    again = open_folder(tmp_path)
    assert again.model.specs == heads
    assert again.model.answers
    assert again.card.family == "unilm"
    assert again.card.finetuning.answers == answers


def test_what_matters_in_training_alone_needs_no_words() -> None:
    card = small("bert-tiny")
    a = card.architecture
    assert isinstance(a, Architecture)
    free = replace(a, feed_forward_dropout=0.3, initialize=replace(a.initialize, std=0.5))  # type: ignore[call-arg]
    assert worded(replace(card, architecture=free)).fields is card.fields


def test_an_unknown_family_in_our_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "unmask-nothing"}')
    with pytest.raises(ValueError, match="model_type 'nothing' is not one of"):
        open_folder(tmp_path)
