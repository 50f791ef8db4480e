"""Figures of analyses that stand alone: SVG documents by name, written as NAME-FIGURE.svg."""
