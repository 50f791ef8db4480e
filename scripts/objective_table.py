"""Pretrain every family with every objective for some steps, and write docs/objectives.md.

Each pair of a small network and an objective is pretrained for three steps on the bundled novels,
saved and loaded. Where transformers has its class, transformers loads it, too, and the outputs for
a text are compared. Results are appended to a file, from which an interrupted script continues:

    python scripts/objective_table.py --out /tmp/objectives [--docs docs/objectives.md]

`--refresh docs/objectives.md` rewrites what needs no training: text, names, options, reasons.
"""

import argparse
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unmask
from unmask.batch import Example
from unmask.batching.collate import pad_examples
from unmask.bundled.demo import bundled_path
from unmask.config import to_dict
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.corpus.prepare import load_or_train_tokenizer, tokenize_corpus
from unmask.model.architecture import BackboneArchitecture
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.backbones.convolutional import ConvolutionalArchitecture
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.text.documents import read_documents
from unmask.training.config import Recipe
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import TEXT_MODELS
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.objectives.presets import OBJECTIVE_PRESETS
from unmask.zoo.preset import Published

OBJECTIVES = (
    "mlm", "clm", "rtd", "span-corruption", "mntp", "plm", "prefix-lm", "unilm", "nsp", "sop",
    "infilling", "mass", "static", "sbo", "contrastive", "corrective", "ul2", "deshuffling",
    "characters", "subwords", "bidirectional-lm", "whole-word", "neighbor",
    "deletion", "permutation", "rotation",
)  # fmt: skip
"""Of objectives that differ only in the selection of targets, one is run."""
LAST = frozenset(
    {
        "xlm-roberta-mini", "camembert-mini", "mistral-mini", "qwen2-mini", "gemma-mini",
        "gemma-2-mini", "skip-thoughts-bi", "mt5-mini", "t5-shared-mini", "lamda-mini",
    }
)  # fmt: skip
"""Their networks differ from others only in size: they come last."""
CHARACTERS = 60_000
SENTENCE = "It was a bright cold day, and the old man had not yet seen the sea."
CLOSE = 2e-4
"""Largest difference between logits of equal networks: float32, sums in another order."""


def cards() -> list[Published]:
    """Return one small card of each family that has a network."""
    found: dict[str, Published] = {}
    for card in TEXT_MODELS.values():
        small = any(word in card.name for word in ("mini", "tiny"))
        if not isinstance(card.objective, WORD_VECTOR_METHODS) and (
            small or card.family not in found
        ):
            had = found.get(card.family)
            if had is None or not any(word in had.name for word in ("mini", "tiny")):
                found[card.family] = card
    return sorted(found.values(), key=lambda card: card.name in LAST)


def tiny(a: BackboneArchitecture) -> dict[str, Any]:
    """Return what a network of a few thousand weights has otherwise."""
    if isinstance(a, EncoderDecoderArchitecture):
        return {side: tiny(getattr(a, side)) for side in ("encoder", "decoder")}
    if isinstance(a, ElmoArchitecture):
        return {
            "d_model": 32,
            "embedding_size": 16,
            "d_ff": 48,
            "character_cnn": {"filters": [[1, 8]]},
        }
    if isinstance(a, ConvolutionalArchitecture):
        return {"d_model": 30, "n_layers": 2}
    if isinstance(a, RecurrentArchitecture):
        made: dict[str, Any] = {"n_layers": 2, "d_model": 32, "d_ff": 32}
        return made | ({"embedding_size": 32} if a.embedding_size else {})
    if isinstance(a, CanineArchitecture):
        return {
            "d_model": 32,
            "d_ff": 128,
            "n_heads": 2,
            "local_attention_block": 16,
            "n_layers": 1,
            "n_hash_buckets": 128,
        }
    made = {"n_layers": max(2, len(a.attention_window)), "d_ff": 128, "d_model": 32, "n_heads": 2}
    made |= {"n_kv_heads": 1} if a.n_kv_heads else {}
    made |= {"head_dim": 16} if a.head_dim else {}
    return made | ({"embedding_size": 24} if a.embedding_size else {})


def prepared(card: Published, out: Path) -> Path:
    """Tokenize some text for a card, once for all with this kind of tokenizer."""
    text = out / "text.txt"
    if not text.is_file():
        chapters = "\n\n".join(one.text for one in read_documents(bundled_path("novels")))
        text.write_text(chapters[:CHARACTERS], encoding="utf-8")
    key = json.dumps(to_dict(card.tokenizer), sort_keys=True)
    names = out / "tokenizers.json"
    known: dict[str, int] = json.loads(names.read_text()) if names.is_file() else {}
    number = known.setdefault(key, len(known))
    names.write_text(json.dumps(known))
    folder = out / f"tokens-{number}"
    if not (folder / "shards.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        source = str(text)
        if card.tokenizer.special_tokens.languages:
            source = f"{card.tokenizer.special_tokens.languages[0]}={text}"
        recipe = Recipe(model=card.name, data=(source,), vocab_size=400)
        tokenize_corpus(recipe, folder, load_or_train_tokenizer(recipe, folder, None, card))
    return folder


def tried(card: Published, objective: str, out: Path) -> dict[str, Any]:
    """Train, write, open and compare; or say why not."""
    begin = time.monotonic()
    result: dict[str, Any] = {"card": card.name, "objective": objective}
    if (no := unsupported(card, objective)) is not None:
        return no
    asked = adapt_to_objective(card, objective)
    run = out / "run"
    shutil.rmtree(run, ignore_errors=True)
    learned = unmask.pretrain(
        card.name,
        data=prepared(asked, out),
        out=run,
        steps=3,
        objective=objective,
        changes=[{"architecture": tiny(card.architecture), "sequence_length": 64,
                  "batch_tokens": 256, "micro_batch_tokens": None, "dev_fraction": 0.0,
                  "precision": "float32"}],
        threads=1,
        quiet=True,
    )  # fmt: skip
    opened = load(run)
    result |= compared(learned, opened, run)
    said = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
    result["terms"] = sorted(key for key in said if key.endswith("_loss"))
    return result | {"seconds": round(time.monotonic() - begin, 2)}


def compared(learned: Pipeline, opened: Pipeline, run: Path) -> dict[str, Any]:
    """Compare what was learned with what was opened, here and in transformers."""
    mine, theirs = learned.model.trained_weights(), opened.model.trained_weights()
    same = mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)
    config = json.loads((run / "config.json").read_text())
    kind = config["architectures"][0]
    found: dict[str, Any] = {"same": same, "class": kind, "result": "unmask"}
    if not opened.preset.config_mapping.in_transformers:
        return found
    import transformers

    model = getattr(transformers, kind).from_pretrained(run).eval()
    with torch.no_grad():
        found["difference"] = difference(opened, model, kind)
    close = found["difference"] is not None and found["difference"] < CLOSE
    return found | {"result": "transformers" if close else "opens"}


def difference(opened: Pipeline, model: Any, kind: str) -> float | None:
    """Return how far the scores of a text are apart, or what stands before scores."""
    tokenizer = opened.tokenizer
    special = tokenizer.special_ids
    if special.languages:
        special = special.with_languages(special.languages[0][0])
    ids = tokenizer.encode(SENTENCE).ids.astype(np.int64)[:40]
    ids = np.concatenate((special.prefix, ids, special.suffix)).astype(np.int64)
    given = {"input_ids": torch.from_numpy(ids)[None]}
    blank = np.full(len(ids), -100)
    if "ForConditionalGeneration" in kind or kind == "MarianMTModel":
        inputs = np.concatenate(([special.start], ids[:-1]))
        rank = np.arange(len(ids))
        example = Example(inputs=inputs, targets=blank, rank=rank, source=ids)
        given["decoder_input_ids"] = torch.from_numpy(inputs)[None]
    else:
        rank = np.arange(len(ids)) if opened.model.decoder_architecture.causal else None
        example = Example(inputs=ids, targets=blank, rank=rank)
    batch = pad_examples([example], special)
    ours = opened.model.hidden_states(replace(batch, targets=None))
    theirs = model(**given, output_hidden_states=True)
    words = ("LM", "ForConditionalGeneration", "ForPreTraining", "MTModel")
    names = any(word in kind for word in words)
    if names and opened.model.has_language_head and not kind.startswith("XLNet"):
        scores = opened.model.language_head.logits(ours)
        said = getattr(theirs, "logits", None)
        said = getattr(theirs, "prediction_logits", None) if said is None else said
        width = min(said.shape[-1], scores.shape[-1])
        return float((scores[..., :width] - said[..., :width]).abs().max())
    last = getattr(theirs, "last_hidden_state", None)
    last = theirs.hidden_states[-1] if last is None else last
    return float((ours - last).abs().max())


def done(path: Path) -> Iterator[dict[str, Any]]:
    """Read what was tried so far."""
    if path.is_file():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


SIGNS = {"transformers": "T", "opens": "t", "unmask": "U", "no": "–"}


def page(found: list[dict[str, Any]]) -> str:
    """Write the page: names and options, the table, the reasons."""
    results = {(one["card"], one["objective"]): one for one in found}
    times = Counter(objective for _, objective in results)
    names = [name for name in OBJECTIVES if times[name] > len(cards()) // 2]
    lines = [introduction(), "| preset | " + " | ".join(names) + " |"]
    lines.append("| --- |" + " --- |" * len(names))
    for card in cards():
        if sum((card.name, name) in results for name in names) < len(names):
            continue
        cells = [results.get((card.name, name), {}).get("result", "") for name in names]
        lines.append(f"| {card.name} | " + " | ".join(SIGNS.get(c, " ") for c in cells) + " |")
    return "\n".join([*lines, "", *_reasons(found), ""])


def introduction() -> str:
    """Return the page up to the table of pairs: text, and names with their options."""
    lines = [
        _HEAD,
        "",
        "| name | prediction task | options | with `+` |",
        "| --- | --- | --- | --- |",
    ]
    for name, preset in OBJECTIVE_PRESETS.items():
        options = ", ".join(f"`{option}`" for option in preset.options) or "–"
        plus = "yes" if preset.wraps_objective or preset.adds_heads else ""
        lines.append(f"| `{name}` | {preset.description} | {options} | {plus} |")
    return "\n".join([*lines, "", _TABLE, "", ""])


def unsupported(card: Published, objective: str) -> dict[str, Any] | None:
    """Return the reason why a network does not support an objective; None where it does."""
    try:
        adapt_to_objective(card, objective)
    except ValueError as error:
        reason = str(error).split(f"does not support {objective}: ", 1)[-1]
        return {"card": card.name, "objective": objective, "result": "no", "reason": reason}
    return None


def refreshed(old: str) -> str:
    """Return the page with all that needs no training made anew; results are kept."""
    results = old[old.index("\n| preset | mlm ") + 1 : old.index("\n## Why not")]
    opened = old[old.index(f"\n{_OPENED}") :]
    pairs = product((False, True), OBJECTIVES, cards())
    found = [unsupported(c, name) for last, name, c in pairs if (c.name in LAST) == last]
    reasons = "\n".join(_reasons([one for one in found if one is not None]))
    return f"{introduction()}{results}\n{reasons}\n{opened}"


def _reasons(found: list[dict[str, Any]]) -> Iterator[str]:
    why: dict[str, list[str]] = {}
    for one in found:
        if one["result"] == "no":
            why.setdefault(one["reason"], []).append(f"{one['card']}: {one['objective']}")
    yield "## Why not"
    yield ""
    yield "| reason | pairs |"
    yield "| --- | --- |"
    for reason, pairs in sorted(why.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(pairs[:3]) + (f" and {len(pairs) - 3} more" if len(pairs) > 3 else "")
        yield f"| {reason} | {shown} |"
    apart = [one for one in found if one["result"] == "opens"]
    if apart:
        yield ""
        yield _OPENED + ", ".join(
            f"{one['card']} with {one['objective']} ({one['difference']:.2g})" for one in apart
        )


_OPENED = "Loaded by transformers with other outputs (`t`; largest difference): "
_HEAD = """# Objectives

`unmask pretrain MODEL --objective NAME` pretrains any network with any objective that it supports.
`unmask hide MODEL "text" --objective NAME` shows the inputs and targets of an objective. Both
refuse the same pairs with the same reason. In Python it is
`unmask.pretrain(..., objective="rtd:generator_size=0.25")`, in a recipe or a study
`objective = "mlm:rate=0.3"`.

Options follow a colon. An objective that wraps another one, or adds heads to it, follows a plus:
`mlm:rate=0.3+nsp`, `spans+sbo`, `corrective+contrastive`. Alone, such a name has the default of its
paper: `nsp` is `mlm+nsp`.

An objective determines the following parts of a model:

- **heads**: the preset's own where it has them, with the family's tensor names; `rtd` and
  `corrective` add a smaller generator;
- **attention mask**: `clm` makes a BERT causal, `mlm` makes a Llama bidirectional;
- **stacks**: in a single stack, source and target are concatenated (the source with bidirectional
  attention where the network supports such a prefix, otherwise causal); of an encoder-decoder with
  an objective on one text, only the encoder is trained;
- **special tokens**: a tokenizer trained for the run gets a mask token, 100 sentinels, mode tokens
  or a separator where it lacks them. A given tokenizer must have them;
- **rows**: a preset that reads a stream reads documents for another objective.

The run's folder names the class of transformers for this network: a BERT trained with `clm` is a
`BertLMHeadModel` with `is_decoder` and generates. Networks without such a class (a bidirectional
Llama) are saved in Unmask's own format, which `unmask.load` opens; the folder's README says so.

`scripts/objective_table.py` writes this page."""
_TABLE = """## Which with which

Each pair was trained for three steps at a tiny size, saved, and loaded with equal weights.
**T**: transformers has its class, loads it, and has equal outputs (largest difference below
0.0002); **t**: transformers loads it, with other outputs; **U**: only `unmask.load` opens it;
**–**: not supported, for the reasons below. The other names of the list above differ from one of
these in the selection of targets. With `mntp`, and with a bidirectional source, transformers
computes equal logits but uses them differently: the folder's README says how."""


def main() -> None:
    """Continue the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/objectives"))
    parser.add_argument("--refresh", type=Path, help="rewrite all of a page but its results")
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--strict", action="store_true", help="stop at the first failure")
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    if given.refresh is not None:
        page_now = given.refresh.read_text(encoding="utf-8")
        given.refresh.write_text(refreshed(page_now), encoding="utf-8")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    path, until = given.out / "tried.jsonl", time.monotonic() + 60 * given.minutes
    known = {(one["card"], one["objective"]) for one in done(path)}
    for later in (False, True):
        for objective, card in product(OBJECTIVES, cards()):
            if (card.name in LAST) != later:
                continue
            left = time.monotonic() < until and (card.name, objective) not in known
            if not left or (given.only and card.name not in given.only):
                continue
            try:
                one = tried(card, objective, given.out)
            except Exception as error:
                one = {"card": card.name, "objective": objective, "result": "failed",
                       "reason": f"{type(error).__name__}: {error}"}  # fmt: skip
                print(one, flush=True)
                if given.strict:
                    raise
                continue
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
    if given.docs is not None:
        given.docs.write_text(page(list(done(path))), encoding="utf-8")


if __name__ == "__main__":
    main()
