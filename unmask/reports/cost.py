"""What a run cost: time, computation, memory, energy, CO2e and price, beside what was planned."""

from collections.abc import Callable, Mapping
from typing import Any

from unmask.planning.energy import FAMILIAR_CO2E_KG
from unmask.planning.flops import six_nd
from unmask.reports.formatting import (
    NARROW_SPACE,
    format_bytes,
    format_energy,
    format_in_words,
    format_number,
    format_percent,
    format_seconds,
    format_si,
)
from unmask.reports.markup import EMPTY_HTML, Html, HtmlContent, join_html, section, tag
from unmask.reports.report_data import ReportData
from unmask.training.log import finite_number

KAPLAN_URL = "https://arxiv.org/abs/2001.08361"
STRUBELL_URL = "https://arxiv.org/abs/1906.02243"

Row = tuple[str, str, HtmlContent]


def draw_cost(record: ReportData) -> Html:
    """Show each figure with what was planned for it, then the CO2e beside familiar consumption."""
    cost = record.record_section("cost")
    plan = cost.get("planned")
    planned: Mapping[str, Any] = plan if isinstance(plan, Mapping) else {}
    rows = [*_training_rows(record, cost, planned), *_energy_rows(cost, planned)]
    shown = [
        tag("div", tag("dt", name), tag("dd", text), tag("dd", says, class_="remark"))
        for name, text, says in rows
        if text
    ]
    says = "So far." if record.run_record.get("finished") is False else ""
    if planned:
        share = finite_number(planned.get("utilization"))
        at = f", at {format_percent(share, 0)} of the measured peak" if share else ""
        seen = planned.get("measured_in")
        by = f"by the run's {seen}" if seen else "as computed before the first step"
        says = f"Planned: {by}{at}."
    content = tag("dl", *shown, class_="costs")
    return section("cost", "Cost", says, content, _familiar(cost)) if shown else EMPTY_HTML


def _training_rows(
    record: ReportData, cost: Mapping[str, Any], planned: Mapping[str, Any]
) -> list[Row]:
    parameters = finite_number(record.run_record.get("parameters"))
    tokens = finite_number(cost.get("tokens")) or record.training_log.last("tokens")
    seconds = finite_number(cost.get("seconds")) or record.total_seconds
    work, by = finite_number(cost.get("flops")), join_html("as counted")
    if work is None and parameters and tokens and not record.is_word_vector_run:
        work = six_nd(parameters, tokens)
        by = join_html("6 × parameters × tokens, ", tag("a", "Kaplan et al. 2020", href=KAPLAN_URL))
    logged = record.timing_log.maximum("memory_bytes")
    peak = finite_number(cost.get("peak_memory_bytes")) or logged
    share = record.timing_log.median("matmul_share")
    speed = finite_number(cost.get("tokens_per_second"))
    memory = planned.get("memory_bytes")
    total = memory.get("total") if isinstance(memory, Mapping) else None
    return [
        (
            "Time",
            format_seconds(seconds) if seconds else "",
            _beside("all runs and processes together", planned.get("seconds"), format_seconds),
        ),
        ("Tokens", format_in_words(tokens) if tokens else "", "read in training, repeats counted"),
        (
            "Speed",
            f"{format_si(speed)} tokens/s" if speed else "",
            _beside("", planned.get("tokens_per_second"), lambda x: f"{format_si(x)} tokens/s"),
        ),
        ("Parameters", format_in_words(parameters) if parameters else "", ""),
        ("Computation", _format_flops(work) if work else "", by),
        (
            "Share of peak",
            format_percent(share) if share else "",
            "median, of the fastest matrix product",
        ),
        (
            "Peak memory",
            format_bytes(peak) if peak else "",
            _beside("of what was logged", total, format_bytes),
        ),
    ]


def _energy_rows(cost: Mapping[str, Any], planned: Mapping[str, Any]) -> list[Row]:
    joules, kg = finite_number(cost.get("energy_joules")), finite_number(cost.get("co2e_kg"))
    price, watts = finite_number(cost.get("price")), finite_number(cost.get("watts"))
    pue, grid = finite_number(cost.get("pue")), finite_number(cost.get("grid_kg_per_kwh"))
    by = f"{format_number(watts)} W, {cost.get('power_source')}" if watts else ""
    by += f", times PUE {format_number(pue)}" if pue and by else ""
    of = f"{format_number(grid)} kg/kWh" if grid is not None else ""
    return [
        (
            "Energy",
            format_energy(joules) if joules else "",
            _beside(by, planned.get("energy_joules"), format_energy),
        ),
        ("CO2e", _format_mass(kg) if kg else "", _beside(of, planned.get("co2e_kg"), _format_mass)),
        (
            "Price",
            _format_price(price) if price else "",
            _beside("on demand", planned.get("price"), _format_price),
        ),
    ]


def _beside(remark: str, planned: Any, write: Callable[[int | float], str]) -> str:
    """Return a remark, and what was planned."""
    number = finite_number(planned)
    return "; ".join(filter(None, (remark, f"planned: {write(number)}" if number else "")))


def _familiar(cost: Mapping[str, Any]) -> Html:
    """Compare the CO2e with familiar consumption (Strubell et al. 2019, table 1)."""
    kg = finite_number(cost.get("co2e_kg"))
    if not kg:
        return EMPTY_HTML
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", _format_mass(whole)),
            tag("td", format_number(kg / whole)),
        )
        for name, whole in FAMILIAR_CO2E_KG.items()
    ]
    head = tag("tr", *(tag("th", name, scope="col") for name in ("", "CO2e", "this run by it")))
    paper = tag("a", "Strubell et al. 2019", href=STRUBELL_URL)
    by = tag("p", "Familiar consumption: ", paper, class_="remark")
    return join_html(tag("table", tag("thead", head), tag("tbody", *rows)), by)


def _format_mass(kg: int | float) -> str:
    grams = kg < 1
    return f"{format_number(1000 * kg if grams else kg)}{NARROW_SPACE}{'g' if grams else 'kg'}"


def _format_price(dollars: int | float) -> str:
    return f"${dollars:,.2f}"


def _format_flops(flops: int | float) -> str:
    return f"{format_si(flops)}{'' if flops >= 999.5 else NARROW_SPACE}FLOP"
