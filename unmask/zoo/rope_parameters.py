"""Rotary embeddings in configurations, in all forms of transformers 5.

Its rule is `RotaryEmbeddingConfigMixin.convert_rope_params_to_dict` and `standardize_rope_params`:
a nonempty `rope_scaling` replaces `rope_parameters`; missing values are taken from the keys of the
configuration, then from the family's defaults; `type` is an older name of `rope_type`.
"""

from collections.abc import Mapping
from typing import Any, cast

from unmask.model.architecture import MAX_SIZE
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.positions.rotary import LinearScaling, Llama3Scaling, Rotary

GLOBAL, LOCAL = "full_attention", "sliding_attention"
CONFIG_KEYS = ConfigKeys(
    """
    rope_parameters                   used     table?     -
    rope_scaling                      used     table?     -
    rope_theta                        used     positive   -
    partial_rotary_factor             used     number?    -
    original_max_position_embeddings  used     size       -
    """
)
"""Keys of all families with rotary embeddings."""


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a family whose layers all have the same angles.

    Raises:
        ValueError: there are tables for kinds of layers.
    """
    location, parameters = _effective_table(config)
    for kind, value in parameters.items():
        if isinstance(value, Mapping):
            raise ValueError(
                f"{location} has a table {kind!r}, where all layers have the same angles"
            )
    parameters = _fill_defaults(config, parameters, config.get("rope_theta", 10_000.0))
    return parameters | _original_length(config)


def rope_parameters_by_layer_type(
    config: Mapping[str, Any], default_thetas: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the table of each kind of layer.

    Args:
        config: the configuration, without `rope_scaling`, which varies by family.
        default_thetas: default theta of each kind.

    Raises:
        ValueError: a value is not a table.
    """
    tables = config.get("rope_parameters") or {}
    out: dict[str, dict[str, Any]] = {}
    for kind, theta in default_thetas.items():
        value = tables.get(kind)
        if not (value is None or isinstance(value, Mapping)):
            raise ValueError(f"rope_parameters.{kind} must be an object or null, got {value!r}")
        out[kind] = _fill_defaults(config, dict(cast("Mapping[str, Any]", value or {})), theta)
    return out


def with_rope_scaling(config: Mapping[str, Any], kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return a configuration with `rope_scaling` merged into the tables of some kinds.

    Raises:
        ValueError: `rope_parameters` lacks a table.
    """
    out = {k: x for k, x in config.items() if k != "rope_scaling"}
    scaling = config.get("rope_scaling")
    if scaling is None:
        return out
    tables = config.get("rope_parameters")
    tables = (
        dict(tables)
        if tables is not None
        else {kind: {"rope_type": "default"} for kind in (GLOBAL, LOCAL)}
    )
    for kind in kinds:
        if not isinstance(tables.get(kind), Mapping):
            raise ValueError(f"rope_scaling changes rope_parameters.{kind}, which is missing")
        tables[kind] = {**tables[kind], **scaling}
    return out | {"rope_parameters": tables}


def _effective_table(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the effective table and its key."""
    if config.get("rope_scaling"):
        return "rope_scaling", dict(config["rope_scaling"])
    return "rope_parameters", dict(config.get("rope_parameters") or {})


def _fill_defaults(
    config: Mapping[str, Any], parameters: dict[str, Any], theta: Any
) -> dict[str, Any]:
    share = config.get("partial_rotary_factor")
    parameters.setdefault("rope_type", parameters.get("type", "default"))
    parameters.setdefault("rope_theta", theta)
    if share is not None:
        parameters.setdefault("partial_rotary_factor", share)
    if parameters["rope_type"] == "llama3":
        length = config.get("max_position_embeddings")
        parameters.setdefault("original_max_position_embeddings", length)
    return parameters


def _original_length(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the length outside the table, which overrides the table's own."""
    key = "original_max_position_embeddings"
    return {key: config[key]} if key in config else {}


def rotary_from_parameters(
    parameters: Mapping[str, Any], length: int, *, partial: bool = False
) -> Rotary:
    """Read one table with defaults filled in.

    Args:
        parameters: the table.
        length: maximum length of the model.
        partial: whether rotation is partial. If not, the reference ignores `partial_rotary_factor`
            unless angles are scaled; then its shapes do not fit.

    Raises:
        ValueError: the scaling is unsupported, or a value is not a number.
    """
    kind, theta = parameters["rope_type"], _number(parameters, "rope_theta")
    share = (
        _number(parameters, "partial_rotary_factor")
        if "partial_rotary_factor" in parameters
        else 1.0
    )
    if share > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {share}")
    if not partial:
        if kind != "default" and share != 1:
            raise ValueError(
                f"partial_rotary_factor = {share} cannot be combined with rope_type {kind!r}"
            )
        share = 1.0
    if kind == "default":
        scaling = None
    elif kind == "linear":
        scaling = LinearScaling(_number(parameters, "factor"))
    elif kind == "llama3":
        scaling = _llama3_scaling(parameters)
    else:
        raise ValueError(f"rope_type {kind!r} is not one of ['default', 'linear', 'llama3']")
    return Rotary(theta, length, share, scaling)


def check_rotary_pairs(position: Rotary, width: int) -> Rotary:
    """Check that the rotated dimensions of a head are pairs.

    Raises:
        ValueError: their number is odd.
    """
    if (turning := int(width * position.partial_rotary_factor)) % 2 or not turning:
        raise ValueError(
            "rotary embeddings rotate pairs of dimensions, but partial_rotary_factor = "
            f"{position.partial_rotary_factor} of "
            f"a head's {width} are {turning}"
        )
    return position


def _llama3_scaling(parameters: Mapping[str, Any]) -> Llama3Scaling:
    length = parameters["original_max_position_embeddings"]
    if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MAX_SIZE:
        raise ValueError(
            f"original_max_position_embeddings must be an integer from 1 to {MAX_SIZE:,}, "
            f"got {length!r}"
        )
    low, high = (_number(parameters, f"{word}_freq_factor") for word in ("low", "high"))
    if high <= low:
        raise ValueError(f"high_freq_factor must be above low_freq_factor, {low}, got {high}")
    return Llama3Scaling(
        factor=_number(parameters, "factor"),
        low_frequency_factor=low,
        high_frequency_factor=high,
        original_max_positions=length,
    )


def _number(parameters: Mapping[str, Any], key: str) -> float:
    if key not in parameters:
        raise ValueError(f"rope_type {parameters['rope_type']!r} lacks {key!r}")
    value = parameters[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise ValueError(f"{key} of rotary angles must be a number above 0, got {value!r}")
    return float(value)


def parameters_from_rotary(position: Rotary) -> dict[str, Any]:
    """Write one table of `rope_parameters`."""
    said: dict[str, Any] = {"rope_type": "default", "rope_theta": position.theta}
    if position.partial_rotary_factor != 1:
        said["partial_rotary_factor"] = position.partial_rotary_factor
    if isinstance(position.scaling, LinearScaling):
        said |= {"rope_type": "linear", "factor": position.scaling.factor}
    if isinstance(position.scaling, Llama3Scaling):
        said |= {
            "rope_type": "llama3",
            "factor": position.scaling.factor,
            "low_freq_factor": position.scaling.low_frequency_factor,
            "high_freq_factor": position.scaling.high_frequency_factor,
            "original_max_position_embeddings": position.scaling.original_max_positions,
        }
    return said


def require_full_rotary(position: Rotary) -> Rotary:
    """Return the rotary scheme of a family with full rotation.

    Raises:
        ValueError: rotation is partial, which its format cannot express.
    """
    if position.partial_rotary_factor != 1:
        raise ValueError(
            "this format rotates whole heads, got position.partial_rotary_factor "
            f"{position.partial_rotary_factor}"
        )
    return position


def rotary_of(a: Architecture) -> Rotary:
    """Return an architecture's rotary scheme.

    Raises:
        ValueError: it has another.
    """
    if not isinstance(a.position, Rotary):
        raise ValueError(f"this format has Rotary positions only, got {a.position}")
    return a.position
