"""The logit lens: reads texts, looks at a network and its control, writes the page."""

from dataclasses import dataclass

import numpy as np

from unmask.analysis.hidden_states.lens import (
    LensFindings,
    NetworkLens,
    check_lens,
    look_through,
)
from unmask.analysis.saliency.tokens import (
    TokenQuestion,
    check_predicts_tokens,
    drawn_question,
    given_question,
    predicts_after_text,
)
from unmask.analysis.sentences import read_sentences
from unmask.heads.model import Model
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.model.recording import recordable_stacks
from unmask.reports.analysis.figures.of_hidden_states import draw_lens_figures
from unmask.reports.analysis.hidden_states.lens_page import (
    format_lens_markdown,
    lens_table,
    render_lens_page,
    result_sentences,
)


@dataclass(frozen=True, kw_only=True)
class LensAnalysis:
    """What each layer would predict, if it were the last: the logit lens, nostalgebraist 2020."""

    sentences: int = 300
    """Sentences of the data, the first of them."""
    masks: int = 3
    """Words of each sentence that are masked, one at a time; of a decoder, all tokens are
    predicted."""
    shown: int = 6
    """Texts that the page shows."""
    top: int = 5
    """Most probable tokens that are shown."""

    def __post_init__(self) -> None:
        """Check numbers.

        Raises:
            ValueError: one is too small.
        """
        for name, least in {"sentences": 1, "masks": 1, "shown": 0, "top": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Look at the layers of a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: neither data nor texts are given, or the model has no head of tokens, or
                does not consist of Transformer blocks.
        """
        model, tokenizer = inputs.pipeline.model, inputs.pipeline.tokenizer
        check_predicts_tokens(model, tokenizer)
        check_lens(model)
        recordable_stacks(model.backbone)
        questions = self._questions(inputs, model)
        networks = inputs.networks()
        looked: list[NetworkLens] = []
        n_positions, n_skipped = 0, 0
        for name, network in networks.items():
            inputs.show(f"lens: {name} weights")
            found, n_positions, n_skipped = look_through(
                name, network, tokenizer, questions, self.shown, self.top
            )
            looked.append(found)
        findings = LensFindings(
            model=inputs.model_name,
            data="" if inputs.data is None else inputs.data.name,
            predicts="next tokens" if predicts_after_text(model) else "masked tokens",
            n_texts=len(questions) - n_skipped,
            n_positions=n_positions,
            n_skipped=n_skipped,
            networks=tuple(looked),
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_lens_markdown(findings),
            html=render_lens_page(findings, inputs.written),
            table=lens_table(findings),
            sentences=tuple(result_sentences(findings)),
            figures=draw_lens_figures(findings),
        )

    def _questions(self, inputs: ProbeInputs, model: Model) -> list[TokenQuestion]:
        """Return the given texts, and those of the data."""
        if inputs.data is None and not inputs.texts:
            raise ValueError("no texts: name a file (--data), or give some (--text)")
        questions = [given_question(model, text) for text in inputs.texts]
        if inputs.data is None:
            return questions
        for i, words in enumerate(
            read_sentences(inputs.data, self.sentences, inputs.encoding_errors)
        ):
            if predicts_after_text(model):
                questions.append(TokenQuestion(words, len(words), is_known=True))
                continue
            rng = np.random.default_rng((inputs.seed, i))
            drawn = (drawn_question(model, words, rng) for _ in range(self.masks))
            questions += {one.hidden: one for one in drawn if one is not None}.values()
        return questions
