"""The analysis of contextuality: words in several sentences by layer, writes the page."""

from dataclasses import dataclass

from unmask.analysis.hidden_states.contextuality import (
    ContextualityFindings,
    measure_layers,
    occurrences,
    whitened,
)
from unmask.analysis.probes.features import random_weights, word_features
from unmask.analysis.sentences import read_sentences
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.figures.of_hidden_states import draw_contextuality_figures
from unmask.reports.analysis.hidden_states.contextuality_page import (
    contextuality_table,
    format_contextuality_markdown,
    render_contextuality_page,
    result_sentences,
)


@dataclass(frozen=True, kw_only=True)
class ContextualityAnalysis:
    """How much the states of a word depend on its sentence, by layer; Ethayarajh 2019."""

    sentences: int = 1000
    """Sentences of the data, the first of them."""
    min_contexts: int = 5
    """Sentences in which a word must be."""

    def __post_init__(self) -> None:
        """Check numbers.

        Raises:
            ValueError: one is too small.
        """
        for name in ("sentences", "min_contexts"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2, got {getattr(self, name)}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Measure the layers of a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: no data are given, or no word is in enough sentences.
        """
        pipeline = inputs.pipeline
        model, tokenizer = pipeline.model, pipeline.tokenizer
        sentences = read_sentences(inputs.required_data, self.sentences, inputs.encoding_errors)
        inputs.show("contextuality: hidden states")
        features = word_features(model, tokenizer, sentences)
        occurring = occurrences(features, sentences, self.min_contexts)
        networks = {
            "trained": measure_layers(features, occurring, inputs.seed),
            "whitened": measure_layers(whitened(features), occurring, inputs.seed),
        }
        if inputs.control:
            inputs.show("contextuality: random weights")
            control = word_features(random_weights(model, inputs.seed), tokenizer, sentences)
            networks["random"] = measure_layers(control, occurring, inputs.seed)
        findings = ContextualityFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            n_sentences=len(sentences) - features.n_skipped,
            n_words=len(features),
            n_types=len(occurring),
            networks=networks,
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_contextuality_markdown(findings),
            html=render_contextuality_page(findings, inputs.written),
            table=contextuality_table(findings),
            sentences=tuple(result_sentences(findings)),
            figures=draw_contextuality_figures(findings),
        )
