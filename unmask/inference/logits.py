"""The logits of a model's head for texts."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.formulation import (
    LANGUAGE_HEAD,
)
from unmask.generation.text_batches import TextBatch, evaluation_mode, text_batches
from unmask.heads.model import Model
from unmask.heads.tagging.bilstm_crf import BiLSTMCRFHead
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.tokenizers.encode import Tokenizer

MAX_BATCH_TOKENS = 4096


def text_logits(
    loaded_model: LoadedModel, tokenizer: Tokenizer, texts: Sequence[str]
) -> "list[Float[np.ndarray, '...']]":
    """Return the logits of the model's head for each text.

    Shapes: [labels] for a classification head; [t labels] for token classification, special tokens
    included; [t v] for a language head, which takes precedence. An encoder-decoder gives the logits
    of the first generated token [1 v]. Long texts are truncated to the model's positions.

    Raises:
        ValueError: the model has no head, or none with logits of plain texts.
    """
    model, name = loaded_model.model, loaded_model.preset.name
    if not model.head_specs:
        raise ValueError(f"{name}: this model has no head; use `embed`")
    logits_of_text: dict[int, Float[np.ndarray, "..."]] = {}
    with evaluation_mode(model):
        labels = LANGUAGE_HEAD not in model.heads
        for group in text_batches(
            model, tokenizer, texts, MAX_BATCH_TOKENS, decoder_reads_text=labels
        ):
            for text, logits in zip(
                group.text_indices, _group_logits(model, name, group), strict=True
            ):
                logits_of_text[text] = logits.float().cpu().numpy()
    return [logits_of_text[i] for i in range(len(texts))]


def _group_logits(model: Model, model_name: str, text_batch: TextBatch) -> Iterator[Tensor]:
    if LANGUAGE_HEAD in model.heads:  # text by text, since [t v] is large
        yield from model.text_logits(text_batch.batch, text_batch.lengths)
        return
    specs = model.head_specs
    candidates = (name for name, spec in specs.items() if spec.labels_texts or spec.labels_tokens)
    name = next(candidates, None)
    if name is None:
        raise ValueError(
            f"{model_name}: its heads are for pretraining only ({', '.join(specs)}); use `embed`"
        )
    logits = _label_logits(model, name, text_batch.batch)
    if specs[name].labels_texts:
        yield from logits
    else:
        yield from (x[:n] for x, n in zip(logits, text_batch.lengths, strict=True))


def _label_logits(model: Model, head_name: str, batch: Batch) -> Float[Tensor, "b ..."]:
    """Return the logits of a classification head, with the inputs of `predict`."""
    head, spec = model.heads[head_name], model.head_specs[head_name]
    if isinstance(head, BiLSTMCRFHead):
        return head.logits(model.hidden_states(batch), batch)
    if spec.labels_texts and model.decoder_architecture.has_global_tokens:
        first = torch.zeros(len(batch.inputs), 1, dtype=torch.long)
        batch = batch.with_feature(GlobalTokens(first))
    prediction = model(batch.to(model.device), return_logits=[head_name])
    return prediction.logits[spec.term]
