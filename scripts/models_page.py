"""Write docs/models.md: every preset with its paper, objective, loss and reference of parity.

    python scripts/models_page.py [--check]

Sizes, papers and objectives come from the catalogue; measured results from the tables of
docs/encoders.md and docs/decoders.md, which describe the experiments.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from unmask.objectives import published
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.replace_spans import ReplaceSpans
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.objective import AnyObjective, Objective
from unmask.objectives.published import components_of
from unmask.word_vectors.train.glove import GloVe
from unmask.word_vectors.train.lsa import LSA
from unmask.word_vectors.train.svd import SVD
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.word_vectors.train.word2vec import CBOW, SkipGram
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Paper, Published

DOCS = Path(__file__).parents[1] / "docs"
SECTIONS = {
    "word_vectors": "Word vectors",
    "recurrent": "Recurrent and convolutional networks, sentence encoders",
    "encoders": "Encoders",
    "decoders": "Decoders",
    "encoder_decoders": "Encoder-decoders",
    "vision": "Networks of pictures",
}
"""Rooms of the zoo, in order -> headings."""

MASKED_LM = "masked language modeling"
FORMULAS = {
    MASKED_LM: "−Σ_{i∈M} log p(x_i | x̃)",
    "masked language modeling, whole words": "−Σ_{i∈M} log p(x_i | x̃)",
    "masked language modeling and next sentence prediction": (
        "−Σ_{i∈M} log p(x_i | x̃) − log p(is next | x̃)"
    ),
    "masked language modeling of whole words and next sentence prediction": (
        "−Σ_{i∈M} log p(x_i | x̃) − log p(is next | x̃)"
    ),
    "masked n-grams and sentence order prediction": (
        "−Σ_{i∈M} log p(x_i | x̃) − log p(in order | x̃)"
    ),
    "masked spans and span boundary objective": (
        "−Σ_{i∈(s,e)} [log p(x_i | x̃) + log p(x_i | h_{s−1}, h_{e+1}, i−s+1)]"
    ),
    "replaced token detection": "L_MLM(generator) − λ Σ_t log p([x̂_t = x_t] | x̂); λ = 50",
    "corrective language modeling and sequence contrastive learning": (
        "L_MLM(generator) − Σ_t log p(x_t | x̂) − Σ_t λ log p(copy_t | x̂) "
        "− log softmax_{s'} cos(s, s')/τ"
    ),
    "characters of masked words, in random order": (
        "−Σ_{w∈M} Σ_{i∈π(w)} log p(c_i | x̃, c_j with j before i in π)"
    ),
    "masked subwords, read as characters": "−Σ_{w∈M} log p(subword_w | characters of x̃)",
    "causal language modeling": "−Σ_t log p(x_t | x_{<t})",
    "bidirectional language modeling": "−Σ_t [log p(x_t | x_{<t}) + log p(x_t | x_{>t})]",
    "permutation language modeling": "−E_z Σ_{t>c} log p(x_{z_t} | x_{z_{<t}})",
    "unidirectional, bidirectional and sequence-to-sequence masked language modeling": (
        "−Σ_{i∈M} log p(x_i | x̃, A), A a random attention mask of four"
    ),
    "masked next tokens and causal language modeling": (
        "−Σ_{i∈M} log p(x_i | x̃), predicted at i−1; −Σ_t log p(x_t | x_{<t})"
    ),
    "skip-thoughts": (
        "−Σ_{s'} Σ_t log p(w_t of s' | w_{<t} of s', h(s)), s' the previous and next sentence"
    ),
    "quick-thoughts": "−log softmax over the batch of f(s)ᵀg(s'), s' a neighbor of s",
    "span corruption": "−Σ_t log p(spans_t | spans_{<t}, x with sentinels)",
    "mixture of denoisers": "−Σ_t log p(y_t | y_{<t}, x̃, mode)",
    "denoising: text infilling and sentence permutation": "−Σ_t log p(x_t | x_{<t}, x̃)",
    "masked sequence to sequence": "−Σ_{t∈fragment} log p(x_t | fragment before t, x̃)",
    "prefix language modeling": "−Σ_t log p(y_t | y_{<t}, x); x the first part of a text",
    "sequence autoencoding": "−Σ_t log p(x_t | x_{<t}, h(x))",
    "none; translation pairs in fine-tuning": "−Σ_t log p(y_t | y_{<t}, x)",
    "masked patches": "Σ_{i∈M} |p_i − f_i(x̃)|, p_i the pixels of patch i",
    "labels of pictures": "−log p(label | x)",
    "texts compared with pictures": (
        "−½ Σ_i [log softmax_j s_ij + log softmax_j s_ji] at j = i; s: cosines times e^t, t learned"
    ),
    "captions of pictures": "−Σ_t log p(y_t | y_{<t}, x); x a picture",
    "skip-gram": "−log σ(u_oᵀv_w) − Σ_k log σ(−u_kᵀv_w), or hierarchical softmax",
    "continuous bag of words": "−log σ(u_wᵀ v̄) − Σ_k log σ(−u_kᵀ v̄), v̄ the mean of the context",
    "global vectors": "Σ_ij f(X_ij)(w_iᵀw̃_j + b_i + b̃_j − log X_ij)²",
    "shifted PPMI, truncated SVD": "max(0, log P(w,c)/P(w)P(c) − log k) ≈ U_d Σ_d^p V_dᵀ",
    "latent semantic analysis": "log-entropy weighted counts of words in documents ≈ U_d Σ_d V_dᵀ",
}
"""Objective -> the loss that is minimized; M: masked positions, x̃: corrupted text, x̂: with
replaced tokens, z, π: a random order."""

BY_TERMS = {
    ("masked", "next_sentence"): "masked language modeling and next sentence prediction",
    ("masked", "sentence_order"): "masked n-grams and sentence order prediction",
    ("masked",): MASKED_LM,
    ("label",): "labels of pictures",
    ("contrast",): "texts compared with pictures",
    ("characters",): "characters of masked words, in random order",
    ("subwords",): "masked subwords, read as characters",
    ("next_token",): "causal language modeling",
    ("both_sides",): "bidirectional language modeling",
    ("permuted",): "permutation language modeling",
    ("sentences_said",): "skip-thoughts",
    ("sentences_found",): "quick-thoughts",
}
DENOISING = {
    published.MASS: "masked sequence to sequence",
    published.T5_OBJECTIVES["prefix_language_model"]: "prefix language modeling",
    published.UL2: "mixture of denoisers",
}
MIXTURES = {
    ("both_ways", "source_target", "forward", "backward"): (
        "unidirectional, bidirectional and sequence-to-sequence masked language modeling"
    ),
    ("masked", "forward"): "masked next tokens and causal language modeling",
}
BY_HEADS = {
    "replaced": "replaced token detection",
    "corrected": "corrective language modeling and sequence contrastive learning",
    "boundary": "masked spans and span boundary objective",
}
VECTORS = {
    SkipGram: "skip-gram",
    CBOW: "continuous bag of words",
    GloVe: "global vectors",
    SVD: "shifted PPMI, truncated SVD",
    LSA: "latent semantic analysis",
}
TRANSLATION = "none; translation pairs in fine-tuning"
OF_FAMILY = {"transformer": TRANSLATION, "evolved-transformer": TRANSLATION}

FORMULA = "an independent implementation of the paper's formulas"
_TORCH = "torch's LSTM and GRU with the same weights"
_SIZES = "parameter counts of the paper's table; which tensors are shared"
EQUALS = {
    "lstm": _TORCH, "awd-lstm": _TORCH, "skip-thoughts": _TORCH, "skip-thoughts-bi": _TORCH,
    "quick-thoughts": _TORCH, "bilstm": _TORCH, "cnn": "torch's convolution",
    "elmo": "outputs of the released code", "show-and-tell": _TORCH,
    "show-attend-and-tell": FORMULA,
    "transformer-xl": "outputs of the last version of transformers that has it",
    "t5-shared": _SIZES, "t5-lm": _SIZES, "t5-prefix-lm": _SIZES,
    "canine": "transformers, on padded texts",
}  # fmt: skip
OF_VECTORS = {
    SkipGram: "gensim: files read and written",
    CBOW: "gensim: files read and written",
    GloVe: "the update in plain Python; gensim: files",
    SVD: "NumPy's singular value decomposition",
    LSA: "NumPy's singular value decomposition",
}
"""What the tests compare word vectors and their files with."""


def objective_name(preset: Published) -> str:
    """Return the name of a preset's objective, in the papers' terms."""
    if isinstance(preset.objective, WORD_VECTOR_METHODS):
        return VECTORS[type(preset.objective)]
    if preset.family in OF_FAMILY:
        return OF_FAMILY[preset.family]
    named = next((name for head, name in BY_HEADS.items() if head in preset.heads), None)
    named = named or _denoising_name(preset.objective)
    components = tuple(components_of(preset.objective))
    if named is None and components:
        named = MIXTURES[components]
    if preset.reads_pictures and "masked" in preset.objective.loss_terms:
        return "masked patches"
    if preset.reads_pictures and "next_token" in preset.objective.loss_terms:
        return "captions of pictures"
    named = named or BY_TERMS[preset.objective.loss_terms]
    if "whole-word" not in preset.name:
        return named
    return named.replace(MASKED_LM, f"{MASKED_LM} of whole words")


def _denoising_name(objective: AnyObjective) -> str | None:
    """Return the name of an objective with a decoder's target; None for any other."""
    if isinstance(objective, SingleStackSeq2Seq):
        return _denoising_name(objective.objective)
    if isinstance(objective, Objective) and isinstance(objective.corrupt, ReplaceSpans):
        return "span corruption"
    if isinstance(objective, DenoisingObjective):
        noised = "denoising: text infilling and sentence permutation"
        return noised if objective.noises else "sequence autoencoding"
    return DENOISING.get(objective)


def equal_to(preset: Published) -> str:
    """Return the reference with which the tests compare a preset."""
    if isinstance(preset.objective, WORD_VECTOR_METHODS):
        return OF_VECTORS[type(preset.objective)]
    usual = "transformers" if preset.config_mapping.in_transformers else FORMULA
    return EQUALS.get(preset.family, usual)


def parameters(n: int) -> str:
    """Write a number of parameters in millions (M) or billions (B)."""
    if n >= 1e9:
        return f"{n / 1e9:.1f} B"
    return f"{n / 1e6:.1f} M" if n < 1e7 else f"{n / 1e6:.0f} M"


def section_of(preset: Published) -> str:
    """Return the room of the zoo that a preset's file stands in."""
    return _ROOMS[preset.name]


def _rooms() -> dict[str, str]:
    """Find for each preset the room of its module."""
    found: dict[str, str] = {}
    for name, module in sorted(sys.modules.items()):
        parts = name.split(".")
        if parts[:2] == ["unmask", "zoo"] and len(parts) > 3:
            for preset in getattr(module, "PRESETS", ()):
                found[preset.name] = parts[2]
    return found


_ROOMS = _rooms()


def rows(presets: Sequence[Published]) -> Iterator[str]:
    """Yield a row for the presets of a paper that have one objective."""
    groups: dict[tuple[Paper, str], list[Published]] = {}
    for preset in presets:
        groups.setdefault((preset.paper, objective_name(preset)), []).append(preset)
    for (paper, objective), alike in groups.items():
        url = f"https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else paper.url
        cite = f"[{paper.authors.split(',')[0]} {paper.year}]({url})"
        names = ", ".join(f"`{one.name}` {parameters(one.n_parameters)}" for one in alike)
        yield f"| {names} | {cite} | {objective} | {equal_to(alike[0])} |"


def measured() -> list[str]:
    """Join the results of the small presets that other pages measured."""
    found: dict[str, list[str]] = {}
    for page in ("encoders.md", "decoders.md"):
        lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("| model | sst2"))
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(cells[0], cells[1:])
    lines = [
        "| preset | SST-2 | random | MRPC | random | CoNLL | random | parts of speech | random |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    return lines + [f"| `{name}` | {' | '.join(cells)} |" for name, cells in found.items()]


def page() -> str:
    """Write the page."""
    presets = list(MODELS.values())
    lines = [
        "# Models",
        "",
        f"The catalogue has {len(presets)} presets of {len({one.family for one in presets})} "
        "families (this page is written by `python scripts/models_page.py`). `unmask show NAME` "
        "prints a preset: architecture, objective, tokenizer, recipe, and deviations from its "
        "paper. "
        "Parameter counts include the pretraining heads.",
        "",
        "*Reference*: what the tests compare a preset with. “transformers” means that hidden "
        "states, logits and losses are equal to a relative 1e-5 (random weights of several "
        "sizes, padded and packed batches, float32), that weights are converted in both "
        "directions, and that generated text is equal token for token, greedy and with beams.",
    ]
    for room, heading in SECTIONS.items():
        some = [one for one in presets if section_of(one) == room]
        lines += [
            "",
            f"## {heading}",
            "",
            "| presets and parameters | paper | objective | reference |",
            "| --- | --- | --- | --- |",
            *rows(some),
        ]
    used = {objective_name(one) for one in presets}
    lines += [
        "",
        "## Objectives",
        "",
        "M: masked positions. x̃: the corrupted text. x̂: the text with replaced tokens. z, π: a "
        "random order. σ: the logistic function. [objectives.md](objectives.md) lists the "
        "objectives that `--objective` accepts for any network.",
        "",
        "| objective | loss |",
        "| --- | --- |",
        *(
            f"| {name} | {formula.replace('|', chr(92) + '|')} |"
            for name, formula in FORMULAS.items()
            if name in used
        ),
        "",
        "## What small ones reach",
        "",
        "Small presets at the size of BERT-tiny were pretrained on 4 to 8 million tokens of "
        "Wikipedia, then fine-tuned on 1,000 rows. The table gives accuracy or F1 (mean and "
        "standard deviation of three seeds), beside the same network with random weights. "
        "Details: [encoders.md](encoders.md), [decoders.md](decoders.md).",
        "",
        *measured(),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or check that it agrees with the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    path, text = DOCS / "models.md", page()
    if parser.parse_args().check:
        return int(path.read_text(encoding="utf-8") != text)
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
