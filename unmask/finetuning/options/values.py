"""Values of the options of fine-tuning; nothing heavy is imported for them."""

from collections.abc import Mapping
from typing import Literal

OptimizerName = Literal["adamw", "adafactor"]
ScheduleShape = Literal["linear", "inverse_square_root", "constant"]
"""Decay of the learning rate after its warmup: linear to zero, as 1 / sqrt(step), or none."""
ClassWeights = Literal["balanced"] | Mapping[str, float]
"""Weight of each label in the loss, 1 where none is given; or "balanced": n / (k n_label) for n
positions with one of k labels, n_label of them this one (the formula of scikit-learn)."""
