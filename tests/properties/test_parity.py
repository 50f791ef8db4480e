"""Parity: a tiny random model gives the reference library's hidden states, scores and loss."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import (
    SHAPES,
    V,
    albert,
    bert,
    deberta,
    deberta_v2,
    distilbert,
    electra,
    flaubert,
    gemma2,
    gemma3,
    gpt,
    gpt2,
    llama,
    longformer,
    modernbert,
    neox,
    roberta,
    saved,
    xlm,
)

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.classification.label_losses import ChoiceCrossEntropy
from unmask.model.layers.attention.attention import AttentionMask
from unmask.model.layers.attention.block_local_mask import GlobalTokens, Window
from unmask.tokenizers.spec import TextLanguages
from unmask.zoo.catalogue import MODELS

TOLERANCE = 1e-5  # relative to the largest number of the reference, float32


def close(ours: torch.Tensor, theirs: torch.Tensor, where: torch.Tensor | None = None) -> None:
    scale = max(1.0, float(theirs.abs().max()))
    difference = (ours - theirs).abs()
    assert float((difference if where is None else difference[where]).max()) < TOLERANCE * scale


def texts(seed: int, b: int, t: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(5, V, (b, t)))


def documents(lengths: list[int], t: int) -> torch.Tensor:
    return torch.where(torch.arange(t)[None] < torch.tensor(lengths)[:, None], 0, -1)


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_hidden_states_scores_and_loss_equal_reference(shape: str, tmp_path: Path) -> None:
    reference = SHAPES[shape]()
    ours = load_folder(saved(reference, tmp_path)).model
    b, t, s, lengths = 3, 17, 12, [17, 9, 1]
    ids, document = texts(1, b, t), documents(lengths, t)
    real = document >= 0
    targets = torch.where(real & (texts(2, b, t) % 3 == 0), texts(3, b, t), IGNORE_INDEX)
    targets[0, 0] = 7
    is_target = (targets.flatten() != IGNORE_INDEX).nonzero()[:, 0]
    more: dict[str, Any] = {}
    theirs: dict[str, torch.Tensor] = {}
    if "pad_token_id" in reference.config.to_dict():  # where RoBERTa's places are counted from
        ids[ids == reference.config.pad_token_id] = 2
    if reference.config.is_encoder_decoder:
        source, there = texts(4, b, s), documents([12, 5, 3], s)
        more = {"source": source, "source_visibility": Visibility(document=there)}
        theirs = {
            "input_ids": source,
            "attention_mask": (there >= 0).long(),
            "decoder_input_ids": ids,
        }
        real = torch.ones_like(real)
        visibility = Visibility(causal=True)
    else:
        theirs = {"input_ids": ids, "attention_mask": real.long()}
        visibility = Visibility(document=document, causal=ours.decoder_architecture.causal)
    if (n_segments := getattr(reference.config, "type_vocab_size", 0)) > 1:
        segments = texts(5, b, t) % n_segments
        more["segments"], theirs["token_type_ids"] = segments, segments
    if (n_languages := getattr(reference.config, "n_langs", 1)) > 1:
        theirs["langs"] = texts(6, b, t) % n_languages
        more["features"] = (TextLanguages(theirs["langs"]),)
    batch = Batch(
        inputs=ids, visibility=visibility, targets=targets, target_positions=is_target, **more
    )
    prediction = ours(batch, return_logits=True)
    hidden = ours.hidden_states(batch)

    out = reference(**theirs, output_hidden_states=True)
    states = out.decoder_hidden_states if reference.config.is_encoder_decoder else out.hidden_states
    logits = out.prediction_logits if hasattr(out, "prediction_logits") else out.logits
    close(hidden, states[-1], real)
    if "replaced" in ours.head_specs:  # asked of all tokens: tests/heads/test_replaced.py
        close(prediction.logits["replaced"], logits, real)
        return
    (term,) = prediction.terms
    close(prediction.logits[term], logits.flatten(0, 1)[is_target])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    close(prediction.terms[term].loss, expected)
    assert int(prediction.terms[term].n_correct) == int(
        (logits.flatten(0, 1)[is_target].argmax(-1) == targets.flatten()[is_target]).sum()
    )


@pytest.mark.parametrize(
    ("make", "asks", "theirs"),
    [(bert, "next_sentence", "seq_relationship_logits"), (albert, "sentence_order", "sop_logits")],
)
@torch.no_grad()
def test_pair_scores_equal_reference(make, asks, theirs, tmp_path: Path) -> None:
    reference = make()
    ours = load_folder(saved(reference, tmp_path)).model
    ids, labels = texts(1, 3, 9), torch.tensor([0, 1, 1])
    out = getattr(reference(input_ids=ids, labels=None), theirs)
    prediction = ours(Batch(inputs=ids, labels=labels), return_logits=True)
    close(prediction.logits[asks], out)
    close(prediction.terms[asks].loss, torch.nn.functional.cross_entropy(out, labels))


LABELLED = {
    "BertForSequenceClassification": lambda: bert("BertForSequenceClassification", num_labels=3),
    "GPT2ForSequenceClassification": lambda: gpt2("GPT2ForSequenceClassification", num_labels=3),
    "Llama": lambda: llama("ForSequenceClassification", num_labels=3),
    "OpenAIGPT": lambda: gpt("OpenAIGPTForSequenceClassification", num_labels=3),
    "GPTNeoX": lambda: neox("ForSequenceClassification", num_labels=3),
    "Gemma2": lambda: gemma2("ForSequenceClassification", num_labels=3),
    "Qwen3": lambda: llama("ForSequenceClassification", "Qwen3", num_labels=3),
    "Roberta": lambda: roberta("ForSequenceClassification", num_labels=3),
    "Albert": lambda: albert("ForSequenceClassification", num_labels=3),
    "DistilBert": lambda: distilbert("ForSequenceClassification", num_labels=3),
    "Electra": lambda: electra("ForSequenceClassification", num_labels=3),
    "Deberta": lambda: deberta("ForSequenceClassification", num_labels=3),
    "DebertaV2": lambda: deberta_v2("ForSequenceClassification", num_labels=3),
    "Flaubert": lambda: flaubert("ForSequenceClassification", num_labels=3),
    "Flaubert, norms before": lambda: flaubert(
        "ForSequenceClassification", num_labels=3, pre_norm=True
    ),
    "XLM": lambda: xlm("ForSequenceClassification", num_labels=3),
    "ModernBert": lambda: modernbert("ForSequenceClassification", num_labels=3),
    "Longformer": lambda: longformer("ForSequenceClassification", num_labels=3),
    "ModernBert, mean": lambda: modernbert(
        "ForSequenceClassification", num_labels=3, classifier_pooling="mean"
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", LABELLED)
@torch.no_grad()
def test_label_scores_of_padded_texts_equal_reference(kind: str, tmp_path: Path) -> None:
    reference = LABELLED[kind]()
    ours = load_folder(saved(reference, tmp_path)).model
    t, lengths = 9, [9, 4, 1]
    document = documents(lengths, t)
    pad = reference.config.pad_token_id or 0
    ids = torch.where(document >= 0, texts(1, 3, t), pad)
    batch = Batch(
        inputs=ids,
        visibility=Visibility(document=document, causal=ours.decoder_architecture.causal),
        last_token_positions=torch.tensor(lengths) - 1,
        labels=torch.tensor([0, 2, 1]),
        features=(GlobalTokens(torch.zeros(3, 1, dtype=torch.long)),),  # only Longformer reads it
    )
    out = reference(input_ids=ids, attention_mask=(document >= 0).long())
    close(ours(batch, return_logits=True).logits["label"], out.logits)


@pytest.mark.parametrize(
    ("kind", "heads"),
    [("ForTokenClassification", "token_label"), ("ForQuestionAnsweringSimple", "spans")],
)
@torch.no_grad()
def test_flaubert_special_tokens_equal_reference(kind: str, heads: str, tmp_path: Path) -> None:
    reference = flaubert(kind, num_labels=2)
    loaded = load_folder(saved(reference, tmp_path))
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert list(loaded.model.head_specs) == [heads]
    ids = texts(1, 3, 9)
    out = reference(input_ids=ids)
    logits = out.logits if heads == "token_label" else torch.stack(
        (out.start_logits, out.end_logits), -1
    )  # fmt: skip
    (outputs,) = loaded.model(Batch(inputs=ids), return_logits=True).logits.values()
    close(outputs, logits)


@torch.no_grad()
def test_flaubert_choice_head_is_written_in_own_format(tmp_path: Path) -> None:
    preset = MODELS["flaubert-mini"]
    assert preset.classification_head is not None
    heads = {
        "choice": replace(
            preset.classification_head, term="choice", n_labels=1, loss=ChoiceCrossEntropy()
        )
    }
    model = preset.build(heads).initialize(0)
    write_folder(tmp_path, model, preset, None)
    theirs = json.loads((tmp_path / "config.json").read_text())
    assert theirs["architectures"] == ["FlaubertModel"]
    loaded = load_folder(tmp_path)
    assert loaded.model.head_specs == heads
    assert all(
        torch.equal(x, loaded.model.own_weights()[n]) for n, x in model.own_weights().items()
    )


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"summary_type": "mean"}, "summary_type = 'mean' is not supported, only 'first'"),
        ({"summary_activation": "tanh"}, "summary_activation = 'tanh'"),
        ({"n_langs": 2}, "n_langs = 2"),
        ({"causal": True}, "causal = True"),
    ],
)
def test_unsupported_flaubert_heads_are_refused(change: dict, output: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=output):
        load_folder(saved(flaubert(**change), tmp_path))


@pytest.mark.parametrize("kind", ["Model", "WithLMHeadModel", "ForSequenceClassification"])
@torch.no_grad()
def test_xlm_languages_and_weights_come_back(kind: str, tmp_path: Path) -> None:
    import transformers as hf

    reference = xlm(kind, n_langs=3, num_labels=3)
    ids, langs = texts(1, 3, 9), texts(2, 3, 9) % 3
    loaded = load_folder(saved(reference, tmp_path / "theirs"))
    assert (loaded.missing, loaded.unexpected) == ((), ())
    batch = Batch(inputs=ids, features=(TextLanguages(langs),))
    hidden = loaded.model.hidden_states(batch)
    expected = reference(input_ids=ids, langs=langs, output_hidden_states=True)
    close(hidden, expected.hidden_states[-1])
    if kind == "ForSequenceClassification":
        close(loaded.model(batch, return_logits=True).logits["label"], expected.logits)
    assert not torch.allclose(hidden, loaded.model.hidden_states(Batch(inputs=ids)))
    write_folder(tmp_path / "ours", loaded.model, loaded.preset, None, loaded.label_names)
    again = getattr(hf, f"XLM{kind}").from_pretrained(tmp_path / "ours")
    theirs, back = reference.state_dict(), again.state_dict()
    assert theirs.keys() == back.keys()
    assert all(torch.equal(theirs[name], back[name]) for name in theirs)


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"causal": True}, "causal = True is not supported, only False"),
        ({"summary_type": "mean"}, "summary_type = 'mean' is not supported, only 'first'"),
        ({"sinusoidal_embeddings": True}, "sinusoidal_embeddings = True is not supported"),
        ({"asm": True}, "asm = True is not supported, only False"),
        ({"is_encoder": False}, "is_encoder = False is not supported, only True"),
    ],
)
def test_unsupported_xlm_configurations_are_refused(
    change: dict, output: str, tmp_path: Path
) -> None:
    config = saved(xlm(), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(ValueError, match=output):
        load_folder(tmp_path)


TWO_STACKS = ("t5", "mt5", "byt5", "bart", "mbart", "marian")


@pytest.mark.sample(12)
@pytest.mark.parametrize("shape", [s for s in SHAPES if not s.startswith(TWO_STACKS)])
@torch.no_grad()
def test_packed_texts_equal_texts_alone(shape: str, tmp_path: Path) -> None:
    reference = SHAPES[shape]()
    ours = load_folder(saved(reference, tmp_path)).model
    first, second = texts(1, 1, 7), texts(2, 1, 10)
    packed = Batch(
        inputs=torch.cat((first, second), 1),
        visibility=Visibility(
            document=torch.tensor([[0] * 7 + [1] * 10]), causal=ours.decoder_architecture.causal
        ),
        position_ids=torch.cat((torch.arange(7), torch.arange(10)))[None],
    )
    hidden = ours.hidden_states(packed)
    for ids, part in ((first, hidden[:, :7]), (second, hidden[:, 7:])):
        out = reference(input_ids=ids, output_hidden_states=True)
        close(part, out.hidden_states[-1])


@pytest.mark.parametrize("make", [lambda: llama(name="Mistral", sliding_window=6), gemma2, gemma3])
@torch.no_grad()
def test_blockwise_window_equals_reference_on_long_texts(make, tmp_path: Path) -> None:
    reference = make()
    ours = load_folder(saved(reference, tmp_path)).model
    t = 300
    lengths = [t, 41]
    document = documents(lengths, t)
    ids = texts(1, 2, t)
    visibility = Visibility(document=document, causal=True)
    assert AttentionMask.from_visibility(visibility, t, t, Window(5)).block_local_mask is not None
    hidden = ours.hidden_states(Batch(inputs=ids, visibility=visibility))
    out = reference(input_ids=ids, attention_mask=(document >= 0).long(), output_hidden_states=True)
    close(hidden, out.hidden_states[-1], document >= 0)
