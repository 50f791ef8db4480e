"""The analysis of senses: occurrences of a word in one sense or two, by layer; writes the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unmask.analysis.hidden_states.contextuality import whitened
from unmask.analysis.hidden_states.senses.findings import SensesFindings
from unmask.analysis.hidden_states.senses.neighbors import OccurrenceNeighbors, nearest_occurrences
from unmask.analysis.hidden_states.senses.thresholds import (
    LayerSenses,
    SplitPairs,
    measure_other_words,
    measure_senses,
    sentences_of,
    split_rows,
)
from unmask.analysis.hidden_states.senses.word_pairs import (
    WordPair,
    pseudo_word_pairs,
    read_word_pairs,
    split_by_word,
)
from unmask.analysis.probes.features import WordFeatures, random_weights, word_features
from unmask.analysis.sentences import read_sentences
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.figures.of_hidden_states import draw_senses_figures
from unmask.reports.analysis.hidden_states.senses_page import (
    format_senses_markdown,
    render_senses_page,
    result_sentences,
    senses_table,
)


@dataclass(frozen=True, kw_only=True)
class SensesAnalysis:
    """Whether occurrences of a word have one sense, by the cosine of their vectors: WiC."""

    pairs: int = 2000
    """Pairs of each file, the first of them."""
    pseudo_words: int = 0
    """Pseudo-words that are made of the text of the data: two words taken for one. 0: the data are
    pairs in WiC's layout."""
    per_word: int = 20
    """Pairs of each pseudo-word, a multiple of four."""
    sentences: int = 5000
    """Sentences of a text, the first of them."""
    corpus: str | None = None
    """Text in which neighbors are sought. None: the sentences of the data."""
    words: tuple[str, ...] = ()
    """Words whose occurrences are shown with their neighbors, joined by plus signs."""
    shown: int = 4
    """Occurrences of each."""
    nearest: int = 5
    """Neighbors of each occurrence."""

    def __post_init__(self) -> None:
        """Check numbers.

        Raises:
            ValueError: one is not allowed.
        """
        least = {"pairs": 4, "pseudo_words": 0, "sentences": 2, "shown": 1, "nearest": 1}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise ValueError(f"{name} must be at least {number}, got {getattr(self, name)}")
        if self.pseudo_words == 1:
            raise ValueError("pseudo_words must be 0, or 2 or more: some choose the threshold")
        if self.per_word < 4 or self.per_word % 4:
            raise ValueError(f"per_word must be a multiple of 4, got {self.per_word}")
        if self.corpus is not None and not self.words:
            raise ValueError("corpus is searched for words: name some (words=bank+mouse)")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Tell senses apart by the layers of a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the data are of another layout, or too few, or a word is not in the text.
        """
        train, scored = self._read(inputs)
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        both = [*train, *scored]
        sentences = sentences_of(both)
        inputs.show(f"senses: {len(both):,} pairs, trained weights")
        features = word_features(model, tokenizer, sentences)
        rows = split_rows(features, train, scored)
        networks = {
            "trained": measure_senses(features, rows),
            "whitened": measure_senses(whitened(features), rows),
        }
        baseline = measure_other_words(features, both, rows)
        if inputs.control:
            inputs.show(f"senses: {len(both):,} pairs, random weights")
            control = word_features(random_weights(model, inputs.seed), tokenizer, sentences)
            networks["random"] = measure_senses(control, rows)
        findings = SensesFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            are_pseudo_words=self.pseudo_words > 0,
            n_train=len(rows.train.same),
            n_scored=len(rows.scored.same),
            n_skipped=rows.n_skipped,
            majority=_majority(rows),
            other_words=baseline,
            networks=networks,
            corpus="" if self.corpus is None else Path(self.corpus).name,
            neighbors=self._neighbors(inputs, features, sentences, networks),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_senses_markdown(findings),
            html=render_senses_page(findings, inputs.written),
            table=senses_table(findings),
            sentences=tuple(result_sentences(findings)),
            figures=draw_senses_figures(findings),
        )

    def _read(self, inputs: ProbeInputs) -> tuple[list[WordPair], list[WordPair]]:
        """Return the pairs that choose thresholds, and those that are scored."""
        scored = self._read_file(inputs.required_data, inputs)
        if inputs.train is not None:
            return self._read_file(inputs.train, inputs), scored
        return split_by_word(scored)

    def _read_file(self, path: Path, inputs: ProbeInputs) -> list[WordPair]:
        if not self.pseudo_words:
            return read_word_pairs(path, inputs.encoding_errors)[: self.pairs]
        sentences = read_sentences(path, self.sentences, inputs.encoding_errors)
        return pseudo_word_pairs(sentences, self.pseudo_words, self.per_word, inputs.seed)

    def _neighbors(
        self,
        inputs: ProbeInputs,
        features: WordFeatures,
        sentences: list[tuple[str, ...]],
        networks: Mapping[str, tuple[LayerSenses, ...]],
    ) -> tuple[OccurrenceNeighbors, ...]:
        """Return neighbors of words by the layer that is best on the training pairs."""
        if not self.words:
            return ()
        best = max(networks["trained"], key=lambda one: one.train_accuracy).layer
        if self.corpus is not None:
            sentences = read_sentences(Path(self.corpus), self.sentences, inputs.encoding_errors)
            inputs.show(f"senses: {len(sentences):,} sentences of {Path(self.corpus).name}")
            pipeline = inputs.pipeline
            features = word_features(pipeline.model, pipeline.tokenizer, sentences)
        return tuple(
            one
            for word in self.words
            for one in nearest_occurrences(
                features, sentences, word, best, self.shown, self.nearest
            )
        )


def _majority(rows: SplitPairs) -> float:
    """Return the accuracy of the label that more training pairs have."""
    label = rows.train.same.mean() >= 0.5
    return float((rows.scored.same == label).mean())
