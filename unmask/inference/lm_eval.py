"""The model class of lm-evaluation-harness 0.4 (`lm_eval`), so that its tasks score our models.

That library finds model classes in its own table alone, so its program is started from here:

    python -m unmask.inference.lm_eval run --model unmask --model_args path=RUN --tasks
    lambada_openai

takes all that `lm-eval` takes. In Python: `lm_eval.simple_evaluate(model=UnmaskLM(RUN),
tasks=...)`.
"""

# lm_eval is not among what the checks install.
# pyright: reportMissingImports=false
# pyright: reportUntypedClassDecorator=false, reportUntypedBaseClass=false

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ModuleNotFoundError as error:
    raise ImportError("lm_eval is not installed: pip install 'unmask[lm-eval]'") from error

from unmask.evaluation.answer_methods import truncate_at
from unmask.evaluation.likelihood import (
    ContinuationLikelihood,
    LikelihoodWindows,
    PseudoLikelihoodMasking,
    continuation_likelihoods,
)
from unmask.generation.prompts import generate_texts
from unmask.generation.settings import GenerationConfig, generation_config
from unmask.inference.open_model import load

_KNOWN_SETTINGS = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p")


@register_model("unmask")
class UnmaskLM(LM):
    """A model class for lm-evaluation-harness."""

    def __init__(
        self,
        path: str,
        *,
        device: str = "auto",
        max_length: int | None = None,
        pll_masking: PseudoLikelihoodMasking = "word",
        seed: int = 0,
        batch_size: int | str = "auto",
        max_batch_size: int | None = None,
    ) -> None:
        """Load a model.

        Args:
            path: the model, as for `unmask.load`.
            device: the device; the CPU if there is no CUDA, which is the harness's default.
            max_length: maximum input length in tokens. None: the model's number of positions.
            pll_masking: masking for a masked model.
            seed: random seed of sampling tasks.
            batch_size: ignored: batches are made by tokens.
            max_batch_size: ignored.
        """
        super().__init__()
        is_available = not device.startswith("cuda") or torch.cuda.is_available()
        self._pipeline = load(path).to(device if is_available else "auto")
        self._max_length, self._seed = max_length, seed
        self._pll_masking: PseudoLikelihoodMasking = pll_masking

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Compute the log-likelihood of each continuation, and whether it is the greedy one.

        A token that would cross the boundary is split (the harness's own classes change the last
        token of the context instead).
        """
        pairs = [_request_arguments(request) for request in requests]
        contexts, continuations = [context for context, _ in pairs], [text for _, text in pairs]
        return [
            (likelihood.log_likelihood, likelihood.is_greedy)
            for likelihood in self._score_continuations(contexts, continuations)
        ]

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Compute the log-likelihood of whole texts, in windows if long."""
        texts: list[str] = [_request_arguments(request)[0] for request in requests]
        rows = [i for i, text in enumerate(texts) if text.strip()]
        scored = self._score_continuations([""] * len(rows), [texts[i] for i in rows])
        likelihood_of_row = dict(zip(rows, scored, strict=True))
        return [
            likelihood_of_row[i].log_likelihood if i in likelihood_of_row else 0.0
            for i in range(len(texts))
        ]

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Continue prompts, up to the first stop string.

        Raises:
            ValueError: a generation setting is unknown.
        """
        texts_of_row: dict[int, str] = {}
        groups: dict[str, list[int]] = {}
        arguments = [_request_arguments(request) for request in requests]
        for i, (_, settings) in enumerate(arguments):
            groups.setdefault(repr(settings), []).append(i)
        for rows in groups.values():
            settings = arguments[rows[0]][1]
            outputs = generate_texts(
                self._pipeline.model,
                self._pipeline.tokenizer,
                [arguments[i][0] for i in rows],
                self._generation_config(settings),
                max_length=self._max_length,
                special_ids=self._pipeline.special_ids,
            )
            stop = settings.get("until") or ()
            stop = [stop] if isinstance(stop, str) else stop
            texts_of_row |= {
                i: truncate_at(output.text, stop) for i, output in zip(rows, outputs, strict=True)
            }
        return [texts_of_row[i] for i in range(len(requests))]

    def _score_continuations(
        self, contexts: Sequence[str], continuations: Sequence[str]
    ) -> list[ContinuationLikelihood]:
        return continuation_likelihoods(
            self._pipeline.model,
            self._pipeline.tokenizer,
            contexts,
            continuations,
            pll_masking=self._pll_masking,
            windows=LikelihoodWindows(sequence_length=self._max_length),
        )

    def _generation_config(self, settings: Mapping[str, Any]) -> GenerationConfig:
        if unknown := sorted(set(settings) - set(_KNOWN_SETTINGS)):
            raise ValueError(
                f"generation_kwargs: {unknown[0]!r} is unknown (known: "
                f"{', '.join(_KNOWN_SETTINGS)})"
            )
        max_new_tokens = int(settings.get("max_gen_toks", 256))  # the harness's default
        do_sample = settings.get("do_sample", settings.get("temperature", 0) > 0)
        if not do_sample:
            return GenerationConfig(max_new_tokens=max_new_tokens)
        return generation_config(
            max_new_tokens=max_new_tokens,
            temperature=float(settings.get("temperature", 1.0)),
            top_k=settings.get("top_k"),
            top_p=settings.get("top_p"),
            seed=self._seed,
        )


def _request_arguments(request: Instance) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", request.args)


def main() -> None:
    """Run lm-evaluation-harness with this model class registered."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
