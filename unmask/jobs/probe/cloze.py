"""The analysis of blanks: reads texts, scores a network and its control, writes the page."""

from dataclasses import dataclass
from pathlib import Path

from unmask.analysis.behavior.blanks import AnswerMasking, fits
from unmask.analysis.behavior.cloze_data import (
    count_multi_token_items,
    read_cloze,
    sample_items,
    single_token_items,
)
from unmask.analysis.behavior.cloze_scores import (
    ClozeAccuracies,
    ClozeFindings,
    chance_by_group,
    score_cloze,
    score_most_frequent,
)
from unmask.config import check_word
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.behavior.cloze_page import render_cloze_page
from unmask.reports.analysis.behavior.cloze_tables import (
    cloze_sentences,
    cloze_table,
    format_cloze_markdown,
)
from unmask.reports.analysis.figures.of_behavior import draw_cloze_figures


@dataclass(frozen=True, kw_only=True)
class ClozeAnalysis:
    """What a model predicts in the blanks of texts; Petroni et al. 2019, Talmor et al. 2020."""

    per_group: int | None = 100
    """Texts of each task or relation, evenly spaced. None: all."""
    templates: str | None = None
    """File with the templates of relations, of which the texts of facts are made. None: the
    sentences of the data."""
    answer_masking: AnswerMasking = "answer"
    """Tokens masked when a masked model scores a token of an answer: answer (the token and those
    after it in the answer) or token."""

    def __post_init__(self) -> None:
        """Check numbers and words.

        Raises:
            ValueError: one is not allowed.
        """
        check_word("answer_masking", self.answer_masking, AnswerMasking)
        if self.per_group is not None and self.per_group < 1:
            raise ValueError(f"per_group must be at least 1, or none, got {self.per_group}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Score a model on texts with blanks.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model fills no blanks, or the data have none.
        """
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        templates = None if self.templates is None else Path(self.templates)
        data = read_cloze(inputs.required_data, templates, inputs.encoding_errors)
        answerable = list(data.items)
        if data.are_facts:
            answerable = single_token_items(tokenizer, answerable)
        fitting = fits(model, tokenizer, answerable)
        short = [item for item, fit in zip(answerable, fitting, strict=True) if fit]
        items = sample_items(short, self.per_group)
        if not items:
            raise ValueError(
                f"{inputs.required_data}: no text is left: of {len(data.items):,}, "
                f"{len(answerable):,} have answers of one token that can be compared, and "
                f"{len(short):,} of these fit the model's positions"
            )
        networks = inputs.networks()
        accuracies: list[ClozeAccuracies] = []
        for name, network in networks.items():
            inputs.show(f"cloze: {len(items):,} texts, {name} weights")
            accuracies.append(
                score_cloze(
                    name, network, tokenizer, items,
                    are_facts=data.are_facts, answer_masking=self.answer_masking,
                )
            )  # fmt: skip
        chance, overall = chance_by_group(items)
        findings = ClozeFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            are_facts=data.are_facts,
            n_items=len(items),
            n_in_data=len(data.items),
            n_too_long=len(answerable) - len(short),
            n_several_tokens=len(data.items) - len(answerable)
            if data.are_facts
            else count_multi_token_items(tokenizer, items),
            accuracies=(*accuracies, score_most_frequent(items)),
            chance=chance,
            overall_chance=overall,
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_cloze_markdown(findings),
            html=render_cloze_page(findings, inputs.written),
            table=cloze_table(findings),
            sentences=tuple(cloze_sentences(findings)),
            figures=draw_cloze_figures(findings),
        )
