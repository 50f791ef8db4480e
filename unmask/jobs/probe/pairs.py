"""The analysis of minimal pairs: reads pairs, scores a network and its control, writes the page."""

from dataclasses import dataclass

from unmask.analysis.behavior.built_in_pairs import BUILT_IN_NAME, built_in_pairs
from unmask.analysis.behavior.minimal_pairs import Compared, read_minimal_pairs, sample_pairs
from unmask.analysis.behavior.pair_scores import (
    PairAccuracies,
    PairFindings,
    PairLikelihoods,
    score_pairs,
    worst_errors,
)
from unmask.analysis.behavior.sentences import likelihood_name
from unmask.config import check_word
from unmask.evaluation.likelihood import PseudoLikelihoodMasking
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.behavior.pairs_page import render_pairs_page
from unmask.reports.analysis.behavior.pairs_tables import (
    format_pairs_markdown,
    pair_sentences,
    phenomenon_table,
)
from unmask.reports.analysis.figures.of_behavior import draw_pair_figures


@dataclass(frozen=True, kw_only=True)
class PairsAnalysis:
    """Which sentence of a minimal pair is more likely; Warstadt et al. 2020."""

    per_paradigm: int | None = 50
    """Pairs of each paradigm, evenly spaced. None: all."""
    pll_masking: PseudoLikelihoodMasking = "word"
    """Tokens masked when a masked model scores a token: word (the token and those after it in its
    word) or token."""
    compared: Compared = "targets"
    """Of pairs with contexts, what a target that fits its context is compared with: another target
    after this context (targets, as BabyLM), or itself after another context (contexts, as EWoK)."""
    shown: int = 12
    """Pairs with the wrong answer that the page shows, one of a paradigm at most."""

    def __post_init__(self) -> None:
        """Check numbers and words.

        Raises:
            ValueError: one is not allowed.
        """
        if self.per_paradigm is not None and self.per_paradigm < 1:
            raise ValueError(f"per_paradigm must be at least 1, or none, got {self.per_paradigm}")
        if self.shown < 0:
            raise ValueError(f"shown must be at least 0, got {self.shown}")
        check_word("pll_masking", self.pll_masking, PseudoLikelihoodMasking)
        check_word("compared", self.compared, Compared)

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Score a model on minimal pairs.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model gives sentences no likelihood, or the data are no pairs.
        """
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        data = inputs.data
        given = (
            built_in_pairs()
            if data is None
            else read_minimal_pairs(data, inputs.encoding_errors, self.compared)
        )
        pairs = sample_pairs(given, self.per_paradigm)
        networks = inputs.networks()
        scored: dict[str, PairLikelihoods] = {}
        for name, network in networks.items():
            inputs.show(f"pairs: {len(pairs):,} pairs, {name} weights")
            scored[name] = score_pairs(network, tokenizer, pairs, self.pll_masking)
        trained = scored["trained"]
        credits = {name: one.credits for name, one in scored.items()}
        credits["fewer_tokens"] = trained.length_credits
        findings = PairFindings(
            model=inputs.model_name,
            data=BUILT_IN_NAME if data is None else data.name,
            likelihood=likelihood_name(model, self.pll_masking),
            compared=self.compared if any(pair.good_context for pair in pairs) else None,
            n_pairs=len(pairs),
            n_pairs_in_data=len(given),
            accuracies=tuple(PairAccuracies.of(name, pairs, c) for name, c in credits.items()),
            phenomenon_of={pair.paradigm: pair.phenomenon for pair in pairs},
            errors=worst_errors(pairs, trained, self.shown),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_pairs_markdown(findings),
            html=render_pairs_page(findings, inputs.written),
            table=phenomenon_table(findings),
            sentences=tuple(pair_sentences(findings)),
            figures=draw_pair_figures(findings),
        )
