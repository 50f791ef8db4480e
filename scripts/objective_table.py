"""Ask every family every objective for some steps, and write docs/objectives.md.

Each pair of a small network and an objective is pretrained for three steps on the bundled novels,
written, opened again, and where transformers has its class, opened there, too, and compared on a
text. What was done is kept in a file of lines, with which the script goes on where it ended:

    python scripts/objective_table.py --out /tmp/objectives [--docs docs/objectives.md]
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
from unmask.inference.pipeline import Pipeline, load
from unmask.jobs.prepare import load_or_train_tokenizer, tokenize_corpus
from unmask.model.architecture import EncoderDecoderArchitecture
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.backbones.convolutional import ConvolutionalArchitecture
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.names import AnyArchitecture
from unmask.text.documents import read_documents
from unmask.training.config import Recipe
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import MODELS
from unmask.zoo.objectives.adapt import adapt_to_objective
from unmask.zoo.objectives.presets import OBJECTIVE_PRESETS
from unmask.zoo.preset import Published

OBJECTIVES = (
    "mlm", "clm", "rtd", "span-corruption", "mntp", "plm", "prefix-lm", "unilm", "nsp", "sop",
    "infilling", "mass", "static", "sbo", "contrastive", "corrective", "ul2", "deshuffling",
    "characters", "subwords", "bidirectional-lm", "whole-word", "neighbor",
    "deletion", "permutation", "rotation",
)  # fmt: skip
"""Of those that are the same but for which tokens are chosen, one is run."""
LAST = frozenset(
    {
        "xlm-roberta-mini", "camembert-mini", "mistral-mini", "qwen2-mini", "gemma-mini",
        "gemma-2-mini", "skip-thoughts-bi", "mt5-mini", "t5-shared-mini", "lamda-mini",
    }
)  # fmt: skip
"""Their networks are those of others but for sizes: they come last."""
CHARACTERS = 60_000
SENTENCE = "It was a bright cold day, and the old man had not yet seen the sea."
CLOSE = 2e-4
"""Scores that differ by less are those of the same network: float32, sums in another order."""


def cards() -> list[Published]:
    """Return one small card of each family that has a network."""
    found: dict[str, Published] = {}
    for card in MODELS.values():
        small = any(word in card.name for word in ("mini", "tiny"))
        if not isinstance(card.objective, WORD_VECTOR_METHODS) and (
            small or card.family not in found
        ):
            had = found.get(card.family)
            if had is None or not any(word in had.name for word in ("mini", "tiny")):
                found[card.family] = card
    return sorted(found.values(), key=lambda card: card.name in LAST)


def tiny(a: AnyArchitecture) -> dict[str, Any]:
    """Return what a network of a few thousand weights has otherwise."""
    if isinstance(a, EncoderDecoderArchitecture):
        return {side: tiny(getattr(a, side)) for side in ("encoder", "decoder")}
    made: dict[str, Any] = {"n_layers": max(2, len(a.attention_window)), "d_ff": 128}
    if isinstance(a, ElmoArchitecture):
        return {
            "d_model": 32,
            "embedding_size": 16,
            "d_ff": 48,
            "character_cnn": {"filters": [[1, 8]]},
        }
    if isinstance(a, RecurrentArchitecture):
        made |= {"d_model": 32, "d_ff": 32}
        return made | ({"embedding_size": 32} if a.embedding_size else {})
    if isinstance(a, ConvolutionalArchitecture):
        return {"d_model": 30, "n_layers": 2}
    made |= {"d_model": 32, "n_heads": 2}
    made |= {"n_kv_heads": 1} if a.n_kv_heads else {}
    made |= {"head_dim": 16} if a.head_dim else {}
    made |= {"embedding_size": 24} if a.embedding_size else {}
    if isinstance(a, CanineArchitecture):
        made |= {"local_attention_block": 16, "n_layers": 1, "n_hash_buckets": 128}
    return made


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
    try:
        asked = adapt_to_objective(card, objective)
    except ValueError as error:
        reason = str(error).split(f"cannot be asked {objective}: ", 1)[-1]
        return result | {"result": "no", "reason": reason}
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
    lines = [_HEAD, "", "| name | what is hidden or asked | options | with `+` |"]
    lines += ["| --- | --- | --- | --- |"]
    for name, preset in OBJECTIVE_PRESETS.items():
        options = ", ".join(f"`{option}`" for option in preset.options) or "–"
        plus = "yes" if preset.wraps_objective or preset.adds_heads else ""
        lines.append(f"| `{name}` | {preset.description} | {options} | {plus} |")
    lines += [
        "",
        _TABLE,
        "",
        "| card | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for card in cards():
        if sum((card.name, name) in results for name in names) < len(names):
            continue
        cells = [results.get((card.name, name), {}).get("result", "") for name in names]
        lines.append(f"| {card.name} | " + " | ".join(SIGNS.get(c, " ") for c in cells) + " |")
    return "\n".join([*lines, "", *_reasons(found), ""])


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
        yield "Opened by transformers with other numbers (`t`): " + ", ".join(
            f"{one['card']} with {one['objective']} ({one['difference']:.2g})" for one in apart
        )


_HEAD = """# Objectives

`unmask pretrain MODEL --objective NAME` asks any network any objective that it can hold; `unmask
hide MODEL "text" --objective NAME` shows what that is, and both refuse the same pairs with the same
reason. In Python it is `unmask.pretrain(..., objective="rtd:generator_size=0.25")`, in a recipe or
a study `objective = "mlm:rate=0.3"`.

Options follow a colon; what goes around another objective, or beside it, follows a plus:
`mlm:rate=0.3+nsp`, `spans+sbo`, `corrective+contrastive`. Alone, these stand for what their paper
has: `nsp` is `mlm+nsp`.

What is asked brings what it needs:

- **heads**: the card's own where it has them, with the family's names for tensors; a smaller
  generator for `rtd` and `corrective`;
- **visibility**: `clm` on a BERT reads forward, `mlm` on a Llama sees both ways;
- **stacks**: a source and its target are laid one after the other in a single stack (as a prefix
  that is seen as a whole where the network sees texts so, otherwise read forward); of an
  encoder-decoder that is asked about one text, the encoder alone is trained;
- **special tokens**: a mask, 100 sentinels, modes, a separator are added to the tokenizer that is
  learned where it has none. A tokenizer that is given must have them;
- **rows**: a card that reads a stream reads documents where another objective is asked.

The run's folder names the class of transformers that is this network: a BERT that learned `clm` is
a `BertLMHeadModel` with `is_decoder` and generates. Where there is none (a Llama that sees both
ways) it is kept in a format of ours, which `unmask.load` opens, and the folder's README says so.

This page is made by `scripts/objective_table.py`."""
_TABLE = """## Which with which

Each pair was trained for three steps in a tiny size, written, and opened again with equal weights.
**T**: transformers has its class, opens it, and its numbers are ours (largest difference below
0.0002); **t**: opens it, with other numbers; **U**: `unmask.load` alone; **–**: it cannot be, see
below. Other names of the list above differ from one of these in which tokens are chosen. With
`mntp`, and where a source is seen as a whole, transformers takes the same scores otherwise: the
folder's README says how."""


def main() -> None:
    """Go on with the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--strict", action="store_true", help="stop at the first failure")
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
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
