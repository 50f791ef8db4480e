"""The analysis of importance: what a model loses without some of its heads, writes the page."""

from dataclasses import dataclass

import numpy as np

from unmask.analysis.attention.importance import ImportanceFindings, measure_heads
from unmask.jobs.compress import read_texts_with_targets
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.figures.of_hidden_states import draw_importance_figures
from unmask.reports.analysis.importance_page import (
    format_importance_markdown,
    heads_table,
    importance_sentences,
    render_importance_page,
)
from unmask.tasks.metrics.regression import spearman

_N_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class ImportanceAnalysis:
    """What a model loses without some of its heads; Michel et al. 2019."""

    texts: int = 256
    """Texts of the data, the first of them."""

    def __post_init__(self) -> None:
        """Check numbers.

        Raises:
            ValueError: there are no texts.
        """
        if self.texts < 1:
            raise ValueError(f"texts must be at least 1, got {self.texts}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Measure the heads of a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: no data are given, or the network has no heads that can be removed.
        """
        data = inputs.required_data
        batches = read_texts_with_targets(inputs.pipeline, data, self.texts)
        fractions = tuple(i / _N_STEPS for i in range(_N_STEPS + 1))
        loss, layers, curves = measure_heads(
            inputs.pipeline.model, batches, fractions=fractions, seed=inputs.seed, show=inputs.show
        )
        importance = np.concatenate([one.importance for one in layers])
        increases = np.concatenate([one.increases for one in layers])
        findings = ImportanceFindings(
            model=inputs.model_name,
            data=data.name,
            n_texts=sum(len(batch.inputs) for batch in batches),
            loss=loss,
            layers=tuple(layers),
            fractions=fractions,
            curves=curves,
            correlation=spearman(importance, increases),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_importance_markdown(findings),
            html=render_importance_page(findings, inputs.written),
            table=heads_table(findings),
            sentences=tuple(importance_sentences(findings)),
            figures=draw_importance_figures(findings),
        )
