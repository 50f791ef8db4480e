"""The analysis of cross-attention: reads pairs of sentences and a dictionary, writes the page."""

from dataclasses import dataclass
from pathlib import Path

from unmask.analysis.attention.alignment import (
    AlignedPair,
    AlignmentFindings,
    analyze_alignment,
    read_pairs,
    split_text,
)
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.model.recording import recordable_stacks
from unmask.reports.analysis.alignment_page import (
    alignment_sentences,
    alignment_table,
    format_alignment_markdown,
    render_alignment_page,
)
from unmask.tasks.readers.tables import read_table
from unmask.word_vectors.alignment.dictionary import read_dictionary


@dataclass(frozen=True, kw_only=True)
class AlignmentAnalysis:
    """Cross-attention of an encoder-decoder against word alignments by a dictionary."""

    dictionary: str
    """File of words and their translations, in the order of the two files of `data`."""
    pairs: int = 300
    """Test pairs, and as many training pairs, the first of each file."""

    def __post_init__(self) -> None:
        """Check numbers.

        Raises:
            ValueError: one is too small.
        """
        if self.pairs < 1:
            raise ValueError(f"pairs must be at least 1, got {self.pairs}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Analyze the cross-attention of a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model is no encoder-decoder of Transformer blocks, the data are no two
                parallel files, or no words are linked.
        """
        model = inputs.pipeline.model
        recordable_stacks(model.backbone)
        if not model.architecture.is_encoder_decoder:
            raise ValueError("alignments are of cross-attention, which only encoder-decoders have")
        train, test = self._read(inputs)
        networks = inputs.networks()
        analyzed = [
            analyze_alignment(name, network, inputs.pipeline.tokenizer, train, test)
            for name, network in networks.items()
        ]
        findings = AlignmentFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            n_train=len(train),
            n_test=len(test),
            networks=tuple(analyzed),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_alignment_markdown(findings),
            html=render_alignment_page(findings, inputs.written),
            table=alignment_table(findings),
            sentences=tuple(alignment_sentences(findings)),
        )

    def _read(self, inputs: ProbeInputs) -> tuple[list[AlignedPair], list[AlignedPair]]:
        """Return training and test pairs whose words the dictionary links."""
        lines = self._lines(inputs, inputs.required_data)
        if inputs.train is not None:
            train = self._lines(inputs, inputs.train)[: self.pairs]
            test = lines[: self.pairs]
        else:
            half = len(lines) // 2
            train, test = lines[:half][: self.pairs], lines[half:][: self.pairs]
        dictionary: dict[str, set[str]] = {}
        for word, translation in read_dictionary(Path(self.dictionary), lowercase=True):
            dictionary.setdefault(word, set()).add(translation)
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        most = model.backbone.encoder_stack.a.max_positions
        found = [read_pairs(tokenizer, part, dictionary, most) for part in (train, test)]
        if not all(found):
            raise ValueError(
                f"{self.dictionary}: links no words of {inputs.required_data}; is it in the other "
                "direction?"
            )
        return found[0], found[1]

    def _lines(
        self, inputs: ProbeInputs, path: Path
    ) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        table = read_table(path, encoding_errors=inputs.encoding_errors)
        if not (table.has_column("source") and table.has_column("target")):
            raise ValueError(
                f"{path}: alignments are of two parallel files, SOURCES+TARGETS, or of the columns "
                f"source and target, got {', '.join(table.columns)}"
            )
        columns = zip(table.column("source"), table.column("target"), strict=True)
        return [(split_text(str(a)), split_text(str(b))) for a, b in columns]
