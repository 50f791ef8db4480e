"""Text for text, of models that name what is hidden: a target is learned where it is masked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import Question
from unmask.finetuning.by_text import ByText
from unmask.generation.rows import Prompt, Rows
from unmask.heads.model import Model
from unmask.hiding.targets import HiddenTarget


@dataclass(frozen=True, kw_only=True)
class ByHidden(ByText):
    """A source that is seen as a whole, and a target that is learned by its hidden tokens (UniLM).

    Dong et al. 2019, arXiv:1905.03197, section 2.5. Which tokens are hidden is drawn anew in every
    epoch. The loss that is told of a target is that of every token, each asked of a mask in its
    place after all true tokens before it, as it is when the model writes: it depends on no draw,
    and is minus the log-probability of the target. It is not that of training, where some of the
    tokens before are hidden, too.
    """

    hides: HiddenTarget

    def drawn(self, example: Example, rng: np.random.Generator) -> Example:
        """Hide some tokens of the target."""
        return self.hides.hidden(example, self.special, rng)

    def _example(self, read: Sequence[int], said: Sequence[int] | None) -> Example:
        return self.hides.shown(read, said or ())

    def _read(self, example: Example) -> Int[np.ndarray, "_"]:
        return example.inputs[example.rank == 0]

    def _losses(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[tuple[float, int]]:
        """Compute the cross-entropy of each target's tokens, told from those before, and count."""
        targets = [q.example.targets[q.example.targets != IGNORE] for q in questions]
        lengths = [len(target) for target in targets]
        totals = np.zeros(len(targets))
        read = [self._read(q.example).tolist() for q in questions]
        rows = Rows(model, [Prompt(read=ids, whole=len(ids)) for ids in read], self.special)
        here = list(range(len(targets)))
        for i in range(max(lengths)):
            on = [k for k, row in enumerate(here) if lengths[row] > i]
            if len(on) < len(here):  # what is over has no place left, perhaps
                rows.keep(torch.tensor(on, device=model.device))
                here = [here[k] for k in on]
            said = torch.tensor([[targets[row][i]] for row in here], device=model.device)
            logs = rows.scores()[:, 0].log_softmax(-1)
            totals[here] -= logs.gather(1, said)[:, 0].double().cpu().numpy()
            rows.say(said)
        return list(zip(totals.tolist(), lengths, strict=True))
