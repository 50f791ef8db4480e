"""Rotary angles as configurations say them, in all the ways that transformers 5 understands.

Its rule is `RotaryEmbeddingConfigMixin.convert_rope_params_to_dict` and `standardize_rope_params`:
a `rope_scaling` that is not empty stands in place of `rope_parameters`; what a table leaves out is
taken from the keys beside it, then from the family's default; `type` is an older word for
`rope_type`.
"""

from collections.abc import Mapping
from typing import Any, cast

from unmask.model.architecture import MOST, Architecture
from unmask.model.keys import Keys
from unmask.model.positions import Rotary, Slower, SlowOnesSlower

GLOBAL, LOCAL = "full_attention", "sliding_attention"
KEYS = Keys(
    """
    rope_parameters                   used     table?     -
    rope_scaling                      used     table?     -
    rope_theta                        used     positive   -
    partial_rotary_factor             used     number?    -
    original_max_position_embeddings  used     size       -
    """
)
"""Of all families whose queries and keys turn."""


def one_for_all(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a family whose layers all have the same angles.

    Raises:
        ValueError: there are tables for kinds of layers.
    """
    where, said = _table(theirs)
    for kind, value in said.items():
        if isinstance(value, Mapping):
            raise ValueError(f"{where} has a table {kind!r}, where all layers have the same angles")
    said = _defaults(theirs, said, theirs.get("rope_theta", 10_000.0))
    return said | _pinned(theirs)


def by_kind(theirs: Mapping[str, Any], thetas: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the table of each kind of layer.

    Args:
        theirs: their configuration, without `rope_scaling`, which families understand otherwise.
        thetas: what each kind has where its table does not say it.

    Raises:
        ValueError: a table is none.
    """
    tables = theirs.get("rope_parameters") or {}
    out: dict[str, dict[str, Any]] = {}
    for kind, theta in thetas.items():
        said = tables.get(kind)
        if not (said is None or isinstance(said, Mapping)):
            raise ValueError(f"rope_parameters.{kind} must be an object or null, got {said!r}")
        out[kind] = _defaults(theirs, dict(cast("Mapping[str, Any]", said or {})), theta)
    return out


def scaled_too(theirs: Mapping[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return a configuration of tables by kind, in some of which `rope_scaling` is written.

    Raises:
        ValueError: `rope_parameters` lacks the table that is to be changed.
    """
    out = {k: x for k, x in theirs.items() if k != "rope_scaling"}
    scaling = theirs.get("rope_scaling")
    if scaling is None:
        return out
    tables = theirs.get("rope_parameters")
    tables = (
        dict(tables)
        if tables is not None
        else {kind: {"rope_type": "default"} for kind in (GLOBAL, LOCAL)}
    )
    for kind in kinds:
        if not isinstance(tables.get(kind), Mapping):
            raise ValueError(f"rope_scaling changes rope_parameters.{kind}, which is not there")
        tables[kind] = {**tables[kind], **scaling}
    return out | {"rope_parameters": tables}


def _table(theirs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the table that counts, and its key."""
    if theirs.get("rope_scaling"):
        return "rope_scaling", dict(theirs["rope_scaling"])
    return "rope_parameters", dict(theirs.get("rope_parameters") or {})


def _defaults(theirs: Mapping[str, Any], said: dict[str, Any], theta: Any) -> dict[str, Any]:
    share = theirs.get("partial_rotary_factor")
    said.setdefault("rope_type", said.get("type", "default"))
    said.setdefault("rope_theta", theta)
    if share is not None:
        said.setdefault("partial_rotary_factor", share)
    if said["rope_type"] == "llama3":
        length = theirs.get("max_position_embeddings")
        said.setdefault("original_max_position_embeddings", length)
    return said


def _pinned(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the length that stands beside the table, which counts before the table's own."""
    key = "original_max_position_embeddings"
    return {key: theirs[key]} if key in theirs else {}


def scheme(said: Mapping[str, Any], length: int, *, partial: bool = False) -> Rotary:
    """Read one table, whose defaults are filled in.

    Args:
        said: it.
        length: how long texts the model was made for.
        partial: heads turn in part. Where they do not, the reference reads past
            `partial_rotary_factor` unless angles are scaled; then its shapes do not fit.

    Raises:
        ValueError: angles are scaled in a way that is not known here, or a number is none.
    """
    kind, theta = said["rope_type"], _number(said, "rope_theta")
    share = _number(said, "partial_rotary_factor") if "partial_rotary_factor" in said else 1.0
    if share > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {share}")
    if not partial:
        if kind != "default" and share != 1:
            raise ValueError(f"partial_rotary_factor = {share} does not go with rope_type {kind!r}")
        share = 1.0
    if kind == "default":
        scaling = None
    elif kind == "linear":
        scaling = Slower(_number(said, "factor"))
    elif kind == "llama3":
        scaling = _llama_3(said)
    else:
        raise ValueError(f"rope_type {kind!r} is not one of ['default', 'linear', 'llama3']")
    return Rotary(theta, length, share, scaling)


def paired(position: Rotary, width: int) -> Rotary:
    """Return angles that turn pairs of a head's numbers.

    Raises:
        ValueError: a number is left over.
    """
    if (turning := int(width * position.share)) % 2 or not turning:
        raise ValueError(
            f"rotary angles turn pairs of numbers, but partial_rotary_factor = {position.share} of "
            f"a head's {width} are {turning}"
        )
    return position


def _llama_3(said: Mapping[str, Any]) -> SlowOnesSlower:
    length = said["original_max_position_embeddings"]
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MOST:
        raise ValueError(
            f"original_max_position_embeddings must be an integer from 1 to {MOST:,}, "
            f"got {length!r}"
        )
    low, high = (_number(said, f"{word}_freq_factor") for word in ("low", "high"))
    if high <= low:
        raise ValueError(f"high_freq_factor must be above low_freq_factor, {low}, got {high}")
    return SlowOnesSlower(factor=_number(said, "factor"), low=low, high=high, length=length)


def _number(said: Mapping[str, Any], key: str) -> float:
    if key not in said:
        raise ValueError(f"rope_type {said['rope_type']!r} lacks {key!r}")
    value = said[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise ValueError(f"{key} of rotary angles must be a number above 0, got {value!r}")
    return float(value)


def their_table(position: Rotary) -> dict[str, Any]:
    """Write one table of `rope_parameters`."""
    said: dict[str, Any] = {"rope_type": "default", "rope_theta": position.theta}
    if position.share != 1:
        said["partial_rotary_factor"] = position.share
    if isinstance(position.scaling, Slower):
        said |= {"rope_type": "linear", "factor": position.scaling.factor}
    if isinstance(position.scaling, SlowOnesSlower):
        said |= {
            "rope_type": "llama3",
            "factor": position.scaling.factor,
            "low_freq_factor": position.scaling.low,
            "high_freq_factor": position.scaling.high,
            "original_max_position_embeddings": position.scaling.length,
        }
    return said


def whole(position: Rotary) -> Rotary:
    """Return the angles of a family whose heads turn as a whole.

    Raises:
        ValueError: they turn in part, for which its classes have no word.
    """
    if position.share != 1:
        raise ValueError(
            f"this format's heads turn as a whole, got position.share {position.share}"
        )
    return position


def angles(a: Architecture) -> Rotary:
    """Return an architecture's rotary scheme.

    Raises:
        ValueError: it has another.
    """
    if not isinstance(a.position, Rotary):
        raise ValueError(f"this format has Rotary positions only, got {a.position}")
    return a.position
