"""Text to text for masked models: the tokens of a target are predicted where they are masked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.finetuning.formulations.formulation import TaskInput
from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.heads.model import Model
from unmask.objectives.unified_lm.masked_target import MaskedTarget


@dataclass(frozen=True, kw_only=True)
class MaskedTextFormulation(TextToTextFormulation):
    """A bidirectional source, and a target whose masked tokens are predicted (UniLM).

    Dong et al. 2019, arXiv:1905.03197, section 2.5. The masked tokens are drawn again in each
    epoch. The reported loss of a target is over all of its tokens, each predicted at a mask after
    the true tokens before it, as in generation: it is not random, and is the negative
    log-probability of the target. The training loss differs: there, earlier tokens may be masked,
    too.
    """

    masked_target: MaskedTarget

    def sample_example(self, example: Example, rng: np.random.Generator) -> Example:
        """Mask some tokens of the target."""
        return self.masked_target.mask_target(example, self.special_ids, rng)

    def _build_example(
        self, prompt_ids: Sequence[int], target_ids: Sequence[int] | None
    ) -> Example:
        return self.masked_target.unmasked_example(prompt_ids, target_ids or ())

    def _prompt_ids(self, example: Example) -> Int[np.ndarray, "_"]:
        return example.inputs[example.rank == 0]

    def _target_losses(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[tuple[float, int]]:
        """Compute the cross-entropy of each target's tokens given those before, and count them."""
        targets = [q.example.targets[q.example.targets != IGNORE_INDEX] for q in task_inputs]
        lengths = [len(target) for target in targets]
        totals = np.zeros(len(targets))
        prompt_ids = [self._prompt_ids(q.example).tolist() for q in task_inputs]
        rows = DecodingBatch(
            model,
            [Prompt(input_ids=ids, n_source_tokens=len(ids)) for ids in prompt_ids],
            self.special_ids,
        )
        active_rows = list(range(len(targets)))
        for i in range(max(lengths)):
            on = [k for k, row in enumerate(active_rows) if lengths[row] > i]
            if len(on) < len(active_rows):  # finished rows may have no positions left
                rows.select_rows(torch.tensor(on, device=model.device))
                active_rows = [active_rows[k] for k in on]
            step_targets = torch.tensor(
                [[targets[row][i]] for row in active_rows], device=model.device
            )
            logs = rows.next_token_logits()[:, 0].log_softmax(-1)
            totals[active_rows] -= logs.gather(1, step_targets)[:, 0].double().cpu().numpy()
            rows.append_tokens(step_targets)
        return list(zip(totals.tolist(), lengths, strict=True))
