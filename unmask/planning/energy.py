"""Energy, CO2e and price of device hours (Strubell et al. 2019, arXiv:1906.02243, section 2)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

POUND = 0.45359237
"""Kilograms."""

DEFAULT_PUE = 1.58
"""Power usage effectiveness: what a data center draws, by what its computers draw. The mean of
2018 (Ascierto, Uptime Institute), as in Strubell et al. 2019, section 2."""
DEFAULT_GRID_KG_PER_KWH = 0.954 * POUND
"""CO2e of electricity in the United States, EPA eGRID 2018, as in Strubell et al. 2019, equation
2: 0.954 pounds, 0.433 kg."""

FAMILIAR_CO2E_KG: Mapping[str, int | float] = {
    "a passenger's flight, New York to San Francisco and back": 1_984 * POUND,
    "a year of human life": 11_023 * POUND,
    "a year of American life": 36_156 * POUND,
    "a car's lifetime, fuel included": 126_000 * POUND,
}
"""Familiar consumption in kg of CO2e (Strubell et al. 2019, table 1)."""


def energy_kwh(watts: int | float, hours: int | float, pue: int | float = DEFAULT_PUE) -> float:
    """Return the energy of a data center for machines that draw `watts` (equation 1).

    >>> round(energy_kwh(1415.78, 12))  # Transformer base, table 3
    27
    """
    return pue * watts * hours / 1000


def co2e_kg(kwh: int | float, kg_per_kwh: int | float = DEFAULT_GRID_KG_PER_KWH) -> float:
    """Return the CO2e of an energy (equation 2).

    >>> round(co2e_kg(27) / POUND)  # Transformer base, table 3
    26
    """
    return kwh * kg_per_kwh


@dataclass(frozen=True, kw_only=True)
class Energy:
    """What device hours come to."""

    watts: int | float | None
    """Mean power of all devices. None: unknown, and so are energy and CO2e."""
    power_source: str
    """Where `watts` is from: RAPL, thermal design power x load, given, or unknown."""
    kwh: int | float | None
    """With the power usage effectiveness."""
    co2e_kg: int | float | None
    price: int | float | None
    """In US dollars, on demand. None: no price is known."""
    spot_price: int | float | None
    """In US dollars where the devices may be taken away. None: no price is known."""

    @property
    def familiar(self) -> dict[str, float]:
        """Its CO2e as a share of familiar consumption."""
        own = self.co2e_kg
        return {} if own is None else {name: own / kg for name, kg in FAMILIAR_CO2E_KG.items()}


def check_positive(name: str, value: int | float, most: int | float = math.inf) -> None:
    """Refuse a number that is not above 0, not finite, or above what it can be.

    Raises:
        ValueError: it is so.
    """
    if not 0 < value < math.inf or value > most:
        allowed = "above 0" if most == math.inf else f"above 0 and at most {most:g}"
        raise ValueError(f"{name} must be {allowed}, got {value:g}")
