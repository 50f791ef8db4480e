"""Tiny random models that generate, of the reference library and of ours."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import V, bart, gemma2, gemma3, gpt2, llama, mbart, mt5, neox, saved, t5

from unmask.checkpoints.huggingface.read import load_folder
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds

SPECIAL = SpecialTokenIds(vocab_size=V, pad=0, start=0, end=None)
MODELS = {
    "gpt2": gpt2,
    "t5": t5,
    "t5 v1.1": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mt5": mt5,
    "byt5": lambda: t5(
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=1
    ),
    "bart": lambda: bart(decoder_start_token_id=0, forced_eos_token_id=None),
    "mbart": lambda: mbart(decoder_start_token_id=0, forced_eos_token_id=None),
    "llama": llama,
    "mistral": lambda: llama(name="Mistral", sliding_window=6),
    "gemma2": lambda: gemma2(tie_word_embeddings=False),
    "gemma3": lambda: gemma3(tie_word_embeddings=False),
    "neox": neox,
}


def pairs(folder: Path, spread: float = 1.0) -> dict[str, tuple[Any, Model]]:
    """Make a reference of each kind and open it; a small spread makes many tokens likely."""
    made = {}
    for name, make in MODELS.items():
        reference = make()
        with torch.no_grad():  # biases would drown what is read: every text would be the same
            for part, weight in reference.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(0.0 if part.endswith("bias") else 1.0)
                if "final" in part or part in ("transformer.ln_f.weight", "model.norm.weight"):
                    weight.mul_(spread)
        made[name] = reference, load_folder(saved(reference, folder / name)).model
    return made


def prompts(lengths: tuple[int, ...] = (9, 1, 14, 5, 5), seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, V, n).tolist() for n in lengths]


def reference_inputs(reference: Any, texts: list[list[int]]) -> dict[str, torch.Tensor]:
    """Lay prompts side by side as the reference reads them."""
    encoder = reference.config.is_encoder_decoder
    width = max(map(len, texts))
    ids, there = torch.zeros(2, len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        position = slice(0, len(text)) if encoder else slice(width - len(text), width)
        ids[row, position], there[row, position] = torch.tensor(text), 1
    return {"input_ids": ids, "attention_mask": there}


def theirs(
    reference: Any, texts: list[list[int]], end: int | None, n: int, **how: Any
) -> tuple[list[list[int]], list[float]]:
    """Let the reference generate; return what is new, the end left out, and the scores of beams."""
    reference.generation_config.eos_token_id = end
    given = reference_inputs(reference, texts)
    out = reference.generate(
        **given,
        max_new_tokens=n,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **how,
    )
    old = 1 if reference.config.is_encoder_decoder else given["input_ids"].shape[1]
    new = out.sequences[:, old:].tolist()
    cut = [row[: row.index(end)] if end in row else row[:n] for row in new]
    return cut, out.sequences_scores.tolist() if "num_beams" in how else []
