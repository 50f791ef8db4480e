"""The analysis of reading times: surprisal by a network and its control against human readers."""

from dataclasses import dataclass

import numpy as np

from unmask.analysis.behavior.reading_data import read_reading_times
from unmask.analysis.behavior.reading_scores import (
    ReadingFindings,
    WordSurprisals,
    measure_network,
    surprisals,
)
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.behavior.reading_page import render_reading_page
from unmask.reports.analysis.behavior.reading_tables import (
    effect_table,
    format_reading_markdown,
    reading_sentences,
)

_EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
_SELF_PACED = "self_paced_reading_time"


@dataclass(frozen=True, kw_only=True)
class ReadingAnalysis:
    """Surprisal against reading times, as in BabyLM's evaluation; de Varda et al. 2023."""

    measures: tuple[str, ...] = (*_EYE_TRACKING, _SELF_PACED)
    """Columns with what is predicted."""
    spillover: tuple[str, ...] = (_SELF_PACED,)
    """Those whose baseline has the previous word's length and surprisal."""
    token_count: bool = False
    """Whether all baselines have the number of tokens of a word."""
    ending_masks: int = 3
    """Mask tokens after the word that a masked model predicts."""

    def __post_init__(self) -> None:
        """Check names and numbers.

        Raises:
            ValueError: there is no measure, or a number is too small.
        """
        if not self.measures:
            raise ValueError("measures must name at least one column")
        if self.ending_masks < 0:
            raise ValueError(f"ending_masks must be at least 0, got {self.ending_masks}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Compare surprisal with reading times.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model predicts no words, or the data are no reading times.
        """
        tokenizer = inputs.pipeline.tokenizer
        data = read_reading_times(inputs.required_data, self.measures, inputs.encoding_errors)
        networks = inputs.networks()
        n, words = len(data.words), [*data.words, *data.previous]
        found: dict[str, WordSurprisals] = {}
        for name, network in networks.items():
            inputs.show(f"reading: {n:,} words, {name} weights")
            found[name] = surprisals(network, tokenizer, words, self.ending_masks)
        n_tokens = found["trained"].n_tokens
        predictors = {name: one.bits for name, one in found.items()}
        if not self.token_count:
            predictors["tokens"] = n_tokens
        counted = n_tokens[:n] if self.token_count else None
        measured = [
            measure_network(name, data, values[:n], values[n:], self.spillover, counted)
            for name, values in predictors.items()
        ]
        findings = ReadingFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            n_words=n,
            n_too_long=int(np.isnan(n_tokens[:n]).sum()),
            spillover=tuple(one for one in self.spillover if one in self.measures),
            token_count=self.token_count,
            networks=tuple(measured),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_reading_markdown(findings),
            html=render_reading_page(findings, inputs.written),
            table=effect_table(findings),
            sentences=tuple(reading_sentences(findings)),
        )
