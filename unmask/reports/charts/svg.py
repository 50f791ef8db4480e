"""The SVG document, font and colors of standalone figures."""

from unmask.reports.formatting import RealNumber
from unmask.reports.markup import Html, tag

BACKGROUND_COLOR, TEXT_COLOR, SOFT_TEXT_COLOR = "#fffefb", "#1d1c1a", "#615d56"
GRID_COLOR, LEADER_COLOR = "#d9d4ca", "#b9b3a7"
POINT_COLOR, MEAN_COLOR = "#1b5e9e", "#b0461c"


def svg_document(
    title: str, width: RealNumber, height: RealNumber, *content: Html, font_size: int
) -> str:
    """Return an SVG document of `width` x `height` units with a title and a background."""
    return tag(
        "svg",
        tag("title", title),
        tag("rect", width=f"{width:g}", height=f"{height:g}", fill=BACKGROUND_COLOR),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        font_family="system-ui, sans-serif",
        font_size=font_size,
        fill=TEXT_COLOR,
    ).source
