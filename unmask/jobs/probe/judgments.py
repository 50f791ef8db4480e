"""The analysis of judgments: preferences of a network and its control beside those of people."""

from dataclasses import dataclass

from unmask.analysis.behavior.judgments import (
    JudgmentFindings,
    log_odds,
    measure_judgments,
    read_judgments,
)
from unmask.analysis.behavior.pair_scores import PairLikelihoods, score_pairs
from unmask.analysis.behavior.sentences import likelihood_name
from unmask.config import check_word
from unmask.evaluation.likelihood import PseudoLikelihoodMasking
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.behavior.judgments_page import (
    correlation_table,
    format_judgments_markdown,
    judgment_sentences,
    render_judgments_page,
)


@dataclass(frozen=True, kw_only=True)
class JudgmentsAnalysis:
    """How far a model prefers one of two texts as people do, as in BabyLM's tests of new words."""

    pll_masking: PseudoLikelihoodMasking = "word"
    """Tokens masked when a masked model scores a token: word (the token and those after it in its
    word) or token."""

    def __post_init__(self) -> None:
        """Check words.

        Raises:
            ValueError: one is not allowed.
        """
        check_word("pll_masking", self.pll_masking, PseudoLikelihoodMasking)

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Correlate the preferences of a model with those of people.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model gives texts no likelihood, or the data are no judgments.
        """
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        judgments = read_judgments(inputs.required_data, inputs.encoding_errors)
        networks = inputs.networks()
        scored: dict[str, PairLikelihoods] = {}
        for name, network in networks.items():
            inputs.show(f"judgments: {len(judgments):,} items, {name} weights")
            pairs = [one.texts for one in judgments]
            scored[name] = score_pairs(network, tokenizer, pairs, self.pll_masking)
        preferences = {name: log_odds(one) for name, one in scored.items()}
        lengths = scored["trained"]
        preferences["fewer_tokens"] = (lengths.n_bad_tokens - lengths.n_good_tokens).astype(float)
        findings = JudgmentFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            likelihood=likelihood_name(model, self.pll_masking),
            judgments=judgments,
            networks=tuple(
                measure_judgments(name, judgments, one) for name, one in preferences.items()
            ),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_judgments_markdown(findings),
            html=render_judgments_page(findings, inputs.written),
            table=correlation_table(findings),
            sentences=tuple(judgment_sentences(findings)),
        )
