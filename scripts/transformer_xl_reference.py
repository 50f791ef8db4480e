"""Write what the reference implementation of Transformer-XL says of small networks, for the tests.

    python -m venv old && old/bin/pip install torch==2.13.0 "transformers==4.36.2" "numpy<2"
    old/bin/python scripts/transformer_xl_reference.py tests/published/transformer_xl.json

transformers lost the family with version 5; 4.36 is the last in which it runs. Weights are not
stored: number i of the k-th tensor by name is sin(i + k), times 0.4; norms' are 1 more.
"""

import json
import sys

import torch
from transformers.models.deprecated.transfo_xl import TransfoXLConfig
from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import TransfoXLLMHeadModel

SMALL = {
    "vocab_size": 40, "cutoffs": [12, 25], "div_val": 2, "d_model": 16, "d_embed": 16, "n_head": 2,
    "d_head": 8, "d_inner": 24, "n_layer": 3, "mem_len": 7, "clamp_len": 6, "same_length": False,
    "dropout": 0.0, "dropatt": 0.0,
}  # fmt: skip
CASES = {
    "adaptive": {},
    "same length": {"same_length": True},
    "no clamp": {"clamp_len": -1},
    "norms first": {"pre_lnorm": True},
    "one table": {"cutoffs": [], "div_val": 1},
    "one table, clusters": {"div_val": 1},
}


def fill(model: torch.nn.Module) -> None:
    """Give each tensor numbers that follow from its place among the names."""
    named = sorted(dict(model.named_parameters()).items())
    for k, (name, tensor) in enumerate(named):
        numbers = 0.4 * torch.sin(torch.arange(tensor.numel(), dtype=torch.float64) + k)
        numbers += name.endswith("layer_norm.weight")
        tensor.data.copy_(numbers.view_as(tensor))


def _rounded(numbers: torch.Tensor) -> list[list[list[float]]]:
    return [[[round(x, 5) for x in row] for row in text] for text in numbers.tolist()]


def main() -> None:
    """Write what each case says of two texts that are read in three parts."""
    out = {}
    ids = (torch.arange(36).view(2, 18) * 7 + 3) % 40
    for name, changes in CASES.items():
        config = SMALL | changes
        model = TransfoXLLMHeadModel(TransfoXLConfig(**config)).eval()
        fill(model)
        memory = [torch.zeros(0, 2, 16) for _ in range(3)]
        hidden, scores = [], []
        with torch.no_grad():
            for part in ids.split(6, 1):
                scores.append(model(part, mems=memory).prediction_scores)
                read = model.transformer(part, mems=memory)
                hidden.append(read.last_hidden_state)
                memory = read.mems
        out[name] = {
            "config": config,
            "names": sorted(dict(model.named_parameters())),
            "hidden": _rounded(torch.cat(hidden, 1)[:, :, :4]),
            "scores": _rounded(torch.cat(scores, 1)[:, ::3]),
        }
    with open(sys.argv[1], "w") as file:
        json.dump({"ids": ids.tolist(), "cases": out}, file)


if __name__ == "__main__":
    main()
