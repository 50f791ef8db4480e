"""`demo`, `prepare`, `plan`, `pretrain`: from text to a model."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.jobs.options.demo import DemoOptions
from unmask.jobs.options.plan import PlanOptions
from unmask.jobs.options.prepare import PrepareOptions
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.jobs.options.shell.from_dataclass import command
from unmask.jobs.options.shell.shared_options import JsonOption, MoreData
from unmask.output import print_json, print_line


@command(DemoOptions, JsonOption)
def demo(options: Mapping[str, Any], output: JsonOption) -> None:
    """Run the whole path on the bundled text: pretrain, fine-tune, write a report, in 8 minutes."""
    from unmask.jobs.demo import demo as run

    keywords: dict[str, Any] = dict(options)
    keywords["quiet"] = keywords["quiet"] or output.as_json
    result = run(**keywords)
    if output.as_json:
        facts = {
            "folder": str(result.folder),
            "masked_accuracy": result.masked_accuracy,
            "bigram_accuracy": result.bigram_accuracy,
            "arms": result.finetuned.summary(),
            "boxed": result.bundled_finetuned.summary(),
            "seconds": result.seconds,
        }
        print_json(facts)


@command(PrepareOptions, JsonOption)
def prepare(options: Mapping[str, Any], output: JsonOption) -> None:
    """Tokenize a corpus into shards for many runs; clean and deduplicate it if asked."""
    import unmask
    from unmask.shards.fertility import tokens_per_word

    shards = unmask.prepare(**options)
    per_word = tokens_per_word(shards)
    out = options["out"]
    facts = {
        "folder": str(out),
        "tokens": shards.n_tokens,
        "documents": shards.n_documents,
        "bytes": shards.n_bytes,
        "skipped": shards.n_skipped,
        "vocab_size": shards.tokenizer.vocab_size,
        "tokens_per_word": per_word,
    }
    if output.as_json:
        print_json(facts)
        return
    print_line(
        f"{out}: {shards.n_tokens:,} tokens in {shards.n_documents:,} documents, "
        f"{shards.n_bytes / max(shards.n_tokens, 1):.2f} bytes per token, "
        f"vocabulary size {shards.tokenizer.vocab_size:,}"
    )
    if len(per_word) > 1:
        print_line("tokens per word: " + ", ".join(f"{k} {n:.2f}" for k, n in per_word.items()))


@command(PlanOptions, JsonOption)
def plan(options: Mapping[str, Any], output: JsonOption) -> None:
    """Plan a run before it starts: FLOPs, memory, time, energy, CO2e, price.

    Nothing is trained. Each default is one of a published source (docs/planning.md).
    """
    import unmask
    from unmask.jobs.pretrain.plan import format_plan

    planned = unmask.plan(**options)
    if output.as_json:
        print_json(planned.to_json())
        return
    for line in format_plan(planned):
        print_line(line)


@command(PretrainOptions, MoreData, JsonOption, defaults={"out": "runs/pretrained"})
def pretrain(options: Mapping[str, Any], data: MoreData, output: JsonOption) -> None:
    """Pretrain a model on your text, from scratch or from given weights (--from).

    Ctrl-C stops after the current step and saves a checkpoint; --resume continues a stopped or
    killed run to the same result.
    """
    import unmask

    keywords: dict[str, Any] = dict(options)
    keywords["data"] = (*keywords["data"], *data.more)
    pipeline = unmask.pretrain(**keywords)
    if os.environ.get("RANK", "0") != "0":
        return  # only the first process of torchrun prints
    out = Path(options["out"])
    if output.as_json:
        parameters = pipeline.model.parameter_count()
        evaluation = _last_evaluation(out)
        print_json({"folder": str(out), "parameters": parameters, "evaluation": evaluation})
    else:
        print_line(f"{out}: done; report in {out / 'report.html'}")


def _last_evaluation(out: Path) -> dict[str, Any]:
    from unmask.reports.report_data import read_report_data

    evaluation = read_report_data(out).evaluation_log
    return {name: evaluation.last(name) for name in evaluation.columns}
