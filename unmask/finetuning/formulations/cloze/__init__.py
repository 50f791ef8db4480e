"""Tasks as blanks to fill (Schick and Schuetze 2021, arXiv:2001.07676)."""
