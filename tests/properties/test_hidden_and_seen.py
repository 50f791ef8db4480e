"""What `hide` shows of each preset is what its network sees, and what its heads are asked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_leak import depends, tiny

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.jobs.catalogue import hide as module
from unmask.jobs.catalogue.hide import HiddenText, hide_text
from unmask.jobs.options.hide import HideOptions
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.objectives.explain import ObjectiveExplanation
from unmask.objectives.features import TwoStream
from unmask.objectives.reach import Reach, describe_reaches, reached
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published

TEXT = "The old king saw a fox. It ran away. Nobody saw it."
CARDS: dict[tuple, Published] = {}
for card in MODELS.values():
    if card.reads_texts and card.heads:
        kinds = (card.family, str(card.objective)[:60], tuple(map(type, card.heads.values())))
        CARDS.setdefault(kinds, card)
NAMES = [card.name for card in CARDS.values()]
"""One preset for each family, objective and heads."""
NETWORKS = {card.family: card.name for card in reversed(CARDS.values()) if not card.reads_pictures}
NOT_BY_TOKEN = {"elmo"}
"""Its network sees words, of several tokens each."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Keep tokenizers that are learned here out of the user's cache, and learn each once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(module, "TOKENIZER_SAMPLE_CHARACTERS", 50_000)
        patch.setattr(module, "MAX_SAMPLE_VOCAB_SIZE", 700)
        yield


def small(hidden: HiddenText) -> HiddenText:
    """Give a text's model a network of few numbers, with windows that are shorter than the text."""
    preset = hidden.preset.with_vocabulary(hidden.tokenizer.special_ids)
    a = preset.architecture
    changes = {}
    if windows := getattr(a, "attention_window", ()):
        changes["attention_window"] = tuple(size and 2 for size in windows)
    if filters := getattr(a, "filter_widths", ()):
        changes["d_model"] = 5 * len(filters)
    if isinstance(a, EncoderDecoderArchitecture):
        a = replace(a, encoder=tiny(a.encoder), decoder=tiny(a.decoder))
    else:
        a = tiny(a, **changes)
    return replace(hidden, preset=replace(preset, architecture=a))


@pytest.mark.parametrize("name", NETWORKS.values())
def test_tokens_are_seen_where_the_output_depends_on_them(name: str) -> None:
    hidden = hide_text(HideOptions(model=name, text=TEXT, seed=1), None)
    if hidden.preset.family in NOT_BY_TOKEN:
        assert not hidden.explain().has_ranks
        return
    hidden = small(hidden)
    example, about = hidden.example, hidden.about
    model = hidden.preset.build().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    batch = pad_examples([example.without(TwoStream)], hidden.tokenizer.special_ids)
    n = len(example.inputs)
    measured = depends(model, model.pad_for_network(batch)).numpy()[:n, :n]
    visible = about.visible(example, n)
    if isinstance(hidden.preset.architecture, RecurrentArchitecture):
        assert not measured[~visible].any()  # what is far may be too faint to be measured
        near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) < 4
        assert measured[visible & near].all()
    else:
        assert (measured == visible).all()
    if example.source is not None:
        of_source = depends(model, batch, "source").numpy()
        assert of_source.all(), "a decoder sees all of its source"


@pytest.mark.parametrize("name", NAMES)
def test_as_many_predictions_are_shown_as_the_losses_count(name: str) -> None:
    for seed in range(3):
        hidden = hide_text(HideOptions(model=name, text=TEXT, seed=seed), None)
        shown = hidden.explain()
        preset = hidden.preset.with_vocabulary(hidden.tokenizer.special_ids)
        model = preset.build_without_memory().train()
        batch = pad_examples([hidden.example], hidden.tokenizer.special_ids)
        counts = {}
        for head_name, head in model.heads.items():
            if preset.heads[head_name].objective_term in preset.objective.loss_terms:
                counts |= head.count_targets(batch)
        named = {term.term: term.n for term in shown.terms if term.n is not None}
        uncounted = {term.term for term in shown.terms if term.n is None}
        if not preset.reads_pictures or "contrast" not in named:  # there is no picture
            assert {k: v for k, v in counts.items() if v and k not in uncounted} == named
        assert tokens_asked(shown) <= {*named.values()} | {n // 2 for n in named.values()}
        assert bool(named) == bool(tokens_asked(shown)) or shown.label is not None


def tokens_asked(shown: ObjectiveExplanation) -> set[int]:
    """Count the targets in each row of tokens that has some."""
    rows = [shown.inputs, *(part.tokens for part in shown.further)]
    counts = {sum(cell.target is not None for cell in row) for row in rows}
    return counts - {0}


def test_drawn_tokens_are_asked_of_the_discriminator() -> None:
    hidden = hide_text(HideOptions(model="electra-mini", text=TEXT, seed=1), None)
    shown, example = hidden.explain(), hidden.example
    (read,) = shown.further
    at = example.targets != IGNORE_INDEX
    assert shown.reader == "the generator"
    assert "drawn at random, for want of a trained generator" in read.title
    replaced = np.array([cell.target == "replaced" for cell in read.tokens])
    assert replaced.any()
    assert not replaced[~at].any()
    assert [c.piece for c, x in zip(read.tokens, at, strict=True) if not x] == [
        c.piece for c, x in zip(shown.inputs, at, strict=True) if not x
    ]


@pytest.mark.parametrize(
    ("model", "objective"),
    [("t5-mini", "token-masking:rate=0.5,random=0.5"), ("mass-mini", "mass:mask=0,random=0.9")],
)
def test_random_tokens_of_a_source_are_marked(model: str, objective: str) -> None:
    options = HideOptions(model=model, text=TEXT, objective=objective, seed=1)
    shown = hide_text(options, None).explain()
    assert shown.source is not None
    if model == "t5-mini":
        pairs = zip(shown.source, shown.inputs, strict=True)
        changed = [
            (cell.role, cell.piece != answer.target) for cell, answer in pairs if answer.target
        ]
        assert {("replaced", True), ("shown", False)} <= {*changed}
        assert ("shown", True) not in changed
    assert "replaced" in {cell.role for cell in shown.source}


@pytest.mark.parametrize(
    ("reaches", "causal", "text"),
    [
        ([Reach()] * 4, True, None),
        ([Reach(before=4, after=4)] * 2, False, "at most 4 to each side in each of 2 layers"),
        ([Reach(before=4, after=4), Reach()], True, "itself and at most 4 before it in layer 1, "
         "and itself and all before it in layer 2"),
        ([Reach(), *[Reach(before=9, after=9)] * 3], False, "all in layer 1, and at most 9 to each "
         "side in layers 2 to 4"),
        ([Reach(by="filters", before=1, after=2)], False, "at most 1 before it and 2 after it"),
        ([Reach(by="state", after=0)], True, "itself and all before it, through the state"),
    ],
)  # fmt: skip
def test_layers_are_described(reaches: list[Reach], causal: bool, text: str | None) -> None:
    named = describe_reaches(reaches, causal=causal)
    assert named is None if text is None else str(named).endswith(text)


def test_reaches_of_layers_add_up() -> None:
    near = reached(np.ones((12, 12), bool), [Reach(before=1, after=2)] * 3)
    i, j = np.indices((12, 12))
    assert (near == ((i - 3 <= j) & (j <= i + 6))).all()
    assert not reached(np.tri(12, dtype=bool), [Reach(before=1, after=1)] * 2)[5, 6:].any()
