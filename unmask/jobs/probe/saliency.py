"""The analysis of saliency: reads texts, explains what a model decides, writes the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from unmask.analysis.probes.features import random_weights
from unmask.analysis.saliency.analyze import (
    ALL_METHODS,
    SaliencySettings,
    baseline_embedding,
    explain,
    rank_correlations,
    resolve_baseline,
)
from unmask.analysis.saliency.attributions import Method, unsupported_rollout
from unmask.analysis.saliency.decisions import Decision
from unmask.analysis.saliency.findings import SaliencyFindings
from unmask.analysis.saliency.labels import check_explained, label_decisions
from unmask.analysis.saliency.tokens import drawn_question, given_question, token_decisions
from unmask.analysis.sentences import read_sentences
from unmask.finetuning.results.predict import infer_task, make_items
from unmask.finetuning.results.score import FileOptions, read_items
from unmask.inference.pipeline import Pipeline
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.figures.of_behavior import draw_saliency_figures
from unmask.reports.analysis.saliency.page import render_saliency_page
from unmask.reports.analysis.saliency.tables import (
    format_saliency_markdown,
    method_table,
    result_sentences,
)
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class SaliencyAnalysis(SaliencySettings):
    """What a decision rests on: attributions to words, and how faithful they are."""

    texts: int = 100
    """Texts of the data that are explained, the first of them."""
    shown: int = 10
    """Texts that the page shows."""
    methods: tuple[str, ...] = ()
    """Methods of attribution. Empty: all that the model allows."""

    def __post_init__(self) -> None:
        """Check numbers and names.

        Raises:
            ValueError: a number is too small, or there is no such method.
        """
        for name, least in {"texts": 1, "shown": 0, "steps": 1, "draws": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in self.methods:
            if name not in ALL_METHODS:
                raise ValueError(f"methods must be of {', '.join(ALL_METHODS)}, got {name!r}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Explain what a model decides.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: neither data nor texts are given; the model neither predicts labels of texts
                nor tokens; or no text has words.
        """
        pipeline = inputs.pipeline
        baseline = resolve_baseline(pipeline.tokenizer, self.baseline)
        decisions, n_skipped, decides = self._decisions(inputs)
        methods, left_out = self._methods(pipeline)
        inputs.show(f"saliency: {len(decisions):,} texts")
        arguments = pipeline.model, pipeline.tokenizer, decisions, methods, self, inputs.seed
        texts, scores = explain(*arguments)
        if inputs.control:
            inputs.show("saliency: random weights")
            control = random_weights(pipeline.model, inputs.seed)
            removed = baseline_embedding(control, pipeline.tokenizer, baseline)
            scores = rank_correlations(texts, control, decisions, removed, scores, self.steps)
        findings = SaliencyFindings(
            model=inputs.model_name,
            data="" if inputs.data is None else inputs.data.name,
            decides=decides,
            baseline=baseline,
            steps=self.steps,
            n_skipped=n_skipped,
            left_out=left_out,
            texts=tuple(texts),
            n_shown=self.shown,
            methods=tuple(scores),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_saliency_markdown(findings),
            html=render_saliency_page(findings, inputs.written),
            table=method_table(findings),
            sentences=tuple(result_sentences(findings)),
            figures=draw_saliency_figures(findings),
        )

    def _methods(self, pipeline: Pipeline) -> tuple[list[Method], str | None]:
        """Return the methods, and why attention rollout is left out, if it is.

        Raises:
            ValueError: it was asked for, and the model does not allow it.
        """
        chosen: list[Method] = [
            one for one in ALL_METHODS if one in self.methods or not self.methods
        ]
        reason = unsupported_rollout(pipeline.model)
        if "attention_rollout" not in chosen or reason is None:
            return chosen, None
        if self.methods:
            raise ValueError(f"methods: {reason}")
        return [one for one in chosen if one != "attention_rollout"], reason

    def _decisions(
        self, inputs: ProbeInputs
    ) -> tuple[list[Decision], int, Literal["labels", "numbers", "tokens"]]:
        """Return what is explained, the number of texts that are left out, and of which kind."""
        if inputs.data is None and not inputs.texts:
            raise ValueError("no texts: name a file (--data), or give some (--text)")
        pipeline = inputs.pipeline
        if pipeline.can_predict:
            task = infer_task(pipeline.loaded_model) if pipeline.task is None else pipeline.task
            found = _label_decisions(inputs, task, self.texts)
            decides = "numbers" if TASK_KINDS[task.task_kind].predicts_number else "labels"
        else:
            found, decides = _token_decisions(inputs, self.texts), "tokens"
        kept = [one for one in found if one is not None]
        if not kept:
            raise ValueError(f"none of {len(found):,} texts has words that the model can read")
        return kept, len(found) - len(kept), decides


def _label_decisions(inputs: ProbeInputs, task: Task, n: int) -> Sequence[Decision | None]:
    pipeline = inputs.pipeline
    check_explained(task)
    items = make_items(task, inputs.texts)
    if inputs.data is not None:
        options = FileOptions(encoding_errors=inputs.encoding_errors)
        items += read_items(task, inputs.data, options)[:n]
    return label_decisions(pipeline.loaded_model, task, items)


def _token_decisions(inputs: ProbeInputs, n: int) -> Sequence[Decision | None]:
    model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
    questions = [given_question(model, text) for text in inputs.texts]
    if inputs.data is not None:
        sentences = read_sentences(inputs.data, n, inputs.encoding_errors)
        drawn = (
            drawn_question(model, words, np.random.default_rng((inputs.seed, i)))
            for i, words in enumerate(sentences)
        )
        questions += islice((one for one in drawn if one is not None), n)
    return token_decisions(model, tokenizer, questions)
