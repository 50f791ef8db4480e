"""Objectives by name, and what fits them to a network."""

from dataclasses import replace
from typing import get_args

import pytest

from unmask.heads.generator import Generator
from unmask.heads.language import AfterSource, ByNext, Language
from unmask.heads.replaced import Replaced
from unmask.hiding import objectives as values
from unmask.hiding.beside import Pair
from unmask.hiding.choose import Tokenwise
from unmask.hiding.hide import Hide
from unmask.hiding.needs import needs
from unmask.hiding.objectives import Objective
from unmask.hiding.one_stack import InOneStack
from unmask.hiding.questions import SentenceOrder
from unmask.model.architecture import Architecture
from unmask.published.catalogue import MODELS
from unmask.published.fit import fit
from unmask.published.objectives import PRESETS, is_name, read_objective

BACKBONES = ("bert-mini", "llama-mini", "bart-mini", "t5-mini", "xlnet-mini", "lstm-mini")


def test_a_name_stands_for_a_value_whose_options_follow() -> None:
    assert read_objective("mlm").objective == values.MASKED
    asked = read_objective("mlm:rate=0.3,mask=1,random=0").objective
    assert isinstance(asked, Hide)
    assert asked.choose == Tokenwise(0.3)
    named = read_objective("rtd:generator_size=0.5,generator_layers=2")
    assert named.heads == ("generator", "replaced")
    assert named.of_heads == {"generator": {"size": 0.5, "n_layers": 2}}
    both = read_objective("mlm:rate=0.2+sop:swapped=0.3").objective
    assert both == Pair(replace(values.MASKED, choose=Tokenwise(0.2)), SentenceOrder(swapped=0.3))
    assert read_objective("spans+sbo").heads == ("language", "boundary")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("mlmm", "unknown name 'mlmm'; did you mean 'mlm'"),
        ("skipgram", "how word vectors are learned"),
        ("mlm:rat=0.3", "mlm: unknown key 'rat'; did you mean 'rate'"),
        ("mlm:rate", "options as option=value, got 'rate' .known: rate, mask, random"),
        ("clm:rate=0.1", "clm: unknown key 'rate' .known: none"),
        ("mlm:rate=2", "choose: rate must be above 0 and at most 1, got 2"),
        ("mlm:rate=x", "choose.rate must be float, got 'x'"),
        ("rtd:generator_size=7", "size must be above 0 and at most 1, got 7"),
        ("nsp+mlm", "only static, .* may follow a plus, got mlm|only .* may follow a plus"),
        ("clm+nsp", "objective.conceal must be InPlace|hidden in place"),
        ("mlm+", "unknown name ''"),
    ],
)
def test_what_is_no_objective_is_one_clear_error(said: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read_objective(said)
    assert "\n" not in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_each_option_of_a_name_is_one_of_its_value(name: str) -> None:
    for option, path in PRESETS[name].options.items():
        with pytest.raises(ValueError, match=f"{path.split('/')[-1].split('.')[-1]} must be") as it:
            read_objective(f"{name}:{option}=nonsense")
        assert "unknown" not in str(it.value)


def test_every_kind_of_objective_has_a_name() -> None:
    made = [preset.objective for preset in PRESETS.values()]
    kinds = {type(one) for one in made} | {InOneStack}  # which follows from the network
    parts = {type(part) for one in made if hasattr(one, "parts") for _, part in one.parts}
    assert {kind.__name__ for kind in get_args(Objective)} <= {
        k.__name__ for k in kinds | parts
    } | {
        "TwoSegments",  # XLNet's rows of a stream: its card's own
    }
    assert all(map(is_name, PRESETS))


def test_what_an_objective_needs_is_seen_in_what_it_makes() -> None:
    assert needs(values.MASKED).mask
    assert needs(values.MASKED).sees == {"both_ways"}
    assert needs(values.GPT).sees == {"forward"}
    assert needs(values.T5).source
    assert needs(values.T5).sentinels
    assert not needs(values.T5).mask
    assert needs(values.UL2).modes
    assert needs(values.UNILM).segments == 6
    assert needs(values.UNILM).in_own_place == 2
    assert needs(values.BERT).separator
    assert needs(values.XLNET).sees == {"in_part"}


@pytest.mark.parametrize("card", [*BACKBONES, "electra-mini", "spanbert-mini", "coco-lm-mini"])
def test_the_own_objective_changes_nothing(card: str) -> None:
    own = MODELS[card]
    assert fit(own, own.objective) == own


@pytest.mark.quick("bert-mini", "bart-mini")
@pytest.mark.parametrize("card", BACKBONES)
@pytest.mark.parametrize("name", PRESETS)
def test_an_objective_fits_or_has_one_reason(card: str, name: str) -> None:
    own = MODELS[card]
    reason = f"objective: {card} cannot be asked {name}: "
    try:
        made = fit(own, name)
    except ValueError as error:
        made, told = None, str(error)
        assert told.startswith(reason), told
        assert "\n" not in told, told
    if made is None:
        return
    asks, frame = made.objective.asks, made.tokenizer.frame
    wanted = needs(made.objective)
    assert frame.mask or not wanted.mask or (wanted.source and frame.n_sentinels)
    assert frame.n_sentinels or not wanted.sentinels
    assert frame.between or not wanted.separator
    assert set(made.heads), asks
    assert fit(made, name).objective == made.objective, "asked once more, it is the same"
    assert fit(made, made.objective) == made


def test_visibility_heads_and_tokens_come_with_the_objective() -> None:
    llama = fit(MODELS["llama-mini"], "mlm")
    assert isinstance(llama.architecture, Architecture)
    assert not llama.architecture.causal
    assert llama.tokenizer.frame.mask == "<mask>"
    assert not llama.fields.in_transformers
    bert = fit(MODELS["bert-mini"], "clm")
    assert isinstance(bert.architecture, Architecture)
    assert bert.architecture.causal
    assert bert.fields.classes_of(bert.architecture)[("language",)] == "BertLMHeadModel"
    assert bert.fields.write(bert.architecture)["is_decoder"] is True
    found = fit(MODELS["roberta-mini"], "rtd:generator_size=0.5").heads
    assert found == {"generator": Generator(size=0.5), "replaced": Replaced()}
    own = fit(MODELS["electra-mini"], "rtd:weight=20").heads
    assert own == {"generator": Generator(size=0.5), "replaced": Replaced(weight=20.0)}
    assert set(fit(MODELS["electra-mini"], "mlm").heads) == {"language"}
    next_one = fit(MODELS["bert-mini"], "mntp").heads["language"]
    assert isinstance(next_one, Language)
    assert next_one.forward == ByNext()
    whole = fit(MODELS["bert-mini"], "span-corruption")
    assert whole.objective == InOneStack(values.T5, whole=True)
    head = whole.heads["language"]
    assert isinstance(head, Language)
    assert head.forward == AfterSource(whole=True)
    assert fit(MODELS["llama-mini"], "span-corruption").objective == InOneStack(values.T5)
    encoder = fit(MODELS["t5-mini"], "mlm").architecture
    assert isinstance(encoder, Architecture)
    assert not encoder.cross
    assert fit(MODELS["transformer-mini"], "span-corruption").tokenizer.frame.n_sentinels == 100


@pytest.mark.parametrize(
    ("card", "name", "reason"),
    [
        ("bert-mini", "plm", "positions must be in the scores .*, got Learned"),
        ("lstm-mini", "prefix-lm", "sees no part whole"),
        ("lstm-mini", "rtd", "a generator is a smaller Transformer"),
        ("cnn-mini", "clm", "filters read what follows"),
        ("canine-mini", "mlm", "characters are not scored one by one"),
        ("elmo-mini", "mlm", "no table of vectors"),
        ("word2vec-skipgram-mini", "mlm", "no network that reads a text"),
        ("bert-mini", "characters", "hashes characters"),
        ("transformer-xl-words-mini", "rtd", "clusters"),
    ],
)
def test_what_cannot_be_is_told(card: str, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{card} cannot be asked {name}: .*{reason}"):
        fit(MODELS[card], name)
