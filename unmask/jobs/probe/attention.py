"""The analysis of attention: reads trees, analyzes a network and its control, writes the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.analysis.attention.analyze import (
    AttentionInputs,
    AttentionSettings,
    ParsedTexts,
    analyze_network,
    read_parsed_texts,
)
from unmask.analysis.attention.findings import AttentionFindings, NetworkAttention
from unmask.analysis.dependencies import DependencyTree, read_dependencies
from unmask.analysis.words import WordPieces, read_words
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.model.recording import recordable_stacks
from unmask.reports.analysis.attention_page import render_attention_page
from unmask.reports.analysis.attention_tables import (
    format_attention_markdown,
    relation_table,
    result_sentences,
)
from unmask.reports.analysis.figures.of_hidden_states import draw_attention_figures

_SHOWN_WORDS = range(6, 31)
"""Numbers of words of the sentences that are shown where no text is given."""


@dataclass(frozen=True, kw_only=True)
class AttentionAnalysis(AttentionSettings):
    """Heads against dependency trees, and what they attend to; Clark et al. 2019."""

    sentences: int = 300
    """Test sentences, and as many training sentences, the first of each file."""
    shown: int = 4
    """Test sentences that the page shows where no text is given."""

    def __post_init__(self) -> None:
        """Check numbers.

        Raises:
            ValueError: one is too small.
        """
        least = {"relations": 1, "min_count": 1, "sentences": 1, "shown": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} must be at least {value}, got {getattr(self, name)}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Analyze the attention of a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model has no attention or no tokenizer, or the data have no trees, or
                too few.
        """
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        recordable_stacks(model.backbone)
        train, test = self._read_trees(inputs)
        texts = [read_parsed_texts(model, tokenizer, trees) for trees in (train, test)]
        prepared = AttentionInputs(
            train=texts[0], test=texts[1], shown=self._shown_texts(inputs, texts[1])
        )
        networks = inputs.networks()
        analyzed: list[NetworkAttention] = []
        for name, network in networks.items():
            inputs.show(f"attention: {name} weights")
            analyzed.append(analyze_network(name, network, tokenizer, prepared, model, self))
        findings = AttentionFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            n_train=len(texts[0].trees),
            n_test=len(texts[1].trees),
            n_skipped=len(train) + len(test) - sum(len(one.trees) for one in texts),
            networks=tuple(analyzed),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_attention_markdown(findings),
            html=render_attention_page(findings, inputs.written),
            table=relation_table(findings),
            sentences=tuple(result_sentences(findings)),
            figures=draw_attention_figures(findings),
        )

    def _read_trees(
        self, inputs: ProbeInputs
    ) -> tuple[Sequence[DependencyTree], Sequence[DependencyTree]]:
        """Return training and test sentences."""
        trees = read_dependencies(inputs.required_data, inputs.encoding_errors)
        if inputs.train is not None:
            train = read_dependencies(inputs.train, inputs.encoding_errors)
            return train[: self.sentences], trees[: self.sentences]
        if len(trees) < 2:
            raise ValueError(
                f"{inputs.required_data}: one sentence cannot be halved into sentences on which "
                "heads are chosen and others on which they are scored; name a file by train "
                "(--train)"
            )
        half = len(trees) // 2
        return trees[:half][: self.sentences], trees[half:][: self.sentences]

    def _shown_texts(self, inputs: ProbeInputs, test: ParsedTexts) -> tuple[WordPieces, ...]:
        """Return the given texts, or the first test sentences of usual length."""
        if not inputs.texts:
            usual = [one for one in test.pieces if len(one.words) in _SHOWN_WORDS]
            return tuple((usual or list(test.pieces))[: self.shown])
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        sentences = [text.split() for text in inputs.texts]
        if any(not words for words in sentences):
            raise ValueError("text (--text) has no word")
        read = read_words(model, tokenizer, sentences)
        found = tuple(one for one in read if one is not None)
        if len(found) < len(read):
            text = inputs.texts[read.index(None)]
            raise ValueError(
                f"text (--text) is longer than the model's positions: {text[:40]!r}..."
            )
        return found
