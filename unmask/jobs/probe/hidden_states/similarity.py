"""The analysis of similarity: a model beside another on the same words, writes the page."""

from dataclasses import dataclass
from pathlib import Path

from unmask.analysis.hidden_states.similarity import (
    SimilarityFindings,
    common_words,
    layer_similarity,
    weight_changes,
)
from unmask.analysis.probes.features import random_weights, word_features
from unmask.analysis.sentences import read_sentences
from unmask.inference.open_model import load
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.figures.of_hidden_states import draw_similarity_figures
from unmask.reports.analysis.hidden_states.similarity_page import (
    format_similarity_markdown,
    render_similarity_page,
    result_sentences,
    similarity_table,
)


@dataclass(frozen=True, kw_only=True)
class SimilarityAnalysis:
    """Layers of a model beside those of another, as its base before fine-tuning: CKA, SVCCA."""

    other: str = ""
    """The other model: a run folder, a folder in the Hugging Face layout, or a bundled one."""
    sentences: int = 300
    """Sentences of the data, the first of them."""

    def __post_init__(self) -> None:
        """Check that there is another model.

        Raises:
            ValueError: there is none, or a number is too small.
        """
        if not self.other:
            raise ValueError("other must name a model to compare with: similarity:other=MODEL")
        if self.sentences < 1:
            raise ValueError(f"sentences must be at least 1, got {self.sentences}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Compare the layers of two models.

        Raises:
            FileNotFoundError: a file or the other model is missing.
            ValueError: no data are given, or a model cannot be read, or reads none of the words.
        """
        sentences = read_sentences(inputs.required_data, self.sentences, inputs.encoding_errors)
        own, other = inputs.pipeline, load(self.other)
        other.model.to(own.model.device)
        inputs.show("similarity: hidden states")
        ours = word_features(own.model, own.tokenizer, sentences)
        theirs = word_features(other.model, other.tokenizer, sentences)
        layers, other_layers = common_words(ours, theirs)
        to_random = None
        if inputs.control:
            inputs.show("similarity: random weights")
            control = random_weights(other.model, inputs.seed)
            random_layers = word_features(control, other.tokenizer, sentences)
            to_random = layer_similarity(*common_words(ours, random_layers))
        findings = SimilarityFindings(
            model=inputs.model_name,
            other=Path(self.other).name,
            data=inputs.required_data.name,
            n_sentences=len(sentences),
            n_words=len(layers[0]),
            to_other=layer_similarity(layers, other_layers),
            to_random=to_random,
            changes=tuple(weight_changes(own.model, other.model)),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_similarity_markdown(findings),
            html=render_similarity_page(findings, inputs.written),
            table=similarity_table(findings),
            sentences=tuple(result_sentences(findings)),
            figures=draw_similarity_figures(findings),
        )
