"""Text for text, of models that name what is hidden: a target is learned where it is masked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.finetuning.formulations.formulation import TaskInput
from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation
from unmask.generation.decoding_batch import DecodingBatch, Prompt
from unmask.heads.model import Model
from unmask.objectives.unified_lm.masked_target import MaskedTarget


@dataclass(frozen=True, kw_only=True)
class MaskedTextFormulation(TextToTextFormulation):
    """A source that is seen as a whole, and a target that is learned by its hidden tokens (UniLM).

    Dong et al. 2019, arXiv:1905.03197, section 2.5. Which tokens are hidden is drawn anew in every
    epoch. The loss that is told of a target is that of every token, each asked of a mask in its
    place after all true tokens before it, as it is when the model writes: it depends on no draw,
    and is minus the log-probability of the target. It is not that of training, where some of the
    tokens before are hidden, too.
    """

    masked_target: MaskedTarget

    def sample_example(self, example: Example, rng: np.random.Generator) -> Example:
        """Hide some tokens of the target."""
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
        """Compute the cross-entropy of each target's tokens, told from those before, and count."""
        targets = [q.example.targets[q.example.targets != IGNORE_INDEX] for q in task_inputs]
        lengths = [len(target) for target in targets]
        totals = np.zeros(len(targets))
        read = [self._prompt_ids(q.example).tolist() for q in task_inputs]
        rows = DecodingBatch(
            model,
            [Prompt(input_ids=ids, n_source_tokens=len(ids)) for ids in read],
            self.special_ids,
        )
        here = list(range(len(targets)))
        for i in range(max(lengths)):
            on = [k for k, row in enumerate(here) if lengths[row] > i]
            if len(on) < len(here):  # what is over has no place left, perhaps
                rows.select_rows(torch.tensor(on, device=model.device))
                here = [here[k] for k in on]
            said = torch.tensor([[targets[row][i]] for row in here], device=model.device)
            logs = rows.next_token_logits()[:, 0].log_softmax(-1)
            totals[here] -= logs.gather(1, said)[:, 0].double().cpu().numpy()
            rows.append_tokens(said)
        return list(zip(totals.tolist(), lengths, strict=True))
