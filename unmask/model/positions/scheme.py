"""PositionScheme: the union of all position schemes."""

from typing import get_args

from unmask.model.positions.disentangled import DisentangledAttention
from unmask.model.positions.grid import GridPositions
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.module import NoPositions
from unmask.model.positions.relative_bias import (
    LearnedPositionsAndRelativeBias,
    LearnedPositionsAndT5Bias,
    RelativePositionBias,
)
from unmask.model.positions.rotary import LayerwiseRotary, Rotary
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.model.positions.transformer_xl import TransformerXLPositions

PositionScheme = (
    NoPositions
    | LearnedPositions
    | GridPositions
    | Sinusoidal
    | RelativePositionBias
    | LearnedPositionsAndRelativeBias
    | LearnedPositionsAndT5Bias
    | Rotary
    | LayerwiseRotary
    | DisentangledAttention
    | TransformerXLPositions
)
SCHEMES_IN_SCORES = tuple(scheme for scheme in get_args(PositionScheme) if scheme.in_scores)
"""Schemes that change scores."""
